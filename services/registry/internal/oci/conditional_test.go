package oci

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// tagged is a registry that sends entity tags with its lists, over two pages; one tag points at a manifest.
type tagged struct {
	version       atomic.Int64
	whole, asked  atomic.Int64
	authenticated atomic.Bool
}

func (s *tagged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const manifest = `{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json"}}`
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(manifest)))
	switch {
	case strings.HasSuffix(r.URL.Path, "/tags/list"):
		s.asked.Add(1)
		if s.authenticated.Load() && r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		page := r.URL.Query().Get("last")
		etag := fmt.Sprintf(`W/"%s-%d"`, page, s.version.Load())
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		s.whole.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if page == "" {
			w.Header().Set("Link", `</v2/shop/api/tags/list?last=1.0.0>; rel="next"`)
			_, _ = io.WriteString(w, `{"name":"shop/api","tags":["0.9.0","1.0.0"]}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"name":"shop/api","tags":["1.1.%d"]}`, s.version.Load())
	case strings.Contains(r.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Docker-Content-Digest", digest)
		_, _ = io.WriteString(w, manifest)
	}
}

func TestListsOfTagsAreFetchedOnlyIfChanged(t *testing.T) {
	t.Parallel()
	s := &tagged{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	r := New(Deps{Transport: http.DefaultTransport, Clock: clock.System()})
	look := func(tag string, whole int64) {
		t.Helper()
		s.whole.Store(0)
		s.asked.Store(0)
		config := fmt.Appendf(nil, `{"image":%q,"selection":"semver","range":">=0"}`, strings.TrimPrefix(server.URL, "http://")+"/shop/api")
		finding, err := r.Find(t.Context(), core.Source{ID: 1, Organization: 1, Ref: source.OCIImage, Config: config})
		if err != nil || finding.Found == nil || finding.Found.Tag != tag {
			t.Fatalf("found %+v, %v; want %s", finding.Found, err, tag)
		}
		if s.asked.Load() != 2 || s.whole.Load() != whole {
			t.Errorf("%s: %d pages were asked for and %d sent; want 2 and %d", tag, s.asked.Load(), s.whole.Load(), whole)
		}
	}
	look("1.1.0", 2)
	look("1.1.0", 0)
	look("1.1.0", 0)
	s.version.Store(1)
	look("1.1.1", 2)
	look("1.1.1", 0)
	// A stored list is not shown to callers whom the registry denies access.
	s.authenticated.Store(true)
	config := fmt.Appendf(nil, `{"image":%q,"selection":"semver"}`, strings.TrimPrefix(server.URL, "http://")+"/shop/api")
	if finding, err := r.Find(t.Context(), core.Source{ID: 1, Organization: 1, Ref: source.OCIImage, Config: config}); err == nil {
		t.Errorf("without an account: found %+v", finding.Found)
	}
}

// answering is a transport that answers with a body and an entity tag, "" for none.
type answering struct {
	etag string
	body []byte
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{}
	if a.etag != "" {
		header.Set("ETag", a.etag)
	}
	status := http.StatusOK
	body := a.body
	if n := r.Header.Get("If-None-Match"); n != "" && n == a.etag {
		status, body = http.StatusNotModified, nil
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// TestListsTakeBoundedMemory: ten thousand repositories, some with endless lists, and registries without entity tags.
func TestListsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	c := &conditional{}
	get := func(url string, a answering) string {
		t.Helper()
		c.next = a
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	list := bytes.Repeat([]byte("x"), 10_000)
	for i := range 10_000 {
		get(fmt.Sprintf("https://r.example.com/v2/%d/tags/list", i), answering{etag: "1", body: list})
	}
	if c.held > mostLists || len(c.lists) != c.recent.Len() || len(c.lists) < mostLists/20_000 || len(c.lists) > mostLists/10_000 {
		t.Errorf("%d lists take %d bytes", len(c.lists), c.held)
	}
	before := len(c.lists)
	endless := bytes.Repeat([]byte("y"), mostList+7)
	if got := get("https://r.example.com/v2/endless/tags/list", answering{etag: "1", body: endless}); got != string(endless) {
		t.Errorf("an endless list gave %d bytes", len(got))
	}
	get("https://r.example.com/v2/none/tags/list", answering{body: list})
	get("https://r.example.com/v2/a/manifests/1", answering{etag: "1", body: list})
	if len(c.lists) != before {
		t.Errorf("%d lists are kept, before that %d", len(c.lists), before)
	}
	for _, e := range []string{"2", "2", "3"} { // replaced, not added
		get("https://r.example.com/v2/9999/tags/list", answering{etag: e, body: list[:10]})
	}
	if len(c.lists) != before {
		t.Errorf("%d lists are kept, before that %d", len(c.lists), before)
	}
}
