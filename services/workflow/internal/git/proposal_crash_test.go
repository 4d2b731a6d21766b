package git

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// dying is a transport whose process dies after a request was served and before its answer is read.
type dying struct{ left atomic.Int64 }

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.left.Load() <= 0 {
		return nil, errors.New("killed")
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if d.left.Add(-1) == 0 && err == nil {
		_ = answer.Body.Close()
		return nil, errors.New("killed")
	}
	return answer, err
}

// A process that dies after any request of a proposal and its merge leaves what the next one completes: one pull request, and one merge of
// exactly the edit (D55).
func TestACrashAtEachRequestOfAProposal(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{GitLab, GitHub, Gitea, Bitbucket} {
		t.Run(forge, func(t *testing.T) {
			t.Parallel()
			for after := int64(1); ; after++ {
				s := setupForge(t, forge)
				s.protect(t)
				s.add(t, "main", map[string]string{"a": "old\n"})
				d := &dying{}
				d.left.Store(after)
				killed := newForge(t, s.forge.credentials.all...)
				first, err := New(Deps{
					HTTP: d, Budget: killed.budget, Credentials: s.forge.credentials.all, AuthorName: "Lockstep", AuthorEmail: "lockstep@example.com",
					Clock: killed.clock, Log: killed.log,
				})
				if err != nil {
					t.Fatal(err)
				}
				p := s.proposal(map[string]string{"a": "new\n"})
				made, err := first.Propose(t.Context(), p)
				if err == nil {
					_, err = first.Merge(t.Context(), activity.MergeRequest{
						Commit: p.Commit, Branch: p.Branch, Number: made.Number, Head: made.Head, Method: activity.MergeCommit,
					})
				}
				lived := d.left.Load() > 0
				if lived != (err == nil) {
					t.Fatalf("after %d requests: %v", after, err)
				}
				// The next process repeats the call that was not recorded; repeating all of them is the same.
				again := s.propose(t, p)
				if merged, err := s.merge(t, p, again, activity.MergeCommit); err != nil || merged.State != activity.ProposalMerged {
					t.Fatalf("after %d requests: %+v, %v", after, merged, err)
				}
				log := strings.Fields(s.git(t, s.dir, "rev-list", "main"))
				if len(s.fake.pulls) != 1 || len(log) != 3 || s.git(t, s.dir, "show", "main:a") != "new\n" {
					t.Errorf("after %d requests: %d pull requests, %d commits, %q", after, len(s.fake.pulls), len(log), s.git(t, s.dir, "show", "main:a"))
				}
				if lived {
					if after < 8 {
						t.Errorf("only %d requests", after)
					}
					return
				}
			}
		})
	}
}
