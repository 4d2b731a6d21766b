package autoflow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// The labels with which workflows are started here (core's hand-overs).
const (
	labelProgram = "program"
	labelSubject = "subject"
	// labelParent is the engine's, for what a program has started.
	labelParent = "lockstep.parent"
)

// ListWorkflows implements handoff.Workflows. The engine's page tokens are the cursors.
func (e Engine) ListWorkflows(
	ctx context.Context, organization int64, f handoff.WorkflowFilter, p core.Page,
) (s core.Slice[handoff.WorkflowRun], err error) {
	request, err := filter(organization, f)
	if err != nil {
		return s, err
	}
	next := p.After
	for range mostPages {
		request.PageSize, request.PageToken = int32(p.First-len(s.Nodes)), next
		answer, err := e.client.ListWorkflows(ctx, request)
		if err != nil {
			return s, fmt.Errorf("list workflows: %w", err)
		}
		for _, w := range answer.GetWorkflows() {
			s.Nodes = append(s.Nodes, run(w))
		}
		s.Cursors = append(s.Cursors, cursors(len(answer.GetWorkflows()), answer)...)
		next = answer.GetNextPageToken()
		if next == "" || len(answer.GetWorkflows()) > 0 {
			break
		}
	}
	s.HasNext = next != "" && len(s.Nodes) > 0 // without a node, there is no cursor to continue from
	s.HasPrevious = p.After != ""
	return s, nil
}

// CountWorkflows implements handoff.Workflows.
func (e Engine) CountWorkflows(ctx context.Context, organization int64, f handoff.WorkflowFilter) (handoff.WorkflowCount, error) {
	request, err := filter(organization, f)
	if err != nil {
		return handoff.WorkflowCount{}, err
	}
	answer, err := e.client.CountWorkflows(ctx, &autoflowv1.CountWorkflowsRequest{Filter: request})
	if err != nil {
		return handoff.WorkflowCount{}, fmt.Errorf("count workflows: %w", err)
	}
	return handoff.WorkflowCount{Count: int(answer.GetCount()), AtLeast: answer.GetAtLeast()}, nil
}

// filter is a request for the runs that meet conditions, without a page.
func filter(organization int64, f handoff.WorkflowFilter) (*autoflowv1.ListWorkflowsRequest, error) {
	labels, err := pairs("labels", f.Labels)
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]string{labelProgram: f.Program, labelSubject: f.Subject, labelParent: f.Parent} {
		if value == "" {
			continue
		}
		if given, is := labels[key]; is && given != value {
			return nil, fault.New(fault.Invalid, "filter.labels: found %q for %s; expected %q, as is asked for beside it", given, key, value)
		}
		labels[key] = value
	}
	status, err := pairs("status", f.Status)
	if err != nil {
		return nil, err
	}
	r := &autoflowv1.ListWorkflowsRequest{
		OrganizationId: organization, Labels: labels, Status: status, IdPrefix: f.IDPrefix, IdContains: f.IDContains,
		StartedAfter: moment(f.StartedAfter), StartedBefore: moment(f.StartedBefore),
		EndedAfter: moment(f.EndedAfter), EndedBefore: moment(f.EndedBefore),
	}
	for _, wanted := range f.States {
		for state, known := range published() {
			if known == wanted {
				r.States = append(r.States, state)
			}
		}
	}
	return r, nil
}

// pairs are a map. A run has one value of a key, so that two of them are a mistake.
func pairs(name string, all []handoff.WorkflowPair) (map[string]string, error) {
	m := make(map[string]string, len(all))
	for _, p := range all {
		if _, twice := m[p.Key]; twice {
			return nil, fault.New(fault.Invalid, "filter.%s: found %q twice; expected each key once", name, p.Key)
		}
		m[p.Key] = p.Value
	}
	return m, nil
}

