package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Update is one message to a watcher: an entry, or the state of the execution.
type Update struct {
	Entry *history.Entry
	View  *View
}

// watchPage is how many entries are read at once.
const watchPage = 200

// Watch sends the state of the execution, then the entries above after, and then every change of its state and of what it waits for,
// until the execution or ctx ends. The view with the final state is the last update. An error of send ends it as well.
func (o *Operator) Watch(ctx context.Context, organization int64, workflow string, after int64, send func(Update) error) error {
	first, err := o.find(ctx, organization, workflow)
	if err != nil {
		return err
	}
	if after < 0 || after > first.LastSeq {
		return fault.InvalidFields(fault.Field{
			Name:    "after_sequence",
			Problem: fmt.Sprintf("found %d, expected 0 to %d, the end of the history", after, first.LastSeq),
		})
	}
	next, leave := o.watchers.join(first.ID)
	defer leave()
	last := sent{state: -1, send: send}
	for {
		changed := next() // before reading: later changes are not missed
		e, err := o.store.Get(ctx, organization, workflow)
		if err != nil {
			return err
		}
		if e.Attempt != first.Attempt {
			return fault.New(fault.Refused, "workflow %q was retried while it was watched, and its history cut; watch it again", workflow)
		}
		begins := last.state < 0 && !e.State.Ended()
		if begins {
			if err := o.sendView(ctx, e, &last); err != nil {
				return err
			}
		}
		if after, err = o.sendEntries(ctx, e, after, send); err != nil {
			return err
		}
		if !begins && last.outdated(e) {
			if err := o.sendView(ctx, e, &last); err != nil {
				return err
			}
		}
		if e.State.Ended() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sent is the state of an execution that a watcher was sent last.
type sent struct {
	state execution.State
	seq   int64
	waits []Waiting
	send  func(Update) error
}

// outdated reports whether there may be an update: a parked execution waits for something else only when its history has grown.
func (t *sent) outdated(e execution.Execution) bool {
	return e.State != t.state || e.State == execution.Parked && e.LastSeq != t.seq
}

// sendView sends the state of an execution, unless it is the last one that was sent.
func (o *Operator) sendView(ctx context.Context, e execution.Execution, last *sent) error {
	v, err := o.view(ctx, e)
	if err != nil {
		return err
	}
	same := e.State == last.state && slices.EqualFunc(v.Waiting, last.waits, func(a, b Waiting) bool { return a.Op == b.Op })
	last.state, last.seq, last.waits = e.State, e.LastSeq, v.Waiting
	if same {
		return nil
	}
	return last.send(Update{View: &v})
}

// sendEntries sends the entries between after and the end of e's history.
func (o *Operator) sendEntries(ctx context.Context, e execution.Execution, after int64, send func(Update) error) (int64, error) {
	for after < e.LastSeq {
		entries, err := o.store.History(ctx, e.ID, after, int(min(watchPage, e.LastSeq-after)))
		if err != nil {
			return after, err
		}
		if len(entries) == 0 {
			return after, nil // cut by a retry, which the next look finds
		}
		for i := range entries {
			if err := send(Update{Entry: &entries[i]}); err != nil {
				return after, err
			}
			after = entries[i].Seq
		}
	}
	return after, nil
}
