package setup

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// ApprovalInput is what SetEnvironmentApproval is called with.
type ApprovalInput struct {
	Environment int64
	Approval    *core.EnvironmentApproval
}

// SetEnvironmentApproval says what an environment asks of the rollouts that are made from now on; nil for nothing.
func (u *UseCases) SetEnvironmentApproval(
	ctx context.Context, a core.Actor, environment int64, n *core.EnvironmentApproval,
) (core.Environment, error) {
	a = a.Proposing(ApprovalInput{Environment: environment, Approval: n})
	if n != nil {
		if err := checkEnvironmentApproval(*n); err != nil {
			return core.Environment{}, err
		}
	}
	var changed core.Environment
	err := core.Within(ctx, u.store, a, core.ActionSetEnvironmentApproval, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		changed = e.Environment
		if err := a.MayIn(core.ActionSetEnvironmentApproval, e.Target(0)); err != nil {
			return err
		}
		known, err := tx.EnvironmentApprovals(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		var before any
		if was, asked := known[environment]; asked {
			before = approvalState(was)
		}
		change := environmentChange(core.ActionSetEnvironmentApproval, e.Environment)
		if n == nil {
			if err := tx.DropEnvironmentApproval(ctx, environment); err != nil {
				return err
			}
			if err := core.Record(ctx, tx, a, change, before, nil); err != nil {
				return err
			}
			return u.announceEnvironment(ctx, tx, a.Organization, e)
		}
		approvers, err := access.ApproversOf(ctx, tx, a.Organization, []string{n.Group})
		if err != nil {
			return err
		}
		if found := access.Unanswerable(n.Group, n.Quorum, approvers.InAny(e.Environment)); len(found) > 0 {
			return fault.InvalidFields(found...)
		}
		if err := u.checkPipelines(ctx, tx, a.Organization, e.Environment, *n); err != nil {
			return err
		}
		n.EnvironmentID = environment
		if err := tx.SaveEnvironmentApproval(ctx, *n); err != nil {
			return err
		}
		if err := core.Record(ctx, tx, a, change, before, approvalState(*n)); err != nil {
			return err
		}
		return u.announceEnvironment(ctx, tx, a.Organization, e)
	})
	u.wake()
	return changed, err
}

// approvalState is what the journal of changes keeps of an environment's approval.
func approvalState(n core.EnvironmentApproval) map[string]any {
	return map[string]any{
		"quorum": n.Quorum, "group": n.Group, "requester_may_approve": n.RequesterMayApprove, "expires_after": int(n.ExpiresAfter.Seconds()),
		"on_expiry": n.OnExpiry, "reason": n.Reason,
	}
}

// pipelinesAtOnce is how many pipelines are read together.
const pipelinesAtOnce = 200

// checkPipelines refuses what nobody could answer with what pipelines ask before the same environment, naming the first that is in the
// way. A change of a pipeline waits for the environment meanwhile.
func (u *UseCases) checkPipelines(ctx context.Context, r Reads, organization int64, e core.Environment, n core.EnvironmentApproval) error {
	for after := int64(0); ; {
		page, err := r.PipelinesTo(ctx, organization, e.ID, after, pipelinesAtOnce)
		if err != nil {
			return err
		}
		for _, definition := range page {
			after = definition.ApplicationID
			if err := u.checkPipeline(ctx, r, organization, e, n, definition); err != nil {
				return err
			}
		}
		if len(page) < pipelinesAtOnce {
			return nil
		}
	}
}

func (u *UseCases) checkPipeline(
	ctx context.Context, r Reads, organization int64, e core.Environment, n core.EnvironmentApproval, definition core.FlowDefinition,
) error {
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	for _, step := range flow.Deploys {
		if step.Environment != e.Name || step.Approval == nil {
			continue
		}
		found, err := unanswerableTogether(ctx, r, organization, step, e, n)
		if err != nil || len(found) == 0 {
			return err
		}
		applications, err := r.ApplicationsByID(ctx, organization, []int64{definition.ApplicationID})
		if err != nil {
			return err
		}
		for i := range found {
			found[i].Problem = fmt.Sprintf("with what the pipeline of %q asks: %s", applications[definition.ApplicationID].Name, found[i].Problem)
		}
		return fault.InvalidFields(found...)
	}
	return nil
}

func checkEnvironmentApproval(n core.EnvironmentApproval) error {
	var found []fault.Field
	if n.Quorum < 1 || n.Quorum > core.MaxQuorum {
		found = append(found, fault.Field{Name: "/quorum", Problem: fmt.Sprintf("found %d; expected 1 to %d", n.Quorum, core.MaxQuorum)})
	}
	if n.Group != "" {
		found = append(found, core.CheckName("/group", n.Group)...)
	}
	if n.ExpiresAfter < 0 || n.ExpiresAfter > core.MaxGateHours*time.Hour {
		found = append(found, fault.Field{
			Name: "/expiresAfterSeconds", Problem: fmt.Sprintf("found %.0f; expected 0 to %d", n.ExpiresAfter.Seconds(), core.MaxGateHours*3600),
		})
	}
	if n.OnExpiry != core.ExpiryRejects && n.OnExpiry != core.ExpiryApproves {
		found = append(found, fault.Field{Name: "/onExpiry", Problem: fmt.Sprintf("found %q; expected reject or approve", n.OnExpiry)})
	}
	if len(n.Reason) > core.MaxReason {
		found = append(
			found, fault.Field{Name: "/reason", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(n.Reason), core.MaxReason)},
		)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}
