package git

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// owned gives the organization 1 a credential of its own in place of the operator's, below the given path of the server.
func (s *server) owned(t *testing.T, terms sealing.Terms, path, value string) {
	t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	terms.Organization, terms.Name, terms.URLPrefixes = 1, "forge", []string{u.Scheme + "://" + u.Host + path}
	if found := terms.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	s.forge.credentials = credentials{own: book.NewBook(book.Deps{
		Store: kindBook{ownBook{book.Credential{Terms: terms, Sealed: []byte("x")}}},
		Open:  func(context.Context, []byte, sealing.Terms) (string, error) { return value, nil },
	})}
}

// kindBook has one credential, of its kind.
type kindBook struct{ ownBook }

func (b kindBook) CredentialsOfKind(_ context.Context, organization int64, kind sealing.Kind) ([]book.Credential, error) {
	if kind != b.one.Kind || organization != b.one.Organization {
		return nil, nil
	}
	return []book.Credential{b.one}, nil
}

// D56: an organization's own credential proposes and merges at a Bitbucket; another organization has none there, and it is sent to no other
// place of the server.
func TestAnOrganizationsOwnBitbucket(t *testing.T) {
	t.Parallel()
	s := setupForge(t, Bitbucket)
	s.protect(t)
	s.owned(t, sealing.Terms{Kind: sealing.Git, Username: "lockstep", Forge: Bitbucket}, "/team", "secret")
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/2.0/repositories/others/shop" && r.Header.Get("Authorization") != "" {
			t.Errorf("%s was sent the credential", r.URL)
		}
		return false
	}
	s.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	p := s.proposal(map[string]string{"staging/api.yaml": "new\n"})
	made := s.propose(t, p)
	merged, err := s.merge(t, p, made, activity.MergeSquash)
	if err != nil || merged.State != activity.ProposalMerged || merged.Commit != s.rev(t, "main") {
		t.Errorf("found %+v, %v", merged, err)
	}
	p.Commit.Organization = 2
	if _, err := s.forge.Propose(t.Context(), p); !fault.Is(err, fault.Refused) {
		t.Errorf("another organization: %v", err)
	}
}
