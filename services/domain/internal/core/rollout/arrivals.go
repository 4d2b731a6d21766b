package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Arrival is an event with what it says.
type Arrival struct {
	In     core.Inbound
	Change Change
}

// ApplyAll is Apply for consecutive events of one organization, in one transaction if all succeed: a commit, and reading a rollout,
// cost the same for one event as for a hundred. If one fails, they are applied one by one. It returns the error, or nil, of each that was
// tried; after one that has to be tried again none is tried, since the later ones would be applied before it.
func (u *UseCases) ApplyAll(ctx context.Context, organization int64, all []Arrival) []error {
	if len(all) > 1 && u.applyTogether(ctx, organization, all) == nil {
		return make([]error, len(all))
	}
	var tried []error
	for _, a := range all {
		err := u.Apply(ctx, a.In, a.Change)
		tried = append(tried, err)
		if err != nil && fault.Describe(fault.ClassOf(err)).Consumer == fault.Retry {
			break
		}
	}
	return tried
}

func (u *UseCases) applyTogether(ctx context.Context, organization int64, all []Arrival) error {
	var reported []checkOutcome
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		reported = nil // the transaction may run again
		events := make([]core.Inbound, len(all))
		for i, a := range all {
			events[i] = a.In
		}
		firsts, err := tx.ClaimAll(ctx, events)
		if err != nil {
			return err
		}
		known, err := plant(ctx, tx, organization, all)
		if err != nil {
			return err
		}
		for i, a := range all {
			if !firsts[i] {
				continue
			}
			c := u.causeOf(a.In)
			c.known, c.reported = known, &reported
			if err := mayReport(ctx, tx, c, a.In, a.Change); err != nil {
				return err
			}
			if err := a.Change.apply(ctx, u, tx, c, a.In); err != nil {
				return err
			}
		}
		return nil
	})
	u.checks.count(err, reported)
	u.wake()
	return err
}

// causeOf is an event as the reason of a change.
func (u *UseCases) causeOf(in core.Inbound) cause {
	return cause{
		Actor: core.Actor{Organization: in.Organization, Type: core.PrincipalSystem}, at: u.clock.Now(),
		triggeredBy: in.Type + " " + in.ID,
	}
}

// forest is the rollouts that a transaction holds the locks of. A tree always shows what has been written, so it is read once.
type forest struct {
	trees map[int64]*tree
	// of is the rollout of a deployment.
	of map[int64]int64
}

// aboutRollout and aboutDeployment are changes that lock a rollout, or that of a deployment.
type (
	aboutRollout    interface{ rollout() int64 }
	aboutDeployment interface{ deployment() int64 }
)

// plant locks and reads every rollout that events are about, in a handful of queries. One that does not exist is left to the
// event that names it.
func plant(ctx context.Context, tx Tx, organization int64, all []Arrival) (*forest, error) {
	f := &forest{trees: map[int64]*tree{}}
	var rollouts, deployments []int64
	for _, a := range all {
		switch about := a.Change.(type) {
		case aboutRollout:
			rollouts = append(rollouts, about.rollout())
		case aboutDeployment:
			deployments = append(deployments, about.deployment())
		}
	}
	var err error
	if f.of, err = tx.RolloutsOfDeployments(ctx, core.Distinct(deployments)); err != nil {
		return nil, err
	}
	for _, r := range f.of {
		rollouts = append(rollouts, r)
	}
	locked, err := tx.LockRollouts(ctx, core.Distinct(rollouts))
	if err != nil {
		return nil, err
	}
	trees, err := readTrees(ctx, tx, organization, locked)
	for _, t := range trees {
		f.trees[t.rollout.ID] = t
	}
	return f, err
}

// tree is one that is held already, for another reason now; nil for none.
func (f *forest) tree(c cause, rollout int64) *tree {
	if f == nil || f.trees[rollout] == nil {
		return nil
	}
	f.trees[rollout].cause = c
	return f.trees[rollout]
}

func (m Moved) rollout() int64 { return m.RolloutID }

func (m EnvironmentMoved) rollout() int64 { return m.RolloutID }

func (m DeploymentProposed) rollout() int64 { return m.RolloutID }

func (m GateReached) rollout() int64 { return m.RolloutID }

func (m PassageRequested) rollout() int64 { return m.RolloutID }

func (m ApprovalRequested) rollout() int64 { return m.RolloutID }

func (m Aborted) rollout() int64 { return m.RolloutID }

