package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// A start needs no registry, in whichever process it was pulled; a registry that is away is a problem, and nothing is lost.
func TestAPulledDriverNeedsItsRegistryNoMore(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	files := letter(t, "one", "v1")
	digest := s.push("1", files)
	with := bundle.Deps{Artifacts: []artifact.Reference{s.reference("1")}}
	a, err := f.replica(with)
	f.ok(err)
	if o := a.Origins(); len(o) != 2 || o[1].Problem != "not pulled yet" || o[1].Trouble != core.TroubleNotPulled {
		t.Errorf("before anything was pulled: %+v", o)
	}
	f.ok(a.Ask(t.Context(), s.reference("1")))
	if diff := cmp.Diff(in(t, files), digests(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.away.Store(true)
	b, err := f.replica(with)
	f.ok(err)
	if diff := cmp.Diff(in(t, files), digests(b)); diff != "" {
		t.Errorf("without the registry (-want +got):\n%s", diff)
	}
	if err := b.Ask(t.Context(), s.reference("1")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("asked: %v", err)
	}
	o := b.Origins()[1]
	if diff := cmp.Diff(in(t, files), digests(b)); diff != "" || o.Digest != digest || !strings.Contains(o.Problem, "502") ||
		o.Trouble != core.TroubleUnreachable || o.CheckedAt == nil || !cmp.Equal(o.Drivers, []string{"letter@1"}) {
		t.Errorf("after a question that was not answered: %+v (-want +got):\n%s", o, diff)
	}
	s.away.Store(false)
	f.ok(b.Ask(t.Context(), s.reference("1")))
	if o := b.Origins()[1]; o.Problem != "" {
		t.Errorf("well again, and still %q", o.Problem)
	}
	if d, err := b.Now().Lookup("letter@1"); err != nil || d.Origin != s.reference("1").String() || d.ArtifactDigest != digest {
		t.Errorf("found %+v, %v", d, err)
	}
}

// A tag that moves brings its drivers, in every replica; a major that is gone from it stays (R21), and a tag that moves back counts.
func TestMajorsStayWhenATagMoves(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	one, minor, two := letter(t, "one", "v1"), letter(t, "one, mended", "v1"), letter(t, "two", "v2")
	tag := s.reference("stable")
	with := bundle.Deps{Artifacts: []artifact.Reference{tag}}
	a, err := f.replica(with)
	f.ok(err)
	b, err := f.replica(with)
	f.ok(err)
	s.push("stable", one)
	f.ok(a.Ask(t.Context(), tag))
	before := a.Now()
	for _, step := range []struct {
		pushed map[string][]byte
		want   []map[string][]byte
	}{
		{minor, []map[string][]byte{minor}},
		{two, []map[string][]byte{minor, two}},
		{one, []map[string][]byte{one, two}},
		{two, []map[string][]byte{one, two}},
	} {
		digest := s.push("stable", step.pushed)
		f.ok(a.Ask(t.Context(), tag))
		f.ok(b.Load(t.Context()))
		for _, replica := range []*bundle.Drivers{a, b} {
			if diff := cmp.Diff(in(t, step.want...), digests(replica)); diff != "" || replica.Origins()[1].Digest != digest {
				t.Errorf("in force is %s; want %s (-want +got):\n%s", replica.Origins()[1].Digest, digest, diff)
			}
		}
	}
	if d, err := before.Lookup("letter@1"); err != nil || d.Digest != in(t, one)["letter@1"] {
		t.Errorf("what a use case took has changed under it: %+v, %v", d, err)
	}
}

// What is broken is refused with the file and the line; what there was stays, and so does everything else.
func TestABrokenArtifactLeavesTheOthers(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	good := letter(t, "one", "v1")
	tag := s.reference("1")
	s.push("1", good)
	a, err := f.replica(bundle.Deps{Artifacts: []artifact.Reference{tag}})
	f.ok(err)
	f.ok(a.Ask(t.Context(), tag))
	broken, foreign, endless := letter(t, "broken", "v1"), letter(t, "foreign", "v1"), letter(t, "endless", "v1")
	broken["v1/environment.json"] = []byte("{\n  \"type\": 7\n}")
	for name, text := range foreign {
		foreign[name] = bytes.Replace(text, []byte(`"letter"`), []byte(`"argo-rollouts"`), 1)
	}
	endless["v1/../../etc/passwd"] = []byte("root")
	for wants, files := range map[string]map[string][]byte{
		"v1/environment.json:2":                       broken,
		"two drivers call themselves argo-rollouts@1": foreign,
		"inside the driver's folder":                  endless,
	} {
		s.push("1", files)
		_ = a.Ask(t.Context(), tag) // what was wrong is what the origin says
		if o := a.Origins()[1]; !strings.Contains(o.Problem, wants) || o.Trouble != core.TroubleBroken {
			t.Errorf("found problem %q (%s); want %q in it", o.Problem, o.Trouble, wants)
		}
		if diff := cmp.Diff(in(t, good), digests(a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", wants, diff)
		}
	}
	s.push("1", good)
	f.ok(a.Ask(t.Context(), tag))
	if o := a.Origins()[1]; o.Problem != "" || o.Trouble != "" {
		t.Errorf("mended, and still %q (%s)", o.Problem, o.Trouble)
	}
}

// dying is a database that is lost at one moment.
type dying struct {
	bundle.Kept
	dead bool
}

func (d *dying) KeepDriverArtifact(ctx context.Context, a core.DriverArtifact) error {
	if d.dead {
		return fault.New(fault.Unavailable, "killed")
	}
	return d.Kept.KeepDriverArtifact(ctx, a)
}

// A process that is killed between the pull and the record has changed nothing; the next one pulls again.
func TestAPullThatWasNotKeptNeverWas(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	files := letter(t, "one", "v1")
	tag := s.reference("1")
	s.push("1", files)
	with := bundle.Deps{Artifacts: []artifact.Reference{tag}}
	a, err := f.replicaOf(with, &dying{Kept: f.store, dead: true})
	f.ok(err)
	if err := a.Ask(t.Context(), tag); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("kept: %v", err)
	}
	if diff := cmp.Diff(in(t), digests(a)); diff != "" {
		t.Errorf("in force and not kept (-want +got):\n%s", diff)
	}
	b, err := f.replica(with)
	f.ok(err)
	f.ok(b.Ask(t.Context(), tag))
	if diff := cmp.Diff(in(t, files), digests(b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// slow is a registry whose first pull lasts until it is let go.
type slow struct {
	bundle.Registry
	asked, release chan struct{}
}

func (s *slow) Pull(ctx context.Context, r artifact.Reference, digest string) (artifact.Artifact, error) {
	close(s.asked)
	select {
	case <-s.release:
	case <-ctx.Done():
		return artifact.Artifact{}, ctx.Err()
	}
	return s.Registry.Pull(ctx, r, digest)
}

// Of two replicas, the one that asked later is right, whichever hears first.
func TestALateAnswerDoesNotWin(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	one, two := letter(t, "one", "v1"), letter(t, "two", "v1")
	tag := s.reference("stable")
	s.push("stable", one)
	held := &slow{artifact.Client{}, make(chan struct{}), make(chan struct{})}
	a, err := f.replica(bundle.Deps{Artifacts: []artifact.Reference{tag}, Registry: held})
	f.ok(err)
	b, err := f.replica(bundle.Deps{Artifacts: []artifact.Reference{tag}})
	f.ok(err)
	done := make(chan error, 1)
	go func() { done <- a.Ask(t.Context(), tag) }()
	<-held.asked
	s.push("stable", two)
	f.ok(b.Ask(t.Context(), tag))
	close(held.release)
	f.ok(<-done)
	f.ok(b.Load(t.Context()))
	for _, replica := range []*bundle.Drivers{a, b} {
		if diff := cmp.Diff(in(t, two), digests(replica)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// keeping reports when something was kept.
type keeping struct {
	bundle.Kept
	kept chan string
}

func (k keeping) KeepDriverArtifact(ctx context.Context, a core.DriverArtifact) error {
	err := k.Kept.KeepDriverArtifact(ctx, a)
	if err == nil {
		k.kept <- a.Reference
	}
	return err
}

// A registry that does not answer holds up no other's drivers, nor the end.
func TestASlowRegistryHoldsUpNobody(t *testing.T) {
	t.Parallel()
	f, s := newFixture(t), newShelf(t)
	hangs := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hangs:
		}
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(hangs) })
	files := letter(t, "one", "v1")
	s.push("1", files)
	nobody, err := artifact.ParseReference("oci://" + strings.TrimPrefix(silent.URL, "http://") + "/a:1")
	f.ok(err)
	kept := keeping{f.store, make(chan string, 1)}
	a, err := f.replicaOf(bundle.Deps{Artifacts: []artifact.Reference{nobody, s.reference("1")}}, kept)
	f.ok(err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	select {
	case <-kept.kept:
	case <-time.After(time.Minute):
		t.Error("the registry that answers was not asked within a minute")
	}
	f.ok(a.Load(t.Context()))
	if diff := cmp.Diff(in(t, files), digests(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stop()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it did not end within a minute")
	}
}

// A rollout runs what it has pinned, to the byte, whatever its tag names by the time that it is handed over (D7).
func TestARolloutKeepsThePulledDriverItBeganWith(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	one := letter(t, "one", "v1")
	s.push("stable", one)
	f := setupWith(t, clock.System(), Config{Drivers: DriversConfig{Artifacts: []string{s.reference("stable").String()}}})
	f.ok(f.drivers.Ask(t.Context(), s.reference("stable")))
	a := f.application("shop", "api")
	e, err := f.setup.CreateEnvironment(t.Context(), user(),
		setup.NewEnvironment{Name: "desk", Tier: core.TierStaging, DriverRef: "letter@1", DriverConfig: json.RawMessage(`{"drawer":3}`)})
	f.ok(err)
	f.report(event.EnvironmentReady{EnvironmentID: e.ID})
	_, err = f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: pipeline("desk")})
	f.ok(err)
	f.report(event.ApplicationEnvironmentReady{
		ApplicationEnvironmentID: 1, RolloutName: "api", RolloutNamespace: "shop",
		Discovered: json.RawMessage(`{}`),
	})
	f.publish(f.artifact("registry.test/shop/api", "1", 1, time.Unix(1, 0)))
	_, err = f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: 1})
	f.ok(err)
	s.push("stable", letter(t, "two", "v1"))
	f.ok(f.drivers.Ask(t.Context(), s.reference("stable")))
	s.away.Store(true)
	f.handOver()
	at := len(f.engine.started) - 1
	if got := f.engine.started[at]; got.ID != "rollout-1" || !bytes.Equal(got.Program.Source, one["v1/deploy.star"]) {
		t.Errorf("%s was started with %q", got.ID, got.Program.Source)
	}
}

// An authority of one's own and a password by reference, as they are configured.
func TestDriversFromAPrivateRegistry(t *testing.T) {
	t.Parallel()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	var open atomic.Bool
	open.Store(true)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); !open.Load() && (user != "puller" || password != "right") {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(server.Close)
	host, folder := strings.TrimPrefix(server.URL, "https://"), t.TempDir()
	authority, password := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "password")
	reference, err := artifact.ParseReference("oci://" + host + "/letter:1")
	if err := errors.Join(err,
		os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600),
		os.WriteFile(password, []byte("right\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := (artifact.Client{Transport: server.Client().Transport}).Push(t.Context(), reference,
		letter(t, "one", "v1"), nil); err != nil {
		t.Fatal(err)
	}
	open.Store(false)
	whole := DriversConfig{
		Artifacts: []string{reference.String()}, CAFile: authority,
		Registries: []DriverRegistry{{Host: host, Username: "puller", Password: "file:" + password}},
	}
	without := func(change func(*DriversConfig)) DriversConfig { c := whole; change(&c); return c }
	for name, tt := range map[string]struct {
		config  DriversConfig
		message string
	}{
		"as it should be":   {whole, ""},
		"another authority": {without(func(c *DriversConfig) { c.CAFile = "" }), "the registry"},
		"no password":       {without(func(c *DriversConfig) { c.Registries = nil }), "401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setupWith(t, clock.System(), Config{Drivers: tt.config})
			err := f.drivers.Ask(t.Context(), reference)
			if tt.message == "" && err != nil || tt.message != "" && (err == nil || !strings.Contains(err.Error(), tt.message)) {
				t.Errorf("found %v; want %q", err, tt.message)
			}
		})
	}
}

func TestDriversConfig(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]DriversConfig{
		"drivers.artifacts[0]":           {Artifacts: []string{"registry.example.com/a:1"}},
		"drivers.artifacts[1]":           {Artifacts: []string{"oci://registry.example.com/a:1", "oci://registry.example.com/a:1"}},
		"drivers.registries[0].host":     {Registries: []DriverRegistry{{Host: "a b"}}},
		"drivers.registries[0].password": {Registries: []DriverRegistry{{Host: "r.example.com", Password: "s3cret"}}},
		"drivers.allow_networks[0]":      {AllowNetworks: []string{"10.0.0.0/99"}},
		"drivers.refresh":                {Refresh: time.Second},
	} {
		err := Config{Drivers: c}.withDefaults().Validate()
		if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != field || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: found %v", field, err)
		}
	}
	if err := (Config{Drivers: DriversConfig{
		Artifacts:     []string{"oci://registry.example.com/a:1"},
		AllowNetworks: []string{"10.0.0.0/8"},
	}}).Validate(); err != nil {
		t.Error(err)
	}
}
