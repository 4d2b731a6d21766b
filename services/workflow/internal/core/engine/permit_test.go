package engine

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// A run that parks or crashes between its calls must not report denials without end (D51).
func TestDenialsAreCountedAcrossLoads(t *testing.T) {
	t.Parallel()
	e := New(Deps{Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 1, Live: 1}})
	deny := func(r *run, index int) {
		t.Helper()
		op := history.Op{Ref: history.OpRef{Index: index}, Kind: history.KindRun, Name: "act"}
		report := callReport{CallDecision: history.CallDecision{State: history.CallDenied, Activity: history.ActivityID("ref", op.Ref)}}
		if err := r.record(op, report); err != nil {
			t.Fatal(err)
		}
	}
	before := e.newRun(Loaded{Execution: execution.Execution{Ref: "ref"}})
	for i := range reportedDenials - 1 {
		deny(before, i)
	}
	recorded := before.entries
	if len(before.emits) != reportedDenials-1 {
		t.Fatalf("found %d reports, expected one of each denial", len(before.emits))
	}
	answer := history.Entry{Kind: history.KindRun, Value: json.RawMessage(`{"state": "denied"}`)} // no decision
	after := e.newRun(Loaded{Execution: execution.Execution{Ref: "ref"}, History: append(recorded, answer)})
	after.decisions()
	for i := range 3 {
		deny(after, reportedDenials+i)
	}
	if len(after.emits) != 1 || len(after.entries) != 3 {
		t.Errorf("found %d reports and %d entries, expected the last report and all entries", len(after.emits), len(after.entries))
	}
}
