package workflow_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// What a scenario compares: the history, the effects, the events, and the rows that are left.

// nothingIsLeft compares what an ended run has open with nothing: timers, waits, calls and what came for them, channels
// and polls end with their run.
func (w *world) nothingIsLeft(e execution.Execution) {
	w.t.Helper()
	for _, table := range []string{"timer", "wait", "call", "delivery", "channel", "poll"} {
		var left int
		if err := w.pool.QueryRow(w.t.Context(), `SELECT count(*) FROM `+table+` WHERE execution = $1`, e.ID).Scan(&left); err != nil {
			w.t.Fatal(err)
		}
		if left > 0 {
			w.t.Errorf("the run has ended and %d rows of %s are left", left, table)
		}
	}
}

// recordings is what is kept of a run for later engines, by generation.
func (w *world) recordings(service *control.Service, a *txtar.Archive, e execution.Execution) (generations []recording) {
	w.t.Helper()
	r := recording{Ref: e.Ref, Program: map[string]string{}, Inputs: json.RawMessage(section(a, "inputs.json"))}
	if len(r.Inputs) == 0 {
		r.Inputs = json.RawMessage("{}")
	}
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".star") {
			r.Program[f.Name] = string(f.Data)
		}
	}
	r.Program[mainFile] = string(w.start.Program.Source) // that of a change
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, entry := range entries {
		generation := entry.Generation
		entry.Generation = 0 // what is replayed has none
		r.History = append(r.History, entry)
		if i+1 < len(entries) && entries[i+1].Generation == generation {
			continue
		}
		generations = append(generations, r)
		r.History, r.Continuation = nil, entry.Value
	}
	return generations
}

// recorded is the history in the order of branches, since branches race, and what left the service.
func (w *world) recorded(service *control.Service, e execution.Execution) string {
	w.t.Helper()
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	narrative := offline.Narrative{Ref: e.Ref, Entries: entries, Effects: w.effects, Sent: w.sent()}.String()
	if status := w.status(); status != "{}" {
		narrative += "status " + status + "\n"
	}
	return longText.ReplaceAllStringFunc(narrative, func(text string) string { return fmt.Sprintf("x times %d", len(text)) })
}

// longText is what {"$repeat": N} answers.
var longText = regexp.MustCompile(`x{1000,}`)

// status is what the run reports of itself, as JSON.
func (w *world) status() string {
	w.t.Helper()
	var text string
	err := w.pool.QueryRow(w.t.Context(), `SELECT coalesce(jsonb_object_agg(s.key, s.value), '{}')::text
FROM status s JOIN execution e ON e.id = s.execution WHERE e.organization = $1 AND e.workflow = 'scenario'`, w.organization).Scan(&text)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// sent are the events that left.
func (w *world) sent() (all []history.Emit) {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT event->>'id', event->>'type', event->>'data' FROM outbox WHERE event->>'organizationid' = $1 ORDER BY id`, strconv.FormatInt(w.organization, 10))
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e history.Emit
		var data string
		if err := rows.Scan(&e.ID, &e.Type, &data); err != nil {
			w.t.Fatal(err)
		}
		e.Data = json.RawMessage(data)
		all = append(all, e)
	}
	return all
}
