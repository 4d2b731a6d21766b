package git

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// D56: an organization whose server does not issue a token keeps no other organization from committing and proposing to the same branch.
func TestWritersOfOtherOrganizationsDoNotWait(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, GitHub)
	g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	asked, release := make(chan struct{}, 2), make(chan struct{})
	g.instead = func(http.ResponseWriter, *http.Request) {
		g.mu.Unlock()
		asked <- struct{}{}
		<-release
		g.mu.Lock()
	}
	write := map[string]func(ctx context.Context, organization int64) error{
		"commit": func(ctx context.Context, organization int64) error {
			c := g.request(map[string]string{"web.yaml": "new\n"})
			c.Organization = organization
			_, err := g.forge.Commit(ctx, c)
			return err
		},
		"propose": func(ctx context.Context, organization int64) error {
			p := g.proposal(map[string]string{"web.yaml": "new\n"})
			p.Commit.Organization = organization
			_, err := g.forge.Propose(ctx, p)
			return err
		},
	}
	done := make(chan error, len(write))
	for _, of := range write {
		go func() { done <- of(t.Context(), 1) }()
	}
	<-asked
	for name, of := range write {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := of(ctx, 2); err == nil || fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: found %v; want that the other organization has no credential", name, err)
		}
		cancel()
	}
	close(release)
	for range write {
		t.Log(<-done) // what it answers does not matter
	}
}
