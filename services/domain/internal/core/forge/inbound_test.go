package forge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
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
	gap := []string{"provenance of r.test/db@sha256:1"}
	api, web := got("api", one, "ci", core.CheckSuccess), got("web", two, "ci", core.CheckSuccess)
	for name, c := range map[string]struct {
		checks   []core.PinnedCheck
		received []Received
		want     string
		gaps     []string
	}{
		"none":                               {[]core.PinnedCheck{check("", false)}, nil, "nothing", nil},
		"all are green":                      {[]core.PinnedCheck{check("", false)}, []Received{api, web}, "success: ci of git.test/shop/api@111111111111: api", nil},
		"all are green, in another order":    {[]core.PinnedCheck{check("", false)}, []Received{web, api}, "success: ci of git.test/shop/api@111111111111: api", nil},
		"one has none":                       {[]core.PinnedCheck{check("", false)}, []Received{api}, "pending: waits for ci of git.test/shop/web@222222222222", nil},
		"one has failed and another none":    {[]core.PinnedCheck{check("", false)}, []Received{got("api", one, "ci", core.CheckFailure)}, "failure: ci of git.test/shop/api@111111111111: api", nil},
		"the latest counts":                  {[]core.PinnedCheck{check("", false)}, []Received{api, web, got("web", two, "ci", core.CheckFailure)}, "failure: ci of git.test/shop/web@222222222222: web", nil},
		"it was green before":                {[]core.PinnedCheck{check("", false)}, []Received{api, web, got("web", two, "ci", core.CheckPending)}, "pending: ci of git.test/shop/web@222222222222: web", nil},
		"the commits are each other's":       {[]core.PinnedCheck{check("", false)}, []Received{got("api", two, "ci", core.CheckSuccess), got("web", one, "ci", core.CheckSuccess)}, "nothing", nil},
		"of one repository":                  {[]core.PinnedCheck{check(`{"repository":"git.test/shop/web"}`, false)}, []Received{web}, "success: ci of git.test/shop/web@222222222222: web", nil},
		"of a repository that is not there":  {[]core.PinnedCheck{check(`{"repository":"git.test/shop/db"}`, false)}, []Received{api, web}, "nothing", nil},
		"another context":                    {[]core.PinnedCheck{check(`{"context":"ci/e2e"}`, false)}, []Received{api, web}, "nothing", nil},
		"the environment requires another":   {[]core.PinnedCheck{check("", false), check(`{"context":"scan","repository":"git.test/shop/api"}`, true)}, []Received{api, web}, "pending: waits for scan of git.test/shop/api@111111111111", nil},
		"the environment's is green as well": {[]core.PinnedCheck{check("", false), check(`{"context":"scan","repository":"git.test/shop/api"}`, true)}, []Received{api, web, got("api", one, "scan", core.CheckSuccess)}, "success: ci of git.test/shop/api@111111111111: api", nil},
		"a hook for other checks":            {[]core.PinnedCheck{check("", false)}, []Received{api, got("web", two, "ci", core.CheckSuccess, "lint")}, "pending: waits for ci of git.test/shop/web@222222222222", nil},
		"an image of which nothing is known": {[]core.PinnedCheck{check("", false)}, []Received{api, web}, "pending: waits for provenance of r.test/db@sha256:1", gap},
		"it fails nevertheless":              {[]core.PinnedCheck{check("", false)}, []Received{api, got("web", two, "ci", core.CheckFailure)}, "failure: ci of git.test/shop/web@222222222222: web", gap},
		"another repository is asked for":    {[]core.PinnedCheck{check(`{"repository":"git.test/shop/web"}`, false)}, []Received{web}, "success: ci of git.test/shop/web@222222222222: web", gap},
		"only the environment's names one":   {[]core.PinnedCheck{check("", false), check(`{"repository":"git.test/shop/web"}`, true)}, []Received{api, web}, "pending: waits for provenance of r.test/db@sha256:1", gap},
		"nothing is known, nor reported":     {[]core.PinnedCheck{check("", false)}, nil, "nothing", gap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			places, needs := needed(c.checks, commits, c.gaps)
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

// D48: a version without a known commit is not passed over: an image has one by verified provenance, and what comes from Git by its source.
func TestVersionsWithoutAKnownCommit(t *testing.T) {
	t.Parallel()
	const sha = "1111111111111111111111111111111111111111"
	version := func(id int64, reference, digest, config string) SetVersion {
		return SetVersion{Version: core.Version{ID: id, Reference: reference, Digest: digest}, Config: json.RawMessage(config)}
	}
	states := func(sources ...provenance.Source) core.Origin {
		return core.Origin{Report: &provenance.Report{Sources: sources}}
	}
	good := provenance.Source{Repository: "https://git.test/shop/api", Revision: sha}
	commits, gaps := commitsOf([]SetVersion{
		version(1, "git:"+sha, sha, `{"repository":"https://git.test/shop/config"}`), version(2, "git:local", sha, `{}`),
		version(3, "r.test/a@sha256:1", "sha256:1", ""), version(4, "r.test/b@sha256:2", "sha256:2", ""),
		version(5, "r.test/c@sha256:3", "sha256:3", ""), version(6, "r.test/d@sha256:4", "sha256:4", ""),
	}, map[int64]core.Origin{
		4: states(), 5: states(good), 6: states(provenance.Source{Repository: "https://git.test/shop/api", Revision: "main"}),
	})
	if got := fmt.Sprint(commits); got != "[{https://git.test/shop/api git.test "+sha+"} {https://git.test/shop/config git.test "+sha+"}]" {
		t.Errorf("found %s; want the commits of two repositories", got)
	}
	want := "[the repository of git:local provenance of r.test/a@sha256:1 provenance of r.test/b@sha256:2 provenance of r.test/d@sha256:4]"
	if got := fmt.Sprint(gaps); got != want {
		t.Errorf("found %s; want %s", got, want)
	}
}

// D48: commits that were left out, because there are too many, are not passed over, also by a check that names a repository.
func TestACheckOfTooManyCommits(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxCommits, maxCommits + 1} {
		var versions []SetVersion
		var received []Received
		for i := range n {
			sha := fmt.Sprintf("%040x", i+1)
			versions = append(versions, SetVersion{
				Version: core.Version{ID: int64(i + 1), Reference: "git:" + sha, Digest: sha}, Config: json.RawMessage(`{"repository":"https://git.test/shop"}`),
			})
			received = append(received, Received{Report: Report{Repository: "git.test/shop", Commit: sha, Context: "ci", Phase: core.CheckSuccess}})
		}
		commits, gaps := commitsOf(append(versions, versions[0]), nil)
		for _, config := range []string{"", `{"repository":"git.test/shop"}`} {
			check := core.PinnedCheck{Check: core.Check{Key: "ci", Kind: core.CheckStatus, Config: json.RawMessage(config)}}
			places, needs := needed([]core.PinnedCheck{check}, commits, gaps)
			r, _ := conclude(needs[places[0]], "ci", received)
			green, waits := r.Phase == core.CheckSuccess, strings.HasSuffix(r.Description, "found more than 100 commits")
			if len(commits) != maxCommits || green != (n == maxCommits) || waits == green {
				t.Errorf("%d commits, %q: found %d and %s: %s; want it green only if none was left out", n, config, len(commits), r.Phase, r.Description)
			}
		}
	}
}

// D48: the name of a repository has no control characters, also none that its address encodes, and is bounded.
func TestNamesOfRepositories(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://Git.test/Shop/api.git/":               "git.test/shop/api",
		"https://git.test/shop/%61pi":                  "git.test/shop/api",
		"https://git.test/shop/%00api":                 "",
		"https://git.test/shop/api%0A":                 "",
		"https://git.test/shop/%7Fapi":                 "",
		"https://git.test/shop/%ffapi":                 "",
		"https://user@git.test/shop/api":               "",
		"ssh://git@Git.test:2222/Shop/api.git":         "git.test/shop/api",
		"git@git.test:shop/api.git":                    "git.test/shop/api",
		"ssh://git:secret@git.test/shop/api":           "",
		"https://git.test/" + strings.Repeat("Ⱥ", 400): "", // of 2 bytes, and of 3 in lower case
		"https://git.test/" + strings.Repeat("Ⱥ", 300): "git.test/" + strings.Repeat("ⱥ", 300),
	} {
		if got := RepositoryName(address); got != want {
			t.Errorf("%.60q: found %.60q; want %.60q", address, got, want)
		}
	}
}

