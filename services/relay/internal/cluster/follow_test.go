package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// server is the part of an API server that an informer needs: a list, and a watch that ends as often as a test wants.
type server struct {
	mu      sync.Mutex
	version int
	phase   string
	refuse  func(w http.ResponseWriter, watch bool) bool
	lists   int
	changed chan struct{}
}

func (s *server) object() map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
		"metadata": map[string]any{
			"name": "api", "namespace": "shop", "resourceVersion": fmt.Sprint(s.version),
			"managedFields": []any{map[string]any{"manager": "x"}},
		},
		"status": map[string]any{"phase": s.phase},
	}
}

func (s *server) set(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.phase = phase
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	watch := r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"
	if s.refuse != nil && s.refuse(w, watch) {
		s.mu.Unlock()
		return
	}
	if r.URL.Query().Get("fieldSelector") != "metadata.name=api" {
		s.mu.Unlock()
		respond(w, 400, status(400, "BadRequest"))
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" { // like a server that is too old for it
		s.mu.Unlock()
		respond(w, 422, status(422, "Invalid"))
		return
	}
	if !watch {
		s.lists++
		b, _ := json.Marshal(map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "RolloutList",
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)}, "items": []any{s.object()},
		})
		s.mu.Unlock()
		respond(w, 200, string(b))
		return
	}
	changed := s.changed
	if r.URL.Query().Get("resourceVersion") != fmt.Sprint(s.version) { // earlier changes are sent at once
		changed = make(chan struct{})
		close(changed)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-changed:
		s.mu.Lock()
		b, _ := json.Marshal(map[string]any{"type": "MODIFIED", "object": s.object()})
		s.mu.Unlock()
		_, _ = w.Write(b) // the watch ends, as watches of API servers do
	case <-r.Context().Done():
	}
}

// follow follows the one Rollout of the server until the test ends.
func follow(t *testing.T, s *server) <-chan core.Change {
	t.Helper()
	s.changed = make(chan struct{})
	c := open(t, s.ServeHTTP)
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan core.Change, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		c.Follow(ctx, core.Selection{Kind: core.Kind{Kind: "Rollout"}, Namespace: "shop", Name: "api"},
			func(change core.Change) { changes <- change })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes
}

// until waits for a matching change, and skips others.
func until(t *testing.T, changes <-chan core.Change, what string, fits func(core.Change) bool) core.Change {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case change := <-changes:
			if fits(change) {
				return change
			}
		case <-ctx.Done():
			t.Fatalf("never reported: %s", what)
		}
	}
}

func inPhase(phase string) func(core.Change) bool {
	return func(c core.Change) bool {
		status, _ := c.Object["status"].(map[string]any)
		return c.Name == "api" && status["phase"] == phase
	}
}

func TestFollowReportsStateAndChangesAcrossWatches(t *testing.T) {
	t.Parallel()
	s := &server{version: 1, phase: "Healthy"}
	changes := follow(t, s)
	first := until(t, changes, "the present state", inPhase("Healthy"))
	if meta, _ := first.Object["metadata"].(map[string]any); meta["managedFields"] != nil {
		t.Error("managedFields are kept in memory")
	}
	until(t, changes, "the end of the initial list", func(c core.Change) bool { return c.Name == "" && c.Err == nil && !c.Reached })
	for _, phase := range []string{"Progressing", "Paused", "Healthy"} {
		s.set(phase)
		until(t, changes, phase, inPhase(phase))
	}
}

// The resource version has expired: a new list is made, and following continues (410).
func TestFollowContinuesAfterAnExpiredWatch(t *testing.T) {
	t.Parallel()
	s := &server{version: 1, phase: "Healthy"}
	expired := 0
	s.refuse = func(w http.ResponseWriter, watch bool) bool {
		if !watch || s.lists == 0 || expired > 0 {
			return false
		}
		expired++
		s.version, s.phase = 9, "Paused" // happened between two watches
		respond(w, 410, status(410, "Expired"))
		return true
	}
	changes := follow(t, s)
	until(t, changes, "the state after the gap", inPhase("Paused"))
	s.set("Progressing")
	until(t, changes, "a change after the gap", inPhase("Progressing"))
}

func TestFollowReportsWhyItFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		refuse func(http.ResponseWriter)
		fits   func(error) bool
	}{
		{
			"no rights", func(w http.ResponseWriter) { respond(w, 403, status(403, "Forbidden")) },
			func(err error) bool { return fault.Is(err, fault.Denied) },
		},
		{"no such kind", func(w http.ResponseWriter) { http.Error(w, "404 page not found", 404) }, func(err error) bool {
			e, isError := err.(*core.Error) //nolint:errorlint // it is not wrapped
			return isError && e.Code == core.CodeUnknownKind
		}},
		{
			"too busy", func(w http.ResponseWriter) { respond(w, 503, status(503, "ServiceUnavailable")) },
			func(err error) bool { return fault.Is(err, fault.Unavailable) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &server{version: 1, phase: "Healthy"}
			mended := false
			s.refuse = func(w http.ResponseWriter, _ bool) bool {
				if !mended {
					tc.refuse(w)
				}
				return !mended
			}
			changes := follow(t, s)
			until(t, changes, tc.name, func(c core.Change) bool { return c.Err != nil && tc.fits(c.Err) })
			s.mu.Lock()
			mended = true
			s.mu.Unlock()
			until(t, changes, "the state, once it can be read", inPhase("Healthy"))
		})
	}
}
