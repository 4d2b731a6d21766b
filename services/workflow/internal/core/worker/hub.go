package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Guard decides whether an attempt at a call is given to a worker.
type Guard interface {
	// Check returns a *history.FunctionError if the call is refused; any other error says that nothing could be found out now.
	Check(ctx context.Context, f activity.Function, call activity.Call) error
}

// Deps are what a Hub works with.
type Deps struct {
	Store     Store
	Catalogue *Catalogue
	// Guard is asked before each attempt; nil admits all calls.
	Guard Guard
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

	mu       sync.Mutex
	sessions map[int64][]*Session // by organization
	next     int                  // rotates among equally free sessions
	given    int64
}

// NewHub makes a Hub without sessions.
func NewHub(d Deps) *Hub {
	return &Hub{
		Deps: d, notify: wake.NewSignal(), slots: fair.NewSlots(statements), first: make(chan struct{}), sessions: map[int64][]*Session{},
	}
}

// statements is how many calls are taken and answers stored at the same time, in a process.
const statements = 8

// Session is one worker that is connected.
type Session struct {
	hub          *Hub
	id           string
	organization int64
	name         string
	functions    []string
	most         int
	out          chan Message
	look         wake.Signal
	beat         wake.Signal

	mu       sync.Mutex
	held     map[string]Call
	draining bool
	full     bool // the last look found as many calls as it took
	heard    time.Time
}

// Message is what a worker is sent; one member is set.
type Message struct {
	Call *Call
	// Cancelled is a call that is not the worker's any more: it has ended, or belongs to another one.
	Cancelled string
	// Rejected is a call whose answer was not accepted, and Reason why.
	Rejected, Reason string
	// Drained says that the worker has no call and gets none.
	Drained bool
}

// Opening is a worker that registers.
type Opening struct {
	Organization int64
	Prefix       string
	Name         string
	Functions    []Declaration
	InFlight     int
	// Redeclare is that an operator has allowed the worker to declare less strictly what a Function does than it is registered.
	Redeclare bool
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
	})
	if err != nil {
		return nil, err
	}
	h.Catalogue.Forget(o.Organization)
	s := &Session{
		hub: h, id: id.New(now), organization: o.Organization, name: o.Name, most: o.InFlight,
		out: make(chan Message, 2*o.InFlight+1), look: wake.NewSignal(), beat: wake.NewSignal(), held: map[string]Call{}, heard: now,
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
	h.mu.Lock()
	defer h.mu.Unlock()
	var best *Session
	room := 0
	all := h.sessions[organization]
	h.next++
	for i := range all {
		s := all[(i+h.next)%len(all)]
		if free := s.free(); free > room && slices.Contains(s.functions, function) {
			best, room = s, free
		}
	}
	if best == nil {
		h.notify.Raise()
		return
	}
	best.look.Raise()
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

// ID is the session's.
func (s *Session) ID() string { return s.id }

// Messages are what the worker is to be sent.
func (s *Session) Messages() <-chan Message { return s.out }

// Interval is how often a worker sends heartbeats.
func (h *Hub) Interval() time.Duration { return h.Heartbeat / 3 }

func (s *Session) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	return s.most - len(s.held)
}

func (s *Session) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]string, 0, len(s.held))
	for call := range s.held {
		all = append(all, call)
	}
	return all
}

// Run takes calls for the worker until ctx ends, which is nil, or the worker is silent.
func (s *Session) Run(ctx context.Context) error {
	h := s.hub
	seen := h.Clock.Now()
	for ctx.Err() == nil {
		if err := s.take(ctx); err != nil && ctx.Err() == nil {
			h.Log.WarnContext(ctx, "taking calls for a worker failed; will retry", "worker", s.name, "session", s.id, "error", err)
		}
		t := h.Clock.NewTimer(h.Poll)
		select {
		case <-s.look:
		case <-s.beat:
			if err := s.extend(ctx); err != nil && ctx.Err() == nil {
				h.Log.WarnContext(ctx, "extending the calls of a worker failed; will retry", "worker", s.name, "session", s.id, "error", err)
			}
		case <-t.C():
		case <-ctx.Done():
		}
		t.Stop()
		now := h.Clock.Now()
		s.mu.Lock()
		silent := now.Sub(s.heard) > h.Heartbeat
		s.mu.Unlock()
		if silent {
			return ErrSilent
		}
		if now.Sub(seen) > time.Hour && h.Store.SeeDeclarations(ctx, s.organization, s.functions, now) == nil {
			seen = now
		}
	}
	return nil
}

