package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Deadlines are the domain's: they are pinned with the rollout, the record starts them, and they pass by the clock of the service whatever
// a program does or omits (D59). A deadline stands still while the rollout waits for people, unless the pipeline counts that. How long that
// was is worked out from the journal when the deadline is due, so that neither a restart nor the order of events changes it.

// abortPatience is how long an abort may take after which a rollout is to end: a program that does not return what it deploys cannot hold
// up the end.
const abortPatience = 30 * time.Minute

// pinDeadlines writes those of the pipeline: that of the whole rollout runs from now, those of environments from their entrance.
func (p plan) pinDeadlines(ctx context.Context, t *tree) error {
	if rule := p.deadline(); rule != nil {
		d := core.Deadline{RolloutID: t.rollout.ID, Kind: core.DeadlineOfRollout, DeadlineRule: *rule}
		if err := t.addDeadline(ctx, d, t.cause.at); err != nil {
			return err
		}
	}
	for _, s := range p.stops {
		rule := p.environmentDeadline(s)
		if rule == nil {
			continue
		}
		err := t.tx.AddDeadline(ctx, core.Deadline{
			RolloutID: t.rollout.ID, Kind: core.DeadlineOfEnvironment, EnvironmentID: s.environment.ID, Environment: s.environment.Name,
			DeadlineRule: *rule, By: core.Principal{Type: core.PrincipalSystem},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// environmentDeadline is that of an environment: its own, or the default for the time at work (R4-25); nil for none. A whole rollout has no
// default: it may wait for people, and for passages, for as long as it takes.
func (p plan) environmentDeadline(s stop) *core.DeadlineRule {
	work := p.flow.Work
	switch {
	case s.step.Deadline != nil:
		return s.step.Deadline
	case work == 0, !p.flow.WorkGiven && p.deadline() != nil, s.fleet != nil, s.step.RunsJobs():
		return nil
	}
	return &core.DeadlineRule{After: min(work+s.step.Given, core.MaxDeadline), Action: core.DeadlineFails, AtWork: true}
}

// deadline is that of the whole rollout; nil for none.
func (p plan) deadline() *core.DeadlineRule {
	if p.back != nil && !p.back.forward && p.rollbackDeadline != nil {
		return p.rollbackDeadline
	}
	return p.wholeDeadline
}

// addDeadline adds one that runs from an instant.
func (t *tree) addDeadline(ctx context.Context, d core.Deadline, from time.Time) error {
	due := from.Add(d.After)
	if d.StartedAt, d.Due = &from, &due; d.By.Type == "" {
		d.By.Type = core.PrincipalSystem
	}
	return t.tx.AddDeadline(ctx, d)
}

// endsAfterAbort has the rollout end when what is being deployed has been taken back, and in any case after a while.
func (t *tree) endsAfterAbort(ctx context.Context, action core.DeadlineAction, by core.Principal, reason string) error {
	return t.addDeadline(ctx, core.Deadline{
		RolloutID: t.rollout.ID, Kind: core.DeadlineOfAbort, By: by, Reason: reason,
		DeadlineRule: core.DeadlineRule{After: abortPatience, Action: action, CountsWaiting: true},
	}, t.cause.at)
}

// wantedEnd is the open deadline of an abort; false without one.
func (t *tree) wantedEnd(ctx context.Context) (core.Deadline, bool, error) {
	all, err := t.tx.Deadlines(ctx, t.cause.Organization, []int64{t.rollout.ID})
	for _, d := range all[t.rollout.ID] {
		if d.Kind == core.DeadlineOfAbort && d.Outcome == "" {
			return d, true, err
		}
	}
	return core.Deadline{}, false, err
}

// Passed is what came of a deadline that was due.
type Passed struct {
	RolloutID int64
	// Outcome says what came of each of the deadlines that were due.
	Outcome string
}

// NoticeAbsence notes that deadlines are looked at now. The time in which nobody has, because the service or its database was stopped, is
// not counted as work. It is called before PassDue, and answers for how many deadlines such a time has ended.
func (u *UseCases) NoticeAbsence(ctx context.Context) (int64, error) {
	return u.store.NoticeAbsence(ctx, u.clock.Now())
}

// PassDue looks at the next rollout of which a deadline is due; false when there was none.
func (u *UseCases) PassDue(ctx context.Context) (Passed, bool, error) {
	organizations, err := u.store.OrganizationsWithDueDeadlines(ctx, u.clock.Now())
	if err != nil {
		return Passed{}, false, err
	}
	for _, organization := range organizations {
		var done Passed
		var ok bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			// The lock is the rollout's: other replicas skip it, and a crash leaves the deadline due.
			if done.RolloutID, ok, err = tx.RolloutWithDueDeadline(ctx, u.clock.Now()); err != nil || !ok {
				return err
			}
			done.Outcome, err = u.pass(ctx, tx, organization, done.RolloutID)
			return err
		})
		if err != nil || ok {
			u.wake()
			return done, ok, err
		}
	}
	return Passed{}, false, nil
}

// pass settles or puts off the deadlines of a rollout that are due.
func (u *UseCases) pass(ctx context.Context, tx Tx, organization, rollout int64) (outcome string, err error) {
	c := cause{Actor: core.Actor{Organization: organization, Type: core.PrincipalSchedule}, at: u.clock.Now()}
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil {
		return "", err
	}
	all, err := tx.Deadlines(ctx, organization, []int64{rollout})
	if err != nil {
		return "", err
	}
	rows, err := tx.GateWordsByRollout(ctx, organization, []int64{rollout})
	if err != nil {
		return "", err
	}
	rules, err := tx.GateRules(ctx, rollout)
	if err != nil {
		return "", err
	}
	abort := openAbort(all[rollout])
	for _, d := range all[rollout] {
		if d.Outcome != "" || d.Due == nil || d.Due.After(c.at) {
			continue
		}
		if abort != nil && d.Kind != core.DeadlineOfAbort && !t.over(d) {
			// How the rollout ends has been decided: no other deadline overrules that, and a retry begins them anew.
			due := abort.Due.Add(time.Minute)
			d.Due = &due
			outcome += d.What() + ": after the abort "
			if err := tx.SaveDeadline(ctx, d); err != nil {
				return "", err
			}
			continue
		}
		weights := t.weightsOf(d.EnvironmentID)
		left, still := d.Left(rows[rollout], rules, weights, c.at)
		switch due := c.at.Add(left); {
		case t.over(d):
			d.Outcome = core.DeadlineMet
		case left > 0 && still:
			d.Due = d.Soaks(rows[rollout], weights, c.at) // the end of any other wait finds it
		case left > 0:
			d.Due = &due
		default:
			if err := u.expireDeadline(ctx, t, &d); err != nil {
				return "", err
			}
		}
		outcome += fmt.Sprintf("%s: %s ", d.What(), d.Outcome)
		if err := tx.SaveDeadline(ctx, d); err != nil {
			return "", err
		}
	}
	return outcome, nil
}

// weightsOf are those at which the rollout stops in an environment.
func (t *tree) weightsOf(environment int64) []core.Weight {
	b, err := t.environment(environment)
	if err != nil {
		return nil
	}
	return b.Weights
}

// openAbort is the deadline of an abort that is under way; nil for none.
func openAbort(all []core.Deadline) *core.Deadline {
	for _, d := range all {
		if d.Kind == core.DeadlineOfAbort && d.Outcome == "" && d.Due != nil {
			return &d
		}
	}
	return nil
}

// over reports whether what a deadline is about has ended.
func (t *tree) over(d core.Deadline) bool {
	if t.rollout.State.Terminal() {
		return true
	}
	b, err := t.environment(d.EnvironmentID)
	return d.Kind == core.DeadlineOfEnvironment && err == nil && b.State.Terminal()
}

// expireDeadline carries out the action of a deadline that has passed.
func (u *UseCases) expireDeadline(ctx context.Context, t *tree, d *core.Deadline) error {
	t.cause.triggeredBy = "deadline of " + d.What()
	why := fmt.Sprintf("the deadline of %s has passed: it did not end within %s", d.What(), d.After)
	switch {
	case d.AtWork:
		why = fmt.Sprintf("the default deadline of %s has passed: the rollout was at work there for %s; work_deadline of the pipeline changes it",
			d.What(), d.After)
	case !d.CountsWaiting:
		why += ", beside the time in which it waited for people"
	}
	h, err := t.hold(ctx)
	if err != nil {
		return err
	}
	switch {
	case d.Action == core.DeadlineCancels:
		d.Outcome = core.DeadlineCancelled
		if h.TakenBack { // as a replica of an earlier release has recorded it
			return u.endCancelled(ctx, t, *d, takenBack)
		}
		return u.endCancelled(ctx, t, *d, fmt.Sprintf("its program had not taken everything back within %s", d.After))
	case d.Action == core.DeadlineAborts && h.Aborted:
		d.Outcome = core.DeadlineAborted // as it is already
		return nil
	case d.Action == core.DeadlineAborts && t.underWay():
		d.Outcome = core.DeadlineAborted
		if err := t.command(ctx, core.VerbAbort, why); err != nil {
			return err
		}
		return t.endsAfterAbort(ctx, core.DeadlineFails, core.Principal{}, why)
	}
	d.Outcome = core.DeadlineFailed
	if d.Reason != "" {
		why = core.Because(d.Reason, why)
	}
	if d.Kind == core.DeadlineOfEnvironment {
		b, err := t.environment(d.EnvironmentID)
		if err != nil {
			return err
		}
		if err := t.moveEnvironment(ctx, b, core.VerbFail, why); err != nil {
			return err
		}
	}
	if err := t.moveRollout(ctx, core.VerbFail, why); err != nil {
		return err
	}
	return u.stopWorkflow(ctx, t, why)
}

// endCancelled cancels a rollout for the one who wanted that after an abort.
func (u *UseCases) endCancelled(ctx context.Context, t *tree, d core.Deadline, how string) error {
	t.cause.Type, t.cause.ID = d.By.Type, d.By.ID
	return u.cancel(ctx, t, core.Because(how, d.Reason))
}
