// Package api answers the AutoFlow service over gRPC. It translates, and checks who asks; the rules are core's.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// Server implements autoflowv1.AutoFlowServer.
type Server struct {
	autoflowv1.UnimplementedAutoFlowServer
	service  *core.Service
	fromWire func(event.Event) (core.Event, error)
}

var _ autoflowv1.AutoFlowServer = (*Server)(nil)

// New makes a Server. fromWire turns a checked CloudEvent into one of core's.
func New(service *core.Service, fromWire func(event.Event) (core.Event, error)) *Server {
	return &Server{service: service, fromWire: fromWire}
}

// maxEvent bounds a CloudEvent in bytes.
const maxEvent = 1 << 20

// CloudEvent stores an event and hands it to the waits it matches.
func (s *Server) CloudEvent(ctx context.Context, req *autoflowv1.CloudEventRequest) (*autoflowv1.CloudEventResponse, error) {
	if n := len(req.GetCloudEvent()); n == 0 || n > maxEvent {
		return nil, invalid("cloud_event", "found %d bytes, expected 1 to %d", n, maxEvent)
	}
	var wire event.Event
	if err := json.Unmarshal(req.GetCloudEvent(), &wire); err != nil {
		return nil, fault.Because(err, fault.Invalid, "cloud_event: not a CloudEvent 1.0 in JSON: %v", err)
	}
	if err := check(wire); err != nil {
		return nil, err
	}
	e, err := s.fromWire(wire)
	if err != nil {
		return nil, err
	}
	if err := authorize(ctx, e.Organization); err != nil {
		return nil, err
	}
	matched, duplicate, err := s.service.Receive(ctx, e)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.CloudEventResponse{Matched: int32(matched), Duplicate: duplicate}, nil
}

// check holds events of the catalogue to their schemas, and all others to CloudEvents 1.0 alone. Others are let in
// because programs may wait for what some webhook tells: nobody else reads them.
func check(wire event.Event) error {
	if _, known := event.Lookup(wire.Type()); known {
		return event.Validate(wire)
	}
	if err := wire.Validate(); err != nil {
		return fault.Because(err, fault.Invalid, "cloud_event: not a CloudEvent 1.0: %v", err)
	}
	for name, text := range map[string]string{"id": wire.ID(), "source": wire.Source(), "type": wire.Type(), "subject": wire.Subject()} {
		if strings.ContainsFunc(text, unicode.IsControl) {
			return invalid(name, "found %q, expected text without control characters", text)
		}
	}
	return nil
}

