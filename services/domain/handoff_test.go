package domain

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// TestInputsOfPrograms compares what is handed over with golden files: drivers of others rely on it.
func TestInputsOfPrograms(t *testing.T) {
	t.Parallel()
	s := shopOf(setupWith(t, clock.System(), Config{DriverDir: filepath.Join("testdata", "drivers"), PublicURL: "https://cd.example.com/"}))
	s.rollout(s.set)
	s.handOver()
	programs := map[string]string{
		"environment-1-onboarding-1": "onboarding", "application-environment-1-setup-1": "application_environment_setup", "rollout-1": "deploy",
	}
	for _, w := range s.engine.started {
		golden, ok := programs[w.ID]
		if !ok {
			continue
		}
		delete(programs, w.ID)
		var inputs map[string]any
		s.ok(json.Unmarshal(w.Inputs, &inputs))
		// The check of a driver's programs relies on these names.
		if diff := cmp.Diff(driver.Workflow(golden).Inputs(), slices.Sorted(maps.Keys(inputs))); diff != "" {
			t.Errorf("%s: names of inputs (-pkg/driver +handed over):\n%s", golden, diff)
		}
		got, err := json.MarshalIndent(inputs, "", "  ")
		s.ok(err)
		file := filepath.Join("testdata", "inputs", golden+".json")
		if *update {
			s.ok(os.WriteFile(file, append(got, '\n'), 0o600))
		}
		want, err := os.ReadFile(file)
		s.ok(err)
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		if len(w.Program.Source) == 0 || w.Organization != org {
			t.Errorf("%s: %d bytes of program, organization %d", w.ID, len(w.Program.Source), w.Organization)
		}
	}
	if len(programs) > 0 {
		t.Errorf("never handed over: %v", programs)
	}
}

// D55: a program is given which versions are live where a rollout goes, so that a pull request says what moves from which version.
func TestAProgramKnowsWhatIsLive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	if first := s.inputsOf("rollout-1"); strings.Contains(first, `"before"`) || strings.Contains(first, `"url"`) {
		t.Errorf("the first rollout, without the address of a console: found %s", first)
	}
	r := s.rollout(s.release(2))
	var in struct {
		Rollout struct {
			Environments []struct {
				Deployments []struct {
					Before, Versions []struct{ Name string }
				}
			}
		}
	}
	s.ok(json.Unmarshal([]byte(s.inputsOf("rollout-"+itoa(r.ID))), &in))
	for _, e := range in.Rollout.Environments {
		for _, d := range e.Deployments {
			if len(d.Before) != 1 || d.Before[0].Name != "1.1" || d.Versions[0].Name != "1.2" {
				t.Errorf("found %+v", d)
			}
		}
	}
	if len(in.Rollout.Environments) != 2 {
		t.Errorf("found %+v", in)
	}
}

func TestSetupWaitsForItsEnvironment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	e := f.environment("staging", core.TierStaging)
	_, err := f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: pipeline("staging")})
	f.ok(err)
	f.handOver()
	if got := f.ids(); !cmp.Equal(got, []string{"environment-1-onboarding-1"}) {
		t.Fatalf("handed over: %q", got)
	}
	f.report(event.EnvironmentNotReady{EnvironmentID: e.ID, Reason: "no controller"})
	_, err = f.setup.RetryOnboarding(t.Context(), user(), e.ID)
	f.ok(err)
	f.deliver(f.emit(event.EnvironmentNotReady{EnvironmentID: e.ID, Reason: "stale"}, "environment-1-onboarding-1"))
	f.deliver(f.emit(event.EnvironmentReady{EnvironmentID: e.ID}, "environment-1-onboarding-2"))
	f.handOver()
	want := []string{"environment-1-onboarding-1", "environment-1-onboarding-2", "application-environment-1-setup-1"}
	if diff := cmp.Diff(want, f.ids()); diff != "" {
		t.Errorf("handed over (-want +got):\n%s", diff)
	}
	f.report(event.WorkflowFailed{WorkflowID: "application-environment-1-setup-1", Error: "setup.star:3:1: fail: container mismatch"})
	if ae := f.applicationEnvironment(1); ae.Readiness != core.ReadinessNot || !strings.Contains(ae.ReadinessReason, "container mismatch") {
		t.Errorf("after the failed workflow: %+v", ae)
	}
	_, err = f.setup.RetrySetup(t.Context(), user(), 1)
	f.ok(err)
	f.deliver(f.emit(event.ApplicationEnvironmentReady{
		ApplicationEnvironmentID: 1, RolloutName: "api", RolloutNamespace: "shop", Discovered: json.RawMessage(`{"services":{}}`),
	}, "application-environment-1-setup-2"))
	ae := f.applicationEnvironment(1)
	var discovered map[string]any
	f.ok(json.Unmarshal(ae.Discovered, &discovered))
	if ae.Readiness != core.ReadinessReady || discovered["rollout_name"] != "api" || discovered["services"] == nil {
		t.Errorf("when ready: %+v, discovered %v", ae, discovered)
	}
}

