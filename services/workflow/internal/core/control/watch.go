package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// News is one thing that a watcher is told: an entry, or where the execution stands.
type News struct {
	Entry *history.Entry
	View  *View
}

// watchPage is how many entries are read at once.
const watchPage = 200

// Watch tells where the execution stands, then the entries above after, and behind them every state, and whatever else it waits for,
// until it has ended or ctx does. The view with the final state is the last news. An error of tell ends it as well.
func (o *Operator) Watch(ctx context.Context, organization int64, workflow string, after int64, tell func(News) error) error {
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
	told := telling{state: -1, tell: tell}
	for {
		changed := next() // before reading: what comes after is not missed
		e, err := o.store.Get(ctx, organization, workflow)
		if err != nil {
			return err
		}
		if e.Attempt != first.Attempt {
			return fault.New(fault.Refused, "workflow %q was retried while it was watched, and its history cut; watch it again", workflow)
		}
		begins := told.state < 0 && !e.State.Ended()
		if begins {
			if err := o.tellView(ctx, e, &told); err != nil {
				return err
			}
		}
		if after, err = o.tellEntries(ctx, e, after, tell); err != nil {
			return err
		}
		if !begins && told.news(e) {
			if err := o.tellView(ctx, e, &told); err != nil {
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

// telling is what a watcher has been told last of where an execution stands.
type telling struct {
	state execution.State
	seq   int64
	waits []Waiting
	tell  func(News) error
}

// news reports whether there may be something to tell: only a history that has grown lets a parked execution wait for something else.
func (t *telling) news(e execution.Execution) bool {
	return e.State != t.state || e.State == execution.Parked && e.LastSeq != t.seq
}

// tellView tells where an execution stands, unless it stands as it did.
func (o *Operator) tellView(ctx context.Context, e execution.Execution, told *telling) error {
	v, err := o.view(ctx, e)
	if err != nil {
		return err
	}
	same := e.State == told.state && slices.EqualFunc(v.Waiting, told.waits, func(a, b Waiting) bool { return a.Op == b.Op })
	told.state, told.seq, told.waits = e.State, e.LastSeq, v.Waiting
	if same {
		return nil
	}
	return told.tell(News{View: &v})
}

// tellEntries tells what lies between after and the end of the history that e has.
func (o *Operator) tellEntries(ctx context.Context, e execution.Execution, after int64, tell func(News) error) (int64, error) {
	for after < e.LastSeq {
		entries, err := o.store.History(ctx, e.ID, after, int(min(watchPage, e.LastSeq-after)))
		if err != nil {
			return after, err
		}
		if len(entries) == 0 {
			return after, nil // cut by a retry, which the next look finds
		}
		for i := range entries {
			if err := tell(News{Entry: &entries[i]}); err != nil {
				return after, err
			}
			after = entries[i].Seq
		}
	}
	return after, nil
}
