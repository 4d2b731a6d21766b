package core

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// WatcherDeps are what a Watcher needs.
type WatcherDeps struct {
	Follower Follower
	Observer Observer
	Clock    clock.Clock
	Log      *slog.Logger
	// Interval is the least time between two observations under one watch: of several changes in between, the last is told.
	Interval time.Duration
}

// Watcher holds what the control plane wants watched, and tells what is seen. It keeps nothing over a restart: the control
// plane sends the whole set to a relay that holds another one, and again before the set's lease ends. What nobody
// renews is dropped (D20). It is safe for concurrent use.
type Watcher struct {
	deps WatcherDeps
	// renewed tells Run that there is another end of the lease.
	renewed chan struct{}

	mu sync.Mutex
	// stop ends everything; nil once Run has ended.
	ctx     context.Context //nolint:containedctx // the life of what Replace starts is Run's, not its caller's
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

// NewWatcher makes a Watcher that holds nothing.
func NewWatcher(d WatcherDeps) *Watcher {
	return &Watcher{deps: d, renewed: make(chan struct{}, 1), watches: map[string]*watching{}, sources: map[Selection]*source{}}
}

// Run lets watches live until ctx ends, and ends those whose lease has.
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
		// Without watches there is no lease, and nothing to do until there is.
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

// expire drops everything: the control plane has not been heard of for as long as the lease.
func (w *Watcher) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until.After(w.deps.Clock.Now()) {
		return // renewed in the meantime
	}
	w.deps.Log.Warn("watches dropped, nobody has renewed them", "watches", len(w.watches))
	w.until = time.Time{}
	w.keep(nil)
}

// Replace makes the set what is watched. An older set than the present one changes nothing: sets may come late or twice.
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
	default: // Run is told already
	}
}

// keep ends every watch that is not wanted, and every source that nobody reads from any more.
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

// begin starts a watch. Watches of the same objects share one source: the cluster is asked once.
func (w *Watcher) begin(watch Watch) {
	ctx, stop := context.WithCancel(w.ctx)
	held := &watching{Watch: watch, stop: stop}
	w.watches[watch.ID] = held
	if refusal := checkWatch(watch); refusal != nil {
		w.running.Go(func() {
			tellOnce(ctx, w.deps, Observation{Watch: watch, Name: watch.Name, Err: refusal})
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
		w.running.Go(func() { w.deps.Follower.Follow(following, watch.Selection, from.tell) })
	}
	held.from = from
	teller := from.join(watch)
	w.running.Go(func() { teller.run(ctx, w.deps) })
}

// Held are the ids of the watches held, sorted, and when their lease ends; zero where there is none.
func (w *Watcher) Held() (ids []string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.watches {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, w.until
}
