package fair

import (
	"context"
	"sync"
)

// Slots is a semaphore with a fair queue: no slot is free while a tenant waits. It is safe for concurrent use.
type Slots struct {
	mu      sync.Mutex
	free    int
	waiting Queue[chan struct{}]
}

// NewSlots returns n slots; n must be positive.
func NewSlots(n int) *Slots { return &Slots{free: n} }

// Acquire takes a slot for a tenant, when it is the tenant's turn. An error is that of ctx, and then there is nothing to release.
func (s *Slots) Acquire(ctx context.Context, tenant int64) error {
	turn, place := s.enter(tenant)
	if place == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.waiting.Remove(place)
	s.mu.Unlock()
	select {
	case <-turn: // the slot was granted just as ctx ended
		s.Release()
	default:
	}
	return ctx.Err()
}

// Enter is Acquire without a context: it waits as long as it takes.
func (s *Slots) Enter(tenant int64) {
	if turn, place := s.enter(tenant); place != nil {
		<-turn
	}
}

// enter takes a slot, or queues the tenant and returns a channel that is closed when it is its turn.
func (s *Slots) enter(tenant int64) (turn chan struct{}, place *Place[chan struct{}]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 {
		s.free--
		return nil, nil
	}
	turn = make(chan struct{})
	return turn, s.waiting.Push(tenant, turn)
}

// Free returns the number of free slots.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// TryAcquire takes a slot if one is free.
func (s *Slots) TryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

// Release passes a slot on to the next in the queue.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn, ok := s.waiting.Pop(); ok {
		close(turn)
		return
	}
	s.free++
}

// Waiting returns the number of queued callers.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len()
}
