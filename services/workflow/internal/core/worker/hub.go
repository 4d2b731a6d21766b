package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Guard decides whether an attempt at a call is given to a worker.
type Guard interface {
	// Check returns a *history.FunctionError if the call is refused; any other error means that nothing could be found out now.
	Check(ctx context.Context, f activity.Function, call activity.Call) error
}

// Deps are what a Hub works with.
type Deps struct {
	Store     Store
	Catalogue *Catalogue
	// Guard is asked before each attempt; nil admits all calls.
	Guard Guard
	// Secrets finds the values of secret arguments; nil: there are none.
	Secrets Secrets
	// Heartbeat is how long a worker may be silent before its calls are given to others.
	Heartbeat time.Duration
	// Poll is how often a session looks for calls of which it was not notified.
	Poll  time.Duration
	Clock clock.Clock
	Log   *slog.Logger
}

// Hub has the sessions of the workers that are connected to this replica. It is safe for concurrent use.
type Hub struct {
	Deps

	notify wake.Signal
	// slots bound the statements of all sessions that run at the same time, the organizations in turns.
	slots *fair.Slots
	// first is closed when the first worker connects: a replica without workers needs no notifications.
	first  chan struct{}
	opened sync.Once

	// leftCalls are stored as a session's that does not have them, of which leaving notifies Run.
	leaving   wake.Signal
	leftLock  sync.Mutex
	leftCalls map[*Session][]Call

	mu       sync.Mutex
	sessions map[int64][]*Session // by organization
	next     int                  // rotates among equally free sessions
	given    int64
}

// NewHub makes a Hub without sessions.
func NewHub(d Deps) *Hub {
	return &Hub{
		Deps: d, notify: wake.NewSignal(), leaving: wake.NewSignal(), slots: fair.NewSlots(statements), first: make(chan struct{}),
		sessions: map[int64][]*Session{}, leftCalls: map[*Session][]Call{},
	}
}

// statements is how many calls are taken and answers stored at the same time, in a process.
const statements = 8

// Message is what a worker is sent; one member is set.
type Message struct {
	Call *Call
	// Cancelled is a call that is no longer the worker's: it has ended, or belongs to another one.
	Cancelled string
	// Rejected is a call whose answer was not accepted, and Reason why.
	Rejected, Reason string
	// Drained is set if the worker has no call and gets none.
	Drained bool
}

// Opening is a worker that registers.
type Opening struct {
	Organization int64
	Prefix       string
	Name         string
	Functions    []Declaration
	InFlight     int
	// Redeclare reports whether an operator has allowed the worker to declare less strictly what a Function does than it is registered.
	Redeclare bool
	// Principal is the name of the worker's token, and Version that of its program, if it says so.
	Principal, Version string
}

// admit is an error where a worker declares a Function less strictly than it is registered, and may not.
func (o Opening) admit(known []Kept) error {
	if o.Redeclare {
		return nil
	}
	before := make(map[string]Declaration, len(known))
	for _, k := range known {
		before[k.Name] = k.Declaration
	}
	for i, d := range o.Functions {
		was, registered := before[d.Name]
		if !registered {
			continue
		}
		if problem := d.looser(was); problem != "" {
			return fault.New(fault.Denied, "functions[%d]: %s: %s: a declaration may only become stricter; use another name, or a token with "+
				"redeclare: true", i, d.Name, problem)
		}
	}
	return nil
}

// ErrSilent ends the session of a worker that sends no heartbeats.
var ErrSilent = fault.New(fault.Unavailable, "no heartbeat was received in time")

// ErrUnregistered ends the stream of a worker that does not register.
var ErrUnregistered = fault.New(fault.Unavailable, "no registration was received in time")

