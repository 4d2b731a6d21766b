package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Rollback asks to go back from a rollout to what was live before it.
type Rollback struct {
	RolloutID int64
	// VersionSetID is any earlier set of the application; 0 for the one that was live before.
	VersionSetID int64
	// Scope is where it goes; the zero value is everywhere that it changes something.
	Scope  Scope
	Reason string
	// BreakGlass passes its approvals and checks by break-glass from the beginning.
	BreakGlass bool
}

// RollbackRollout begins a rollout of an earlier version set (E12). The one that is rolled back ends first if it is not
// over, in the same transaction: there is no moment at which neither of them is in charge.
func (u *UseCases) RollbackRollout(ctx context.Context, a core.Actor, n Rollback) (core.Rollout, error) {
	if err := core.CheckReason(n.Reason); err != nil {
		return core.Rollout{}, err
	}
	if n.BreakGlass {
		if err := a.MaySomewhere(core.ActionBreakGlass); err != nil {
			return core.Rollout{}, err
		}
		if err := checkGlassReason(n.Reason); err != nil {
			return core.Rollout{}, err
		}
	}
	var made core.Rollout
	err := core.Within(ctx, u.store, a, core.ActionRollbackRollout, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, n.RolloutID)
		if err != nil {
			return err
		}
		made, err = u.rollBackTree(ctx, t, n)
		return err
	})
	u.wake()
	return made, err
}

// rollBackTree is RollbackRollout of a locked rollout.
func (u *UseCases) rollBackTree(ctx context.Context, t *tree, n Rollback) (made core.Rollout, err error) {
	tx, c, a := t.tx, t.cause, t.cause.Actor
	if err := u.checkScope(ctx, t, n.Scope); err != nil {
		return made, err
	}
	if n.VersionSetID == 0 && len(n.Scope.Only)+len(n.Scope.Except) == 0 {
		s, err := t.standing(ctx)
		if err != nil {
			return made, err
		}
		if err := s.RefusesRollback(); err != nil {
			return made, err
		}
	}
	target, err := t.earlier(ctx, n.VersionSetID, n.Scope)
	if err != nil {
		return made, err
	}
	reason := core.Because("rollback of "+t.name(), n.Reason)
	back := &rollbackOf{of: t.rollout.ID, scope: n.Scope}
	// The cancellation frees the application's only place for the rollout below (R14). Should that be refused, the
	// rollback of the transaction leaves the old one running.
	if !t.rollout.State.Terminal() {
		if err := u.mayEnd(ctx, t, a, core.ActionRollbackRollout); err != nil {
			return made, err
		}
		back.instead = fmt.Sprintf("; to end %s where it is, cancel it", t.name())
		if err := u.cancel(ctx, t, core.Because("rolled back to "+target.Name, n.Reason)); err != nil {
			return made, err
		}
	}
	p, err := u.planRollout(ctx, tx, a.Organization, target.ID, back, wish{})
	if err != nil {
		return made, err
	}
	if err := a.MayIn(core.ActionRollbackRollout, p.targets()...); err != nil {
		return made, err
	}
	if n.BreakGlass {
		if err := a.MayIn(core.ActionBreakGlass, p.targets()...); err != nil {
			return made, err
		}
	}
	if err := u.refuses(ctx, tx, c, p); err != nil {
		return made, err
	}
	if made, err = u.createPlanned(ctx, tx, c, p, reason); err != nil || !n.BreakGlass {
		return made, err
	}
	return made, (&tree{tx: tx, cause: c, rollout: made}).request(ctx, core.VerbBreakGlass, "", n.Reason)
}

// mayEnd is nil when an actor may end a rollout that is under way for another one: it acts on everything that it goes to.
func (u *UseCases) mayEnd(ctx context.Context, t *tree, a core.Actor, action core.Action) error {
	s, err := t.standing(ctx)
	if err != nil {
		return err
	}
	return s.MayHere(a, action)
}

