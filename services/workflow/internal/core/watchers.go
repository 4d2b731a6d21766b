package core

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Watchers are those who watch executions. They are told at once of what this process commits. What another process
// commits is found by one slow look at all watched executions together, so the database is asked no more often for a
// thousand watchers than for one.
type Watchers struct {
	control Control
	clock   clock.Clock
	log     *slog.Logger

	mu     sync.Mutex
	topics map[int64]*topic
}

// topic is a watched execution.
type topic struct {
	watchers int
	// changed is closed, and replaced, at each change.
	changed chan struct{}
	// seen is where it stood at the last slow look.
	seen Progress
}

// slowLook is how late watchers may learn of what another process has done.
const slowLook = 2 * time.Second

// NewWatchers makes Watchers; Run looks for what other processes do.
func NewWatchers(control Control, c clock.Clock, log *slog.Logger) *Watchers {
	return &Watchers{control: control, clock: c, log: log, topics: map[int64]*topic{}}
}

// Run looks slowly until ctx ends.
func (w *Watchers) Run(ctx context.Context) error {
	for clock.Sleep(ctx, w.clock, slowLook) == nil {
		w.mu.Lock()
		ids := slices.Sorted(maps.Keys(w.topics))
		w.mu.Unlock()
		if len(ids) == 0 {
			continue
		}
		progresses, err := w.control.Progresses(ctx, ids)
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "look at watched executions", "count", len(ids), "error", err)
		}
		for _, p := range progresses {
			w.note(p)
		}
	}
	return nil
}

// note tells the watchers of an execution that has moved since the last slow look.
func (w *Watchers) note(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[p.Execution]; t != nil && t.seen != p {
		t.seen = p
		t.tell()
	}
}

// Changed tells the watchers of an execution, if there are any.
func (w *Watchers) Changed(execution int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[execution]; t != nil {
		t.tell()
	}
}

func (t *topic) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// join makes the caller a watcher until it calls leave. next is closed at the first change after it was asked for.
func (w *Watchers) join(execution int64) (next func() <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[execution]
	if t == nil {
		t = &topic{changed: make(chan struct{}), seen: Progress{Turn: -1}}
		w.topics[execution] = t
	}
	t.watchers++
	next = func() <-chan struct{} {
		w.mu.Lock()
		defer w.mu.Unlock()
		return t.changed
	}
	leave = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.watchers--; t.watchers == 0 {
			delete(w.topics, execution)
		}
	}
	return next, leave
}

// Store is s, telling the watchers of every turn that it commits.
func (w *Watchers) Store(s Store) Store { return watchedStore{s, w} }

type watchedStore struct {
	Store
	watchers *Watchers
}

// Commit is the store's.
func (s watchedStore) Commit(ctx context.Context, c Commit) (Committed, error) {
	done, err := s.Store.Commit(ctx, c)
	if err == nil {
		s.watchers.Changed(c.Execution.ID)
	}
	return done, err
}

// News is one thing that a watcher is told: an entry, or where the execution stands.
type News struct {
	Entry *Entry
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
		return fault.InvalidFields(fault.Field{Name: "after_sequence", Problem: fmt.Sprintf("found %d, expected 0 to %d, the end of the history", after, first.LastSeq)})
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
	state State
	seq   int64
	waits []Waiting
	tell  func(News) error
}

// news reports whether there may be something to tell: only a history that has grown lets a parked execution wait for something else.
func (t *telling) news(e Execution) bool {
	return e.State != t.state || e.State == Parked && e.LastSeq != t.seq
}

// tellView tells where an execution stands, unless it stands as it did.
func (o *Operator) tellView(ctx context.Context, e Execution, told *telling) error {
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
func (o *Operator) tellEntries(ctx context.Context, e Execution, after int64, tell func(News) error) (int64, error) {
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
