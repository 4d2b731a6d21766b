package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
)

// folder is the built-in driver's files, under another name.
func folder(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := driver.Files(os.DirFS("../bundles/argo-rollouts"))
	if err != nil {
		t.Fatal(err)
	}
	files["manifest.json"] = bytes.Replace(files["manifest.json"], []byte(`"argo-rollouts"`), []byte(`"shop-deploy"`), 1)
	return files
}

// serve runs a registry behind a handler of the test.
func serve(t *testing.T, before func(next http.Handler) http.Handler) string {
	t.Helper()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	s := httptest.NewServer(before(inner))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func asIs(next http.Handler) http.Handler { return next }

func reference(t *testing.T, s string) artifact.Reference {
	t.Helper()
	r, err := artifact.ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A pulled artifact equals the pushed one to the byte, by tag and by digest; the same files are the same artifact.
func TestAnArtifactIsTheFolder(t *testing.T) {
	t.Parallel()
	host := serve(t, asIs)
	c, files := artifact.Client{}, folder(t)
	r := reference(t, "oci://"+host+"/drivers/shop:1.4")
	pushed, err := c.Push(t.Context(), r, files, map[string]string{"org.opencontainers.image.revision": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Push(t.Context(), reference(t, "oci://"+host+"/drivers/other:1.5"), files,
		map[string]string{"org.opencontainers.image.revision": "abc"})
	if err != nil || again.Digest != pushed.Digest {
		t.Errorf("the same files are %s and %s (%v)", pushed.Digest, again.Digest, err)
	}
	for _, r := range []artifact.Reference{
		r, reference(t, "oci://"+host+"/drivers/shop@"+pushed.Digest),
		reference(t, "oci://"+host+"/drivers/shop:gone@"+pushed.Digest),
	} {
		digest, err := c.Resolve(t.Context(), r)
		if err != nil || digest != pushed.Digest {
			t.Fatalf("%s is %s, %v; want %s", r, digest, err, pushed.Digest)
		}
		got, err := c.Pull(t.Context(), r, digest)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := artifact.Unpack(got.Content)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(files, unpacked); diff != "" {
			t.Errorf("(-pushed +pulled):\n%s", diff)
		}
		want := map[string]string{
			"org.opencontainers.image.revision": "abc", "org.opencontainers.image.title": "shop-deploy",
			artifact.AnnotationDrivers: "shop-deploy@1",
		}
		if diff := cmp.Diff(want, got.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		if len(got.Bundles) != 1 || got.Bundles[0].Ref() != "shop-deploy@1" || got.Bundles[0].Digest() != pushed.Bundles[0].Digest() {
			t.Errorf("found %v", got.Bundles)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, good := range []string{
		"oci://r.example.com/a/b:1", "oci://localhost/a:v1.2.3-rc.1", "oci://127.0.0.1:5000/a:x",
		"oci://r.example.com/a@" + digest, "oci://r.example.com:5000/a:x@" + digest,
	} {
		if r, err := artifact.ParseReference(good); err != nil || r.String() != good {
			t.Errorf("%s is %s, %v", good, r, err)
		}
	}
	for _, bad := range []string{
		"", "oci://", "r.example.com/a:1", "https://r.example.com/a:1", "oci://r.example.com/a", "oci://a:1", "oci://shop/a:1",
		"oci://r.example.com/a:", "oci://r.example.com/A:1",
		"oci://r.example.com/a@sha256:12", "oci://r.example.com/a@", "oci://r.example.com/a:x@", "oci://r.example.com/a:b c",
		"oci://user:secret@r.example.com/a:1", "oci://r.example.com/../a:1",
	} {
		if r, err := artifact.ParseReference(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q is %s, %v", bad, r, err)
		}
	}
	for _, capitals := range []string{
		"oci://r.example.com/Shop/a:v1.0-RC", "oci://r.example.com/Shop/a@" + digest,
		"oci://r.example.com/Shop/a",
	} {
		if _, err := artifact.ParseReference(capitals); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), `repository "Shop/a" has capitals; expected small letters only: oci://r.example.com/shop/a`) {
			t.Errorf("%q: %v; want the capitals as the reason", capitals, err)
		}
	}
	if _, err := artifact.ParseReference("oci://r.example.com/shop/a:v1.0-RC"); err != nil {
		t.Errorf("a tag with capitals: %v", err)
	}
}

// member is one entry of a tar archive.
type member struct {
	header tar.Header
	text   string
}

func archive(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, m := range members {
		m.header.Size = int64(len(m.text))
		if err := w.WriteHeader(&m.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, text string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, text}
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 6<<20)
	many := make([]member, 3000)
	for i := range many {
		many[i] = file(fmt.Sprintf("v1/%d.star", i), "")
	}
	link := func(kind byte) member {
		return member{tar.Header{Typeflag: kind, Name: "v1/deploy.star", Linkname: "/etc/passwd"}, ""}
	}
	whole := archive(t, file("manifest.json", strings.Repeat("random enough? ", 1000)))
	for name, tt := range map[string]struct {
		content []byte
		want    string
	}{
		"nothing":          {nil, "not compressed"},
		"no archive":       {gzipped(t, "hello, world"), "not a tar archive"},
		"half of one":      {whole[:len(whole)/2], "too early"},
		"above the folder": {archive(t, file("../manifest.json", "{}")), "inside the driver's folder"},
		"inside and out":   {archive(t, file("v1/../../x", "{}")), "inside the driver's folder"},
		"an absolute path": {archive(t, file("/etc/passwd", "x")), "inside the driver's folder"},
		"a backslash":      {archive(t, file(`..\manifest.json`, "{}")), "inside the driver's folder"},
		"a folder above":   {archive(t, member{tar.Header{Typeflag: tar.TypeDir, Name: "../x/"}, ""}), "inside the driver's folder"},
		"a symbolic link":  {archive(t, link(tar.TypeSymlink)), `"v1/deploy.star": found a link`},
		"a hard link":      {archive(t, link(tar.TypeLink)), "found a link"},
		"a device":         {archive(t, link(tar.TypeChar)), "found a link or device"},
		"a pipe":           {archive(t, link(tar.TypeFifo)), "found a link or device"},
		"a file twice":     {archive(t, file("manifest.json", "{}"), file("./manifest.json", "[]")), "manifest.json: found it twice"},
		"too many":         {archive(t, many...), "more than"},
		"a bomb":           {archive(t, file("v1/a", zeros), file("v1/b", zeros), file("v1/c", zeros)), "bytes, unpacked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := artifact.Unpack(tt.content)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %d files, %v; want an error with %q", len(files), err, tt.want)
			}
		})
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The output of `tar czf` and `git archive` is accepted, too.
func TestUnpackTakesWhatOthersPack(t *testing.T) {
	t.Parallel()
	content := archive(t,
		member{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "abc"}}, ""},
		member{tar.Header{Typeflag: tar.TypeDir, Name: "./"}, ""}, member{tar.Header{Typeflag: tar.TypeDir, Name: "./v1/"}, ""},
		file("./v1/a.star", "x"))
	files, err := artifact.Unpack(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"v1/a.star": []byte("x")}, files); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A broken driver is refused with the file and the line, on push and on pull.
func TestABrokenDriverIsRefused(t *testing.T) {
	t.Parallel()
	host := serve(t, asIs)
	c := artifact.Client{}
	files := folder(t)
	files["v1/environment.json"] = []byte("{\n  \"type\": 7\n}")
	if _, err := c.Push(t.Context(), reference(t, "oci://"+host+"/a:1"), files, nil); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "v1/environment.json:2") {
		t.Errorf("pushed: %v", err)
	}
	files["v1/environment.json"] = []byte(`{"type": "string"}`)
	if _, err := c.Push(t.Context(), reference(t, "oci://"+host+"/a:1"), files, nil); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), `/type: found "string"; expected "object"`) {
		t.Errorf("pushed with a configuration that is no object: %v", err)
	}
	if digest, err := c.Resolve(t.Context(), reference(t, "oci://"+host+"/a:1")); !fault.Is(err, fault.NotFound) {
		t.Errorf("an artifact was stored: %s, %v", digest, err)
	}
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(host + "/image:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, image); err != nil {
		t.Fatal(err)
	}
	r := reference(t, "oci://"+host+"/image:1")
	digest, err := c.Resolve(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pull(t.Context(), r, digest); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), artifact.Type) {
		t.Errorf("an image is taken for a driver: %v", err)
	}
}

