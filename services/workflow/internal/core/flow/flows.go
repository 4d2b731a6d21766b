package flow

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Deps are what Flows work with.
type Deps struct {
	Store   Store
	Scripts program.Scripts
	// Start stores a run, as Service.StartOfFlow does.
	Start func(ctx context.Context, s execution.Start) (execution.Started, error)
	Clock clock.Clock
	Log   *slog.Logger
}

// Flows registers flows and starts their runs. A run is started before its work is forgotten, and its id is made of the
// handler and the event: a crash in between, or a second process with the same work, finds the run that there is (E19).
type Flows struct {
	Deps
	woken wake.Signal

	mu     sync.Mutex
	loaded map[int64]Flow
}

// NewFlows makes Flows.
func NewFlows(d Deps) *Flows {
	return &Flows{Deps: d, woken: wake.NewSignal(), loaded: map[int64]Flow{}}
}

// Wake has Run look for work now. It is called when an event was stored that has met a handler, so the process that has committed the
// event starts the run; for what a process that died has left, and for what is to be tried again, the engine's lookout calls it.
func (f *Flows) Wake() { f.woken.Raise() }

// flowBatch is how much work is taken at once.
const flowBatch = 100

// Run starts runs until ctx ends. Several processes may do so side by side.
func (f *Flows) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		work, err := f.Store.NextFlowWork(ctx, f.Clock.Now(), flowBatch)
		if err != nil && ctx.Err() == nil {
			f.Log.WarnContext(ctx, "reading events that start flows failed", "error", err)
		}
		for _, w := range work {
			if err := f.do(ctx, w); err != nil && ctx.Err() == nil {
				f.Log.WarnContext(ctx, "starting run of flow failed; will retry", "flow", w.Flow, "event", w.Event.ID, "error", err)
			}
		}
		if len(work) < flowBatch {
			f.woken.Wait(ctx, f.Clock, wake.MaxIdle)
		}
	}
	return nil
}

func (f *Flows) do(ctx context.Context, w Work) error {
	flow, err := f.load(ctx, w.Flow)
	if err != nil {
		return err
	}
	if w.Place >= len(flow.Handlers) {
		return fmt.Errorf("flow %d has %d handlers, and no number %d", w.Flow, len(flow.Handlers), w.Place)
	}
	if !flow.Handlers[w.Place].Matches(w.Event) {
		return f.Store.FlowWorkDone(ctx, w, Outcome{})
	}
	start, err := flow.start(w.Place, w.Event)
	if err != nil {
		return err
	}
	_, err = f.Start(ctx, start)
	switch fault.ClassOf(err) {
	case fault.Invalid, fault.Conflict, fault.Refused: // will not be better the next time
		f.Log.WarnContext(ctx, "run of a flow refused", "flow", flow.Name, "organization", flow.Organization, "event", w.Event.ID, "error", err)
		return f.Store.FlowWorkDone(ctx, w, Outcome{Refusal: history.Truncate(history.Storable(fault.Public(err)), history.MaxError)})
	default:
	}
	if err != nil {
		return err
	}
	return f.Store.FlowWorkDone(ctx, w, Outcome{Started: true})
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

// Register checks a flow and makes it the current version of its name. Handlers are read from the program.
func (f *Flows) Register(ctx context.Context, flow Flow) (current Flow, created bool, err error) {
	if !flowName.MatchString(flow.Name) {
		return Flow{}, false, fault.InvalidFields(fault.Field{
			Name:    "name",
			Problem: fmt.Sprintf("found %.120q, expected 1 to 100 lower-case letters, digits, \".\", \"_\" and \"-\"", flow.Name),
		})
	}
	if len(bytes.TrimSpace(flow.Inputs)) == 0 {
		flow.Inputs = nil // as for a run
	}
	basis := execution.Start{
		Organization: flow.Organization, Workflow: "flow/" + flow.Name, Program: flow.Program, Inputs: flow.Inputs,
		Secrets: flow.Secrets, Labels: flow.Labels,
	}
	if err := basis.Admit(); err != nil {
		return Flow{}, false, err
	}
	if len(flow.Inputs) > maxFlowInputs() {
		return Flow{}, false, fault.InvalidFields(fault.Field{
			Name:    "inputs",
			Problem: fmt.Sprintf("found %d bytes, expected at most %d: each run has an event beside them", len(flow.Inputs), maxFlowInputs()),
		})
	}
	outline, err := program.ScriptsFor(f.Scripts, flow.Organization).Inspect(flow.Program)
	if err != nil {
		return Flow{}, false, err
	}
	if len(outline.Handlers) == 0 {
		return Flow{}, false, fault.InvalidFields(fault.Field{
			Name:    "starlark",
			Problem: "found no on_event(…) at its top level, expected at least one",
		})
	}
	flow.Handlers = outline.Handlers
	for place, handler := range flow.Handlers {
		if err := handler.Check(); err != nil {
			return Flow{}, false, err
		}
		// What the runs will be started with is checked now, as far as that is known before an event comes.
		start, err := flow.start(place, history.Event{Row: 1, Type: handler.Types[0]})
		if err == nil {
			err = start.Validate()
		}
		if err == nil {
			err = program.ScriptsFor(f.Scripts, flow.Organization).Check(start.Program, start.Inputs)
		}
		if err != nil {
			return Flow{}, false, err
		}
	}
	digest, err := flow.digest(basis)
	if err != nil {
		return Flow{}, false, err
	}
	flow.ProgramDigest, flow.RegisteredAt = program.Hex(program.Digest(flow.Program.Source)), f.Clock.Now()
	return f.Store.RegisterFlow(ctx, flow, digest)
}

// List answers a page of flows.
func (f *Flows) List(ctx context.Context, organization, after int64, limit int) ([]Flow, error) {
	if err := execution.CheckOrganization(organization); err != nil {
		return nil, err
	}
	return f.Store.ListFlows(ctx, organization, after, limit)
}

// Delete retires a flow. What it has started continues.
func (f *Flows) Delete(ctx context.Context, organization int64, name string) error {
	if err := execution.CheckOrganization(organization); err != nil {
		return err
	}
	if !flowName.MatchString(name) {
		return fault.InvalidFields(fault.Field{Name: "name", Problem: fmt.Sprintf("found %.120q, expected a flow's name", name)})
	}
	return f.Store.DeleteFlow(ctx, organization, name, f.Clock.Now())
}
