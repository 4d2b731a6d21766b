package source_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
)

// TestCallersReportArtifactsAndNothingElse (D47) walks the catalogue at the door for CloudEvents: a caller reports what was published or
// deleted, and no event of another path comes in this way.
func TestCallersReportArtifactsAndNothingElse(t *testing.T) {
	t.Parallel()
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		if by != event.EmitterCaller {
			return
		}
		e, err := event.New(event.Header{ID: "1", Source: "/ci", Organization: 1, Time: time.Unix(1_800_000_000, 0)}, d.Example)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := format(t, "cloudevents").Parse(http.Header{}, structured, body)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v, %d notifications", d.Type, err, len(got))
		}
		if taken := got[0].Foreign == "" && got[0].Image != ""; taken != may {
			t.Errorf("%s: found %+v, expected that a caller may report it is %t", d.Type, got[0], may)
		}
	})
}