// Open registers a worker and its Functions. The session has to be closed.
func (h *Hub) Open(ctx context.Context, o Opening) (*Session, error) {
	if err := h.check(o); err != nil {
		return nil, err
	}
	now := h.Clock.Now()
	err := h.Store.SaveDeclarations(ctx, Registration{
		Organization: o.Organization, All: o.Functions, Most: MaxFunctions, Now: now, Before: now.Add(-keptFor), Admit: o.admit,
		By: Registrar{Principal: o.Principal, Worker: o.Name, Version: o.Version},
	})
	if err != nil {
		return nil, err
	}
	h.Catalogue.Forget(o.Organization)
	s := &Session{
		hub: h, id: id.New(now), organization: o.Organization, name: o.Name, most: o.InFlight,
		out: make(chan Message, 2*o.InFlight+1), look: wake.NewSignal(), beat: wake.NewSignal(), stored: wake.NewSignal(),
		held: map[string]Call{}, heard: now,
	}
	for _, f := range o.Functions {
		s.functions = append(s.functions, f.Name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sessions[o.Organization]) >= MaxSessions {
		return nil, fault.New(fault.Limited, "the organization has %d workers at this replica; expected fewer than that", MaxSessions)
	}
	h.opened.Do(func() { close(h.first) })
	h.sessions[o.Organization] = append(h.sessions[o.Organization], s)
	h.Log.InfoContext(ctx, "worker connected", "worker", o.Name, "organization", o.Organization, "session", s.id, "functions", len(o.Functions))
	return s, nil
}

func (h *Hub) check(o Opening) error {
	var wrong []fault.Field
	report := func(name, format string, args ...any) {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if o.Name == "" || len(o.Name) > maxName {
		report("worker", "found %d bytes, expected a name of 1 to %d", len(o.Name), maxName)
	}
	if len(o.Version) > maxVersion {
		report("version", "found %d bytes, expected at most %d", len(o.Version), maxVersion)
	}
	if o.InFlight < 1 || o.InFlight > MaxInFlight {
		report("max_in_flight", "found %d, expected 1 to %d", o.InFlight, MaxInFlight)
	}
	if len(o.Functions) == 0 || len(o.Functions) > MaxFunctions {
		report("functions", "found %d, expected 1 to %d", len(o.Functions), MaxFunctions)
		return fault.InvalidFields(wrong...)
	}
	taken := map[string]bool{}
	for i, d := range o.Functions {
		at := fmt.Sprintf("functions[%d].", i)
		own := d.Check(o.Prefix)
		if taken[d.Name] {
			report(at+"name", "found %q a second time", d.Name)
		}
		taken[d.Name] = true
		for _, f := range own {
			report(at+f.Name, "%s", f.Problem)
		}
		if len(own) > 0 {
			continue
		}
		if _, err := h.Catalogue.compile(d); err != nil {
			report(at+"arguments_schema", "%s", fault.Public(err))
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// Connected returns how many workers of an organization are connected to this replica with each Function.
func (h *Hub) Connected(organization int64) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := map[string]int{}
	for _, s := range h.sessions[organization] {
		for _, f := range s.functions {
			count[f]++
		}
	}
	return count
}

// Load is how many workers are connected, how many calls they have, and how many they were given since the start.
func (h *Hub) Load() (sessions, held int, given int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.sessions {
		for _, s := range all {
			sessions++
			s.mu.Lock()
			held += len(s.held)
			s.mu.Unlock()
		}
	}
	return sessions, held, h.given
}

// Offered has one session look for calls of a Function: the one with most room. If none of this replica has any, the other replicas are
// notified.
func (h *Hub) Offered(organization int64, function string) {
	best := h.roomiest(organization, function)
	if best == nil {
		h.notify.Raise()
		return
	}
	best.look.Raise()
}

// roomiest is the session with most room for calls of a Function; nil: none has any.
func (h *Hub) roomiest(organization int64, function string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	var best *Session
	room := 0
	all := h.sessions[organization]
	h.next++
	for i := range all {
		s := all[(i+h.next)%len(all)]
		if !slices.Contains(s.functions, function) {
			continue
		}
		free := s.free()
		if free <= 0 {
			s.wanted()
		}
		if free > room {
			best, room = s, free
		}
	}
	return best
}

// Run notifies other replicas, and is notified by them, until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() {
		select {
		case <-h.first:
		case <-ctx.Done():
		}
		for ctx.Err() == nil {
			err := h.Store.ListenOffers(ctx, h.lookAll)
			if err != nil && ctx.Err() == nil {
				h.Log.WarnContext(ctx, "listening for calls of workers failed; will retry", "error", err)
			}
			_ = clock.Sleep(ctx, h.Clock, h.Poll) // ends early with ctx
		}
	})
	parts.Go(func() { h.releaseLeft(ctx) })
	for {
		select {
		case <-h.notify:
		case <-ctx.Done():
			return nil
		}
		if err := h.Store.NotifyOffers(ctx); err != nil && ctx.Err() == nil {
			h.Log.WarnContext(ctx, "notifying other replicas of a call failed; they poll", "error", err)
		}
	}
}

// lookAll has every session look.
func (h *Hub) lookAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.sessions {
		for _, s := range all {
			s.look.Raise()
		}
	}
}

// Interval is how often a worker sends heartbeats.
func (h *Hub) Interval() time.Duration { return h.Heartbeat / 3 }
