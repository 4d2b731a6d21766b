package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// RegisterFlow keeps a program that events start.
func (s *Server) RegisterFlow(ctx context.Context, req *autoflowv1.RegisterFlowRequest) (*autoflowv1.RegisterFlowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	current, created, err := s.Flows.Register(ctx, flow.Flow{
		Organization: org, Name: req.GetName(), Program: program.Program{Source: req.GetStarlark(), Modules: req.GetModules()},
		Inputs: req.GetInputs(), Secrets: req.GetSecrets(), Labels: req.GetLabels(),
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.RegisterFlowResponse{Flow: flowOf(current), Created: created}, nil
}

// ListFlows answers a page of an organization's flows. The position in its token is that of the last flow's version, by
// which its name is found again: also if it was replaced or deleted meanwhile.
func (s *Server) ListFlows(ctx context.Context, req *autoflowv1.ListFlowsRequest) (*autoflowv1.ListFlowsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), defaultWorkflows, maxWorkflows)
	if err != nil {
		return nil, err
	}
	after, err := position(req.GetPageToken(), "flows", org)
	if err != nil {
		return nil, err
	}
	flows, err := s.Flows.List(ctx, org, after, size+1) // one more shows whether there is a next page
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListFlowsResponse{}
	if len(flows) > size {
		flows = flows[:size]
		resp.NextPageToken = pageToken(flows[size-1].ID, "flows", org)
	}
	for _, f := range flows {
		resp.Flows = append(resp.Flows, flowOf(f))
	}
	return resp, nil
}

// DeleteFlow ends a flow.
func (s *Server) DeleteFlow(ctx context.Context, req *autoflowv1.DeleteFlowRequest) (*autoflowv1.DeleteFlowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := s.Flows.Delete(ctx, org, req.GetName()); err != nil {
		return nil, err
	}
	return &autoflowv1.DeleteFlowResponse{}, nil
}

// SendToChannel hands a message to the run that made the channel.
func (s *Server) SendToChannel(ctx context.Context, req *autoflowv1.SendToChannelRequest) (*autoflowv1.SendToChannelResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	m := history.Message{Organization: org, Token: req.GetToken(), ID: req.GetMessageId(), Data: req.GetData()}
	if m, err = s.address(ctx, m, req.GetWorkflowId()); err != nil {
		return nil, err
	}
	if err := s.Limits.Event(org, len(m.Data)); err != nil {
		return nil, err
	}
	duplicate, err := s.Operator.SendToChannel(ctx, m)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.SendToChannelResponse{Duplicate: duplicate}, nil
}

// address has a message that names a run go to its inbox. Whose ids are for the domain service alone, those runs only it may send to.
func (s *Server) address(ctx context.Context, m history.Message, workflow string) (history.Message, error) {
	if workflow == "" {
		return m, nil
	}
	if m.Token != "" {
		return m, invalid("workflow_id", "found a token as well, expected one of them")
	}
	if caller, _ := rpc.CallerFrom(ctx); id.ReservedRun(workflow) && !speaksForAll(caller) {
		return m, fault.New(fault.Denied, "workflow_id: found %q, which only the domain service may send to", workflow)
	}
	return s.Operator.Inbox(ctx, m, workflow)
}

// callWait is how long a call waits for its answer if it does not say.
const callWait = 30 * time.Second

// CallChannel sends a message, and answers what the program replies.
func (s *Server) CallChannel(ctx context.Context, req *autoflowv1.CallChannelRequest) (*autoflowv1.CallChannelResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	wait, err := s.wait(req.GetWait())
	if err != nil {
		return nil, err
	}
	if req.GetWait() == nil {
		wait.For = callWait
	}
	m := history.Message{Organization: org, Token: req.GetToken(), ID: req.GetRequestId(), Data: req.GetData()}
	if m, err = s.address(ctx, m, req.GetWorkflowId()); err != nil {
		return nil, err
	}
	if err := s.Limits.Event(org, len(m.Data)); err != nil {
		return nil, err
	}
	answer, err := s.Operator.CallChannel(ctx, m, wait)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.CallChannelResponse{Value: answer.Value, Error: answer.Error}, nil
}

// CheckProgram says what is wrong with a program and what it uses.
func (s *Server) CheckProgram(ctx context.Context, req *autoflowv1.CheckProgramRequest) (*autoflowv1.CheckProgramResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId()) // it is 0 where the caller speaks for all and names none
	if err != nil {
		return nil, err
	}
	found, err := s.Checker.Check(ctx, org, program.Program{Source: req.GetStarlark(), Modules: req.GetModules()}, req.GetInputs())
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.CheckProgramResponse{
		Inputs: found.Outline.Inputs, Dynamic: found.Outline.Dynamic,
		Functions: uses(found.Outline.Functions), Waits: uses(found.Outline.Waits), Emits: uses(found.Outline.Emits),
		Handlers: handlers(found.Outline.Handlers),
	}
	for _, p := range found.Problems {
		resp.Problems = append(resp.Problems, &autoflowv1.Problem{Field: p.Name, Description: p.Problem})
	}
	return resp, nil
}

func uses(used []program.Use) []*autoflowv1.Use {
	shown := make([]*autoflowv1.Use, len(used))
	for i, u := range used {
		shown[i] = &autoflowv1.Use{Name: u.Name, Position: u.Position}
	}
	return shown
}

func handlers(of []program.Handler) []*autoflowv1.Handler {
	shown := make([]*autoflowv1.Handler, len(of))
	for i, h := range of {
		shown[i] = &autoflowv1.Handler{EventTypes: h.Types, Filter: h.Filter, Function: h.Function, Position: h.Position}
	}
	return shown
}

func flowOf(f flow.Flow) *autoflowv1.Flow {
	return &autoflowv1.Flow{
		Name: f.Name, OrganizationId: f.Organization, Version: int32(f.Version), ProgramDigest: f.ProgramDigest, Handlers: handlers(f.Handlers),
		RegisteredAt: timestamppb.New(f.RegisteredAt), Started: f.Started, Refused: f.Refused, LastRefusal: f.LastRefusal,
	}
}
