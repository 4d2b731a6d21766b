package core

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// source is the present state of the objects of one selection, with everybody who wants to hear of it.
type source struct {
	selection Selection
	stop      context.CancelFunc

	mu     sync.Mutex
	known  map[string]Object
	synced bool
	failed *Error
	// tellers are the watches that read from it, by id.
	tellers map[string]*teller
}

// teller tells what is seen under one watch.
type teller struct {
	watch Watch
	from  *source
	// news says that there is something in changed, the names of objects that may have changed; "" is the source itself.
	news    chan struct{}
	changed map[string]bool // guarded by from.mu
	// said is what was told last, by object. It belongs to run.
	said map[string]string
}

func newSource(s Selection, stop context.CancelFunc) *source {
	return &source{selection: s, stop: stop, known: map[string]Object{}, tellers: map[string]*teller{}}
}

// join adds a watch, which is told of everything that is known.
func (s *source) join(w Watch) *teller {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &teller{watch: w, from: s, news: make(chan struct{}, 1), changed: map[string]bool{}, said: map[string]string{}}
	s.tellers[w.ID] = t
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

// leave removes a watch; true when nobody is left.
func (s *source) leave(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tellers, id)
	return len(s.tellers) == 0
}

// tell takes a change, and lets everybody know that there is one.
func (s *source) tell(c Change) {
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
		// An object that is wanted by name and not there is news, too: it is told of as absent.
		s.synced, s.failed, name = true, nil, s.selection.Name
	case c.Object == nil:
		delete(s.known, c.Name)
	default:
		s.known[c.Name], s.failed = c.Object, nil
	}
	for _, t := range s.tellers {
		t.note(name)
	}
}

// note marks an object; from.mu is held.
func (t *teller) note(name string) {
	t.changed[name] = true
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// take empties what was marked, with the present state of each.
func (t *teller) take() []Observation {
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

// again marks an object whose observation could not be told.
func (t *teller) again(name string) {
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	t.note(name)
}

// run tells until ctx ends. What changes while it pauses, or while nobody takes an observation, is told as it is then.
func (t *teller) run(ctx context.Context, d WatcherDeps) {
	for ctx.Err() == nil {
		select {
		case <-t.news:
		case <-ctx.Done():
			return
		}
		failed := false
		for _, o := range t.take() {
			failed = !t.say(ctx, d, o) || failed
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

// say tells one observation, if it differs from what was told last; false when it has to be told again.
func (t *teller) say(ctx context.Context, d WatcherDeps, o Observation) bool {
	if o.Err == nil {
		o.Report = report(t.watch, o.Object)
	}
	if o.Object != nil {
		o.Object = Project(o.Object, t.watch.Fields)
	}
	now := fingerprint(o)
	if said, known := t.said[o.Name]; known && said == now {
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
		// What the bus refuses for good would be refused again; the control plane looks by itself from time to time.
		d.Log.WarnContext(ctx, "observation not told", "watch", t.watch.ID, "error", err)
	}
	t.said[o.Name] = now
	return true
}

// fingerprint is equal for observations that say the same.
func fingerprint(o Observation) string {
	if o.Err != nil {
		return "error " + o.Err.Error()
	}
	b, err := json.Marshal([]any{o.Object, o.Report}) // sorted by name; an object that is absent is null
	if err != nil {
		return "" // it was JSON when it came
	}
	return string(b)
}

// tellOnce tells of a watch that will never be: until it is taken, or ctx ends.
func tellOnce(ctx context.Context, d WatcherDeps, o Observation) {
	o.At = d.Clock.Now()
	for fault.Is(d.Observer.Observe(ctx, o), fault.Unavailable) {
		if clock.Sleep(ctx, d.Clock, time.Second) != nil {
			return
		}
	}
}
