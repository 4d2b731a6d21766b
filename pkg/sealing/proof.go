package sealing

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The bounds of proofs.
const (
	maxScopes = 20
	maxCA     = 32 << 10
)

// Proof is how a client proves itself other than by sending the value; its zero value is none. It is one of them, for the kind http,
// GitHubApp or SSHKey for the kind git, and ECR, GAR and ACR for the kind registry.
type Proof struct {
	// OAuth2 makes the value the secret of a client, for which tokens are issued (OAuth 2.0 client credentials, RFC 6749, 4.4).
	OAuth2 OAuth2 `json:"oauth2,omitzero"`
	// Certificate makes the value a certificate and its key, in PEM, that connections are opened with.
	Certificate Certificate `json:"certificate,omitzero"`
	// GitHubApp makes the value the private key of a GitHub App, for an installation of which tokens are issued.
	GitHubApp GitHubApp `json:"github_app,omitzero"`
	// SSHKey makes the value a private key that connections of SSH are opened with.
	SSHKey SSHKey `json:"ssh_key,omitzero"`
	// ECR, GAR and ACR are clouds that issue tokens of registries for the value.
	ECR ECR `json:"ecr,omitzero"`
	GAR GAR `json:"gar,omitzero"`
	ACR ACR `json:"acr,omitzero"`
	// unread is the proof as it came if this version of ours cannot read all of it; nothing else is set then.
	unread json.RawMessage
}

// Known reports whether all of the proof could be read. One that a later version has made is no credential that is sent itself: its value
// is not used, and it is passed on as it came.
func (p Proof) Known() bool { return p.unread == nil }

// UnmarshalJSON implements json.Unmarshaler.
func (p *Proof) UnmarshalJSON(raw []byte) error {
	type members Proof
	var known members
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&known); err != nil {
		known = members{unread: bytes.Clone(raw)}
	}
	*p = Proof(known)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (p Proof) MarshalJSON() ([]byte, error) {
	if p.unread != nil {
		return p.unread, nil
	}
	type members Proof
	encoded, err := json.Marshal(members(p))
	if err != nil {
		return nil, fmt.Errorf("encode a proof: %w", err)
	}
	return encoded, nil
}

// IsZero reports whether the value itself is sent.
func (p Proof) IsZero() bool {
	return p.Known() && p.OAuth2.IsZero() && p.Certificate == Certificate{} && p.GitHubApp == GitHubApp{} && p.SSHKey == SSHKey{} &&
		p.clouds() == 0
}

// OAuth2 is a client of a server that issues tokens.
type OAuth2 struct {
	// TokenURL is where tokens are issued. The secret is sent there only.
	TokenURL string   `json:"token_url,omitempty"`
	ClientID string   `json:"client_id,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	// Send is how the client proves itself: header, the default, or body.
	Send string `json:"send,omitempty"`
}

// IsZero reports whether there is no client.
func (o OAuth2) IsZero() bool {
	return o.TokenURL == "" && o.ClientID == "" && len(o.Scopes) == 0 && o.Send == ""
}

// Certificate is that the value is a certificate.
type Certificate struct {
	Client bool `json:"client,omitempty"`
	// CA are authorities, in PEM, that may vouch for servers in place of all others; empty for those of the service.
	CA string `json:"ca,omitempty"`
}

// ScopeForm is that of a scope (RFC 6749, 3.3).
func ScopeForm() *regexp.Regexp { return scopeForm }

var scopeForm = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,255}$`)

