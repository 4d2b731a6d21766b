package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Encode makes the wire form of an event that is emitted in a trace (W3C form; "" for none). The error is Invalid where the
// catalogue or the type's schema refuse it.
func Encode(e history.Emit, trace string) (event.Sealed, error) {
	data := e.Data
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	if !emittable(e.Type) {
		return event.Sealed{}, fault.InvalidFields(fault.Field{Name: "type", Problem: notEmittable(e.Type)})
	}
	var payload event.Data = event.Raw{Type: e.Type, JSON: data}
	if e.Type == history.TypeCompleted { // the engine alone emits it, for every run, and that is all it says
		payload = event.WorkflowCompleted{WorkflowID: e.Workflow}
	}
	return event.Make(event.Header{
		ID: e.ID, Source: Source, Organization: e.Organization, Correlation: e.Workflow, Time: e.Time, Trace: trace,
	}, payload)
}

// CheckEmit reports whether a program may emit the event. It encodes with the function that the commit uses later, so what it accepts can
// be stored.
func CheckEmit(e history.Emit) *history.FunctionError {
	if refusal := CheckType(e.Type); refusal != nil {
		return refusal
	}
	_, err := Encode(e, "")
	if err == nil {
		return nil
	}
	var classed *fault.Error
	if errors.As(err, &classed) {
		return &history.FunctionError{Code: history.CodeInvalid, Message: "emit " + e.Type + ": " + classed.Error()}
	}
	return history.AsFunctionError(err)
}

// CheckReport says why an event that the engine reports cannot be stored; nil when it can.
func CheckReport(e history.Emit) error {
	_, err := Encode(e, "")
	return err
}

// CheckType reports whether programs may emit events of the type at all: it is one of the domain path that the catalogue gives to programs
// (D47). The answers of the domain service, what the engine reports about executions, and standing reports are not.
func CheckType(eventType string) *history.FunctionError {
	if !emittable(eventType) {
		return &history.FunctionError{Code: history.CodeInvalid, Message: "emit: type: " + notEmittable(eventType)}
	}
	if err := event.CheckEmitter(eventType, event.EmitterProgram); err != nil {
		return &history.FunctionError{Code: history.CodeInvalid, Message: "emit: " + fault.Public(err)}
	}
	return nil
}

// Declared are the types of events that organizations have declared.
type Declared interface {
	// Emit says what is wrong with an event; declared is false for one of another type.
	Emit(ctx context.Context, e history.Emit) (refusal *history.FunctionError, declared bool)
}

// CheckEmitOf is CheckEmit for programs that may also emit events of declared types.
func CheckEmitOf(ctx context.Context, types Declared) func(history.Emit) *history.FunctionError {
	return func(e history.Emit) *history.FunctionError {
		if event.Own(e.Type) {
			if refusal, declared := types.Emit(ctx, e); declared {
				return refusal
			}
		}
		return CheckEmit(e)
	}
}

func emittable(eventType string) bool {
	d, known := event.Lookup(eventType)
	return known && d.Path == event.PathDomain
}

func notEmittable(eventType string) string {
	return fmt.Sprintf("found %q, expected an event type of the domain path, such as com.gitlab.cd.rollout.started, or one that the "+
		"organization has declared", eventType)
}
