package core

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Flow is a program that events start: one run for each event and handler that match (D4, E17).
type Flow struct {
	// ID numbers this version of the flow.
	ID           int64
	Organization int64
	Name         string
	Version      int
	Program      Program
	// ProgramDigest is the SHA-256 of the main source, hexadecimal.
	ProgramDigest string
	// Inputs, Secrets and Labels are those of every run.
	Inputs          []byte
	Secrets, Labels map[string]string
	Handlers        []Handler
	RegisteredAt    time.Time
	// Started and Refused count what became of the events that matched, over all versions of the name.
	Started, Refused int64
	LastRefusal      string
}

// FlowStore keeps flows, and the events that have met one of their handlers. Each method is one transaction.
type FlowStore interface {
	// RegisterFlow makes f the current version of its name, unless the current one has the same digest: then that one
	// comes back, and created is false.
	RegisterFlow(ctx context.Context, f Flow, digest [32]byte) (current Flow, created bool, err error)
	// ListFlows reads current flows by name, those after the flow of the version after (0: all), without programs, inputs and secrets.
	ListFlows(ctx context.Context, organization, after int64, limit int) ([]Flow, error)
	// DeleteFlow retires a flow; fault.NotFound.
	DeleteFlow(ctx context.Context, organization int64, name string, at time.Time) error
	// LoadFlow reads a version, also one that is not the current one any more.
	LoadFlow(ctx context.Context, id int64) (Flow, error)
	// NextFlowWork takes events that have met a handler, and sets when each comes again if nobody says FlowWorkDone. An
	// event meets the handlers of its type in the transaction that stores it.
	NextFlowWork(ctx context.Context, now time.Time, limit int) ([]FlowWork, error)
	// FlowWorkDone forgets the work and counts what it led to. Work that is gone is not counted again.
	FlowWorkDone(ctx context.Context, w FlowWork, o FlowOutcome) error
}

// FlowWork is an event that has met a handler of its type. The filter is still to be asked.
type FlowWork struct {
	// Handler is the handler's row, Place its place in Flow.Handlers.
	Handler int64
	Place   int
	// Flow is the ID of the version.
	Flow  int64
	Event Event
}

// FlowOutcome is what FlowWork led to: a run, or a refusal, or with neither nothing, because the filter left it out.
type FlowOutcome struct {
	Started bool
	Refusal string
}

// FlowsDeps are what Flows work with.
type FlowsDeps struct {
	Store   FlowStore
	Scripts Scripts
	// Start stores a run, as Service.StartOfFlow does.
	Start func(ctx context.Context, s Start) (Started, error)
	Clock clock.Clock
	Log   *slog.Logger
}

// Flows registers flows and starts their runs. A run is started before its work is forgotten, and its id is made of the
// handler and the event: a crash in between, or a second process with the same work, finds the run that there is (E19).
type Flows struct {
	FlowsDeps
	woken signal

	mu     sync.Mutex
	loaded map[int64]Flow
}

// NewFlows makes Flows.
func NewFlows(d FlowsDeps) *Flows {
	return &Flows{FlowsDeps: d, woken: newSignal(), loaded: map[int64]Flow{}}
}

// Wake has Run look for work now. Whoever stores an event that has met a handler calls it, so the process that has committed the
// event starts the run; for what a process that died has left, and for what is to be tried again, the engine's lookout calls it.
func (f *Flows) Wake() { f.woken.raise() }

// flowBatch is how much work is taken at once.
const flowBatch = 100

// Run starts runs until ctx ends. Several processes may do so side by side.
func (f *Flows) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		work, err := f.Store.NextFlowWork(ctx, f.Clock.Now(), flowBatch)
		if err != nil && ctx.Err() == nil {
			f.Log.WarnContext(ctx, "look for events that start flows", "error", err)
		}
		for _, w := range work {
			if err := f.do(ctx, w); err != nil && ctx.Err() == nil {
				f.Log.WarnContext(ctx, "start the run of a flow", "flow", w.Flow, "event", w.Event.ID, "error", err) // it comes again
			}
		}
		if len(work) < flowBatch {
			f.woken.wait(ctx, f.Clock, untilTold)
		}
	}
	return nil
}

