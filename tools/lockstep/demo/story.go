package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// story is the demo in four acts.
type story struct {
	world   *World
	out     *account
	watcher *Watcher
	// good is the version set to return to.
	good     client.VersionSet
	rollouts []client.Rollout
}

func newStory(w *World, out *account) *story {
	y := &story{world: w, out: out}
	y.watcher = NewWatcher(w, y.moved)
	return y
}

// moved prints what a service does in the cluster.
func (y *story) moved(environment, service string, before, now position) {
	who := fmt.Sprintf("%-10s  %s", environment, service)
	switch {
	case now.Phase == "Degraded" && before.Phase != "Degraded":
		y.out.bad("%s is degraded, with %d %% of the traffic on the new version: %s", who, now.Weight, now.Message)
	case now.Paused && (!before.Paused || before.Weight != now.Weight):
		y.out.event("%s is at gate %d %%", who, now.Weight)
	case now.Phase == "Healthy" && now.Stable && (before.Phase != "Healthy" || before.Image != now.Image):
		y.out.event("%s is healthy: the new version serves everything", who)
	}
}

// prologue creates what the acts need.
func (y *story) prologue(ctx context.Context) error {
	w := y.world
	y.out.act("Before: an application of two services, and two environments")
	if err := w.CreateRepository(ctx); err != nil {
		return err
	}
	y.out.event("a Git repository %s with one manifest for each service and environment", w.Stack.RepositoryURL(w.Scenario.Application))
	if err := w.CreateApplication(ctx); err != nil {
		return err
	}
	y.out.event("application %s: services api and web, one image each", w.Scenario.Application)
	// By default a failed rollout is rolled back at once. Act 4 does so by hand, and would be refused if the policy was faster.
	if err := y.rollBackAfterFailure(ctx, false); err != nil {
		return err
	}
	if err := w.CreateEnvironments(ctx); err != nil {
		return err
	}
	y.out.observed("environments staging and production: the driver has found Argo CD and Argo Rollouts through the relay")
	if err := w.CreatePipeline(ctx); err != nil {
		return err
	}
	y.out.observed("the pipeline: staging %s and a job that tests it, then an approval, then production %s", gateList(w.Scenario.Stages[0].Gates),
		gateList(w.Scenario.Stages[1].Gates))
	return nil
}

// push pushes images of both services.
func (y *story) push(ctx context.Context, tag string, labels map[string]map[string]string) (client.VersionSet, error) {
	y.out.event("docker push %s/{api,web}:%s", y.world.Scenario.Application, tag)
	set, err := y.world.Push(ctx, tag, labels)
	if err != nil {
		return set, err
	}
	y.out.observed("the registry has notified, and %s has the version set %s: one version of each service, pinned by digest",
		y.world.Scenario.Application, set.Name)
	return set, nil
}

// roll creates a rollout and follows it to its end.
func (y *story) roll(ctx context.Context, set client.VersionSet, reason string) (client.Rollout, error) {
	digests := map[string]string{}
	for _, e := range set.Entries {
		digests[e.Service.Name] = e.Version.Digest
	}
	y.watcher.Expect(digests)
	var r client.Rollout
	err := y.watcher.During(ctx, func(ctx context.Context) error {
		created, err := y.world.Roll(ctx, set.ID, reason)
		if err != nil {
			return err
		}
		y.out.event("%s of %s is on its way", created.ID, set.Name)
		r, err = y.world.Follow(ctx, created.ID, Hooks{Row: y.row, Gate: y.gate})
		return err
	})
	if r.ID != "" {
		y.rollouts = append(y.rollouts, r)
	}
	return r, err
}

// row prints what is in the journal and cannot be seen in the cluster.
func (y *story) row(r client.Rollout, t client.Transition) {
	switch {
	case t.Event == "request_approval":
		y.out.asks("approval of %q is asked for: %s", t.GateID, t.Reason)
	case strings.HasSuffix(t.Event, "_job"):
		t.Reason, _, _ = strings.Cut(t.Reason, "\n") // the rest is its log
		y.out.event("%s", journal.Line(r, t))
	case t.Subject == r.ID && t.Event != "create":
		y.out.event("%s", journal.Line(r, t))
	}
}

// gate looks, before an approval, that what it guards is untouched.
func (y *story) gate(ctx context.Context, r client.Rollout, g client.Gate) error {
	last := y.world.Scenario.Stages[len(y.world.Scenario.Stages)-1]
	for _, e := range r.Environments {
		if e.Environment.Name == last.Environment && e.State != "PENDING" {
			return fmt.Errorf("gate %q is open and %s is %s, expected PENDING", g.GateID, last.Environment, e.State)
		}
	}
	for _, entry := range r.VersionSet.Entries {
		if entry.Version.Digest != "" && y.watcher.last[key{last.Environment, entry.Service.Name}].digest() == entry.Version.Digest {
			return errors.New("production runs the new version before its approval")
		}
	}
	y.out.observed("%s is untouched; approving", last.Environment)
	return ctx.Err()
}

// first is the first deployment ever.
func (y *story) first(ctx context.Context) error {
	y.out.act("Act 1: the first version")
	y.out.note("a first deployment has nothing to compare with: Argo Rollouts skips the canary, so it pauses at no gate")
	set, err := y.push(ctx, "1.0.0", nil)
	if err != nil {
		return err
	}
	r, err := y.roll(ctx, set, "first release")
	if err != nil {
		return err
	}
	return y.completed(ctx, r, set, nil, map[string]int{"staging": 1, "production": 1})
}

