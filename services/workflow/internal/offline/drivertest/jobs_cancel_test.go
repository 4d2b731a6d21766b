package drivertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

const stopMigrate = "job.stop: migrate-r7-e3-1"

// cancelled plays a cancellation while the first job runs, and returns how long the run took to end behind it.
func cancelled(t *testing.T, w *world, in object) time.Duration {
	t.Helper()
	why, began := "not today", w.now
	state, _ := w.play(driver.Deploy, in, []offline.Action{{Advance: "30s"}, {Cancel: &why}})
	if state != "cancelled" {
		t.Errorf("found the run %s, expected it to be cancelled", state)
	}
	return w.now.Sub(began)
}

// D54, D53: a cancellation stops the job that runs, also where the relay does not answer at first.
func TestACancellationStopsAJob(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{0, 10 * time.Minute, 50 * time.Minute, 2 * time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			w, c, in := withJobs(t, nil)
			c.takes["migrate"], c.away = 4*time.Hour, w.now.Add(away)
			took := cancelled(t, w, in)
			if stopped := w.position(stopMigrate) >= 0; stopped != (away < time.Hour) {
				t.Errorf("stopped %t after %d calls", stopped, c.stops)
			}
			if away == 0 && (c.stops != 1 || took > 2*time.Minute) {
				t.Errorf("%d calls in %s, expected one", c.stops, took)
			}
			if away > 0 && (c.stops < 3 || c.stops > 500) || took > 70*time.Minute {
				t.Errorf("%d calls in %s, expected some, for a bounded time", c.stops, took)
			}
		})
	}
}

// A call that is under way at the cancellation creates the job behind the first attempt to stop it.
func TestACancellationStopsAJobThatIsCreatedBehindIt(t *testing.T) {
	t.Parallel()
	w, c, in := withJobs(t, nil)
	c.created, c.late = w.now.Add(110*time.Second), true
	took := cancelled(t, w, in)
	if w.position(stopMigrate) < 0 {
		t.Errorf("story %q after %d calls, expected that the job is stopped", w.story, c.stops)
	}
	if took > 5*time.Minute {
		t.Errorf("it took %s, expected until the job existed", took)
	}

	// Where none is created, it ends, too.
	w, c, in = withJobs(t, nil)
	c.created = w.now.Add(24 * time.Hour)
	if took := cancelled(t, w, in); took < 150*time.Second || took > 5*time.Minute || w.position("job.stop") >= 0 {
		t.Errorf("it took %s with %q, expected until no call is under way any more", took, w.story)
	}
}

// A job that has ended is left alone at a cancellation.
func TestACancellationLeavesAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	w, c, in := withJobs(t, nil)
	c.takes["migrate"], c.takes["smoke-test"] = 5*time.Second, time.Hour
	cancelled(t, w, in)
	if w.position(stopMigrate) >= 0 || c.stops != 1 || w.position(opening) < 0 {
		t.Errorf("%d calls, expected one that stops the other job; story %q", c.stops, w.story)
	}
}

// D54, R2-41: jobs run with every built-in driver that has them: in the namespace that the application is deployed to, which is one of the
// places of the environment.
func TestJobsWithOtherDrivers(t *testing.T) {
	t.Parallel()
	for ref, tt := range map[string]struct {
		shop  func(*testing.T) *world
		in    func() object
		wants string
	}{
		"kubernetes@1":     {plainShop, func() object { return plainInputs(nil) }, "shop"},
		"argo-workflows@1": {argoShop, func() object { return workflowInputs(func(_, config object) { delete(config, "namespace") }) }, "argo"},
		"flux@1": {fluxShop, func() object {
			return fluxInputs(func(config, _ object) { config["target_namespace"] = "shop-staging" })
		}, "shop-staging"},
		"flux@1 without one": {fluxShop, func() object { return fluxInputs(nil) }, ""},
	} {
		t.Run(ref, func(t *testing.T) {
			t.Parallel()
			w, in := tt.shop(t), tt.in()
			w.tasks = &cluster{all: map[string]*workflow{}, takes: map[string]time.Duration{}, fails: map[string]int{}}
			step := in["pipeline"].(object)["steps"].([]any)[0].(object)
			step["before"], step["after"] = []any{jobOf("migrate", nil)}, []any{jobOf("smoke-test", nil)}
			namespace, places := placed(t, w, in)
			if namespace != tt.wants || tt.wants != "" && !slices.Contains(places, driver.Place{AgentID: 42, Namespace: tt.wants}) {
				t.Errorf("namespace %q in places %+v, expected %q", namespace, places, tt.wants)
			}
			failure := w.run(driver.Deploy, in)
			if tt.wants == "" {
				if want := "the job names no namespace"; !strings.Contains(failure, want) || w.position("job.run") >= 0 {
					t.Errorf("failure %q, expected %q", failure, want)
				}
				return
			}
			if failure != "" {
				t.Fatal(failure)
			}
			sequence(t, w, []string{
				fmt.Sprintf("job.run: migrate-r7-e3-1 in %s", tt.wants), "deployment.healthy", "job.run: smoke-test-r7-e3-1 in " + tt.wants, "rollout.healthy",
			})
		})
	}
}

// placed gives the environment its namespace for jobs, as the domain service does, and returns that with its places.
func placed(t *testing.T, w *world, in object) (string, []driver.Place) {
	t.Helper()
	environment := in["rollout"].(object)["environments"].([]any)[0].(object)
	var texts [2]json.RawMessage
	for i, value := range []any{environment["config"], environment["application_environment"].(object)["config"]} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = text
	}
	namespace, err := w.bundle.JobNamespace(texts[0], texts[1])
	if err != nil {
		t.Fatal(err)
	}
	places, err := w.bundle.Places(texts[0], texts[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	environment["job_namespace"] = namespace
	return namespace, places
}
