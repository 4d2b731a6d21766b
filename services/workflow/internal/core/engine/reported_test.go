package engine

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// D55: the domain service hears of an answer when it differs from the last one about the same thing, and no program receives the report.
func TestAnAnswerIsReportedWhenItChanges(t *testing.T) {
	t.Parallel()
	e := New(Deps{Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 1, Live: 1}})
	r := e.newRun(Loaded{Execution: execution.Execution{Ref: "ref", Workflow: "rollout-7", Organization: 3}})
	for i, one := range []struct{ about, data string }{
		{"staging", "1"}, {"staging", "1"}, {"production", "1"}, {"staging", "2"}, {"staging", "1"}, {"staging", "1"}, {"production", "1"},
	} {
		r.reportAnswer(activity.Report{About: one.about, EventType: "t", Data: json.RawMessage(one.data)}, string(rune('a'+i))+"/report")
	}
	var ids string
	for _, emit := range r.emits {
		ids += emit.ID + " "
		if !emit.Engine || emit.Workflow != "rollout-7" || emit.Organization != 3 || emit.Type != "t" {
			t.Errorf("found %+v", emit)
		}
	}
	if want := "a/report c/report d/report e/report "; ids != want {
		t.Errorf("found the reports %q; want %q", ids, want)
	}
}

// D55: a report that cannot be stored is left out, and fails no turn.
func TestAReportThatCannotBeStoredIsLeftOut(t *testing.T) {
	t.Parallel()
	check := func(e history.Emit) error {
		if string(e.Data) == "2" {
			return errors.New("no")
		}
		return nil
	}
	e := New(Deps{Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 1, Live: 1}, CheckReport: check})
	r := e.newRun(Loaded{Execution: execution.Execution{Ref: "ref", Workflow: "rollout-7", Organization: 3}})
	for _, data := range []string{"1", "2", "3"} {
		r.reportAnswer(activity.Report{About: "staging", EventType: "t", Data: json.RawMessage(data)}, data)
	}
	if len(r.emits) != 2 || r.emits[0].ID != "1" || r.emits[1].ID != "3" {
		t.Errorf("found %+v", r.emits)
	}
}
