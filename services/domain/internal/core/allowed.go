package core

import (
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// What may be done now. Use cases refuse by these rules, under their locks, and readers are informed beforehand by the same
// ones, so that a button that is shown as open is refused only by what has changed since.

// Standing is where a rollout stands, as far as what may be done with it depends on that.
type Standing struct {
	Rollout Rollout
	// Gates are the open ones.
	Gates        []Gate
	Environments []RolloutEnvironment
	// Known are the environments themselves, by number.
	Known map[int64]Environment
	// Elsewhere is what the application has against another rollout now: it is archived, another one is under way, or the pipeline is not
	// ready; nil for nothing.
	Elsewhere error
	// UnderWay reports whether something is being deployed, so that there is something to take back.
	UnderWay bool
	// Began reports whether something of it has been deployed, or has begun to be.
	Began bool
	Hold  Hold
	// outlook is what a policy wants of it; the zero value for nothing.
	Outlook RollbackOutlook
}

// May is nil when an actor may do something with the rollout as it stands; Denied for want of permission, and Refused
// because of the state, say why not.
func (s Standing) May(a Actor, action Action) error {
	if err := s.MayHere(a, action); err != nil {
		return err
	}
	if err := s.Refuses(action); err != nil {
		return err
	}
	switch action {
	case ActionRollbackRollout:
		if err := s.RefusesRollback(); err != nil {
			return err
		}
		return s.Elsewhere
	case ActionStopRollback:
		return RefuseStopping(a)
	case ActionApproveGate, ActionRejectGate:
		return s.mayResolveAny(a, action == ActionApproveGate)
	default: // everything else depends on the rollout's own state alone
		return nil
	}
}

// MayHere is nil when an actor may do something with a rollout as a whole: in every environment that it goes to. Gates are answered where
// they are.
func (s Standing) MayHere(a Actor, action Action) error {
	if action == ActionApproveGate || action == ActionRejectGate {
		return a.MaySomewhere(action)
	}
	return a.MayIn(action, s.Targets()...)
}

// Targets are where the rollout goes.
func (s Standing) Targets() []Target {
	ids := make([]int64, len(s.Environments))
	for i, e := range s.Environments {
		ids[i] = e.EnvironmentID
	}
	return TargetsIn(s.Rollout.ApplicationID, ids, s.Known)
}

// GateTargets are where a gate is: its environment, the one behind a step between environments, and for any other gate all of the
// rollout's.
func (s Standing) GateTargets(g Gate) []Target {
	name, _, _ := strings.Cut(g.GateID, "/")
	all := s.Targets()
	for _, t := range all {
		if t.EnvironmentID != 0 && (t.EnvironmentID == g.BeforeEnvironmentID || g.BeforeEnvironmentID == 0 && t.Environment == name) {
			return []Target{t}
		}
	}
	return all
}

// mayAnswer is nil when an actor may answer a gate: where the gate is, and by its rule.
func (s Standing) mayAnswer(a Actor, g Gate, approve bool) error {
	action := ActionRejectGate
	if approve {
		action = ActionApproveGate
	}
	if err := a.MayIn(action, s.GateTargets(g)...); err != nil {
		return err
	}
	return g.MayResolve(a, approve)
}

// RefuseStopping is why an actor may not stop an automatic rollback: it would leave what is broken in place, which people decide.
func RefuseStopping(a Actor) error {
	if a.Type == PrincipalUser {
		return nil
	}
	return fault.New(fault.Denied, "%s is for people; %s is none (%s)", ActionStopRollback, a.DisplayName(), a.Type)
}

// MayResolve is nil when an actor may answer one gate.
func (s Standing) MayResolve(a Actor, action Action, gate string) error {
	if err := s.MayHere(a, action); err != nil {
		return err
	}
	if err := s.Refuses(action); err != nil {
		return err
	}
	_, err := s.OpenGate(a, gate, action == ActionApproveGate)
	return err
}

// Frozen reports whether the journal names a freeze that keeps a requested passage closed.
func (s Standing) Frozen() bool {
	for _, stops := range s.Hold.Stopped {
		for _, c := range stops {
			if c.Kind == ConditionFreeze && !s.Hold.Bypassed[c.ControlID] {
				return true
			}
		}
	}
	return false
}

// RefusesRollback is why there is nothing to go back to from a rollout, or nothing to take back.
func (s Standing) RefusesRollback() error {
	before, err := LiveBefore(s.Rollout, s.Environments)
	if err != nil {
		return err
	}
	// Sets are numbered as they are made, so an earlier one has a smaller number. What was live before a rollback is a later one.
	if before >= s.Rollout.VersionSetID {
		return fault.New(
			fault.Refused, "what was live before rollout_%d is not earlier than what it carries; to go forward, create a rollout", s.Rollout.ID,
		)
	}
	if s.Began || len(s.Hold.Passed) > 0 {
		return nil
	}
	instead := ""
	if !s.Rollout.State.Terminal() {
		instead = "; to end it where it is, cancel it"
	}
	return fault.New(fault.Refused, "rollout_%d has changed nothing, so there is nothing to roll back%s", s.Rollout.ID, instead)
}

// Refuses is what the state has against an action.
func (s Standing) Refuses(action Action) error {
	id, state := s.Rollout.ID, s.Rollout.State
	// What is over takes nothing more; only going back from it makes sense (D16).
	if state.Terminal() && action != ActionRollbackRollout && action != ActionRetryRollout && action != ActionStopRollback {
		return fault.New(fault.Refused, "rollout_%d has ended: %s", id, state.Words())
	}
	switch action {
	case ActionStopRollback:
		return s.refusesStop()
	case ActionBreakGlass:
		if s.Hold.Broken != nil {
			return fault.New(fault.Refused, "the approvals of rollout_%d are passed by break-glass already", id)
		}
	case ActionBypassFreeze:
		if !s.Frozen() {
			return fault.New(fault.Refused, "no freeze stops rollout_%d", id)
		}
	case ActionAbortRollout:
		if s.Hold.Aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted already; retry it, roll it back or cancel it", id)
		}
		if !s.UnderWay {
			return fault.New(fault.Refused, "rollout_%d is %s, and nothing is being deployed; cancel it instead", id, state.Words())
		}
	case ActionRetryRollout:
		if state == RolloutCompleted {
			return fault.New(fault.Refused, "rollout_%d is completed; there is nothing to retry", id)
		}
		if !state.Terminal() && !s.Hold.Aborted {
			return fault.New(fault.Refused, "rollout_%d is %s; nobody has aborted it", id, state.Words())
		}
	case ActionPauseRollout:
		if s.Hold.Aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted; retry it, roll it back or cancel it", id)
		}
		if state == RolloutPaused {
			return fault.New(fault.Refused, "rollout_%d is paused already", id)
		}
		if s.Hold.Wanted {
			return fault.New(fault.Refused, "rollout_%d will pause at its next gate already", id)
		}
	case ActionResumeRollout:
		if s.Hold.Aborted {
			return fault.New(fault.Refused, "rollout_%d is aborted; retry it, roll it back or cancel it", id)
		}
		if !s.Hold.Wanted {
			return fault.New(fault.Refused, "rollout_%d is %s; nobody has paused it", id, state.Words())
		}
	default: // nothing else depends on it
	}
	return nil
}

