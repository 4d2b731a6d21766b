// Package login logs in to OCI registries with the credentials of organizations (D56), of the kind registry: with a user name and a
// password, with a token, or with what ECR, GAR and ACR issue for the value.
//
// It stores nothing, and decides nothing about which networks are reached: the transport of its caller does.
package login

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
)

// Deps is what Logins needs.
type Deps struct {
	Book *book.Book
	// Transport connects to what issues tokens.
	Transport http.RoundTripper
	Clock     clock.Clock
	// Conceal keeps a secret out of what is recorded; nil where nothing is.
	Conceal func(ctx context.Context, secret string)
}

// Logins logs in with credentials of organizations. It is safe for concurrent use; a nil Logins has none.
type Logins struct {
	d      Deps
	issued *book.Issued
	client *http.Client
}

// New makes a Logins.
func New(d Deps) *Logins {
	if d.Conceal == nil {
		d.Conceal = func(context.Context, string) {}
	}
	return &Logins{d: d, issued: book.NewIssued(d.Clock), client: &http.Client{
		Transport: d.Transport,
		// What is signed, and the secrets of principals, go to the address that the credential is bound to, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Use is a credential for a registry.
type Use struct {
	logins     *Logins
	credential book.Credential
	registry   string
	insecure   bool
}

// hub is what the client calls Docker Hub, short how its images are written, and hubTokens where its tokens are issued.
const (
	hub       = "index.docker.io"
	short     = "docker.io"
	hubTokens = "auth.docker.io" //nolint:gosec // a name of a host
)

// places are the URLs that a repository may be bound as: an address is of HTTP only where a credential says so.
func places(repository name.Repository) []*url.URL {
	host := repository.RegistryStr()
	hosts := []string{host}
	if host == hub {
		hosts = append(hosts, short)
	}
	var all []*url.URL
	for _, scheme := range []string{"https", "http"} {
		for _, host := range hosts {
			all = append(all, &url.URL{Scheme: scheme, Host: host, Path: "/" + repository.RepositoryStr()})
		}
	}
	return all
}

// Find is the credential for a repository: that of the name or, without one, of those of the organization that may be sent there the one
// with the longest URL, also if it was revoked; of several, one that is in force, then the first by name. It is nil for none, without a
// name only. The errors are Denied, Unauthenticated, and Unavailable if a retry may help: never NotFound, which is what a registry says of
// images.
func (l *Logins) Find(ctx context.Context, organization int64, named string, repository name.Repository) (*Use, error) {
	if l == nil || l.d.Book == nil || organization == 0 {
		if named != "" {
			return nil, fault.New(fault.Denied, "the credential %q cannot be used: this service has no credentials of organizations", named)
		}
		return nil, nil //nolint:nilnil // none is no error
	}
	if named == "" {
		return l.best(ctx, organization, repository)
	}
	c, err := l.d.Book.Named(ctx, organization, named, sealing.Registry)
	if err != nil {
		return nil, refused(err)
	}
	if c == nil {
		return nil, fault.New(fault.Denied, "this organization has no credential %q of the kind registry", named)
	}
	for _, place := range places(repository) {
		if sealing.Covers(c.URLPrefixes, place) {
			return l.use(*c, repository, place), nil
		}
	}
	return nil, fault.New(fault.Denied, "the credential %q may not be sent to https://%s/%s; expected one with that URL, or one above it", named, repository.RegistryStr(), repository.RepositoryStr())
}

// Has reports whether the organization has a credential that may be sent to a repository, also if it was revoked.
func (l *Logins) Has(ctx context.Context, organization int64, repository name.Repository) bool {
	found, err := l.Find(ctx, organization, "", repository)
	return found != nil || err != nil
}

func (l *Logins) best(ctx context.Context, organization int64, repository name.Repository) (*Use, error) {
	all, err := l.d.Book.OfKind(ctx, organization, sealing.Registry)
	if err != nil {
		return nil, refused(err)
	}
	var best *book.Credential
	var at *url.URL
	longest := 0
	slices.SortStableFunc(all, func(a, b book.Credential) int { return strings.Compare(a.Name, b.Name) })
	for i, c := range all {
		for _, place := range places(repository) {
			for _, prefix := range c.URLPrefixes {
				longer := len(prefix) > longest || len(prefix) == longest && best != nil && best.Revoked && !c.Revoked
				if longer && sealing.Covers([]string{prefix}, place) {
					best, at, longest = &all[i], place, len(prefix)
				}
			}
		}
	}
	switch {
	case best == nil:
		return nil, nil //nolint:nilnil // see above
	case best.Revoked:
		return nil, fault.New(fault.Unauthenticated, "the credential %q was revoked; expected one that is in force", best.Name)
	}
	return l.use(*best, repository, at), nil
}

func (l *Logins) use(c book.Credential, repository name.Repository, place *url.URL) *Use {
	return &Use{logins: l, credential: c, registry: repository.RegistryStr(), insecure: place.Scheme == "http"}
}

// refused is an error about a credential, as those of registries are.
func refused(err error) error {
	if fault.Is(err, fault.Unavailable) {
		return err
	}
	return fault.Because(err, fault.Unauthenticated, "%s", fault.Public(err))
}

// Name is that of the credential.
func (u *Use) Name() string { return u.credential.Name }

// Insecure reports whether it may be sent by HTTP, as its URLs say.
func (u *Use) Insecure() bool { return u != nil && u.insecure }

// Key is equal for uses that clients can share: of one value of one credential for one registry.
func (u *Use) Key() string {
	sum := sha256.Sum256(fmt.Appendf(u.credential.Bytes(), "\x00%s\x00%s\x00%t", u.registry, u.credential.Reference, u.insecure))
	return string(sum[:])
}

var _ authn.ContextAuthenticator = (*Use)(nil)

// Authorization implements authn.Authenticator, whose interface has no context.
func (u *Use) Authorization() (*authn.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), issuedWithin)
	defer cancel()
	return u.AuthorizationContext(ctx)
}

// AuthorizationContext implements authn.ContextAuthenticator: the value as it is now.
func (u *Use) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	config, _, err := u.login(ctx)
	return config, err
}

