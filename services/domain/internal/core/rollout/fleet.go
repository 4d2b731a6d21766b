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
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// A rollout to an environment of many clusters (D61) pins its targets when it is created: agents that get the labels later do not count,
// and one that is offline is waited for until the deadline of a target. Each wave has a passage of its own, which the program requests when
// all runs of the wave before have ended. The domain grants it once the reports about these are in the record, thresholds are met, the
// interval is over, and neither this wave nor one before is paused; everything else that keeps passages closed, such as a freeze, keeps
// waves back, too.

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

// PauseWave holds a wave of a fleet: if it has not begun it does not begin, and no later one does. Targets that are being deployed
// continue.
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

// stopFleet are the targets of an environment of a plan.
type stopFleet struct {
	spec fleet.Spec
	// pinned is spec as the rollout pins it.
	pinned json.RawMessage
	waves  [][]fleet.Target
	// agents are where the configuration of the environment names its agent.
	agents []core.AgentReference
}

// PinnedTarget is a target of a rollout that exists.
type PinnedTarget struct {
	fleet.Target
	Wave int
	// Begun reports whether it was deployed to, and Revoked whether its agent was revoked since.
	Begun, Revoked bool
}

// RanTarget is what was deployed last to a target, and whether that became healthy.
type RanTarget struct {
	VersionSetID int64
	Healthy      bool
}

// fleetBack is what a rollback takes back in an environment.
type fleetBack struct {
	// went reports whether the rollout that is rolled back was to go there, and isFleet whether it was a fleet then.
	went, isFleet bool
	spec          fleet.Spec
	targets       []PinnedTarget
}

func (p *plan) takesBack() bool { return p.back != nil && !p.back.forward }

// takenFrom reads what a rollback takes back in an environment; nothing for any other plan, and for a preview.
func (p *plan) takenFrom(ctx context.Context, tx Tx, organization, environment int64) (b fleetBack, err error) {
	if !p.takesBack() || p.back.of == 0 {
		return b, nil
	}
	stops, err := tx.RolloutEnvironmentsByRollout(ctx, organization, []int64{p.back.of})
	if err != nil {
		return b, err
	}
	for _, stop := range stops[p.back.of] {
		if stop.EnvironmentID != environment {
			continue
		}
		b.went = true
		fleets, err := tx.RolloutFleets(ctx, organization, []int64{stop.ID})
		if err != nil {
			return b, err
		}
		f, is := fleets[stop.ID]
		if b.spec, b.isFleet = f.Spec, is; !is {
			return b, nil
		}
		b.targets, err = tx.RolloutFleetAgents(ctx, stop.ID)
		return b, err
	}
	return b, nil
}

// planFleet finds the targets of a stop. A rollback has those of the rollout that it takes back, whatever the environment is now.
func (p *plan) planFleet(ctx context.Context, tx Tx, organization int64, s *stop) error {
	binding := s.environment.Binding
	if s.step.RunsJobs() {
		return nil
	}
	back, err := p.takenFrom(ctx, tx, organization, s.environment.ID)
	if err != nil || back.went && !back.isFleet {
		return err
	}
	f := &stopFleet{pinned: binding.Fleet}
	switch {
	case back.went:
		err = p.planBack(s, back, f)
	case binding.Fleet == nil:
		return nil
	default:
		err = p.planSelected(ctx, tx, s, f)
	}
	if err != nil {
		return err
	}
	if f.agents, err = p.drivers.Agents(binding.DriverRef, binding.DriverConfig); err != nil {
		return err
	}
	if len(f.agents) == 0 { // of a fleet that is written, it is checked
		return fault.New(fault.Refused,
			"rollout_%d went to a fleet in %q, whose driver %s now names no agent: nothing leads to its targets", p.back.of, s.environment.Name,
			binding.DriverRef)
	}
	s.fleet, s.driver.Gates = f, false
	return nil
}

// planSelected plans the targets that the environment selects now.
func (p *plan) planSelected(ctx context.Context, tx Tx, s *stop, f *stopFleet) error {
	var wrong []fault.Field
	if f.spec, wrong = fleet.Parse(f.pinned); len(wrong) > 0 { // it was valid when it was written
		return fault.New(fault.Refused, "the fleet of environment %q cannot be read: %s: %s", s.environment.Name, wrong[0].Name, wrong[0].Problem)
	}
	agents, err := tx.LabelledAgents(ctx)
	if err != nil {
		return err
	}
	if f.waves, err = f.spec.Plan(s.environment.Name, agents); err != nil || !p.takesBack() {
		return err
	}
	return f.forRollback()
}

