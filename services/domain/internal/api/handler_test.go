package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// named answers with its name.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

func TestDocumentationIsServedUnlessItIsOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		docs                 http.Handler
		method, path, answer string
	}{
		{named("docs"), http.MethodGet, "/docs/", "docs"},
		{named("docs"), http.MethodGet, "/docs/how-to/upgrade.html", "docs"},
		{named("docs"), http.MethodPost, "/docs/", "console"},
		{named("docs"), http.MethodGet, "/rollouts", "console"},
		{nil, http.MethodGet, "/docs/", "console"},
	} {
		h := NewHandler(Deps{GraphQL: named("graphql"), Console: named("console"), Docs: c.docs, Clock: clock.System()})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != http.StatusOK || w.Body.String() != c.answer || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s with documentation %v: found %d %s; expected %s", c.method, c.path, c.docs != nil, w.Code, w.Body, c.answer)
		}
	}
}
