// Package turn lets callers take turns: one at a time for each key, any number of keys at once.
//
// It is in memory, for one process. It is no lock between processes, and nothing that has to be true may rest on it alone:
// it only keeps callers from undoing each other's work.
package turn

import (
	"context"
	"sync"
)

// Keys are what turns are taken by. The zero value is ready to use; it must not be copied.
type Keys struct {
	mu sync.Mutex
	// held has, for each key that somebody holds, what is closed when it is given back.
	held map[string]chan struct{}
}

// Enter waits until nobody else holds the key, or ctx ends, whose error it answers. Whoever has entered calls leave, once.
// Of several that wait, whoever comes first to the lock has the next turn: nobody is promised an order.
func (k *Keys) Enter(ctx context.Context, key string) (leave func(), err error) {
	for {
		k.mu.Lock()
		busy, taken := k.held[key]
		if !taken {
			done := make(chan struct{})
			if k.held == nil {
				k.held = map[string]chan struct{}{}
			}
			k.held[key] = done
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(done)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