// OpenGate is an open gate that an actor may answer; the error says why not.
func (s Standing) OpenGate(a Actor, gate string, approve bool) (Gate, error) {
	open := make([]string, len(s.Gates))
	for i, g := range s.Gates {
		if g.GateID == gate {
			return g, s.mayAnswer(a, g, approve)
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
		err := s.mayAnswer(a, g, approve)
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// LiveBefore is the version set that was live in the last environment that had one. That one is preferred: a set that has
// only been in the first ones may be what failed later on.
func LiveBefore(r Rollout, environments []RolloutEnvironment) (int64, error) {
	for i := len(environments) - 1; i >= 0; i-- {
		if previous := environments[i].PreviousVersionSetID; previous != 0 {
			return previous, nil
		}
	}
	return 0, fault.New(fault.Refused, "nothing was live before rollout_%d; name the version set to go back to", r.ID)
}

// RefusesAnother is what the application has against a rollout beside, or behind, one of its own; nil for nothing.
func (s ApplicationStanding) RefusesAnother(r Rollout) error {
	if err := RefuseArchived(s.Application); err != nil {
		return err
	}
	if s.Active.ID != 0 && s.Active.ID != r.ID {
		return RefuseBusy(s.Application, s.Active)
	}
	return s.Unready
}

// RefuseBusy is what an active rollout has against another one (R14).
func RefuseBusy(app Application, active Rollout) error {
	return fault.New(
		fault.Refused, "application %q has an active rollout already: rollout_%d is %s; one at a time", app.Name, active.ID, active.State.Words(),
	)
}

// RefuseNoPipeline is why an application without a pipeline cannot be rolled out.
func RefuseNoPipeline(app Application) error {
	return fault.New(fault.Refused, "application %q has no pipeline yet", app.Name)
}

// RefuseUnready is what keeps an application from being deployed to an environment (E59).
func RefuseUnready(app Application, e Environment, ae ApplicationEnvironment) error {
	if e.Readiness != ReadinessReady {
		return fault.New(fault.Refused, "environment %q is not ready: %s", e.Name, NotReady(e.Readiness, e.ReadinessReason))
	}
	if ae.Readiness != ReadinessReady {
		return fault.New(
			fault.Refused, "application %q is not ready in environment %q: %s", app.Name, e.Name, NotReady(ae.Readiness, ae.ReadinessReason),
		)
	}
	return nil
}

// ApplicationStanding is what a new rollout of an application, and archiving it, depend on.
type ApplicationStanding struct {
	Application Application
	// Targets are where it goes.
	Targets []Target
	// Active is the rollout that is not over; its ID is 0 where there is none.
	Active Rollout
	// OnNewer is what happens to a newer version set meanwhile.
	OnNewer NewerPolicy
	// Unready is what keeps the pipeline from being driven now; nil when nothing does.
	Unready error
}

// May is nil when an actor may do something with the application as it stands.
func (s ApplicationStanding) May(a Actor, action Action) error {
	if action == ActionRenameApplication { // any name may be one that others go by
		return a.May(action)
	}
	if err := a.MayIn(action, s.Targets...); err != nil {
		return err
	}
	if action == ActionArchiveApplication && s.Application.ArchivedAt == nil && s.Active.ID != 0 {
		return RefuseArchivingApplication(s.Application, s.Active)
	}
	if action != ActionCreateRollout {
		return nil
	}
	if err := RefuseArchived(s.Application); err != nil {
		return err
	}
	if s.Active.ID == 0 {
		return s.Unready
	}
	parked := s.Active.State == RolloutPaused || s.Active.AwaitingApproval
	if s.OnNewer == NewerQueued || s.OnNewer == NewerSupersedes && parked {
		return s.Unready
	}
	return RefuseBusy(s.Application, s.Active)
}

// RefuseArchivingApplication is what an active rollout has against archiving its application.
func RefuseArchivingApplication(app Application, active Rollout) error {
	return fault.New(
		fault.Refused, "application %q has an active rollout: rollout_%d is %s; cancel it first", app.Name, active.ID, active.State.Words(),
	)
}

// RefuseArchivingEnvironment is what an active rollout has against archiving an environment that it goes to.
func RefuseArchivingEnvironment(e Environment, active Rollout) error {
	return fault.New(fault.Refused, "rollout_%d, which is %s, goes to environment %q; cancel it first", active.ID, active.State, e.Name)
}

// EnvironmentStanding is what archiving and restoring an environment depend on.
type EnvironmentStanding struct {
	Environment Environment
	// Active is the newest rollout that goes there and is not over; its ID is 0 where there is none.
	Active Rollout
	// Unusable is what an archived one has against being restored; nil for nothing.
	Unusable error
}

// May is nil when an actor may do something with the environment as it stands.
func (s EnvironmentStanding) May(a Actor, action Action) error {
	if action == ActionRenameEnvironment { // others write its name, too
		return a.May(action)
	}
	if err := a.MayIn(action, s.Environment.Target(0)); err != nil {
		return err
	}
	if action == ActionArchiveEnvironment && s.Environment.ArchivedAt == nil && s.Active.ID != 0 {
		return RefuseArchivingEnvironment(s.Environment, s.Active)
	}
	if action == ActionRestoreEnvironment {
		return s.Unusable
	}
	return nil
}

// RefuseArchived is what an archived application has against anything new.
func RefuseArchived(app Application) error {
	if app.ArchivedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "application %q was archived at %s", app.Name, app.ArchivedAt.UTC().Format(time.RFC3339))
}

// refusesStop is why there is no automatic rollback to stop; nil where there is one.
func (s Standing) refusesStop() error {
	switch s.Outlook.State() {
	case RollbackStarted:
		return fault.New(
			fault.Refused, "the automatic rollback of rollout_%d has begun already, as rollout_%d; cancel that one instead", s.Rollout.ID,
			s.Outlook.MadeRolloutID,
		)
	case RollbackDropped:
		return fault.New(fault.Refused, "no automatic rollback of rollout_%d is due any more: %s", s.Rollout.ID, s.Outlook.Outcome)
	case RollbackDue:
		if s.Outlook.ID == 0 {
			return fault.New(fault.Refused, "no automatic rollback of rollout_%d is due", s.Rollout.ID)
		}
	}
	return nil
}

// NotReady says why something is not ready.
func NotReady(r Readiness, reason string) string {
	if reason == "" {
		return string(r)
	}
	return reason
}
