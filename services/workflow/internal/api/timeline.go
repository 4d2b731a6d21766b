package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// GetTimeline answers what a run did, branch by branch. Arguments are for those who may operate, as exports are.
func (s *Server) GetTimeline(ctx context.Context, req *autoflowv1.GetTimelineRequest) (*autoflowv1.GetTimelineResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	if req.GetBeforeSequence() < 0 {
		return nil, invalid("before_sequence", "found %d, expected a number from 0", req.GetBeforeSequence())
	}
	caller, _ := rpc.CallerFrom(ctx)
	q := control.TimelineQuery{
		Organization: org, Workflow: req.GetWorkflowId(), Before: req.GetBeforeSequence(), Limit: size,
		Inputs: caller.Scope.Allows(rpc.ScopeOperate) && !req.GetWithoutInputs(),
	}
	t, err := s.Operator.Timeline(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetTimelineResponse{Earlier: t.Earlier, Gap: t.Gap, Inputs: q.Inputs}
	for _, b := range t.Branches {
		resp.Branches = append(resp.Branches, &autoflowv1.TimelineBranch{
			Branch: int32(b.Number), Parent: int32(b.Parent), BeganAt: timestamppb.New(b.Begun), EndedAt: orAbsent(b.Ended),
		})
	}
	for _, step := range t.Steps {
		resp.Steps = append(resp.Steps, &autoflowv1.TimelineStep{
			Sequence: step.Seq, Branch: int32(step.Op.Branch), Operation: int32(step.Op.Index), Kind: string(step.Kind), Name: step.Name,
			Position: step.Position, BeganAt: timestamppb.New(step.Begun), EndedAt: orAbsent(step.Ended), Until: orAbsent(step.Due),
			Input: step.Input, InputTruncated: step.InputCut, Output: step.Output, OutputTruncated: step.OutputCut, Code: step.Code,
			Child: step.Child, Attempt: int32(step.Attempt), RetriesCount: int32(step.Tries.Failed()), Retries: retries(step.Tries),
		})
	}
	return resp, nil
}

// retries are failed attempts as they are shown.
func retries(t *history.Tries) []*autoflowv1.CallRetry {
	if t == nil {
		return nil
	}
	all := make([]*autoflowv1.CallRetry, len(t.List))
	for i, one := range t.List {
		all[i] = &autoflowv1.CallRetry{
			Number: int32(one.Number), BeganAt: orAbsent(one.Began), EndedAt: timestamppb.New(one.Ended), Code: one.Code, Message: one.Message,
			NextAt: orAbsent(one.Next),
		}
	}
	return all
}

func orAbsent(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
