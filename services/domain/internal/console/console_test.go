package console

import (
	"net/http"
	"net/http/httptest"
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
	})
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
		if w.Code != c.status || w.Header().Get("Content-Type") != c.media || w.Header().Get("Cache-Control") != c.cache || w.Header().Get("Content-Encoding") != c.transport {
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
	if _, err := newHandler(fstest.MapFS{"favicon.svg": {}}); err == nil || !strings.Contains(err.Error(), "index.html") {
		t.Errorf("found %v; expected an error that names index.html", err)
	}
}

func TestTheCommittedBuild(t *testing.T) {
	t.Parallel()
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	if w := get(t, h, "GET", "/", ""); !strings.Contains(w.Body.String(), "Lockstep") {
		t.Errorf("found %s", w.Body)
	}
}
