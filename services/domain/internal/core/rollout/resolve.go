package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ApproveGate agrees to an open gate; with the last of its quorum the rollout continues (R41, D24).
func (u *UseCases) ApproveGate(ctx context.Context, a core.Actor, r Resolution) (core.Rollout, error) {
	return u.resolve(ctx, a, r, true)
}

// RejectGate resolves an open gate: the rollout is cancelled (R41).
func (u *UseCases) RejectGate(ctx context.Context, a core.Actor, r Resolution) (core.Rollout, error) {
	return u.resolve(ctx, a, r, false)
}

func (u *UseCases) resolve(ctx context.Context, a core.Actor, r Resolution, approved bool) (core.Rollout, error) {
	if err := core.CheckReason(r.Reason); err != nil {
		return core.Rollout{}, err
	}
	action := core.ActionRejectGate
	if approved {
		action = core.ActionApproveGate
	}
	return u.change(ctx, a, action, r.RolloutID, func(ctx context.Context, t *tree, s core.Standing) error {
		gate, err := s.OpenGate(a, r.GateID, approved)
		if err != nil {
			return err
		}
		if r.RequestID != 0 && gate.RequestID != r.RequestID {
			return fault.New(fault.Refused, "gate %q of rollout_%d has asked again since; look at what it asks now", r.GateID, r.RolloutID)
		}
		met := true
		if approved {
			met, err = u.agree(ctx, t, gate, r.Reason)
		} else {
			err = u.disagree(ctx, t, r.GateID, r.Reason)
		}
		if err != nil || !met { // the row counts, and the gate stays open for the others
			return err
		}
		return u.decide(ctx, t)
	})
}

// agree records that the actor of the cause, who may, approves an open gate, and closes one that is approved with it.
func (u *UseCases) agree(ctx context.Context, t *tree, gate core.Gate, reason string) (met bool, err error) {
	row, agreed := t.requestRow(core.VerbApprove, gate.GateID, reason), gate.Approval(t.cause.Actor, t.cause.at)
	row.Conditions = gate.Counts(agreed)
	if err := t.tx.Record(ctx, row); err != nil || !gate.Met(append(gate.Approvals, agreed)) {
		return false, err
	}
	return true, u.answer(ctx, t, gate.GateID, true, reason)
}

// disagree records that the actor of the cause rejects a gate, which ends the rollout.
func (u *UseCases) disagree(ctx context.Context, t *tree, gate, reason string) error {
	if err := t.request(ctx, core.VerbReject, gate, reason); err != nil {
		return err
	}
	return u.answer(ctx, t, gate, false, reason)
}

// answer publishes that a gate is closed, and ends the rollout where the answer is no.
func (u *UseCases) answer(ctx context.Context, t *tree, gate string, approved bool, reason string) error {
	// A rejection is announced too, although the cancellation below stops the workflow: the event is a published fact,
	// which others may wait for (E69).
	err := t.tx.Announce(
		ctx, GateResolved{Actor: t.cause.Actor, RolloutID: t.rollout.ID, GateID: gate, Approved: approved, Reason: reason, At: t.cause.at},
	)
	if err != nil || approved {
		return err
	}
	return u.cancel(ctx, t, core.Because(fmt.Sprintf("gate %q was rejected", gate), reason))
}

// openGates are the rollout's, by id.
func (t *tree) openGates(ctx context.Context) (map[string]core.Gate, error) {
	open, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	byID := map[string]core.Gate{}
	for _, g := range open[t.rollout.ID] {
		byID[g.GateID] = g
	}
	return byID, err
}

// AfterCancel is what happens to what a cancelled rollout has deployed, and was deploying.
type AfterCancel string

// What the caller who cancels chooses of (R4-24).
const (
	// CancelLeaves means that everything stays as it is.
	CancelLeaves AfterCancel = "leave"
	// CancelAborts means that what is being deployed returns to the version before; the rollout ends when that is done.
	CancelAborts AfterCancel = "abort"
	// CancelRollsBack means that a rollback begins.
	CancelRollsBack AfterCancel = "rollback"
)

// Cancellation asks to cancel a rollout.
type Cancellation struct {
	RolloutID int64
	Then      AfterCancel
	Reason    string
}

// CancelRollout ends a rollout where it stands, whatever gate is open (R41).
func (u *UseCases) CancelRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, core.ActionCancelRollout, rollout, func(ctx context.Context, t *tree, _ core.Standing) error {
		return u.cancel(ctx, t, reason)
	})
}

