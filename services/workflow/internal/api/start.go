package api

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// StartWorkflow stores a run, and on request answers once that has ended.
func (s *Server) StartWorkflow(ctx context.Context, req *autoflowv1.StartWorkflowRequest) (*autoflowv1.StartWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := mayStart(ctx, req.GetWorkflowId()); err != nil {
		return nil, err
	}
	wait, err := s.wait(req.GetWait())
	if err != nil {
		return nil, err
	}
	// Before the start: the program may call them with its first step.
	if err := s.bring(ctx, org, req.GetAgentIds()); err != nil {
		return nil, err
	}
	start := execution.Start{
		Organization: org,
		Workflow:     req.GetWorkflowId(),
		Program:      program.Program{Source: req.GetStarlark(), Modules: req.GetModules()},
		Inputs:       req.GetInputs(),
		Secrets:      req.GetSecrets(),
		Labels:       req.GetLabels(),
		Trace:        telemetry.RecordedTrace(ctx),
	}
	if m := req.GetMessage(); m != nil {
		start.Message = &history.Message{ID: m.GetMessageId(), Data: m.GetData()}
	}
	if req.GetWait() == nil {
		started, err := s.Operator.Start(ctx, start)
		if err != nil {
			return nil, err
		}
		return receipt(started), nil
	}
	started, v, err := s.Operator.StartAndAwait(ctx, start, wait)
	if err != nil {
		return nil, err
	}
	resp := receipt(started)
	resp.Workflow = view(v)
	return resp, nil
}

// mayStart refuses the ids of the domain service's runs to everybody else: a run with such an id would take the place of a rollout's, and
// what it emits would be believed about that rollout (D47).
func mayStart(ctx context.Context, workflow string) error {
	if id.IsChildRun(workflow) {
		return fault.New(fault.Denied, "workflow_id: found %q, expected another id: only programs start children", workflow)
	}
	caller, _ := rpc.CallerFrom(ctx)
	if id.ScheduledRun(workflow) {
		return fault.New(fault.Denied, "workflow_id: found %q, expected another id: only schedules start runs with such ids", workflow)
	}
	if !id.ReservedRun(workflow) || speaksForAll(caller) {
		return nil
	}
	return fault.New(
		fault.Denied, "workflow_id: found %q, expected another id: those of rollouts, previews, onboardings and setups need a token of all "+
			"organizations and scope %s", workflow, rpc.ScopeAdmin,
	)
}

func receipt(s execution.Started) *autoflowv1.StartWorkflowResponse {
	return &autoflowv1.StartWorkflowResponse{WorkflowId: s.Workflow, WorkflowRef: s.Ref, Created: s.Created}
}

// wait is how long a request waits; one without it does not.
func (s *Server) wait(asked *durationpb.Duration) (control.Wait, error) {
	if asked != nil && !asked.IsValid() {
		return control.Wait{}, invalid("wait", "found %d seconds and %d nanoseconds, expected a duration", asked.GetSeconds(), asked.GetNanos())
	}
	return control.Wait{For: asked.AsDuration(), Stopping: s.Stopping}, nil
}

const (
	maxStarts = 1000
	// startsAtOnce is how many starts of one request are under way together; they share the store's commits, whose number it decides.
	startsAtOnce = 256
)

// StartWorkflows stores several runs.
func (s *Server) StartWorkflows(ctx context.Context, req *autoflowv1.StartWorkflowsRequest) (*autoflowv1.StartWorkflowsResponse, error) {
	starts := req.GetWorkflows()
	if len(starts) == 0 || len(starts) > maxStarts {
		return nil, invalid("workflows", "found %d, expected 1 to %d", len(starts), maxStarts)
	}
	results := make([]*autoflowv1.StartResult, len(starts))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(startsAtOnce, len(starts)) {
		workers.Go(func() {
			for i := range next {
				results[i] = s.startOne(ctx, starts[i])
			}
		})
	}
	for i := range starts {
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil { // some were started; to send the request again is harmless (E19)
		return nil, fmt.Errorf("start %d workflows: %w", len(starts), ctx.Err())
	}
	return &autoflowv1.StartWorkflowsResponse{Results: results}, nil
}

// startOne is one start of several. Its refusal is an answer like another.
func (s *Server) startOne(ctx context.Context, req *autoflowv1.StartWorkflowRequest) *autoflowv1.StartResult {
	var started *autoflowv1.StartWorkflowResponse
	var err error
	if req.GetWait() == nil {
		started, err = s.StartWorkflow(ctx, req)
	} else {
		err = invalid("wait", "found %s, expected none: to wait for the end, start by StartWorkflow", req.GetWait().AsDuration())
	}
	if err == nil {
		return &autoflowv1.StartResult{Outcome: &autoflowv1.StartResult_Started{Started: started}}
	}
	row := fault.Describe(fault.ClassOf(err))
	refused := &autoflowv1.StartRefusal{Code: int32(row.GRPC), Reason: row.GraphQL, Message: fault.Public(err), Fields: map[string]string{}}
	for _, f := range fault.FieldsOf(err) {
		refused.Fields[f.Name] = f.Problem
	}
	return &autoflowv1.StartResult{Outcome: &autoflowv1.StartResult_Refused{Refused: refused}}
}
