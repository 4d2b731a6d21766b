package simulated_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// machine does what machine.py of a new driver does.
type machine struct {
	mu     sync.Mutex
	images map[string]string
}

// ServeHTTP takes every image, and says that it runs.
func (m *machine) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case in.URL.Path == "/healthz":
	case in.Method == http.MethodPut:
		var body struct{ Image string }
		if err := json.NewDecoder(in.Body).Decode(&body); err != nil {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		m.images[in.URL.Path] = body.Image
	case m.images[in.URL.Path] != "":
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(map[string]any{"image": m.images[in.URL.Path], "healthy": true})
	default:
		out.WriteHeader(http.StatusNotFound)
	}
}

// D53: what `lockstep driver new` writes deploys the demo as it is: it is loaded by the services, onboarded, set up, and runs each version of
// each service at its server.
func TestANewDriverDeploysTheDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a stack")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	drivers := t.TempDir()
	for _, args := range [][]string{
		{"driver", "new", "machines", filepath.Join(drivers, "machines")},
		{"driver", "test", filepath.Join(drivers, "machines"), "--seeds", "2"},
		{"driver", "check", filepath.Join(drivers, "machines")},
	} {
		if code := cli.Main("lockstep", args); code != 0 {
			t.Fatalf("lockstep %s: exit status %d", strings.Join(args, " "), code)
		}
	}
	if text, err := os.ReadFile(filepath.Join(drivers, "machines", "README.md")); err != nil || !strings.Contains(string(text), `make demo DEMO_FLAGS="--data`) ||
		!strings.Contains(string(text), "--driver machines@1") {
		t.Errorf("found %v: %s; expected how to deploy the demo with it", err, text)
	}
	runs := &machine{images: map[string]string{}}
	server := httptest.NewServer(runs)
	t.Cleanup(server.Close)
	s, err := stack.Start(ctx, stack.Config{Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true, Set: []string{
		"domain.driver_dir=" + drivers, "workflow.driver_dir=" + drivers,
		`workflow.http_allow_networks=["` + strings.TrimPrefix(server.URL, "http://") + `"]`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Stop(), s.Discard(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	w := demo.NewWorld(s, demo.Scenario{Application: "shop", Services: []string{"api", "worker"}, Stages: []demo.Stage{{
		Environment: "machine", Tier: "DEVELOPMENT", Driver: "machines@1",
		DriverConfig: map[string]any{"cluster_agent_id": nil, "url": server.URL}, DriverOwn: map[string]any{"name": "shop"},
	}}}, clock.System())
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"1.0.0", "1.1.0"} {
		set, err := w.Push(ctx, tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Roll(ctx, set.ID, "a new driver")
		if err == nil {
			r, err = w.Follow(ctx, r.ID, demo.Hooks{})
		}
		if err != nil || r.State != "COMPLETED" {
			for _, row := range r.Journal {
				t.Logf("%s %s %s", row.Subject, row.Event, row.Reason)
			}
			t.Fatalf("%s: found %s, %v", tag, r.State, err)
		}
		want := map[string]string{}
		for _, entry := range set.Entries {
			want["/services/shop/"+entry.Service.Name] = w.Scenario.Image(s.Endpoints().OCI, entry.Service.Name) + "@" + entry.Version.Digest
		}
		runs.mu.Lock()
		if !maps.Equal(runs.images, want) {
			t.Errorf("%s: the machine runs %v, expected %v", tag, runs.images, want)
		}
		runs.mu.Unlock()
	}
}
