package script

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

const testInputs = `{"rollout": {"id": 12, "environments": [{"name": "staging", "values": [1]}, {"name": "production"}], "ratio": 0.5}, "name": "shop"}`

func testModules(t *testing.T) map[string][]byte {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string][]byte{}
	for _, f := range archive.Files {
		modules[f.Name] = f.Data
	}
	return modules
}

// open prepares a run in which uuids and the clock count.
func open(t *testing.T, source string, recorded []history.Entry) program.Machine {
	t.Helper()
	scripts := New(Limits{Steps: 100_000, Ops: 100, Value: 4096, Prints: 3, PrintLine: 10})
	m, err := scripts.Open(program.Program{Source: []byte(source), Modules: testModules(t)}, []byte(testInputs), testEnvironment(recorded))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// testEnvironment counts on where a history ends.
func testEnvironment(recorded []history.Entry) program.Environment {
	n, drawn := 0, -1
	for _, e := range recorded {
		if e.Kind == history.KindUUID {
			n++
		}
		if e.Kind == history.KindRandom {
			drawn++
		}
	}
	return program.Environment{
		Ref:   "ref",
		Now:   func() time.Time { return time.Unix(1_800_000_000, 0) },
		UUID:  func() string { n++; return "uuid-" + strconv.Itoa(n) },
		Token: func() string { return "ch_AAAAAAAAAAAAAAAAAAAAAAAAAA" },
		// The second number drawn is 0, which JSON writes like an int.
		Random: func() float64 { drawn++; return []float64{0.25, 0}[drawn%2] },
		Emit: func(_, eventType string, _ json.RawMessage) *history.FunctionError {
			if eventType == "bad" {
				return &history.FunctionError{Code: "invalid", Message: "bad is bad"}
			}
			return nil
		},
	}
}

// execute replays a history and completes whatever blocks, in a fixed but mixed order, until the program ends.
func execute(t *testing.T, source string, recorded []history.Entry) ([]history.Entry, error) {
	t.Helper()
	return carryOn(t, open(t, source, recorded), recorded)
}

// carryOn is execute for a run that is open.
func carryOn(t *testing.T, m program.Machine, recorded []history.Entry) ([]history.Entry, error) {
	t.Helper()
	history := slices.Clone(recorded)
	_ = m.Replay(recorded) // a failure is the outcome's too
	for {
		entries, _ := m.Take()
		for _, e := range entries {
			e.Seq = int64(len(history) + 1)
			history = append(history, e)
		}
		if ended, failure := m.Outcome(); ended {
			return history, failure
		}
		pending := m.Pending()
		if op := pending[len(history)%len(pending)]; !m.Complete(answer(op)) {
			t.Fatalf("%s is pending but could not be completed", op.Ref)
		}
	}
}

func answer(op history.Op) history.Completion {
	c := history.Completion{Op: op.Ref, Value: json.RawMessage("null")}
	switch {
	case (op.Kind == history.KindRun || op.Kind == history.KindPoll) && op.Name == "refuse":
		c.Value, c.Error = nil, new(history.FunctionError)
		_ = json.Unmarshal(op.Args, c.Error)
	case op.Kind == history.KindRun || op.Kind == history.KindPoll:
		c.Value = op.Args
	case op.Kind == history.KindWait && op.Timeout == 0:
		var filters []string
		for _, want := range op.Wants() {
			if text := want.Filter.String(); !slices.Contains(filters, text) || len(op.Filters) > 0 {
				filters = append(filters, text)
			}
		}
		data, _ := json.Marshal(map[string]string{"filter": strings.Join(filters, " | ")})
		c.Value = history.Event{ID: "1", Type: op.Types[0], Source: "/test", Data: data}.Value()
	case op.Kind == history.KindReceive && op.Timeout == 0:
		e, _ := history.Message{Token: op.Channels[0], ID: "m1", Data: []byte(`[1,2]`)}.Event()
		c.Value = e.Value()
	}
	return c
}
