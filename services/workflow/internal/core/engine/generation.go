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
func (d *run) continuation() (history.Entry, bool) {
	if len(d.entries) == 0 || d.entries[len(d.entries)-1].Kind != history.KindContinue {
		return history.Entry{}, false
	}
	return d.entries[len(d.entries)-1], true
}

// endGeneration commits the last turn of a generation. The driver is finished then; next makes that of the following generation.
func (d *run) endGeneration(ctx context.Context, last history.Entry) (execution.State, error) {
	c := Commit{Next: execution.Running, Continue: last.Value, HeldUntil: d.engine.heldUntil(d.loaded.Before, d.engine.Clock.Now())}
	for _, name := range slices.Sorted(maps.Keys(d.consumed)) {
		c.Consumed = append(c.Consumed, d.consumed[name])
	}
	state, err := d.store(ctx, c)
	d.over = err == nil
	return state, err
}

// consumedMost bounds how many kinds of consumed events a generation remembers.
const consumedMost = 64

// note remembers that an operation has consumed an event. Otherwise a run that waits for the same kind of event again and again would
// have its store scan all consumed ones to find the next. What a replay consumes, or exceeds the bound, is not noted: that costs time
// only.
func (d *run) note(op history.Op) {
	if d.consumed == nil {
		d.consumed = map[string]history.Want{}
	}
	for _, want := range op.Wants() {
		if len(d.consumed) < consumedMost {
			d.consumed[want.Type+" "+want.Filter.String()] = want
		}
	}
}

// next is the driver of the generation that follows. It begins with what is stored, as after a crash at the border.
func (d *run) next(ctx context.Context) (*run, error) {
	d.machine.Close()
	d.machine = nil
	following, err := d.engine.newDriver(ctx, job{id: d.loaded.ID})
	if err != nil {
		return nil, err
	}
	following.woken = d.woken
	return following, nil
}

// warnAt is from which part of Settings.History on the log says that a history is long.
const warnAt = 0.8

// endingShare and endingLeast are how much longer the history of a run may become while its deferred calls are made: a tenth, and some.
const (
	endingShare = 10
	endingLeast = 1000
)

// measure looks how long the history of the generation is. The error is for the program's author: it is too long.
func (d *run) measure(ctx context.Context) error {
	length, most := int(d.seq-d.loaded.Base), d.engine.Settings.History
	if d.machine.Ending() {
		most += most/endingShare + endingLeast // what was deferred is to be called also when the history is full
	}
	if length > most {
		return fmt.Errorf("the history has grown past %d entries; call continue_with before the limit", most)
	}
	if !d.warned && float64(length) > warnAt*float64(most) {
		d.warned = true
		d.engine.longHistories.Add(1)
		d.engine.Log.WarnContext(ctx, "history is long: the run fails at the limit, unless its program calls continue_with before",
			"workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "generation", d.loaded.Generation, "entries",
			length, "limit", most)
	}
	return nil
}
