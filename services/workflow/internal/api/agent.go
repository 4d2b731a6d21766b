package api

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// DeclareAgents keeps whose agents are.
func (s *Server) DeclareAgents(ctx context.Context, req *autoflowv1.DeclareAgentsRequest) (*autoflowv1.DeclareAgentsResponse, error) {
	agents := make([]agent.Agent, len(req.GetAgents()))
	for i, a := range req.GetAgents() {
		agents[i] = agent.Agent{ID: a.GetAgentId(), Organization: a.GetOrganizationId(), Revoked: a.GetRevoked()}
	}
	if err := s.declare(ctx, agents); err != nil {
		return nil, err
	}
	return &autoflowv1.DeclareAgentsResponse{}, nil
}

// bring declares the agents that a start brings with it.
func (s *Server) bring(ctx context.Context, organization int64, numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	agents := make([]agent.Agent, len(numbers))
	for i, number := range numbers {
		agents[i] = agent.Agent{ID: number, Organization: organization}
	}
	return s.declare(ctx, agents)
}

// declare stores whose agents are, if the caller may declare that: a caller of one organization could give itself the agents of
// all others. Bringing agents with a start takes the same rights as declaring them, because a declaration is permanent.
func (s *Server) declare(ctx context.Context, agents []agent.Agent) error {
	caller, known := rpc.CallerFrom(ctx)
	if !known {
		return fault.New(fault.Unauthenticated, "the call carries no known token")
	}
	if caller.Organization != 0 {
		return fault.New(fault.Denied, "agents are declared with a token of all organizations; this one is for organization %d",
			caller.Organization)
	}
	if caller.Scope < rpc.ScopeAdmin {
		return fault.New(fault.Denied, "agents are declared with a token of scope %s; this one has %s", rpc.ScopeAdmin, caller.Scope)
	}
	return s.Agents.Declare(ctx, agents)
}

// speaksForAll reports whether a caller is the domain service, or what an operator has given the same rights: all organizations, and every
// scope. A token of one organization never is, whatever its scope.
func speaksForAll(caller rpc.Caller) bool {
	return caller.Organization == 0 && caller.Scope >= rpc.ScopeAdmin
}
