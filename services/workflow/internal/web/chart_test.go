package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"log" //nolint:depguard // the registry of the test takes one
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// chartShelf is a registry that wants the user bot with the password of the test for what is below private/.
func chartShelf(t *testing.T) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := false // while it is filled
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		if !open && user+pass != "bot"+password && (r.URL.Path == "/v2/" || strings.Contains(r.URL.Path, "/private/")) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	open = true
	host := strings.TrimPrefix(s.URL, "http://")
	push := func(reference, configType, contentType string, content []byte) {
		ref, err := name.ParseReference(host + "/" + reference)
		if err != nil {
			t.Fatal(err)
		}
		made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(configType))
		var image v1.Image
		if image, err = mutate.Append(made, mutate.Addendum{Layer: static.NewLayer(content, types.MediaType(contentType))}); err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image); err != nil {
			t.Fatal(err)
		}
	}
	push("private/api:1.2.0_build", chartConfig, chartContent, []byte("an archive"))
	push("private/image:1", string(types.OCIConfigJSON), string(types.OCILayer), []byte("x"))
	push("private/large:1", chartConfig, chartContent, bytes.Repeat([]byte("x"), maxArchive+1))
	push("private/empty:1", chartConfig, string(types.OCILayer), []byte("x"))
	open = false
	return host
}

// D53, D56: a chart is read with the credential that a program names, which goes to the URLs that it is bound to and nowhere else.
func TestAChartIsPulled(t *testing.T) {
	t.Parallel()
	host := chartShelf(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	k := start(t, func(string, string) []Credential {
		return []Credential{
			{Name: "charts", URLPrefixes: []string{"http://" + host + "/private"}, Username: "bot", Ref: "file:" + file, Organizations: []int64{1}},
			{Name: "elsewhere", URLPrefixes: []string{"https://" + host + "/private"}, Username: "bot", Ref: "file:" + file, Organizations: []int64{1}},
		}
	}, false)
	digest := ""
	for name, c := range map[string]struct {
		reference, credential string
		class                 fault.Class
		want                  string
	}{
		"by tag":               {"private/api:1.2.0_build", "charts", 0, ""},
		"without a credential": {"private/api:1.2.0_build", "", fault.Denied, "named in chart_credential"},
		"that is missing":      {"private/api:2", "charts", fault.NotFound, "no such manifest"},
		"bound to HTTPS":       {"private/api:1.2.0_build", "elsewhere", fault.Denied, "is not for this URL"},
		"of another path":      {"public/api:1", "charts", fault.Denied, "is not for this URL"},
		"an image":             {"private/image:1", "charts", fault.Invalid, "is no Helm chart"},
		"without content":      {"private/empty:1", "charts", fault.Invalid, "has no layer"},
		"too large":            {"private/large:1", "charts", fault.Refused, "expected at most"},
		"no reference":         {"PRIVATE:1", "charts", fault.Invalid, "expected oci://"},
		"a folder above":       {"private/../api:1", "charts", fault.Invalid, "expected oci://"},
		"a folder of no name":  {"private//api:1", "charts", fault.Invalid, "expected oci://"},
	} {
		got, err := k.Pull(t.Context(), activity.ChartRequest{Organization: 1, Reference: host + "/" + c.reference, Credential: c.credential})
		if c.want == "" {
			if err != nil || string(got.Archive) != "an archive" || !strings.HasPrefix(got.Digest, "sha256:") {
				t.Errorf("%s: found %+v, %v", name, got, err)
			}
			digest = got.Digest
			continue
		}
		if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: found %v, expected class %v with %q", name, err, c.class, c.want)
		}
	}
	if got, err := k.Pull(t.Context(), activity.ChartRequest{
		Organization: 1, Reference: host + "/private/api@" + digest, Credential: "charts",
	}); err != nil || got.Digest != digest {
		t.Errorf("by digest: found %+v, %v", got, err)
	}
	closed, err := httpx.New(httpx.Config{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closed.Close)
	guarded, err := New(Deps{HTTP: closed})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guarded.Pull(t.Context(), activity.ChartRequest{Organization: 1, Reference: host + "/private/api:1"}); !fault.Is(err,
		fault.Refused) {
		t.Errorf("a registry that is not public: %v, expected Refused", err)
	}
}

// D53: a reference without a host is not one of Docker Hub.
func TestReferencesOfCharts(t *testing.T) {
	t.Parallel()
	for reference, good := range map[string]bool{
		"ghcr.io/shop/api:1": true, "localhost/shop/api:1": true, "harbor:5000/shop:1": true, "10.0.0.5/shop/api:1": true,
		"harbor/shop/api:1": false, "shop:1": false, "ghcr.io/shop/../api:1": false, "ghcr.io/./api:1": false, "ghcr.io//shop:1": false,
		"ghcr.io/shop/api:1:2": false, "ghcr.io/shop/api:": false,
	} {
		if _, err := parseChart(reference); (err == nil) != good || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %v", reference, err)
		}
	}
}