// CancelThen ends a rollout with what its canceller wants to happen then. It answers the rollback that it begins; the zero value for none.
func (u *UseCases) CancelThen(ctx context.Context, a core.Actor, n Cancellation) (core.Rollout, error) {
	if err := core.CheckReason(n.Reason); err != nil {
		return core.Rollout{}, err
	}
	switch n.Then {
	case CancelRollsBack:
		return u.cancelAndRollBack(ctx, a, n)
	case CancelLeaves:
		_, err := u.change(ctx, a, core.ActionCancelRollout, n.RolloutID, func(ctx context.Context, t *tree, _ core.Standing) error {
			return u.cancel(ctx, t, core.Because("what is deployed stays", n.Reason))
		})
		return core.Rollout{}, err
	case CancelAborts:
	}
	_, err := u.change(ctx, a, core.ActionCancelRollout, n.RolloutID, func(ctx context.Context, t *tree, s core.Standing) error {
		if err := s.MayHere(a, core.ActionAbortRollout); err != nil {
			return err
		}
		switch {
		case s.Hold.TakenBack:
			return u.cancel(ctx, t, core.Because("aborted before, and what was being deployed has been taken back", n.Reason))
		case !s.Hold.Aborted && !s.UnderWay:
			return u.cancel(ctx, t, core.Because("nothing was being deployed that an abort would take back", n.Reason))
		case !s.Hold.Aborted:
			if err := t.command(ctx, core.VerbAbort, core.Because("the rollout is cancelled once what is being deployed is taken back", n.Reason)); err != nil {
				return err
			}
		}
		return t.endsAfterAbort(ctx, core.DeadlineCancels, a.Principal(), n.Reason)
	})
	return core.Rollout{}, err
}

// cancelAndRollBack is CancelRollout with a rollback in the same transaction.
func (u *UseCases) cancelAndRollBack(ctx context.Context, a core.Actor, n Cancellation) (made core.Rollout, err error) {
	err = core.Within(ctx, u.store, a, core.ActionCancelRollout, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, n.RolloutID)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.MayHere(a, core.ActionCancelRollout); err != nil {
			return err
		}
		if err := s.Refuses(core.ActionCancelRollout); err != nil {
			return err
		}
		if err := a.MaySomewhere(core.ActionRollbackRollout); err != nil {
			return err
		}
		made, err = u.rollBackTree(ctx, t, Rollback{RolloutID: n.RolloutID, Reason: n.Reason})
		return err
	})
	u.wake()
	return made, err
}

// CancelWith is CancelRollout in the transaction of another use case; a rollout that is over stays as it is.
func (u *UseCases) CancelWith(ctx context.Context, tx Tx, a core.Actor, rollout int64, reason string) error {
	t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, rollout)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	if err := u.mayEnd(ctx, t, a, core.ActionCancelRollout); err != nil {
		return err
	}
	return u.cancel(ctx, t, reason)
}

// cancel ends a rollout and everything under it, and has its workflow stopped. A start that nobody has tried to hand over
// yet is taken back instead.
func (u *UseCases) cancel(ctx context.Context, t *tree, reason string) error {
	left, err := t.tx.EnteredEnvironments(ctx, t.rollout.ID)
	if err != nil {
		return err
	}
	t.left = left
	if err := t.moveRollout(ctx, core.VerbCancel, reason); err != nil {
		return err
	}
	if err := u.stopWorkflow(ctx, t, core.Because("cancelled by "+t.cause.DisplayName(), reason)); err != nil {
		return err
	}
	if len(left) == 0 {
		return nil // it may have changed nothing that is not finished
	}
	inputs, err := json.Marshal(map[string]cancelledInput{"cancelled": {Environments: left}})
	if err != nil {
		return fmt.Errorf("encode inputs of the cancellation of rollout %d: %w", t.rollout.ID, err)
	}
	return t.tx.AddCancellation(ctx, t.rollout.ID, inputs, t.cause.at)
}

// cancelledInput is what the program cancelled of a driver is started with, beside what the rollout's own run was started with.
type cancelledInput struct {
	// Environments are those that the rollout was let into and has not completed.
	Environments []int64 `json:"environments"`
}

