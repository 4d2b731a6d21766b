package api

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// maxValue is where a value is cut for reading, in bytes.
const maxValue = 64 << 10

// view is a run as the API shows it.
func view(v control.View) *autoflowv1.Workflow {
	w := &autoflowv1.Workflow{
		WorkflowId: v.Workflow, WorkflowRef: v.Ref, OrganizationId: v.Organization, State: state(v.State), Error: v.Error,
		Labels: v.Labels, Status: v.Status, ProgramDigest: v.Program,
		CreatedAt: timestamppb.New(v.CreatedAt), UpdatedAt: timestamppb.New(v.UpdatedAt),
		LastSequence: v.LastSeq, Generation: int32(v.Generation), GenerationSequence: v.Base + 1,
	}
	if !v.EndedAt.IsZero() {
		w.FinishedAt = timestamppb.New(v.EndedAt)
	}
	for _, waiting := range v.Waiting {
		w.WaitingFor = append(w.WaitingFor, waiting.Sentence())
		w.Waits = append(w.Waits, &autoflowv1.Wait{
			Branch: int32(waiting.Op.Branch), Kind: string(waiting.Kind), Name: waiting.Name, EventTypes: waiting.Types, Filter: waiting.Filter,
			AgentId: waiting.Agent, Attempt: int32(waiting.Attempt), Since: timestamppb.New(waiting.Since), Until: timestamppb.New(waiting.Due),
		})
	}
	for _, f := range v.Stack {
		w.Stack = append(w.Stack, &autoflowv1.StackFrame{Branch: int32(f.Branch), Function: f.Function, Position: f.Position})
	}
	for _, c := range v.Changes {
		w.ProgramChanges = append(w.ProgramChanges, &autoflowv1.ProgramChange{
			At: timestamppb.New(c.At), Reason: c.Reason, ChangedBy: c.By, ReplacedDigest: c.Replaced, LastSequence: c.LastSeq,
		})
	}
	for _, r := range v.Retries {
		w.Retries = append(w.Retries, &autoflowv1.Retry{At: timestamppb.New(r.At), Reason: r.Reason, Error: r.Error, FromSequence: r.From})
	}
	return w
}

// historyEntry is an entry as people read it. What is cut here is whole in the store, which is what replay reads.
func historyEntry(e history.Entry) (*autoflowv1.HistoryEntry, error) {
	value, truncated := string(e.Value), false
	if e.Error != nil {
		b, err := json.Marshal(map[string]*history.FunctionError{"error": e.Error})
		if err != nil {
			return nil, fmt.Errorf("encode entry %d: %w", e.Seq, err)
		}
		value = string(b)
	}
	// The token of a channel allows sending to it, which readers may not. Generations hand channels on to the next one, and runs to
	// their children.
	if e.Kind == history.KindChannel || e.Kind == history.KindContinue || e.Kind == history.KindStart {
		value = history.ConcealTokens(value)
	}
	if len(value) > maxValue {
		value, truncated = strings.ToValidUTF8(value[:maxValue], ""), true // not in the middle of a character
	}
	return &autoflowv1.HistoryEntry{
		Sequence: e.Seq, Branch: int32(e.Op.Branch), Kind: string(e.Kind), Name: e.Name, Value: value, Truncated: truncated,
		RecordedAt: timestamppb.New(e.At),
		Generation: int32(e.Generation), RetriesCount: int32(e.Tries.Failed()), Retries: retries(e.Tries),
	}, nil
}

func logLine(l control.LogLine) *autoflowv1.LogLine {
	return &autoflowv1.LogLine{
		Sequence: l.Seq, Branch: int32(l.Branch), Kind: string(l.Kind), Name: l.Name, Text: l.Text, Code: l.Code,
		Truncated: l.Truncated, Redacted: l.Redacted, RecordedAt: timestamppb.New(l.At), Generation: int32(l.Generation),
	}
}

// states keeps the states of runs and those of the contract apart: neither may change because of the other.
func states() map[execution.State]autoflowv1.WorkflowState {
	return map[execution.State]autoflowv1.WorkflowState{
		execution.Running:     autoflowv1.WorkflowState_WORKFLOW_STATE_RUNNING,
		execution.Parked:      autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED,
		execution.Completed:   autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED,
		execution.Failed:      autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED,
		execution.Cancelled:   autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED,
		execution.Quarantined: autoflowv1.WorkflowState_WORKFLOW_STATE_QUARANTINED,
		execution.Terminated:  autoflowv1.WorkflowState_WORKFLOW_STATE_TERMINATED,
	}
}

func state(s execution.State) autoflowv1.WorkflowState { return states()[s] }

// fromState is the state of a run; false for one that no run can be in.
func fromState(wanted autoflowv1.WorkflowState) (execution.State, bool) {
	for own, published := range states() {
		if published == wanted {
			return own, true
		}
	}
	return 0, false
}
