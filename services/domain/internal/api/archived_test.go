package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// brokenArchive has a row and more problems than are named.
type brokenArchive struct{}

func (brokenArchive) ReadArchived(_ context.Context, _ core.Actor, _ retention.Kind, out io.Writer, found func(error)) error {
	_, _ = io.WriteString(out, "{}\n")
	for range mostProblems + 5 {
		found(fault.New(fault.Terminal, "missing"))
	}
	return fault.New(fault.Terminal, "objects are missing")
}

// timed keeps until when each write has to be over.
type timed struct {
	*httptest.ResponseRecorder
	until []time.Time
}

// SetWriteDeadline is what http.ResponseController calls.
func (w *timed) SetWriteDeadline(at time.Time) error {
	w.until = append(w.until, at)
	return nil
}

// D65: a reader of the archive has a time for each write, and the last line says how many problems there are, also of those that it does
// not name.
func TestTheEndOfTheArchiveCountsProblems(t *testing.T) {
	t.Parallel()
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(core.WithActor(t.Context(), core.Actor{Organization: 1}), http.MethodGet, ArchivedPath, nil)
	archivedHandler(brokenArchive{}).ServeHTTP(w, r)
	if text := w.Body.String(); !strings.HasPrefix(text, "{}\n"+`{"end":{"rows":1,"problem_count":105,"problems":["missing"`) || strings.Count(text, "missing") != 100 {
		t.Errorf("found %.200s", text)
	}
	if len(w.until) != 3 || w.until[0].IsZero() || w.until[1].IsZero() || !w.until[2].IsZero() {
		t.Errorf("found %v; want a time for each of two writes, and none behind them", w.until)
	}
}