// D48, D56: a commit that is known over SSH is confirmed by the forge whose pages are on another port; one that is known over HTTPS only by
// its own.
func TestAForgeOnAnotherPortConfirmsWhatIsKnownOverSSH(t *testing.T) {
	t.Parallel()
	sha := strings.Repeat("a", 40)
	for _, c := range []struct {
		repository, config string
		green              bool
	}{
		{"ssh://git@git.test:2222/shop/api.git", "", true},
		{"git@git.test:shop/api", `{"repository":"git.test:8443/shop/api"}`, true},
		{"https://git.test:8443/shop/api", "", true},
		{"https://git.test/shop/api", "", false},
		{"git@git.test:shop/other", "", false},
		{"git@other.test:shop/api", "", false},
	} {
		check := core.PinnedCheck{Check: core.Check{Key: "ci", Kind: core.CheckStatus, Config: json.RawMessage(c.config)}}
		places, needs := needed([]core.PinnedCheck{check}, []commit{{repository: c.repository, sha: sha}}, nil)
		r, _ := conclude(needs[places[0]], "ci", []Received{
			{Report: Report{Repository: RepositoryName("https://git.test:8443/shop/api"), Commit: sha, Context: "ci", Phase: core.CheckSuccess}},
		})
		if green := r.Phase == core.CheckSuccess; green != c.green {
			t.Errorf("%s: found %s: %s; want it green: %t", c.repository, r.Phase, r.Description, c.green)
		}
	}
}
