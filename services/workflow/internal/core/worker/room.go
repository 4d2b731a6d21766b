package worker

import (
	"context"
	"sync"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Room keeps place for one call at the session with most of it; nil if none of this replica has any, or if calls of others wait for it:
// those are taken in their order.
func (h *Hub) Room(organization int64, function string) *activity.Room {
	s := h.roomiest(organization, function)
	if s == nil || !s.keep() {
		return nil
	}
	var once sync.Once
	return &activity.Room{
		Holder: s.id, Until: h.Clock.Now().Add(h.Heartbeat),
		Give: func(o activity.Offer) {
			once.Do(func() {
				s.add(Call{
					ID: o.ID, Execution: o.Execution, Organization: organization, Workflow: o.Workflow, Function: function, Args: o.Args,
					Attempt: 1, Deadline: o.Deadline, Trace: o.Trace,
				})
			})
		},
		Leave: func() { once.Do(s.leave) },
	}
}

// keep reports whether the session keeps place for one more call.
func (s *Session) keep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.closed || s.full || len(s.held)+s.kept >= s.most {
		return false
	}
	s.kept++
	return true
}

// leave gives place up.
func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept--
	s.stored.Raise() // a drain may have waited for it
}

// add has the session give a call to its worker that is stored as the session's. It does not wait: it is called by the run.
func (s *Session) add(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept--
	if s.closed {
		s.hub.left(s, c)
		return
	}
	s.held[c.ID] = c
	s.fresh = append(s.fresh, c)
	s.stored.Raise()
}

// giveStored gives the worker what is stored as the session's.
func (s *Session) giveStored(ctx context.Context) {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = nil
	s.mu.Unlock()
	for _, c := range fresh {
		s.give(ctx, c)
	}
	if len(fresh) == 0 {
		s.answered(ctx)
	}
}

// leftCall is a call that was stored as that of a session which has been closed meanwhile.
type leftCall struct {
	session *Session
	call    Call
}

// left has a call offered to other workers.
func (h *Hub) left(s *Session, c Call) {
	h.leftLock.Lock()
	defer h.leftLock.Unlock()
	h.leftCalls = append(h.leftCalls, leftCall{s, c})
	h.leaving.Raise()
}

// releaseLeft offers what sessions that are closed were to have.
func (h *Hub) releaseLeft(ctx context.Context) {
	h.leftLock.Lock()
	all := h.leftCalls
	h.leftCalls = nil
	h.leftLock.Unlock()
	for _, l := range all {
		l.session.release(ctx, []string{l.call.ID}, []string{l.call.Function})
	}
}
