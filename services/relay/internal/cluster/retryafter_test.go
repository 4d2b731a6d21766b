package cluster

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// busy is an overloaded API server: it records when each request arrived, and answers the first ones with 429.
type busy struct {
	mu       sync.Mutex
	refusals int
	arrivals []time.Time
}

func (s *busy) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, clock.System().Now())
	if len(s.arrivals) <= s.refusals {
		w.Header().Set("Retry-After", "1")
		respond(w, http.StatusTooManyRequests, status(http.StatusTooManyRequests, "TooManyRequests"))
		return
	}
	respond(w, http.StatusOK, `{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"api"}}`)
}

// requests returns the number of requests so far, and the least time between two of them.
func (s *busy) requests() (n int, least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least = time.Hour
	for i := 1; i < len(s.arrivals); i++ {
		least = min(least, s.arrivals[i].Sub(s.arrivals[i-1]))
	}
	return len(s.arrivals), least
}

// early is by how much a request may seem to come too early, with two readings of a clock.
const early = 10 * time.Millisecond

func TestARequestIsRetriedAfterTheRequestedTime(t *testing.T) {
	t.Parallel()
	s := &busy{refusals: 2}
	if _, err := open(t, s.ServeHTTP).Get(t.Context(), rollout("api")); err != nil {
		t.Fatal(err)
	}
	if n, least := s.requests(); n != 3 || least < time.Second-early {
		t.Errorf("found %d requests, %s apart at the least, expected 3 and the second that Retry-After asks for", n, least)
	}
}

// recorder sits between the relay and its requests on the wire: it records when each was sent, and when the refusal arrived.
type recorder struct {
	next http.RoundTripper

	mu      sync.Mutex
	sent    []time.Time
	refused time.Time
}

func (t *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.sent = append(t.sent, clock.System().Now())
	t.mu.Unlock()
	answer, err := t.next.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusTooManyRequests {
		t.mu.Lock()
		t.refused = clock.System().Now()
		t.mu.Unlock()
	}
	return answer, err
}

// wasRefused reports whether the relay has received the refusal.
func (t *recorder) wasRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.refused.IsZero()
}

// The client's own wait ends with the request. The relay's does not: neither retried nor other calls are sent too early.
func TestTheNextRequestWaitsAsWell(t *testing.T) {
	t.Parallel()
	wire := &recorder{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !wire.wasRefused() { // a response that was late on a busy machine is not a refusal
			w.Header().Set("Retry-After", "1")
			respond(w, http.StatusTooManyRequests, status(http.StatusTooManyRequests, "TooManyRequests"))
			return
		}
		respond(w, http.StatusOK, `{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"api"}}`)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, WrapTransport: func(next http.RoundTripper) http.RoundTripper { wire.next = next; return wire }}
	c, err := forConfig(config, 100*time.Millisecond, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for deadline := clock.System().Now().Add(time.Minute); ; {
		_, err := c.Get(t.Context(), rollout("api"))
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Unavailable) || clock.System().Now().After(deadline) {
			t.Fatalf("error %v, expected the class of a cluster that does not answer, and an answer within a minute", err)
		}
		refused++
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	early := slices.ContainsFunc(wire.sent, func(at time.Time) bool { return at.After(wire.refused) && at.Sub(wire.refused) < time.Second })
	if refused == 0 || early {
		t.Errorf("refused at %s, and sent at %s after %d calls that timed out; expected nothing for a second", wire.refused, wire.sent, refused)
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "86400": longestRetryAfter, "-3": 0, "soon": 0, "": 0} {
		limited := &retryAfter{clock: clocktest.New(at)}
		limited.note(header)
		if got := max(0, limited.until.Sub(at)); got != want {
			t.Errorf("Retry-After %q: found %s, expected %s", header, got, want)
		}
	}
}
