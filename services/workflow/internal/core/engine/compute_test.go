package engine

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// sum is a computing Function whose answer has so many bytes, and which takes a while.
type sum struct {
	bytes int
	takes time.Duration
	wall  *forward
}

func (sum) Name() string { return "sum" }

func (sum) Location() activity.Location { return activity.InProcess }

func (sum) Effect() activity.Effect { return activity.Reads }

func (sum) Computes() bool { return true }

func (s sum) Call(context.Context, activity.Call) (any, error) {
	s.wall.by.Add(int64(s.takes))
	return strings.Repeat("x", s.bytes), nil
}

// forward is a clock that tests set forward.
type forward struct {
	clock.Clock

	begun time.Time
	by    atomic.Int64
}

func (f *forward) Now() time.Time { return f.begun.Add(time.Duration(f.by.Load())) }

// recorder is a machine that records what it is completed with, and a number of entries after that.
type recorder struct {
	program.Machine

	after   int
	entries []history.Entry
}

func (m *recorder) Complete(c history.Completion) bool {
	m.entries = append(m.entries, history.Entry{Op: c.Op, Kind: history.KindRun, Value: c.Value})
	for range m.after {
		m.entries = append(m.entries, history.Entry{Kind: history.KindPrint})
	}
	return true
}

func (m *recorder) Take() ([]history.Entry, []history.Emit) {
	entries := m.entries
	m.entries = nil
	return entries, nil
}

func (*recorder) Ending() bool { return false }

// A turn that continues with computed answers stays within the history, some memory and some time, and leaves many calls to be made in
// parallel.
func TestATurnComputesOnlySoMuch(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		atOnce, after, bytes, known int
		takes                       time.Duration
		calls                       int
	}{
		"one after the other":         {atOnce: 1, calls: computedMost},
		"some together":               {atOnce: 4, calls: computedMost},
		"many together":               {atOnce: 5, calls: 0},
		"to the end of the history":   {atOnce: 1, known: 97, calls: 3},
		"with a history that is full": {atOnce: 2, known: 99, calls: 0},
		"with other entries":          {atOnce: 1, after: 30, calls: 4},
		"slow ones":                   {atOnce: 1, takes: 40 * time.Millisecond, calls: 3},
		"slow ones together":          {atOnce: 4, takes: 60 * time.Millisecond, calls: 2},
		"large ones":                  {atOnce: 1, bytes: 400 << 10, calls: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wall := &forward{Clock: clock.System(), begun: clock.System().Now()}
			functions, err := activity.NewFunctions(sum{bytes: one.bytes, takes: one.takes, wall: wall})
			if err != nil {
				t.Fatal(err)
			}
			r := New(Deps{
				Functions: functions, Clock: wall, Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 1, Live: 1, History: 100},
			}).newRun(Loaded{})
			r.machine, r.seq = &recorder{after: one.after}, int64(one.known)
			made, done := 0, computed{since: wall.Now()}
			todo := func() (w work) {
				for i := range one.atOnce {
					op := history.Op{
						Ref: history.OpRef{Index: made + i}, Kind: history.KindRun, Name: "sum", Args: []byte("{}"),
					}
					r.open[op.Ref] = openOp{deadline: wall.Now().Add(time.Hour)}
					w.inProcess = append(w.inProcess, op)
				}
				return w
			}
			for r.compute(t.Context(), todo(), &done) {
				made = done.calls
			}
			if r.take(); done.calls != one.calls || len(r.entries) != one.calls*(1+one.after) {
				t.Errorf("found %d calls and %d entries, expected %d calls", done.calls, len(r.entries), one.calls)
			}
		})
	}
}
