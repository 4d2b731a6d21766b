package workflow_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// tokenOf is a caller's, by organization and scope, and its digest is what the service is configured with.
func tokenOf(organization int64, scope string) string {
	return fmt.Sprintf("token-%d-%s", organization, scope)
}

func accessTokens() (tokens []workflow.AccessToken) {
	for _, organization := range []int64{0, 1, 2} {
		for _, scope := range []string{"read", "start", "operate", "admin"} {
			sum := sha256.Sum256([]byte(tokenOf(organization, scope)))
			tokens = append(tokens, workflow.AccessToken{Name: scope, Organization: organization, Scope: scope, SHA256: hex.EncodeToString(sum[:])})
		}
	}
	return tokens
}

// as is a client with another token.
func (s *service) as(token string) autoflowv1.AutoFlowClient {
	s.t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return autoflowv1.NewAutoFlowClient(conn)
}

// methods are a call of each method of the service, about one workflow of one organization. A method that is missing
// here fails the tests that go through all of them.
func methods(organization int64, id string) map[string]func(context.Context, autoflowv1.AutoFlowClient) error {
	first := func(_ any, err error) error { return err }
	return map[string]func(context.Context, autoflowv1.AutoFlowClient) error{
		"CloudEvent": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			text := strings.Replace(strings.Replace(cloudEvent, "ID", id, 1), `"organizationid": "1"`,
				fmt.Sprintf(`"organizationid": "%d"`, organization), 1)
			return first(c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)}))
		},
		"StartWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: id,
				Starlark: []byte("x = 1"),
			}))
		},
		"StartWorkflows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			resp, err := c.StartWorkflows(ctx, &autoflowv1.StartWorkflowsRequest{Workflows: []*autoflowv1.StartWorkflowRequest{
				{OrganizationId: organization, WorkflowId: id, Starlark: []byte("x = 1")},
			}})
			if r := resp.GetResults(); err == nil && r[0].GetRefused() != nil {
				return fault.New(fault.FromGRPC(uint32(r[0].GetRefused().GetCode())), "%s", r[0].GetRefused().GetMessage())
			}
			return err
		},
		"GetWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"StartBatch": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.StartBatch(ctx, &autoflowv1.StartBatchRequest{
				Filter: &autoflowv1.ListWorkflowsRequest{OrganizationId: organization}, WorkflowIds: []string{"none"}, DryRun: true,
				Action: autoflowv1.BatchAction_BATCH_ACTION_CANCEL,
			}))
		},
		"GetBatch": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetBatch(ctx, &autoflowv1.GetBatchRequest{OrganizationId: organization, Id: 1}))
		},
		"ListBatches": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListBatches(ctx, &autoflowv1.ListBatchesRequest{OrganizationId: organization}))
		},
		"StopBatch": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.StopBatch(ctx, &autoflowv1.StopBatchRequest{OrganizationId: organization, Id: 1}))
		},
		"CountWorkflows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.CountWorkflows(ctx, &autoflowv1.CountWorkflowsRequest{
				Filter: &autoflowv1.ListWorkflowsRequest{OrganizationId: organization},
			}))
		},
		"RegisterSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.RegisterSchedule(ctx, &autoflowv1.RegisterScheduleRequest{
				OrganizationId: organization, Name: id, Starlark: []byte("x = 1"), Spec: &autoflowv1.ScheduleSpec{Cron: []string{"@yearly"}},
			}))
		},
		"GetSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetSchedule(ctx, &autoflowv1.GetScheduleRequest{OrganizationId: organization, Name: id}))
		},
		"ListSchedules": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListSchedules(ctx, &autoflowv1.ListSchedulesRequest{OrganizationId: organization}))
		},
		"PauseSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.PauseSchedule(ctx, &autoflowv1.PauseScheduleRequest{OrganizationId: organization, Name: id}))
		},
		"ResumeSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ResumeSchedule(ctx, &autoflowv1.ResumeScheduleRequest{OrganizationId: organization, Name: id}))
		},
		"BackfillSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.BackfillSchedule(ctx, &autoflowv1.BackfillScheduleRequest{
				OrganizationId: organization, Name: id, From: &timestamppb.Timestamp{Seconds: 1}, To: &timestamppb.Timestamp{Seconds: 2},
			}))
		},
		"TriggerSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.TriggerSchedule(ctx, &autoflowv1.TriggerScheduleRequest{OrganizationId: organization, Name: id}))
		},
		"DeleteSchedule": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeleteSchedule(ctx, &autoflowv1.DeleteScheduleRequest{OrganizationId: organization, Name: id}))
		},
		"ListWorkflows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: organization}))
		},
		"GetHistory": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"GetTimeline": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetTimeline(ctx, &autoflowv1.GetTimelineRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"GetLogs": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"WatchWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			_, _, err := drain(c.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: organization, WorkflowId: id}))
			return err
		},
		"ResetWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ResetWorkflow(ctx, &autoflowv1.ResetWorkflowRequest{
				OrganizationId: organization, WorkflowId: id, NewWorkflowId: "reset", ToSequence: 1,
			}))
		},
		"ChangeProgram": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ChangeProgram(ctx, &autoflowv1.ChangeProgramRequest{
				OrganizationId: organization, WorkflowId: id, Starlark: []byte("x = 1"),
			}))
		},
		"ListArchivedWorkflows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			_, err := c.ListArchivedWorkflows(ctx, &autoflowv1.ListArchivedWorkflowsRequest{OrganizationId: organization})
			return err
		},
		"ExportWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			stream, err := c.ExportWorkflow(ctx, &autoflowv1.ExportWorkflowRequest{OrganizationId: organization, WorkflowId: id})
			if err != nil {
				return err
			}
			return first(stream.Recv())
		},
		"CancelWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"TerminateWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.TerminateWorkflow(ctx, &autoflowv1.TerminateWorkflowRequest{OrganizationId: organization, WorkflowId: id, Reason: "r"}))
		},
		"RetryWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.RetryWorkflow(ctx, &autoflowv1.RetryWorkflowRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"SendToChannel": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.SendToChannel(ctx, &autoflowv1.SendToChannelRequest{
				OrganizationId: organization,
				Token:          "ch_" + strings.Repeat("A", 26), MessageId: "1",
			}))
		},
		"CallChannel": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.CallChannel(ctx, &autoflowv1.CallChannelRequest{
				OrganizationId: organization,
				Token:          "ch_" + strings.Repeat("A", 26), RequestId: "1",
			}))
		},
		"CheckProgram": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{Starlark: []byte("x = 1")}))
		},
		"RegisterFlow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: organization, Name: "f", Starlark: []byte(ticking)}))
		},
		"ListFlows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListFlows(ctx, &autoflowv1.ListFlowsRequest{OrganizationId: organization}))
		},
		"DeleteFlow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeleteFlow(ctx, &autoflowv1.DeleteFlowRequest{OrganizationId: organization, Name: "no-such-flow"}))
		},
		"ListFunctions": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: organization}))
		},
		"Work": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.Work(ctx)
			if err != nil {
				return err
			}
			_ = stream.Send(&autoflowv1.WorkRequest{Message: &autoflowv1.WorkRequest_Register{Register: &autoflowv1.RegisterWorker{
				OrganizationId: organization, Worker: "a", MaxInFlight: 1, Functions: reads("shop.a"),
			}}}) // Recv has the reason
			return first(stream.Recv())
		},
		"DeclareEventType": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeclareEventType(ctx, &autoflowv1.DeclareEventTypeRequest{
				OrganizationId: organization, Type: "com.example.order.shipped", Schema: []byte(`{"type": "object"}`),
			}))
		},
		"ListEventTypes": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListEventTypes(ctx, &autoflowv1.ListEventTypesRequest{OrganizationId: organization}))
		},
		"DeleteEventType": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeleteEventType(ctx, &autoflowv1.DeleteEventTypeRequest{OrganizationId: organization, Type: "com.example.no.such"}))
		},
		"GetLimits": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetLimits(ctx, &autoflowv1.GetLimitsRequest{OrganizationId: organization}))
		},
		"ListLimitUse": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListLimitUse(ctx, &autoflowv1.ListLimitUseRequest{}))
		},
		"SetLimits": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.SetLimits(ctx, &autoflowv1.SetLimitsRequest{OrganizationId: organization, Limits: &autoflowv1.Limits{OpenRuns: 1000}}))
		},
		"ListRetention": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListRetention(ctx, &autoflowv1.ListRetentionRequest{OrganizationId: organization}))
		},
		"SetRetention": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.SetRetention(ctx, &autoflowv1.SetRetentionRequest{
				OrganizationId: organization, Rule: &autoflowv1.RetentionRule{Label: "a", Value: "b", Keep: durationpb.New(time.Hour)},
			}))
		},
		"DeclareAgents": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeclareAgents(ctx, &autoflowv1.DeclareAgentsRequest{Agents: []*autoflowv1.DeclaredAgent{{
				AgentId:        agentID,
				OrganizationId: organization,
			}}}))
		},
	}
}

