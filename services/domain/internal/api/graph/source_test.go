package graph_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// watch is the registry service: it knows what a test says, and counts what it is asked.
type watch struct {
	mu      sync.Mutex
	states  map[int64]setup.SourceState
	sight   setup.SourceSight
	away    bool
	asked   int
	changes int
	tried   []setup.NewArtifactSource
}

func (w *watch) States(context.Context, int64, []int64) (map[int64]setup.SourceState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.away {
		return nil, fault.New(fault.Unavailable, "nobody answers")
	}
	return maps.Clone(w.states), nil
}

// Senders has one hook for the organization that asks.
func (w *watch) Senders(_ context.Context, organization int64) ([]setup.ArtifactSender, error) {
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	if organization != 1 {
		return nil, nil
	}
	return []setup.ArtifactSender{{
		Name: "shop-harbor", Format: "harbor", Waiting: 1, LastArtifact: "r.example.com/shop/api:1.4.0", LastPublishedAt: &at,
		Refused: []setup.ArtifactRefusal{{What: "events[0].request.host", Reason: "found [::1", Times: 3, FirstAt: at, LastAt: at}},
	}}, nil
}

func (w *watch) Look(_ context.Context, _, id int64) (setup.SourceSight, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return setup.SourceSight{}, fault.New(fault.Unavailable, "nobody answers")
	}
	if _, known := w.states[id]; !known {
		return setup.SourceSight{}, fault.New(fault.NotFound, "no source %d here", id)
	}
	return w.sight, nil
}

func (w *watch) Try(_ context.Context, _ int64, n setup.NewArtifactSource) (setup.SourceSight, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried = append(w.tried, n)
	return w.sight, nil
}

func (w *watch) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
}

