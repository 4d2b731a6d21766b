package fair

import (
	"context"
	"sync"
)

// Shares limits how many of something each holder has at a time, such as how many requests of a tenant are in progress. A holder that has
// as many waits; other holders do not. The zero value is ready to use; it must not be copied. It is safe for concurrent use. Holders
// without anything take no memory.
type Shares[K comparable] struct {
	mu sync.Mutex
	of map[K]*share
}

// share is what one holder may have.
type share struct {
	taken chan struct{}
	// users are the callers that have one, or wait for one.
	users int
}

// Acquire takes one for a holder, which may have as many as most, in the order of the calls. most is the same in all calls for a holder. If
// ctx ends first, Acquire returns its error, and nothing was taken.
func (s *Shares[K]) Acquire(ctx context.Context, holder K, most int) (release func(), err error) {
	own := s.enter(holder, most)
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.leave(holder, own)
		return nil, ctx.Err()
	}
	return func() {
		<-own.taken
		s.leave(holder, own)
	}, nil
}

func (s *Shares[K]) enter(holder K, most int) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, known := s.of[holder]
	if !known {
		if s.of == nil {
			s.of = map[K]*share{}
		}
		own = &share{taken: make(chan struct{}, most)}
		s.of[holder] = own
	}
	own.users++
	return own
}

func (s *Shares[K]) leave(holder K, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.of, holder)
	}
}
