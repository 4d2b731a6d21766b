package measure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var s Samples
	for i := range 100 {
		s = append(s, time.Duration(100-i)*time.Millisecond)
	}
	for p, want := range map[int]time.Duration{
		1: time.Millisecond, 50: 50 * time.Millisecond, 99: 99 * time.Millisecond,
		100: 100 * time.Millisecond,
	} {
		if got := s.at(p); got != want {
			t.Errorf("p%d: found %v, expected %v", p, got, want)
		}
	}
	if got := (Samples{}).at(50); got != 0 {
		t.Errorf("of nothing: found %v, expected 0", got)
	}
}

func TestCallsAreCountedByVerb(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	text := `{"stage":"RequestReceived","verb":"get"}` + "\n" + `{"stage":"ResponseComplete","verb":"get"}` + "\n" +
		`{"stage":"RequestReceived","verb":"watch"}` + "\n" + `{"stage":"RequestReceived","verb":"get"}` + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := calls(file)
	if diff := cmp.Diff(map[string]int{"get": 2, "watch": 1}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTheTableHasEveryFigure(t *testing.T) {
	t.Parallel()
	text := Table(Latency{Resumed: Samples{20 * time.Millisecond}}, Load{Rollouts: 10, Peak: 64 << 20, Calls: map[string]int{"get": 25}})
	for _, want := range []string{
		"resumed ", "     1        20        20", "10 rollouts at once", "memory 64 MB",
		"get            25 requests to the API server,   2.5 for each",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}
