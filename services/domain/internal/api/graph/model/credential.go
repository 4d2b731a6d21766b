package model

import (
	"cmp"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
)

// Credential is the domain's, without its value.
type Credential struct {
	Name                    string
	Kind                    sealing.Kind
	URLPrefixes             []string
	Username, Header, Forge string
	Oauth2                  *CredentialOAuth2
	Certificate             *CredentialCertificate
	GithubApp               *CredentialGitHubApp
	Ecr                     *CredentialECR
	Gar                     *CredentialGAR
	Acr                     *CredentialACR
	SSHKey                  *CredentialSSHKey
	Version                 int
	Reference               string
	Sealed                  bool
	State                   credential.State
	ExpiresAt, RevokedAt    *time.Time
	Author                  string
	ChangedAt               time.Time
}

// CredentialOAuth2 is a client of OAuth 2.0.
type CredentialOAuth2 struct {
	TokenURL, ClientID string
	Scopes             []string
	Send               string
}

// CredentialCertificate is that the value is a certificate.
type CredentialCertificate struct{ Ca string }

// CredentialGitHubApp is an installation of a GitHub App.
type CredentialGitHubApp struct{ AppID, InstallationID, APIURL string }

// CredentialECR is an account of AWS.
type CredentialECR struct{ AccessKeyID, Region, RoleArn, APIURL, StsURL string }

// CredentialGAR is that the value is the key of a service account of Google Cloud.
type CredentialGAR struct{ TokenURL string }

// CredentialACR is a service principal of Azure.
type CredentialACR struct{ TenantID, ClientID, AuthorityURL string }

// clouds are the accounts of clouds of a proof.
func clouds(p sealing.Proof) (ecr *CredentialECR, gar *CredentialGAR, acr *CredentialACR) {
	if e := p.ECR; e != (sealing.ECR{}) {
		ecr = &CredentialECR{AccessKeyID: e.AccessKeyID, Region: e.Region, RoleArn: e.Role, APIURL: e.API, StsURL: e.STS}
	}
	if p.GAR.Key {
		gar = &CredentialGAR{TokenURL: p.GAR.TokenURL}
	}
	if a := p.ACR; a != (sealing.ACR{}) {
		acr = &CredentialACR{TenantID: a.Tenant, ClientID: a.ClientID, AuthorityURL: a.Authority}
	}
	return ecr, gar, acr
}

// CredentialSSHKey is that the value is a private key of SSH.
type CredentialSSHKey struct{ KnownHosts string }

// WrapCredential makes one of the domain's, as it is at an instant.
func WrapCredential(c credential.Credential, at time.Time) Credential {
	var client *CredentialOAuth2
	if o := c.Proof.OAuth2; !o.IsZero() {
		client = &CredentialOAuth2{
			TokenURL: o.TokenURL, ClientID: o.ClientID, Scopes: append([]string{}, o.Scopes...), Send: cmp.Or(o.Send, "header"),
		}
	}
	var certificate *CredentialCertificate
	if c.Proof.Certificate.Client {
		certificate = &CredentialCertificate{Ca: c.Proof.Certificate.CA}
	}
	var app *CredentialGitHubApp
	if a := c.Proof.GitHubApp; a != (sealing.GitHubApp{}) {
		app = &CredentialGitHubApp{AppID: a.ID, InstallationID: a.Installation, APIURL: a.API}
	}
	ecr, gar, acr := clouds(c.Proof)
	var key *CredentialSSHKey
	if k := c.Proof.SSHKey; k != (sealing.SSHKey{}) {
		key = &CredentialSSHKey{KnownHosts: k.KnownHosts}
	}
	return Credential{
		Oauth2: client, Certificate: certificate, GithubApp: app, SSHKey: key, Ecr: ecr, Gar: gar, Acr: acr,
		Name: c.Name, Kind: c.Kind, URLPrefixes: c.URLPrefixes, Username: c.Username, Header: c.Header, Forge: c.Forge, Version: c.Version,
		Reference: c.Reference, Sealed: c.Key != 0, State: c.StateAt(at), ExpiresAt: c.ExpiresAt, RevokedAt: c.RevokedAt, Author: c.Author.Name,
		ChangedAt: c.ChangedAt,
	}
}

// MarshalCredentialKind writes a kind.
func MarshalCredentialKind(k sealing.Kind) graphql.Marshaler { return word(string(k)) }

// UnmarshalCredentialKind reads a kind.
func UnmarshalCredentialKind(v any) (sealing.Kind, error) { return enum(v, sealing.Kinds()...) }

// MarshalCredentialState writes a state.
func MarshalCredentialState(s credential.State) graphql.Marshaler { return word(string(s)) }

// UnmarshalCredentialState reads a state.
func UnmarshalCredentialState(v any) (credential.State, error) {
	return enum(v, credential.States()...)
}
