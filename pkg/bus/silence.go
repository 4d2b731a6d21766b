package bus

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// moveAfter is how long a connected server of a cluster may leave everything unanswered until another one is tried, and that one after
	// it; the pause doubles up to movesMost times, since the cluster may have lost its quorum wherever one looks from.
	moveAfter = 12 * time.Second
	movesMost = 5
)

// silence is how long nothing has been answered by streams, on a connection that exists: the server may be cut off from the others of its
// cluster. The zero value is no silence.
type silence struct {
	mu           sync.Mutex
	since, moved time.Time
	moves        int
}

// note records the outcome of a request to a stream, and reports whether it is time to try another server.
func (s *silence) note(now time.Time, err error) (move bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !fault.Is(err, fault.Unavailable) {
		s.since, s.moves = time.Time{}, 0
		return false
	}
	if s.since.IsZero() {
		s.since = now
	}
	if now.Sub(s.since) < moveAfter || now.Sub(s.moved) < moveAfter<<min(s.moves, movesMost) {
		return false
	}
	s.moved, s.moves = now, s.moves+1
	return true
}

// heard notes the outcome of a request to a stream, and moves the connection to another server of the cluster where this one has been
// silent for too long. Publications are of a kind of their own: a server that is cut off may know a stream that it cannot reach.
func (c *Conn) heard(ctx context.Context, kind *silence, err error) {
	if !kind.note(c.clock.Now(), err) || c.nc.ConnectedClusterName() == "" {
		return
	}
	c.log.WarnContext(ctx, "the connected server does not answer; trying another one",
		telemetry.KeyAddress, c.nc.ConnectedUrlRedacted())
	_ = c.nc.ForceReconnect() // fails only on a connection that is closed
}
