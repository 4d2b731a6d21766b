package fair

import (
	"context"
	"sync"
)

// Slots bounds how many do something at the same time, as a semaphore does, with a fair queue in front. No slot is free while somebody waits.
// It is safe for concurrent use.
type Slots struct {
	mu      sync.Mutex
	free    int
	waiting Queue[chan struct{}]
}

// NewSlots makes n slots, which has to be above zero.
func NewSlots(n int) *Slots { return &Slots{free: n} }

// Acquire takes a slot for a tenant, when it is the tenant's turn. After an error, which is ctx's, there is nothing to release.
func (s *Slots) Acquire(ctx context.Context, tenant int64) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := s.waiting.Push(tenant, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.waiting.Remove(place)
	s.mu.Unlock()
	select {
	case <-turn: // the slot came with the end
		s.Release()
	default:
	}
	return ctx.Err()
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

// Release gives a slot to whoever is next.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn, ok := s.waiting.Pop(); ok {
		close(turn)
		return
	}
	s.free++
}

// Waiting is how many wait for a slot.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len()
}
