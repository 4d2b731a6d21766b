package git

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D56: where a service of before has lost that a credential is an App, its key is not sent as a password; neither is the value of a proof
// that a later version has made.
func TestAKeyWhoseTermsAreLostIsNotSent(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{"", GitHub} {
		t.Run("forge "+forge, func(t *testing.T) {
			t.Parallel()
			g := newGitHubApp(t, forge)
			g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
			g.set(func() { g.own.Proof = sealing.Proof{} })
			g.fails(fault.Unauthenticated, "has a line break")
			g.set(func() { g.value = "ends-too-late\x00" })
			g.fails(fault.Unauthenticated, "has a line break or a zero byte")

			for _, later := range []string{`{"later":{"key":"x"}}`, `{"github_app":{"app_id":"Iv23canary","installation_id":"42","later":"x"}}`, `{"github_app":"x"}`} {
				var proof sealing.Proof
				if err := json.Unmarshal([]byte(later), &proof); err != nil {
					t.Fatal(err)
				}
				g.set(func() { g.own.Proof, g.value = proof, "canary" })
				g.fails(fault.Unavailable, "was made by a later version")
			}
			if len(g.logins) > 0 || g.count > 0 {
				t.Errorf("found logins of %v, and %d tokens; want none", g.logins, g.count)
			}
			g.noStrays()
		})
	}
}

// D56: the URL of a repository, which a program chooses, has an end.
func TestTheURLOfARepositoryHasAnEnd(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, "")
	long := strings.TrimSuffix(g.url, "shop.git") + strings.Repeat("x", maxURL)
	if _, _, err := g.forge.ReadFile(t.Context(), 1, long, "main", "x"); !fault.Is(err, fault.Invalid) || g.count > 0 || len(err.Error()) > 1000 {
		t.Errorf("found %v; want that it is too long", err)
	}
}

// D56: how long GitHub asks to wait before it issues tokens again is known to those who wait for it.
func TestALimitOfTokensHasItsEnd(t *testing.T) {
	t.Parallel()
	g := newGitHubApp(t, GitHub)
	head := g.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	for status, want := range map[int]time.Duration{http.StatusForbidden: 90 * time.Second, http.StatusTooManyRequests: 90 * time.Second} {
		g.set(func() {
			g.instead = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "90")
				refuse(w, status, "slower")
			}
		})
		report, err := g.forge.SetStatus(t.Context(), activity.StatusRequest{
			Organization: 1, RepoURL: g.url, Commit: head, Status: activity.CommitStatus{Name: "lockstep", State: activity.StatusSuccess},
		})
		if err != nil || report.Wait != want || !strings.Contains(report.Limited, "has issued no token") {
			t.Errorf("status %d: found %+v, %v; want that it is to wait for %s", status, report, err, want)
		}
	}
}