// check finds what is wrong with a proof of terms.
func (p Proof) check(t Terms, wrong func(field, format string, args ...any)) {
	if p.IsZero() {
		return
	}
	if p.clouds() > 0 {
		p.checkClouds(t, wrong)
		return
	}
	if p.SSHKey != (SSHKey{}) {
		p.SSHKey.check(t, wrong)
		return
	}
	if p.GitHubApp != (GitHubApp{}) {
		p.GitHubApp.check(t, wrong)
		return
	}
	if t.Kind != HTTP {
		wrong("/kind", "found %.100s with oauth2 or certificate; expected http", string(t.Kind))
	}
	if !p.OAuth2.IsZero() && p.Certificate.Client || t.Username != "" || t.Header != "" {
		wrong("/oauth2", "found more than one of username, header, oauth2 and certificate; expected one of them or none")
	}
	if !p.OAuth2.IsZero() {
		p.OAuth2.check(wrong)
	}
	for i, prefix := range t.URLPrefixes {
		u, err := ParsePrefix(prefix)
		switch {
		case err != nil: // which is reported elsewhere
		case p.Certificate.Client && u.Scheme != "https":
			wrong(fmt.Sprintf("/urlPrefixes/%d", i), "found the scheme %s, where no certificate is sent; expected https", u.Scheme)
		case u.Scheme != "https" && u.Scheme != "http":
			wrong(fmt.Sprintf("/urlPrefixes/%d", i), "found the scheme %s; expected https or http", u.Scheme)
		}
	}
	switch ca := p.Certificate.CA; {
	case ca == "":
	case !p.Certificate.Client:
		wrong("/certificate/ca", "found without client; expected it with a certificate of the client only")
	case len(ca) > maxCA:
		wrong("/certificate/ca", "found %d bytes; expected certificates in PEM, at most %d bytes", len(ca), maxCA)
	case !onlyCertificates(ca):
		wrong("/certificate/ca", "found %d bytes that are not only certificates that can be read; expected certificates in PEM, and nothing else", len(ca))
	}
}

// onlyCertificates reports whether a text in PEM is certificates and nothing else. Authorities are shown, and a key beside them would be
// too.
func onlyCertificates(text string) bool {
	var again []byte
	for rest := []byte(text); ; {
		block, behind := pem.Decode(rest)
		if block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			return false
		}
		again, rest = append(again, pem.EncodeToMemory(block)...), behind
	}
	// What is before, between and behind the blocks is skipped above.
	words := func(text string) string { return strings.Join(strings.Fields(text), "") }
	return len(again) > 0 && words(text) == words(string(again))
}

func (o OAuth2) check(wrong func(field, format string, args ...any)) {
	u, err := ParseURL(o.TokenURL, "https", "http")
	switch {
	case err != nil:
		wrong("/oauth2/tokenUrl", "%s", fault.FieldsOf(err)[0].Problem)
	case len(o.TokenURL) > maxPrefix || hasFragment(o.TokenURL):
		wrong("/oauth2/tokenUrl", "found %d bytes, or a fragment; expected at most %d bytes without one, such as https://%s/token", len(o.TokenURL), maxPrefix, u.Host)
	}
	if o.ClientID == "" || len(o.ClientID) > maxUsername {
		wrong("/oauth2/clientId", "found %d bytes; expected 1 to %d", len(o.ClientID), maxUsername)
	}
	if len(o.Scopes) > maxScopes {
		wrong("/oauth2/scopes", "found %d; expected at most %d", len(o.Scopes), maxScopes)
	}
	for i, scope := range o.Scopes {
		if !scopeForm.MatchString(scope) {
			wrong(fmt.Sprintf("/oauth2/scopes/%d", i), "found %.100q; expected 1 to 255 printable characters without spaces, quotes and backslashes", scope)
		}
	}
	if !slices.Contains([]string{"", "header", "body"}, o.Send) {
		wrong("/oauth2/send", "found %.100q; expected header or body", o.Send)
	}
}

func hasFragment(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || u.Fragment != ""
}

// checkPair finds what is wrong with a certificate and its key. Nothing of them is in the problem.
func checkPair(value string) string {
	if _, err := tls.X509KeyPair([]byte(value), []byte(value)); err != nil {
		return "found no certificate and key that belong together; expected both in PEM, one behind the other"
	}
	return ""
}
