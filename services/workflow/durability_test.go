package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// fickle is a store whose connection breaks: before a transaction, or after it was applied and before its answer came.
type fickle struct {
	Store
	mu     sync.Mutex
	random *rand.Rand
}

// breaks says what goes wrong with the next transaction.
func (f *fickle) breaks() (before, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.random.IntN(6) {
	case 0:
		return true, false
	case 1:
		return false, true
	}
	return false, false
}

// broken runs do, or not, and forgets its answer, or not.
func broken[T any](f *fickle, do func() (T, error)) (answer T, err error) {
	before, after := f.breaks()
	if !before {
		answer, err = do()
	}
	if before || after {
		var none T
		return none, fault.New(fault.Unavailable, "the connection broke")
	}
	return answer, err
}

func (f *fickle) Commit(ctx context.Context, c engine.Commit) (engine.Committed, error) {
	return broken(f, func() (engine.Committed, error) { return f.Store.Commit(ctx, c) })
}

func (f *fickle) Claim(ctx context.Context, c engine.Claim) ([]engine.Claimed, error) {
	return broken(f, func() ([]engine.Claimed, error) { return f.Store.Claim(ctx, c) })
}

func (f *fickle) Load(ctx context.Context, execution int64) (engine.Loaded, error) {
	return broken(f, func() (engine.Loaded, error) { return f.Store.Load(ctx, execution) })
}

func (f *fickle) FireTimers(ctx context.Context, now time.Time, limit int) (fired int, next time.Time, err error) {
	_, err = broken(f, func() (_ struct{}, err error) {
		fired, next, err = f.Store.FireTimers(ctx, now, limit)
		return struct{}{}, err
	})
	return fired, next, err
}

const errands = `
def errand(name):
    for i in range(3):
        done = run("act", {"name": name, "i": i})
        run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": done.n}})
    sleep(seconds = 0.01)
    return name

print(gather([spawn(errand, "a"), spawn(errand, "b")]))
wait_for_event("com.example.go", filter = {"id": uuid()}, timeout = 0.02)
run("act", {"name": "end", "i": 0})
`

// TestCommitsOfUnknownOutcome runs a program over a store of which one transaction in three fails, half of them after
// they were applied. Whatever the seed, the program records the same as on a store that works, each operation once.
func TestCommitsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	const seeds = 12
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			var mu sync.Mutex
			asked := map[string]string{}
			act := func(_ context.Context, c activity.Call) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				what := fmt.Sprint(c.Args)
				if before, known := asked[c.ID]; known && before != what {
					t.Errorf("activity %s was asked for %s, and before for %s", c.ID, what, before)
				}
				asked[c.ID] = what
				return map[string]any{"n": 7}, nil
			}
			f := &fickle{Store: e.store, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a seed that can be run again
			e.run("one", f, act)
			e.start(errands)
			w := e.await(execution.Completed)
			entries, err := e.service.History(t.Context(), 1, "w", 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			var ops []string
			for i, entry := range entries {
				if entry.Seq != int64(i+1) {
					t.Errorf("entry %d has number %d", i+1, entry.Seq)
				}
				ops = append(ops, fmt.Sprintf("%s %s", entry.Op, entry.Kind))
			}
			slices.Sort(ops)
			want := []string{"-1.0 completed", "0.0 print", "0.1 uuid", "0.2 wait", "0.3 run"}
			for _, branch := range []int{1, 2} {
				for i := range 3 {
					want = append(want, fmt.Sprintf("%d.%d run", branch, 2*i), fmt.Sprintf("%d.%d emit", branch, 2*i+1))
				}
				want = append(want, fmt.Sprintf("%d.6 sleep", branch))
			}
			slices.Sort(want)
			if !slices.Equal(ops, want) {
				t.Errorf("recorded %q, expected %q", ops, want)
			}
			if len(asked) != 7 {
				t.Errorf("%d activities, expected 7: %v", len(asked), asked)
			}
			var sent int
			err = e.store.Pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE event_id LIKE $1", w.Ref+"/%").Scan(&sent)
			if err != nil || sent != 7 {
				t.Errorf("%d events left, expected 7, error %v", sent, err)
			}
		})
	}
}

