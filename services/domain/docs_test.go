package domain

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDocumentationCanBeSwitchedOff: without it, the console has no link to it, and its address is a page of the console as any other.
func TestDocumentationCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		h, err := newFixture(t).handler(Config{Docs: Docs{Off: off}}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		get := func(path string) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Body.String()
		}
		if linked := strings.Contains(get("/"), `data-docs="/docs/"`); linked == off {
			t.Errorf("off %v: the console links to it: %v", off, linked)
		}
		if served := strings.Contains(get("/docs/"), "Lockstep documentation"); served == off {
			t.Errorf("off %v: it is served: %v", off, served)
		}
	}
}