// forEachMethod calls check for every method that the service has.
func forEachMethod(t *testing.T, id string, check func(method string, call func(context.Context, autoflowv1.AutoFlowClient) error)) {
	t.Helper()
	desc := autoflowv1.AutoFlow_ServiceDesc
	names := []string{}
	for _, m := range desc.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range desc.Streams {
		names = append(names, s.StreamName)
	}
	calls := methods(organization, id)
	for _, name := range names {
		call, known := calls[name]
		if !known {
			t.Errorf("no test calls %s", name)
			continue
		}
		check(name, call)
	}
}

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) { c.Tokens = accessTokens() })
	s.submit("mine", "x = 1", "")
	s.await("mine", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)

	t.Run("another organization's workflows do not exist", func(t *testing.T) {
		t.Parallel()
		stranger := s.as(tokenOf(2, "admin"))
		forEachMethod(t, "mine", func(method string, call func(context.Context, autoflowv1.AutoFlowClient) error) {
			err := call(t.Context(), stranger)
			switch method {
			case "CheckProgram": // a program that is looked at belongs to nobody yet
			case "DeclareAgents", "ListLimitUse", "SetLimits", "Work": // for all organizations; and a worker has a token of its own scope
				if !fault.Is(err, fault.Denied) {
					t.Errorf("%s: %v, expected a denial", method, err)
				}
			default:
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("%s: %v, expected not found", method, err)
				}
				if nothing := methods(organization, "nothing")[method](t.Context(), stranger); fmt.Sprint(nothing) != fmt.Sprint(err) {
					t.Errorf("%s: for an existing workflow %v, for a missing one %v", method, err, nothing)
				}
			}
		})
	})
	t.Run("every scope lets in what it covers", func(t *testing.T) {
		t.Parallel()
		needs := map[string]string{
			"CloudEvent": "start", "StartWorkflow": "start", "StartWorkflows": "start", "CancelWorkflow": "operate",
			"TerminateWorkflow": "operate", "RetryWorkflow": "operate", "ExportWorkflow": "operate", "ListArchivedWorkflows": "operate", "ResetWorkflow": "operate", "ChangeProgram": "admin", "DeclareEventType": "admin", "DeleteEventType": "admin", "SendToChannel": "start", "CallChannel": "start", "RegisterFlow": "admin", "DeleteFlow": "admin",
			"StartBatch": "operate", "StopBatch": "operate", "PauseSchedule": "operate", "ResumeSchedule": "operate", "BackfillSchedule": "operate", "TriggerSchedule": "operate",
			"RegisterSchedule": "admin", "DeleteSchedule": "admin", "SetRetention": "admin",
		}
		order := []string{"read", "start", "operate", "admin"}
		at := func(scope string) (n int) {
			for i, name := range order {
				if name == scope {
					n = i
				}
			}
			return n
		}
		for _, scope := range order {
			caller := s.as(tokenOf(1, scope))
			forEachMethod(t, "mine", func(method string, call func(context.Context, autoflowv1.AutoFlowClient) error) {
				// Read where the table has none. Whose agents are, and what an organization may use, is for no token of one organization to say.
				// Nobody works but with a token for that.
				let := at(scope) >= at(needs[method]) && method != "DeclareAgents" && method != "SetLimits" && method != "ListLimitUse" && method != "Work"
				if err := call(t.Context(), caller); let == fault.Is(err, fault.Denied) {
					t.Errorf("%s with scope %s: %v", method, scope, err)
				}
			})
		}
	})
	t.Run("a token for one organization need not name it", func(t *testing.T) {
		t.Parallel()
		resp, err := s.as(tokenOf(1, "read")).GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{WorkflowId: "mine"})
		if err != nil || resp.GetWorkflow().GetOrganizationId() != 1 {
			t.Error(resp, err)
		}
	})
}

