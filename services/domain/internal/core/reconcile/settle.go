package reconcile

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// Request names a difference to settle.
type Request struct {
	// Since is that of the comparison.
	Since   time.Time
	Kind    Kind
	Subject string
	Reason  string
}

// Settle settles a difference, and records it in the journal of changes. The row is written first, because requests to other services
// cannot be undone. It returns false if the difference does not exist, or no longer exists.
func (u *UseCases) Settle(ctx context.Context, a core.Actor, r Request) (settled bool, err error) {
	if err := a.May(core.ActionReconcile); err != nil {
		return false, err
	}
	if err := u.checkSince(r.Since); err != nil {
		return false, err
	}
	if err := core.CheckReason(r.Reason); err != nil {
		return false, err
	}
	switch r.Kind {
	case RunMissing, RecordBehind, EngineBehind:
		settled, err = u.settleRollout(ctx, a, r)
	case RunOutlives, RunUnknown:
		settled, err = u.settleRun(ctx, a, r)
	case CommitUnknown:
		settled, err = u.settleCommit(ctx, a, r)
	case BranchUnread:
		return false, fault.New(fault.Refused, "a branch that could not be read cannot be settled; correct its credentials, and compare again")
	default:
		return false, fault.InvalidFields(fault.Field{Name: "kind", Problem: fmt.Sprintf("found %.40q, expected that of a difference", r.Kind)})
	}
	u.deps.Wake()
	return settled, err
}

// record writes the row of the journal of changes.
func (u *UseCases) record(ctx context.Context, tx Tx, a core.Actor, r Request, of core.AccessSubject, problem string) error {
	return core.Record(ctx, tx, a, core.Change{
		Action: core.ActionReconcile, Subject: of, Reason: r.Reason, Detail: problem,
	}, map[string]any{"kind": r.Kind, "problem": problem}, nil)
}

// settleRollout settles what differs of a rollout.
func (u *UseCases) settleRollout(ctx context.Context, a core.Actor, r Request) (bool, error) {
	number, err := strconv.ParseInt(strings.TrimPrefix(r.Subject, "rollout_"), 10, 64)
	if err != nil || name(number) != r.Subject {
		return false, fault.InvalidFields(fault.Field{
			Name: "subject", Problem: fmt.Sprintf("found %.40q, expected the identifier of a rollout", r.Subject),
		})
	}
	known, err := u.deps.Store.RolloutsByID(ctx, a.Organization, []int64{number})
	if err != nil {
		return false, err
	}
	one, is := known[number]
	if !is {
		return false, fault.New(fault.NotFound, "%s does not exist", r.Subject)
	}
	if r.Kind == RecordBehind {
		return u.settleBehind(ctx, a, r, one)
	}
	if one.State.Terminal() {
		return false, nil
	}
	found, err := u.compareRollouts(ctx, a.Organization, r.Since, []core.Rollout{one})
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(found, func(d Difference) bool { return d.Kind == r.Kind })
	if i < 0 {
		return false, nil
	}
	if r.Kind == RunMissing {
		return u.handOverAgain(ctx, a, r, number, found[i].Problem)
	}
	err = u.deps.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return u.record(ctx, tx, a, r, subject(number), found[i].Problem)
	})
	if err != nil {
		return false, err
	}
	recorded, err := u.deps.Rollouts.Granted(ctx, a.Organization, []int64{number})
	if err != nil {
		return false, err
	}
	workflow := id.RolloutRun(number)
	passages, err := u.deps.Engine.Passages(ctx, a.Organization, []string{workflow}, r.Since)
	if err != nil {
		return false, err
	}
	gates := unannounced(recorded[number], passages[workflow], r.Since, u.deps.Clock.Now().Add(-underWay))
	return true, u.deps.Rollouts.RepeatGrants(ctx, a, number, gates)
}

// handOverAgain starts the run of a rollout again, under its id.
func (u *UseCases) handOverAgain(ctx context.Context, a core.Actor, r Request, number int64, problem string) (again bool, err error) {
	err = u.deps.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		var pending bool
		again, pending, err = tx.HandOverAgain(ctx, id.RolloutRun(number), u.deps.Clock.Now())
		switch {
		case err != nil || pending:
			return err
		case !again:
			return fault.New(fault.Refused, "%s: found no hand-over that could be repeated; cancel the rollout and create one anew", r.Subject)
		}
		return u.record(ctx, tx, a, r, subject(number), problem)
	})
	return again && err == nil, err
}

