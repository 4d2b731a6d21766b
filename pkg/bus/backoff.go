package bus

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// backoff is a delay that doubles up to a limit, so that nothing spins while the server is away.
type backoff struct{ first, next, limit time.Duration }

func newBackoff(first, limit time.Duration) *backoff {
	return &backoff{first: first, next: first, limit: limit}
}

func (b *backoff) wait(ctx context.Context, c clock.Clock) error {
	d := b.next
	b.next = min(2*b.next, b.limit)
	return clock.Sleep(ctx, c, d)
}

func (b *backoff) reset() { b.next = b.first }
