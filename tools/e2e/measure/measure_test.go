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

// 100 Argo Workflows at once: at most 40 requests for each, and memory that does not grow with their number.
func TestWorkflowsThatCostTooMuchFail(t *testing.T) {
	t.Parallel()
	good := Growth{
		Few:  Load{Rollouts: 10, Before: 50 << 20, Peak: 100 << 20, Calls: map[string]int{"get": 300, "list": 100}},
		Many: Load{Rollouts: 100, Before: 50 << 20, Peak: 150 << 20, Calls: map[string]int{"get": 3000, "list": 1000}},
	}
	if err := good.Check(); err != nil {
		t.Errorf("at the limits: %v", err)
	}
	calls, more, memory, nothing := good, good, good, good
	more.Few.Calls = map[string]int{"get": 266}
	calls.Many.Calls = map[string]int{"get": 3000, "list": 1001}
	memory.Many.Peak += 1 << 20
	nothing.Few = Load{}
	for want, g := range map[string]Growth{
		"100 workflows at once: found 40.0 requests": calls, "found 1.51 times as much with 100 workflows at once as with 10": memory, "nothing was measured": nothing,
		"found 40.0 for each of 100 workflows at once and 26.6 for each of 10": more,
	} {
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected %q", err, want)
		}
	}
	for _, edit := range []func(*Growth){
		func(g *Growth) { g.Few.Calls = nil }, func(g *Growth) { g.Many.Calls = map[string]int{"get": 0} }, func(g *Growth) { g.Few.Peak = 0 },
		func(g *Growth) { g.Many.Peak = 0 }, func(g *Growth) { g.Many.Before = 0 },
	} {
		g := good
		edit(&g)
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), "nothing was measured") {
			t.Errorf("%+v: found %v, expected that something was not measured", g, err)
		}
	}
	if text := good.Table(); !strings.Contains(text, "memory with 100 beside 10 at once: 1.50 times") {
		t.Errorf("the table:\n%s", text)
	}
}

// 50 objects by kubernetes@1: a bounded number of requests and of calls, and at most three times as long as a client.
func TestObjectsThatCostTooMuchFail(t *testing.T) {
	t.Parallel()
	good := Plain{Objects: 50, Calls: 250, Trips: 12, Applied: 3 * time.Second, Direct: time.Second, Took: time.Minute}
	if err := good.Check(); err != nil {
		t.Errorf("at the limits, and far beyond the goal: %v", err)
	}
	if text := good.Table(); !strings.Contains(text, "rollout 60.00 s (goal for 50: 3 s)") {
		t.Errorf("found %q, expected the goal beside what it took", text)
	}
	for want, edit := range map[string]func(*Plain){
		"found 251 requests to the API server, expected at most 250": func(p *Plain) { p.Calls++ },
		"found 13 calls at the relay, expected at most 12":           func(p *Plain) { p.Trips++ },
		"3.01 times as long":                   func(p *Plain) { p.Applied += 10 * time.Millisecond },
		"expected every figure to be measured": func(p *Plain) { p.Direct = 0 },
	} {
		p := good
		edit(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected %q", err, want)
		}
	}
}

// The requests of a rollout, and the time between the first that writes and the answer to the last.
func TestTheSpanOfRequests(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	calls, applied := spanOf([]request{
		{"get", "RequestReceived", at(0), at(0)},
		{"patch", "RequestReceived", at(100), at(100)},
		{"patch", "ResponseComplete", at(100), at(150)},
		{"patch", "RequestReceived", at(160), at(160)},
		{"patch", "ResponseComplete", at(160), at(400)},
		{"list", "ResponseComplete", at(500), at(900)},
	})
	if calls != 3 || applied != 300*time.Millisecond {
		t.Errorf("found %d requests and %s, expected 3 and 300ms", calls, applied)
	}
	objects := inNamespace(plainManifests(50, "api:1"), "other")
	if n := strings.Count(objects, "namespace: other"); n != 50 || strings.Count(objects, "---") != 49 {
		t.Errorf("found %d objects in the namespace, expected 50:\n%s", n, objects)
	}
}