// canary is an ordinary release.
func (y *story) canary(ctx context.Context) error {
	y.out.act("Act 2: a new version of both services, gate by gate")
	before, err := y.world.Commits(ctx)
	if err != nil {
		return err
	}
	set, err := y.push(ctx, "2.0.0", nil)
	if err != nil {
		return err
	}
	r, err := y.roll(ctx, set, "ticket 42: faster checkout")
	if err != nil {
		return err
	}
	if err := y.completed(ctx, r, set, before, map[string]int{"staging": 1, "production": 1}); err != nil {
		return err
	}
	if err := y.world.ExpectGates(r); err != nil {
		return err
	}
	for _, stage := range y.world.Scenario.Stages {
		for _, service := range y.world.Scenario.Services {
			if top := slices.Max(stage.Gates); y.watcher.Highest(stage.Environment, service) < top {
				return fmt.Errorf("cluster: %s/%s was seen past gate %d, expected all up to %d", stage.Environment, service,
					y.watcher.Highest(stage.Environment, service), top)
			}
		}
	}
	y.out.observed("in the journal and in the cluster, both services passed every gate of both environments once, none before the other had reached it")
	y.good = set
	return nil
}

// completed checks from outside what a completed rollout has to have left.
func (y *story) completed(ctx context.Context, r client.Rollout, set client.VersionSet, before, commits map[string]int) error {
	if err := ExpectState(r, "COMPLETED", nil); err != nil {
		return err
	}
	for _, stage := range y.world.Scenario.Stages {
		if err := y.world.ExpectHealthy(ctx, stage, set); err != nil {
			return err
		}
		if stage.Approval != "" && !slices.Equal(events(r, stage.Approval), []string{"request_approval", "approve"}) {
			return fmt.Errorf("journal of %s: gate %q has %q, expected one request and one approval", r.ID, stage.Approval,
				events(r, stage.Approval))
		}
	}
	if found := events(r, "staging/after/smoke-test#1"); !slices.Equal(found, []string{"start_job", "end_job"}) {
		return fmt.Errorf("journal of %s: the job smoke-test has %q, expected one start and one end", r.ID, found)
	}
	if err := y.world.ExpectCommits(ctx, before, commits); err != nil {
		return err
	}
	y.out.observed("the journal, Git (%s) and the cluster agree: %s runs everywhere", plural(commits), set.Name)
	return nil
}

// bad is a version that does not hold.
func (y *story) bad(ctx context.Context) error {
	y.out.act("Act 3: a bad version of api is stopped")
	y.out.note("its image carries the label %s=degraded-at=50, which the simulated cluster obeys", SimulateLabel)
	before, err := y.world.Commits(ctx)
	if err != nil {
		return err
	}
	set, err := y.push(ctx, "3.0.0", map[string]map[string]string{"api": {SimulateLabel: "degraded-at=50"}})
	if err != nil {
		return err
	}
	r, err := y.roll(ctx, set, "ticket 43: rewrite of the price engine")
	if err != nil {
		return err
	}
	if err := ExpectState(r, "FAILED", map[string]string{
		"staging/api": "DEGRADED", "staging/web": "FAILED", "production/api": "CANCELLED", "production/web": "CANCELLED",
	}); err != nil {
		return err
	}
	if top := y.watcher.Highest("staging", "web"); top >= 50 {
		return fmt.Errorf("cluster: staging/web was seen past gate %d, expected it to stop with api before 50", top)
	}
	if err := y.world.ExpectHealthy(ctx, y.world.Scenario.Stages[1], y.good); err != nil {
		return err
	}
	if err := y.world.ExpectCommits(ctx, before, map[string]int{"staging": 1}); err != nil {
		return err
	}
	y.out.observed("%s failed; web, healthy by itself, did not pass the gate that api did not hold; production was not touched", r.ID)
	return nil
}

// rollback returns to what was good.
func (y *story) rollback(ctx context.Context) error {
	y.out.act("Act 4: back to the version set before")
	y.out.note("a rollback is a rollout too. What it asks for is still the stable version, so Argo Rollouts skips the canary")
	before, err := y.world.Commits(ctx)
	if err != nil {
		return err
	}
	r, err := y.roll(ctx, y.good, "roll back ticket 43")
	if err != nil {
		return err
	}
	if !r.IsRollback {
		return fmt.Errorf("%s: found no rollback, expected one: %s was live before", r.ID, y.good.Name)
	}
	if err := y.completed(ctx, r, y.good, before, map[string]int{"staging": 1}); err != nil {
		return err
	}
	y.out.observed("production had it already, and its files are as they were: no commit there")
	return y.rollBackAfterFailure(ctx, true)
}

// rollBackAfterFailure sets whether failed rollouts are rolled back automatically.
func (y *story) rollBackAfterFailure(ctx context.Context, automatically bool) error {
	w := y.world
	return w.insist(ctx, "the rollback policy to be set", func() error {
		a, err := w.API.Application(ctx, w.Scenario.Application)
		if err != nil {
			return err
		}
		a.RollbackPolicy.OnFailed = automatically
		_, err = w.API.SetRollbackPolicy(ctx, w.Scenario.Application, a.RollbackPolicy)
		return err
	})
}

// plural says how many commits there are, by environment.
func plural(commits map[string]int) string {
	text := ""
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(commits))) {
		text += fmt.Sprintf("%d commit in %s, ", commits[name], name)
	}
	return text[:len(text)-2]
}
