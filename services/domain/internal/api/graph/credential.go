package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
)

// Credentials is what the API needs of package credential.
type Credentials interface {
	Credentials(ctx context.Context, a core.Actor) ([]credential.Credential, error)
	Create(ctx context.Context, a core.Actor, n credential.NewCredential) (credential.Credential, error)
	Rotate(ctx context.Context, a core.Actor, name string, n credential.NewValue) (credential.Credential, error)
	Revoke(ctx context.Context, a core.Actor, name, reason string) (credential.Credential, error)
}

var _ Credentials = (*credential.UseCases)(nil)

// Credentials are those of the organization.
func (q query) Credentials(ctx context.Context) ([]model.Credential, error) {
	of := loadersOf(ctx)
	found, err := q.domain.Credentials.Credentials(ctx, of.actor)
	all := []model.Credential{}
	for _, c := range found {
		all = append(all, model.WrapCredential(c, of.clock.Now()))
	}
	return all, err
}

// CreateCredential makes one.
func (m mutation) CreateCredential(ctx context.Context, in model.CreateCredentialInput) (model.CredentialPayload, error) {
	made, err := m.domain.Credentials.Create(ctx, loadersOf(ctx).actor, credential.NewCredential{
		Terms: sealing.Terms{
			Name: in.Name, Kind: in.Kind, URLPrefixes: in.URLPrefixes, Username: orEmpty(in.Username), Header: orEmpty(in.Header),
			Forge: orEmpty(in.Forge), Proof: proofOf(in),
		},
		NewValue: credential.NewValue{
			Value: credential.Value(orEmpty(in.Value)), Reference: orEmpty(in.Reference), ExpiresAt: in.ExpiresAt, Reason: orEmpty(in.Reason),
		},
	})
	return credentialPayload(ctx, made, err)
}

// proofOf is how the client proves itself, as the input has it.
func proofOf(in model.CreateCredentialInput) (p sealing.Proof) {
	if o := in.Oauth2; o != nil {
		p.OAuth2 = sealing.OAuth2{TokenURL: o.TokenURL, ClientID: o.ClientID, Send: o.Send}
		if p.OAuth2.Send == "header" {
			p.OAuth2.Send = ""
		}
		if len(o.Scopes) > 0 {
			p.OAuth2.Scopes = o.Scopes
		}
		if p.OAuth2.IsZero() { // it is given, so it is not none: what it lacks is reported
			p.OAuth2.Send = "header"
		}
	}
	if in.Certificate != nil {
		p.Certificate = sealing.Certificate{Client: true, CA: in.Certificate.Ca}
	}
	if a := in.GithubApp; a != nil {
		p.GitHubApp = sealing.GitHubApp{ID: a.AppID, Installation: a.InstallationID, API: a.APIURL}
		if p.GitHubApp == (sealing.GitHubApp{}) { // see above
			p.GitHubApp.Installation = "0"
		}
	}
	if e := in.Ecr; e != nil {
		p.ECR = sealing.ECR{AccessKeyID: e.AccessKeyID, Region: e.Region, Role: e.RoleArn, API: e.APIURL, STS: e.StsURL}
		if p.ECR == (sealing.ECR{}) { // see above
			p.ECR.Region = "-"
		}
	}
	if g := in.Gar; g != nil {
		p.GAR = sealing.GAR{Key: true, TokenURL: g.TokenURL}
	}
	if a := in.Acr; a != nil {
		p.ACR = sealing.ACR{Tenant: a.TenantID, ClientID: a.ClientID, Authority: a.AuthorityURL}
		if p.ACR == (sealing.ACR{}) { // see above
			p.ACR.Tenant = "-"
		}
	}
	if k := in.SSHKey; k != nil {
		p.SSHKey = sealing.SSHKey{KnownHosts: k.KnownHosts}
		if k.KnownHosts == "" { // see above
			p.SSHKey.KnownHosts = "\n"
		}
	}
	return p
}

// RotateCredential gives one another value.
func (m mutation) RotateCredential(ctx context.Context, in model.RotateCredentialInput) (model.CredentialPayload, error) {
	rotated, err := m.domain.Credentials.Rotate(ctx, loadersOf(ctx).actor, in.Name, credential.NewValue{
		Value: credential.Value(orEmpty(in.Value)), Reference: orEmpty(in.Reference), ExpiresAt: in.ExpiresAt, Reason: orEmpty(in.Reason),
	})
	return credentialPayload(ctx, rotated, err)
}

// RevokeCredential ends one.
func (m mutation) RevokeCredential(ctx context.Context, in model.RevokeCredentialInput) (model.CredentialPayload, error) {
	revoked, err := m.domain.Credentials.Revoke(ctx, loadersOf(ctx).actor, in.Name, orEmpty(in.Reason))
	return credentialPayload(ctx, revoked, err)
}

func credentialPayload(ctx context.Context, c credential.Credential, err error) (p model.CredentialPayload, _ error) {
	now := loadersOf(ctx).clock.Now()
	p.Credential, p.Errors, err = changed(c, err, func(c credential.Credential) model.Credential { return model.WrapCredential(c, now) })
	return p, err
}
