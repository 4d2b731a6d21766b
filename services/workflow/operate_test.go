package workflow_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
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

// drain reads a watch to its end.
func drain(stream autoflowv1.AutoFlow_WatchWorkflowClient, err error) (entries []string, states []autoflowv1.WorkflowState, last error) {
	if err != nil {
		return nil, nil, err
	}
	for {
		news, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return entries, states, nil
		case err != nil:
			return entries, states, err
		case news.GetEntry() != nil:
			entries = append(entries, fmt.Sprintf("%d %s", news.GetEntry().GetSequence(), news.GetEntry().GetKind()))
		default:
			states = append(states, news.GetWorkflow().GetState())
		}
	}
}

// methods are a call of each method of the service, about one workflow of one organization. A method that is missing
// here fails the tests that go through all of them.
func methods(organization int64, id string) map[string]func(context.Context, autoflowv1.AutoFlowClient) error {
	first := func(_ any, err error) error { return err }
	return map[string]func(context.Context, autoflowv1.AutoFlowClient) error{
		"CloudEvent": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			text := strings.Replace(strings.Replace(cloudEvent, "ID", id, 1), `"organizationid": "1"`, fmt.Sprintf(`"organizationid": "%d"`, organization), 1)
			return first(c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)}))
		},
		"StartWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{OrganizationId: organization, WorkflowId: id, Starlark: []byte("x = 1")}))
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
		"ListWorkflows": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: organization}))
		},
		"GetHistory": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"GetLogs": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: id}))
		},
		"WatchWorkflow": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			_, _, err := drain(c.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: organization, WorkflowId: id}))
			return err
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
			return first(c.SendToChannel(ctx, &autoflowv1.SendToChannelRequest{OrganizationId: organization, Token: "ch_" + strings.Repeat("A", 26), MessageId: "1"}))
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
		"DeclareAgents": func(ctx context.Context, c autoflowv1.AutoFlowClient) error {
			return first(c.DeclareAgents(ctx, &autoflowv1.DeclareAgentsRequest{Agents: []*autoflowv1.DeclaredAgent{{AgentId: agent, OrganizationId: organization}}}))
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
			case "DeclareAgents":
				if !fault.Is(err, fault.Denied) {
					t.Errorf("%s: %v, expected a denial", method, err)
				}
			default:
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("%s: %v, expected not found", method, err)
				}
				if nothing := methods(organization, "nothing")[method](t.Context(), stranger); fmt.Sprint(nothing) != fmt.Sprint(err) {
					t.Errorf("%s: what is there answers %v, what is not %v", method, err, nothing)
				}
			}
		})
	})
	t.Run("every scope lets in what it covers", func(t *testing.T) {
		t.Parallel()
		needs := map[string]string{
			"CloudEvent": "start", "StartWorkflow": "start", "StartWorkflows": "start", "CancelWorkflow": "operate",
			"TerminateWorkflow": "operate", "RetryWorkflow": "operate", "SendToChannel": "start", "RegisterFlow": "admin", "DeleteFlow": "admin",
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
				// Read where the table has none. Whose agents are is for no token of one organization to say.
				let := at(scope) >= at(needs[method]) && method != "DeclareAgents"
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
		"get, id":              {first(s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1})), []string{"workflow_id"}},
		"list, organization":   {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{})), []string{"organization_id"}},
		"list, state":          {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, States: []autoflowv1.WorkflowState{0}})), []string{"states"}},
		"list, unknown state":  {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, States: []autoflowv1.WorkflowState{99}})), []string{"states"}},
		"list, label":          {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, Labels: map[string]string{"a": "\x00"}})), []string{"labels.a"}},
		"list, digest":         {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, ProgramDigest: "abc"})), []string{"program_digest"}},
		"list, page size":      {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageSize: -1})), []string{"page_size"}},
		"list, page token":     {first(s.ListWorkflows(ctx, &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageToken: "1"})), []string{"page_token"}},
		"history, page size":   {first(s.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "known", PageSize: -1})), []string{"page_size"}},
		"history, page token":  {first(s.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "known", PageToken: "AAAAAAAAAAEAAAAAAAAAAA"})), []string{"page_token"}},
		"logs, branch":         {first(s.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "known", Branch: &branch})), []string{"branch"}},
		"logs, page token":     {first(s.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "known", PageToken: "x"})), []string{"page_token"}},
		"cancel, reason":       {first(s.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{OrganizationId: 1, WorkflowId: "known", Reason: long})), []string{"reason"}},
		"terminate, no reason": {first(s.TerminateWorkflow(ctx, &autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "known"})), []string{"reason"}},
		"terminate, id":        {first(s.TerminateWorkflow(ctx, &autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "a b", Reason: "r"})), []string{"workflow_id"}},
		"retry, reason":        {first(s.RetryWorkflow(ctx, &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "known", Reason: long})), []string{"reason"}},
		"retry, sequence":      {first(s.RetryWorkflow(ctx, &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "known", FromSequence: -1})), []string{"from_sequence"}},
		"starts, none":         {first(s.StartWorkflows(ctx, &autoflowv1.StartWorkflowsRequest{})), []string{"workflows"}},
		"event, none":          {first(s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{})), []string{"cloud_event"}},
		"event, no event":      {first(s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte("{")})), []string{"cloud_event"}},
		"event, organization":  {first(s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "organizationid", "other", 1))})), []string{"cloud_event.organizationid"}},
		"channel, token":       {first(s.SendToChannel(ctx, &autoflowv1.SendToChannelRequest{OrganizationId: 1, Token: "x", Data: []byte("{")})), []string{"token", "message_id", "data"}},
		"check, nothing":       {first(s.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{})), []string{"starlark"}},
		"flow, name":           {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "A", Starlark: []byte(ticking)})), []string{"name"}},
		"flow, organization":   {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{Name: "a", Starlark: []byte(ticking)})), []string{"organization_id"}},
		"flow, syntax":         {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte("def")})), []string{"starlark"}},
		"flow, no handler":     {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte("x = 1")})), []string{"starlark"}},
		"flow, input":          {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte(ticking), Inputs: []byte(`{"print": 1}`)})), []string{"inputs.print"}},
		"flow, secret":         {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte(ticking), Secrets: map[string]string{"a": "b"}})), []string{"secrets.a"}},
		"flow, its own end":    {first(s.RegisterFlow(ctx, &autoflowv1.RegisterFlowRequest{OrganizationId: 1, Name: "a", Starlark: []byte(strings.ReplaceAll(ticking, "com.example.tick", "com.gitlab.cd.workflow.completed"))})), []string{"starlark"}},
		"flows, page token":    {first(s.ListFlows(ctx, &autoflowv1.ListFlowsRequest{OrganizationId: 1, PageToken: "x"})), []string{"page_token"}},
		"flow, unknown name":   {first(s.DeleteFlow(ctx, &autoflowv1.DeleteFlowRequest{OrganizationId: 1, Name: "A b"})), []string{"name"}},
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

