package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

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
	stored       wake.Signal

	mu   sync.Mutex
	held map[string]Call
	// concealed are the secrets that the worker was sent with calls, by their ids. They stay while a call is another's: the worker may get it
	// again, and answer with a value that was rotated meanwhile.
	concealed map[string]*activity.Concealed
	// kept is how many calls are being stored as this session's, and fresh are those that are stored and not given yet.
	kept     int
	fresh    []Call
	draining bool
	drained  bool // the worker has been notified
	closed   bool
	full     bool // others may wait for room: the last look found as many calls as it took, or a call found no room
	heard    time.Time
}

// ID is the session's.
func (s *Session) ID() string { return s.id }

// Messages are what the worker is to be sent.
func (s *Session) Messages() <-chan Message { return s.out }

func (s *Session) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	return s.most - len(s.held) - s.kept
}

// wanted notes that a call has found no room.
func (s *Session) wanted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = true
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
	var looked time.Time
	only := false // the session was notified of stored calls alone, and needs no look
	for ctx.Err() == nil {
		if now := h.Clock.Now(); !only || now.Sub(looked) >= h.Poll {
			looked = now
			if err := s.take(ctx); err != nil && ctx.Err() == nil {
				h.Log.WarnContext(ctx, "taking calls for a worker failed; will retry", "worker", s.name, "session", s.id, "error", err)
			}
			s.endDrain(ctx) // it waits for a look, which keeps all room
		}
		only = false
		t := h.Clock.NewTimer(h.Poll)
		select {
		case <-s.stored:
			only = true
			s.giveStored(ctx)
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
	for {
		room := s.keepAll()
		if room == 0 {
			return nil
		}
		calls, err := s.takeUpTo(ctx, room)
		s.mu.Lock()
		s.kept -= room
		if err != nil {
			s.full = true
			s.mu.Unlock()
			return err
		}
		more := s.full || len(calls) == room // a call has found no room meanwhile, or there may be others
		s.full = more
		var given []Call
		for _, c := range calls {
			// The worker may be at it already: a crash of the database has lost that the session has it.
			if _, again := s.held[c.ID]; !again {
				given = append(given, c)
			}
			c.Taken = s.hub.Clock.Now()
			s.held[c.ID] = c
		}
		s.mu.Unlock()
		for _, c := range given {
			s.give(ctx, c)
		}
		if !more {
			return nil
		}
	}
}

func (s *Session) takeUpTo(ctx context.Context, most int) ([]Call, error) {
	h := s.hub
	if err := h.slots.Acquire(ctx, s.organization); err != nil {
		return nil, err
	}
	defer h.slots.Release()
	now := h.Clock.Now()
	return h.Store.TakeOffers(ctx, Taking{
		Organization: s.organization, Functions: s.functions, Session: s.id, Now: now, Until: now.Add(h.Heartbeat), Most: most,
	})
}

// give sends a call to the worker, if the guard admits it. The answer to any other is the refusal.
func (s *Session) give(ctx context.Context, c Call) {
	h := s.hub
	refusal, err := s.admit(ctx, c)
	if err == nil && refusal == nil {
		refusal, err = s.resolve(ctx, &c)
	}
	if err != nil { // it is offered again when the time of this attempt is over
		h.Log.WarnContext(ctx, "checking the passage or the secrets of a worker's call failed; will retry", "function", c.Function, "workflow",
			c.Workflow, "error", err)
		s.drop(c.ID)
		return
	}
	if refusal != nil {
		a := Answer{Session: s.id, Call: c.ID, Execution: c.Execution, Error: refusal, Began: c.Taken}
		if _, err := h.Store.AnswerOffer(ctx, a); err != nil &&
			ctx.Err() == nil {
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
			err = fault.New(fault.Unavailable, "function %s is no longer registered", c.Function)
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

// finish forgets a call that is answered.
func (s *Session) finish(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, call)
	delete(s.concealed, call)
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

// Answer stores the answer to a call. One that the session does not have is rejected. The error means that the database is away.
func (s *Session) Answer(ctx context.Context, call string, value json.RawMessage, failure *history.FunctionError) error {
	s.hear()
	s.mu.Lock()
	c, has := s.held[call]
	concealed := s.concealed[call]
	s.mu.Unlock()
	if !has {
		s.send(ctx, Message{Rejected: call, Reason: "the call is not this worker's: it has ended, or was given to another one"})
		return nil
	}
	f, found, err := s.hub.Catalogue.Function(ctx, c.Organization, c.Function)
	if err != nil {
		return err
	}
	value, failure = clean(concealed, value, failure)
	a := Answer{Session: s.id, Call: call, Execution: c.Execution, Value: value, Error: worded(failure), Began: c.Taken}
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
		if accepted {
			s.finish(call)
		} else {
			s.drop(call)
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
	s.mu.Unlock()
	if more {
		s.look.Raise()
	}
	s.endDrain(ctx)
}

// endDrain notifies the worker, once, that it has no call and gets none.
func (s *Session) endDrain(ctx context.Context) {
	s.mu.Lock()
	ends := s.draining && !s.drained && len(s.held)+s.kept == 0
	s.drained = s.drained || ends
	s.mu.Unlock()
	if ends {
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
	s.closed = true
	functions := map[string]bool{}
	for _, c := range s.held {
		functions[c.Function] = true
	}
	s.mu.Unlock()
	ids := s.ids()
	h.Log.InfoContext(ctx, "worker disconnected", "worker", s.name, "organization", s.organization, "session", s.id, "calls", len(ids))
	if len(ids) > 0 {
		s.release(context.WithoutCancel(ctx), ids, slices.Sorted(maps.Keys(functions))) // the stream has ended, and with it ctx
	}
}

// release offers calls that the session has to other workers.
func (s *Session) release(ctx context.Context, ids, functions []string) {
	h := s.hub
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.Store.ReleaseOffers(ctx, s.id, ids, h.Clock.Now()); err != nil {
		h.Log.WarnContext(ctx, "releasing the calls of a worker failed; they are offered again later", "worker", s.name, "error", err)
		return
	}
	for _, function := range functions {
		h.Offered(s.organization, function)
	}
}
