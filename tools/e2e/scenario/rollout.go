package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// rollout promotes a version set and watches the cluster: no service may pass a gate before all have reached it.
func (r *run) rollout(ctx context.Context, want Rollout) error {
	digests := map[string]string{}
	for _, entry := range r.sets[want.Version].Entries {
		digests[entry.Service.Name] = entry.Version.Digest
	}
	r.watcher.Expect(digests)
	return r.watcher.During(ctx, func(ctx context.Context) error {
		if err := r.start(ctx, want); err != nil {
			return err
		}
		return r.finish(ctx, want)
	})
}

func (r *run) start(ctx context.Context, want Rollout) error {
	set, ok := r.sets[want.Version]
	if !ok {
		return fmt.Errorf("version %q was not pushed", want.Version)
	}
	var err error
	r.version = want.Version
	r.started, err = r.world.API.CreateRollout(ctx, client.NewRollout{VersionSet: set.ID, Reason: "end-to-end test", Again: true})
	return err
}

// onFailure sets what becomes of a rollout that fails. By default one is rolled back afterwards, unless the next one has begun by then:
// STOP leaves out that as well.
func (r *run) onFailure(ctx context.Context, policy string) error {
	_, err := r.world.API.SetRolloutPolicy(ctx, r.scenario.Name, client.RolloutPolicy{OnFailure: policy, OnNewer: "REFUSE"})
	if err != nil || policy != "STOP" {
		return err
	}
	a, err := r.world.API.Application(ctx, r.scenario.Name)
	if err != nil {
		return err
	}
	a.RollbackPolicy.OnFailed = false
	_, err = r.world.API.SetRollbackPolicy(ctx, r.scenario.Name, a.RollbackPolicy)
	return err
}

// finish follows the rollout to its end, and checks the outcome.
func (r *run) finish(ctx context.Context, want Rollout) error {
	done := map[int]bool{}
	var problem error
	ended, err := r.world.Follow(ctx, r.started.ID, demo.Hooks{Row: func(_ client.Rollout, t client.Transition) {
		for i, d := range want.During {
			event, gate, _ := strings.Cut(d.When, " ")
			if done[i] || t.Event != event || (gate != t.GateID && r.scenario.full(gate) != t.GateID) {
				continue
			}
			done[i] = true
			if err := r.act(ctx, d.Act); err != nil {
				problem = errors.Join(problem, fmt.Errorf("when %s: %w", d.When, err))
			}
		}
	}})
	if err := errors.Join(err, problem); err != nil {
		return err
	}
	if len(done) != len(want.During) {
		var rows []string
		for _, t := range ended.Journal {
			rows = append(rows, journal.Line(ended, t))
		}
		return fmt.Errorf("found %d of the %d moments for acts; the journal has:\n%s", len(done), len(want.During), strings.Join(rows, "\n"))
	}
	return r.verify(ctx, ended, want)
}

// verify compares an ended rollout with the expected outcome.
func (r *run) verify(ctx context.Context, ended client.Rollout, want Rollout) error {
	states := map[string]string{}
	for name, state := range want.Deployments {
		states[r.scenario.full(name)] = state
	}
	if err := demo.ExpectState(ended, want.State, states); err != nil {
		return fmt.Errorf("%w; reasons: %q", err, reasons(ended))
	}
	if ended.IsRollback != want.Rollback {
		return fmt.Errorf("%s: found rollback %t, expected %t", ended.ID, ended.IsRollback, want.Rollback)
	}
	if err := match(want.Reason, strings.Join(reasons(ended), "\n")); err != nil {
		return fmt.Errorf("reasons in the journal: %w", err)
	}
	if err := r.links(ctx, ended, want.Links); err != nil {
		return err
	}
	if want.AllGates {
		if err := r.world.ExpectGates(ended); err != nil {
			return err
		}
	}
	for name, gate := range want.Below {
		environment, service, _ := strings.Cut(r.scenario.full(name), "/")
		if passed := r.watcher.Highest(environment, service); passed >= gate {
			return fmt.Errorf("%s has passed gate %d, expected it to stay below %d", name, passed, gate)
		}
	}
	runs := map[string]string{}
	for _, environment := range want.Healthy {
		runs[environment] = want.Version
		if want.Version == "" {
			runs[environment] = r.version
		}
	}
	for environment, version := range want.Runs {
		runs[environment] = version
	}
	for environment, version := range runs {
		if err := r.world.ExpectHealthy(ctx, demo.Stage{Environment: r.scenario.full(environment)}, r.sets[version]); err != nil {
			return err
		}
	}
	return nil
}

// reasons returns the reasons in the journal, in order, without repetitions.
func reasons(r client.Rollout) []string {
	var all []string
	seen := map[string]bool{"": true}
	for _, t := range r.Journal {
		if !seen[t.Reason] {
			all = append(all, t.Reason)
		}
		seen[t.Reason] = true
	}
	return all
}

// synced waits until the cluster's specs have the started version.
func (r *run) synced(ctx context.Context, environment string) error {
	stage := demo.Stage{Environment: r.scenario.full(environment)}
	return r.world.Await(ctx, "the specs of "+environment+" to have the new version", func() (string, bool, error) {
		for _, entry := range r.sets[r.version].Entries {
			image, err := r.world.SpecImage(ctx, stage, entry.Service.Name)
			if err != nil || !strings.HasSuffix(image, "@"+entry.Version.Digest) {
				return image, false, err
			}
		}
		return "", true, nil
	})
}

// stays checks several times.
func (r *run) stays(ctx context.Context, want Stays) error {
	for range want.Looks {
		now, err := r.world.API.Rollout(ctx, r.started.ID)
		if err != nil {
			return err
		}
		for _, e := range now.Environments {
			for _, d := range e.Deployments {
				name := strings.TrimPrefix(e.Environment.Name, r.scenario.Name+"-") + "/" + d.Service.Name
				if state, ok := want.Deployments[name]; ok && d.State != state {
					return fmt.Errorf("%s: found %s, expected it to stay %s; reasons: %q", name, d.State, state, reasons(now))
				}
			}
		}
		if err := clock.Sleep(ctx, r.Clock, lookInterval); err != nil {
			return fmt.Errorf("look: %w", err)
		}
	}
	return nil
}
