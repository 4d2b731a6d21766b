package domain

import (
	"encoding/json"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// waveEnds reports the ends of targets of a wave whose passage is requested first.
func (f *fleets) waveEnds(r core.Rollout, gate string, results ...string) {
	f.t.Helper()
	first := map[string]int{"edge/wave-1": 1, "edge/wave-2": 3}[gate]
	f.ask(r, gate)
	for i, result := range results {
		f.deliver(f.ended(r, first+i, 1, result))
	}
}

// completes brings a rollout to its end, in which the results are those of the targets of the second wave.
func (f *fleets) completes(r core.Rollout, second ...string) {
	f.t.Helper()
	f.waveEnds(r, "edge/wave-1", "healthy", "healthy")
	f.waveEnds(r, "edge/wave-2", second...)
	f.ends(r)
}

// ends brings a rollout to its end whose waves have ended.
func (f *fleets) ends(r core.Rollout) {
	f.t.Helper()
	f.ask(r, "edge/waves")
	for _, d := range f.deployments(f.stops(r)[0]) {
		f.report(event.DeploymentHealthy{DeploymentID: d.ID})
	}
	f.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: f.edge.ID})
	f.report(event.RolloutHealthy{RolloutID: r.ID})
	f.want(f.reload(r).State, core.RolloutCompleted)
}

// back begins a rollback to the first version set, and enters the environment.
func (f *fleets) back(r core.Rollout) core.Rollout {
	f.t.Helper()
	back, err := f.rollouts.RollbackRollout(f.t.Context(), user(), rollout.Rollback{RolloutID: r.ID, VersionSetID: f.set.ID})
	f.ok(err)
	f.ask(back, "edge")
	f.report(event.RolloutEnvironmentStarted{RolloutID: back.ID, EnvironmentID: f.edge.ID})
	for _, d := range f.deployments(f.stops(back)[0]) {
		f.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
	return back
}

// D61: neither an interval nor one offline cluster keeps the other waves of a rollback back; success is judged at its end.
func TestARollbackIsNotHeldByItsFleet(t *testing.T) {
	t.Parallel()
	f := newFleets(t, `{"selector":{"region":"eu"},"waves":[{"targets":2},{"percent":100}],"interval_seconds":3600,"freshness_seconds":7200}`)
	r := f.enters()
	f.waveEnds(r, "edge/wave-1", "healthy", "healthy")
	f.now.Advance(3601e9)
	f.waveEnds(r, "edge/wave-2", "healthy", "healthy", "healthy")
	f.ends(r)
	r = f.entersWith(f.release(2))
	f.waveEnds(r, "edge/wave-1", "healthy", "healthy")
	f.now.Advance(3601e9)
	f.waveEnds(r, "edge/wave-2", "failed", "failed", "failed")

	back := f.back(r)
	f.waveEnds(back, "edge/wave-1", "healthy", "failed")
	f.waveEnds(back, "edge/wave-2", "healthy", "healthy", "healthy")
	f.want(f.waves(back), []string{"1: 1+1/2 #1", "2: 3+0/3 #1"})
	f.ask(back, "edge/waves")
	f.want(f.granted(back), []string{"edge", "edge/wave-1", "edge/wave-2"})
	f.want(f.stops(back)[0].State, core.RolloutFailed)
	f.verifyJournal(back)
}

// D61: a rollback goes to the targets that the rollout before has deployed to, and to no others, whatever the environment selects now.
func TestARollbackGoesWhereItTakesBack(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T) (*fleets, core.Rollout) {
		t.Helper()
		f := newFleets(t, twoWaves)
		f.completes(f.enters(), "healthy", "healthy", "healthy")
		r := f.entersWith(f.release(2))
		f.waveEnds(r, "edge/wave-1", "healthy", "failed")
		return f, r
	}
	rebound := func(f *fleets, members string) {
		f.t.Helper()
		_, err := f.setup.UpdateEnvironment(f.t.Context(), user(), setup.ChangedEnvironment{ID: f.edge.ID, Fleet: json.RawMessage(members)})
		f.ok(err)
		f.report(event.EnvironmentReady{EnvironmentID: f.edge.ID})
		known, err := f.view.ApplicationEnvironmentsByApplication(f.t.Context(), org, []int64{f.application.ID})
		f.ok(err)
		for _, ae := range known[f.application.ID] {
			if ae.EnvironmentID == f.edge.ID {
				f.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: ae.ID})
			}
		}
	}
	t.Run("all of it", func(t *testing.T) {
		t.Parallel()
		f, r := begun(t)
		f.waveEnds(r, "edge/wave-2", "healthy", "healthy", "failed")
		f.ends(r)
		f.want(f.waves(f.back(r)), []string{"1: 0+0/2 #0", "2: 0+0/3 #0"})
	})
	t.Run("a part", func(t *testing.T) {
		t.Parallel()
		f, r := begun(t)
		f.want(f.waves(f.back(r)), []string{"1: 0+0/2 #0"})
	})
	t.Run("no fleet any more", func(t *testing.T) {
		t.Parallel()
		f, r := begun(t)
		rebound(f, `{}`)
		f.want(f.waves(f.back(r)), []string{"1: 0+0/2 #0"})
	})
	t.Run("revoked", func(t *testing.T) {
		t.Parallel()
		f, r := begun(t)
		_, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[5], map[string]string{"region": "eu"})
		f.ok(err)
		for _, a := range f.agents[:2] {
			_, err := f.access.RevokeAgent(t.Context(), user(), a)
			f.ok(err)
		}
		_, err = f.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, VersionSetID: f.set.ID})
		f.refused(err, "were revoked, so none of them can be rolled back")
	})
	t.Run("no fleet then", func(t *testing.T) {
		t.Parallel()
		f := newFleets(t, twoWaves)
		rebound(f, `{}`)
		done := func(set core.VersionSet) core.Rollout {
			r := f.entersWith(set)
			for _, d := range f.deployments(f.stops(r)[0]) {
				f.report(event.DeploymentHealthy{DeploymentID: d.ID})
			}
			f.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: f.edge.ID})
			f.report(event.RolloutHealthy{RolloutID: r.ID})
			f.want(f.reload(r).State, core.RolloutCompleted)
			return r
		}
		done(f.set)
		r := done(f.release(2))
		rebound(f, twoWaves)
		f.want(len(f.waves(f.back(r))), 0)
	})
}