// stopWorkflow has the workflow of a rollout that has ended stopped.
func (u *UseCases) stopWorkflow(ctx context.Context, t *tree, why string) error {
	id := rolloutWorkflow(t.rollout.ID)
	// Once a start was claimed the engine may have it, even if no answer has come: then only a cancellation is safe. It
	// waits behind the start (ClaimHandoff), so that it never finds nothing to cancel because it was faster.
	withdrawn, err := t.tx.WithdrawStart(ctx, id)
	if err != nil || withdrawn {
		return err
	}
	return t.tx.AddHandoff(ctx, core.Handoff{
		Kind: core.HandoffCancel, WorkflowID: id, Subject: core.HandoffRollout, SubjectID: t.rollout.ID, Reason: why, DueAt: t.cause.at,
	})
}

// Resolution answers a gate.
type Resolution struct {
	RolloutID int64
	// GateID names which gate: several may be open at once (D24).
	GateID string
	// RequestID is the row of the journal that asked; 0 for whatever is asked now. A gate that asks again has another one.
	RequestID int64
	Reason    string
}

// DeploymentProposed is what the engine has read of a proposal of a rollout (D55). It comes from the answer of a Function: no program can
// report it.
type DeploymentProposed struct {
	RolloutID int64
	// Name is which of the run's proposals it is: it counts if that is an environment of the rollout.
	Name string
	// Paths are the files of a proposal that was made; nil for one that was read.
	Paths []string
	// Head is the last commit of its branch.
	Head     string
	Proposal core.ForgeProposal
}

func (m DeploymentProposed) apply(ctx context.Context, u *UseCases, tx Tx, c cause, in core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	b := t.named(m.Name)
	if b == nil {
		return nil
	}
	known, _, err := tx.Proposal(ctx, t.rollout.ID, b.EnvironmentID)
	if err != nil {
		return err
	}
	p, changed, err := m.changes(ctx, t, b, known)
	if err != nil || !changed {
		return err
	}
	p.ReportedAt = in.At
	if p.ReportedAt.IsZero() { // CloudEvents may leave it out
		p.ReportedAt = c.at
	}
	if err := tx.SaveProposal(ctx, t.rollout.ID, b.EnvironmentID, p); err != nil {
		return err
	}
	switch p.Status {
	case core.ProposedClosed:
		return u.rejectAtForge(ctx, t, b, p)
	case core.ProposedMerged:
		return u.mergedAtForge(ctx, t, b, p)
	default:
		return nil
	}
}

// changes is what a report makes of the proposal that is known; false if it says nothing of it. Reports of a run arrive in their order.
func (m DeploymentProposed) changes(ctx context.Context, t *tree, b *branch, known core.ForgeProposal) (core.ForgeProposal, bool, error) {
	p, reported := known, m.Proposal
	same := p.Repository == reported.Repository && p.Number == reported.Number
	if p.Status == core.ProposedWithdrawn && same { // whatever becomes of it, people have not done it
		return p, false, nil
	}
	switch reported.Status {
	case core.ProposedOpen:
		if m.Paths == nil { // one that was read may have commits of others
			return p, false, nil
		}
		own, err := t.proposes(ctx, b, m)
		return core.ForgeProposal{
			Repository: reported.Repository, Branch: reported.Branch, Number: reported.Number, Head: m.Head, Status: reported.Status,
		}, own, err
	case core.ProposedWithdrawn:
		if p.Repository == "" { // it was proposed, and the answer has not come
			p = core.ForgeProposal{Repository: reported.Repository, Branch: reported.Branch, Number: reported.Number, Head: m.Head}
		}
		if p.Repository != reported.Repository || p.Number != reported.Number { // the program chooses the number
			return p, false, nil
		}
		p.Status = reported.Status
		return p, true, nil
	case core.ProposedMerged, core.ProposedClosed:
		// The program chooses what is read, and says which branch alone there was: only what is known to be open ends.
		// What was not known of a merge, a later look may have found out.
		more := p.Unsure() && reported.Status == core.ProposedMerged
		if p.Status != core.ProposedOpen && !more || !same || p.Number == 0 && p.Head != m.Head {
			return p, false, nil
		}
		p.Status, p.EndedHead, p.EndedBranch, p.By, p.ByID, p.Unshown = reported.Status, m.Head, "", reported.By, reported.ByID, ""
		if p.Status == core.ProposedMerged {
			p.EndedBranch, p.Unshown = reported.Branch, reported.Unshown
		}
		return p, p != known, nil
	default:
		return p, false, nil
	}
}