func (w *watch) set(change func(*watch)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// TestArtifactSources: made, changed, listed with how they are doing, looked at and tried (R7, E62).
func TestArtifactSources(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	image := func(name string, more ...string) map[string]any {
		c := map[string]any{"image": name}
		for pair := range slices.Chunk(more, 2) {
			c[pair[0]] = pair[len(pair)-1]
		}
		return c
	}
	f.change(ours, "createApplication", "application", "id", map[string]any{"name": "shop", "services": []any{
		map[string]any{"name": "api", "artifactSources": []any{map[string]any{
			"sourceRef":    "oci-image@1",
			"sourceConfig": image("r.example.com/shop/api"),
		}}},
	}})
	looked := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	f.watch.set(func(w *watch) {
		w.states = map[int64]setup.SourceState{1: {
			ID: 1, Polled: true, LookedAt: &looked, Failures: 2, LastError: "away",
			LastArtifact: "a@sha256:1",
		}}
		w.sight = setup.SourceSight{Artifact: "r.example.com/shop/api:2@sha256:2"}
	})
	want := func(t *testing.T, got payload, object map[string]any) {
		t.Helper()
		if diff := cmp.Diff(payload{Object: object, Errors: []userError{}}, got); diff != "" {
			t.Fatalf("payload (-want +got):\n%s", diff)
		}
	}
	const fields = "id sourceRef sourceConfig service { name }"
	create := func(in map[string]any) payload {
		return f.change(ours, "createArtifactSource", "artifactSource", fields, in)
	}
	want(t, create(map[string]any{
		"serviceId": "service_1", "sourceRef": "git@1",
		"sourceConfig": map[string]any{"repository": "https://git.example.com/shop/config", "branch": "main"},
	}), map[string]any{
		"id": "artifactsource_2", "sourceRef": "git@1", "service": map[string]any{"name": "api"},
		"sourceConfig": map[string]any{"repository": "https://git.example.com/shop/config", "branch": "main"},
	})
	for _, tt := range []struct {
		name, mutation, code, field, message string
		in                                   map[string]any
	}{
		{"twice", "createArtifactSource", "INVALID", "sourceConfig", "same artifacts", map[string]any{
			"serviceId": "service_1",
			"sourceRef": "oci-image@1", "sourceConfig": image("R.example.com/shop/api", "selection", "lexical"),
		}},
		{
			"bad config", "createArtifactSource", "INVALID", "sourceConfig/branch", "found nothing",
			map[string]any{"serviceId": "service_1", "sourceRef": "git@1", "sourceConfig": map[string]any{"repository": "https://x/y"}},
		},
		{
			"unknown service", "createArtifactSource", "NOT_FOUND", "serviceId",
			"",
			map[string]any{"serviceId": "service_9", "sourceRef": "oci-image@1", "sourceConfig": image("x")},
		},
		{
			"another image", "setArtifactSourceConfig", "REFUSED", "", "make another source",
			map[string]any{"artifactSourceId": "artifactsource_1", "sourceConfig": image("r.example.com/other")},
		},
		{
			"a range alone", "setArtifactSourceConfig", "INVALID", "sourceConfig/range", "not allowed here",
			map[string]any{"artifactSourceId": "artifactsource_1", "sourceConfig": image("r.example.com/shop/api", "range", "^1")},
		},
	} {
		got := f.change(ours, tt.mutation, "artifactSource", "id", tt.in)
		if len(got.Errors) != 1 || got.Errors[0].Code != tt.code || strings.Join(got.Errors[0].Field, "/") != tt.field ||
			!strings.Contains(got.Errors[0].Message, tt.message) {
			t.Errorf("%s: %+v", tt.name, got.Errors)
		}
	}
	want(t, f.change(ours, "setArtifactSourceConfig", "artifactSource", "sourceConfig", map[string]any{
		"artifactSourceId": "artifactsource_1", "sourceConfig": image("r.example.com/shop/api", "selection", "semver", "range", "^2"),
	}), map[string]any{"sourceConfig": image("r.example.com/shop/api", "selection", "semver", "range", "^2")})
	f.watch.set(func(w *watch) {
		if w.changes != 3 {
			t.Errorf("said %d times that something has changed; want 3: the application, a source, a configuration", w.changes)
		}
		w.asked = 0
	})

	list := func() string {
		var data struct{ ArtifactSources json.RawMessage }
		f.ask(ours, `{ artifactSources(application: "shop") { nodes { id service { name } state { polled lookedAt failures lastError lastArtifact } } } }`, nil).into(t, &data)
		return string(data.ArtifactSources)
	}
	if diff := cmp.Diff(`{"nodes":[{"id":"artifactsource_1","service":{"name":"api"},"state":{"polled":true,"lookedAt":"2026-03-25T10:00:00Z","failures":2,"lastError":"away","lastArtifact":"a@sha256:1"}},{"id":"artifactsource_2","service":{"name":"api"},"state":null}]}`, list()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	f.watch.set(func(w *watch) {
		if w.asked != 1 {
			t.Errorf("the registry service was asked %d times for one list", w.asked)
		}
		w.away = true
	})
	if got := list(); strings.Contains(got, "lookedAt") {
		t.Errorf("while nobody answers: %s", got)
	}
	f.watch.set(func(w *watch) { w.away = false })

	type sighting struct{ Artifact, Problem string }
	var sight struct{ LookAtArtifactSource, TryArtifactSource sighting }
	f.ask(ours, `mutation { lookAtArtifactSource(input: {artifactSourceId: "artifactsource_1"}) { artifact problem errors { message } }
		tryArtifactSource(input: {sourceRef: "oci-image@1", sourceConfig: {image: "x"}}) { artifact problem errors { message } } }`,
		nil).into(t, &sight)
	if sight.LookAtArtifactSource.Artifact == "" || sight.TryArtifactSource.Artifact == "" || len(f.watch.tried) != 1 {
		t.Errorf("looked: %+v, tried %v", sight, f.watch.tried)
	}
	got := f.ask(ours, `mutation { lookAtArtifactSource(input: {artifactSourceId: "artifactsource_2"}) { artifact } }`, nil)
	if len(got.Errors) != 1 || got.Errors[0].Extensions.Code != "UNAVAILABLE" {
		t.Errorf("a source that the registry service does not know yet: %+v", got.Errors)
	}
	var kinds struct {
		ArtifactSourceKinds []struct {
			Ref    string
			Schema map[string]any
		}
	}
	f.ask(ours, `{ artifactSourceKinds { ref schema } }`, nil).into(t, &kinds)
	if len(kinds.ArtifactSourceKinds) != 2 || kinds.ArtifactSourceKinds[1].Ref != "oci-image@1" ||
		kinds.ArtifactSourceKinds[1].Schema["properties"] == nil {
		t.Errorf("kinds: %v", kinds)
	}
}

// TestSendersAreShown: hooks and tokens with what was left out, to those who may configure sources, of their organization.
func TestSendersAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	const query = `{ artifactSenders { name format repositories expiresAt lastArtifact lastPublishedAt waiting refused { what reason times firstAt lastAt } } }`
	var shown struct {
		ArtifactSenders []struct {
			Name, Format string
			Repositories []string
			Waiting      int
			Refused      []struct {
				What, Reason string
				Times        int
			}
		}
	}
	f.ask(ours, query, nil).into(t, &shown)
	if len(shown.ArtifactSenders) != 1 || shown.ArtifactSenders[0].Name != "shop-harbor" || shown.ArtifactSenders[0].Repositories == nil ||
		len(shown.ArtifactSenders[0].Refused) != 1 || shown.ArtifactSenders[0].Refused[0].Times != 3 {
		t.Errorf("shown: %+v", shown)
	}
	shown.ArtifactSenders = nil
	if f.ask(theirs, query, nil).into(t, &shown); len(shown.ArtifactSenders) != 0 {
		t.Errorf("another organization is shown %+v", shown)
	}
}