func (f *fixture) applicationEnvironment(id int64) core.ApplicationEnvironment {
	f.t.Helper()
	found, err := f.view.ApplicationEnvironmentsByID(f.t.Context(), org, []int64{id})
	f.ok(err)
	return found[id]
}

// ids are the workflows handed over, in order.
func (f *fixture) ids() []string {
	var ids []string
	for _, w := range f.engine.started {
		ids = append(ids, w.ID)
	}
	return ids
}

func TestUnavailableEnginesAreTriedAgainAndRefusalsFail(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.handOver()
	r := s.rollout(s.set)
	s.engine.answer = fault.New(fault.Unavailable, "the workflow service is away")
	_, worked, err := s.handoffs.HandOver(t.Context(), s.engine)
	if !worked || !fault.Is(err, fault.Unavailable) {
		t.Fatalf("first attempt: %v, %v", worked, err)
	}
	if _, worked, _ := s.handoffs.HandOver(t.Context(), s.engine); worked {
		t.Fatal("tried again without a pause")
	}
	s.engine.answer = fault.New(fault.Invalid, "starlark: deploy.star:1:1: got end of file")
	_, err = s.pool.Exec(t.Context(), `UPDATE cd_handoffs SET due_at = now() - interval '1 second' WHERE state = 'pending'`)
	s.ok(err)
	if _, _, err = s.handoffs.HandOver(t.Context(), s.engine); !fault.Is(err, fault.Invalid) {
		t.Fatalf("second attempt: %v", err)
	}
	if got := s.reload(r); got.State != core.RolloutFailed {
		t.Errorf("after the refusal the rollout is %s", got.State)
	}
	j, err := s.view.Journal(t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	found := false
	for _, row := range j.Nodes {
		found = found || row.Verb == core.VerbFail && strings.Contains(row.Reason, "got end of file")
	}
	if !found {
		t.Error("no row of the journal says why")
	}
	s.rollout(s.set) // the application is free again
}

func TestCancellingBeforeTheHandOverWithdrawsIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.handOver()
	before := len(s.engine.started)
	r := s.rollout(s.set)
	_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "changed my mind")
	s.ok(err)
	s.handOver()
	if len(s.engine.started) != before || len(s.engine.cancels) != 0 {
		t.Errorf("started %q, cancelled %q; want neither", s.ids()[before:], s.engine.cancels)
	}
	if _, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, ""); !fault.Is(err, fault.Refused) {
		t.Errorf("cancelling twice: %v, want Refused", err)
	}
}

// TestALostClaimIsTakenUpAgain claims like a process that dies before it calls, and like one that dies after.
func TestALostClaimIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.handOver()
	s.rollout(s.set)
	for range 2 {
		_, err := s.pool.Exec(t.Context(), `UPDATE cd_handoffs SET attempts = attempts + 1, due_at = now() - interval '1 second' WHERE workflow_id = 'rollout-1'`)
		s.ok(err)
	}
	s.handOver()
	s.handOver()
	n := 0
	for _, id := range s.ids() {
		if id == "rollout-1" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("rollout-1 was started %d times, want once", n)
	}
}

func TestConcurrentDispatchersShareTheWork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 12 {
		f.environment("e"+strconv.Itoa(i), core.TierQA)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { f.handOver() })
	}
	wg.Wait()
	seen := map[string]int{}
	for _, id := range f.ids() {
		seen[id]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was started %d times", id, n)
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d workflows were started, want 12", len(seen))
	}
}