func TestErrorsSayWhy(t *testing.T) {
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
	if _, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
}

func TestConcurrentStartsOfOneIDStartOneRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	var mu sync.Mutex
	created, refs := 0, map[string]bool{}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			resp := s.submit("one", "x = 1", "")
			mu.Lock()
			defer mu.Unlock()
			refs[resp.GetWorkflowRef()] = true
			if resp.GetCreated() {
				created++
			}
		})
	}
	callers.Wait()
	if created != 1 || len(refs) != 1 {
		t.Errorf("%d starts created a run, and there are %d handles; expected one of each", created, len(refs))
	}
}

func TestStartWorkflows(t *testing.T) {
	t.Parallel()
	s := start(t)
	request := &autoflowv1.StartWorkflowsRequest{}
	for i := range 40 {
		request.Workflows = append(request.Workflows, &autoflowv1.StartWorkflowRequest{OrganizationId: 1, WorkflowId: fmt.Sprintf("w%d", i%39), Starlark: []byte("x = 1")})
	}
	request.Workflows[7].Starlark = []byte("def")
	resp, err := s.StartWorkflows(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	for i, r := range resp.GetResults() {
		switch {
		case i == 7:
			if r.GetRefused().GetCode() != int32(codes.InvalidArgument) || !strings.Contains(r.GetRefused().GetFields()["starlark"], "main.star:1:") {
				t.Errorf("the seventh: %v", r)
			}
		case r.GetStarted().GetCreated():
			created++
		}
	}
	if created != 38 {
		t.Errorf("%d were created, expected 38", created)
	}
}

func TestListWorkflows(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, program := range []string{"x = 1", `wait_for_event("a.b")`, `fail("no")`, "x = 1", `wait_for_event("a.b")`} {
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: 1, WorkflowId: fmt.Sprintf("w%d", i), Starlark: []byte(program), Labels: map[string]string{"parity": fmt.Sprint(i % 2), "all": "yes"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.submit("unlabelled", "x = 1", "")
	const completed, parked, failed = autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED, autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED
	for id, state := range map[string]autoflowv1.WorkflowState{"w0": completed, "w1": parked, "w2": failed, "w3": completed, "w4": parked, "unlabelled": completed} {
		s.await(id, state)
	}
	sum := sha256.Sum256([]byte("x = 1"))
	for name, tt := range map[string]struct {
		request *autoflowv1.ListWorkflowsRequest
		want    string
	}{
		"all":                {&autoflowv1.ListWorkflowsRequest{}, "unlabelled w4 w3 w2 w1 w0"},
		"by state":           {&autoflowv1.ListWorkflowsRequest{States: []autoflowv1.WorkflowState{parked, failed}}, "w4 w2 w1"},
		"failed":             {&autoflowv1.ListWorkflowsRequest{States: []autoflowv1.WorkflowState{failed}}, "w2"},
		"by label":           {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"parity": "0"}}, "w4 w2 w0"},
		"by labels":          {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"parity": "1", "all": "yes"}}, "w3 w1"},
		"by label and state": {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"all": "yes"}, States: []autoflowv1.WorkflowState{completed}}, "w3 w0"},
		"by program":         {&autoflowv1.ListWorkflowsRequest{ProgramDigest: hex.EncodeToString(sum[:])}, "unlabelled w3 w0"},
		"none":               {&autoflowv1.ListWorkflowsRequest{Labels: map[string]string{"all": "no"}}, ""},
	} {
		for _, size := range []int32{0, 1, 2} {
			tt.request.OrganizationId, tt.request.PageSize, tt.request.PageToken = 1, size, ""
			var found []string
			for {
				page, err := s.ListWorkflows(t.Context(), tt.request)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, w := range page.GetWorkflows() {
					found = append(found, w.GetWorkflowId())
				}
				if tt.request.PageToken = page.GetNextPageToken(); page.GetNextPageToken() == "" {
					break
				}
			}
			if got := strings.Join(found, " "); got != tt.want {
				t.Errorf("%s, %d a page: found %q, expected %q", name, size, got, tt.want)
			}
		}
	}
	page, err := s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{OrganizationId: 1, PageToken: page.GetNextPageToken(), Labels: map[string]string{"all": "yes"}})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("the token of another list: %v", err)
	}
}

func TestGetWorkflowSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `spawn(lambda: sleep(seconds = 600))
spawn(lambda: run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}))
wait_for_event(["a.b", "c.d"], {"n": 1, "s": "x"})`, "")
	w := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	var found []string
	for _, wait := range w.GetWaits() {
		if !wait.GetUntil().AsTime().After(wait.GetSince().AsTime()) {
			t.Errorf("since %s until %s", wait.GetSince().AsTime(), wait.GetUntil().AsTime())
		}
		found = append(found, strings.TrimSpace(fmt.Sprintf("%d %s %s%v %d", wait.GetBranch(), wait.GetKind(), wait.GetName(), wait.GetEventTypes(), wait.GetAgentId())))
	}
	want := []string{"0 wait [a.b c.d] 0", "1 sleep [] 0", "2 run k8s.get[] 7"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"n": "1", "s": `"x"`}, w.GetWaits()[0].GetFilter()); diff != "" || len(w.GetWaitingFor()) != 3 {
		t.Errorf("%d sentences; filter (-want +got):\n%s", len(w.GetWaitingFor()), diff)
	}
}

func TestGetLogs(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Error: &event.CallError{Code: "forbidden", Message: "no, with token=hunter2"}}
	})
	s.submit("w", `print("one", now())
def other():
    print("https://me:hunter2@git.example.com and Bearer abcdefgh1234")
    print("x" * 5000)
gather(spawn(other))
run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"})`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	read := func(branch *int32) (lines []string) {
		for token := ""; ; {
			page, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "w", Branch: branch, PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page.GetLines() {
				if strings.Contains(l.GetText(), "hunter2") {
					t.Errorf("a secret in the log: %s", l.GetText())
				}
				text := l.GetText()
				if len(text) > 70 {
					text = fmt.Sprintf("%d bytes", len(text))
				}
				lines = append(lines, fmt.Sprintf("%d %s %s %s %s%t %t", l.GetBranch(), l.GetKind(), l.GetName(), l.GetCode(), text, l.GetTruncated(), l.GetRedacted()))
			}
			if token = page.GetNextPageToken(); token == "" {
				return lines
			}
		}
	}
	one := int32(1)
	want := []string{
		"1 print   https://[redacted]@git.example.com and Bearer [redacted]false true",
		"1 print   4103 bytestrue false",
	}
	if diff := cmp.Diff(want, read(&one)); diff != "" {
		t.Errorf("branch 1 (-want +got):\n%s", diff)
	}
	all := read(nil)
	if len(all) != 5 || !strings.HasPrefix(all[3], "0 run k8s.get forbidden no, with token=[redacted]") || !strings.HasPrefix(all[4], "-1 failed ") {
		t.Errorf("all:\n%s", strings.Join(all, "\n"))
	}
}

func TestThePollsOfAWorkflowAreInItsLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	s.submit("w", `poll("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}, until = lambda seen: seen.found, interval = 1)`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	page, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil || len(page.GetLines()) != 2 || page.GetLines()[0].GetKind() != "poll" || page.GetLines()[0].GetName() != "k8s.get" {
		t.Errorf("lines %v, error %v", page.GetLines(), err)
	}
}

func TestWatchWorkflow(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `print("one")
wait_for_event("com.example.tick", {"n": 1})
print("two")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)

	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	watch := func(after int64) autoflowv1.AutoFlow_WatchWorkflowClient {
		stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "w", AfterSequence: after})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	whole, late := watch(0), watch(1)
	for i, want := range []string{"PARKED", "print"} {
		news, err := whole.Recv()
		if got := news.GetWorkflow().GetState().String() + news.GetEntry().GetKind(); err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("news %d: %v, error %v; expected %s", i, news, err, want)
		}
	}
	if _, err := s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", "1", 1))}); err != nil {
		t.Fatal(err)
	}
	rest := []string{"2 wait", "3 print", "4 completed"}
	for name, stream := range map[string]autoflowv1.AutoFlow_WatchWorkflowClient{"from the beginning": whole, "from the first entry": late, "after the end": watch(1)} {
		entries, states, err := drain(stream, nil)
		if diff := cmp.Diff(rest, entries); diff != "" || err != nil || states[len(states)-1] != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
			t.Errorf("%s: states %v, error %v, entries (-want +got):\n%s", name, states, err, diff)
		}
	}

	// A service that stops says so; the client goes on where it was.
	s.submit("long", `wait_for_event("com.example.never")`, "")
	stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "long"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	s.down()
	if _, _, err := drain(stream, nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while the service stops: %v", err)
	}
}

// Where a program has failed is for whoever looks at it, by positions and names alone: a value may be a secret.
func TestAFailedRunSaysWhichCallsLedThere(t *testing.T) {
	t.Parallel()
	s := start(t)
	told := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), told)
	request := &autoflowv1.StartWorkflowRequest{
		OrganizationId: 1, WorkflowId: "w", Inputs: []byte(`{"password": "hunter2hunter2"}`),
		Starlark: []byte("load('lib.star', 'call')\ndef deploy(secret):\n    sleep(0.01)\n    call(secret)\ngather(spawn(deploy, password))"),
		Modules:  map[string][]byte{"lib.star": []byte("def call(value):\n    fail('refused')\n")},
	}
	if _, err := s.StartWorkflow(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	got, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*autoflowv1.StackFrame{
		{Branch: 1, Function: "call", Position: "lib.star:2:9"}, {Branch: 1, Function: "deploy", Position: "main.star:4:9"}, {Function: "<toplevel>", Position: "main.star:5:13"},
	}
	if diff := cmp.Diff(want, got.GetWorkflow().GetStack(), protocmp.Transform()); diff != "" {
		t.Errorf("stack (-want +got):\n%s", diff)
	}
	history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if all := protojson.Format(history) + protojson.Format(got); strings.Contains(all, "hunter2") {
		t.Errorf("a value is shown: %s", all)
	}
	// The world is told what has failed, and needs no place in a program.
	failed, err := event.Decode[event.WorkflowFailed](next(t, told, event.TypeWorkflowFailed))
	if want := (event.WorkflowFailed{WorkflowID: "w", Error: "lib.star:2:9: fail: refused"}); err != nil || failed != want {
		t.Errorf("told %+v, error %v", failed, err)
	}
}

// A watcher is told what a workflow waits for whenever that is something else, behind the entries that led there and once.
func TestAWatcherSeesEachWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("w", `wait_for_event("com.example.tick", {"n": 1})
wait_for_event("com.example.never")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stream, err := s.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || len(first.GetWorkflow().GetWaits()) != 1 {
		t.Fatalf("told first %v, error %v", first, err)
	}
	if _, err := s.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", "1", 1))}); err != nil {
		t.Fatal(err)
	}
	entered := false
	for {
		news, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		w := news.GetWorkflow()
		switch {
		case w == nil:
			entered = true
		case w.GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED && len(w.GetWaits()) == 1 && w.GetWaits()[0].GetEventTypes()[0] == "com.example.never":
			if !entered {
				t.Error("told what it waits for before the entry that led there")
			}
			return
		}
	}
}

