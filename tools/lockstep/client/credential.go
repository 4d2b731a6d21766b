package client

import (
	"context"
	"strings"
	"time"
)

// Credential is what programs log in to servers with, without its value.
type Credential struct {
	Name string `json:"name"`
	// Kind is GIT, HTTP or REGISTRY.
	Kind string `json:"kind"`
	// URLPrefixes are the URLs that the value may be sent to.
	URLPrefixes []string `json:"urlPrefixes"`
	Username    string   `json:"username,omitempty"`
	Header      string   `json:"header,omitempty"`
	Forge       string   `json:"forge,omitempty"`
	// OAuth2 makes it a client of OAuth 2.0, Certificate a certificate of the client, GitHubApp an installation of a GitHub App,
	// SSHKey a private key of SSH.
	OAuth2      *CredentialOAuth2      `json:"oauth2,omitempty"`
	Certificate *CredentialCertificate `json:"certificate,omitempty"`
	GitHubApp   *CredentialGitHubApp   `json:"githubApp,omitempty"`
	// ECR, GAR and ACR make it an account of a cloud that tokens of registries are issued for.
	ECR    *CredentialECR    `json:"ecr,omitempty"`
	GAR    *CredentialGAR    `json:"gar,omitempty"`
	ACR    *CredentialACR    `json:"acr,omitempty"`
	SSHKey *CredentialSSHKey `json:"sshKey,omitempty"`
	// Version counts the values.
	Version int `json:"version"`
	// Reference refers to the value; empty for a sealed one.
	Reference string `json:"reference,omitempty"`
	Sealed    bool   `json:"sealed"`
	// State is LIVE, EXPIRING, EXPIRED or REVOKED.
	State     string     `json:"state"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	// Author and ChangedAt are who changed it last, and when.
	Author    string    `json:"author,omitempty"`
	ChangedAt time.Time `json:"changedAt"`
}

// CredentialOAuth2 is a client of a server that issues tokens.
type CredentialOAuth2 struct {
	TokenURL string   `json:"tokenUrl"`
	ClientID string   `json:"clientId"`
	Scopes   []string `json:"scopes"`
	// Send is how the client proves itself: header or body.
	Send string `json:"send"`
}

// CredentialCertificate is a certificate of the client.
type CredentialCertificate struct {
	// CA are authorities that may vouch for servers in place of all others, in PEM.
	CA string `json:"ca"`
}

// CredentialGitHubApp is an installation of a GitHub App.
type CredentialGitHubApp struct {
	// AppID is the number of the App, or its client id.
	AppID          string `json:"appId"`
	InstallationID string `json:"installationId"`
	// APIURL is where GitHub's REST API is; empty for where it is for the host of the URLs.
	APIURL string `json:"apiUrl"`
}

// CredentialECR is an account of AWS.
type CredentialECR struct {
	AccessKeyID string `json:"accessKeyId"`
	Region      string `json:"region"`
	// RoleARN is a role that is assumed first; empty for none.
	RoleARN string `json:"roleArn"`
	// APIURL and STSURL are where tokens are issued and roles are assumed; empty for where AWS has them.
	APIURL string `json:"apiUrl"`
	STSURL string `json:"stsUrl"`
}

// CredentialGAR is a service account of Google Cloud.
type CredentialGAR struct {
	// TokenURL is where tokens are issued; empty for Google's.
	TokenURL string `json:"tokenUrl"`
}

// CredentialACR is a service principal of Azure.
type CredentialACR struct {
	TenantID string `json:"tenantId"`
	ClientID string `json:"clientId"`
	// AuthorityURL is where the principal proves itself; empty for the public cloud's.
	AuthorityURL string `json:"authorityUrl"`
}

// CredentialSSHKey is that the value is a private key of SSH.
type CredentialSSHKey struct {
	// KnownHosts are the servers that are trusted, in lines of known_hosts or by fingerprints.
	KnownHosts string `json:"knownHosts"`
}

// CredentialValue is the value of a credential: itself, or a reference to it.
type CredentialValue struct {
	Value, Reference string
	// ExpiresAt is when it ends; nil for never.
	ExpiresAt *time.Time
}

const credentialFields = `name kind urlPrefixes username header forge oauth2 { tokenUrl clientId scopes send } certificate { ca }` + githubAppNewer + registryNewer + ` version reference sealed state expiresAt revokedAt author changedAt`

// githubAppNewer lists the fields that the release before lacks.
const githubAppNewer = ` githubApp { appId installationId apiUrl } sshKey { knownHosts }`

// registryNewer lists more of them.
const registryNewer = ` ecr { accessKeyId region roleArn apiUrl stsUrl } gar { tokenUrl } acr { tenantId clientId authorityUrl }`

func (v CredentialValue) onto(input map[string]any) map[string]any {
	if v.Value != "" {
		input["value"] = v.Value
	}
	if v.Reference != "" {
		input["reference"] = v.Reference
	}
	if v.ExpiresAt != nil {
		input["expiresAt"] = v.ExpiresAt
	}
	return input
}

// Credentials reads the credentials, by name.
func (c *Client) Credentials(ctx context.Context) ([]Credential, error) {
	var data struct{ Credentials []Credential }
	err := c.do(ctx, `{ credentials { `+credentialFields+` } }`, nil, &data)
	return data.Credentials, err
}

// CreateCredential makes a credential.
func (c *Client) CreateCredential(ctx context.Context, n Credential, v CredentialValue, reason string) (Credential, error) {
	input := v.onto(map[string]any{
		"name": n.Name, "kind": n.Kind, "urlPrefixes": n.URLPrefixes, "username": n.Username, "header": n.Header,
		"forge":  strings.ToLower(n.Forge), // the interface of repositories has the words of configurations
		"reason": reason,
	})
	if n.OAuth2 != nil {
		input["oauth2"] = n.OAuth2
	}
	if n.Certificate != nil {
		input["certificate"] = n.Certificate
	}
	if n.GitHubApp != nil {
		input["githubApp"] = n.GitHubApp
	}
	if n.ECR != nil {
		input["ecr"] = n.ECR
	}
	if n.GAR != nil {
		input["gar"] = n.GAR
	}
	if n.ACR != nil {
		input["acr"] = n.ACR
	}
	if n.SSHKey != nil {
		input["sshKey"] = n.SSHKey
	}
	return change[Credential](ctx, c, "createCredential", "CreateCredentialInput", "credential", credentialFields, input)
}

// RotateCredential gives a credential another value.
func (c *Client) RotateCredential(ctx context.Context, name string, v CredentialValue, reason string) (Credential, error) {
	return change[Credential](ctx, c, "rotateCredential", "RotateCredentialInput", "credential", credentialFields,
		v.onto(map[string]any{"name": name, "reason": reason}))
}

// RevokeCredential ends a credential.
func (c *Client) RevokeCredential(ctx context.Context, name, reason string) (Credential, error) {
	return change[Credential](ctx, c, "revokeCredential", "RevokeCredentialInput", "credential", credentialFields,
		map[string]any{"name": name, "reason": reason})
}
