package offline_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

func read(t *testing.T, name string) offline.Recording {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../testdata/replay", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := offline.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryRecordingFitsItsProgram(t *testing.T) { // issue 18
	t.Parallel()
	files, err := filepath.Glob("../../testdata/replay/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := read(t, name)
			report, err := offline.Replay(r, offline.Options{})
			if err != nil || !report.Fits {
				t.Fatalf("%+v, error %v", report.Problem, err)
			}
			ending := false // what was deferred is called by the engine
			for _, step := range report.Steps {
				ending = ending || step.Kind == string(history.KindEnding)
				if step.Position == "" && !ending {
					t.Errorf("entry %d (%s %s) has no position", step.Sequence, step.Kind, step.Name)
				}
			}
		})
	}
}

const counting = `
total = 0

def add(n):
    global_note = "adding"
    for i in range(n):
        run("act", {"i": i})
    return n

add(2)
sleep(60)
`

// recorded makes the history of a program whose operations are called act or are sleeps, as a first replay finds them.
func recorded(t *testing.T, files map[string]string, results ...string) offline.Recording {
	t.Helper()
	r := offline.Recording{Workflow: "w", Ref: "r", Program: files, Inputs: json.RawMessage("{}")}
	m := offline.OpenForTest(t, r)
	if err := m.Replay(nil); err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		m.Complete(history.Completion{Op: m.Pending()[0].Ref, Value: json.RawMessage(result)})
		entries, _ := m.Take()
		entries[0].Seq = int64(i + 1)
		r.History = append(r.History, entries...)
	}
	return r
}

func TestABreakpointShowsTheVariables(t *testing.T) { // issue 18
	t.Parallel()
	r := recorded(t, map[string]string{offline.MainFile: counting}, `1`, `2`)
	report, err := offline.Replay(r, offline.Options{Breakpoints: map[string][]int{offline.MainFile: {7, 11}}})
	if err != nil || !report.Fits || report.Outcome != "waiting" {
		t.Fatalf("%+v, error %v", report, err)
	}
	if len(report.Stops) != 3 {
		t.Fatalf("stops: %+v, expected 3", report.Stops)
	}
	for n, want := range []string{`global_note="adding" i=0 n=2 `, `global_note="adding" i=1 n=2 `, `total=0 `} {
		found := ""
		for _, v := range report.Stops[n].Variables {
			found += v.Name + "=" + v.Value + " "
		}
		if found != want || report.Stops[n].Sequence != int64(n) {
			t.Errorf("stop %d after entry %d: %s, expected %s", n, report.Stops[n].Sequence, found, want)
		}
	}
	if w := report.Waits; len(w) != 1 || w[0].Kind != "sleep" || w[0].Position != "main.star:11:6" {
		t.Errorf("waits: %+v", w)
	}
}

func TestAReplayUntilAnEntryShowsNothingBehindIt(t *testing.T) {
	t.Parallel()
	r := recorded(t, map[string]string{offline.MainFile: counting}, `1`, `2`)
	report, err := offline.Replay(r, offline.Options{Until: 1, Breakpoints: map[string][]int{offline.MainFile: {7, 11}}})
	if err != nil || report.Replayed != 1 || len(report.Stops) != 2 {
		t.Fatalf("%+v, error %v", report, err)
	}
}

func TestAReplayFindsWhereAnotherProgramDiffers(t *testing.T) { // D34
	t.Parallel()
	r := recorded(t, map[string]string{offline.MainFile: counting}, `1`, `2`)
	other := strings.Replace(counting, `{"i": i}`, `{"i": i * 2}`, 1)
	report, err := offline.Replay(r, offline.Options{Program: map[string]string{offline.MainFile: other}})
	if err != nil || report.Fits || report.Problem.Sequence != 2 || report.Problem.Position != "main.star:7:12" {
		t.Fatalf("%+v %+v, error %v", report, report.Problem, err)
	}
	if len(report.Steps) != 1 {
		t.Errorf("steps: %+v, expected the one that fits", report.Steps)
	}
	longer := strings.Replace(counting, "sleep(60)", `print("more")`+"\nsleep(60)", 1)
	if report, err = offline.Replay(r, offline.Options{Program: map[string]string{offline.MainFile: longer}}); err != nil || report.Fits ||
		!strings.Contains(report.Problem.Differs, "continues with print") {
		t.Fatalf("%+v %+v, error %v", report, report.Problem, err)
	}
}

func TestABreakpointWithoutAStatementIsRefused(t *testing.T) {
	t.Parallel()
	r := recorded(t, map[string]string{offline.MainFile: counting})
	for file, line := range map[string]int{offline.MainFile: 9, "no.star": 1} {
		_, err := offline.Replay(r, offline.Options{Breakpoints: map[string][]int{file: {line}}})
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s:%d: %v", file, line, err)
		}
	}
	for _, text := range []string{"", "x", "main.star:", "main.star:0", ":3", "a:b:c"} {
		if _, _, err := offline.ParseBreakpoint(text); err == nil {
			t.Errorf("%q is a breakpoint", text)
		}
	}
}

func TestConcealedTokensAreNotCompared(t *testing.T) {
	t.Parallel()
	r := recorded(t, map[string]string{offline.MainFile: "c = channel()\nrun('act', {'token': c.token})\nsleep(1)\n"}, `1`)
	conceal := strings.NewReplacer("ch_AAAAAAAAAAAAAAAAAAAAAAAAAA", history.Pseudonym(0))
	for i := range r.History {
		r.History[i].Value = json.RawMessage(conceal.Replace(string(r.History[i].Value)))
	}
	if report, err := offline.Replay(r, offline.Options{}); err != nil || report.Fits {
		t.Fatalf("%+v, error %v: expected a difference", report, err)
	}
	r.Concealed = true
	if report, err := offline.Replay(r, offline.Options{}); err != nil || !report.Fits {
		t.Fatalf("%+v %+v, error %v", report, report.Problem, err)
	}
}
