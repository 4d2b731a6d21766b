package api

import (
	"context"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// CancelWorkflow ends a run.
func (s *Server) CancelWorkflow(ctx context.Context, req *autoflowv1.CancelWorkflowRequest) (*autoflowv1.CancelWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := s.Operator.Cancel(ctx, org, req.GetWorkflowId(), req.GetReason()); err != nil {
		return nil, err
	}
	return &autoflowv1.CancelWorkflowResponse{}, nil
}

// TerminateWorkflow ends a run without asking it.
func (s *Server) TerminateWorkflow(
	ctx context.Context, req *autoflowv1.TerminateWorkflowRequest,
) (*autoflowv1.TerminateWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	v, err := s.Operator.Terminate(ctx, org, req.GetWorkflowId(), req.GetReason())
	if err != nil {
		return nil, err
	}
	return &autoflowv1.TerminateWorkflowResponse{Workflow: view(v)}, nil
}

// RetryWorkflow continues a failed run.
func (s *Server) RetryWorkflow(ctx context.Context, req *autoflowv1.RetryWorkflowRequest) (*autoflowv1.RetryWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	v, err := s.Operator.Retry(ctx, control.RetryRequest{
		Organization: org, Workflow: req.GetWorkflowId(), Reason: req.GetReason(), From: req.GetFromSequence(),
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.RetryWorkflowResponse{Workflow: view(v)}, nil
}

// ResetWorkflow starts a run that continues from an entry of one that has ended.
func (s *Server) ResetWorkflow(ctx context.Context, req *autoflowv1.ResetWorkflowRequest) (*autoflowv1.ResetWorkflowResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := mayStart(ctx, req.GetNewWorkflowId()); err != nil {
		return nil, err
	}
	v, created, err := s.Operator.Reset(ctx, control.ResetRequest{
		Organization: org, Workflow: req.GetWorkflowId(), New: req.GetNewWorkflowId(), To: req.GetToSequence(), Reason: req.GetReason(),
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.ResetWorkflowResponse{Workflow: view(v), Created: created}, nil
}

// ChangeProgram gives a run that waits another program.
func (s *Server) ChangeProgram(ctx context.Context, req *autoflowv1.ChangeProgramRequest) (*autoflowv1.ChangeProgramResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	v, err := s.Operator.ChangeProgram(ctx, control.ChangeRequest{
		Organization: org, Workflow: req.GetWorkflowId(), Reason: req.GetReason(), By: callerName(ctx), DryRun: req.GetDryRun(),
		Program: program.Program{Source: req.GetStarlark(), Modules: req.GetModules()},
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.ChangeProgramResponse{Workflow: view(v)}, nil
}
