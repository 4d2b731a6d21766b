package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Credential is a secret that programs may have sent to certain URLs.
type Credential struct {
	// Name is what programs call it.
	Name string
	// URLPrefixes are those that it may be sent to: scheme, host and the beginning of a path, which ends at a path boundary.
	URLPrefixes []string
	// Username makes it a user name and password (basic authentication), Header the value of that header. Without both it is a bearer token.
	Username, Header string
	// OAuth2 makes the secret that of a client, for which tokens are issued; its zero value does not.
	OAuth2 OAuth2
	// TLS is a certificate that proves the client; its zero value is none.
	TLS TLS
	// Ref is a reference to the secret, resolved whenever it is needed (D27); empty if TLS is all that proves the client.
	Ref string
	// Organizations are those whose workflows it is for. To others it is as if it were not there. None means the only organization: where
	// there are several the credential is not used.
	Organizations []int64
	// own is the credential of the organization itself that it stands for; nil for one of the operator's.
	own *book.Credential
}

// check finds credentials that could never work, or that are ambiguous, when the process starts.
func check(all []Credential) error {
	var wrong []fault.Field
	for i, c := range all {
		at := fmt.Sprintf("http_credentials[%d].", i)
		report := func(field, problem string) { wrong = append(wrong, fault.Field{Name: at + field, Problem: problem}) }
		if c.Name == "" || len(c.Name) > 255 {
			report("name", "expected 1 to 255 characters")
		}
		if len(c.URLPrefixes) == 0 {
			report("url_prefixes", "missing, expected the URLs that it may be sent to")
		}
		for _, prefix := range c.URLPrefixes {
			if u, err := sealing.ParsePrefix(prefix); err != nil || u.RawQuery != "" || u.Scheme == sealing.SchemeSSH {
				report("url_prefixes", fmt.Sprintf("found %q, expected scheme, host and the beginning of a path", prefix))
			}
		}
		for field, problem := range c.TLS.problems(c.URLPrefixes) {
			report("tls"+field, problem)
		}
		if !reference.Is(c.Ref) && !c.onlyTLS() {
			// The value is not shown: it may be a password put here by mistake.
			report("ref", reference.Expected)
		}
		if c.Username != "" && c.Header != "" {
			report("header", "found with username, expected one of them or neither")
		}
		if c.Header != "" && !sealing.ValidHeader(c.Header) {
			report("header", fmt.Sprintf("found %q, expected the name of a header, such as X-Api-Key", c.Header))
		}
		for field, problem := range c.OAuth2.problems(c.Username != "" || c.Header != "") {
			report("oauth2"+field, problem)
		}
		if strings.Contains(c.Username, ":") {
			report("username", "found a colon, expected none")
		}
		for _, o := range c.Organizations {
			if o <= 0 {
				report("organizations", fmt.Sprintf("found %d, expected numbers above zero", o))
			}
		}
		for _, other := range all[:i] {
			if other.Name == c.Name && (len(other.Organizations) == 0 || len(c.Organizations) == 0 ||
				slices.ContainsFunc(c.Organizations, func(o int64) bool { return slices.Contains(other.Organizations, o) })) {
				report("name", fmt.Sprintf("found %q a second time for the same organization", c.Name))
			}
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// Unscoped is what is wrong with credentials where there is more than one organization.
func Unscoped(all []Credential) []fault.Field {
	var wrong []fault.Field
	for i, c := range all {
		if len(c.Organizations) == 0 {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("http_credentials[%d].organizations", i),
				Problem: "missing for " + c.Name + ", and there are several organizations; expected the numbers of those whose workflows the credential is for",
			})
		}
	}
	return wrong
}

// ParseURL reads a URL of a request. What servers could read in several ways is refused: the check of a prefix would mean nothing.
func ParseURL(raw string) (*url.URL, error) { return sealing.ParseURL(raw, "https", "http") }

// covers reports whether the credential may be sent to a URL.
func (c Credential) covers(u *url.URL) bool { return sealing.Covers(c.URLPrefixes, u) }

// credentials are those of organizations, and those of a configuration.
type credentials struct {
	all     []Credential
	own     *book.Book
	secrets *secret.Reader
	several func(context.Context) (bool, error)
	tokens  *tokens
	secured *secured
}

// named is the credential of an organization that a program has named: directly, or by a name of the run's secrets. The reference of such
// a secret is used only where the operator has a credential with the same one: a program chooses where it is sent, so it must not choose
// what. Of several with one reference it is the one that may be sent to the target, if there is one.
//
// A credential of the organization itself comes before one of the operator with the same name, also when it was revoked.
func (c credentials) named(ctx context.Context, r activity.WebRequest, target *url.URL) (*Credential, error) {
	ref, isSecret := r.Secrets[r.Credential]
	if !isSecret {
		own, err := c.own.Named(ctx, r.Organization, r.Credential, sealing.HTTP)
		if err != nil {
			return nil, err
		}
		if own != nil {
			return ofOrganization(own), nil
		}
	}
	var first *Credential
	for i := range c.all {
		found := &c.all[i]
		if isSecret && found.Ref != ref || !isSecret && found.Name != r.Credential {
			continue
		}
		may, err := c.isFor(ctx, found, r.Organization)
		if err != nil {
			return nil, fault.Because(err, fault.Unavailable, "whether the credential %q may be used cannot be read now", r.Credential)
		}
		if may && found.covers(target) {
			return found, nil
		}
		if may && first == nil {
			first = found
		}
	}
	if first != nil {
		return first, nil
	}
	if isSecret {
		return nil, fault.New(fault.Denied, "no credential of this organization has the reference of the secret %q; an operator has to configure one (http_credentials)", r.Credential)
	}
	return nil, fault.New(fault.Denied, "this organization has no credential %q: neither one of its own nor one of the operator (http_credentials)", r.Credential)
}

// isFor reports whether a credential of the operator is for an organization.
func (c credentials) isFor(ctx context.Context, found *Credential, organization int64) (bool, error) {
	if len(found.Organizations) > 0 || c.several == nil {
		return len(found.Organizations) == 0 || slices.Contains(found.Organizations, organization), nil
	}
	several, err := c.several(ctx)
	return !several && err == nil, err
}

// ofOrganization is a credential of an organization, as those of operators are.
func ofOrganization(own *book.Credential) *Credential {
	o := own.Proof.OAuth2
	return &Credential{
		Name: own.Name, URLPrefixes: own.URLPrefixes, Username: own.Username, Header: own.Header, Organizations: []int64{own.Organization},
		OAuth2: OAuth2{TokenURL: o.TokenURL, ClientID: o.ClientID, Scopes: o.Scopes, Send: o.Send}, own: own,
	}
}

// identity is what a credential is known by, for what is kept between two requests: an operator's is always the same, and one of an
// organization is read anew for each request.
func (c *Credential) identity() book.Holder {
	if c.own == nil {
		return book.Holder{Operators: c}
	}
	return book.Holder{Organization: c.own.Organization, Name: c.own.Name}
}

// terms are what the secret of a credential of an organization is bound to: with other ones, what was kept is of no use.
func (c *Credential) terms() []byte {
	if c.own == nil {
		return nil
	}
	return c.own.Bytes()
}

// login is what is sent with a request; the zero value has no header.
type login struct {
	credential Credential
	header     string
	value      string
	// secured sends with the credential's certificate; nil for none.
	secured http.RoundTripper
	// refused is called if the server does not accept it; nil if that changes nothing.
	refused func()
}

// login is that of a request. The secret is read now: a rotated one takes effect with the next request.
func (c credentials) login(ctx context.Context, r activity.WebRequest, target *url.URL) (login, error) {
	if r.Credential == "" {
		return login{}, nil
	}
	found, value, err := c.readAny(ctx, r, target)
	if err != nil {
		return login{}, err
	}
	l := login{credential: *found}
	if found.certified() {
		texts, err := c.certificate(ctx, found, value)
		if err != nil {
			return l, err
		}
		if l.secured, err = c.secured.of(found, texts); err != nil || found.onlyTLS() {
			return l, err
		}
	}
	if found.OAuth2.TokenURL != "" {
		if value, err = c.tokens.of(ctx, found, value, r.Timeout); err != nil {
			return login{}, err
		}
		l.refused = func() { c.tokens.Forget(found.identity(), value) }
	}
	if strings.ContainsAny(value, "\r\n\x00") {
		return login{}, fault.New(fault.Unauthenticated, "the credential %q has characters that no header can have", r.Credential)
	}
	l.header, l.value = "Authorization", "Bearer "+value
	switch {
	case found.Username != "":
		pair := found.Username + ":" + value
		activity.Conceal(ctx, pair)
		l.value = "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
	case found.Header != "":
		l.header, l.value = found.Header, value
	}
	activity.Conceal(ctx, l.value)
	return l, nil
}

// read is a credential whose secret is itself what is sent, or what signs.
func (c credentials) read(ctx context.Context, r activity.WebRequest, target *url.URL) (*Credential, string, error) {
	found, value, err := c.readAny(ctx, r, target)
	if err == nil && found.onlyTLS() {
		return nil, "", fault.New(fault.Denied, "the credential %q is a certificate only; expected it as the argument credential of http.request", r.Credential)
	}
	if err == nil && found.OAuth2.TokenURL != "" {
		return nil, "", fault.New(fault.Denied, "the credential %q is a client of OAuth 2.0: its secret is sent to its token_url only; expected it as the argument credential of http.request",
			r.Credential)
	}
	return found, value, err
}

// readAny is a credential that may be used for a URL, and its secret as it is now.
func (c credentials) readAny(ctx context.Context, r activity.WebRequest, target *url.URL) (*Credential, string, error) {
	found, err := c.named(ctx, r, target)
	if err != nil {
		return nil, "", err
	}
	if !found.covers(target) && target.Scheme == sealing.SchemeWorker {
		return nil, "", fault.New(fault.Denied, "the credential %q is not for workers of the function %s; expected one with %s://%s among its URLs",
			r.Credential, target.Host, sealing.SchemeWorker, target.Host)
	}
	if !found.covers(target) {
		return nil, "", fault.New(fault.Denied, "the credential %q is not for this URL; expected one that begins with %s", r.Credential,
			strings.Join(found.URLPrefixes, " or "))
	}
	if found.own != nil {
		value, err := c.own.Value(ctx, *found.own)
		activity.Conceal(ctx, value)
		return found, value, err
	}
	if found.onlyTLS() {
		return found, "", nil
	}
	value, err := c.secrets.Read(ctx, found.Ref)
	if fault.Is(err, fault.Unavailable) { // which passes: the request is tried again
		return nil, "", fault.Because(err, fault.Unavailable, "the credential %q: %s", r.Credential, fault.Public(err))
	}
	if err != nil {
		return nil, "", fault.Because(err, fault.Unauthenticated, "the credential %q cannot be read from its reference", r.Credential)
	}
	activity.Conceal(ctx, value)
	return found, value, nil
}

// SecretFor is the secret of a credential for a worker with a Function, as it is now. The credential has to name the Function among its
// URLs.
func (c *Client) SecretFor(ctx context.Context, organization int64, function, name string, secrets map[string]string) (string, error) {
	_, value, err := c.credentials.read(ctx, activity.WebRequest{Organization: organization, Credential: name, Secrets: secrets},
		sealing.WorkerURL(function))
	return value, err
}

func (l login) covers(u *url.URL) bool { return l.header != "" && l.credential.covers(u) }

// onto adds the credential to a request.
func (l login) onto(r *http.Request) {
	if l.header != "" {
		r.Header.Set(l.header, l.value)
	}
}

// off takes it from a request.
func (l login) off(r *http.Request) {
	if l.header != "" {
		r.Header.Del(l.header)
	}
}
