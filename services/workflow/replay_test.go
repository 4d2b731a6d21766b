package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// recording is a generation of a run as it was recorded once: what it was started with, and its history.
type recording = offline.Recording

// keep adds the histories of a scenario to testdata/replay, one for each generation, unless it has some. They are never rewritten: runs
// that an older engine began must continue with every later one.
func keep(t *testing.T, file string, generations []recording) {
	t.Helper()
	for i, r := range generations {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i+1)
		}
		keepOne(t, filepath.Join("testdata/replay", name+".json"), r)
	}
}

// mostKept is the size in bytes up to which a history is kept.
const mostKept = 64 << 10

func keepOne(t *testing.T, name string, r recording) {
	t.Helper()
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		return
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > mostKept {
		return
	}
	if err := os.WriteFile(name, append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRecordedHistoriesReplayForEver replays every history that was ever recorded, to its end and to each entry before
// (D34). A failure here means that running workflows would stop at the next upgrade.
func TestRecordedHistoriesReplayForEver(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/replay/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r recording
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			last := len(r.History) - 1
			end := r.History[last]
			if end.Kind == history.KindContinue {
				last++ // the program itself has caused it
			}
			for n := range last {
				// A prefix stops where the program answers the next operation on the spot, so only a mismatch is wrong.
				m := reopened(t, r)
				if err := m.Replay(r.History[:n]); isMismatch(err) {
					t.Errorf("after %d entries: %v", n, err)
				}
			}
			m := reopened(t, r)
			failure := m.Replay(r.History[:last])
			if isMismatch(failure) {
				t.Fatal(failure)
			}
			compareEnd(t, m, end, failure)
		})
	}
}

// compareEnd has the program be where the last entry of its history says: at its end, or blocked when it was stopped.
func compareEnd(t *testing.T, m program.Machine, last history.Entry, failure error) {
	t.Helper()
	if entries, _ := m.Take(); len(entries) > 0 {
		t.Errorf("the replay recorded %v", entries)
	}
	ended, _ := m.Outcome()
	var end struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(last.Value, &end); err != nil {
		t.Fatal(err)
	}
	switch last.Kind {
	case history.KindCompleted, history.KindContinue:
		if !ended || failure != nil {
			t.Errorf("ended %t with %v, expected a good end", ended, failure)
		}
	case history.KindFailed:
		// PostgreSQL takes no NUL: the engine stores another character for it.
		if !ended || failure == nil || strings.ReplaceAll(failure.Error(), "\x00", "\ufffd") != end.Error {
			t.Errorf("ended %t with %v, expected %s", ended, failure, end.Error)
		}
	case history.KindCancelled:
		if cause, is := failure.(*program.Stopped); is { //nolint:errorlint // it is not wrapped
			if !ended || !cause.Cancelled {
				t.Errorf("ended %t with %v, expected that it was cancelled", ended, failure)
			}
			return
		}
		if ended || len(m.Pending()) == 0 {
			t.Errorf("ended %t with %v, expected it to wait", ended, failure)
		}
	default:
		if ended || len(m.Pending()) == 0 {
			t.Errorf("ended %t with %v, expected it to wait", ended, failure)
		}
	}
}

func isMismatch(err error) bool {
	_, ok := errors.AsType[*program.Mismatch](err)
	return ok
}

// reopened prepares a replay. What the run had asked for is in its history.
func reopened(t *testing.T, r recording) program.Machine {
	t.Helper()
	env := replayed()
	env.Continuation = r.Continuation
	m, err := script.New(script.Limits{}).Open(offline.ProgramOf(r.Program), r.Inputs, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

const mainFile = offline.MainFile

// replayed is the environment of a program that continues after a prefix of its history.
func replayed() program.Environment {
	return program.Environment{
		Now: clock.System().Now, UUID: func() string { return "again" }, Random: func() float64 { return 0.5 },
		Token: func() string { return "ch_" + strings.Repeat("A", 26) },
		Emit:  func(string, string, json.RawMessage) *history.FunctionError { return nil },
	}
}