// take gives the worker as many calls as it has room for.
func (s *Session) take(ctx context.Context) error {
	h := s.hub
	for {
		room := s.free()
		if room <= 0 {
			s.mu.Lock()
			s.full = true // there may be more when there is room again
			s.mu.Unlock()
			return nil
		}
		now := h.Clock.Now()
		if err := h.slots.Acquire(ctx, s.organization); err != nil {
			return err
		}
		calls, err := h.Store.TakeOffers(ctx, Taking{
			Organization: s.organization, Functions: s.functions, Session: s.id, Now: now, Until: now.Add(h.Heartbeat), Most: room,
		})
		h.slots.Release()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.full = len(calls) == room
		for _, c := range calls {
			s.held[c.ID] = c
		}
		s.mu.Unlock()
		for _, c := range calls {
			s.give(ctx, c)
		}
		if len(calls) < room {
			return nil
		}
	}
}

// give sends a call to the worker, if the guard admits it. The answer to any other is the refusal.
func (s *Session) give(ctx context.Context, c Call) {
	h := s.hub
	refusal, err := s.admit(ctx, c)
	if err != nil { // it is offered again when the time of this attempt is over
		h.Log.WarnContext(ctx, "checking the passage of a worker's call failed; will retry", "function", c.Function, "workflow", c.Workflow,
			"error", err)
		s.drop(c.ID)
		return
	}
	if refusal != nil {
		if _, err := h.Store.AnswerOffer(ctx, Answer{Session: s.id, Call: c.ID, Error: refusal}); err != nil && ctx.Err() == nil {
			h.Log.WarnContext(ctx, "answering a refused call failed; will retry", "function", c.Function, "workflow", c.Workflow, "error", err)
		}
		s.drop(c.ID)
		return
	}
	h.mu.Lock()
	h.given++
	h.mu.Unlock()
	s.send(ctx, Message{Call: &c})
}

// admit checks an attempt.
func (s *Session) admit(ctx context.Context, c Call) (*history.FunctionError, error) {
	f, found, err := s.hub.Catalogue.Function(ctx, c.Organization, c.Function)
	if err != nil || !found || s.hub.Guard == nil {
		if err == nil && !found {
			err = fault.New(fault.Unavailable, "function %s is not registered any more", c.Function)
		}
		return nil, err
	}
	args, err := history.Arguments(c.Args)
	if err != nil {
		return history.AsFunctionError(err), nil
	}
	err = s.hub.Guard.Check(ctx, f, activity.Call{
		ID: c.ID, Organization: c.Organization, Workflow: c.Workflow, Function: c.Function, Args: args, Attempt: c.Attempt,
	})
	if refusal, refused := errors.AsType[*history.FunctionError](err); refused {
		return refusal, nil
	}
	return nil, err
}

// send queues a message. The queue has room for everything that a worker may have, so it is full only if the worker does not read.
func (s *Session) send(ctx context.Context, m Message) {
	select {
	case s.out <- m:
	case <-ctx.Done():
	}
}

// drop forgets a call, and reports whether the session had it.
func (s *Session) drop(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[call]
	delete(s.held, call)
	return held
}

// Heartbeat notes that the worker lives, and keeps its calls.
func (s *Session) Heartbeat() {
	s.hear()
	s.beat.Raise()
}

func (s *Session) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = s.hub.Clock.Now()
}

// extend keeps the calls of the worker, and has it stop those that it has no more.
func (s *Session) extend(ctx context.Context) error {
	ids := s.ids()
	if len(ids) == 0 {
		return nil
	}
	lost, err := s.hub.Store.ExtendOffers(ctx, s.id, ids, s.hub.Clock.Now().Add(s.hub.Heartbeat))
	if err != nil {
		return err
	}
	for _, call := range lost {
		if s.drop(call) {
			s.send(ctx, Message{Cancelled: call})
		}
	}
	return nil
}

