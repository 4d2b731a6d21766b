package flow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Flow is a program that events start: one run for each event and handler that match (D4, E17).
type Flow struct {
	// ID numbers this version of the flow.
	ID           int64
	Organization int64
	Name         string
	Version      int
	Program      program.Program
	// ProgramDigest is the SHA-256 of the main source, hexadecimal.
	ProgramDigest string
	// Inputs, Secrets and Labels are those of every run.
	Inputs          []byte
	Secrets, Labels map[string]string
	Handlers        []program.Handler
	RegisteredAt    time.Time
	// Started and Refused count the outcomes of the events that matched, over all versions of the name.
	Started, Refused int64
	LastRefusal      string
}

// start is the run of a handler for an event. All of it follows from the two, so that a repeat is the same start.
func (f Flow) start(place int, e history.Event) (execution.Start, error) {
	inputs := map[string]json.RawMessage{}
	if len(f.Inputs) > 0 {
		if err := json.Unmarshal(f.Inputs, &inputs); err != nil || inputs == nil { // null is a map for encoding/json
			return execution.Start{}, fault.InvalidFields(fault.Field{Name: "inputs", Problem: "found JSON that is no object, expected an object"})
		}
	}
	handler := f.Handlers[place]
	call, err := json.Marshal(program.HandlerCall{Handler: handler.Function, Event: e.Value()})
	if err != nil {
		return execution.Start{}, fmt.Errorf("encode the call of %s: %w", handler.Function, err)
	}
	inputs[program.HandlerInput] = call
	encoded, err := json.Marshal(inputs)
	if err != nil {
		return execution.Start{}, fmt.Errorf("encode the inputs of flow %q: %w", f.Name, err)
	}
	labels := maps.Clone(f.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["flow"], labels["handler"], labels["event_type"] = f.Name, handler.Function, e.Type
	return execution.Start{
		Organization: f.Organization, Workflow: fmt.Sprintf("flow/%s/%d/%d", f.Name, place, e.Row),
		Program: f.Program, Inputs: encoded, Secrets: f.Secrets, Labels: labels,
	}, nil
}

// flowName is short enough for a label, and for the id of a run.
var flowName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// maxFlowInputs bounds the inputs of a flow in bytes: beside them, the largest event has to fit into the inputs of a run, with some room
// for its attributes.
func maxFlowInputs() int {
	const attributes = 64 << 10
	return history.InputsDoor.Limits().Size - history.EventDoor.Limits().Size - attributes
}

// digest identifies the content of a flow.
func (f Flow) digest(basis execution.Start) ([32]byte, error) {
	parts, err := basis.Digests()
	if err != nil {
		return [32]byte{}, err
	}
	labels, err := json.Marshal(f.Labels)
	if err != nil {
		return [32]byte{}, fmt.Errorf("encode labels of flow %q: %w", f.Name, err)
	}
	return sha256.Sum256(slices.Concat(parts.Program[:], parts.Modules[:], parts.Inputs[:], parts.Secrets[:], labels)), nil
}
