package core

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// source is the present state of the objects of one selection, shared by all watches of it.
type source struct {
	selection Selection
	stop      context.CancelFunc

	mu     sync.Mutex
	known  map[string]Object
	synced bool
	failed *Error
	// reporters are the watches that read from it, by id.
	reporters map[string]*reporter
}

// reporter reports the observations of one watch.
type reporter struct {
	watch Watch
	from  *source
	// news signals that changed has the names of objects that may have changed; "" is the source itself.
	news    chan struct{}
	changed map[string]bool // guarded by from.mu
	// reported is the fingerprint of the last report, by object. Only run uses it.
	reported map[string]string
}

func newSource(s Selection, stop context.CancelFunc) *source {
	return &source{selection: s, stop: stop, known: map[string]Object{}, reporters: map[string]*reporter{}}
}

// join adds a watch, which is then sent the state of all known objects.
func (s *source) join(w Watch) *reporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &reporter{watch: w, from: s, news: make(chan struct{}, 1), changed: map[string]bool{}, reported: map[string]string{}}
	s.reporters[w.ID] = t
	for name := range s.known {
		t.note(name)
	}
	if s.synced {
		t.note(s.selection.Name)
	}
	if s.failed != nil {
		t.note("")
	}
	return t
}

// leave removes a watch; it reports whether it was the last one.
func (s *source) leave(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reporters, id)
	return len(s.reporters) == 0
}

// apply stores a change, and marks it in all watches.
func (s *source) apply(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.Name
	switch {
	case c.Err != nil:
		if s.failed = lasting(c.Err); s.failed == nil {
			return
		}
		name = ""
	case c.Reached:
		s.failed = nil
		return
	case c.Name == "":
		// A selection by name also reports that its object does not exist.
		s.synced, s.failed, name = true, nil, s.selection.Name
	case c.Object == nil:
		delete(s.known, c.Name)
	default:
		s.known[c.Name], s.failed = c.Object, nil
	}
	for _, t := range s.reporters {
		t.note(name)
	}
}

// note marks an object as changed; the caller holds from.mu.
func (t *reporter) note(name string) {
	t.changed[name] = true
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// take returns the present state of all marked objects, and clears the marks.
func (t *reporter) take() []Observation {
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	var all []Observation
	for name := range t.changed {
		o := Observation{Watch: t.watch, Name: name, Object: t.from.known[name]}
		switch {
		case name != "":
		case t.from.failed == nil:
			continue
		default:
			o.Name, o.Err = t.watch.Name, t.from.failed
		}
		all = append(all, o)
	}
	clear(t.changed)
	return all
}

// again marks an object whose observation could not be published.
func (t *reporter) again(name string) {
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	t.note(name)
}

// run reports until ctx ends. Changes during a pause, or while publishing fails, are merged: the state at the time is reported.
func (t *reporter) run(ctx context.Context, d WatcherDeps) {
	for ctx.Err() == nil {
		select {
		case <-t.news:
		case <-ctx.Done():
			return
		}
		failed := false
		for _, o := range t.take() {
			failed = !t.report(ctx, d, o) || failed
		}
		pause := d.Interval
		if failed {
			pause = max(pause, time.Second)
		}
		if clock.Sleep(ctx, d.Clock, pause) != nil {
			return
		}
	}
}

// report publishes one observation, if it differs from the previous one; false means that it has to be retried.
func (t *reporter) report(ctx context.Context, d WatcherDeps, o Observation) bool {
	if o.Err == nil {
		o.Report = report(t.watch, o.Object)
	}
	if o.Object != nil {
		o.Object = Project(o.Object, t.watch.Fields)
	}
	now := fingerprint(o)
	if previous, known := t.reported[o.Name]; known && previous == now {
		return true
	}
	o.At = d.Clock.Now()
	if err := d.Observer.Observe(ctx, o); err != nil {
		if ctx.Err() == nil && fault.Is(err, fault.Unavailable) {
			name := o.Name
			if o.Err != nil {
				name = ""
			}
			t.again(name)
			return false
		}
		// What the bus refuses permanently would be refused again; the control plane polls from time to time anyway.
		d.Log.WarnContext(ctx, "publishing observation failed", "watch", t.watch.ID, "error", err)
	}
	t.reported[o.Name] = now
	return true
}

// fingerprint is equal for equal observations.
func fingerprint(o Observation) string {
	if o.Err != nil {
		return "error " + o.Err.Error()
	}
	b, err := json.Marshal([]any{o.Object, o.Report}) // sorted by name; an absent object is null
	if err != nil {
		return "" // it was decoded from JSON
	}
	return string(b)
}

// reportOnce reports a watch that is refused, until that is published or ctx ends.
func reportOnce(ctx context.Context, d WatcherDeps, o Observation) {
	o.At = d.Clock.Now()
	for fault.Is(d.Observer.Observe(ctx, o), fault.Unavailable) {
		if clock.Sleep(ctx, d.Clock, time.Second) != nil {
			return
		}
	}
}
