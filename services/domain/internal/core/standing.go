package core

import (
	"context"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// What may be done now. Use cases refuse by these rules, under their locks, and readers are told beforehand by the same
// ones, so that a button that is shown as open is refused only by what has changed since.

// Standing is where a rollout stands, as far as what may be done with it depends on that.
type Standing struct {
	Rollout Rollout
	// Gates are the open ones.
	Gates        []Gate
	Environments []RolloutEnvironment
	// UnderWay is that something is being deployed, so that there is something to take back.
	UnderWay bool
	// Began is that something of it has been deployed, or has begun to be.
	Began bool
	hold  hold
	// outlook is what a policy wants of it; the zero value for nothing.
	outlook RollbackOutlook
}

// May is nil when an actor may do something with the rollout as it stands; Denied for want of permission, and Refused
// because of the state, say why not.
func (s Standing) May(a Actor, action Action) error {
	if err := a.May(action); err != nil {
		return err
	}
	if err := s.refuses(action); err != nil {
		return err
	}
	switch action {
	case ActionRollbackRollout:
		return s.refusesRollback()
	case ActionApproveGate, ActionRejectGate:
		return s.mayResolveAny(a, action == ActionApproveGate)
	default: // everything else depends on the rollout's own state alone
		return nil
	}
}

// MayResolve is nil when an actor may answer one gate.
func (s Standing) MayResolve(a Actor, action Action, gate string) error {
	if err := a.May(action); err != nil {
		return err
	}
	if err := s.refuses(action); err != nil {
		return err
	}
	_, err := s.mayResolve(a, gate, action == ActionApproveGate)
	return err
}

// refusesRollback is why there is nothing to go back to from a rollout, or nothing to take back.
func (s Standing) refusesRollback() error {
	if _, err := liveBefore(s.Rollout, s.Environments); err != nil {
		return err
	}
	if s.Began || len(s.hold.passed) > 0 {
		return nil
	}
	instead := ""
	if !s.Rollout.State.Terminal() {
		instead = "; to end it where it is, cancel it"
	}
	return fault.New(fault.Refused, "rollout_%d has changed nothing, so there is nothing to roll back%s", s.Rollout.ID, instead)
}

// refuses is what the state has against an action.
func (s Standing) refuses(action Action) error {
	id, state := s.Rollout.ID, s.Rollout.State
	// What is over takes nothing more; only going back from it makes sense (D16).
	if state.Terminal() && action != ActionRollbackRollout && action != ActionRetryRollout && action != ActionStopRollback {
		return fault.New(fault.Refused, "rollout_%d has ended: %s", id, state.Words())
	}
	switch action {
	case ActionStopRollback:
		return s.refusesStop()
	case ActionBreakGlass:
		if s.hold.broken != nil {
			return fault.New(fault.Refused, "the approvals of rollout_%d are passed by break-glass already", id)
		}
	case ActionAbortRollout:
		if s.hold.aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted already; retry it, roll it back or cancel it", id)
		}
		if !s.UnderWay {
			return fault.New(fault.Refused, "rollout_%d is %s, and nothing is being deployed; cancel it instead", id, state.Words())
		}
	case ActionRetryRollout:
		if state == RolloutCompleted {
			return fault.New(fault.Refused, "rollout_%d is completed; there is nothing to retry", id)
		}
		if !state.Terminal() && !s.hold.aborted {
			return fault.New(fault.Refused, "rollout_%d is %s; nobody has aborted it", id, state.Words())
		}
	case ActionPauseRollout:
		if s.hold.aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted; retry it, roll it back or cancel it", id)
		}
		if state == RolloutPaused {
			return fault.New(fault.Refused, "rollout_%d is paused already", id)
		}
		if s.hold.wanted {
			return fault.New(fault.Refused, "rollout_%d will pause at its next gate already", id)
		}
	case ActionResumeRollout:
		if s.hold.aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted; retry it, roll it back or cancel it", id)
		}
		if !s.hold.wanted {
			return fault.New(fault.Refused, "rollout_%d is %s; nobody has paused it", id, state.Words())
		}
	default: // nothing else depends on it
	}
	return nil
}