var codes = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// tries is how often an answer is stored that the database did not take, pause how long to wait in between.
const (
	tries = 5
	pause = 200 * time.Millisecond
)

// Answer stores the answer to a call. One that the session does not have is rejected. The error says that the database is away.
func (s *Session) Answer(ctx context.Context, call string, value json.RawMessage, failure *history.FunctionError) error {
	s.hear()
	s.mu.Lock()
	c, has := s.held[call]
	s.mu.Unlock()
	if !has {
		s.send(ctx, Message{Rejected: call, Reason: "the call is not this worker's: it has ended, or was given to another one"})
		return nil
	}
	f, found, err := s.hub.Catalogue.Function(ctx, c.Organization, c.Function)
	if err != nil {
		return err
	}
	a := Answer{Session: s.id, Call: call, Value: value, Error: worded(failure)}
	if a.Error == nil {
		if a.Error = history.AnswerDoor.Refuse(c.Function, value); a.Error == nil && found {
			if err := f.CheckResult(value); err != nil {
				problem := fmt.Sprintf("the answer of %s: %s", c.Function, fault.Public(err))
				a.Error = &history.FunctionError{Code: history.CodeUnreadable, Message: problem}
			}
		}
		if a.Error != nil {
			a.Value = nil
		}
	} else if a.Value = nil; found {
		retries, _ := f.(interface{ Retries() bool })
		a.Error.Retryable = a.Error.Retryable && retries != nil && retries.Retries()
	}
	for attempt := 1; ; attempt++ {
		if err := s.hub.slots.Acquire(ctx, s.organization); err != nil {
			return err
		}
		accepted, err := s.hub.Store.AnswerOffer(ctx, a)
		s.hub.slots.Release()
		if err != nil {
			if attempt == tries || !fault.Is(err, fault.Unavailable) || clock.Sleep(ctx, s.hub.Clock, pause) != nil {
				return err
			}
			continue
		}
		s.drop(call)
		if !accepted {
			s.send(ctx, Message{Rejected: call, Reason: "the call has ended, or was given to another worker"})
		}
		break
	}
	s.answered(ctx)
	return nil
}

// answered looks for more if there was more than the worker had room for, and ends a drain.
func (s *Session) answered(ctx context.Context) {
	s.mu.Lock()
	more := s.full && !s.draining
	drained := s.draining && len(s.held) == 0
	s.mu.Unlock()
	if more {
		s.look.Raise()
	}
	if drained {
		s.send(ctx, Message{Drained: true})
	}
}

// Drain gives the worker no more calls. Once it has answered those that it has, it is sent Drained.
func (s *Session) Drain(ctx context.Context) {
	s.hear()
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.answered(ctx)
}

// worded is a failure as a program may see it; nil for none.
func worded(e *history.FunctionError) *history.FunctionError {
	if e == nil {
		return nil
	}
	clean := *e
	if !codes.MatchString(clean.Code) {
		clean.Code = "failed"
	}
	clean.Message, _ = history.Redact(history.Storable(history.Truncate(clean.Message, history.MaxError)))
	clean.After = max(0, min(clean.After, maxPausedAnswer))
	return &clean
}

// Close ends the session: its calls are offered to other workers at once. ctx may have ended.
func (s *Session) Close(ctx context.Context) {
	h := s.hub
	h.mu.Lock()
	h.sessions[s.organization] = slices.DeleteFunc(h.sessions[s.organization], func(other *Session) bool { return other == s })
	if len(h.sessions[s.organization]) == 0 {
		delete(h.sessions, s.organization)
	}
	h.mu.Unlock()
	s.mu.Lock()
	functions := map[string]bool{}
	for _, c := range s.held {
		functions[c.Function] = true
	}
	s.mu.Unlock()
	ids := s.ids()
	h.Log.InfoContext(ctx, "worker disconnected", "worker", s.name, "organization", s.organization, "session", s.id, "calls", len(ids))
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // the stream has ended, and with it ctx
	defer cancel()
	if err := h.Store.ReleaseOffers(ctx, s.id, ids, h.Clock.Now()); err != nil {
		h.Log.WarnContext(ctx, "releasing the calls of a worker failed; they are offered again later", "worker", s.name, "error", err)
		return
	}
	for function := range functions {
		h.Offered(s.organization, function)
	}
}
