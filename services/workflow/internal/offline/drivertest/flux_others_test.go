package drivertest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// theirs is a commit by another author.
func (w *world) theirs(path, content string) {
	w.commit(object{"files": []any{object{"path": path, "content": content}}, "message": "theirs: " + path + content})
	w.flux.snapshots[w.head] = maps.Clone(w.files)
}

// atVersion2 has both files at the version that is deployed.
func (w *world) atVersion2(services ...string) {
	for _, name := range services {
		path := "staging/" + name + ".yaml"
		w.files[path] = strings.Replace(w.files[path], image(name, 1), image(name, 2), 1)
	}
}

// R2-01: a file of the version set that was right already is compared, too, whether another author sets it back right after the rollout's
// commit or right before it.
func TestFluxComparesFilesThatWereRight(t *testing.T) {
	t.Parallel()
	back := func(w *world) {
		w.theirs("staging/worker.yaml", "spec:\n  worker:\n    image: "+image("worker", 1)+"\n")
	}
	after := fluxShop(t)
	after.atVersion2("worker")
	after.flux.people = map[int]func(*world){2: back}
	if failure := after.run(driver.Deploy, fluxInputs(nil)); !strings.Contains(failure, "in which staging/worker.yaml is not as this rollout has committed it") {
		t.Errorf("after: failure %q", failure)
	}
	between := fluxShop(t)
	between.atVersion2("worker")
	done := false
	between.fail = func(name string, _ object) *history.FunctionError {
		if name == "git.commit" && !done {
			done = true
			back(between)
		}
		return nil
	}
	if failure := between.run(driver.Deploy, fluxInputs(nil)); !strings.Contains(failure, "in which staging/worker.yaml is not as this rollout has it") {
		t.Errorf("between: failure %q", failure)
	}
}

// R2-28: the first failure of a commit counts, also if another author asks Flux meanwhile.
func TestTheFirstFailureOfACommitCounts(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		w := fluxShop(t)
		w.flux.always, w.flux.takes = [2]string{"HealthCheckFailed", "timeout waiting for: [Deployment/shop/api]"}, 10*time.Minute
		if asked {
			w.flux.people = map[int]func(*world){6: func(w *world) { w.flux.asked["Kustomization"] = "2026-11-29T19:00:00Z" }}
		}
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(nil))
		if took := w.now.Sub(began); !strings.Contains(failure, "HealthCheckFailed: timeout waiting") || took > 11*time.Minute {
			t.Errorf("asked by others %t: failure %q after %s", asked, failure, took)
		}
	}
	// The same where the commit had failed before, and is tried again.
	w := fluxShop(t)
	w.atVersion2("api", "worker")
	w.flux.always, w.flux.status = [2]string{"HealthCheckFailed", "too late"}, "False"
	w.flux.people = map[int]func(*world){}
	for i := 3; i < 50; i++ {
		w.flux.people[i] = func(w *world) {
			if w.flux.asked["Kustomization"] != "" {
				w.flux.asked["Kustomization"] = "2026-11-29T19:00:00Z"
			}
		}
	}
	if failure := w.run(driver.Deploy, fluxInputs(nil)); !strings.Contains(failure, "too late") {
		t.Errorf("failure %q", failure)
	}
}

// A failure from before counts only after another attempt, also where Flux may not be asked for one.
func TestAFailureFromBeforeWhereFluxIsNotAsked(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		w := fluxShop(t)
		w.atVersion2("api", "worker")
		w.flux.fails[w.head], w.flux.status = [2]string{"HealthCheckFailed", "too late"}, "False"
		if !again {
			w.flux.people = map[int]func(*world){6: func(w *world) { delete(w.flux.fails, w.head) }}
		}
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { c["request"] = false }))
		if took := w.now.Sub(began); again != strings.Contains(failure, "too late") || again == (failure == "") || took < w.flux.interval {
			t.Errorf("it fails again %t: failure %q after %s", again, failure, took)
		}
	}
}

// R2-28: a rollout of what has failed before has a HelmRelease that has used up its retries tried again.
func TestAHelmReleaseIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := fluxShop(t)
	w.flux.asHelmRelease()
	w.atVersion2("api", "worker")
	w.flux.fails[w.head], w.flux.status, w.flux.stalled = [2]string{"UpgradeFailed", "cannot patch"}, "False", true
	w.flux.people = map[int]func(*world){3: func(w *world) { delete(w.flux.fails, w.head) }}
	began := w.now
	if failure := w.run(driver.Deploy, fluxInputs(helmRelease)); failure != "" || w.now.Sub(began) > 2*time.Minute {
		t.Errorf("failure %q after %s", failure, w.now.Sub(began))
	}
	// Without a request nobody tries it again.
	w = fluxShop(t)
	w.flux.asHelmRelease()
	w.atVersion2("api", "worker")
	w.flux.fails[w.head], w.flux.status, w.flux.stalled = [2]string{"UpgradeFailed", "cannot patch"}, "False", true
	began = w.now
	failure := w.run(driver.Deploy, fluxInputs(func(c, e object) { helmRelease(c, e); c["request"] = false }))
	if !strings.Contains(failure, "UpgradeFailed: cannot patch") || w.now.Sub(began) > 2*time.Minute {
		t.Errorf("failure %q after %s", failure, w.now.Sub(began))
	}
}

