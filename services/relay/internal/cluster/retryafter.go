package cluster

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// longestRetryAfter bounds the wait: an API server asks for seconds, and a proxy in between must not be able to silence the relay for a
// day.
const longestRetryAfter = time.Minute

// retryAfter honours Retry-After in a response 429 or 503 of an API server (RFC 9110, 10.2.3): until then no request of the relay is sent,
// since the server limits the relay as a whole. The client itself waits only within the refused request; other requests and calls would
// not. A request whose deadline comes first fails as one to an unreachable server.
type retryAfter struct {
	next  http.RoundTripper
	clock clock.Clock

	mu    sync.Mutex
	until time.Time
}

// RoundTrip sends a request as soon as it may be sent.
func (t *retryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		t.mu.Lock()
		left := t.until.Sub(t.clock.Now())
		t.mu.Unlock()
		if left <= 0 {
			break
		}
		if err := clock.Sleep(r.Context(), t.clock, left); err != nil {
			return nil, fmt.Errorf("the API server accepts no requests for %s: %w", left.Round(time.Millisecond), err)
		}
	}
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // the client inspects it
	}
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable {
		t.note(answer.Header.Get("Retry-After"))
	}
	return answer, nil
}

// note reads Retry-After in seconds, the form that Kubernetes uses. Any other form is left to the client.
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
