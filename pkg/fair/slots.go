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
	// last wait behind everybody else. One of them at most has a slot, and takes it only while more than spare are free.
	last  Queue[chan struct{}]
	spare int
	busy  bool
}

// NewSlots returns n slots; n must be positive.
func NewSlots(n int) *Slots { return &Slots{free: n, spare: max(0, min(1, n-1))} }

// Acquire takes a slot for a tenant, when it is the tenant's turn. An error is that of ctx, and then there is nothing to release.
func (s *Slots) Acquire(ctx context.Context, tenant int64) error {
	turn, place := s.enter(tenant)
	if place == nil {
		return nil
	}
	return s.await(ctx, turn, &s.waiting, place, s.Release)
}

// AcquireLast is Acquire for what is less urgent than all else: the slot is one that nobody else waits for, while another one stays free if
// there are several, and one such caller at most has one. It is returned by ReleaseLast.
func (s *Slots) AcquireLast(ctx context.Context, tenant int64) error {
	s.mu.Lock()
	turn := make(chan struct{})
	place := s.last.Push(tenant, turn)
	s.serveLast()
	s.mu.Unlock()
	return s.await(ctx, turn, &s.last, place, s.ReleaseLast)
}

// await waits for a turn until ctx ends.
func (s *Slots) await(
	ctx context.Context, turn chan struct{}, queue *Queue[chan struct{}], place *Place[chan struct{}], release func(),
) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	queue.Remove(place)
	s.mu.Unlock()
	select {
	case <-turn: // the slot was granted just as ctx ended
		release()
	default:
	}
	return ctx.Err()
}

// serveLast gives a slot to the first of those that wait behind everybody else, if it may have one.
func (s *Slots) serveLast() {
	if s.busy || s.free <= s.spare {
		return
	}
	if turn, ok := s.last.Pop(); ok {
		s.busy = true
		s.free--
		close(turn)
	}
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
	s.serveLast()
}

// ReleaseLast returns a slot of AcquireLast.
func (s *Slots) ReleaseLast() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
	s.Release()
}

// Waiting returns the number of queued callers, those that wait behind everybody else included.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len() + s.last.Len()
}