func (f *Flows) do(ctx context.Context, w FlowWork) error {
	flow, err := f.load(ctx, w.Flow)
	if err != nil {
		return err
	}
	if w.Place >= len(flow.Handlers) {
		return fmt.Errorf("flow %d has %d handlers, and no number %d", w.Flow, len(flow.Handlers), w.Place)
	}
	if !flow.Handlers[w.Place].Matches(w.Event) {
		return f.Store.FlowWorkDone(ctx, w, FlowOutcome{})
	}
	start, err := flow.start(w.Place, w.Event)
	if err != nil {
		return err
	}
	_, err = f.Start(ctx, start)
	switch fault.ClassOf(err) {
	case fault.Invalid, fault.Conflict, fault.Refused: // will not be better the next time
		f.Log.WarnContext(ctx, "run of a flow refused", "flow", flow.Name, "organization", flow.Organization, "event", w.Event.ID, "error", err)
		return f.Store.FlowWorkDone(ctx, w, FlowOutcome{Refusal: truncate(storable(fault.Public(err)), maxError)})
	default:
	}
	if err != nil {
		return err
	}
	return f.Store.FlowWorkDone(ctx, w, FlowOutcome{Started: true})
}

// cachedFlows bounds how many versions are kept in memory; they never change.
const cachedFlows = 64

