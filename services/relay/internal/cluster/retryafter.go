package cluster

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// longestRetryAfter bounds what is believed: an API server asks for seconds, and something in between must not be able to
// keep the relay quiet for a day.
const longestRetryAfter = time.Minute

// retryAfter keeps to what an API server says with 429, or 503, and Retry-After (RFC 9110, 10.2.3): until then no request of
// the relay's is sent, for it is the relay as a whole that the server has had too many of. The client waits by itself
// only within the request that was refused; the next look, or another call, would not know. A request whose time ends
// before it may be sent fails as one to a server that does not answer.
type retryAfter struct {
	next  http.RoundTripper
	clock clock.Clock

	mu    sync.Mutex
	until time.Time
}

// RoundTrip sends a request when it may be sent.
func (t *retryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		t.mu.Lock()
		left := t.until.Sub(t.clock.Now())
		t.mu.Unlock()
		if left <= 0 {
			break
		}
		if err := clock.Sleep(r.Context(), t.clock, left); err != nil {
			return nil, fmt.Errorf("the API server wants no request for %s: %w", left.Round(time.Millisecond), err)
		}
	}
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // the client looks at it
	}
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable {
		t.note(answer.Header.Get("Retry-After"))
	}
	return answer, nil
}

// note reads Retry-After, of which Kubernetes sends the form in seconds. Anything else is the client's business.
func (t *retryAfter) note(header string) {
	seconds, err := strconv.Atoi(header)
	if err != nil || seconds <= 0 {
		return
	}
	until := t.clock.Now().Add(min(time.Duration(seconds)*time.Second, longestRetryAfter))
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}
