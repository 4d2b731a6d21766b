// Package autoflow is the domain's client of the workflow engine: handoff.Engine over the AutoFlow service. It only translates; errors
// have the class that pkg/rpc derives from the response.
package autoflow

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Engine is handoff.Engine over a connection.
type Engine struct {
	client autoflowv1.AutoFlowClient
	known  autoflowv1.ReconciliationClient
}

var (
	_ handoff.Engine    = Engine{}
	_ handoff.Workflows = Engine{}
)

// New is the engine at the other end of a connection made by rpc.Dial.
func New(conn grpc.ClientConnInterface) Engine {
	return Engine{client: autoflowv1.NewAutoFlowClient(conn), known: autoflowv1.NewReconciliationClient(conn)}
}

// Start implements handoff.Engine.
func (e Engine) Start(ctx context.Context, w handoff.Workflow) (string, error) {
	// The answer comes once the workflow is persisted (E18), so no answer means nothing: it may have been started, and
	// the same id may be sent again (E19).
	answer, err := e.client.StartWorkflow(telemetry.WithTraceParent(ctx, w.Trace), &autoflowv1.StartWorkflowRequest{
		WorkflowId: w.ID, OrganizationId: w.Organization, Starlark: w.Program.Source, Modules: w.Program.Modules,
		Inputs: w.Inputs, Labels: w.Labels,
		AgentIds: w.Agents,
	})
	if err != nil {
		return "", fmt.Errorf("start workflow %s: %w", w.ID, err)
	}
	return answer.GetWorkflowRef(), nil
}

// Cancel implements handoff.Engine.
func (e Engine) Cancel(ctx context.Context, organization int64, workflowID, reason string) error {
	_, err := e.client.CancelWorkflow(ctx, &autoflowv1.CancelWorkflowRequest{
		OrganizationId: organization,
		WorkflowId:     workflowID, Reason: reason,
	})
	if err != nil {
		return fmt.Errorf("cancel workflow %s: %w", workflowID, err)
	}
	return nil
}

// DeclareAgents implements handoff.Engine.
func (e Engine) DeclareAgents(ctx context.Context, agents []core.AgentOwner) error {
	request := &autoflowv1.DeclareAgentsRequest{Agents: make([]*autoflowv1.DeclaredAgent, len(agents))}
	for i, a := range agents {
		request.Agents[i] = &autoflowv1.DeclaredAgent{AgentId: a.AgentID, OrganizationId: a.Organization, Revoked: a.Revoked}
	}
	if _, err := e.client.DeclareAgents(ctx, request); err != nil {
		return fmt.Errorf("declare %d agents: %w", len(agents), err)
	}
	return nil
}
