package offline_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// harbour is a world outside: a ship leaves when it is called, unless it fails at first, and arrives after two hours.
type harbour struct {
	failures, left int
	arrives        time.Time
	arrived        bool
	emitted        []string
}

func (h *harbour) Call(at time.Time, _, _ string, _ json.RawMessage) (json.RawMessage, *history.FunctionError) {
	if h.failures++; h.failures < 3 {
		return nil, &history.FunctionError{Code: "storm", Message: "not now", Retryable: true}
	}
	h.left++
	h.arrives = at.Add(2 * time.Hour)
	return json.RawMessage(`"left"`), nil
}

func (h *harbour) Emitted(_ time.Time, e history.Emit) { h.emitted = append(h.emitted, e.Type) }

func (h *harbour) Next(_ time.Time, wants []history.Want) (history.Event, bool) {
	waited := slices.ContainsFunc(wants, func(w history.Want) bool { return w.Type == "com.example.ship.arrived" })
	return history.Event{Type: "com.example.ship.arrived", Data: json.RawMessage(`{}`), Time: h.arrives}, waited && h.left > 0 && !h.arrived
}

func (h *harbour) Arrived(time.Time, history.Event) { h.arrived = true }

// A world with a life of its own acts when its time comes, and what a program does to it happens once, whatever crashes.
func TestAWorldOutsideActsByItself(t *testing.T) {
	t.Parallel()
	source := `def main():
    run("ship.leave", {})
    run("emit", {"type": "com.example.ship.left", "data": {}})
    wait_for_event(type = "com.example.ship.arrived", timeout = 86400)
`
	crashes := 0
	for seed := range uint64(20) {
		h := &harbour{}
		began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		played, err := offline.Play(offline.Case{
			Program: program.Program{Source: []byte(source)}, Outside: h, Begins: began, CallTimeout: time.Hour, WaitTimeout: time.Hour,
		}, seed, anything)
		if err != nil || played.State != "completed" {
			t.Fatalf("seed %d: found %s %s, error %v", seed, played.State, played.Failure, err)
		}
		if h.left != 1 || len(h.emitted) != 1 || played.At.Sub(began) != 2*time.Hour {
			t.Errorf("seed %d: left %d times, emitted %v, took %s", seed, h.left, h.emitted, played.At.Sub(began))
		}
		crashes += played.Crashes
	}
	if crashes == 0 {
		t.Error("found no crash")
	}
}

// A program that does not compile is refused, and nothing is left open.
func TestAProgramThatDoesNotCompileIsRefused(t *testing.T) {
	t.Parallel()
	_, err := offline.Play(offline.Case{Program: program.Program{Source: []byte("x = y")}}, 0, anything)
	if err == nil || !strings.Contains(err.Error(), "undefined: y") {
		t.Errorf("found %v", err)
	}
}
