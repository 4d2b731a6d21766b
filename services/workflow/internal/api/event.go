package api

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// maxEvent bounds a CloudEvent in bytes.
const maxEvent = 1 << 20

// CloudEvent stores an event and hands it to the waits it matches. Whatever the token may do, its owner is a caller: what the services
// report to each other does not come this way (D47).
func (s *Server) CloudEvent(ctx context.Context, req *autoflowv1.CloudEventRequest) (*autoflowv1.CloudEventResponse, error) {
	if n := len(req.GetCloudEvent()); n == 0 || n > maxEvent {
		return nil, invalid("cloud_event", "found %d bytes, expected 1 to %d", n, maxEvent)
	}
	var wire event.Event
	if err := json.Unmarshal(req.GetCloudEvent(), &wire); err != nil {
		return nil, invalid("cloud_event", "not a CloudEvent 1.0 in JSON: %s", oneLine(err))
	}
	e, err := s.FromWire(wire)
	if err == nil {
		err = event.CheckCaller(wire)
	}
	if err != nil {
		return nil, under("cloud_event", err)
	}
	if _, err := organization(ctx, e.Organization); err != nil {
		return nil, err
	}
	if err := s.Types.Receive(ctx, e); err != nil {
		return nil, under("cloud_event", err)
	}
	if err := s.Limits.Event(e.Organization, len(e.Data)); err != nil {
		return nil, err
	}
	matched, duplicate, err := s.Operator.Receive(ctx, e)
	if err != nil {
		return nil, err
	}
	return &autoflowv1.CloudEventResponse{Matched: int32(matched), Duplicate: duplicate}, nil
}

// oneLine is the text of an error of CloudEvents, which has a line for each thing that is wrong.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// under puts the fields of an error below the field of the request that holds them: cloud_event.data.rollout_id.
func under(field string, err error) error {
	if !fault.Is(err, fault.Invalid) {
		return err
	}
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return invalid(field, "%s", fault.Public(err))
	}
	below := make([]fault.Field, len(fields))
	for i, f := range fields {
		below[i] = fault.Field{Name: field + "." + f.Name, Problem: f.Problem}
	}
	return fault.InvalidFields(below...)
}
