package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
)

// Reconciliation implements autoflowv1.ReconciliationServer.
type Reconciliation struct {
	autoflowv1.UnimplementedReconciliationServer

	Known *reconcile.Service
}

var _ autoflowv1.ReconciliationServer = Reconciliation{}

// The sizes of a page of reports.
const (
	usualReports = 500
	mostReports  = 1000
)

// ListReports answers a page of what was published about runs.
func (r Reconciliation) ListReports(ctx context.Context, req *autoflowv1.ListReportsRequest) (*autoflowv1.ListReportsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if !req.GetSince().IsValid() {
		return nil, invalid("since", "found %v, expected a time", req.GetSince())
	}
	size, err := pageSize(req.GetPageSize(), usualReports, mostReports)
	if err != nil {
		return nil, err
	}
	since := req.GetSince().AsTime()
	after, err := position(req.GetPageToken(), org, since.UnixNano(), req.GetWorkflowId())
	if err != nil {
		return nil, err
	}
	all, err := r.Known.Reports(ctx, org, reconcile.Which{Since: since, After: after, Workflow: req.GetWorkflowId(), Limit: size})
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListReportsResponse{}
	for _, e := range all {
		resp.Reports = append(resp.Reports, &autoflowv1.Report{
			EventId: e.ID, Source: e.Source, Type: e.Type, WorkflowId: e.Workflow, Time: timestamppb.New(e.Time),
		})
	}
	if len(all) == size {
		resp.NextPageToken = pageToken(all[size-1].Position, org, since.UnixNano(), req.GetWorkflowId())
	}
	return resp, nil
}

// RepeatReports has events published again.
func (r Reconciliation) RepeatReports(
	ctx context.Context, req *autoflowv1.RepeatReportsRequest,
) (*autoflowv1.RepeatReportsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	found, err := r.Known.Repeat(ctx, org, req.GetEventIds())
	if err != nil {
		return nil, err
	}
	return &autoflowv1.RepeatReportsResponse{RepeatedCount: int32(found)}, nil
}

// ListPassages answers what runs have been granted.
func (r Reconciliation) ListPassages(
	ctx context.Context, req *autoflowv1.ListPassagesRequest,
) (*autoflowv1.ListPassagesResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if !req.GetSince().IsValid() {
		return nil, invalid("since", "found %v, expected a time", req.GetSince())
	}
	all, err := r.Known.Passages(ctx, org, req.GetWorkflowIds(), req.GetSince().AsTime())
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListPassagesResponse{}
	for _, p := range all {
		resp.Passages = append(resp.Passages, &autoflowv1.GrantedPassage{
			WorkflowId: p.Workflow, GateId: p.Gate, PinnedWeights: p.Pinned,
		})
	}
	return resp, nil
}

// ListCommits answers the last commits of branches that belong to environments.
func (r Reconciliation) ListCommits(ctx context.Context, req *autoflowv1.ListCommitsRequest) (*autoflowv1.ListCommitsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), reconcile.MostBranches, reconcile.MostBranches)
	if err != nil {
		return nil, err
	}
	offset, err := position(req.GetPageToken(), org)
	if err != nil {
		return nil, err
	}
	all, err := r.Known.Histories(ctx, org, int(offset), size)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListCommitsResponse{}
	for _, h := range all {
		branch := &autoflowv1.BranchHistory{RepositoryUrl: h.Repository, Branch: h.Name, Error: h.Problem}
		for _, c := range h.Commits {
			branch.Commits = append(branch.Commits, &autoflowv1.CommitInfo{Sha: c.SHA, Trailers: c.Trailers})
		}
		resp.Branches = append(resp.Branches, branch)
	}
	if len(all) == size {
		resp.NextPageToken = pageToken(offset+int64(size), org)
	}
	return resp, nil
}
