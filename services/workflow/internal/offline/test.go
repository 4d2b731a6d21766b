package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Outcome is what a test of a case led to. As JSON it is the output of a command: members are added, and never renamed.
type Outcome struct {
	Case string `json:"case"`
	// Passed is set if nothing is in Failures.
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures,omitempty"`
	// Seed is the seed of the first run that failed beside the one without crashes; 0: there is none.
	Seed uint64 `json:"seed,omitempty"`
	// Runs counts how often the case was played, Crashes the crashes in all of them, Entries the history of the first.
	Runs    int `json:"runs"`
	Crashes int `json:"crashes"`
	Entries int `json:"entries"`
	// History is what the first run led to, for people.
	History string `json:"history"`
}

// Test plays a case without crashes, and then with crashes at random, once for each seed. Every run must lead to the same. check is what
// the service asks of an event that a program emits.
func Test(c Case, seeds []uint64, check func(history.Emit) *history.FunctionError) Outcome {
	w := newWorld(c, check, nil)
	r, err := w.play()
	o := Outcome{Case: c.Name, Runs: 1, Entries: len(r.entries), History: w.narrative(r).String()}
	o.Failures = append(o.Failures, w.trouble...)
	if err != nil {
		o.Failures = append(o.Failures, err.Error())
	} else {
		o.Failures = append(o.Failures, c.Expect.compare(w, r)...)
	}
	for _, seed := range seeds {
		if len(o.Failures) > 0 {
			break
		}
		again := newWorld(c, check, rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // repeated by its seed
		r, err := again.play()
		o.Runs, o.Crashes = o.Runs+1, o.Crashes+again.crashes
		switch found := again.narrative(r).String(); {
		case err != nil:
			o.Failures, o.Seed = append(o.Failures, fmt.Sprintf("with crashes, seed %d: %s", seed, err)), seed
		case found != o.History:
			o.Failures, o.Seed = append(o.Failures, fmt.Sprintf("with crashes, seed %d, the run led to something else:\n%s", seed,
				difference(o.History, found))), seed
		}
	}
	o.Passed = len(o.Failures) == 0
	return o
}

// Played is what one play of a case has led to.
type Played struct {
	// State is completed, failed, cancelled or waiting; Failure why it failed.
	State, Failure string
	// Entries are the whole history, At is when it ended.
	Entries []history.Entry
	At      time.Time
	Crashes int
}

// Play plays a case once, with crashes at random by a seed; with none for 0. It is for cases with an Outside, which live once: what a case
// expects is not compared, and each run has to lead to what the world makes of it.
func Play(c Case, seed uint64, check func(history.Emit) *history.FunctionError) (Played, error) {
	var chance *rand.Rand
	if seed > 0 {
		chance = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeated by its seed
	}
	w := newWorld(c, check, chance)
	r, err := w.play()
	if err == nil && len(w.trouble) > 0 {
		err = errors.New(strings.Join(w.trouble, "; "))
	}
	p := Played{State: r.ended, Failure: r.failure, Entries: r.entries, At: w.now, Crashes: w.crashes}
	if p.State == "" {
		p.State = "waiting"
	}
	return p, err
}

// compare says what is not as expected.
func (x Expectation) compare(w *world, r *run) (problems []string) {
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	state := r.ended
	if state == "" {
		state = "waiting"
	}
	switch {
	case x.State == "" && x.Error == "" && state == "waiting":
		report("the run has not ended: it waits for %s", r.waits())
	case x.State != "" && x.State != state:
		report("state: found %s%s, expected %s", state, because(r), x.State)
	case x.State == "" && x.Error == "" && x.History == "" && state != "completed":
		report("state: found %s%s, expected completed", state, because(r))
	}
	if !strings.Contains(r.failure, x.Error) {
		report("error: found %q, expected %q in it", r.failure, x.Error)
	}
	if x.Result != nil && r.ended == "completed" {
		if result := r.machine.Result(); !holds(x.Result, orNull(result)) {
			report("result: found %s, expected %s", orNull(result), x.Result)
		}
	}
	if x.Calls != nil {
		problems = append(problems, x.compareCalls(w)...)
	}
	if x.Emits != nil {
		problems = append(problems, x.compareEmits(r)...)
	}
	if x.Prints != nil {
		found := []string{}
		for _, e := range r.entries {
			if e.Kind == history.KindPrint {
				var line string
				_ = json.Unmarshal(e.Value, &line) // what is printed is recorded as a string
				found = append(found, line)
			}
		}
		if !slices.Equal(found, x.Prints) {
			report("prints:\n%s", difference(strings.Join(x.Prints, "\n"), strings.Join(found, "\n")))
		}
	}
	status := map[string]json.RawMessage{}
	for _, e := range r.entries {
		if e.Kind == history.KindStatus {
			status[e.Name] = e.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.Status)) {
		if !holds(x.Status[key], orNull(status[key])) {
			report("status.%s: found %s, expected %s", key, orNull(status[key]), x.Status[key])
		}
	}
	if found := w.narrative(r).String(); x.History != "" && found != x.History {
		report("history:\n%s", difference(x.History, found))
	}
	return problems
}

func because(r *run) string {
	switch {
	case r.failure != "":
		return " (" + r.failure + ")"
	case r.ended == "":
		return " for " + r.waits()
	}
	return ""
}

func (x Expectation) compareCalls(w *world) (problems []string) {
	var found, want []string
	for i, call := range w.calls {
		text := call.function
		if i < len(x.Calls) && x.Calls[i].Args != nil {
			text += " " + string(call.args)
			if x.Calls[i].Function == call.function && holds(x.Calls[i].Args, call.args) {
				text = call.function + " " + string(x.Calls[i].Args)
			}
		}
		found = append(found, text)
	}
	for _, call := range x.Calls {
		want = append(want, strings.TrimSpace(call.Function+" "+string(call.Args)))
	}
	if !slices.Equal(found, want) {
		problems = append(problems, "calls:\n"+difference(strings.Join(want, "\n"), strings.Join(found, "\n")))
	}
	return problems
}

func (x Expectation) compareEmits(r *run) (problems []string) {
	var found, want []string
	n := 0
	for _, e := range r.sent {
		if e.ID == r.ref+"/"+r.ended {
			continue // the engine's own
		}
		text := e.Type
		if n < len(x.Emits) && x.Emits[n].Data != nil {
			text += " " + string(e.Data)
			if x.Emits[n].Type == e.Type && holds(x.Emits[n].Data, e.Data) {
				text = e.Type + " " + string(x.Emits[n].Data)
			}
		}
		n++
		found = append(found, text)
	}
	for _, e := range x.Emits {
		want = append(want, strings.TrimSpace(e.Type+" "+string(e.Data)))
	}
	if !slices.Equal(found, want) {
		problems = append(problems, "emits:\n"+difference(strings.Join(want, "\n"), strings.Join(found, "\n")))
	}
	return problems
}

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}