func moment(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// mostPages bounds the engine's pages that make one of ours. Where few runs match, some of them are empty.
const mostPages = 16

// answered is a page of the engine's.
type answered interface {
	GetPageTokens() []string
	GetNextPageToken() string
}

// cursors are those of the items of a page. An engine of an earlier release sends only the last one, and not on the last page.
func cursors(items int, page answered) []string {
	if tokens := page.GetPageTokens(); len(tokens) == items {
		return tokens
	}
	all := make([]string, items)
	if items > 0 {
		all[items-1] = page.GetNextPageToken()
	}
	return all
}

// WorkflowByID implements handoff.Workflows.
func (e Engine) WorkflowByID(ctx context.Context, organization int64, id string) (handoff.WorkflowRun, error) {
	answer, err := e.client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
	if err != nil {
		return handoff.WorkflowRun{}, fmt.Errorf("get workflow %s: %w", id, err)
	}
	return run(answer.GetWorkflow()), nil
}

// WorkflowHistory implements handoff.Workflows.
func (e Engine) WorkflowHistory(
	ctx context.Context, organization int64, id string, p core.Page,
) (s core.Slice[handoff.WorkflowEntry], err error) {
	answer, err := e.client.GetHistory(ctx, &autoflowv1.GetHistoryRequest{
		OrganizationId: organization, WorkflowId: id,
		PageSize: int32(p.First), PageToken: p.After,
	})
	if err != nil {
		return s, fmt.Errorf("get history of workflow %s: %w", id, err)
	}
	for _, h := range answer.GetEntries() {
		s.Nodes = append(s.Nodes, handoff.WorkflowEntry{
			Sequence: h.GetSequence(), Generation: max(1, int(h.GetGeneration())), Branch: int(h.GetBranch()), Kind: h.GetKind(), Name: h.GetName(),
			Value:     h.GetValue(),
			Truncated: h.GetTruncated(), RecordedAt: h.GetRecordedAt().AsTime(),
		})
	}
	s.Cursors, s.HasNext = cursors(len(s.Nodes), answer), answer.GetNextPageToken() != ""
	s.HasPrevious = p.After != ""
	return s, nil
}

// WorkflowLogs implements handoff.Workflows.
func (e Engine) WorkflowLogs(
	ctx context.Context, organization int64, id string, p core.Page,
) (s core.Slice[handoff.WorkflowLine], err error) {
	answer, err := e.client.GetLogs(ctx, &autoflowv1.GetLogsRequest{
		OrganizationId: organization, WorkflowId: id, PageSize: int32(p.First),
		PageToken: p.After,
	})
	if err != nil {
		return s, fmt.Errorf("get logs of workflow %s: %w", id, err)
	}
	for _, l := range answer.GetLines() {
		s.Nodes = append(s.Nodes, handoff.WorkflowLine{
			Sequence: l.GetSequence(), Branch: int(l.GetBranch()), Kind: l.GetKind(), Name: l.GetName(), Text: l.GetText(), Code: l.GetCode(),
			Truncated: l.GetTruncated(), Redacted: l.GetRedacted(), RecordedAt: l.GetRecordedAt().AsTime(),
		})
	}
	s.Cursors, s.HasNext = cursors(len(s.Nodes), answer), answer.GetNextPageToken() != ""
	s.HasPrevious = p.After != ""
	return s, nil
}

// RetryWorkflow implements handoff.Workflows.
func (e Engine) RetryWorkflow(ctx context.Context, organization int64, id, reason string, from int64) error {
	_, err := e.client.RetryWorkflow(ctx, &autoflowv1.RetryWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, Reason: reason,
		FromSequence: from,
	})
	if err != nil {
		return fmt.Errorf("retry workflow %s: %w", id, err)
	}
	return nil
}

func run(w *autoflowv1.Workflow) handoff.WorkflowRun {
	r := handoff.WorkflowRun{
		ID: w.GetWorkflowId(), Ref: w.GetWorkflowRef(), State: published()[w.GetState()], Error: w.GetError(), WaitingFor: w.GetWaitingFor(),
		Program: w.GetLabels()[labelProgram], Subject: w.GetLabels()[labelSubject], Parent: w.GetLabels()[labelParent],
		Digest:    w.GetProgramDigest(),
		CreatedAt: w.GetCreatedAt().AsTime(), UpdatedAt: w.GetUpdatedAt().AsTime(), FinishedAt: ended(w.GetFinishedAt()),
		LastSequence: w.GetLastSequence(),
		Generation:   max(1, int(w.GetGeneration())), GenerationSequence: max(1, w.GetGenerationSequence()), // 0 from an engine that knows none
	}
	for _, key := range slices.Sorted(maps.Keys(w.GetStatus())) {
		r.Status = append(r.Status, handoff.WorkflowPair{Key: key, Value: w.GetStatus()[key]})
	}
	for _, again := range w.GetRetries() {
		r.Retries = append(r.Retries, handoff.WorkflowRetry{
			At: again.GetAt().AsTime(), Reason: again.GetReason(), Error: again.GetError(),
			FromSequence: again.GetFromSequence(),
		})
	}
	return r
}

func ended(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

// published maps the contract's states to those of the domain.
func published() map[autoflowv1.WorkflowState]handoff.WorkflowState {
	return map[autoflowv1.WorkflowState]handoff.WorkflowState{
		autoflowv1.WorkflowState_WORKFLOW_STATE_RUNNING:     handoff.WorkflowRunning,
		autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED:      handoff.WorkflowParked,
		autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED:   handoff.WorkflowCompleted,
		autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED:      handoff.WorkflowFailed,
		autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED:   handoff.WorkflowCancelled,
		autoflowv1.WorkflowState_WORKFLOW_STATE_TERMINATED:  handoff.WorkflowTerminated,
		autoflowv1.WorkflowState_WORKFLOW_STATE_QUARANTINED: handoff.WorkflowQuarantined,
	}
}