// Commits of others, of which the source has one that was never seen as the branch's: its files count.
func TestFluxIsAtACommitBetweenOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, content string
		exactly       bool
		want          string
	}{
		"other files":                       {"docs.md", "1", false, ""},
		"other files, with only_own_commit": {"docs.md", "1", true, "(only_own_commit)"},
		"the same file":                     {"staging/api.yaml", "image: " + image("api", 1) + "\n", false, "in which staging/api.yaml is not as"},
	} {
		w := fluxShop(t)
		w.flux.interval = time.Hour
		w.flux.people = map[int]func(*world){2: func(w *world) {
			w.theirs(tt.path, tt.content)
			w.flux.at, w.flux.fetchAt = w.head, w.now.Add(time.Hour)
			w.theirs("docs.md", "2")
		}}
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { c["only_own_commit"] = tt.exactly }))
		if took := w.now.Sub(began); tt.want == "" && failure != "" || !strings.Contains(failure, tt.want) || took > 2*time.Minute {
			t.Errorf("%s: failure %q after %s, want %q", name, failure, took, tt.want)
		}
	}
}

// D55: a pull request that was merged by hand, which Flux has deployed with a later commit before the passage.
func TestAMergeByHandThatFluxHasDeployed(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{false, true} {
		w := fluxShop(t)
		w.flux.interval, w.flux.fetchAt = time.Minute, w.now
		w.held["staging"], w.answers["staging"] = time.Hour, "approved"
		w.forge.people = map[int]func(*world, object){2: func(w *world, _ object) {
			w.forge.merge(w, "ann")
			w.flux.snapshots[w.head] = maps.Clone(w.files)
			if later {
				w.theirs("docs.md", "1")
			}
		}}
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(func(c, e object) { proposing(c, e); c["deadline"] = 1800 }))
		if took := w.now.Sub(began); failure != "" || took > time.Hour+2*time.Minute {
			t.Errorf("a later commit %t: failure %q after %s", later, failure, took)
		}
	}
}

// A branch that is set back to before the rollout's commit ends it with that reason; one look at an old copy of the forge does not.
func TestABranchThatIsSetBack(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{true, false} {
		w := fluxShop(t)
		first, files, ours, its := w.head, maps.Clone(w.files), "", map[string]string{}
		w.flux.people = map[int]func(*world){
			2: func(w *world) {
				ours, its = w.head, w.files
				w.head, w.files, w.flux.fetchAt = first, maps.Clone(files), w.now.Add(time.Second)
			},
			4: func(w *world) {
				if !stays {
					w.head, w.files, w.flux.fetchAt = ours, its, w.now.Add(time.Second)
				}
			},
		}
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(nil))
		if stays != strings.Contains(failure, "main was set back to "+first[:12]) || stays == (failure == "") || w.now.Sub(began) > 2*time.Minute {
			t.Errorf("it stays %t: failure %q after %s", stays, failure, w.now.Sub(began))
		}
	}
}

// A relay that does not answer at the beginning is tried again for a while; then nothing is committed.
func TestTheRelayIsAwayBeforeTheCommit(t *testing.T) {
	t.Parallel()
	for _, proposal := range []string{"none", "pull_request"} {
		for _, away := range []int{3, 1000} {
			w := fluxShop(t)
			w.answers["staging"] = "approved"
			calls := 0
			w.fail = func(name string, _ object) *history.FunctionError {
				if name == "k8s.get" {
					if calls++; calls <= away {
						return &history.FunctionError{Code: "timeout", Message: "no answer"}
					}
				}
				return nil
			}
			failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { c["proposal"] = proposal }))
			if away == 3 && failure != "" || away > 3 && (!strings.Contains(failure, "cannot be read: no answer") || len(w.commits)+w.forge.proposed > 0) {
				t.Errorf("%s, %d calls: failure %q, commits %q", proposal, away, failure, w.commits)
			}
		}
	}
}

// What Flux does not try at all ends the deployment at once, and is refused before the commit.
func TestFluxRefusesTheObject(t *testing.T) {
	t.Parallel()
	for _, look := range []int{1, 3} {
		for _, reason := range []string{"AccessDenied", "InvalidCELExpression", "FeatureGateDisabled"} {
			w := fluxShop(t)
			w.flux.people = map[int]func(*world){look: func(w *world) { w.flux.refused = reason }}
			began := w.now
			failure := w.run(driver.Deploy, fluxInputs(nil))
			if !strings.Contains(failure, "is stalled: "+reason+": not allowed") || w.now.Sub(began) > time.Minute || (len(w.commits) > 0) != (look == 3) {
				t.Errorf("%s at look %d: failure %q after %s, commits %q", reason, look, failure, w.now.Sub(began), w.commits)
			}
		}
	}
}
