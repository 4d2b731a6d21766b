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
	case <-turn: // the slot came with the end
		s.Release()
	default:
	}
	return ctx.Err()
}

// Enter is Acquire for who waits as long as it takes.
func (s *Slots) Enter(tenant int64) {
	if turn, place := s.enter(tenant); place != nil {
		<-turn
	}
}

// enter takes a slot, or a place in the queue and what is closed when it is the tenant's turn.
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

// Free is how many slots nobody has.
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
