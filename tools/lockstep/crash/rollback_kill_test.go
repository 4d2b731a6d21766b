package crash

import (
	"context"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// R4-02, R4-24: the workflow service is killed at each step that the run of a rollback records, and the domain service at each row of its
// journal: of one that a person requests, and of one that the policy begins after a failure. After the restarts there is one rollback, with
// one commit, and it has come to its end.
func TestServicesKilledAtEachStepOfARollback(t *testing.T) { //nolint:tparallel // its subtests share one stack, in order
	t.Parallel()
	scenario := oneStage()
	ctx, w := setup(t, scenario)
	live := func() client.VersionSet {
		t.Helper()
		sets, err := w.API.VersionSets(ctx, scenario.Application, 10)
		if err != nil {
			t.Fatal(err)
		}
		return sets[len(sets)-1]
	}()

	t.Run("by a person", func(t *testing.T) { //nolint:paralleltest // one after the other on one stack
		set, err := w.Push(ctx, "2.0.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := w.roll(ctx, t, set, nil)
		before, err := w.Commits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		back, err := w.API.RollbackRollout(ctx, r.ID, client.RollbackInput{Reason: "errors"})
		if err != nil {
			t.Fatal(err)
		}
		w.expectRollbackThroughKills(ctx, t, back, live, before, 3)
	})
	t.Run("by the policy", func(t *testing.T) { //nolint:paralleltest // one after the other on one stack
		shop, err := w.API.Application(ctx, scenario.Application)
		if err != nil {
			t.Fatal(err)
		}
		shop.RollbackPolicy.OnFailed = true
		if _, err := w.API.SetRollbackPolicy(ctx, scenario.Application, shop.RollbackPolicy); err != nil {
			t.Fatal(err)
		}
		set, err := w.Push(ctx, "3.0.0", map[string]map[string]string{scenario.Services[0]: {demo.SimulateLabel: "degraded-at=50"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Roll(ctx, set.ID, "it degrades")
		if err != nil {
			t.Fatal(err)
		}
		if r, err = w.Follow(ctx, r.ID, demo.Hooks{}); err != nil || r.State == "COMPLETED" {
			t.Fatalf("%s is %s: %v", r.ID, r.State, err)
		}
		before, err := w.Commits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.stack.Kill("domain"); err != nil { // before it has decided, or while it does
			t.Fatal(err)
		}
		var back client.Rollout
		if err := w.Await(ctx, "the policy to roll back", func() (string, bool, error) {
			all, err := w.API.Rollouts(ctx, client.Filter{Application: scenario.Application, Limit: 1})
			if err != nil || len(all) == 0 {
				return "", false, err
			}
			back = all[0]
			return back.ID, back.IsRollback && back.ID != r.ID, nil
		}); err != nil {
			t.Fatal(err)
		}
		w.expectRollbackThroughKills(ctx, t, back, live, before, 5)
	})
}

// expectRollbackThroughKills follows a rollback to its end while the services are killed at each of its steps.
func (w *world) expectRollbackThroughKills(
	ctx context.Context, t *testing.T, back client.Rollout, set client.VersionSet, before map[string]int, rollouts int,
) {
	t.Helper()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	kills, domain := 0, map[string]int{}
	ended := make(chan error, 2)
	go func() {
		n, err := w.killAtEachStep(within, t, back)
		kills = n
		ended <- err
	}()
	go func() { ended <- w.killAroundPassages(within, t, back, domain) }()
	r, err := w.Follow(ctx, back.ID, demo.Hooks{})
	cancel()
	for range 2 {
		if late := <-ended; err == nil {
			err = late
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	wrong := []error{demo.ExpectState(r, "COMPLETED", nil), w.ExpectHealthy(ctx, w.Scenario.Stages[0], set)}
	wrong = append(wrong, w.ExpectCommits(ctx, before, map[string]int{w.Scenario.Stages[0].Environment: 1}))
	for _, err := range wrong {
		if err != nil {
			t.Error(err)
		}
	}
	created := 0
	for _, row := range r.Journal {
		if row.Event == "create" && row.Subject == r.ID {
			created++
		}
	}
	all, err := w.API.Rollouts(ctx, client.Filter{Application: w.Scenario.Application})
	if err != nil || len(all) != rollouts || created != 1 {
		t.Errorf("found %d rollouts, created %d times: %v; expected %d, and one row", len(all), created, err, rollouts)
	}
	if kills < 3 || domain["domain"] < 3 {
		t.Errorf("the workflow service was killed %d times, and others %v; expected it at each step", kills, domain)
	}
	t.Logf("%s completed through %d kills of the workflow service and %v", r.ID, kills, domain)
}
