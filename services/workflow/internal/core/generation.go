package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// A run that is meant to go on for ever would have a history without end, and with it a replay without end. So a program may
// end a generation of its run by continue_with: the run goes on at once, with the call that it has asked for and an empty
// history, in place of the frames of an interpreter, which cannot be stored.
//
// To everybody else it is the same run: id, handle, labels, secrets, organization, trace and attempt are its row's, which
// stays; so do its channels, with the messages that nobody has received yet, and its watches. Events are counted from
// the start of the run and consumed once in it, whatever the generation, so that one which comes at the border is neither lost
// nor had twice.
//
// The border is one commit: the entry of KindContinue, everything else of its turn, and the beginning of the next generation.
// At that moment nothing is open, because the machine lets no branch continue beside others that have not ended. Numbers of
// entries go on behind the border. Numbers of branches and operations begin anew, and so the handle in activity ids says
// which generation they are of (Handle).

// Handle is what the activity ids of a run begin with: its handle, in another attempt or generation than the first with both
// numbers behind it. Neither ever becomes less, and one of them more with each change: no two activities have one id.
func Handle(ref string, attempt, generation int) string {
	if attempt <= 1 && generation <= 1 {
		return ref
	}
	ref += "~" + strconv.Itoa(attempt)
	if generation > 1 {
		ref += "." + strconv.Itoa(generation)
	}
	return ref
}

// continuation is the entry that ends the generation, if the turn has it.
func (d *driver) continuation() (Entry, bool) {
	if len(d.entries) == 0 || d.entries[len(d.entries)-1].Kind != KindContinue {
		return Entry{}, false
	}
	return d.entries[len(d.entries)-1], true
}

// goOn commits the last turn of a generation. The driver has nothing more to do then: next begins the following one.
func (d *driver) goOn(ctx context.Context, last Entry) (State, error) {
	c := Commit{Next: Running, Continue: last.Value, HeldUntil: d.engine.heldUntil(d.loaded.Before, d.engine.Clock.Now())}
	for _, name := range slices.Sorted(maps.Keys(d.had)) {
		c.Had = append(c.Had, d.had[name])
	}
	state, err := d.store(ctx, c)
	d.over = err == nil
	return state, err
}

// hadMost bounds what is remembered of the events that a generation has had.
const hadMost = 64

// note remembers that an operation has had an event. A run that waits for the same again and again, for ever, would have its store
// go over all that it has had to find the next one. What is had behind a replay, or beyond the bound, is not noted: it costs time
// and changes nothing.
func (d *driver) note(op Op) {
	if d.had == nil {
		d.had = map[string]Want{}
	}
	for _, want := range op.Wants() {
		if len(d.had) < hadMost {
			d.had[want.Type+" "+want.Filter.String()] = want
		}
	}
}

// next is the driver of the generation that follows. It begins with what is stored, as after a crash at the border.
func (d *driver) next(ctx context.Context) (*driver, error) {
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

// measure looks how long the history of the generation is. The error is for the program's author: it is too long.
func (d *driver) measure(ctx context.Context) error {
	length, most := int(d.seq-d.loaded.Base), d.engine.Settings.History
	if length > most {
		return fmt.Errorf("the history has grown past %d entries; a program that goes on for so long ends a generation of its run before by continue_with", most)
	}
	if !d.warned && float64(length) > warnAt*float64(most) {
		d.warned = true
		d.engine.longHistories.Add(1)
		d.engine.Log.WarnContext(ctx, "history is long: the run fails at the limit, unless its program calls continue_with before",
			"workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "generation", d.loaded.Generation, "entries", length, "limit", most)
	}
	return nil
}