// TestBadInput has one row for each thing that can be wrong with a request.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("known", "x = 1", "")
	s.await("known", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	ctx := t.Context()
	long := strings.Repeat("x", 1025)
	first := func(_ any, err error) error { return err }
	branch := int32(-1)
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"get, id":            {first(s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1})), []string{"workflow_id"}},
		"list, organization": {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{})), []string{"organization_id"}},
		"list, state": {first(s.ListWorkflows(ctx,
			&autoflowv1.ListWorkflowsRequest{OrganizationId: 1, States: []autoflowv1.WorkflowState{0}})), []string{"states"}},
		"list, unknown state": {first(s.ListWorkflows(ctx,
			&autoflowv1.ListWorkflowsRequest{OrganizationId: 1, States: []autoflowv1.WorkflowState{99}})), []string{"states"}},
		"list, label": {first(s.ListWorkflows(ctx,
			&autoflowv1.ListWorkflowsRequest{OrganizationId: 1, Labels: map[string]string{"a": "\x00"}})), []string{"labels.a"}},
		"list, digest": {
			first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, ProgramDigest: "abc"})),
			[]string{"program_digest"},
		},
		"list, page size": {
			first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageSize: -1})),
			[]string{"page_size"},
		},
		"list, page token": {
			first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageToken: "1"})),
			[]string{"page_token"},
		},
		"history, page size": {
			first(s.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "known", PageSize: -1})),
			[]string{"page_size"},
		},
		"history, page token": {first(s.GetHistory(ctx,
			&autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "known", PageToken: "AAAAAAAAAAEAAAAAAAAAAA"})), []string{"page_token"}},
		"logs, branch": {
			first(s.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "known", Branch: &branch})),
			[]string{"branch"},
		},
		"logs, page token": {
			first(s.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "known", PageToken: "x"})),
			[]string{"page_token"},
		},
		"cancel, reason": {first(s.CancelWorkflow(ctx,
			&autoflowv1.CancelWorkflowRequest{OrganizationId: 1, WorkflowId: "known", Reason: long})), []string{"reason"}},
		"terminate, no reason": {
			first(s.TerminateWorkflow(ctx, &autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "known"})),
			[]string{"reason"},
		},
		"terminate, id": {first(s.TerminateWorkflow(ctx,
			&autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "a b", Reason: "r"})), []string{"workflow_id"}},
		"retry, reason": {first(s.RetryWorkflow(ctx,
			&autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "known", Reason: long})), []string{"reason"}},
		"retry, sequence": {first(s.RetryWorkflow(ctx,
			&autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "known", FromSequence: -1})), []string{"from_sequence"}},
		"starts, none":    {first(s.StartWorkflows(ctx, &autoflowv1.StartWorkflowsRequest{})), []string{"workflows"}},
		"event, none":     {first(s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{})), []string{"cloud_event"}},
		"event, no event": {first(s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte("{")})), []string{"cloud_event"}},
		"event, organization": {
			first(s.CloudEvent(ctx,
				&autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "organizationid", "other", 1))})),
			[]string{"cloud_event.organizationid"},
		},
		"event, version": {
			first(s.CloudEvent(ctx,
				&autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, `"1.0"`, `"0.3"`, 1))})),
			[]string{"cloud_event.specversion"},
		},
		"channel, token": {
			first(s.SendToChannel(ctx, &autoflowv1.SendToChannelRequest{OrganizationId: 1, Token: "x", Data: []byte("{")})),
			[]string{"token", "message_id", "data"},
		},
		"call, token": {
			first(s.CallChannel(ctx, &autoflowv1.CallChannelRequest{OrganizationId: 1, Token: "x", Data: []byte("{")})),
			[]string{"token", "request_id", "data"},
		},
		"call, wait": {
			first(s.CallChannel(ctx, &autoflowv1.CallChannelRequest{OrganizationId: 1, Token: "x", Wait: durationpb.New(time.Hour)})),
			[]string{"wait"},
		},
		"start, message": {
			first(s.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
				OrganizationId: 1, WorkflowId: "m", Starlark: []byte("x = 1"), Message: &autoflowv1.StartMessage{Data: []byte("{")},
			})),
			[]string{"message.message_id", "message.data"},
		},
		"check, nothing": {first(s.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{})), []string{"starlark"}},
		"flow, name": {first(s.RegisterFlow(ctx,
			&autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "A", Starlark: []byte(ticking)})), []string{"name"}},
		"flow, organization": {
			first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{Name: "a", Starlark: []byte(ticking)})),
			[]string{"organization_id"},
		},
		"flow, syntax": {first(s.RegisterFlow(ctx,
			&autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte("def")})), []string{"starlark"}},
		"flow, no handler": {first(s.RegisterFlow(ctx,
			&autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte("x = 1")})), []string{"starlark"}},
		"flow, input": {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
			OrganizationId: 1, Name: "a",
			Starlark: []byte(ticking), Inputs: []byte(`{"print": 1}`),
		})), []string{"inputs.print"}},
		"flow, secret": {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
			OrganizationId: 1, Name: "a",
			Starlark: []byte(ticking), Secrets: map[string]string{"a": "b"},
		})), []string{"secrets.a"}},
		"flow, secret's name": {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
			OrganizationId: 1, Name: "a",
			Starlark: []byte(ticking), Secrets: map[string]string{"": "env:A"},
		})), []string{"secrets"}},
		"flow, handler": {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
			OrganizationId: 1, Name: "a",
			Starlark: []byte(strings.Replace(ticking, "every(event)", "every()", 1)),
		})), []string{"starlark"}},
		"flow, circle": {first(s.RegisterFlow(ctx,
			&autoflowv1.RegisterFlowRequest{
				OrganizationId: 1, Name: "a", Starlark: []byte("load('m', 'x')" + ticking),
				Modules: map[string][]byte{"m": []byte("load('m', y = 'x')\nx = 1")},
			})), []string{"modules.m"}},
		"start, circle": {first(s.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: 1, WorkflowId: "circle",
			Starlark: []byte("load('m', 'x')"), Modules: map[string][]byte{"m": []byte("load('m', y = 'x')\nx = 1")},
		})), []string{"modules.m"}},
		"start, module": {first(s.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: 1, WorkflowId: "names",
			Starlark: []byte("x = 1"), Modules: map[string][]byte{"a\tb": nil},
		})), []string{"modules"}},
		"flow, its own end": {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{
			OrganizationId: 1, Name: "a",
			Starlark: []byte(strings.ReplaceAll(ticking, "com.example.tick", "com.gitlab.cd.workflow.completed")),
		})), []string{"starlark"}},
		"flows, page token":  {first(s.ListFlows(ctx, &autoflowv1.ListFlowsRequest{OrganizationId: 1, PageToken: "x"})), []string{"page_token"}},
		"flow, unknown name": {first(s.DeleteFlow(ctx, &autoflowv1.DeleteFlowRequest{OrganizationId: 1, Name: "A b"})), []string{"name"}},
		"watch, sequence": {func() error {
			_, _, err := drain(s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "known", AfterSequence: 7}))
			return err
		}(), []string{"after_sequence"}},
	} {
		var fields []string
		for _, d := range status.Convert(tt.err).Details() {
			if bad, ok := d.(*errdetails.BadRequest); ok {
				for _, v := range bad.GetFieldViolations() {
					fields = append(fields, v.GetField())
				}
			}
		}
		if diff := cmp.Diff(tt.want, fields); diff != "" || status.Code(tt.err) != codes.InvalidArgument {
			t.Errorf("%s: %v; fields (-want +got):\n%s", name, tt.err, diff)
		}
	}
}

