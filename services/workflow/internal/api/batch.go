package api

import (
	"context"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
)

// StartBatch begins an operation on many runs, or shows what it would be about.
func (s *Server) StartBatch(ctx context.Context, req *autoflowv1.StartBatchRequest) (*autoflowv1.StartBatchResponse, error) {
	filter := req.GetFilter()
	if filter.GetPageSize() != 0 || filter.GetPageToken() != "" {
		return nil, invalid("filter", "found a page, expected conditions only")
	}
	org, err := organization(ctx, filter.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	q, err := listQuery(org, filter)
	if err != nil {
		return nil, err
	}
	b := batch.Batch{
		Organization: org, Filter: q, Workflows: req.GetWorkflowIds(), Reason: req.GetReason(), Rate: int(req.GetRate()),
		StartedBy: callerName(ctx), To: req.GetToSequence(),
		Action: map[autoflowv1.BatchAction]batch.Action{
			autoflowv1.BatchAction_BATCH_ACTION_CANCEL:    batch.Cancel,
			autoflowv1.BatchAction_BATCH_ACTION_TERMINATE: batch.Terminate,
			autoflowv1.BatchAction_BATCH_ACTION_RETRY:     batch.Retry,
			autoflowv1.BatchAction_BATCH_ACTION_RESET:     batch.Reset,
		}[req.GetAction()],
	}
	if req.GetDryRun() {
		p, err := s.Batches.Preview(ctx, b)
		if err != nil {
			return nil, err
		}
		resp := &autoflowv1.StartBatchResponse{Count: p.Count, AtLeast: p.AtLeast}
		for _, e := range p.Sample {
			resp.Sample = append(resp.Sample, view(control.View{Execution: e}))
		}
		return resp, nil
	}
	if b, err = s.Batches.Start(ctx, b); err != nil {
		return nil, err
	}
	return &autoflowv1.StartBatchResponse{Batch: batchOf(b)}, nil
}

// GetBatch answers a batch with its progress.
func (s *Server) GetBatch(ctx context.Context, req *autoflowv1.GetBatchRequest) (*autoflowv1.GetBatchResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	b, err := s.Batches.Get(ctx, org, req.GetId())
	if err != nil {
		return nil, err
	}
	return &autoflowv1.GetBatchResponse{Batch: batchOf(b)}, nil
}

// ListBatches answers a page of an organization's batches.
func (s *Server) ListBatches(ctx context.Context, req *autoflowv1.ListBatchesRequest) (*autoflowv1.ListBatchesResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultWorkflows, maxWorkflows)
	if err != nil {
		return nil, err
	}
	before, err := position(req.GetPageToken(), "batches", org)
	if err != nil {
		return nil, err
	}
	list, err := s.Batches.List(ctx, org, before, size+1) // one more shows whether there is a next page
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListBatchesResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = pageToken(list[size-1].ID, "batches", org)
	}
	for _, b := range list {
		resp.Batches = append(resp.Batches, batchOf(b))
	}
	return resp, nil
}

// StopBatch ends a batch.
func (s *Server) StopBatch(ctx context.Context, req *autoflowv1.StopBatchRequest) (*autoflowv1.StopBatchResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	b, err := s.Batches.Stop(ctx, org, req.GetId())
	if err != nil {
		return nil, err
	}
	return &autoflowv1.StopBatchResponse{Batch: batchOf(b)}, nil
}

func batchOf(b batch.Batch) *autoflowv1.Batch {
	return &autoflowv1.Batch{
		Id: b.ID, OrganizationId: b.Organization, Reason: b.Reason, StartedBy: b.StartedBy, Rate: int32(b.Rate), Done: b.Finished,
		Refused: b.Refused, LastRefusal: b.LastRefusal, CreatedAt: instant(b.CreatedAt), FinishedAt: instant(b.EndedAt),
		Action: map[batch.Action]autoflowv1.BatchAction{
			batch.Cancel:    autoflowv1.BatchAction_BATCH_ACTION_CANCEL,
			batch.Terminate: autoflowv1.BatchAction_BATCH_ACTION_TERMINATE,
			batch.Retry:     autoflowv1.BatchAction_BATCH_ACTION_RETRY,
			batch.Reset:     autoflowv1.BatchAction_BATCH_ACTION_RESET,
		}[b.Action],
		Total: b.Total, TotalAtLeast: b.AtLeast, ToSequence: b.To,
		State: map[batch.State]autoflowv1.BatchState{
			batch.Running: autoflowv1.BatchState_BATCH_STATE_RUNNING,
			batch.Done:    autoflowv1.BatchState_BATCH_STATE_DONE,
			batch.Stopped: autoflowv1.BatchState_BATCH_STATE_STOPPED,
		}[b.State],
	}
}
