package domain

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	oci "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// shelf is a registry that can be away, and the driver that is pushed there.
type shelf struct {
	t    *testing.T
	host string
	away atomic.Bool
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{t: t}
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// letter is the test's paper driver under another name, with majors that differ in a comment.
func letter(t *testing.T, edition string, majors ...string) map[string][]byte {
	t.Helper()
	folder, err := driver.Files(os.DirFS(filepath.Join("testdata", "drivers", "paper")))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, major := range majors {
		for name, text := range folder {
			text = bytes.ReplaceAll(bytes.Replace(text, []byte(`"paper"`), []byte(`"letter"`), 1), []byte(`"v1/`), []byte(`"`+major+`/`))
			switch {
			case name == "manifest.json":
				files[name], files[major+"/"+name] = text, text
			case strings.HasSuffix(name, "deploy.star"):
				files[strings.Replace(name, "v1/", major+"/", 1)] = append([]byte("# "+edition+"\n"), text...)
			default:
				files[strings.Replace(name, "v1/", major+"/", 1)] = text
			}
		}
	}
	return files
}

func (s *shelf) reference(tag string) artifact.Reference {
	s.t.Helper()
	r, err := artifact.ParseReference("oci://" + s.host + "/drivers/letter:" + tag)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// push publishes files unchecked, as any other tool may, and returns the artifact's digest.
func (s *shelf) push(tag string, files map[string][]byte) string {
	s.t.Helper()
	content, err := artifact.Pack(files)
	if err != nil {
		s.t.Fatal(err)
	}
	ref, err := oci.NewTag(s.host + "/drivers/letter:" + tag)
	if err != nil {
		s.t.Fatal(err)
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifact.Type}
	for at, layer := range []v1.Layer{
		static.NewLayer([]byte("{}"), "application/vnd.oci.empty.v1+json"),
		static.NewLayer(content, artifact.ContentType),
	} {
		digest, err1 := layer.Digest()
		size, err2 := layer.Size()
		mediaType, err3 := layer.MediaType()
		if err := errors.Join(err1, err2, err3, remote.WriteLayer(ref.Context(), layer)); err != nil {
			s.t.Fatal(err)
		}
		d := v1.Descriptor{MediaType: mediaType, Size: size, Digest: digest}
		if at == 0 {
			m.Config = d
		} else {
			m.Layers = []v1.Descriptor{d}
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Put(ref, manifest(text)); err != nil {
		s.t.Fatal(err)
	}
	digest, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return digest.String()
}

type manifest []byte

func (m manifest) RawManifest() ([]byte, error)                   { return m, nil }
func (manifest) MediaType() (types.MediaType, error)              { return types.OCIManifestSchema1, nil }
func (f *fixture) replica(d bundle.Deps) (*bundle.Drivers, error) { return f.replicaOf(d, f.store) }

// replicaOf is the drivers of one more process over the same database.
func (f *fixture) replicaOf(d bundle.Deps, kept bundle.Kept) (*bundle.Drivers, error) {
	f.t.Helper()
	builtIn, err := driver.Embedded()
	f.ok(err)
	d.BuiltIn, d.Kept, d.Clock, d.Log, d.Refresh = builtIn, kept, clock.System(), slog.New(slog.DiscardHandler), time.Hour
	if d.Registry == nil {
		d.Registry = artifact.Client{}
	}
	in, err := bundle.New(d)
	f.ok(err)
	return in, in.Load(f.t.Context())
}

// digests are the drivers there are, each with its bundle's digest.
func digests(d setup.Drivers) map[string]string {
	all := map[string]string{}
	for _, one := range d.Now().All() {
		all[one.Ref] = one.Digest
	}
	return all
}

// in is the digests of bundles in files.
func in(t *testing.T, all ...map[string][]byte) map[string]string {
	t.Helper()
	builtIn, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, b := range builtIn.All() {
		want[b.Ref()] = b.Digest()
	}
	for _, files := range all {
		bundles, err := driver.FromFiles(maps.Clone(files))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bundles {
			want[b.Ref()] = b.Digest()
		}
	}
	return want
}