// holds reports whether a value is as expected: of an object the members that are given, of all else everything.
func holds(want, found json.RawMessage) bool {
	decode := func(text json.RawMessage) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	expected, err := decode(want)
	if err != nil {
		return false
	}
	is, err := decode(found)
	return err == nil && fits(expected, is)
}

func fits(want, found any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, is := found.(map[string]any)
		for name, member := range want {
			if other, has := object[name]; !is || !has || !fits(member, other) {
				return false
			}
		}
		return is
	case []any:
		list, is := found.([]any)
		if !is || len(list) != len(want) {
			return false
		}
		for i := range want {
			if !fits(want[i], list[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(want, found)
	}
}

// difference shows lines that are expected (-) and found (+), and where they are.
func difference(want, found string) string {
	const shown = 20
	a, b := strings.Split(strings.TrimRight(want, "\n"), "\n"), strings.Split(strings.TrimRight(found, "\n"), "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var lines []string
	for sign, all := range map[string][]string{"- ": a, "+ ": b} {
		for i, line := range all {
			if i == shown {
				lines = append(lines, sign+"…")
				break
			}
			lines = append(lines, sign+line)
		}
	}
	slices.SortStableFunc(lines, func(x, y string) int { return int(y[0]) - int(x[0]) }) // what is expected first
	return strings.Join(lines, "\n")
}
