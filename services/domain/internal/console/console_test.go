package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, h http.Handler, method, path, encoding string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	t.Parallel()
	script := strings.Repeat("let a = 1;\n", 200)
	h, err := newHandler(fstest.MapFS{
		"index.html":        {Data: []byte("<!doctype html><title>page</title>")},
		"assets/app-123.js": {Data: []byte(script)},
		"favicon.svg":       {Data: []byte("<svg/>")},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, encoding  string
		status                  int
		media, cache, transport string
	}{
		{"GET", "/", "gzip", 200, "text/html; charset=utf-8", "no-cache", ""},
		{"GET", "/rollouts/rollout_7", "gzip", 200, "text/html; charset=utf-8", "no-cache", ""},
		{"GET", "/rollouts/../favicon.svg", "", 200, "image/svg+xml; charset=utf-8", "no-cache", ""},
		{"GET", "/assets/app-123.js", "br, gzip", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "gzip"},
		{"GET", "/assets/app-123.js", "gzip;q=0", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", ""},
		{"HEAD", "/assets/app-123.js", "", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", ""},
		{"GET", "/assets/app-122.js", "", 404, "text/plain; charset=utf-8", "", ""},
		{"POST", "/", "", 405, "text/plain; charset=utf-8", "", ""},
	} {
		w := get(t, h, c.method, c.path, c.encoding)
		if w.Code != c.status || w.Header().Get("Content-Type") != c.media || w.Header().Get("Cache-Control") != c.cache ||
			w.Header().Get("Content-Encoding") != c.transport {
			t.Errorf("%s %s (%s): found %d %v; expected %+v", c.method, c.path, c.encoding, w.Code, w.Header(), c)
		}
		if c.status == 200 && w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: found policy %q", c.path, w.Header().Get("Content-Security-Policy"))
		}
		if c.method == "HEAD" && (w.Body.Len() != 0 || w.Header().Get("Content-Length") != "2200") {
			t.Errorf("HEAD: found %d bytes, %v", w.Body.Len(), w.Header())
		}
	}
}

func TestABuildWithoutAPageIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := newHandler(fstest.MapFS{"favicon.svg": {}}, true); err == nil || !strings.Contains(err.Error(), "index.html") {
		t.Errorf("found %v; expected an error that names index.html", err)
	}
}

func TestTheCommittedBuild(t *testing.T) {
	t.Parallel()
	for _, withDocs := range []bool{true, false} {
		h, err := Handler(withDocs)
		if err != nil {
			t.Fatal(err)
		}
		if w := get(t, h, "GET", "/", ""); !strings.Contains(w.Body.String(), "Lockstep") || strings.Contains(w.Body.String(), link) != withDocs {
			t.Errorf("with documentation %v: found %s", withDocs, w.Body)
		}
	}
}

func TestDocs(t *testing.T) {
	t.Parallel()
	h, err := newDocs(fstest.MapFS{
		"index.html":              {Data: []byte("<!doctype html><title>home</title>")},
		"404.html":                {Data: []byte("<!doctype html><title>missing</title>")},
		"how-to/index.html":       {Data: []byte("<!doctype html><title>guides</title>")},
		"how-to/add-a-thing.html": {Data: []byte("<!doctype html><title>guide</title>")},
		"site.js":                 {Data: []byte("'use strict'")},
	}, "/docs/")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		status       int
		media, has   string
	}{
		{"GET", "/docs/", 200, "text/html; charset=utf-8", "home"},
		{"GET", "/docs/how-to/", 200, "text/html; charset=utf-8", "guides"},
		{"GET", "/docs/how-to/add-a-thing.html", 200, "text/html; charset=utf-8", "guide"},
		{"GET", "/docs/site.js", 200, "text/javascript; charset=utf-8", "use strict"},
		{"GET", "/docs/how-to/other.html", 404, "text/html; charset=utf-8", "missing"},
		{"GET", "/docs/../index.html", 404, "text/html; charset=utf-8", "missing"},
		{"HEAD", "/docs/", 200, "text/html; charset=utf-8", ""},
		{"POST", "/docs/", 405, "text/plain; charset=utf-8", "expected GET"},
	} {
		w := get(t, h, c.method, c.path, "")
		if w.Code != c.status || w.Header().Get("Content-Type") != c.media || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: found %d %v %s; expected %+v", c.method, c.path, w.Code, w.Header(), w.Body, c)
		}
		if c.status != 405 && w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: found policy %q", c.path, w.Header().Get("Content-Security-Policy"))
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/docs/site.js", nil)
	r.Header.Set("If-None-Match", get(t, h, "GET", "/docs/site.js", "").Header().Get("ETag"))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("the same entity tag: found %d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestDocsWithoutAPageAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := newDocs(fstest.MapFS{"index.html": {}}, "/docs/"); err == nil || !strings.Contains(err.Error(), "404.html") {
		t.Errorf("found %v; expected an error that names 404.html", err)
	}
}

// TestTheCommittedDocs: the pages respect the content security policy, and the search index exists.
func TestTheCommittedDocs(t *testing.T) {
	t.Parallel()
	h, err := Docs("/docs/")
	if err != nil {
		t.Fatal(err)
	}
	if w := get(t, h, "GET", "/docs/search-index.js", ""); !strings.HasPrefix(w.Body.String(), "lockstepSearch(") {
		t.Errorf("search-index.js: found %.100s", w.Body)
	}
	pages := 0
	err = fs.WalkDir(docs, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		pages++
		text, err := docs.ReadFile(name)
		for _, inline := range []string{"<script>", "<style", " style=", " onclick="} {
			if strings.Contains(string(text), inline) {
				t.Errorf("%s: found %q, which the content security policy refuses", name, inline)
			}
		}
		return err
	})
	if err != nil || pages < 10 {
		t.Errorf("found %d pages, %v", pages, err)
	}
}
