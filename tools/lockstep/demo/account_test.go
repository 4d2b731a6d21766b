package demo

import (
	"bytes"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

func TestAStoryIsEscaped(t *testing.T) {
	t.Parallel()
	const answer = "all\x1b[2J good\u202e"
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		a := &account{out: &out, colour: colour, clock: clock.System(), began: clock.System().Now().Add(time.Second)}
		a.act(answer)
		a.note("%s", answer)
		a.event("%s", answer)
		a.observed("%s", answer)
		a.bad("%s", answer)
		a.asks("%s", answer)
		if n := bytes.Count(out.Bytes(), []byte(`all\u001b[2J good\u202e`)); n != 6 || bytes.Contains(out.Bytes(), []byte("\x1b[2J")) {
			t.Errorf("colour %t: found %q; want the answer six times, escaped", colour, out.String())
		}
	}
}