// Every answer of a registry is checked, and errors that may pass are distinguished from permanent ones.
func TestWhatARegistryMayDo(t *testing.T) {
	t.Parallel()
	broken := func(match string, do func(w http.ResponseWriter, r *http.Request)) func(*atomic.Bool) func(http.Handler) http.Handler {
		return func(lies *atomic.Bool) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if lies.Load() && strings.Contains(r.URL.Path, match) && r.Method == http.MethodGet {
						do(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			}
		}
	}
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		before func(*atomic.Bool) func(http.Handler) http.Handler
		class  fault.Class
	}{
		"another manifest": {broken("/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write([]byte(`{"schemaVersion":2}`))
		}), fault.Invalid},
		"another layer": {
			broken("/blobs/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("something else")) }),
			fault.Invalid,
		},
		"a huge layer": {broken("/blobs/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) }), fault.Invalid},
		"half a layer": {broken("/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999999")
			_, _ = w.Write([]byte("x"))
		}), fault.Unavailable},
		"no layer":       {broken("/blobs/", status(http.StatusNotFound)), fault.NotFound},
		"an error":       {broken("/manifests/", status(http.StatusBadGateway)), fault.Unavailable},
		"too many calls": {broken("/manifests/", status(http.StatusTooManyRequests)), fault.Unavailable},
		"no right":       {broken("/manifests/", status(http.StatusForbidden)), fault.Denied},
		"silence": {broken("/manifests/", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // until the client has given up
		}), fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lies atomic.Bool
			host := serve(t, tt.before(&lies))
			var brief http.RoundTripper // nil for a client that has all the time it wants
			if name == "silence" {
				transport := http.DefaultTransport.(*http.Transport).Clone()
				transport.ResponseHeaderTimeout = 300 * time.Millisecond
				t.Cleanup(transport.CloseIdleConnections)
				brief = transport
			}
			r := reference(t, "oci://"+host+"/a:1")
			pushed, err := artifact.Client{}.Push(t.Context(), r, folder(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			lies.Store(true)
			if _, err := (artifact.Client{Transport: brief}).Pull(t.Context(), r, pushed.Digest); !fault.Is(err, tt.class) ||
				errors.Is(err, artifact.ErrAltered) != (tt.class == fault.Invalid) {
				t.Errorf("found %v; want class %s, and altered where that is Invalid", err, fault.Describe(tt.class).Name)
			}
			lies.Store(false)
			if _, err := (artifact.Client{}).Pull(t.Context(), r, pushed.Digest); err != nil {
				t.Errorf("mended: %v", err)
			}
		})
	}
}

