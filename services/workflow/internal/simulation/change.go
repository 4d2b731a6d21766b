package simulation

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// change is an operator who gives a run the program with the changes while it waits, asking several times.
func (w *world) change(pl plan) {
	w.put(&message{name: "change " + pl.workflow, copies: 6, local: true, handle: func(context.Context, *process) error {
		w.memory.changeProgram(pl)
		return nil
	}})
}

// changeProgram gives a run that waits another program, if its history leads to the same waits under it (control.Operator).
func (m *Memory) changeProgram(pl plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.find(organization, pl.workflow)
	if e == nil || e.changed || e.State != execution.Parked {
		return
	}
	next := program.Program{Source: []byte(pl.source)}
	was, is := e.pendingUnder(e.start.Program), e.pendingUnder(next)
	if !slices.Equal(was, is) {
		m.refuse("%s waits for %v, and for %v under the program with changes that it has not taken", e.Workflow, was, is)
		return
	}
	e.start.Program, e.changed = next, true
	e.Program = program.Hex(program.Digest(next.Source))
	e.turn, e.wakes = e.turn+1, e.wakes+1
}

// awaited is an operation that a program waits for.
type awaited struct {
	op   history.OpRef
	kind history.Kind
	hash uint64
}

// pendingUnder is what a program waits for at the end of the history of the present generation; what it would record first is part of it.
func (e *stored) pendingUnder(p program.Program) (all []awaited) {
	env := program.Environment{
		Ref: history.Handle(e.Ref, 1, e.Generation), Workflow: e.Workflow, Begun: true,
		Now: clock.System().Now, UUID: func() string { return "" }, Random: func() float64 { return 0 },
		Token: func() string { return "" },
		Emit:  func(string, string, json.RawMessage) *history.FunctionError { return nil },
	}
	if e.Generation > 1 {
		env.Continuation = e.continuations[e.Generation-2]
	}
	machine, err := script.New(script.Limits{}).Open(p, e.start.Inputs, env)
	if err != nil {
		return []awaited{{kind: history.Kind(err.Error())}}
	}
	defer machine.Close()
	if err := machine.Replay(e.generation(e.Generation)); err != nil {
		return []awaited{{kind: history.Kind(err.Error())}}
	}
	entries, _ := machine.Take()
	for _, entry := range entries {
		all = append(all, awaited{op: entry.Op, kind: entry.Kind})
	}
	for _, op := range machine.Pending() {
		all = append(all, awaited{op.Ref, op.Kind, op.Hash})
	}
	return all
}

// oldSides counts the old sides of changes that the run has taken, though it has the program with the changes.
func (w *world) oldSides(pl plan) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for label := range w.labelled {
		operation, _, _ := strings.Cut(label, "-g")
		if slices.Contains(pl.old, operation) {
			n++
		}
	}
	return n
}
