package git

import (
	"context"
	"fmt"
	"sync"
)

// queues let one caller at a time hold a key. They are in memory: between processes only the compare-and-swap of the
// push decides.
type queues struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// enter waits until nobody else holds the key, or ctx ends.
func (q *queues) enter(ctx context.Context, key string) (release func(), err error) {
	for {
		q.mu.Lock()
		busy, taken := q.held[key]
		if !taken {
			done := make(chan struct{})
			q.held[key] = done
			q.mu.Unlock()
			return func() {
				q.mu.Lock()
				delete(q.held, key)
				q.mu.Unlock()
				close(done)
			}, nil
		}
		q.mu.Unlock()
		select {
		// Not handed over but free: whoever locks first has it, so nobody is promised an order.
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", key, ctx.Err())
		}
	}
}
