package fair

import (
	"context"
	"sync"
)

// Shares limits how much of something one holder may have at a time, such as a tenant of requests to other servers: who has as much waits,
// and others do not. The zero value is ready to use; it must not be copied. It is safe for concurrent use. Holders without anything take no
// memory.
type Shares[K comparable] struct {
	mu sync.Mutex
	of map[K]*share
}

// share is what one holder may have.
type share struct {
	taken chan struct{}
	// users are those that have a part of it, or wait for one.
	users int
}

// Acquire takes one part of the share of a holder, who may have as many as most, in the order of the calls. most is the same in all calls
// for a holder. An error is that of ctx, and then there is nothing to release.
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