func TestTerminateWorkflow(t *testing.T) {
	t.Parallel()
	s := start(t)
	told := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), told)
	s.submit("w", `wait_for_event("com.example.never")`, "")
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	for range 2 {
		resp, err := s.TerminateWorkflow(t.Context(), &autoflowv1.TerminateWorkflowRequest{OrganizationId: 1, WorkflowId: "w", Reason: "stuck"})
		if w := resp.GetWorkflow(); err != nil || w.GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_TERMINATED || w.GetError() != "terminated: stuck" {
			t.Errorf("%v, error %v", w, err)
		}
	}
	failed, err := event.Decode[event.WorkflowFailed](next(t, told, event.TypeWorkflowFailed))
	if want := (event.WorkflowFailed{WorkflowID: "w", Error: "terminated: stuck"}); err != nil || failed != want {
		t.Errorf("told %+v, error %v", failed, err)
	}
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "w"}); !fault.Is(err, fault.Refused) {
		t.Errorf("retry of a terminated workflow: %v", err)
	}
}

// TestRetryGoesOnFromTheFailedStep is E29: the first step is not done again, the second is, under an id of its own, and
// each end of the run is told.
func TestRetryGoesOnFromTheFailedStep(t *testing.T) {
	t.Parallel()
	s := start(t)
	told := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), told)
	var mu sync.Mutex
	var calls []string
	mended := false
	s.relay(func(call event.FunctionCalled) event.FunctionCompleted {
		mu.Lock()
		defer mu.Unlock()
		_, op, _ := strings.Cut(call.CallID, "/")
		attempt := ""
		if strings.Contains(call.CallID, "~") {
			attempt = call.CallID[strings.Index(call.CallID, "~"):strings.Index(call.CallID, "/")] + "/"
		}
		if id := attempt + op; !slices.Contains(calls, id) { // one that is answered late is sent again
			calls = append(calls, id)
		}
		if strings.HasSuffix(call.CallID, "/0.2") && !mended {
			return event.FunctionCompleted{Error: &event.CallError{Code: "forbidden", Message: "not yet"}}
		}
		return event.FunctionCompleted{Value: json.RawMessage(`{"found":true}`)}
	})
	s.submit("w", `def get(name):
    return run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": name})
get("a")
wait_for_event("com.example.tick", {"n": 1})
second = get("b")
print(second.found)
wait_for_event("com.example.tick", {"n": 1})`, "")
	send := func(id string) {
		t.Helper()
		if _, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(strings.Replace(cloudEvent, "ID", id, 1))}); err != nil {
			t.Fatal(err)
		}
	}
	retry := func(from int64) *autoflowv1.Workflow {
		t.Helper()
		resp, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "w", Reason: "mended", FromSequence: from})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetWorkflow()
	}
	send("1")
	failed := s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	first := next(t, told, event.TypeWorkflowFailed)

	retry(0) // nothing was mended: it fails at the same place, and says so again
	s.eventually("it has failed again", func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
		return err == nil && resp.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED && len(resp.GetWorkflow().GetRetries()) == 1
	})
	if second := next(t, told, event.TypeWorkflowFailed); second.ID() == first.ID() {
		t.Errorf("both failures are told by event %s", second.ID())
	}
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: "w", FromSequence: 9}); fault.FieldsOf(err)[0].Name != "from_sequence" {
		t.Errorf("from beyond the end: %v", err)
	}

	mu.Lock()
	mended = true
	mu.Unlock()
	w := retry(2) // also the wait: it is for another event than the one it had
	if w.GetFinishedAt() != nil || w.GetError() != "" || w.GetLastSequence() > 2 {
		t.Errorf("after the retry: %v", w)
	}
	s.eventually("it waits for the first event again", func(ctx context.Context) bool {
		resp, err := s.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "w"})
		return err == nil && resp.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED && resp.GetWorkflow().GetLastSequence() == 1
	})
	send("2")
	send("3")
	w = s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	next(t, told, event.TypeWorkflowCompleted)
	var retries []string
	for _, r := range w.GetRetries() {
		retries = append(retries, fmt.Sprintf("%d %s %t", r.GetFromSequence(), r.GetReason(), r.GetError() == failed.GetError()))
	}
	if diff := cmp.Diff([]string{"3 mended true", "2 mended true"}, retries); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"0.0", "0.2", "~2/0.2", "~3/0.2"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