// The user names that clouds want with their tokens.
const (
	userECR = "AWS"
	userGAR = "oauth2accesstoken"
	userACR = "00000000-0000-0000-0000-000000000000"
)

const (
	// issuedWithin is how long a token may take.
	issuedWithin = 30 * time.Second
	// answerMost is how many bytes an answer with a token may have, and tokenMost the token.
	answerMost, tokenMost = 256 << 10, 32 << 10
)

// login is what is sent, and what drops it once it is not accepted; that is nil for what would be the same again.
func (u *Use) login(ctx context.Context) (*authn.AuthConfig, func(), error) {
	c := u.credential
	value, err := u.logins.d.Book.Value(ctx, c)
	if err != nil {
		return nil, nil, refused(err)
	}
	value = strings.TrimSpace(value)
	if c.Proof.IsZero() {
		if value == "" || strings.ContainsAny(value, "\r\n\x00") {
			return nil, nil, fault.New(fault.Unauthenticated, "the credential %q has no value that can be sent: it is empty or has line breaks", c.Name)
		}
		u.conceal(ctx, c.Username, value)
		if c.Username == "" {
			return &authn.AuthConfig{RegistryToken: value}, nil, nil
		}
		return &authn.AuthConfig{Username: c.Username, Password: value}, nil, nil
	}
	of := book.Holder{Organization: c.Organization, Name: c.Name}
	var user string
	var issue func(context.Context, string) (book.Token, error)
	switch p := c.Proof; {
	case p.ECR != sealing.ECR{}:
		user, issue = userECR, u.ecr
	case p.GAR != sealing.GAR{}:
		user, issue = userGAR, u.gar
	case p.ACR != sealing.ACR{}:
		user, issue, of.For = userACR, u.acr, u.registry
	default: // one that is for something else, or that a later version has made
		return nil, nil, fault.New(fault.Unauthenticated, "the credential %q is not one that registries are logged in to with", c.Name)
	}
	token, again, err := u.logins.issued.Of(ctx, of, value, c.Bytes(), issuedWithin, func(ctx context.Context) (book.Token, error) {
		return issue(ctx, value)
	})
	if err != nil {
		return nil, nil, refused(err)
	}
	u.conceal(ctx, user, token)
	forget := func() { u.logins.issued.Forget(of, token) }
	if !again {
		forget = nil
	}
	return &authn.AuthConfig{Username: user, Password: token}, forget, nil
}

