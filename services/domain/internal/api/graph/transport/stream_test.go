package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Every result arrives as it was made, though the library makes all results of a subscription in one buffer, and the next one while
// the last one is being sent.
func TestAResultIsNotOverwrittenByTheNext(t *testing.T) {
	t.Parallel()
	const results, length = 400, 16 << 10
	fill := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), length) }
	var buffer bytes.Buffer
	made := 0
	next := func(context.Context) *graphql.Response {
		buffer.Reset()
		if made == results {
			return nil
		}
		buffer.WriteString(`{"journal":"` + fill(made) + `"}`)
		made++
		return &graphql.Response{Data: buffer.Bytes()}
	}
	recorder := httptest.NewRecorder()
	out := &eventWriter{w: recorder, controller: http.NewResponseController(recorder), clock: clock.System()}
	Stream{clock: clock.System(), heartbeat: time.Hour, longest: time.Hour}.pump(t.Context(), out, next)
	got := 0
	for line := range strings.Lines(recorder.Body.String()) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var result struct{ Data struct{ Journal string } }
		if err := json.Unmarshal([]byte("{"+data), &result); err != nil || result.Data.Journal != fill(got) {
			t.Fatalf("result %d: got %.60q…, %v; want %d times %q", got, data, err, length, fill(got)[:1])
		}
		got++
	}
	if got != results {
		t.Errorf("%d results arrived, want %d", got, results)
	}
}