// named is the environment of the rollout with a name; nil for none.
func (t *tree) named(name string) *branch {
	for _, b := range t.environments {
		if t.places[b.EnvironmentID].Name == name {
			return b
		}
	}
	return nil
}

// proposes reports whether all files of a proposal are in the places of the environment that it is named for, as the rollout has pinned
// them: a program may give any other change the name.
func (t *tree) proposes(ctx context.Context, b *branch, m DeploymentProposed) (bool, error) {
	places, _, err := t.tx.PinnedPlaces(ctx, t.rollout.ID, b.EnvironmentID)
	if err != nil || m.Proposal.Branch == "" || len(m.Paths) == 0 {
		return false, err
	}
	for _, path := range m.Paths {
		file := core.Place{Repository: m.Proposal.Repository, Branch: m.Proposal.Branch, Path: path}
		if !slices.ContainsFunc(places, func(p core.Place) bool {
			return p.Repository == core.AnyRepository || p.Overlaps(file) && core.SameRepository(p.Repository, file.Repository)
		}) {
			return false, nil
		}
	}
	return true, nil
}

// rejectAtForge ends the rollout because people have closed the proposal of an environment, as one that rejects the gate does: nothing of
// it was deployed there. It is the answer of the member who has linked the account, if the member may reject the gate.
func (u *UseCases) rejectAtForge(ctx context.Context, t *tree, b *branch, p core.ForgeProposal) error {
	if b.State == core.RolloutCompleted || b.State == core.RolloutFailed || b.State == core.RolloutCancelled {
		return nil
	}
	deployments := make([]int64, len(b.deployments))
	for i, d := range b.deployments {
		deployments[i] = d.ID
	}
	committed, err := t.tx.SnapshotsByDeployment(ctx, t.cause.Organization, deployments)
	if err != nil || len(committed) > 0 {
		return err
	}
	gate := t.places[b.EnvironmentID].Name
	reason := closedAtForge(p) + by(p)
	a, may, err := t.mayRejectAtForge(ctx, gate, p)
	if err != nil {
		return err
	}
	if may {
		t.cause.Actor = a
		reason = fmt.Sprintf("%s on the forge, as %s", closedAtForge(p), p.By)
	}
	open, err := t.openGates(ctx)
	if err != nil {
		return err
	}
	if _, asked := open[gate]; !asked {
		return u.cancel(ctx, t, reason) // nobody rejects what nobody asks
	}
	return u.disagree(ctx, t, gate, reason)
}

// closedAtForge says what was closed.
func closedAtForge(p core.ForgeProposal) string {
	if p.Number == 0 {
		return "the branch of the proposal was deleted"
	}
	return fmt.Sprintf("pull request #%d was closed", p.Number)
}

// by says who has done it, as the forge calls them.
func by(p core.ForgeProposal) string {
	if p.By == "" {
		return " on the forge"
	}
	return " on the forge by " + p.By
}

// mayRejectAtForge is the member who has linked the account that has ended a proposal, if the member may reject the gate.
func (t *tree) mayRejectAtForge(ctx context.Context, gate string, p core.ForgeProposal) (core.Actor, bool, error) {
	a, nobody, err := t.tx.MemberAtForge(ctx, p.Repository, p.ByID)
	if err != nil || nobody != "" {
		return core.Actor{}, false, err
	}
	may, err := t.mayAnswer(ctx, a, core.ActionRejectGate, gate)
	return a, may, err
}

// mayAnswer reports whether a member may answer an open gate that way, by the rules of the console.
func (t *tree) mayAnswer(ctx context.Context, a core.Actor, action core.Action, gate string) (bool, error) {
	if a.MaySomewhere(action) != nil {
		return false, nil //nolint:nilerr // who may not is an answer
	}
	s, err := t.standing(ctx)
	if err != nil {
		return false, err
	}
	err = s.MayResolve(a, action, gate)
	if fault.Is(err, fault.Refused) || fault.Is(err, fault.Denied) {
		return false, nil
	}
	return err == nil, err
}