func (u *Use) conceal(ctx context.Context, user, value string) {
	u.logins.d.Conceal(ctx, value)
	u.logins.d.Conceal(ctx, user+":"+value)
}

// Transport sends what the client of a registry sends, and the login only to where the credential may be sent.
func (u *Use) Transport(next http.RoundTripper) http.RoundTripper { return &bound{u, next} }

type bound struct {
	*Use
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A redirect to elsewhere is followed without the login. Where tokens are issued is decided by the
// registry, and the login goes there only if the credential has that URL.
func (b *bound) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		return b.next.RoundTrip(r)
	}
	if !b.covers(r.URL) {
		if r.Response == nil && !strings.HasPrefix(r.URL.Path, "/v2/") {
			return nil, fault.New(fault.Denied, "%s has tokens issued at %s://%s%s, which is outside of the URLs of the credential %q; if that is right, create it with this URL as well",
				b.registry, r.URL.Scheme, r.URL.Host, r.URL.Path, b.Name())
		}
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
		return b.next.RoundTrip(r)
	}
	answer, err := b.next.RoundTrip(r)
	_, sent, basic := r.BasicAuth()
	if err != nil || !basic || !denies(answer) {
		return answer, err
	}
	// A token may have been taken back. Requests with a login have no body.
	config, forget, err := b.login(r.Context())
	if err == nil && forget != nil && config.Password == sent && answer.StatusCode == http.StatusUnauthorized {
		forget()
		config, _, err = b.login(r.Context())
	}
	if err == nil && config.Username != "" && config.Password != sent && r.Body == nil {
		_ = answer.Body.Close() // another one follows
		r = r.Clone(r.Context())
		r.SetBasicAuth(config.Username, config.Password)
		if answer, err = b.next.RoundTrip(r); err != nil || !denies(answer) {
			return answer, err
		}
	}
	_ = answer.Body.Close() // its text is the registry's, and may repeat what it was sent
	if err != nil {
		return nil, err
	}
	return nil, fault.New(fault.Unauthenticated, "%s refuses the credential %q with status %d; expected one that may read there: rotate it, or allow its account there",
		r.URL.Host, b.Name(), answer.StatusCode)
}

func denies(answer *http.Response) bool {
	return answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden
}

// covers reports whether the login may be sent to a URL: to the registry's repositories below the credential's URLs and to its other pages,
// and elsewhere below them.
func (b *bound) covers(u *url.URL) bool {
	prefixes := b.credential.URLPrefixes
	if !b.here(u) {
		return sealing.Covers(prefixes, u) || b.registry == hub && u.Scheme == "https" && u.Host == hubTokens && u.Path == "/token"
	}
	rest, isAPI := strings.CutPrefix(u.EscapedPath(), "/v2/")
	if !isAPI || !repositories(u.Path) {
		return true
	}
	at, err := url.Parse(u.Scheme + "://" + u.Host + "/" + rest)
	if err != nil {
		return false
	}
	covered := sealing.Covers(prefixes, at)
	if b.registry == hub && !covered {
		at.Host = short
		covered = sealing.Covers(prefixes, at)
	}
	return covered
}

// repositories reports whether a path is one of a repository.
func repositories(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
		return slices.Contains([]string{"manifests", "blobs", "tags", "referrers"}, part)
	})
}

// here reports whether a URL is the registry's, in the scheme that the credential has.
func (b *bound) here(u *url.URL) bool {
	at := &url.URL{Scheme: map[bool]string{true: "http", false: "https"}[b.insecure], Host: b.registry}
	return u.Scheme == at.Scheme && strings.EqualFold(u.Hostname(), at.Hostname()) && sealing.Port(u) == sealing.Port(at)
}

// addressOr is an address without a slash at its end, or what stands in for none.
func addressOr(given, usual string) string { return strings.TrimRight(cmp.Or(given, usual), "/") }
