package graph_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// known is the engine of the fixture as package reconcile sees it.
type known struct{ *runs }

func (known) Reports(context.Context, int64, time.Time, string, string) ([]reconcile.Report, string, error) {
	return nil, "", nil
}

func (known) RepeatReports(context.Context, int64, []string) error { return nil }

func (known) Passages(context.Context, int64, []string, time.Time) (map[string][]rollout.GrantedPassage, error) {
	return map[string][]rollout.GrantedPassage{}, nil
}

func (known) Commits(_ context.Context, organization int64, _ string) ([]reconcile.Branch, string, error) {
	if organization != ours {
		return nil, "", nil
	}
	return []reconcile.Branch{{Repository: "https://git.test/shop", Name: "main", Problem: "the credentials were refused"}}, "", nil
}

// D66: the pages of the comparison follow one another; another organization sees none of it.
func TestDifferencesOfTheRecordAreListedPageByPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	for organization, want := range map[int64]bool{ours: true, theirs: false} {
		found := map[string]bool{}
		pages := 0
		for after := (*string)(nil); ; {
			var data struct {
				It struct {
					Differences []struct{ Kind, Subject, Problem string }
					Next        *string
				}
			}
			f.ask(organization, `query($since: Time!, $after: String) { it: recordDifferences(since: $since, after: $after) {
				differences { kind subject problem remedy rollout { id } } next } }`,
				map[string]any{"since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "after": after}).into(t, &data)
			for _, d := range data.It.Differences {
				found[d.Kind+" "+d.Subject] = true
			}
			pages++
			if after = data.It.Next; after == nil {
				break
			}
		}
		if pages != 4 || found["branch_unread https://git.test/shop main"] != want || len(found) > 0 != want {
			t.Errorf("organization %d: %d pages with %v", organization, pages, found)
		}
	}
}