// settleBehind updates the record of a rollout to the state of its run: first the granted passages, since a report from behind a passage
// that is not recorded counts as a breach; then the reports.
func (u *UseCases) settleBehind(ctx context.Context, a core.Actor, r Request, one core.Rollout) (bool, error) {
	workflow := id.RolloutRun(one.ID)
	recorded, err := u.deps.Rollouts.Granted(ctx, a.Organization, []int64{one.ID})
	if err != nil {
		return false, err
	}
	known, err := u.deps.Engine.Passages(ctx, a.Organization, []string{workflow}, r.Since)
	if err != nil {
		return false, err
	}
	granted := unrecorded(recorded[one.ID], known[workflow])
	if one.State.Terminal() {
		granted = nil
	}
	var ids []string
	for after := ""; ; {
		all, next, err := u.deps.Engine.Reports(ctx, a.Organization, r.Since, workflow, after)
		if err != nil {
			return false, err
		}
		missing, err := u.missingReports(ctx, all)
		if err != nil {
			return false, err
		}
		for _, m := range missing {
			ids = append(ids, m.ID)
		}
		if after = next; after == "" {
			break
		}
	}
	if len(granted) == 0 && len(ids) == 0 {
		return false, nil
	}
	err = u.deps.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return u.record(ctx, tx, a, r, subject(one.ID), behind(one.ID, granted, len(ids)).Problem)
	})
	if err != nil {
		return false, err
	}
	if len(granted) > 0 {
		if err := u.deps.Rollouts.AddGrants(ctx, a, one.ID, granted, r.Reason); err != nil {
			return false, err
		}
	}
	for some := range slices.Chunk(ids, reportsAtOnce) {
		if err := u.deps.Engine.RepeatReports(ctx, a.Organization, some); err != nil {
			return false, err
		}
	}
	return true, nil
}

// reportsAtOnce is how many reports one call repeats.
const reportsAtOnce = 1000

func subject(rollout int64) core.AccessSubject {
	return core.AccessSubject{Kind: core.ChangedRollout, ID: rollout, Name: name(rollout)}
}

// settleRun cancels a run whose rollout is over or unknown.
func (u *UseCases) settleRun(ctx context.Context, a core.Actor, r Request) (bool, error) {
	run, err := u.deps.Engine.WorkflowByID(ctx, a.Organization, r.Subject)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if run.FinishedAt != nil {
		return false, nil
	}
	found, err := u.compareRuns(ctx, a.Organization, []handoff.WorkflowRun{run})
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(found, func(d Difference) bool { return d.Kind == r.Kind })
	if i < 0 {
		return false, nil
	}
	err = u.deps.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return u.record(ctx, tx, a, r, core.AccessSubject{Kind: core.ChangedWorkflow, Name: run.ID}, found[i].Problem)
	})
	if err != nil {
		return false, err
	}
	return true, u.deps.Engine.Cancel(ctx, a.Organization, run.ID, core.Because("reconciled after a restore", r.Reason))
}

// sha is the name of a commit, with SHA-1 or SHA-256.
var sha = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// settleCommit records that a commit was acknowledged, after which it is no longer reported. The commit is not looked up again: the row
// only states who acknowledged it.
func (u *UseCases) settleCommit(ctx context.Context, a core.Actor, r Request) (settled bool, err error) {
	if !sha.MatchString(r.Subject) {
		return false, fault.InvalidFields(fault.Field{
			Name:    "subject",
			Problem: fmt.Sprintf("found %.80q, expected the SHA of a commit", r.Subject),
		})
	}
	known, err := u.deps.Store.KnownCommits(ctx, a.Organization, []string{r.Subject})
	if err != nil || known[r.Subject] {
		return false, err
	}
	err = u.deps.Store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return u.record(ctx, tx, a, r, core.AccessSubject{Kind: core.ChangedCommit, Name: r.Subject}, "the commit exists")
	})
	return err == nil, err
}
