package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// A rollout to an environment of many clusters (D61) pins its targets when it is created: agents that get the labels later do not count,
// and one that is offline is waited for until the deadline of a target. Each wave has a passage of its own, which the program requests when
// all runs of the wave before have ended. The domain grants it once the reports about these are in the record, thresholds are met, the
// interval is over, and neither this wave nor one before is paused; everything else that keeps passages closed, such as a freeze, keeps
// waves back, too.

// stopFleet are the targets of an environment of a plan.
type stopFleet struct {
	spec  fleet.Spec
	waves [][]fleet.Target
	// agents are where the configuration of the environment names its agent.
	agents []core.AgentReference
}

// planFleet finds the targets of a stop. A rollback has those of the rollout that it takes back.
func (p *plan) planFleet(ctx context.Context, tx Tx, s *stop) error {
	binding := s.environment.Binding
	if binding.Fleet == nil || s.step.RunsJobs() {
		return nil
	}
	spec, wrong := fleet.Parse(binding.Fleet)
	if len(wrong) > 0 { // it was valid when it was written
		return fault.New(fault.Refused, "the fleet of environment %q cannot be read: %s: %s", s.environment.Name, wrong[0].Name, wrong[0].Problem)
	}
	f := &stopFleet{spec: spec}
	var err error
	if f.agents, err = p.drivers.Agents(binding.DriverRef, binding.DriverConfig); err != nil {
		return err
	}
	if p.back != nil && !p.back.forward {
		if f.waves, err = tx.RolloutFleetAgents(ctx, p.back.of, s.environment.ID); err != nil {
			return err
		}
	}
	if len(f.waves) == 0 {
		agents, err := tx.LabelledAgents(ctx)
		if err != nil {
			return err
		}
		if f.waves, err = spec.Plan(s.environment.Name, agents); err != nil {
			return err
		}
	}
	s.fleet, s.driver.Gates = f, false
	return nil
}

func (f *stopFleet) input() *fleetInput {
	in := &fleetInput{Waves: f.waves, Deadline: f.spec.Deadline()}
	for _, a := range f.agents {
		in.Agents = append(in.Agents, strings.TrimPrefix(a.At, "/"))
	}
	return in
}

// own are the agents that the configuration of the environment names.
func (f *stopFleet) own() []int64 {
	var all []int64
	for _, a := range f.agents {
		all = append(all, a.Number)
	}
	return all
}

// wavePlacesMost bounds what the passage of a wave opens, in bytes, so that its event is one that the bus takes.
const wavePlacesMost = 1_000_000

// fits refuses waves that open too much at once.
func (f *stopFleet) fits(environment string, own []core.Place) error {
	each := placesIn(own, f.own(), []int64{math.MaxInt64})
	encoded, err := json.Marshal(each)
	if err != nil {
		return fmt.Errorf("encode the places of a target: %w", err)
	}
	for i, wave := range f.waves {
		if size := len(wave) * len(encoded); size > wavePlacesMost {
			return fault.New(fault.Refused, "wave %d of environment %q has %d targets with %d places each, %d bytes together; "+
				"expected at most %d bytes: make the waves smaller", i+1, environment, len(wave), len(each), size, wavePlacesMost)
		}
	}
	return nil
}

