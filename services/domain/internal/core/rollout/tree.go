package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// cause is who changes something, and why; every journal row of one change has the same.
type cause struct {
	core.Actor
	triggeredBy string
	// at is when it began to be changed; where passages are decided, when they are.
	at time.Time
	// known are the rollouts that the transaction holds already; nil where it began with none.
	known *forest
	// reported takes the reports of programs of checks that the transaction records; nil where nobody counts them.
	reported *[]checkOutcome
}

// tree is a rollout with everything under it, locked. Its methods move states and write the journal; the fields always
// show what has been written.
type tree struct {
	tx    Tx
	cause cause
	// rollout has only what its row has; what is derived, such as IsRollback, has to be read (R18).
	rollout      core.Rollout
	environments []*branch
	// places are the environments that the rollout goes to, as they are now, by number.
	places map[int64]core.Environment
	// openings are what gates open, as far as it has been read: it is pinned.
	openings map[string]Opening
	// breach is the passage that was never granted, while the rollout fails because of a report from beyond it; empty otherwise.
	breach string
	// left are the environments that it has entered and not completed, while the rollout is cancelled.
	left []int64
}

// branch is an environment of a tree with its deployments.
type branch struct {
	core.RolloutEnvironment
	deployments []*core.Deployment
}

// lockTree locks a rollout and reads what is under it.
func lockTree(ctx context.Context, tx Tx, c cause, rollout int64) (*tree, error) {
	// The rollout's row is the lock for the whole tree: environments and deployments are changed by nobody who does not
	// hold it. Where an application is locked too, that comes after the rollout.
	if t := c.known.tree(c, rollout); t != nil {
		return t, nil
	}
	t := &tree{tx: tx, cause: c}
	// What is asked after the lock sees what the one who held it before has committed.
	lock := func(ctx context.Context) (err error) {
		t.rollout, err = tx.LockRollout(ctx, rollout)
		return err
	}
	under, err := readUnder(ctx, tx, c.Organization, []int64{rollout}, lock)
	if err != nil {
		return nil, err
	}
	under.give(t)
	return t, nil
}

// readTrees reads what is under rollouts that are locked.
func readTrees(ctx context.Context, tx Tx, organization int64, locked []core.Rollout) ([]*tree, error) {
	rollouts, trees := make([]int64, len(locked)), make([]*tree, len(locked))
	for i, r := range locked {
		rollouts[i], trees[i] = r.ID, &tree{tx: tx, rollout: r}
	}
	under, err := readUnder(ctx, tx, organization, rollouts)
	for _, t := range trees {
		under.give(t)
	}
	return trees, err
}

// under is what rollouts consist of.
type under struct {
	environments map[int64][]core.RolloutEnvironment
	deployments  map[int64][]core.Deployment
	places       map[int64]core.Environment
}

// give puts into a tree what is under its rollout.
func (u under) give(t *tree) {
	t.places = u.places
	for _, e := range u.environments[t.rollout.ID] {
		b := &branch{RolloutEnvironment: e}
		for _, d := range u.deployments[e.ID] {
			b.deployments = append(b.deployments, &d)
		}
		t.environments = append(t.environments, b)
	}
}

// readUnder reads what is under rollouts, after other reads of the same round trip.
func readUnder(
	ctx context.Context, tx Tx, organization int64, rollouts []int64, before ...func(context.Context) error,
) (u under, err error) {
	err = tx.Together(ctx, append(before, func(ctx context.Context) (err error) {
		u.environments, err = tx.RolloutEnvironmentsByRollout(ctx, organization, rollouts)
		return err
	}, func(ctx context.Context) (err error) {
		u.deployments, err = tx.DeploymentsByRollout(ctx, organization, rollouts)
		return err
	}, func(ctx context.Context) (err error) {
		u.places, err = tx.EnvironmentsByRollout(ctx, organization, rollouts)
		return err
	})...)
	return u, err
}

// placeNamed is the number of the rollout's environment with a name; 0 for none.
func (t *tree) placeNamed(name string) int64 {
	for _, b := range t.environments {
		if t.places[b.EnvironmentID].Name == name {
			return b.EnvironmentID
		}
	}
	return 0
}