// StartWorkflow stores a run.
func (s *Server) StartWorkflow(ctx context.Context, req *autoflowv1.StartWorkflowRequest) (*autoflowv1.StartWorkflowResponse, error) {
	if err := authorize(ctx, req.GetOrganizationId()); err != nil {
		return nil, err
	}
	started, err := s.service.Start(ctx, core.Start{
		Organization: req.GetOrganizationId(),
		Workflow:     req.GetWorkflowId(),
		Program:      core.Program{Source: req.GetStarlark(), Modules: req.GetModules()},
		Inputs:       req.GetInputs(),
		Secrets:      req.GetSecrets(),
		Labels:       req.GetLabels(),
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.StartWorkflowResponse{WorkflowId: started.Workflow, WorkflowRef: started.Ref, Created: started.Created}, nil
}

// GetWorkflow answers where a run stands.
func (s *Server) GetWorkflow(ctx context.Context, req *autoflowv1.GetWorkflowRequest) (*autoflowv1.GetWorkflowResponse, error) {
	if err := authorize(ctx, req.GetOrganizationId()); err != nil {
		return nil, err
	}
	e, waiting, err := s.service.Get(ctx, req.GetOrganizationId(), req.GetWorkflowId())
	if err != nil {
		return nil, err
	}
	w := &autoflowv1.Workflow{
		WorkflowId: e.Workflow, WorkflowRef: e.Ref, OrganizationId: e.Organization, State: state(e.State), Error: e.Error,
		WaitingFor: waiting, Labels: e.Labels, ProgramDigest: e.Program, CreatedAt: timestamppb.New(e.CreatedAt),
	}
	if !e.EndedAt.IsZero() {
		w.FinishedAt = timestamppb.New(e.EndedAt)
	}
	return &autoflowv1.GetWorkflowResponse{Workflow: w}, nil
}

const (
	defaultPage = 100
	maxPage     = 1000
	// maxValue is where a value is cut for reading.
	maxValue = 64 << 10
)

// GetHistory answers a page of what a run recorded.
func (s *Server) GetHistory(ctx context.Context, req *autoflowv1.GetHistoryRequest) (*autoflowv1.GetHistoryResponse, error) {
	if err := authorize(ctx, req.GetOrganizationId()); err != nil {
		return nil, err
	}
	size := int(req.GetPageSize())
	switch {
	case size < 0:
		return nil, invalid("page_size", "found %d, expected 0 to %d", size, maxPage)
	case size == 0:
		size = defaultPage
	}
	size = min(size, maxPage)
	after := int64(0)
	if token := req.GetPageToken(); token != "" {
		var err error
		if after, err = strconv.ParseInt(token, 10, 64); err != nil || after < 0 {
			return nil, invalid("page_token", "found %q, expected what the page before carried", token)
		}
	}
	// One more than is shown tells whether there is a next page.
	entries, err := s.service.History(ctx, req.GetOrganizationId(), req.GetWorkflowId(), after, size+1)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetHistoryResponse{}
	if len(entries) > size {
		entries = entries[:size]
		resp.NextPageToken = strconv.FormatInt(entries[size-1].Seq, 10)
	}
	for _, entry := range entries {
		shown, err := historyEntry(entry)
		if err != nil {
			return nil, err
		}
		resp.Entries = append(resp.Entries, shown)
	}
	return resp, nil
}

// historyEntry is an entry as people read it. What is cut here is whole in the store, which is what replay reads.
func historyEntry(e core.Entry) (*autoflowv1.HistoryEntry, error) {
	value := string(e.Value)
	if e.Error != nil {
		b, err := json.Marshal(map[string]*core.FunctionError{"error": e.Error})
		if err != nil {
			return nil, fmt.Errorf("encode entry %d: %w", e.Seq, err)
		}
		value = string(b)
	}
	if len(value) > maxValue {
		value = value[:maxValue]
	}
	return &autoflowv1.HistoryEntry{Sequence: e.Seq, Kind: string(e.Kind), Name: e.Name, Value: value, RecordedAt: timestamppb.New(e.At)}, nil
}

// CancelWorkflow ends a run.
func (s *Server) CancelWorkflow(ctx context.Context, req *autoflowv1.CancelWorkflowRequest) (*autoflowv1.CancelWorkflowResponse, error) {
	if err := authorize(ctx, req.GetOrganizationId()); err != nil {
		return nil, err
	}
	if err := s.service.Cancel(ctx, req.GetOrganizationId(), req.GetWorkflowId(), req.GetReason()); err != nil {
		return nil, err
	}
	return &autoflowv1.CancelWorkflowResponse{}, nil
}

// authorize lets a caller see its own organization only; another's workflows do not exist for it.
func authorize(ctx context.Context, organization int64) error {
	caller, known := rpc.CallerFrom(ctx)
	switch {
	case !known:
		return fault.New(fault.Unauthenticated, "the call carries no known token")
	case caller.Organization != 0 && caller.Organization != organization:
		return fault.New(fault.Denied, "the token is not for organization %d", organization)
	}
	return nil
}

// state keeps the stored numbers and the published ones apart: neither may change because of the other.
func state(s core.State) autoflowv1.WorkflowState {
	switch s {
	case core.Running:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_RUNNING
	case core.Parked:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED
	case core.Completed:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED
	case core.Failed:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED
	case core.Cancelled:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_CANCELLED
	default:
		return autoflowv1.WorkflowState_WORKFLOW_STATE_UNSPECIFIED
	}
}

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}
