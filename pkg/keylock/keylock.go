// Package keylock is a mutex for each key: one caller at a time holds a key, and any number of keys can be held at once.
//
// The locks are in memory and serve one process. They are no substitute for a lock between processes: correctness must not depend on
// them, they only keep callers from undoing each other's work.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks by key. The zero value is ready to use; it must not be copied.
type Locks struct {
	mu sync.Mutex
	// held has a channel for each key that is locked, which is closed on unlock.
	held map[string]chan struct{}
}

// Lock waits until the key is free or ctx ends, whose error it returns. The caller that got the lock calls unlock once. Waiting callers are
// not served in any particular order.
func (l *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy, taken := l.held[key]
		if !taken {
			done := make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[key] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