// TestTheWorkOfADeadProcessMovesOn has a process die with runs whose Functions are under way and runs that are parked. It
// says good-bye to nobody, so its lease has to run out first.
func TestTheWorkOfADeadProcessMovesOn(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	const runs = 8
	hang := make(chan struct{})
	defer close(hang)
	die := e.run("dies", cutOff{e.store}, func(ctx context.Context, _ activity.Call) (any, error) {
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	startAs := func(name, source string) {
		t.Helper()
		_, err := e.service.Start(t.Context(), execution.Start{Organization: 1, Workflow: name, Program: program.Program{Source: []byte(source)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	state := func(name string) execution.State {
		t.Helper()
		w, err := e.store.Get(t.Context(), 1, name)
		if err != nil {
			t.Fatal(err)
		}
		return w.State
	}

	for i := range runs {
		startAs(fmt.Sprintf("runs-%d", i), `run("act", {})`)
		startAs(fmt.Sprintf("waits-%d", i), fmt.Sprintf(`wait_for_event("com.example.go", filter = {"id": %d})`, i))
	}
	wait.For(t, "half of them are parked", func() bool {
		for i := range runs {
			if state(fmt.Sprintf("waits-%d", i)) != execution.Parked {
				return false
			}
		}
		return true
	})
	die()
	e.run("lives", e.store, func(context.Context, activity.Call) (any, error) { return nil, nil })
	for i := range runs {
		data := json.RawMessage(fmt.Sprintf(`{"id": %d}`, i))
		_, _, err := e.service.Receive(t.Context(),
			history.Event{Organization: 1, Source: "/test", ID: string(data), Type: "com.example.go", Data: data, Time: clock.System().Now()})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "all have completed", func() bool {
		for i := range runs {
			if state(fmt.Sprintf("runs-%d", i)) != execution.Completed || state(fmt.Sprintf("waits-%d", i)) != execution.Completed {
				return false
			}
		}
		return true
	})
}

// outageVariable is how long PostgreSQL and NATS are away in TestDatabaseAndBusGoAwayAndComeBack, each; `make chaos` sets it.
const outageVariable = "LOCKSTEP_OUTAGE"

// mostKnocks is how often a second a service may ask for a server that is away: its loops do so once each, and those that wait for
// an answer begin anew. One that does not wait would ask thousands of times.
const mostKnocks = 100

// TestDatabaseAndBusGoAwayAndComeBack takes both from a running service, one after the other, for three seconds or for the time in
// the environment. It then continues without loss, and does not retry in a tight loop meanwhile.
func TestDatabaseAndBusGoAwayAndComeBack(t *testing.T) {
	t.Parallel()
	place := postgres.Config{DataDir: filepath.Join(t.TempDir(), "postgres"), Fast: true, Log: bustest.Log(t)}
	database, err := postgres.Start(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Stop() }) // the last of them
	outage := 3 * time.Second
	if text := os.Getenv(outageVariable); text != "" {
		if outage, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	nats := bustest.Server(t)
	toDatabase, toNATS := newDoor(t, database.URL()), newDoor(t, nats.URL())
	s := &service{t: t, bus: nats, config: workflow.Config{
		Database: pg.Database{DatabaseURL: through(t, database.URL(), toDatabase)},
		NATS:     bus.NATS{NATSURL: "nats://" + toNATS.address, NATSPassword: "workflow"}, NATSUser: "workflow",
		GRPCAddress: porttest.FreeAddress(t), Token: token, AgentOwners: []workflow.AgentOwner{{Agent: agentID, Organization: organization}},
		Instance: "test", Settings: telemetry.Settings{LogLevel: "error"},
	}}
	conn, err := rpc.Dial(rpc.ClientConfig{Address: s.config.GRPCAddress, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.AutoFlowClient = autoflowv1.NewAutoFlowClient(conn)
	s.up()
	t.Cleanup(s.down)
	received := make(chan event.Event, 1000)
	listen(t, nats.Connect(t, "domain"), received)

	s.submit("w", `
for i in range(100):
    run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": i + 1}})
    sleep(seconds = 0.05)
`, "{}")
	next(t, received, "com.gitlab.cd.rollout.started")
	if err := database.Stop(); err != nil {
		t.Fatal(err)
	}
	pause := func(what string, d *door) {
		before, began := d.knocks.Load(), clock.System().Now()
		if err := clock.Sleep(t.Context(), clock.System(), outage); err != nil {
			t.Fatal(err)
		}
		knocks, lasted := d.knocks.Load()-before, clock.System().Now().Sub(began)
		t.Logf("%s was away for %s, and asked for %d times", what, lasted.Round(time.Millisecond), knocks)
		if most := int64(mostKnocks * (lasted.Seconds() + 1)); knocks > most {
			t.Errorf("%s was asked for %d times within %s, expected at most %d", what, knocks, lasted, most)
		}
	}
	pause("PostgreSQL", toDatabase)
	if database, err = postgres.Start(t.Context(), place); err != nil {
		t.Fatal(err)
	}
	next(t, received, "com.gitlab.cd.rollout.started")
	nats.Stop(t)
	pause("NATS", toNATS)
	nats.Start(t)
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	// next has taken two of the hundred, and drops what it is not asked for.
	emitted, ended := map[string]bool{}, false
	s.eventually("everything that was emitted has come", func(context.Context) bool {
		for {
			select {
			case e := <-received:
				if ended = ended || strings.HasSuffix(e.ID(), "/completed"); e.Type() == "com.gitlab.cd.rollout.started" {
					emitted[e.ID()] = true
				}
			default:
				return len(emitted) >= 98 && ended
			}
		}
	})
}
