package cluster

import (
	"net/http"
	"net/http/httptest"
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

func (s *busy) open(t *testing.T, timeout time.Duration) *Cluster {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := forConfig(&rest.Config{Host: server.URL}, timeout, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// early is how much sooner than asked a request may come by two readings of a clock.
const early = 10 * time.Millisecond

func TestARequestIsSentAgainWhenTheServerWantsIt(t *testing.T) {
	t.Parallel()
	s := &busy{refusals: 2}
	if _, err := s.open(t, time.Minute).Get(t.Context(), rollout("api")); err != nil {
		t.Fatal(err)
	}
	if n, least := s.requests(); n != 3 || least < time.Second-early {
		t.Errorf("found %d requests, %s apart at the least, expected 3 and the second that Retry-After asks for", n, least)
	}
}

// The client's own patience ends with the request. That of the relay does not: calls that are begun anew, and those of
// others, are not sent before the time.
func TestTheNextRequestWaitsAsWell(t *testing.T) {
	t.Parallel()
	s := &busy{refusals: 1}
	c := s.open(t, 100*time.Millisecond)
	refused := 0
	for {
		_, err := c.Get(t.Context(), rollout("api"))
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Unavailable) {
			t.Fatalf("error %v, expected the class of a cluster that does not answer", err)
		}
		refused++
	}
	if n, least := s.requests(); refused == 0 || n < 2 || least < time.Second-early {
		t.Errorf("found %d requests, %s apart at the least, after %d calls that had no time; expected a second between the first two", n, least, refused)
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