// D45: what a registry answers is bounded as it comes, however small it is when packed.
func TestAManifestThatIsABomb(t *testing.T) {
	t.Parallel()
	bomb := strings.Repeat(",{}", 2<<20)
	for name, c := range map[string]struct {
		packed bool
		class  fault.Class
	}{"plain": {false, fault.Refused}, "packed": {true, fault.Invalid}} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				return
			}
			if r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("%s: asked for packed answers", name)
			}
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			out := io.Writer(w)
			if c.packed { // though nobody has asked for it
				w.Header().Set("Content-Encoding", "gzip")
				packer := gzip.NewWriter(w)
				defer func() { _ = packer.Close() }()
				out = packer
			}
			_, _ = io.WriteString(out, `{"schemaVersion":2,"config":{"mediaType":"`+chartConfig+`"},"layers":[{}`+bomb+"]}")
		}))
		defer s.Close()
		host := strings.TrimPrefix(s.URL, "http://")
		transport, err := httpx.New(httpx.Config{Allow: []string{host}, MaxBody: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(transport.Close)
		client, err := New(Deps{HTTP: transport})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Pull(t.Context(), activity.ChartRequest{Organization: 1, Reference: host + "/a:1"}); !fault.Is(err, c.class) {
			t.Errorf("%s: found %.300v, expected class %v", name, err, c.class)
		}
	}
}

// D56: a chart is read with a credential of the kind registry of the organization, to what it is bound to, and with no other
// organization's.
func TestAChartIsPulledWithACredentialForRegistries(t *testing.T) {
	t.Parallel()
	host := chartShelf(t)
	s := &shelf{one: book.Credential{Terms: sealing.Terms{
		Organization: 1, Name: "theirs", Version: 1, Kind: sealing.Registry, URLPrefixes: []string{"http://" + host + "/private"}, Username: "bot",
	}, Sealed: []byte(password)}}
	k, err := New(Deps{HTTP: http.DefaultTransport, Own: s.book()})
	if err != nil {
		t.Fatal(err)
	}
	pull := func(organization int64) error {
		_, err := k.Pull(t.Context(), activity.ChartRequest{
			Organization: organization, Reference: host + "/private/api:1.2.0_build", Credential: "theirs",
		})
		if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("the error has the password: %v", err)
		}
		return err
	}
	if err := pull(1); err != nil {
		t.Error(err)
	}
	if err := pull(2); !fault.Is(err, fault.Denied) {
		t.Errorf("another organization: %v", err)
	}
	s.set(func(c *book.Credential) { c.Sealed = []byte("wrong") })
	if err := pull(1); !fault.Is(err, fault.Unauthenticated) || !strings.Contains(err.Error(), "refuses the credential") {
		t.Errorf("a wrong password: %v", err)
	}
	s.set(func(c *book.Credential) { c.URLPrefixes = []string{"http://" + host + "/public"} })
	if err := pull(1); !fault.Is(err, fault.Denied) {
		t.Errorf("bound to another path: %v", err)
	}
	s.set(func(c *book.Credential) { c.Revoked, c.Sealed = true, nil })
	if err := pull(1); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("revoked: %v", err)
	}
}
