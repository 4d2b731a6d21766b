package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
)

// How many things a page has when the request does not say, and at the most.
const (
	defaultPage, maxPage           = 100, 1000
	defaultWorkflows, maxWorkflows = 50, 500
)

// GetWorkflow answers where a run stands, on request once it has ended.
func (s *Server) GetWorkflow(ctx context.Context, req *autoflowv1.GetWorkflowRequest) (*autoflowv1.GetWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	wait, err := s.wait(req.GetWait())
	if err != nil {
		return nil, err
	}
	v, err := s.Operator.Await(ctx, org, req.GetWorkflowId(), wait)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.GetWorkflowResponse{Workflow: view(v)}, nil
}

// ListWorkflows answers a page of an organization's runs.
func (s *Server) ListWorkflows(ctx context.Context, req *autoflowv1.ListWorkflowsRequest) (*autoflowv1.ListWorkflowsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultWorkflows, maxWorkflows)
	if err != nil {
		return nil, err
	}
	q, err := listQuery(org, req)
	if err != nil {
		return nil, err
	}
	q.Limit = size + 1 // one more shows whether there is a next page
	conditions := []any{"list", org, q.States, q.Labels, q.Program}
	if found := fmt.Sprint(q.StartedFrom, q.StartedTo, q.EndedFrom, q.EndedTo, strconv.Quote(q.Prefix), strconv.Quote(q.Part)); found !=
		fmt.Sprint(time.Time{}, time.Time{}, time.Time{}, time.Time{}, `""`, `""`) {
		conditions = append(conditions, found)
	}
	if len(q.Status) > 0 {
		conditions = append(conditions, q.Status)
	}
	if q.Before, err = position(req.GetPageToken(), conditions...); err != nil {
		return nil, err
	}
	list, rest, err := s.Operator.List(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListWorkflowsResponse{}
	switch {
	case len(list) > size:
		list = list[:size]
		resp.NextPageToken = pageToken(list[size-1].ID, conditions...)
	case rest != 0:
		resp.NextPageToken = pageToken(rest, conditions...)
	}
	for _, e := range list {
		resp.PageTokens = append(resp.PageTokens, pageToken(e.ID, conditions...))
		resp.Workflows = append(resp.Workflows, view(control.View{Execution: e}))
	}
	return resp, nil
}

// CountWorkflows counts an organization's runs.
func (s *Server) CountWorkflows(ctx context.Context, req *autoflowv1.CountWorkflowsRequest) (*autoflowv1.CountWorkflowsResponse, error) {
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
	n, atLeast, err := s.Operator.Count(ctx, q)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.CountWorkflowsResponse{Count: n, AtLeast: atLeast}, nil
}

// listQuery are the conditions of a list.
func listQuery(org int64, req *autoflowv1.ListWorkflowsRequest) (q control.ListQuery, err error) {
	q = control.ListQuery{
		Organization: org, Labels: req.GetLabels(), Status: req.GetStatus(),
		Prefix: req.GetIdPrefix(), Part: req.GetIdContains(),
	}
	for _, wanted := range req.GetStates() {
		known, ok := fromState(wanted)
		if !ok {
			return q, invalid("states", "found %s, expected states that a workflow can be in", wanted)
		}
		q.States = append(q.States, known)
	}
	if digest := req.GetProgramDigest(); digest != "" {
		if q.Program, err = hex.DecodeString(digest); err != nil || len(q.Program) != 32 {
			return q, invalid("program_digest", "found %.80q, expected 64 hexadecimal digits", digest)
		}
	}
	for _, t := range []struct {
		field string
		given *timestamppb.Timestamp
		into  *time.Time
	}{
		{"started_after", req.GetStartedAfter(), &q.StartedFrom},
		{"started_before", req.GetStartedBefore(), &q.StartedTo},
		{"ended_after", req.GetEndedAfter(), &q.EndedFrom},
		{"ended_before", req.GetEndedBefore(), &q.EndedTo},
	} {
		if *t.into, err = timeOf(t.field, t.given); err != nil {
			return q, err
		}
	}
	return q, nil
}

// GetHistory answers a page of what a run recorded.
func (s *Server) GetHistory(ctx context.Context, req *autoflowv1.GetHistoryRequest) (*autoflowv1.GetHistoryResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	after, err := position(req.GetPageToken(), "history", org, req.GetWorkflowId())
	if err != nil {
		return nil, err
	}
	entries, err := s.Operator.History(ctx, org, req.GetWorkflowId(), after, size+1)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetHistoryResponse{}
	if len(entries) > size {
		entries = entries[:size]
		resp.NextPageToken = pageToken(entries[size-1].Seq, "history", org, req.GetWorkflowId())
	}
	for _, entry := range entries {
		resp.PageTokens = append(resp.PageTokens, pageToken(entry.Seq, "history", org, req.GetWorkflowId()))
		shown, err := historyEntry(entry)
		if err != nil {
			return nil, err
		}
		resp.Entries = append(resp.Entries, shown)
	}
	return resp, nil
}

// GetLogs answers a page of a run's log.
func (s *Server) GetLogs(ctx context.Context, req *autoflowv1.GetLogsRequest) (*autoflowv1.GetLogsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	q := control.LogQuery{Limit: size + 1}
	branch := "all"
	if req.Branch != nil {
		if req.GetBranch() < 0 {
			return nil, invalid("branch", "found %d, expected a number from 0", req.GetBranch())
		}
		n := int(req.GetBranch())
		q.Branch, branch = &n, strconv.Itoa(n)
	}
	if q.After, err = position(req.GetPageToken(), "log", org, req.GetWorkflowId(), branch); err != nil {
		return nil, err
	}
	lines, err := s.Operator.Logs(ctx, org, req.GetWorkflowId(), q)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetLogsResponse{}
	if len(lines) > size {
		lines = lines[:size]
		resp.NextPageToken = pageToken(lines[size-1].Seq, "log", org, req.GetWorkflowId(), branch)
	}
	for _, line := range lines {
		resp.PageTokens = append(resp.PageTokens, pageToken(line.Seq, "log", org, req.GetWorkflowId(), branch))
		resp.Lines = append(resp.Lines, logLine(line))
	}
	return resp, nil
}

// WatchWorkflow reports what happens to a run until it has ended.
func (s *Server) WatchWorkflow(req *autoflowv1.WatchWorkflowRequest, stream autoflowv1.AutoFlow_WatchWorkflowServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-s.Stopping:
			cancel(control.ErrStopping)
		case <-ctx.Done():
		}
	}()
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return err
	}
	return s.Operator.Watch(ctx, org, req.GetWorkflowId(), req.GetAfterSequence(), func(n control.Update) error {
		if n.View != nil {
			return stream.Send(&autoflowv1.WatchWorkflowResponse{News: &autoflowv1.WatchWorkflowResponse_Workflow{Workflow: view(*n.View)}})
		}
		entry, err := historyEntry(*n.Entry)
		if err != nil {
			return err
		}
		return stream.Send(&autoflowv1.WatchWorkflowResponse{News: &autoflowv1.WatchWorkflowResponse_Entry{Entry: entry}})
	})
}