// The time of an event is optional: without one, programs see the time of its arrival, and not the year 1.
func TestAnEventWithoutATimeHasThatOfItsArrival(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `print(wait_for_event("com.example.tick").time[:2])`, "")
	timeless := `{"specversion": "1.0", "id": "1", "source": "/test", "type": "com.example.tick", "organizationid": "1", "data": {}}`
	if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(timeless)}); err != nil {
		t.Fatal(err)
	}
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	logs, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil || logs.GetLines()[0].GetText() != "20" {
		t.Errorf("printed %v, error %v", logs.GetLines(), err)
	}
}

func TestErrorsNameTheReason(t *testing.T) {
	t.Parallel()
	s := start(t)
	request := func(inputs string) *autoflowv1.StartWorkflowRequest {
		return &autoflowv1.StartWorkflowRequest{OrganizationId: 1, WorkflowId: "w", Starlark: []byte("x = a"), Inputs: []byte(inputs)}
	}
	if _, err := s.StartWorkflow(t.Context(), request(`{"a": 1}`)); err != nil {
		t.Fatal(err)
	}
	_, err := s.StartWorkflow(t.Context(), request(`{"a": 2}`))
	var reason, differing string
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetDomain() + " " + d.GetReason()
		case *errdetails.BadRequest:
			differing = d.GetFieldViolations()[0].GetField()
		}
	}
	if status.Code(err) != codes.AlreadyExists || reason != "lockstep.dev CONFLICT" || differing != "inputs" {
		t.Errorf("error %v, reason %q, differing %q", err, reason, differing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
}