// name is what people call the rollout.
func (t *tree) name() string { return fmt.Sprintf("rollout_%d", t.rollout.ID) }

// environment finds a branch by the environment's id.
func (t *tree) environment(id int64) (*branch, error) {
	for _, b := range t.environments {
		if b.EnvironmentID == id {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, "environment %d is not part of rollout %d", id, t.rollout.ID)
}

// deployment finds a deployment and its branch.
func (t *tree) deployment(id int64) (*branch, *core.Deployment, error) {
	for _, b := range t.environments {
		for _, d := range b.deployments {
			if d.ID == id {
				return b, d, nil
			}
		}
	}
	return nil, nil, fault.New(fault.NotFound, "deployment %d is not part of rollout %d", id, t.rollout.ID)
}

// write applies a verb to a subject in a state and answers the state after it.
func (t *tree) write(ctx context.Context, s core.Subject, state core.State, verb core.Verb, reason string) (core.State, error) {
	for _, m := range core.MachineOf(s.Kind).Path(state, verb) {
		row := t.row(s, m.Verb)
		row.From, row.To = m.From, m.To
		if t.breach != "" && m.Verb == core.VerbFail && s.Kind == core.SubjectRollout {
			row.Breach, row.Conditions = true, []core.Condition{{Kind: core.ConditionPassage, GateID: t.breach}}
		}
		// The reason belongs to what was reported, not to what it implies.
		if m.Verb == verb {
			row.Reason = reason
		}
		if err := t.tx.Record(ctx, row); err != nil {
			return state, fmt.Errorf("%s %s %d: %w", m.Verb, s.Kind, s.ID, err)
		}
		state = m.To
	}
	return state, nil
}

func (t *tree) row(s core.Subject, verb core.Verb) core.Transition {
	return core.Transition{
		Subject: s, Verb: verb, PrincipalType: t.cause.Type, PrincipalID: t.cause.ID,
		TriggeredBy: t.cause.triggeredBy, CreatedAt: t.cause.at,
	}
}

// request writes a row that changes no state (D17).
func (t *tree) request(ctx context.Context, verb core.Verb, gate, reason string) error {
	return t.tx.Record(ctx, t.requestRow(verb, gate, reason))
}

// requestRow is a row that changes no state (D17).
func (t *tree) requestRow(verb core.Verb, gate, reason string) core.Transition {
	row := t.row(core.Subject{Kind: core.SubjectRollout, ID: t.rollout.ID}, verb)
	state := core.State(t.rollout.State)
	row.From, row.To, row.GateID, row.Reason = state, state, gate, reason
	return row
}

// created writes the first row of a subject's journal.
func (t *tree) created(ctx context.Context, s core.Subject, reason string) error {
	row := t.row(s, core.VerbCreate)
	row.To, row.Reason = core.StatePending, reason
	return t.tx.Record(ctx, row)
}

// moveRollout applies a verb to the rollout. A cancellation ends everything under it, a failure does
// so when nothing more can be reported about it.
func (t *tree) moveRollout(ctx context.Context, verb core.Verb, reason string) error {
	before := t.rollout.State
	state, err := t.write(ctx, core.Subject{Kind: core.SubjectRollout, ID: t.rollout.ID}, core.State(t.rollout.State), verb, reason)
	t.rollout.State = core.RolloutState(state)
	if err != nil || t.rollout.State == before {
		return err
	}
	if t.rollout.State.Terminal() {
		if err := t.stopCheckRuns(ctx, nil, "the rollout has ended"); err != nil {
			return err
		}
		if err := t.tx.Revoke(ctx, End{
			Organization: t.cause.Organization, RolloutID: t.rollout.ID, Cancelled: t.rollout.State == core.RolloutCancelled, Left: t.left,
			At: t.cause.at,
		}); err != nil {
			return err
		}
		if err := t.tx.NudgeChainsOfRollout(ctx, t.rollout.ID, t.cause.at); err != nil {
			return err
		}
	}
	switch t.rollout.State {
	case core.RolloutCompleted: // leaves alone what is under it: a word about a deployment that was overtaken still lands
		if err := t.tx.SignalChains(ctx, t.rollout.ID, 0, t.cause.at); err != nil {
			return err
		}
		return t.runClock(ctx)
	case core.RolloutFailed:
		return t.closeSoon(ctx, reason)
	case core.RolloutCancelled:
		return t.cancelAll(ctx, core.Because("the rollout was "+string(t.rollout.State), reason))
	case core.RolloutPending, core.RolloutInProgress, core.RolloutPaused:
	}
	return nil
}

// cancelAll ends whatever is under the rollout and has not ended.
func (t *tree) cancelAll(ctx context.Context, why string) error {
	for _, b := range t.environments {
		if err := t.moveEnvironment(ctx, b, core.VerbCancel, why); err != nil {
			return err
		}
		if err := t.cancelDeployments(ctx, b, why); err != nil { // also those of an environment that has ended by itself
			return err
		}
	}
	return nil
}

// moveEnvironment applies a verb to an environment. Its start is also the start of a rollout that nobody has said to have
// started; its cancellation ends its deployments.
func (t *tree) moveEnvironment(ctx context.Context, b *branch, verb core.Verb, reason string) error {
	// An end implies no start, or the journal would have a start that never happened; pending may end directly.
	if verb != core.VerbCancel && verb != core.VerbFail {
		if err := t.moveRollout(ctx, core.VerbStart, ""); err != nil {
			return err
		}
	}
	before := b.State
	state, err := t.write(ctx, core.Subject{Kind: core.SubjectRolloutEnvironment, ID: b.ID}, core.State(b.State), verb, reason)
	b.State = core.RolloutState(state)
	if err == nil && b.State != before && b.State.Terminal() && b.State != core.RolloutCompleted { // no target of one that is complete is left
		why := core.Because("the environment has "+string(b.State), reason)
		if b.State == core.RolloutCancelled {
			why = core.Because("the environment was cancelled", reason)
		}
		err = t.tx.EndRolloutTargets(ctx, b.ID, why, t.cause.at)
	}
	if err == nil && b.State == core.RolloutCompleted {
		// A timer begins here; passages that were requested before are evaluated again (R3-15).
		if err := t.tx.ReviewChecked(ctx, t.rollout.ID, 0, t.cause.at); err != nil {
			return err
		}
		if err := t.tx.SignalChains(ctx, t.rollout.ID, b.EnvironmentID, t.cause.at); err != nil {
			return err
		}
	}
	// More may be reported about one that failed, such as which deployment it was; the rest is ended with the rollout.
	if err != nil || b.State != core.RolloutCancelled {
		return err
	}
	return t.cancelDeployments(ctx, b, reason)
}

// moveDeployment applies a verb to a deployment. Whatever happens to one, its environment has started.
func (t *tree) moveDeployment(ctx context.Context, b *branch, d *core.Deployment, verb core.Verb, reason string) error {
	entered := true
	if verb == core.VerbFail {
		var err error
		if entered, err = t.entered(ctx, b); err != nil {
			return err
		}
	}
	// A late word about a deployment that is over must not start an environment either (D16), and neither must the failure of one whose
	// environment was never entered.
	if verb != core.VerbCancel && entered && !d.State.Terminal() {
		if err := t.moveEnvironment(ctx, b, core.VerbStart, ""); err != nil {
			return err
		}
	}
	before := d.State
	state, err := t.write(ctx, core.Subject{Kind: core.SubjectDeployment, ID: d.ID}, core.State(d.State), verb, reason)
	d.State = core.DeploymentState(state)
	// It has started, even if only its end was reported; one that was cancelled while pending has never started.
	began := d.State == core.DeploymentDeploying || d.State == core.DeploymentHealthy || d.State == core.DeploymentDegraded
	if began && d.StartedAt == nil {
		d.StartedAt = &t.cause.at
	}
	if err != nil || d.State == before || t.rollout.State != core.RolloutCompleted {
		return err
	}
	return t.runClock(ctx) // it came after the rollout's own end
}

func (t *tree) cancelDeployments(ctx context.Context, b *branch, reason string) error {
	for _, d := range b.deployments {
		if err := t.moveDeployment(ctx, b, d, core.VerbCancel, reason); err != nil {
			return err
		}
	}
	return nil
}