// mergedAtForge counts a merge by hand for the gate of its environment, if that is open: one that comes before it is asked for is counted
// then, and one that comes after it was answered is no approval of what is asked later.
func (u *UseCases) mergedAtForge(ctx context.Context, t *tree, b *branch, p core.ForgeProposal) error {
	if p.Number == 0 { // the run merges it itself
		return nil
	}
	counted, err := u.countMerges(ctx, t)
	if err != nil {
		return err
	}
	if counted {
		return u.decide(ctx, t)
	}
	all, err := t.passages(ctx)
	if err != nil {
		return err
	}
	gate := t.places[b.EnvironmentID].Name
	_, answered := all.hold.Answers[gate].Satisfies(gate, all.rules[gate].GateRule)
	if all.open[gate] || !answered && !all.hold.Passed[gate] {
		return nil
	}
	return t.tx.AnswerProposal(ctx, t.rollout.ID, b.EnvironmentID, p.EndedHead, "")
}

// countMerges records the approvals of open gates that people have given by merging what was proposed for the environment by hand (D55). It
// looks at each merge once, behind the lock of the rollout, by what the member may do at that moment; a gate is approved as in the console,
// and everything else that its passage needs is needed all the same. It answers whether there is an approval more.
func (u *UseCases) countMerges(ctx context.Context, t *tree) (counted bool, err error) {
	open, err := t.openGates(ctx)
	if err != nil {
		return false, err
	}
	for _, gate := range slices.Sorted(maps.Keys(open)) {
		if !open[gate].Proposal.Uncounted() {
			continue
		}
		approved, err := u.countMerge(ctx, t, open[gate])
		if err != nil {
			return false, err
		}
		counted = counted || approved
	}
	return counted, nil
}

func (u *UseCases) countMerge(ctx context.Context, t *tree, open core.Gate) (bool, error) {
	p, _, err := t.tx.Proposal(ctx, t.rollout.ID, open.Proposal.EnvironmentID)
	if err != nil {
		return false, err
	}
	a, why, err := t.mayApproveAtForge(ctx, open, p)
	if err != nil {
		return false, err
	}
	answer := ""
	if why != "" {
		answer = fmt.Sprintf("the merge of pull request #%d%s is no approval: %s", p.Number, by(p), why)
	}
	if err := t.tx.AnswerProposal(ctx, t.rollout.ID, open.Proposal.EnvironmentID, p.EndedHead, answer); err != nil || why != "" {
		return false, err
	}
	before := t.cause.Actor
	defer func() { t.cause.Actor = before }()
	t.cause.Actor = a
	_, err = u.agree(ctx, t, open, fmt.Sprintf("pull request #%d was merged on the forge, as %s", p.Number, p.By))
	return true, err
}

// mayApproveAtForge is the member who has approved an open gate with the merge of a proposal, or why nobody has.
func (t *tree) mayApproveAtForge(ctx context.Context, g core.Gate, p core.ForgeProposal) (a core.Actor, why string, err error) {
	if why := p.Unproved(); why != "" {
		return a, why, nil
	}
	places, _, err := t.tx.PinnedPlaces(ctx, t.rollout.ID, g.Proposal.EnvironmentID)
	if err != nil {
		return a, "", err
	}
	if slices.ContainsFunc(places, func(one core.Place) bool { return one.Repository == core.AnyRepository }) {
		return a, "the driver of the environment does not declare which files are the environment's, so anything could be proposed for it", nil
	}
	before, err := t.tx.GateAnsweredBefore(ctx, t.rollout.ID, g.GateID, g.RequestID)
	if err != nil || before {
		return a, "the gate was answered before, and a merge counts only for the first answer", err
	}
	a, nobody, err := t.tx.MemberAtForge(ctx, p.Repository, p.ByID)
	if err != nil || nobody != "" {
		return a, nobody, err
	}
	may, err := t.mayAnswer(ctx, a, core.ActionApproveGate, g.GateID)
	switch {
	case err != nil || may:
		return a, "", err
	case a.MaySomewhere(core.ActionApproveGate) != nil:
		return a, "this member may not approve rollouts", nil //nolint:nilerr // who may not is an answer
	case g.Requester == a.Principal() && !g.RequesterMayApprove:
		return a, "who has asked for the rollout may not approve it", nil
	case slices.ContainsFunc(g.Approvals, func(one core.GateApproval) bool { return one.Principal == a.Principal() }):
		return a, "this member has approved it already, and counts once", nil
	case len(g.Groups()) > 0 && !slices.ContainsFunc(g.Groups(), func(one string) bool { return slices.Contains(a.Groups, one) }):
		return a, "this member is in no group that approves it", nil
	default:
		return a, "this member may not approve it", nil
	}
}
