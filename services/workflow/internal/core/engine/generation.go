package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// continuation is the entry that ends the generation, if the turn has it.
func (r *run) continuation() (history.Entry, bool) {
	if len(r.entries) == 0 || r.entries[len(r.entries)-1].Kind != history.KindContinue {
		return history.Entry{}, false
	}
	return r.entries[len(r.entries)-1], true
}

// endGeneration commits the last turn of a generation. The run is finished then; next makes that of the following generation.
func (r *run) endGeneration(ctx context.Context, last history.Entry) (execution.State, error) {
	c := Commit{Next: execution.Running, Continue: last.Value, HeldUntil: r.engine.heldUntil(r.loaded.Before, r.engine.Clock.Now())}
	for _, name := range slices.Sorted(maps.Keys(r.consumed)) {
		c.Consumed = append(c.Consumed, r.consumed[name])
	}
	state, err := r.store(ctx, c)
	r.over = err == nil
	return state, err
}

// consumedMost bounds how many kinds of consumed events a generation remembers.
const consumedMost = 64

// note remembers that an operation has consumed an event. Otherwise a run that waits for the same kind of event again and again would
// have its store scan all consumed ones to find the next. What a replay consumes, or exceeds the bound, is not noted: that costs time
// only.
func (r *run) note(op history.Op) {
	if r.consumed == nil {
		r.consumed = map[string]history.Want{}
	}
	for _, want := range op.Wants() {
		if len(r.consumed) < consumedMost {
			r.consumed[want.Type+" "+want.Filter.String()] = want
		}
	}
}

// next is the run of the generation that follows. It begins with what is stored, as after a crash at the border.
func (r *run) next(ctx context.Context) (*run, error) {
	r.machine.Close()
	r.machine = nil
	following, err := r.engine.loadRun(ctx, job{id: r.loaded.ID})
	if err != nil {
		return nil, err
	}
	following.woken = r.woken
	return following, nil
}

// warnAt is from which part of Settings.History on the log says that a history is long.
const warnAt = 0.8

// endingShare and endingLeast are how much longer the history of a run may become while its deferred calls are made: a tenth, and some.
const (
	endingShare = 10
	endingLeast = 1000
)

// longest is how long the history of the generation may become.
func (r *run) longest() int {
	most := r.engine.Settings.History
	if r.machine.Ending() {
		most += most/endingShare + endingLeast // what was deferred is to be called also when the history is full
	}
	return most
}

// measure looks how long the history of the generation is. The error is for the program's author: it is too long.
func (r *run) measure(ctx context.Context) error {
	length, most := int(r.seq-r.loaded.Base), r.longest()
	if length > most {
		return fmt.Errorf("the history has grown past %d entries; call continue_with before the limit", most)
	}
	if !r.warned && float64(length) > warnAt*float64(most) {
		r.warned = true
		r.engine.longHistories.Add(1)
		r.engine.Log.WarnContext(ctx, "history is long: the run fails at the limit, unless its program calls continue_with before",
			"workflow", r.loaded.Workflow, "organization", r.loaded.Organization, "generation", r.loaded.Generation, "entries",
			length, "limit", most)
	}
	return nil
}
