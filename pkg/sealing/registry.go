package sealing

import (
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ECR makes the value the secret access key of an account of AWS, which is sent nowhere: it signs requests for tokens of ECR.
type ECR struct {
	AccessKeyID string `json:"access_key_id,omitempty"`
	Region      string `json:"region,omitempty"`
	// Role is the ARN of a role that is assumed first; empty for none.
	Role string `json:"role_arn,omitempty"`
	// API is where tokens of ECR are issued, and STS where roles are assumed; empty for where AWS has them for the region.
	API string `json:"api_url,omitempty"`
	STS string `json:"sts_url,omitempty"`
}

// GAR makes the value the key of a service account of Google Cloud, in JSON, which is sent nowhere: it signs requests for tokens.
type GAR struct {
	Key bool `json:"key,omitempty"`
	// TokenURL is where tokens are issued; empty for Google's. What the key says of it does not count.
	TokenURL string `json:"token_url,omitempty"`
}

// ACR makes the value the secret of a service principal of Azure.
type ACR struct {
	Tenant   string `json:"tenant_id,omitempty"`
	ClientID string `json:"client_id,omitempty"`
	// Authority is where the principal proves itself, without the tenant; empty for the public cloud's. The secret is sent there only.
	Authority string `json:"authority_url,omitempty"`
}

// clouds is how many clouds issue tokens for the value.
func (p Proof) clouds() (n int) {
	for _, given := range []bool{p.ECR != ECR{}, p.GAR != GAR{}, p.ACR != ACR{}} {
		if given {
			n++
		}
	}
	return n
}

var (
	accessKeyForm = regexp.MustCompile(`^[A-Za-z0-9_]{16,128}$`)
	regionForm    = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]{1,12}){1,3}-[0-9]{1,2}$`)
	roleForm      = regexp.MustCompile(`^arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$`)
	tenantForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,254}$`)
)

// checkClouds finds what is wrong with clouds of terms.
func (p Proof) checkClouds(t Terms, wrong func(field, format string, args ...any)) {
	at := map[bool]string{p.ACR != ACR{}: "/acr", p.GAR != GAR{}: "/gar", p.ECR != ECR{}: "/ecr"}[true]
	if t.Kind != Registry {
		wrong("/kind", "found %.100s with ecr, gar or acr; expected registry", string(t.Kind))
	}
	if p.clouds() > 1 || t.Username != "" || t.Header != "" || !p.OAuth2.IsZero() || p.Certificate != (Certificate{}) || p.GitHubApp != (GitHubApp{}) ||
		p.SSHKey != (SSHKey{}) {
		wrong(at, "found more than one of username, header, ecr, gar, acr, oauth2, certificate, githubApp and sshKey; expected one of them or none")
	}
	address := func(field, raw string) {
		problem := addressProblem(raw, "")
		if u, err := ParseURL(raw, "http"); problem == "" && raw != "" && err == nil { // a token, and a secret, would go in clear
			problem = "found the scheme http; expected https, such as https://" + u.Host
		}
		if problem != "" {
			wrong(field, "%s", problem)
		}
	}
	if e := p.ECR; e != (ECR{}) {
		if !accessKeyForm.MatchString(e.AccessKeyID) {
			wrong("/ecr/accessKeyId", "found %d bytes; expected the ID of an access key, such as AKIAIOSFODNN7EXAMPLE", len(e.AccessKeyID))
		}
		if !regionForm.MatchString(e.Region) {
			wrong("/ecr/region", "found %.100q; expected a region, such as eu-central-1", e.Region)
		}
		if e.Role != "" && !roleForm.MatchString(e.Role) {
			wrong("/ecr/roleArn", "found %.100q; expected the ARN of a role, such as arn:aws:iam::123456789012:role/images", e.Role)
		}
		address("/ecr/apiUrl", e.API)
		address("/ecr/stsUrl", e.STS)
	}
	address("/gar/tokenUrl", p.GAR.TokenURL)
	if a := p.ACR; a != (ACR{}) {
		if !tenantForm.MatchString(a.Tenant) {
			wrong("/acr/tenantId", "found %.100q; expected the ID of the tenant, or its domain", a.Tenant)
		}
		if !tenantForm.MatchString(a.ClientID) {
			wrong("/acr/clientId", "found %.100q; expected the application (client) ID of the service principal", a.ClientID)
		}
		address("/acr/authorityUrl", a.Authority)
	}
}

// addressProblem is what is wrong with the address of an API; empty for nothing.
func addressProblem(raw, path string) string {
	if raw == "" {
		return ""
	}
	u, err := ParseURL(raw, "https", "http")
	switch {
	case err != nil:
		return fault.FieldsOf(err)[0].Problem
	case len(raw) > maxPrefix || u.RawQuery != "" || strings.ContainsAny(raw, "?#"):
		return fmt.Sprintf("found %d bytes, or a query or a fragment; expected at most %d bytes without them, such as https://%s/%s", len(raw), maxPrefix, u.Host, path)
	}
	return ""
}

// ServiceAccount is the key of a service account of Google Cloud.
type ServiceAccount struct {
	Email, KeyID string
	Key          *rsa.PrivateKey
}

const expectedAccount = "expected the key of a service account as Google Cloud has it downloaded: JSON with client_email and private_key"

// ReadServiceAccount reads the key of a service account. Nothing of it is in the error.
func ReadServiceAccount(text string) (ServiceAccount, error) {
	var key struct {
		Type       string `json:"type"`
		Email      string `json:"client_email"`
		KeyID      string `json:"private_key_id"`
		PrivateKey string `json:"private_key"`
	}
	if json.Unmarshal([]byte(text), &key) != nil {
		return ServiceAccount{}, fault.New(fault.Invalid, "found no JSON; %s", expectedAccount)
	}
	if key.Type != "service_account" || key.Email == "" || key.PrivateKey == "" {
		return ServiceAccount{}, fault.New(fault.Invalid, "found another kind of key, or a part of one; %s", expectedAccount)
	}
	private, err := ReadAppKey(key.PrivateKey)
	if err != nil { // whose text is about another kind of key
		return ServiceAccount{}, fault.New(fault.Invalid, "found a private_key that cannot be read; %s", expectedAccount)
	}
	return ServiceAccount{Email: key.Email, KeyID: key.KeyID, Key: private}, nil
}
