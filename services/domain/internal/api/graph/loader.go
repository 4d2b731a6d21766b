package graph

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// loader joins the reads that the fields of one request ask for at about the same time into one, so that a list costs
// as many queries as it has levels, not as it has items. It keeps nothing: what is asked for later is read again, and
// sees what a mutation before it in the same request has changed.
type loader[K comparable, V any] struct {
	fetch  func(ctx context.Context, keys []K) (map[K]V, error)
	clock  clock.Clock
	window time.Duration

	mu sync.Mutex
	// open takes further keys; nil when the next one begins a batch. mu guards it, and the keys of the batch it points to.
	open *batch[K, V]
}

// batch is one read that is being put together or under way.
type batch[K comparable, V any] struct {
	keys  []K
	asked map[K]bool
	// done is closed when values and err are set; before that only run may touch them.
	done   chan struct{}
	values map[K]V
	err    error
}

// load is the value of a key, and whether there is one.
func (l *loader[K, V]) load(ctx context.Context, key K) (value V, found bool, err error) {
	b := l.join(ctx, key)
	select {
	case <-b.done:
	case <-ctx.Done():
		return value, false, fmt.Errorf("load: %w", ctx.Err())
	}
	if b.err != nil {
		return value, false, b.err
	}
	value, found = b.values[key]
	return value, found, nil
}

// loadAll are the values of several keys that have one, in the order of the keys, in one read.
func (l *loader[K, V]) loadAll(ctx context.Context, keys []K) ([]V, error) {
	var all []V
	batches := make([]*batch[K, V], len(keys))
	for i, key := range keys {
		batches[i] = l.join(ctx, key)
	}
	for i, b := range batches {
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("load: %w", ctx.Err())
		}
		if b.err != nil {
			return nil, b.err
		}
		if value, found := b.values[keys[i]]; found {
			all = append(all, value)
		}
	}
	return all, nil
}

// join puts a key into the batch that is open, or opens one. The batch reads with the context of the caller that opened it: all
// its members belong to one request and end with it.
func (l *loader[K, V]) join(ctx context.Context, key K) *batch[K, V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.open
	if b == nil {
		b = &batch[K, V]{asked: map[K]bool{}, done: make(chan struct{})}
		l.open = b
		go l.run(ctx, b)
	}
	if !b.asked[key] {
		b.asked[key] = true
		b.keys = append(b.keys, key)
	}
	return b
}

// run waits for others to join, and reads.
func (l *loader[K, V]) run(ctx context.Context, b *batch[K, V]) {
	defer close(b.done)
	defer func() {
		if p := recover(); p != nil { // a panic here would not end the request but the process
			b.err = fmt.Errorf("load %d keys: panic: %v", len(b.keys), p)
		}
	}()
	_ = clock.Sleep(ctx, l.clock, l.window) // ended early, the read below says why
	l.mu.Lock()
	// Closed to others before the read: a later caller opens the next batch, and no key is added while fetch has
	// the list.
	l.open = nil
	l.mu.Unlock()
	b.values, b.err = l.fetch(ctx, b.keys)
}