// A password is sent to its own registry only. If HEAD has no answer, GET is tried.
func TestLoggingIn(t *testing.T) {
	t.Parallel()
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "ci" || password != "right" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	accounts, err := ociauth.NewAccounts([]ociauth.Account{{
		Host: host + "/team", Username: "ci",
		Password: func() (string, error) { return "right", nil },
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	c := artifact.Client{Accounts: accounts}
	pushed, err := c.Push(t.Context(), reference(t, "oci://"+host+"/team/a:1"), folder(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := c.Resolve(t.Context(), reference(t, "oci://"+host+"/team/a:1")); err != nil || digest != pushed.Digest {
		t.Errorf("%s, %v; want %s", digest, err, pushed.Digest)
	}
	if _, err := c.Resolve(t.Context(), reference(t, "oci://"+host+"/other/a:1")); !fault.Is(err, fault.Denied) {
		t.Errorf("without an account: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	files, err := driver.Files(os.DirFS("../bundles/argo-rollouts"))
	if err != nil {
		f.Fatal(err)
	}
	whole, err := artifact.Pack(files)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := artifact.Unpack(content)
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatalf("%v", err)
		}
		for name := range maps.Keys(got) {
			if !fs.ValidPath(name) {
				t.Errorf("found file %q", name)
			}
		}
	})
}
