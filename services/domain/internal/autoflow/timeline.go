package autoflow

import (
	"context"
	"fmt"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// WorkflowTimeline implements handoff.Workflows.
func (e Engine) WorkflowTimeline(
	ctx context.Context, organization int64, id string, q handoff.TimelineQuery,
) (t handoff.WorkflowTimeline, err error) {
	answer, err := e.client.GetTimeline(ctx, &autoflowv1.GetTimelineRequest{
		OrganizationId: organization, WorkflowId: id, PageSize: int32(q.First), BeforeSequence: q.Before, WithoutInputs: !q.Inputs,
	})
	if err != nil {
		return t, fmt.Errorf("get timeline of workflow %s: %w", id, err)
	}
	t = handoff.WorkflowTimeline{Earlier: answer.GetEarlier(), Gap: answer.GetGap(), Inputs: answer.GetInputs()}
	for _, b := range answer.GetBranches() {
		t.Branches = append(t.Branches, handoff.WorkflowBranch{
			Branch: int(b.GetBranch()), Parent: int(b.GetParent()), BeganAt: b.GetBeganAt().AsTime(), EndedAt: ended(b.GetEndedAt()),
		})
	}
	for _, s := range answer.GetSteps() {
		t.Steps = append(t.Steps, handoff.WorkflowStep{
			Sequence: s.GetSequence(), Branch: int(s.GetBranch()), Kind: s.GetKind(), Name: s.GetName(), Position: s.GetPosition(),
			BeganAt: s.GetBeganAt().AsTime(), EndedAt: ended(s.GetEndedAt()), Until: ended(s.GetUntil()),
			Input: s.GetInput(), InputTruncated: s.GetInputTruncated(), Output: s.GetOutput(), OutputTruncated: s.GetOutputTruncated(),
			Code: s.GetCode(), Child: s.GetChild(), Attempt: int(s.GetAttempt()),
			RetriesCount: int(s.GetRetriesCount()), Retries: retries(s.GetRetries()),
		})
	}
	return t, nil
}

func retries(all []*autoflowv1.CallRetry) []handoff.CallRetry {
	failed := make([]handoff.CallRetry, len(all))
	for i, r := range all {
		failed[i] = handoff.CallRetry{
			Number: int(r.GetNumber()), BeganAt: ended(r.GetBeganAt()), EndedAt: r.GetEndedAt().AsTime(), Code: r.GetCode(), Message: r.GetMessage(),
			NextAt: ended(r.GetNextAt()),
		}
	}
	return failed
}