// earlier is the set to go back to. What was live in the last environment is preferred: a set that has only been in the
// first ones may be what failed later on.
func (t *tree) earlier(ctx context.Context, wanted int64, scope Scope) (core.VersionSet, error) {
	target := wanted
	if target == 0 {
		environments, err := t.within(ctx, scope)
		if err != nil {
			return core.VersionSet{}, err
		}
		if target, err = core.LiveBefore(t.rollout, environments); err != nil {
			return core.VersionSet{}, err
		}
	}
	sets, err := t.tx.VersionSetsByID(ctx, t.cause.Organization, []int64{target, t.rollout.VersionSetID})
	if err != nil {
		return core.VersionSet{}, err
	}
	set, ok := sets[target]
	if !ok || set.ApplicationID != t.rollout.ApplicationID {
		return set, fault.New(fault.NotFound, "version set %d does not exist, or is another application's", target)
	}
	// Sets are numbered as they are made, so an earlier one has a smaller id.
	if set.ID >= t.rollout.VersionSetID {
		return set, fault.New(
			fault.Refused, "%s is not earlier than %s, which %s carries; to go forward, create a rollout", set.Name,
			sets[t.rollout.VersionSetID].Name, t.name(),
		)
	}
	return set, nil
}

// within are the environments of a rollout that are in a scope.
func (t *tree) within(ctx context.Context, scope Scope) ([]core.RolloutEnvironment, error) {
	ids := make([]int64, len(t.environments))
	for i, b := range t.environments {
		ids[i] = b.EnvironmentID
	}
	known, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	var all []core.RolloutEnvironment
	for _, b := range t.environments {
		if scope.includes(known[b.EnvironmentID].Name) {
			all = append(all, b.RolloutEnvironment)
		}
	}
	return all, err
}

// hold keeps automation from beginning rollouts where this one goes back, until the hold is released (D58): nothing automatic undoes a
// rollback.
func (p *plan) hold(ctx context.Context, tx Tx, c cause, r core.Rollout, s stop) error {
	rollsBack := p.back != nil && !p.back.forward
	if s.step.RunsJobs() || !rollsBack && !p.goesBack(s.environment.ID) {
		return nil
	}
	return tx.AddPromotionHold(ctx, core.PromotionHold{
		ApplicationID: p.application.ID, EnvironmentID: s.environment.ID, RolloutID: r.ID, Since: c.at,
	})
}

// refuseHeld is why automation begins no rollout: something was rolled back where it would go.
func (p *plan) refuseHeld(ctx context.Context, tx Tx, organization int64) error {
	all, err := tx.PromotionHolds(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return err
	}
	for _, s := range p.stops {
		for _, h := range all[p.application.ID] {
			if h.EnvironmentID == s.environment.ID {
				return fault.New(
					fault.Refused, "rollout_%d rolled back in %q on %s, and automation begins nothing there until the hold is released",
					h.RolloutID, s.environment.Name, h.Since.UTC().Format(time.RFC3339),
				)
			}
		}
	}
	return nil
}

// refuseRequest is why a request for a rollout begins none: the manual trigger is off, or a machine would undo a rollback.
func (p *plan) refuseRequest(ctx context.Context, tx Tx, a core.Actor) error {
	t, err := tx.ManualTrigger(ctx, a.Organization, p.application.ID)
	if err != nil {
		return err
	}
	if !t.Enabled {
		return fault.New(
			fault.Refused, "%s switched the manual trigger of %q off; its other triggers begin rollouts, or switch it on first", t.Author.Name,
			p.application.Name,
		)
	}
	if !a.Type.Automatic() || slices.ContainsFunc(p.stops, func(s stop) bool { return p.goesBack(s.environment.ID) }) {
		return nil // a person, or a machine that goes back
	}
	return p.refuseHeld(ctx, tx, a.Organization)
}