// mayResolve is an open gate that an actor may answer; the error says why not.
func (s Standing) mayResolve(a Actor, gate string, approve bool) (Gate, error) {
	open := make([]string, len(s.Gates))
	for i, g := range s.Gates {
		if g.GateID == gate {
			return g, g.MayResolve(a, approve)
		}
		open[i] = g.GateID
	}
	if len(open) == 0 {
		return Gate{}, fault.New(fault.Refused, "gate %q of rollout_%d is not open; no gate is", gate, s.Rollout.ID)
	}
	slices.Sort(open)
	return Gate{}, fault.New(fault.Refused, "gate %q of rollout_%d is not open; open: %s", gate, s.Rollout.ID, strings.Join(open, ", "))
}

// mayResolveAny is nil when there is an open gate that an actor may answer, and otherwise says of the first why not.
func (s Standing) mayResolveAny(a Actor, approve bool) error {
	var first error = fault.New(fault.Refused, "no gate of rollout_%d is open", s.Rollout.ID)
	for i, g := range s.Gates {
		err := g.MayResolve(a, approve)
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// liveBefore is the version set that was live in the last environment that had one. That one is preferred: a set that has
// only been in the first ones may be what failed later on.
func liveBefore(r Rollout, environments []RolloutEnvironment) (int64, error) {
	for i := len(environments) - 1; i >= 0; i-- {
		if previous := environments[i].PreviousVersionSetID; previous != 0 {
			return previous, nil
		}
	}
	return 0, fault.New(fault.Refused, "nothing was live before rollout_%d; name the version set to go back to", r.ID)
}

// refuseBusy is what an active rollout has against another one (R14).
func refuseBusy(app Application, active Rollout) error {
	return fault.New(fault.Refused, "application %q has an active rollout already: rollout_%d is %s; one at a time", app.Name, active.ID, active.State.Words())
}

func refuseNoPipeline(app Application) error {
	return fault.New(fault.Refused, "application %q has no pipeline yet", app.Name)
}

// refuseUnready is what keeps an application from being deployed to an environment (E59).
func refuseUnready(app Application, e Environment, ae ApplicationEnvironment) error {
	if e.Readiness != ReadinessReady {
		return fault.New(fault.Refused, "environment %q is not ready: %s", e.Name, notReady(e.Readiness, e.ReadinessReason))
	}
	if ae.Readiness != ReadinessReady {
		return fault.New(fault.Refused, "application %q is not ready in environment %q: %s", app.Name, e.Name, notReady(ae.Readiness, ae.ReadinessReason))
	}
	return nil
}

// standing is that of a locked rollout.
func (t *tree) standing(ctx context.Context) (Standing, error) {
	s := Standing{Rollout: t.rollout, UnderWay: t.underWay(), Began: t.began()}
	for _, b := range t.environments {
		s.Environments = append(s.Environments, b.RolloutEnvironment)
	}
	rows, err := t.tx.GateWordsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return s, err
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.Gates = gates[t.rollout.ID]
	s.hold = holdOf(rows[t.rollout.ID], s.Gates)
	if err != nil {
		return s, err
	}
	wanted, err := t.tx.AutomaticRollbacksByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.outlook = wanted[t.rollout.ID]
	return s, err
}

// Standings are those of rollouts; no key for one that the organization does not have.
func (d *Domain) Standings(ctx context.Context, organization int64, rollouts []int64) (map[int64]Standing, error) {
	known, err := d.RolloutsByID(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	words, err := d.GateWordsByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	gates, err := d.OpenGates(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	environments, err := d.RolloutEnvironmentsByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	wanted, err := d.AutomaticRollbacksByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	moving, began, err := d.underWay(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]Standing, len(known))
	for id, r := range known {
		all[id] = Standing{
			Rollout: r, Gates: gates[id], Environments: environments[id], UnderWay: moving[id], Began: began[id], hold: holdOf(words[id], gates[id]), outlook: wanted[id],
		}
	}
	return all, nil
}

// underWay is which rollouts are deploying something, and which have ever begun to, of some environments by rollout.
func (d *Domain) underWay(ctx context.Context, organization int64, environments map[int64][]RolloutEnvironment) (moving, began map[int64]bool, err error) {
	of := map[int64]int64{}
	var ids []int64
	for rollout, all := range environments {
		for _, e := range all {
			of[e.ID] = rollout
			ids = append(ids, e.ID)
		}
	}
	deployments, err := d.DeploymentsByRolloutEnvironment(ctx, organization, ids)
	moving, began = map[int64]bool{}, map[int64]bool{}
	for e, all := range deployments {
		for _, dep := range all {
			moving[of[e]] = moving[of[e]] || dep.State == DeploymentDeploying
			began[of[e]] = began[of[e]] || dep.began()
		}
	}
	return moving, began, err
}

// ApplicationStanding is what a new rollout of an application, and archiving it, depend on.
type ApplicationStanding struct {
	Application Application
	// Active is the rollout that is not over; its ID is 0 where there is none.
	Active Rollout
	// OnNewer is what becomes of a newer version set meanwhile.
	OnNewer NewerPolicy
	// Unready is what keeps the pipeline from being driven now; nil when nothing does.
	Unready error
}

// May is nil when an actor may do something with the application as it stands.
func (s ApplicationStanding) May(a Actor, action Action) error {
	if err := a.May(action); err != nil {
		return err
	}
	if action == ActionArchiveApplication && s.Application.ArchivedAt == nil && s.Active.ID != 0 {
		return refuseArchivingApplication(s.Application, s.Active)
	}
	if action != ActionCreateRollout {
		return nil
	}
	if err := refuseArchived(s.Application); err != nil {
		return err
	}
	if s.Active.ID == 0 {
		return s.Unready
	}
	parked := s.Active.State == RolloutPaused || s.Active.AwaitingApproval
	if s.OnNewer == NewerQueued || s.OnNewer == NewerSupersedes && parked {
		return s.Unready
	}
	return refuseBusy(s.Application, s.Active)
}

// ApplicationStandings are those of applications; no key for one that the organization does not have.
func (d *Domain) ApplicationStandings(ctx context.Context, organization int64, applications []int64) (map[int64]ApplicationStanding, error) {
	known, err := d.ApplicationsByID(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	active, err := d.ActiveRollouts(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	latest, err := d.LatestFlowDefinitions(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	policies, err := d.RolloutPolicies(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	places, err := d.ApplicationEnvironmentsByApplication(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, of := range places {
		for _, ae := range of {
			ids = append(ids, ae.EnvironmentID)
		}
	}
	environments, err := d.EnvironmentsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]ApplicationStanding, len(known))
	for id, app := range known {
		s := ApplicationStanding{Application: app, Active: active[id], OnNewer: policies[id].OnNewer}
		if definition, ok := latest[id]; ok {
			s.Unready = d.unready(app, definition, places[id], environments)
		} else {
			s.Unready = refuseNoPipeline(app)
		}
		all[id] = s
	}
	return all, nil
}

// unready is the first stop of a pipeline that is not ready, in the order of promotion.
func (d *Domain) unready(app Application, definition FlowDefinition, places []ApplicationEnvironment, environments map[int64]Environment) error {
	flow, err := d.flows.Read(definition.Definition)
	if err != nil {
		return err
	}
	byName := map[string]ApplicationEnvironment{}
	for _, ae := range places {
		byName[environments[ae.EnvironmentID].Name] = ae
	}
	for _, step := range flow.Deploys {
		ae := byName[step.Environment]
		if err := refuseUnready(app, environments[ae.EnvironmentID], ae); err != nil {
			return err
		}
	}
	return nil
}
