// Package api implements the AutoFlow service over gRPC. It translates and authorizes; the rules are core's.
//
// It has no state: everything it returns was read from the store after the request arrived.
package api

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// Deps are what a Server works with.
type Deps struct {
	Operator  *control.Operator
	Flows     *flow.Flows
	Schedules *schedule.Schedules
	Batches   *batch.Batches
	Agents    *agent.Registry
	Checker   control.ProgramChecker
	Workers   *worker.Hub
	Types     *eventtype.Types
	Limits    *limit.Limiter
	Retention *retention.Retention
	// Archive has the runs that Retention has deleted; nil if none is configured.
	Archive control.Archive
	// Functions are those that come with the service.
	Functions []Builtin
	// FromWire turns a checked CloudEvent into one of core's.
	FromWire func(event.Event) (history.Event, error)
	// Stopping is closed when the server stops: streams, which have no end of their own, end then, and so does waiting for the end
	// of a run.
	Stopping <-chan struct{}
}

// Server implements autoflowv1.AutoFlowServer.
type Server struct {
	autoflowv1.UnimplementedAutoFlowServer
	Deps
}

var _ autoflowv1.AutoFlowServer = (*Server)(nil)

// New makes a Server.
func New(d Deps) *Server { return &Server{Deps: d} }

// Scopes are what each method asks of a token (rpc.ServerConfig). Who may start workflows may also send them events;
// to interfere with a workflow of another caller takes more.
func Scopes() map[string]rpc.Scope {
	return map[string]rpc.Scope{
		autoflowv1.AutoFlow_GetWorkflow_FullMethodName:           rpc.ScopeRead,
		autoflowv1.AutoFlow_ListWorkflows_FullMethodName:         rpc.ScopeRead,
		autoflowv1.AutoFlow_GetHistory_FullMethodName:            rpc.ScopeRead,
		autoflowv1.AutoFlow_GetLogs_FullMethodName:               rpc.ScopeRead,
		autoflowv1.AutoFlow_GetTimeline_FullMethodName:           rpc.ScopeRead,
		autoflowv1.AutoFlow_WatchWorkflow_FullMethodName:         rpc.ScopeRead,
		autoflowv1.AutoFlow_CloudEvent_FullMethodName:            rpc.ScopeStart,
		autoflowv1.AutoFlow_StartWorkflow_FullMethodName:         rpc.ScopeStart,
		autoflowv1.AutoFlow_StartWorkflows_FullMethodName:        rpc.ScopeStart,
		autoflowv1.AutoFlow_CancelWorkflow_FullMethodName:        rpc.ScopeOperate,
		autoflowv1.AutoFlow_TerminateWorkflow_FullMethodName:     rpc.ScopeOperate,
		autoflowv1.AutoFlow_RetryWorkflow_FullMethodName:         rpc.ScopeOperate,
		autoflowv1.AutoFlow_ResetWorkflow_FullMethodName:         rpc.ScopeOperate,
		autoflowv1.AutoFlow_ChangeProgram_FullMethodName:         rpc.ScopeAdmin,
		autoflowv1.AutoFlow_ExportWorkflow_FullMethodName:        rpc.ScopeOperate,
		autoflowv1.AutoFlow_ListArchivedWorkflows_FullMethodName: rpc.ScopeOperate,
		autoflowv1.AutoFlow_CheckProgram_FullMethodName:          rpc.ScopeRead,
		autoflowv1.AutoFlow_ListFlows_FullMethodName:             rpc.ScopeRead,
		autoflowv1.AutoFlow_SendToChannel_FullMethodName:         rpc.ScopeStart,
		autoflowv1.AutoFlow_CallChannel_FullMethodName:           rpc.ScopeStart,
		autoflowv1.AutoFlow_RegisterFlow_FullMethodName:          rpc.ScopeAdmin,
		autoflowv1.AutoFlow_DeleteFlow_FullMethodName:            rpc.ScopeAdmin,
		autoflowv1.AutoFlow_DeclareAgents_FullMethodName:         rpc.ScopeAdmin,
		autoflowv1.AutoFlow_CountWorkflows_FullMethodName:        rpc.ScopeRead,
		autoflowv1.AutoFlow_StartBatch_FullMethodName:            rpc.ScopeOperate,
		autoflowv1.AutoFlow_GetBatch_FullMethodName:              rpc.ScopeRead,
		autoflowv1.AutoFlow_ListBatches_FullMethodName:           rpc.ScopeRead,
		autoflowv1.AutoFlow_StopBatch_FullMethodName:             rpc.ScopeOperate,
		autoflowv1.AutoFlow_GetSchedule_FullMethodName:           rpc.ScopeRead,
		autoflowv1.AutoFlow_ListSchedules_FullMethodName:         rpc.ScopeRead,
		autoflowv1.AutoFlow_PauseSchedule_FullMethodName:         rpc.ScopeOperate,
		autoflowv1.AutoFlow_ResumeSchedule_FullMethodName:        rpc.ScopeOperate,
		autoflowv1.AutoFlow_BackfillSchedule_FullMethodName:      rpc.ScopeOperate,
		autoflowv1.AutoFlow_TriggerSchedule_FullMethodName:       rpc.ScopeOperate,
		autoflowv1.AutoFlow_RegisterSchedule_FullMethodName:      rpc.ScopeAdmin,
		autoflowv1.AutoFlow_DeleteSchedule_FullMethodName:        rpc.ScopeAdmin,
		autoflowv1.AutoFlow_Work_FullMethodName:                  rpc.ScopeWork,
		autoflowv1.AutoFlow_DeclareEventType_FullMethodName:      rpc.ScopeAdmin,
		autoflowv1.AutoFlow_DeleteEventType_FullMethodName:       rpc.ScopeAdmin,
		autoflowv1.AutoFlow_ListEventTypes_FullMethodName:        rpc.ScopeRead,
		autoflowv1.AutoFlow_ListFunctions_FullMethodName:         rpc.ScopeRead,
		autoflowv1.AutoFlow_GetLimits_FullMethodName:             rpc.ScopeRead,
		autoflowv1.AutoFlow_ListLimitUse_FullMethodName:          rpc.ScopeRead,
		autoflowv1.AutoFlow_SetLimits_FullMethodName:             rpc.ScopeAdmin,
		autoflowv1.AutoFlow_ListRetention_FullMethodName:         rpc.ScopeRead,
		autoflowv1.AutoFlow_SetRetention_FullMethodName:          rpc.ScopeAdmin,

		autoflowv1.Reconciliation_ListReports_FullMethodName:   rpc.ScopeOperate,
		autoflowv1.Reconciliation_RepeatReports_FullMethodName: rpc.ScopeOperate,
		autoflowv1.Reconciliation_ListPassages_FullMethodName:  rpc.ScopeOperate,
		autoflowv1.Reconciliation_ListCommits_FullMethodName:   rpc.ScopeOperate,
	}
}

// organization is the one that a request is about: the one it names, or the caller's. What belongs to others does not
// exist for the caller, so the answer is the one about what does not exist; what is named is not even searched for.
func organization(ctx context.Context, named int64) (int64, error) {
	caller, known := rpc.CallerFrom(ctx)
	switch {
	case !known:
		return 0, fault.New(fault.Unauthenticated, "the call carries no known token")
	case caller.Organization != 0 && named == 0:
		return caller.Organization, nil
	case caller.Organization != 0 && caller.Organization != named:
		return 0, fault.New(fault.NotFound, "there is nothing of organization %d that this token may see", named)
	}
	return named, nil
}

// invalid is an error about one field.
func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}