func (m DeploymentMoved) deployment() int64 { return m.DeploymentID }

func (m GatePassage) deployment() int64 { return m.DeploymentID }

func (m DeploymentCommitted) deployment() int64 { return m.DeploymentID }

func (m DeploymentSubmitted) deployment() int64 { return m.Link.DeploymentID }

// OutsideReport is a report of what a deployment is outside of Lockstep, such as a Workflow of Argo, that its phase has changed (R2-30).
type OutsideReport struct {
	DeploymentID    int64
	Name, Namespace string
	Phase           string
}

// ReportableDeployment is what has to be known of a deployment before a report about it is taken.
type ReportableDeployment struct {
	Target core.Target
	// Ended reports whether it, or its rollout, is over.
	Ended bool
	// Name and Namespace are what it is called outside; empty if that is not known. Reported are the phases that were reported of that.
	Name, Namespace string
	Reported        []string
}

// takes reports whether the program of the deployment waits for what a report says.
func (d ReportableDeployment) takes(r OutsideReport) bool {
	return !d.Ended && d.Name == r.Name && d.Namespace == r.Namespace && !slices.Contains(d.Reported, r.Phase)
}

// DeploymentNudge wakes the program of a deployment.
type DeploymentNudge struct {
	Organization, RolloutID, DeploymentID int64
	At                                    time.Time
}

// maxOutsideName bounds the name and the namespace of a report, in bytes.
const maxOutsideName = 255

// OutsidePhases are the phases that reports may have: those of a Workflow of Argo (R2-28).
func OutsidePhases() []string { return []string{"Pending", "Running", "Succeeded", "Failed", "Error"} }

func (r OutsideReport) check() error {
	var wrong []fault.Field
	if r.DeploymentID <= 0 {
		wrong = append(wrong, fault.Field{Name: "/deployment", Problem: "found no number; expected that of a deployment"})
	}
	if len(r.Name) < 1 || len(r.Name) > maxOutsideName {
		wrong = append(wrong, fault.Field{Name: "/name", Problem: fmt.Sprintf("found %d bytes; expected 1 to %d", len(r.Name), maxOutsideName)})
	}
	if len(r.Namespace) > maxOutsideName {
		wrong = append(wrong, fault.Field{
			Name: "/namespace", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(r.Namespace), maxOutsideName),
		})
	}
	if !slices.Contains(OutsidePhases(), r.Phase) {
		wrong = append(wrong, fault.Field{
			Name: "/phase", Problem: fmt.Sprintf("found %.100q; expected one of %s", r.Phase, strings.Join(OutsidePhases(), ", ")),
		})
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// NudgeDeployment has the program of a deployment look at what the deployment is outside of Lockstep (R2-30). It answers whether the
// program was woken: a phase wakes it once, and only under the name that its program has reported last, while the deployment is under way.
// A report proves nothing else: what is true is what the program reads. One that was repeated, or is kept and sent again later, is a no-op.
func (u *UseCases) NudgeDeployment(ctx context.Context, a core.Actor, r OutsideReport) (woken bool, err error) {
	// Before numbers are looked up, which would reveal what exists.
	if err := a.MaySomewhere(core.ActionNudgeDeployment); err != nil {
		return false, err
	}
	if len(a.CheckKeys) > 0 {
		return false, fault.New(fault.Denied, "the token reports only the checks %s; found a deployment", strings.Join(a.CheckKeys, ", "))
	}
	if err := r.check(); err != nil {
		return false, err
	}
	err = core.Within(ctx, u.store, a, core.ActionNudgeDeployment, func(ctx context.Context, tx Tx) error {
		woken = false
		found, err := tx.ReportableDeployment(ctx, r.DeploymentID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionNudgeDeployment, found.Target); err != nil {
			return err
		}
		if !found.takes(r) { // most reports end here, and have locked nothing
			return nil
		}
		now := u.clock.Now()
		t, _, d, err := lockDeployment(ctx, tx, cause{Actor: a, at: now}, r.DeploymentID)
		if err != nil {
			return err
		}
		if d.State.Terminal() || t.rollout.State.Terminal() {
			return nil
		}
		if woken, err = tx.NoteNudge(ctx, r); err != nil || !woken {
			return err
		}
		return tx.NudgeDeployment(ctx, DeploymentNudge{
			Organization: a.Organization, RolloutID: t.rollout.ID, DeploymentID: r.DeploymentID, At: now,
		})
	})
	return woken, err
}
