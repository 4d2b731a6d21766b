package autoflow_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/autoflow"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

const token = "a-token-for-tests-only"

var began = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// server is the AutoFlow service with one run.
type server struct {
	autoflowv1.UnimplementedAutoFlowServer
	listed  *autoflowv1.ListWorkflowsRequest
	retried *autoflowv1.RetryWorkflowRequest
}

func (s *server) one() *autoflowv1.Workflow {
	at := timestamppb.New(began)
	return &autoflowv1.Workflow{
		WorkflowId: "rollout-2", WorkflowRef: "run-2", State: autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED, Error: "no",
		Labels:        map[string]string{"program": "deploy", "subject": "rollout_2"},
		ProgramDigest: "ab", CreatedAt: at, UpdatedAt: at, FinishedAt: at, LastSequence: 9, Generation: 3, GenerationSequence: 8,
		WaitingFor: []string{"x"},
		Retries:    []*autoflowv1.Retry{{At: at, Reason: "mended", Error: "before", FromSequence: 4}},
	}
}

func (s *server) ListWorkflows(_ context.Context, r *autoflowv1.ListWorkflowsRequest) (*autoflowv1.ListWorkflowsResponse, error) {
	s.listed = r
	return &autoflowv1.ListWorkflowsResponse{Workflows: []*autoflowv1.Workflow{s.one()}, NextPageToken: "more"}, nil
}

func (s *server) GetWorkflow(_ context.Context, r *autoflowv1.GetWorkflowRequest) (*autoflowv1.GetWorkflowResponse, error) {
	if r.GetWorkflowId() != "rollout-2" {
		return nil, fault.New(fault.NotFound, "workflow %q does not exist", r.GetWorkflowId())
	}
	return &autoflowv1.GetWorkflowResponse{Workflow: s.one()}, nil
}

func (s *server) GetHistory(context.Context, *autoflowv1.GetHistoryRequest) (*autoflowv1.GetHistoryResponse, error) {
	return &autoflowv1.GetHistoryResponse{Entries: []*autoflowv1.HistoryEntry{{
		Sequence: 3, Generation: 2, Kind: "run", Name: "git.commit",
		Value: "{}", RecordedAt: timestamppb.New(began), Branch: 1, Truncated: true,
	}}}, nil
}

func (s *server) GetLogs(context.Context, *autoflowv1.GetLogsRequest) (*autoflowv1.GetLogsResponse, error) {
	return &autoflowv1.GetLogsResponse{Lines: []*autoflowv1.LogLine{{
		Sequence: 4, Branch: 2, Kind: "run", Name: "argo.sync", Text: "away",
		Code: "UNAVAILABLE", Truncated: true, Redacted: true, RecordedAt: timestamppb.New(began),
	}}}, nil
}

func (s *server) RetryWorkflow(_ context.Context, r *autoflowv1.RetryWorkflowRequest) (*autoflowv1.RetryWorkflowResponse, error) {
	s.retried = r
	return &autoflowv1.RetryWorkflowResponse{Workflow: s.one()}, nil
}

func connect(t *testing.T, s *server) autoflow.Engine {
	t.Helper()
	g := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Tokens: map[string]rpc.Caller{token: {Name: "domain"}}})
	autoflowv1.RegisterAutoFlowServer(g, s)
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, g, lis) }()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: lis.Addr().String(), Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return autoflow.New(conn)
}

func TestRunsAreReportedAsTheEngineReportsThem(t *testing.T) {
	t.Parallel()
	s := &server{}
	e, ctx := connect(t, s), t.Context()
	over := began
	want := handoff.WorkflowRun{
		ID: "rollout-2", Ref: "run-2", State: handoff.WorkflowFailed, Error: "no", WaitingFor: []string{"x"}, Program: "deploy",
		Subject: "rollout_2", Digest: "ab",
		CreatedAt: began, UpdatedAt: began, FinishedAt: &over, LastSequence: 9, Generation: 3, GenerationSequence: 8,
		Retries: []handoff.WorkflowRetry{{At: began, Reason: "mended", Error: "before", FromSequence: 4}},
	}
	page, err := e.ListWorkflows(ctx, 7, handoff.WorkflowFilter{
		States: []handoff.WorkflowState{handoff.WorkflowFailed}, Program: "deploy",
		Subject: "rollout_2",
	}, core.Page{First: 20, After: "at"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(core.Slice[handoff.WorkflowRun]{
		Nodes: []handoff.WorkflowRun{want}, HasNext: true, HasPrevious: true,
		Cursors: []string{"more"},
	}, page); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r := s.listed
	if r.GetOrganizationId() != 7 || r.GetPageSize() != 20 || r.GetPageToken() != "at" || len(r.GetStates()) != 1 ||
		r.GetStates()[0] != autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED ||
		r.GetLabels()["program"] != "deploy" || r.GetLabels()["subject"] != "rollout_2" {
		t.Errorf("asked for %v", r)
	}
	if _, err := e.WorkflowByID(ctx, 7, "rollout-3"); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v; want that there is none", err)
	}
	history, err := e.WorkflowHistory(ctx, 7, "rollout-2", core.Page{First: 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]handoff.WorkflowEntry{{
		Sequence: 3, Generation: 2, Branch: 1, Kind: "run", Name: "git.commit", Value: "{}",
		Truncated: true, RecordedAt: began,
	}}, history.Nodes); diff != "" || history.HasNext {
		t.Errorf("(-want +got)\n%s", diff)
	}
	logs, err := e.WorkflowLogs(ctx, 7, "rollout-2", core.Page{First: 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]handoff.WorkflowLine{{
		Sequence: 4, Branch: 2, Kind: "run", Name: "argo.sync", Text: "away", Code: "UNAVAILABLE",
		Truncated: true, Redacted: true, RecordedAt: began,
	}}, logs.Nodes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := e.RetryWorkflow(ctx, 7, "rollout-2", "mended", 4); err != nil || s.retried.GetReason() != "mended" ||
		s.retried.GetFromSequence() != 4 || s.retried.GetOrganizationId() != 7 {
		t.Errorf("found %v, %v", s.retried, err)
	}
}