// D61: where targets do not have what is live, because they failed or got the labels later, the version set is deployed again without
// being forced; and a rollback that missed some of them is repeated.
func TestTargetsThatAreBehindGetTheVersionSet(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	again := func() error {
		_, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID})
		return err
	}
	f.completes(f.enters(), "healthy", "healthy", "healthy")
	f.refused(again(), "is live already in every environment")
	_, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[5], map[string]string{"region": "eu"})
	f.ok(err)
	f.ok(again())
	r, err := f.view.RolloutsByApplication(t.Context(), org, []int64{f.application.ID}, core.Page{First: 1})
	f.ok(err)
	next := r[f.application.ID].Nodes[0]
	f.ask(next, "edge")
	f.report(event.RolloutEnvironmentStarted{RolloutID: next.ID, EnvironmentID: f.edge.ID})
	for _, d := range f.deployments(f.stops(next)[0]) {
		f.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
	f.completes(next, "healthy", "healthy", "healthy", "healthy")
	f.refused(again(), "is live already in every environment")

	second := f.entersWith(f.release(2))
	f.completes(second, "healthy", "healthy", "healthy", "failed")
	for _, result := range []string{"failed", "healthy"} {
		back := f.back(second)
		f.completes(back, "healthy", "healthy", "healthy", result)
	}
	_, err = f.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID, VersionSetID: f.set.ID})
	f.refused(err, "is live already in every environment that this would go to")
	f.refused(again(), "is live already in every environment")
}