// placesIn are the places of targets: each place in the cluster of an agent of the environment's configuration is one in every target.
func placesIn(own []core.Place, configured, targets []int64) (all []core.Place) {
	for _, target := range targets {
		for _, p := range own {
			if !slices.Contains(configured, p.AgentID) {
				continue
			}
			if p.AgentID = target; !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// openingOfWave is what the passage of a wave opens: its targets, within the environment, which has to be entered first. What the
// environment has by itself, as the cluster of its configuration, where the jobs of the pipeline run, is open from its entrance.
func (t *tree) openingOfWave(ctx context.Context, gate string) (Opening, error) {
	b, f, number, err := t.fleetAt(ctx, gate)
	if err != nil || b == nil || number > f.Waves {
		return Opening{}, err
	}
	own, _, err := t.tx.PinnedPlaces(ctx, t.rollout.ID, b.EnvironmentID)
	if err != nil {
		return Opening{}, err
	}
	targets, err := t.tx.WaveAgents(ctx, b.ID, number)
	return Opening{EnvironmentID: b.EnvironmentID, Wave: number, Places: placesIn(own, f.Agents, targets)}, err
}

// mayBeWave reports whether a gate has the form of one of a wave, so that the fleet has to be read.
func mayBeWave(gate string) bool { return strings.Contains(gate, "/wave") }

// waveOf is the wave of a fleet that a gate is about, with the verdict on it.
type waveOf struct {
	*branch
	number int
	waves  []core.RolloutWave
	fleet.Verdict
}

// fleetAt is the environment of a fleet that a gate belongs to, and the number of the wave; nil for any other gate.
func (t *tree) fleetAt(ctx context.Context, gate string) (*branch, core.RolloutFleet, int, error) {
	name, _, _ := strings.Cut(gate, "/")
	for _, b := range t.environments {
		if !mayBeWave(gate) || t.places[b.EnvironmentID].Name != name {
			continue
		}
		fleets, err := t.tx.RolloutFleets(ctx, t.cause.Organization, []int64{b.ID})
		if err != nil {
			return nil, core.RolloutFleet{}, 0, err
		}
		if f, ok := fleets[b.ID]; ok {
			if number := fleet.WaveOf(name, gate, f.Waves); number > 0 {
				return b, f, number, nil
			}
		}
	}
	return nil, core.RolloutFleet{}, 0, nil
}

// wave is what is known about the passage of a wave; nil for any other gate.
func (p passages) wave(ctx context.Context, gate string) (*waveOf, error) {
	b, f, number, err := p.fleetAt(ctx, gate)
	if err != nil || b == nil {
		return nil, err
	}
	waves, err := p.tx.RolloutWaves(ctx, p.cause.Organization, []int64{b.ID})
	if err != nil {
		return nil, err
	}
	w := &waveOf{branch: b, number: number, waves: waves[b.ID]}
	plain := make([]fleet.Wave, len(w.waves))
	for i, one := range w.waves {
		plain[i] = one.Wave
	}
	w.Verdict = f.Spec.Decide(plain, number, p.cause.at)
	return w, nil
}

func (w waveOf) condition() core.Condition {
	return core.Condition{Kind: core.ConditionWave, Outcome: w.Why}
}

// decideWave reports whether a wave may begin, as far as the waves before decide that. One that may never begin fails its environment, and
// the program receives the reason.
func (u *UseCases) decideWave(ctx context.Context, p passages, gate string, w waveOf) (bool, error) {
	switch {
	case w.State.Terminal():
		return false, nil
	case w.Stops != "":
		if err := p.moveEnvironment(ctx, w.branch, core.VerbFail, w.Stops); err != nil {
			return false, err
		}
		// Nothing more is changed, whatever the program does with the answer.
		if err := p.tx.Revoke(ctx, End{Organization: p.cause.Organization, RolloutID: p.rollout.ID, At: p.cause.at}); err != nil {
			return false, err
		}
		return false, p.tx.Announce(ctx, GateResolved{
			Actor: p.cause.Actor, RolloutID: p.rollout.ID, GateID: gate, Reason: w.Stops, At: p.cause.at,
		})
	case w.Until != nil:
		return false, p.tx.ScheduleReview(ctx, p.rollout.ID, *w.Until)
	default:
		return w.Begins, nil
	}
}

// beginWave begins the wave whose passage is granted; a no-op for any other gate.
func (t *tree) beginWave(ctx context.Context, gate string) error {
	b, f, number, err := t.fleetAt(ctx, gate)
	if err != nil || b == nil || number > f.Waves {
		return err
	}
	return t.tx.BeginRolloutWave(ctx, b.ID, number, t.cause.at)
}

// attemptOf is how often the wave of a gate was begun; 0 for any other gate.
func (t *tree) attemptOf(ctx context.Context, gate string) (int, error) {
	b, f, number, err := t.fleetAt(ctx, gate)
	if err != nil || b == nil || number > f.Waves {
		return 0, err
	}
	waves, err := t.tx.RolloutWaves(ctx, t.cause.Organization, []int64{b.ID})
	if err != nil {
		return 0, err
	}
	return waves[b.ID][number-1].Attempt, nil
}

// leftWaves is the passage of the end of all waves of an environment that was not granted; empty if it was, or there are none.
func (p passages) leftWaves(ctx context.Context, b *branch) (string, error) {
	fleets, err := p.tx.RolloutFleets(ctx, p.cause.Organization, []int64{b.ID})
	if _, has := fleets[b.ID]; err != nil || !has {
		return "", err
	}
	if gate := fleet.EndGate(p.places[b.EnvironmentID].Name); !p.hold.Granted[gate] {
		return gate, nil
	}
	return "", nil
}

// claimsWaves reports whether a report about the end of an environment may be applied: all of its waves were let through. If they were not,
// it fails the rollout as a breach.
func (u *UseCases) claimsWaves(ctx context.Context, t *tree, b *branch, report string) (bool, error) {
	if b.State.Terminal() {
		return true, nil
	}
	p, err := t.passages(ctx)
	if err != nil {
		return false, err
	}
	gate, err := p.leftWaves(ctx, b)
	if err != nil || gate == "" {
		return err == nil, err
	}
	return false, u.breach(ctx, t, report, gate)
}

// TargetEnded is a target of a fleet that is healthy or has failed.
type TargetEnded struct {
	RolloutID, EnvironmentID, AgentID int64
	Attempt                           int
	State                             core.TargetState
	Reason                            string
}

func (m TargetEnded) rollout() int64 { return m.RolloutID }

// apply keeps it, also when the rollout has ended meanwhile. With the last target of a wave the next one may begin.
func (m TargetEnded) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	b, err := t.environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	if ok, err := u.claims(ctx, t, b, fmt.Sprintf("the end of target %d", m.AgentID)); err != nil || !ok {
		return err
	}
	waveEnded, err := tx.EndRolloutTarget(ctx, core.RolloutTarget{
		RolloutEnvironmentID: b.ID, AgentID: m.AgentID, Attempt: m.Attempt, State: m.State, Reason: m.Reason, FinishedAt: &c.at,
	})
	if err != nil || !waveEnded {
		return err
	}
	return u.decide(ctx, t)
}

// WaveHold pauses or resumes a wave.
type WaveHold struct {
	RolloutID, EnvironmentID int64
	Wave                     int
	Reason                   string
}

// PauseWave holds a wave of a fleet: if it has not begun it does not begin, and no later one does. Targets that are being deployed continue.
func (u *UseCases) PauseWave(ctx context.Context, a core.Actor, w WaveHold) (core.Rollout, error) {
	return u.holdWave(ctx, a, core.ActionPauseWave, w, true)
}

// ResumeWave ends the hold of a wave. The next wave begins if everything else allows it.
func (u *UseCases) ResumeWave(ctx context.Context, a core.Actor, w WaveHold) (core.Rollout, error) {
	return u.holdWave(ctx, a, core.ActionResumeWave, w, false)
}

func (u *UseCases) holdWave(ctx context.Context, a core.Actor, action core.Action, w WaveHold, paused bool) (core.Rollout, error) {
	if err := core.CheckReason(w.Reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, action, w.RolloutID, func(ctx context.Context, t *tree, _ core.Standing) error {
		b, err := t.environment(w.EnvironmentID)
		if err != nil {
			return err
		}
		waves, err := t.tx.RolloutWaves(ctx, t.cause.Organization, []int64{b.ID})
		if err != nil {
			return err
		}
		name, of := t.places[b.EnvironmentID].Name, waves[b.ID]
		if w.Wave < 1 || w.Wave > len(of) {
			return fault.New(fault.NotFound, "%s has no wave %d of environment %q; it has %d", t.name(), w.Wave, name, len(of))
		}
		switch {
		case b.State.Terminal():
			return fault.New(fault.Refused, "environment %q of %s has ended: it is %s", name, t.name(), b.State)
		case of[w.Wave-1].Paused == paused:
			return nil // repeated
		}
		verb := core.VerbResumeWave
		if paused {
			verb = core.VerbPauseWave
		}
		if err := t.request(ctx, verb, fleet.WaveGate(name, w.Wave), w.Reason); err != nil {
			return err
		}
		if err := t.tx.PauseRolloutWave(ctx, b.ID, w.Wave, paused); err != nil || paused {
			return err
		}
		return u.decide(ctx, t)
	})
}
