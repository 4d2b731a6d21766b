package web

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// shelf has one credential, whose value is what was sealed.
type shelf struct {
	mu  sync.Mutex
	one book.Credential
}

func (s *shelf) set(change func(*book.Credential)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one.Version++
	change(&s.one)
}

// CredentialNamed implements book.Store.
func (s *shelf) CredentialNamed(_ context.Context, organization int64, name string) (*book.Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if organization != s.one.Organization || name != s.one.Name {
		return nil, nil //nolint:nilnil // none is no error
	}
	one := s.one
	return &one, nil
}

// CredentialsOfKind implements book.Store.
func (s *shelf) CredentialsOfKind(context.Context, int64, sealing.Kind) ([]book.Credential, error) {
	return nil, nil
}

func (s *shelf) book() *book.Book {
	return book.NewBook(book.Deps{Store: s, Open: func(_ context.Context, sealed []byte, _ sealing.Terms) (string, error) {
		return string(sealed), nil
	}})
}

func sealedFor(proof sealing.Proof, prefix, value string) *shelf {
	return &shelf{one: book.Credential{Terms: sealing.Terms{
		Organization: 1, Name: "theirs", Version: 1, Kind: sealing.HTTP, URLPrefixes: []string{prefix}, Proof: proof,
	}, Sealed: []byte(value)}}
}

// R3-41: an organization's own client of OAuth 2.0 has tokens issued as an operator's: a token is kept between requests, though the
// credential is read anew for each, until the secret is rotated or the client is bound to something else; a revoked one sends nothing.
func TestAnOrganizationsOwnClientHasTokensIssued(t *testing.T) {
	t.Parallel()
	i := issuing(t)
	base := strings.TrimSuffix(i.url, "/api")
	s := sealedFor(sealing.Proof{OAuth2: sealing.OAuth2{TokenURL: base + "/token", ClientID: "shop", Scopes: []string{"read"}}}, i.url, clientSecret)
	i.credentials.own = s.book()
	theirs := func(r *activity.WebRequest) { r.Credential = "theirs" }
	i.wants("Bearer token-1", theirs)
	i.wants("Bearer token-1", theirs)
	s.set(func(c *book.Credential) { c.Sealed = []byte("another canary") })
	i.wants("Bearer token-2", theirs)
	s.set(func(c *book.Credential) { c.Proof.OAuth2.ClientID = "shop-2" }) // revoked, and created again
	i.wants("Bearer token-3", theirs)
	want := "client_credentials shop:canary%2Fof%2Bthe+client read," +
		"client_credentials shop:another+canary read,client_credentials shop-2:another+canary read"
	if got := strings.Join(i.requests, ","); got != want {
		t.Errorf("found %s; want %s", got, want)
	}
	s.set(func(c *book.Credential) { c.Revoked, c.Sealed = true, nil })
	if got, err := i.call(theirs); !fault.Is(err, fault.Unauthenticated) || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("found %q, %v; want that it was revoked", got, err)
	}
	if n := len(i.requests); n != 3 {
		t.Errorf("found %d requests for tokens; want 3", n)
	}
}

// R3-41: an organization's own certificate is sent to the URLs of its credential alone, and is rotated with the next request.
func TestAnOrganizationsOwnCertificate(t *testing.T) {
	t.Parallel()
	c := certifying(t)
	pair := func() string { return textOf(t, c.client.Cert) + textOf(t, c.client.Key) }
	proof := sealing.Proof{Certificate: sealing.Certificate{Client: true, CA: textOf(t, c.client.CA)}}
	s := sealedFor(proof, c.url+"/api", pair())
	c.credentials.own = s.book()
	c.wants("lockstep", "/api", "theirs")
	c.wants("none", "/api/away", "theirs")
	c.wants("none", "/api", "")
	c.authority.WriteNamed(t, c.client, "renewed")
	s.set(func(o *book.Credential) { o.Sealed = []byte(pair()) })
	c.wants("renewed", "/api", "theirs")
	if _, err := c.call("/elsewhere", "theirs"); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it to be denied", err)
	}
	s.set(func(o *book.Credential) { o.Sealed = []byte("canary") })
	if _, err := c.call("/api", "theirs"); !fault.Is(err, fault.Unauthenticated) || strings.Contains(err.Error(), "canary") {
		t.Errorf("found %v; want that it is no certificate", err)
	}
	foreign := certs.Files{CA: c.client.CA}
	certstest.New(t).Write(t, foreign)
	s.set(func(o *book.Credential) {
		o.Sealed, o.Proof.Certificate.CA = []byte(pair()), textOf(t, foreign.CA)
	})
	if _, err := c.call("/api", "theirs"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want that its authorities do not vouch for the server", err)
	}
	for n := range int64(2 * openAtMost) {
		one := ofOrganization(&book.Credential{Terms: sealing.Terms{Organization: n + 2, Name: "x", Proof: proof}})
		if _, err := c.credentials.secured.of(one, pem{certificate: pair(), key: pair()}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.credentials.secured.known); n > openAtMost {
		t.Errorf("found %d transports; want at most %d", n, openAtMost)
	}
}

func textOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}
