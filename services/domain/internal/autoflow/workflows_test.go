package autoflow_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
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
	counted *autoflowv1.ListWorkflowsRequest
	done    []string
	// registered is the last registration of a schedule.
	registered *autoflowv1.RegisterScheduleRequest
	retried    *autoflowv1.RetryWorkflowRequest
}

func (s *server) one() *autoflowv1.Workflow {
	at := timestamppb.New(began)
	return &autoflowv1.Workflow{
		WorkflowId: "rollout-2", WorkflowRef: "run-2", State: autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED, Error: "no",
		Labels:        map[string]string{"program": "deploy", "subject": "rollout_2", "lockstep.parent": "release-1"},
		Status:        map[string]string{"ready": "true", "phase": `"soak"`},
		ProgramDigest: "ab", CreatedAt: at, UpdatedAt: at, FinishedAt: at, LastSequence: 9, Generation: 3, GenerationSequence: 8,
		WaitingFor: []string{"x"},
		Retries:    []*autoflowv1.Retry{{At: at, Reason: "mended", Error: "before", FromSequence: 4}},
	}
}

func (s *server) ListWorkflows(_ context.Context, r *autoflowv1.ListWorkflowsRequest) (*autoflowv1.ListWorkflowsResponse, error) {
	s.listed = r
	return &autoflowv1.ListWorkflowsResponse{Workflows: []*autoflowv1.Workflow{s.one()}, NextPageToken: "more"}, nil
}

func (s *server) CountWorkflows(_ context.Context, r *autoflowv1.CountWorkflowsRequest) (*autoflowv1.CountWorkflowsResponse, error) {
	s.counted = r.GetFilter()
	return &autoflowv1.CountWorkflowsResponse{Count: 10_000, AtLeast: true}, nil
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
		Subject: "rollout_2", Digest: "ab", Parent: "release-1",
		Status:    []handoff.WorkflowPair{{Key: "phase", Value: `"soak"`}, {Key: "ready", Value: "true"}},
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

// Lists and counts have the conditions of the engine's own.
func TestConditionsOfAListReachTheEngine(t *testing.T) {
	t.Parallel()
	s := &server{}
	e, ctx := connect(t, s), t.Context()
	until := began.Add(time.Hour)
	f := handoff.WorkflowFilter{
		Program: "deploy", Parent: "release-1", WorkflowConditions: handoff.WorkflowConditions{
			StartedAfter: &began, StartedBefore: &until, EndedAfter: &began, EndedBefore: &until, IDPrefix: "roll", IDContains: "out",
			Labels: []handoff.WorkflowPair{{Key: "team", Value: "shop"}}, Status: []handoff.WorkflowPair{{Key: "phase", Value: `"soak"`}},
		},
	}
	if _, err := e.ListWorkflows(ctx, 7, f, core.Page{First: 20}); err != nil {
		t.Fatal(err)
	}
	found, err := e.CountWorkflows(ctx, 7, f)
	if err != nil || found != (handoff.WorkflowCount{Count: 10_000, AtLeast: true}) {
		t.Errorf("found %+v, %v", found, err)
	}
	from, to := timestamppb.New(began), timestamppb.New(until)
	want := &autoflowv1.ListWorkflowsRequest{
		OrganizationId: 7, Labels: map[string]string{"program": "deploy", "lockstep.parent": "release-1", "team": "shop"},
		Status: map[string]string{"phase": `"soak"`}, IdPrefix: "roll", IdContains: "out",
		StartedAfter: from, StartedBefore: to, EndedAfter: from, EndedBefore: to,
	}
	if !proto.Equal(want, s.counted) {
		t.Errorf("counted %v; want %v", s.counted, want)
	}
	want.PageSize = 20
	if !proto.Equal(want, s.listed) {
		t.Errorf("listed %v; want %v", s.listed, want)
	}
	for _, wrong := range []handoff.WorkflowFilter{
		{WorkflowConditions: handoff.WorkflowConditions{Status: []handoff.WorkflowPair{{Key: "phase", Value: "1"}, {Key: "phase", Value: "2"}}}},
		// A label beside the program or the parent would widen what was asked for if it won.
		{Parent: "release-1", WorkflowConditions: handoff.WorkflowConditions{Labels: []handoff.WorkflowPair{{Key: "lockstep.parent", Value: "x"}}}},
	} {
		if _, err := e.CountWorkflows(ctx, 7, wrong); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: found %v; want that it is refused", wrong, err)
		}
	}
}
