package cluster

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A real API server that has just been started forbids everything for a moment, its own readiness page included.
func TestARefusalOfAStartingServerIsRetried(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case n <= 3:
			respond(w, 403, status(403, "Forbidden"))
		case r.URL.Path == "/readyz":
			http.Error(w, "informers have not synced", http.StatusInternalServerError)
		default:
			respond(w, 200, `{"kind":"Rollout","apiVersion":"argoproj.io/v1alpha1","metadata":{"name":"api"}}`)
		}
	})
	if _, err := c.Get(t.Context(), rollout("api")); err != nil {
		t.Fatal(err)
	}
}

func TestARefusalOfAReadyServerIsBelieved(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			refused.Add(1)
			respond(w, 403, status(403, "Forbidden"))
		}
	})
	if _, err := c.Get(t.Context(), rollout("api")); !fault.Is(err, fault.Denied) {
		t.Fatalf("error %v, want one of class denied", err)
	}
	if n := refused.Load(); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}