func (f *Flows) load(ctx context.Context, id int64) (Flow, error) {
	f.mu.Lock()
	known, ok := f.loaded[id]
	f.mu.Unlock()
	if ok {
		return known, nil
	}
	flow, err := f.Store.LoadFlow(ctx, id)
	if err != nil {
		return Flow{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.loaded) >= cachedFlows {
		clear(f.loaded)
	}
	f.loaded[id] = flow
	return flow, nil
}

// start is the run of a handler for an event. All of it follows from the two, so that a repeat is the same start.
func (f Flow) start(place int, e Event) (Start, error) {
	inputs := map[string]json.RawMessage{}
	if len(f.Inputs) > 0 {
		if err := json.Unmarshal(f.Inputs, &inputs); err != nil || inputs == nil { // null is a map for encoding/json
			return Start{}, fault.InvalidFields(fault.Field{Name: "inputs", Problem: "found JSON that is no object, expected an object"})
		}
	}
	handler := f.Handlers[place]
	call, err := json.Marshal(HandlerCall{Handler: handler.Function, Event: e.Value()})
	if err != nil {
		return Start{}, fmt.Errorf("encode the call of %s: %w", handler.Function, err)
	}
	inputs[HandlerInput] = call
	encoded, err := json.Marshal(inputs)
	if err != nil {
		return Start{}, fmt.Errorf("encode the inputs of flow %q: %w", f.Name, err)
	}
	labels := maps.Clone(f.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["flow"], labels["handler"], labels["event_type"] = f.Name, handler.Function, e.Type
	return Start{
		Organization: f.Organization, Workflow: fmt.Sprintf("flow/%s/%d/%d", f.Name, place, e.Row),
		Program: f.Program, Inputs: encoded, Secrets: f.Secrets, Labels: labels,
	}, nil
}

// flowName is short enough for a label, and for the id of a run.
var flowName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// maxFlowInputs bounds the inputs of a flow in bytes: beside them, the largest event has to fit into the inputs of a run, with some room for its attributes.
func maxFlowInputs() int {
	const attributes = 64 << 10
	return InputsDoor.Limits().Size - EventDoor.Limits().Size - attributes
}

// Register checks a flow and makes it the current version of its name. Handlers are read from the program.
func (f *Flows) Register(ctx context.Context, flow Flow) (current Flow, created bool, err error) {
	if !flowName.MatchString(flow.Name) {
		return Flow{}, false, fault.InvalidFields(fault.Field{Name: "name", Problem: fmt.Sprintf("found %.120q, expected 1 to 100 lower-case letters, digits, \".\", \"_\" and \"-\"", flow.Name)})
	}
	if len(bytes.TrimSpace(flow.Inputs)) == 0 {
		flow.Inputs = nil // as for a run
	}
	basis := Start{Organization: flow.Organization, Workflow: "flow/" + flow.Name, Program: flow.Program, Inputs: flow.Inputs, Secrets: flow.Secrets, Labels: flow.Labels}
	if err := basis.admit(); err != nil {
		return Flow{}, false, err
	}
	if len(flow.Inputs) > maxFlowInputs() {
		return Flow{}, false, fault.InvalidFields(fault.Field{Name: "inputs", Problem: fmt.Sprintf("found %d bytes, expected at most %d: each run has an event beside them", len(flow.Inputs), maxFlowInputs())})
	}
	outline, err := scriptsOf(f.Scripts, flow.Organization).Inspect(flow.Program)
	if err != nil {
		return Flow{}, false, err
	}
	if len(outline.Handlers) == 0 {
		return Flow{}, false, fault.InvalidFields(fault.Field{Name: "starlark", Problem: "found no on_event(…) at its top level, expected at least one"})
	}
	flow.Handlers = outline.Handlers
	for place, handler := range flow.Handlers {
		if err := checkHandler(handler); err != nil {
			return Flow{}, false, err
		}
		// What the runs will be started with is checked now, as far as that is known before an event comes.
		start, err := flow.start(place, Event{Row: 1, Type: handler.Types[0]})
		if err == nil {
			err = start.validate()
		}
		if err == nil {
			err = scriptsOf(f.Scripts, flow.Organization).Check(start.Program, start.Inputs)
		}
		if err != nil {
			return Flow{}, false, err
		}
	}
	digest, err := flow.digest(basis)
	if err != nil {
		return Flow{}, false, err
	}
	flow.ProgramDigest, flow.RegisteredAt = Hex(Digest(flow.Program.Source)), f.Clock.Now()
	return f.Store.RegisterFlow(ctx, flow, digest)
}

// checkHandler refuses a handler whose runs would start each other for ever: each one ends with an event.
func checkHandler(h Handler) error {
	for _, t := range []string{TypeCompleted, TypeFailed, TypeCancelled} {
		if _, narrowed := h.Filter["workflow_id"]; slices.Contains(h.Types, t) && !narrowed {
			return fault.InvalidFields(fault.Field{Name: "starlark", Problem: fmt.Sprintf("%s: on_event of %s without workflow_id in its filter, expected one: the flow's own runs end with that event", h.Position, t)})
		}
	}
	if slices.Contains(h.Types, TypeMessage) {
		return fault.InvalidFields(fault.Field{Name: "starlark", Problem: fmt.Sprintf("%s: on_event of %s, expected another type: messages are for the run that made their channel", h.Position, TypeMessage)})
	}
	return nil
}

// digest tells one content of a flow from another.
func (f Flow) digest(basis Start) ([32]byte, error) {
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

// List answers a page of flows.
func (f *Flows) List(ctx context.Context, organization, after int64, limit int) ([]Flow, error) {
	if err := checkOrganization(organization); err != nil {
		return nil, err
	}
	return f.Store.ListFlows(ctx, organization, after, limit)
}

// Delete retires a flow. What it has started goes on.
func (f *Flows) Delete(ctx context.Context, organization int64, name string) error {
	if err := checkOrganization(organization); err != nil {
		return err
	}
	if !flowName.MatchString(name) {
		return fault.InvalidFields(fault.Field{Name: "name", Problem: fmt.Sprintf("found %.120q, expected a flow's name", name)})
	}
	return f.Store.DeleteFlow(ctx, organization, name, f.Clock.Now())
}

func checkOrganization(organization int64) error {
	if organization <= 0 {
		return fault.InvalidFields(fault.Field{Name: "organization_id", Problem: fmt.Sprintf("found %d, expected a number above zero", organization)})
	}
	return nil
}
