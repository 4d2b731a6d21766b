package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

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
	until := h.Clock.Now().Add(h.Heartbeat)
	call := Call{Organization: organization, Function: function, Attempt: 1}
	return &activity.Room{
		Holder: s.id, Until: until,
		Give: func(o activity.Offer) {
			once.Do(func() {
				call.ID, call.Execution, call.Workflow, call.Args = o.ID, o.Execution, o.Workflow, o.Args
				call.Deadline, call.Trace = o.Deadline, o.Trace
				s.add(call, until)
			})
		},
		Leave: func(id string) {
			once.Do(func() {
				call.ID = id
				s.leave(call)
			})
		},
	}
}

// keepAll keeps all place that there is, and notes that others may wait if there is none.
func (s *Session) keepAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.most - len(s.held) - s.kept
	if s.draining || room <= 0 {
		s.full = true // there may be more when there is room again
		return 0
	}
	s.kept += room
	s.full = false
	return room
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

// leave gives place up. A call with an id may be stored: it is offered to all.
func (s *Session) leave(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept--
	s.stored.Raise() // a drain may have waited for it
	if c.ID != "" {
		s.hub.left(s, c)
	}
}

// add has the session give a call to its worker that is stored as the session's until then. It does not wait: it is called by the run. A
// call that was stored late may be another's by now: it is offered to all.
func (s *Session) add(c Call, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept--
	_, taken := s.held[c.ID]
	if taken { // it was offered again, and the session has it
		return
	}
	if s.closed || s.hub.Clock.Now().Add(s.hub.Heartbeat/2).After(until) {
		s.stored.Raise()
		s.hub.left(s, c)
		return
	}
	c.Taken = s.hub.Clock.Now()
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

// has reports whether the session has taken a call.
func (s *Session) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.held[id]
	return has
}

// left has calls that are stored as a session's offered to all.
func (h *Hub) left(s *Session, c Call) {
	h.leftLock.Lock()
	defer h.leftLock.Unlock()
	h.leftCalls[s] = append(h.leftCalls[s], c)
	h.leaving.Raise()
}

// releaseLeft offers them, until ctx ends. What it does not get to is offered when the time of its session is over.
func (h *Hub) releaseLeft(ctx context.Context) {
	for {
		select {
		case <-h.leaving:
		case <-ctx.Done():
			return
		}
		h.leftLock.Lock()
		all := h.leftCalls
		h.leftCalls = map[*Session][]Call{}
		h.leftLock.Unlock()
		for s, calls := range all {
			var ids []string
			functions := map[string]bool{}
			for _, c := range calls {
				if !s.has(c.ID) {
					ids = append(ids, c.ID)
					functions[c.Function] = true
				}
			}
			s.release(ctx, ids, slices.Sorted(maps.Keys(functions)))
		}
	}
}