// planBack plans the targets that a rollback takes back: those that the rollout before has deployed to. Where nothing was, and where the
// others have something else than the version set, too, it is all of them.
func (p *plan) planBack(s *stop, back fleetBack, f *stopFleet) error {
	f.spec = back.spec
	begun := p.live[s.environment.ID] == p.versionSet.ID && slices.ContainsFunc(back.targets, func(t PinnedTarget) bool { return t.Begun })
	last := 0
	for _, t := range back.targets {
		if t.Revoked || begun && !t.Begun {
			continue
		}
		if t.Wave != last {
			f.waves, last = append(f.waves, nil), t.Wave
		}
		f.waves[len(f.waves)-1] = append(f.waves[len(f.waves)-1], t.Target)
	}
	if len(f.waves) == 0 {
		return fault.New(fault.Refused,
			"the agents of all targets that rollout_%d deployed to in %q were revoked, so none of them can be rolled back", p.back.of,
			s.environment.Name)
	}
	return f.forRollback()
}

func (f *stopFleet) forRollback() (err error) {
	f.spec = f.spec.ForRollback()
	if f.pinned, err = json.Marshal(f.spec); err != nil {
		return fmt.Errorf("encode a fleet: %w", err)
	}
	return nil
}

// readBehind finds the fleets in which the version set was completed last, and targets do not have it: they have failed, which was
// tolerated, or their agents got the labels later. Of a rollback, the targets are those that the rollout before has deployed to.
func (p *plan) readBehind(
	ctx context.Context, tx Tx, organization int64, flow core.Flow, environments map[string]core.BoundEnvironment,
) error {
	targets := map[int64][]int64{}
	var ids []int64
	for _, step := range flow.Deploys {
		e := environments[step.Environment]
		if step.RunsJobs() || !p.unchanged(e.ID) {
			continue
		}
		agents, err := p.targetsOf(ctx, tx, organization, e)
		if err != nil {
			return err
		}
		if targets[e.ID] = agents; len(agents) > 0 {
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ran, err := tx.TargetsThatRan(ctx, p.application.ID, ids)
	p.behind = map[int64]bool{}
	want := RanTarget{VersionSetID: p.versionSet.ID, Healthy: true}
	for _, e := range ids {
		if slices.ContainsFunc(targets[e], func(agent int64) bool { return ran[e][agent] != want }) {
			p.behind[e] = true
		}
	}
	return err
}

// targetsOf are the agents that a plan would deploy to in an environment; none where it is no fleet.
func (p *plan) targetsOf(ctx context.Context, tx Tx, organization int64, e core.BoundEnvironment) (agents []int64, err error) {
	if p.takesBack() {
		back, err := p.takenFrom(ctx, tx, organization, e.ID)
		for _, t := range back.targets {
			if t.Begun && !t.Revoked {
				agents = append(agents, t.AgentID)
			}
		}
		return agents, err
	}
	if e.Binding.Fleet == nil {
		return nil, nil
	}
	spec, _ := fleet.Parse(e.Binding.Fleet) // planFleet says what is wrong with it
	all, err := tx.LabelledAgents(ctx)
	for _, one := range all {
		if spec.Selects(one.Labels) {
			agents = append(agents, one.AgentID)
		}
	}
	return agents, err
}

// refuseTargets is Refused where a rollout would change what belongs to others in the cluster of a target (D61): the passage of a fleet
// opens places that nobody has compared when the pipeline was saved, because its agents had not the labels then.
func (u *UseCases) refuseTargets(ctx context.Context, tx Tx, c cause, p plan) error {
	for _, s := range p.stops {
		if s.fleet == nil {
			continue
		}
		places, err := setup.StepPlaces(p.drivers, s.environment, s.step, s.application.Discovered)
		if err != nil {
			return err
		}
		problem, err := u.readiness.TargetOfOthers(ctx, tx, c.Organization, setup.FleetRollout{
			Environment: s.environment, Application: p.application.ID, Places: places, Targets: slices.Concat(s.fleet.waves...),
		})
		if err != nil {
			return err
		}
		if problem != "" {
			return fault.New(fault.Refused, "%s", problem)
		}
	}
	return nil
}
