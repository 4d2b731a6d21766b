package forge

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D48: what a check comes to by the statuses of several commits. It is never stuck while everything is green (gp#1109), never green while a
// commit has no status, and of what is about another commit or repository nothing counts.
func TestWhatStatusesOfForgesComeTo(t *testing.T) {
	t.Parallel()
	const one, two = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	commits := []commit{{"https://git.test/Shop/api", "git.test", one}, {"https://git.test/shop/web", "git.test", two}}
	got := func(repository, sha, name string, phase core.CheckPhase, keys ...string) Received {
		return Received{CheckKeys: keys, Report: Report{
			Repository: "git.test/shop/" + repository, Commit: sha, Context: name, Phase: phase, Description: repository, ObservedAt: time.Unix(100, 0),
		}}
	}
	check := func(config string, own bool) core.PinnedCheck {
		return core.PinnedCheck{EnvironmentID: 3, Own: own, Check: core.Check{Key: "ci", Kind: core.CheckStatus, Config: json.RawMessage(config)}}
	}
	api, web := got("api", one, "ci", core.CheckSuccess), got("web", two, "ci", core.CheckSuccess)
	for name, c := range map[string]struct {
		checks   []core.PinnedCheck
		received []Received
		want     string
	}{
		"none":                               {[]core.PinnedCheck{check("", false)}, nil, "nothing"},
		"all are green":                      {[]core.PinnedCheck{check("", false)}, []Received{api, web}, "success: ci of git.test/shop/api@111111111111: api"},
		"all are green, in another order":    {[]core.PinnedCheck{check("", false)}, []Received{web, api}, "success: ci of git.test/shop/api@111111111111: api"},
		"one has none":                       {[]core.PinnedCheck{check("", false)}, []Received{api}, "pending: waits for ci of git.test/shop/web@222222222222"},
		"one has failed and another none":    {[]core.PinnedCheck{check("", false)}, []Received{got("api", one, "ci", core.CheckFailure)}, "failure: ci of git.test/shop/api@111111111111: api"},
		"the latest counts":                  {[]core.PinnedCheck{check("", false)}, []Received{api, web, got("web", two, "ci", core.CheckFailure)}, "failure: ci of git.test/shop/web@222222222222: web"},
		"it was green before":                {[]core.PinnedCheck{check("", false)}, []Received{api, web, got("web", two, "ci", core.CheckPending)}, "pending: ci of git.test/shop/web@222222222222: web"},
		"the commits are each other's":       {[]core.PinnedCheck{check("", false)}, []Received{got("api", two, "ci", core.CheckSuccess), got("web", one, "ci", core.CheckSuccess)}, "nothing"},
		"of one repository":                  {[]core.PinnedCheck{check(`{"repository":"git.test/shop/web"}`, false)}, []Received{web}, "success: ci of git.test/shop/web@222222222222: web"},
		"of a repository that is not there":  {[]core.PinnedCheck{check(`{"repository":"git.test/shop/db"}`, false)}, []Received{api, web}, "nothing"},
		"another context":                    {[]core.PinnedCheck{check(`{"context":"ci/e2e"}`, false)}, []Received{api, web}, "nothing"},
		"the environment requires another":   {[]core.PinnedCheck{check("", false), check(`{"context":"scan","repository":"git.test/shop/api"}`, true)}, []Received{api, web}, "pending: waits for scan of git.test/shop/api@111111111111"},
		"the environment's is green as well": {[]core.PinnedCheck{check("", false), check(`{"context":"scan","repository":"git.test/shop/api"}`, true)}, []Received{api, web, got("api", one, "scan", core.CheckSuccess)}, "success: ci of git.test/shop/api@111111111111: api"},
		"a hook for other checks":            {[]core.PinnedCheck{check("", false)}, []Received{api, got("web", two, "ci", core.CheckSuccess, "lint")}, "pending: waits for ci of git.test/shop/web@222222222222"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			places, needs := needed(c.checks, commits)
			if len(places) != 1 {
				t.Fatalf("found %v; want one check", places)
			}
			r, follows := conclude(needs[places[0]], "ci", c.received)
			text := string(r.Phase) + ": " + r.Description
			if !follows {
				text = "nothing"
			}
			if text != c.want {
				t.Errorf("found %q; want %q", text, c.want)
			}
		})
	}
}
