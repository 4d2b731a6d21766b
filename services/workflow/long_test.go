package workflow_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// The length of a long history, and of the stretches of it that are compared.
const (
	longHistory = 50_000
	stretch     = 1_000
)

// ledger is a store of one run, in memory, which notes how much work had been done at the end of each stretch of its history.
type ledger struct {
	Store

	program program.Program
	ended   chan struct{}

	mu      sync.Mutex
	claimed bool
	turn    int64
	state   execution.State
	history []history.Entry
	// work is how many objects the process had allocated, commits how many turns were stored.
	work    []uint64
	commits []int
	done    int
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func (*ledger) Acquire(context.Context, string, time.Time, time.Duration) (int64, error) {
	return 1, nil
}

func (*ledger) Due(context.Context, engine.Round) (engine.Due, error) { return engine.Due{}, nil }

func (*ledger) Release(context.Context, engine.Lease) error { return nil }

func (*ledger) Forget(context.Context, time.Time) error { return nil }

func (*ledger) FireTimers(context.Context, time.Time, int) (fired int, next time.Time, err error) {
	return 0, time.Time{}, nil
}

func (l *ledger) Claim(_ context.Context, c engine.Claim) ([]engine.Claimed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claimed || c.Suspected {
		return nil, nil
	}
	l.claimed = true
	return []engine.Claimed{{Woken: engine.Woken{ID: 1, Ours: true}, Organization: organization, Workflow: "long"}}, nil
}

// Exonerate has nobody to exonerate: no process has died.
func (*ledger) Exonerate(context.Context, engine.Lease, int, time.Time) error { return nil }

func (l *ledger) Load(context.Context, int64) (engine.Loaded, error) {
	return engine.Loaded{
		Execution: execution.Execution{ID: 1, Ref: "run", Organization: organization, Workflow: "long", Attempt: 1}, Program: l.program,
		Inputs: []byte("{}"),
	}, nil
}

func (l *ledger) Commit(_ context.Context, c engine.Commit) (engine.Committed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Turn != l.turn {
		return engine.Committed{}, engine.ErrFenced
	}
	l.turn++
	l.done++
	l.history = append(l.history, c.Entries...)
	if len(l.history) >= stretch*(len(l.work)+1) {
		l.work, l.commits = append(l.work, allocated()), append(l.commits, l.done)
	}
	if l.state = c.Next; c.Next.Ended() {
		close(l.ended)
	}
	return engine.Committed{Turn: l.turn, State: c.Next}, nil
}

// TestALongHistoryCostsNoMoreAtItsEnd runs 50,000 activities in one run: the last thousand take as much work as the second thousand
// did, counted in objects that are allocated and in commits, and a replay of ten times the history takes ten times the work. It is
// not parallel, for all that the process allocates is counted.
func TestALongHistoryCostsNoMoreAtItsEnd(t *testing.T) { //nolint:paralleltest // see above
	l := &ledger{
		program: program.Program{Source: fmt.Appendf(nil, "for i in range(%d):\n    run(\"act\", {\"n\": i})\n", longHistory)},
		ended:   make(chan struct{}), history: make([]history.Entry, 0, longHistory+1), work: make([]uint64, 0, longHistory/stretch),
		commits: make([]int, 0, longHistory/stretch),
	}
	scripts := script.New(script.Limits{})
	functions, err := activity.NewFunctions(behaviour(func(_ context.Context, c activity.Call) (any,
		error,
	) {
		return map[string]any{"n": c.Args["n"]}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	engine := engine.New(engine.Deps{
		Store: l, Scripts: scripts, Functions: functions, CheckEmit: events.CheckEmit, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
		Settings: engine.Settings{
			Instance: "one", Lease: time.Hour, Poll: time.Hour, CallTimeout: time.Hour, WaitTimeout: time.Hour, Live: 2, Cache: 1 << 20,
			Activities: 2, History: 2 * longHistory, Crashes: 3, Retention: time.Hour,
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx, func() {}) }()
	limit := clock.System().NewTimer(5 * time.Minute)
	defer limit.Stop()
	select {
	case <-l.ended:
	case <-limit.C():
		l.mu.Lock()
		t.Errorf("after five minutes the run has recorded %d of %d", len(l.history), longHistory)
		l.mu.Unlock()
	}
	stop()
	if err := <-ran; err != nil || t.Failed() {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != execution.Completed || len(l.history) != longHistory+1 {
		t.Fatalf("the run is %s with %d entries, expected completed with %d", l.state, len(l.history), longHistory+1)
	}
	last := len(l.work) - 1
	early, late := l.work[1]-l.work[0], l.work[last]-l.work[last-1]
	earlyCommits, lateCommits := l.commits[1]-l.commits[0], l.commits[last]-l.commits[last-1]
	t.Logf("objects allocated: second thousand %d, last thousand %d; commits %d and %d", early, late, earlyCommits, lateCommits)
	if late > early+early/4 || lateCommits > earlyCommits+earlyCommits/4 {
		t.Errorf("the last thousand cost %d objects and %d commits, the second %d and %d", late, lateCommits, early, earlyCommits)
	}

	replay := func(n int) uint64 {
		machine, err := scripts.Open(l.program, []byte("{}"), program.Environment{Ref: "run", Now: clock.System().Now})
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		before := allocated()
		if err := machine.Replay(l.history[:n]); err != nil {
			t.Fatal(err)
		}
		return allocated() - before
	}
	short, long := replay(longHistory/10), replay(longHistory)
	t.Logf("objects allocated by a replay: of %d entries %d, of %d entries %d", longHistory/10, short, longHistory, long)
	if long > 12*short {
		t.Errorf("a replay of ten times the history costs %d objects, and the tenth of it %d", long, short)
	}
}
