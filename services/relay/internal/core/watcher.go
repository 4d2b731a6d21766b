package core

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// WatcherDeps are the dependencies of a Watcher.
type WatcherDeps struct {
	Follower Follower
	Observer Observer
	Clock    clock.Clock
	Log      *slog.Logger
	// Interval is the minimum time between two observations under one watch: of several changes in between, only the last is reported.
	Interval time.Duration
}

// Watcher holds the watches that the control plane wants, and publishes their observations. It keeps nothing over a restart: the control
// plane sends the whole set to a relay that holds another one, and again before the set's lease expires. An expired set is dropped (D20).
// It is safe for concurrent use.
type Watcher struct {
	deps WatcherDeps
	// renewed signals to Run that the lease has a new end.
	renewed chan struct{}

	mu sync.Mutex
	// ctx ends with Run; nil before Run and after it has ended.
	ctx     context.Context //nolint:containedctx // what Replace starts ends with Run, not with its caller
	running sync.WaitGroup
	asOf    time.Time
	until   time.Time
	watches map[string]*watching
	sources map[Selection]*source
}

// watching is a watch with the source that it reads from.
type watching struct {
	Watch
	from *source
	stop context.CancelFunc
}

// NewWatcher returns a Watcher without watches.
func NewWatcher(d WatcherDeps) *Watcher {
	return &Watcher{deps: d, renewed: make(chan struct{}, 1), watches: map[string]*watching{}, sources: map[Selection]*source{}}
}

// Run serves watches until ctx ends, and drops them when their lease expires.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.ctx = nil
		w.mu.Unlock()
		cancel()
		w.running.Wait()
	}()
	for ctx.Err() == nil {
		_, until := w.Held()
		// Without watches there is no lease to wait for.
		left := time.Hour
		if !until.IsZero() {
			left = until.Sub(w.deps.Clock.Now())
		}
		if left <= 0 {
			w.expire()
			continue
		}
		t := w.deps.Clock.NewTimer(left)
		select {
		case <-t.C():
		case <-w.renewed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// expire drops everything: the control plane has not renewed the lease.
func (w *Watcher) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until.After(w.deps.Clock.Now()) {
		return // renewed in the meantime
	}
	w.deps.Log.Warn("lease of watches expired; dropped them", "watches", len(w.watches))
	w.until = time.Time{}
	w.keep(nil)
}

// Replace replaces the watches. A set that is older than the present one is ignored: sets may arrive late or repeatedly.
func (w *Watcher) Replace(set WatchSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil || set.AsOf.Before(w.asOf) {
		return
	}
	w.asOf, w.until = set.AsOf, w.deps.Clock.Now().Add(set.Lease)
	wanted := make(map[string]Watch, len(set.Watches))
	for _, watch := range set.Watches {
		wanted[watch.ID] = watch
	}
	w.keep(wanted)
	for id, watch := range wanted {
		if w.watches[id] == nil {
			w.begin(watch)
		}
	}
	if len(w.watches) == 0 {
		w.until = time.Time{}
	}
	select {
	case w.renewed <- struct{}{}:
	default: // Run is already signalled
	}
}

// keep ends every watch that is not wanted, and every source without watches.
func (w *Watcher) keep(wanted map[string]Watch) {
	for id, held := range w.watches {
		if _, stays := wanted[id]; stays {
			continue
		}
		held.stop()
		delete(w.watches, id)
		if held.from != nil && held.from.leave(id) {
			held.from.stop()
			delete(w.sources, held.Selection)
		}
	}
}

// begin starts a watch. Watches of the same objects share one source: the cluster is queried once.
func (w *Watcher) begin(watch Watch) {
	ctx, stop := context.WithCancel(w.ctx)
	held := &watching{Watch: watch, stop: stop}
	w.watches[watch.ID] = held
	if refusal := checkWatch(watch); refusal != nil {
		w.running.Go(func() {
			reportOnce(ctx, w.deps, Observation{Watch: watch, Name: watch.Name, Err: refusal})
		})
		return
	}
	if isRollout(watch.Kind) && watch.Report == "" {
		watch.Fields = append(slices.Clone(watch.Fields), statusFields()...)
	}
	from := w.sources[watch.Selection]
	if from == nil {
		following, end := context.WithCancel(w.ctx)
		from = newSource(watch.Selection, end)
		w.sources[watch.Selection] = from
		w.running.Go(func() { w.deps.Follower.Follow(following, watch.Selection, from.apply) })
	}
	held.from = from
	reporter := from.join(watch)
	w.running.Go(func() { reporter.run(ctx, w.deps) })
}

// Held returns the ids of the watches held, sorted, and the end of their lease; zero if there is none.
func (w *Watcher) Held() (ids []string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.watches {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, w.until
}
