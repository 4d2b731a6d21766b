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

// busy is an API server that has had too many requests: it notes when each came, and answers the first so many with 429.
type busy struct {
	mu       sync.Mutex
	refusals int
	came     []time.Time
}

func (s *busy) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, clock.System().Now())
	if len(s.came) <= s.refusals {
		w.Header().Set("Retry-After", "1")
		respond(w, http.StatusTooManyRequests, status(http.StatusTooManyRequests, "TooManyRequests"))
		return
	}
	respond(w, http.StatusOK, `{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"api"}}`)
}

// requests are how many came so far, and the least time between two of them.
func (s *busy) requests() (n int, least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least = time.Hour
	for i := 1; i < len(s.came); i++ {
		least = min(least, s.came[i].Sub(s.came[i-1]))
	}
	return len(s.came), least
}

// early is how much sooner than asked a request may come by two readings of a clock.
const early = 10 * time.Millisecond

func TestARequestIsSentAgainWhenTheServerWantsIt(t *testing.T) {
	t.Parallel()
	s := &busy{refusals: 2}
	if _, err := open(t, s.ServeHTTP).Get(t.Context(), rollout("api")); err != nil {
		t.Fatal(err)
	}
	if n, least := s.requests(); n != 3 || least < time.Second-early {
		t.Errorf("found %d requests, %s apart at the least, expected 3 and the second that Retry-After asks for", n, least)
	}
}

// told is what lies between the relay and its requests on the wire: it notes when each was sent, and when the answer came that asks
// for none.
type told struct {
	next http.RoundTripper

	mu      sync.Mutex
	sent    []time.Time
	refused time.Time
}

func (t *told) RoundTrip(r *http.Request) (*http.Response, error) {
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

// wasRefused reports whether the relay has had that answer.
func (t *told) wasRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.refused.IsZero()
}

// The client's own patience ends with the request. That of the relay does not: calls that are begun anew, and those of
// others, are not sent before the time.
func TestTheNextRequestWaitsAsWell(t *testing.T) {
	t.Parallel()
	wire := &told{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !wire.wasRefused() { // an answer that came too late on a busy machine asked for nothing
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
		t.Errorf("refused at %s, and sent at %s after %d calls that had no time; expected nothing for a second", wire.refused, wire.sent, refused)
	}
}

func TestNobodyKeepsTheRelayQuietForADay(t *testing.T) {
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
