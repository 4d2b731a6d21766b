package control

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
)

// Subscriptions are the watchers of executions. They are notified at once of what this process commits. What another process commits
// is found by one slow look at all watched executions together, so a thousand watchers cost the database no more queries than one.
type Subscriptions struct {
	control OperatorStore
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
	// seen is its progress at the last slow look.
	seen Progress
}

// slowLook is how late watchers may be notified of what another process has done.
const slowLook = 2 * time.Second

// NewSubscriptions makes Subscriptions; Run polls for what other processes do.
func NewSubscriptions(control OperatorStore, c clock.Clock, log *slog.Logger) *Subscriptions {
	return &Subscriptions{control: control, clock: c, log: log, topics: map[int64]*topic{}}
}

// Run looks slowly until ctx ends.
func (w *Subscriptions) Run(ctx context.Context) error {
	for clock.Sleep(ctx, w.clock, slowLook) == nil {
		w.mu.Lock()
		ids := slices.Sorted(maps.Keys(w.topics))
		w.mu.Unlock()
		if len(ids) == 0 {
			continue
		}
		progresses, err := w.control.Progresses(ctx, ids)
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "reading watched executions failed", "count", len(ids), "error", err)
		}
		for _, p := range progresses {
			w.note(p)
		}
	}
	return nil
}

// note notifies the watchers of an execution that has moved since the last slow look.
func (w *Subscriptions) note(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[p.Execution]; t != nil && t.seen != p {
		t.seen = p
		t.notify()
	}
}

// Changed notifies the watchers of an execution, if there are any.
func (w *Subscriptions) Changed(execution int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[execution]; t != nil {
		t.notify()
	}
}

func (t *topic) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// join makes the caller a watcher until it calls leave. next is closed at the first change after it was asked for.
func (w *Subscriptions) join(execution int64) (next func() <-chan struct{}, leave func()) {
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

// Store is s, and notifies the watchers of every turn that it commits.
func (w *Subscriptions) Store(s engine.Store) engine.Store { return notifyingStore{s, w} }

type notifyingStore struct {
	engine.Store
	watchers *Subscriptions
}

// Commit is the store's.
func (s notifyingStore) Commit(ctx context.Context, c engine.Commit) (engine.Committed, error) {
	done, err := s.Store.Commit(ctx, c)
	if err == nil {
		s.watchers.Changed(c.Execution.ID)
	}
	return done, err
}
