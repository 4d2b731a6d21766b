package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// readWaves reads how far rollouts have come in the fleets among their environments.
func (u *UseCases) readWaves(ctx context.Context, organization int64, stops []int64, v *waitView) (err error) {
	if v.fleets, err = u.RolloutFleets(ctx, organization, stops); err != nil || len(v.fleets) == 0 {
		return err
	}
	stops = slices.DeleteFunc(slices.Clone(stops), func(id int64) bool { _, is := v.fleets[id]; return !is })
	v.waves, err = u.RolloutWaves(ctx, organization, stops)
	return err
}

// wave is what the next wave of a fleet waits for; false if the environment is none, was not entered, or nothing holds the wave.
func (v waitView) wave(e core.RolloutEnvironment, environment core.Environment) (Wait, bool) {
	of, is := v.fleets[e.ID]
	waves := v.waves[e.ID]
	if !is || e.StartedAt == nil || len(waves) == 0 {
		return Wait{}, false
	}
	plain := make([]fleet.Wave, len(waves))
	next := len(waves) + 1
	for i, w := range waves {
		if plain[i] = w.Wave; w.StartedAt == nil && next > len(waves) {
			next = w.Number
		}
	}
	verdict := of.Spec.Decide(plain, next, v.now)
	if verdict.Waits == "" {
		return Wait{}, false
	}
	what := fmt.Sprintf("wave %d of %d", next, len(waves))
	if next > len(waves) {
		what = "the end"
	}
	w := Wait{
		Kind: WaitHealth, Status: WaitPending, Subject: environment.Name, EnvironmentID: e.EnvironmentID, Until: verdict.Until,
		Resolver: "the clusters",
		Detail: fmt.Sprintf("%s of %q waits: %s; %d of %d targets are healthy, %d failed", what, environment.Name, verdict.Waits, of.Healthy, of.Targets,
			of.Failed),
	}
	paused := slices.ContainsFunc(plain[:min(next, len(plain))], func(one fleet.Wave) bool { return one.Paused && one.FinishedAt == nil })
	switch {
	case verdict.Until != nil:
		w.Kind, w.Resolver = WaitSoak, "time"
	case paused && !slices.ContainsFunc(plain[:next-1], func(one fleet.Wave) bool { return one.FinishedAt == nil }):
		w.Kind, w.Status, w.Resolver, w.Needs = WaitPause, WaitStopped, holders(core.MayDeploy)+", who may resume the wave", core.MayDeploy
	}
	return w, true
}
