package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// The conformance suite: what engine.Store promises, against a real server.

const lease = 5 * time.Second

type testStore struct {
	*Store
	t     *testing.T
	clock *clocktest.Clock
	lease engine.Lease
	n     int
}

func newTestStore(t *testing.T) *testStore {
	t.Helper()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: Migrations()})
	return newTestStoreOn(t, pool, clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)))
}

// newTestStoreOn is newTestStore on an existing pool.
func newTestStoreOn(t *testing.T, pool *pgxpool.Pool, c *clocktest.Clock) *testStore {
	t.Helper()
	b := &testStore{t: t, clock: c, Store: New(Deps{
		Pool: pool, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Clock: c, Log: slog.New(slog.DiscardHandler),
		Encode: func(e history.Emit, trace string) (event.Sealed, error) {
			return event.Make(event.Header{
				ID: e.ID, Source: "/services/workflow", Organization: e.Organization, Time: e.Time, Trace: trace,
			}, event.WorkflowCompleted{WorkflowID: e.Workflow})
		},
		ClaimEvent: func(context.Context, pgx.Tx, event.Event) (bool, error) { return true, nil },
	})}
	b.lease = b.acquire("one")
	t.Cleanup(func() { checkRunnable(t, pool) })
	return b
}

// checkRunnable holds the table of what runs to the states, whatever a test has done.
func checkRunnable(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var wrong int
	err := pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*)
FROM execution FULL JOIN runnable ON runnable.execution = execution.id
WHERE (execution.state IS NOT DISTINCT FROM 'running') <> (runnable.execution IS NOT NULL)`).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("%d executions are runnable and do not run, or the other way round (%v)", wrong, err)
	}
}

func (b *testStore) acquire(instance string) engine.Lease {
	b.t.Helper()
	epoch, err := b.Acquire(b.t.Context(), instance, b.clock.Now(), lease)
	if err != nil {
		b.t.Fatal(err)
	}
	return engine.Lease{Instance: instance, Epoch: epoch}
}

// many is a number of crashes that nothing here has.
const many = 1000

func (b *testStore) claim(l engine.Lease, live ...int64) []int64 {
	b.t.Helper()
	claimed, err := b.Claim(b.t.Context(), engine.Claim{Lease: l, Now: b.clock.Now(), Here: live, Limit: 1000, Suspicious: many})
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []int64
	for _, w := range claimed {
		ids = append(ids, w.ID)
	}
	slices.Sort(ids)
	return ids
}

func (b *testStore) start(organization int64) engine.NewExecution {
	b.n++
	source := []byte("x = 1")
	module, inputs, secrets := []byte("y = 2"), []byte(`{"b": 1, "a": 2}`), map[string]string{"git": "env:X"}
	return engine.NewExecution{
		Start: execution.Start{
			Organization: organization, Workflow: fmt.Sprintf("w-%d", b.n), Labels: map[string]string{"a": "b"}, Secrets: secrets,
			Program: program.Program{Source: source, Modules: map[string][]byte{"m.star": module}}, Inputs: inputs,
		},
		Ref: fmt.Sprintf("ref-%d", b.n), Digest: program.Digest(source), At: b.clock.Now(),
	}
}

// startRun creates an execution, claims it and loads it.
func (b *testStore) startRun(organization int64) engine.Loaded {
	b.t.Helper()
	n := b.start(organization)
	if c, err := b.Create(b.t.Context(), n); err != nil || !c.Created {
		b.t.Fatal(c, err)
	}
	e, err := b.Get(b.t.Context(), organization, n.Workflow)
	if err != nil {
		b.t.Fatal(err)
	}
	b.claim(b.lease)
	return b.load(e.ID)
}

func (b *testStore) load(id int64) engine.Loaded {
	b.t.Helper()
	l, err := b.Load(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// parking is a turn of a loaded run that records nothing, opens operations and parks.
func (b *testStore) parking(l engine.Loaded, opened ...history.Op) engine.Commit {
	c := engine.Commit{
		Lease: b.lease, Execution: l.Execution, Turn: l.Turn, Wakes: l.Wakes, LastSeq: int64(len(l.History)),
		Next: execution.Parked, At: b.clock.Now(),
	}
	for _, op := range opened {
		o := engine.Opening{Op: op, Due: b.clock.Now().Add(op.Timeout)}
		if op.Kind == history.KindRun {
			o.Location, o.Agent = activity.Cluster, 7
		}
		c.Open = append(c.Open, o)
	}
	return c
}

// entry is an entry of a history, recorded now.
func (b *testStore) entry(seq int64, op history.OpRef, kind history.Kind, value string) history.Entry {
	return history.Entry{Seq: seq, Op: op, Kind: kind, Value: json.RawMessage(value), At: b.clock.Now()}
}

// ending is the last entry of a run that has completed, which no operation has recorded.
func (b *testStore) ending(seq int64) history.Entry {
	return b.entry(seq, history.OpRef{Branch: -1}, history.KindCompleted, "{}")
}

func (b *testStore) commit(c engine.Commit) engine.Committed {
	b.t.Helper()
	done, err := b.Commit(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

func (b *testStore) receive(organization int64, id, eventType, data string) int {
	b.t.Helper()
	matched, _, err := b.Receive(b.t.Context(), eventAt(organization, id, eventType, data, b.clock.Now()))
	if err != nil {
		b.t.Fatal(err)
	}
	return matched
}

func eventAt(organization int64, id, eventType, data string, at time.Time) history.Event {
	return history.Event{
		Organization: organization, Source: emitters.SourceOf(eventType), ID: id, Type: eventType, Data: json.RawMessage(data), Time: at,
	}
}

func waitFor(branch int, eventType string, filter history.Filter) history.Op {
	return history.Op{
		Ref: history.OpRef{Branch: branch}, Kind: history.KindWait, Types: strings.Split(eventType, ","), Filter: filter, Timeout: time.Hour,
	}
}

// arrivals lists the arrivals of a run, as "branch.index event-id-or-kind".
func (b *testStore) arrivals(id int64) []string {
	b.t.Helper()
	_, arrivals, err := b.Arrivals(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	var list []string
	for _, a := range arrivals {
		var e struct {
			ID string `json:"id"`
		}
		what := []string{"event", "answer", "timer"}[a.Kind]
		if a.Kind == engine.EventArrived && json.Unmarshal(a.Value, &e) == nil {
			what = e.ID
		}
		if a.Error != nil {
			what += " " + a.Error.Code
		}
		list = append(list, a.Op.String()+" "+what)
	}
	return list
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestCreateOnce(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	n := b.start(1)
	first, err := b.Create(t.Context(), n)
	if err != nil || !first.Created || first.Ref != "ref-1" {
		t.Fatal(first, err)
	}
	again := n
	again.Ref, again.Inputs = "other", []byte(`{"b": 2}`)
	second, err := b.Create(t.Context(), again)
	if err != nil || second.Created || second.Ref != "ref-1" || second.ID != first.ID {
		t.Fatal(second, err)
	}
	digests, err := again.Digests()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "differences", []string{"inputs"}, digests.Differences(second.Existing))
	n.Organization, n.Ref = 2, "ref-2"
	if c, err := b.Create(t.Context(), n); err != nil || !c.Created {
		t.Error("the same id in another organization is another workflow", c, err)
	}
	if _, err := b.Get(t.Context(), 3, n.Workflow); !fault.Is(err, fault.NotFound) {
		t.Error("another organization's workflow:", err)
	}
	e, err := b.Get(t.Context(), 2, n.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	l := b.load(e.ID)
	same(t, "program", n.Program, l.Program)
	same(t, "inputs", `{"b": 1, "a": 2}`, string(l.Inputs))
	same(t, "secrets", n.Secrets, l.Secrets)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	first, second := b.startRun(1), b.startRun(1)
	same(t, "claimed again by the owner that knows of one", []int64{second.ID}, b.claim(b.lease, first.ID))
	other := b.acquire("two")
	same(t, "claimed while the owner lives", []int64(nil), b.claim(other))

	// A process that comes back under its name has its executions at once, and its former self is out.
	former := b.lease
	b.lease = b.acquire("one")
	if _, err := b.Due(t.Context(), engine.Round{Lease: former, Until: b.clock.Now().Add(lease)}); !errors.Is(err, engine.ErrFenced) {
		t.Error("the former process renewed its lease:", err)
	}
	same(t, "claimed by the next process of the name", []int64{first.ID, second.ID}, b.claim(b.lease))
	c := b.parking(first)
	c.Lease = former
	if _, err := b.Commit(t.Context(), c); !errors.Is(err, engine.ErrFenced) {
		t.Error("the former process committed:", err)
	}

	b.clock.Advance(lease + time.Second)
	if _, err := b.Due(t.Context(), engine.Round{Lease: other, Until: b.clock.Now().Add(lease)}); err != nil {
		t.Fatal(err)
	}
	same(t, "claimed after the lease ran out", []int64{first.ID, second.ID}, b.claim(other))
	if _, err := b.Commit(t.Context(), b.parking(first)); !errors.Is(err, engine.ErrFenced) {
		t.Error("the owner whose lease ran out committed:", err)
	}
}

func TestOneOfManyClaimsAnExecution(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	for range 20 {
		if _, err := b.Create(t.Context(), b.start(1)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var all []int64
	var claimers sync.WaitGroup
	var leases []engine.Lease
	for i := range 4 {
		leases = append(leases, b.acquire(fmt.Sprintf("claimer-%d", i)))
	}
	for _, l := range leases {
		claimers.Go(func() {
			var live []int64
			for {
				claimed, err := b.Claim(t.Context(), engine.Claim{Lease: l, Now: b.clock.Now(), Here: live, Limit: 3, Suspicious: many})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, w := range claimed {
					live, all = append(live, w.ID), append(all, w.ID)
				}
				mu.Unlock()
				if len(claimed) == 0 {
					return
				}
			}
		})
	}
	claimers.Wait()
	owned := len(all)
	slices.Sort(all)
	if distinct := len(slices.Compact(all)); distinct != 20 || owned != 20 {
		t.Errorf("%d of 20 executions were claimed, %d times", distinct, owned)
	}
}

// After a crash, organizations have their runs claimed in turns: one with many, which are older, does not keep others waiting; and where
// others have none, it gets all places (issue 17).
func TestClaimsAreFairByOrganization(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	create := func(organization int64, runs int) {
		t.Helper()
		for range runs {
			if _, err := b.Create(t.Context(), b.start(organization)); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(1, 40)
	create(2, 2)
	create(3, 3)
	var here []int64
	claim := func() map[int64]int {
		t.Helper()
		claimed, err := b.Claim(t.Context(), engine.Claim{Lease: b.lease, Now: b.clock.Now(), Here: here, Limit: 6, Suspicious: many})
		if err != nil {
			t.Fatal(err)
		}
		of := map[int64]int{}
		for _, c := range claimed {
			of[c.Organization]++
			here = append(here, c.ID)
		}
		return of
	}
	same(t, "claimed first", map[int64]int{1: 2, 2: 2, 3: 2}, claim())
	same(t, "claimed then", map[int64]int{1: 5, 3: 1}, claim())
	for left := 33; left > 0; left -= 6 {
		same(t, "claimed of what is left", map[int64]int{1: min(left, 6)}, claim())
	}
	same(t, "claimed at the end", map[int64]int{}, claim())
}

func TestCommitIsFenced(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	c := b.parking(l, waitFor(0, "x", nil))
	c.LastSeq, c.Next = 1, execution.Running
	c.Entries = []history.Entry{b.entry(1, history.OpRef{}, history.KindNow, "1")}
	c.Emits = []history.Emit{{
		ID: "e", Organization: 1, Workflow: "w", Type: event.TypeWorkflowCompleted, Data: []byte(`{}`), Time: b.clock.Now(),
	}}
	b.commit(c)
	if _, err := b.Commit(t.Context(), c); !errors.Is(err, engine.ErrFenced) {
		t.Error("the same turn twice:", err)
	}
	c.Turn++ // as if the turn were right, but the history not
	if _, err := b.Commit(t.Context(), c); !errors.Is(err, engine.ErrFenced) {
		t.Error("the same entry twice:", err)
	}
	if l := b.load(l.ID); len(l.History) != 1 || l.Turn != 1 || len(l.Open) != 1 {
		t.Errorf("after refused commits: %d entries, turn %d, %d open", len(l.History), l.Turn, len(l.Open))
	}
	same(t, "events in the outbox", 1, b.count("SELECT count(*) FROM outbox"))
}

func TestWhatArrivesBeforeParkingKeepsItRunning(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	if done := b.commit(b.parking(l, waitFor(0, "x", nil))); done.State != execution.Parked {
		t.Fatal("state", done.State)
	}
	same(t, "matched", 1, b.receive(1, "a", "x", "{}"))
	same(t, "claimed", []int64{l.ID}, b.claim(b.lease))
	l = b.load(l.ID)
	b.receive(1, "b", "y", "{}")
	c := b.parking(l, waitFor(1, "y", nil)) // its event is stored already, but the run does not know
	if done := b.commit(c); done.State != execution.Running {
		t.Fatal("parked beside its event: state", done.State)
	}
	same(t, "found with the commit", []string{"0.0 a", "1.0 b"}, b.arrivals(l.ID))
	same(t, "claimed", []int64{l.ID}, b.claim(b.lease))
	l = b.load(l.ID)
	if _, err := b.Cancel(t.Context(), 1, "none", "", b.clock.Now()); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	l.Wakes-- // as if something had come after loading
	if done := b.commit(b.parking(l)); done.State != execution.Running {
		t.Error("parked over an arrival: state", done.State)
	}
}

// R4-26: when a pause began and ends is stored with the turn that began it, and the timer fires for any process that looks then.
func TestTimers(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	b.commit(b.parking(l,
		history.Op{Ref: history.OpRef{Branch: 0}, Kind: history.KindSleep, Timeout: time.Minute},
		history.Op{Ref: history.OpRef{Branch: 1}, Kind: history.KindSleep, Timeout: time.Hour},
	))
	fire := func(want int, wantNext time.Duration) {
		t.Helper()
		fired, next, err := b.FireTimers(t.Context(), b.clock.Now(), 10)
		if err != nil || fired != want || !next.Equal(b.clock.Now().Add(wantNext)) {
			t.Errorf("fired %d, next %s, error %v", fired, next, err)
		}
	}
	fire(0, time.Minute)
	same(t, "claimed", []int64(nil), b.claim(b.lease))
	b.clock.Advance(time.Minute)
	fire(1, 59*time.Minute)
	fire(0, 59*time.Minute)
	same(t, "claimed", []int64{l.ID}, b.claim(b.lease))
	same(t, "arrived", []string{"0.0 timer"}, b.arrivals(l.ID))
	l = b.load(l.ID)
	c := b.parking(l)
	c.Closed = []history.OpRef{{Branch: 0}}
	b.commit(c)
	same(t, "open", []engine.Opened{{Op: history.OpRef{Branch: 1}, Deadline: b.clock.Now().Add(59 * time.Minute)}}, b.load(l.ID).Open)
}

func TestCancelRemovesEverything(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	l := b.startRun(1)
	b.commit(b.parking(l,
		history.Op{Ref: history.OpRef{Branch: 0}, Kind: history.KindSleep, Timeout: time.Minute}, waitFor(1, "x", history.Filter{"a": "1"}),
		history.Op{Ref: history.OpRef{Branch: 2}, Kind: history.KindRun, Name: "k8s.get", Args: []byte("{}"), Timeout: time.Minute},
	))
	waiting, err := b.Waiting(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	var sentences []string
	for _, w := range waiting {
		sentences = append(sentences, w.Sentence())
	}
	same(t, "sentences", []string{
		"sleeps until 2026-03-25T10:01:00Z",
		"waits for event x with a=1, at the longest until 2026-03-25T11:00:00Z",
		"waits for function k8s.get on agent 7 (sent 0 times), at the longest until 2026-03-25T10:01:00Z",
	}, sentences)
	for _, want := range []bool{true, false} {
		if got, err := b.Cancel(t.Context(), 1, l.Workflow, "why not", b.clock.Now()); err != nil || got != want {
			t.Errorf("cancelled %t, error %v", got, err)
		}
	}
	e, err := b.Get(t.Context(), 1, l.Workflow)
	if err != nil || e.State != execution.Cancelled || e.Error != "why not" || e.EndedAt.IsZero() {
		t.Errorf("%+v, error %v", e, err)
	}
	for _, table := range []string{"timer", "wait", "call"} {
		same(t, "rows of "+table+" that are left", 0, b.count("SELECT count(*) FROM "+table))
	}
	if _, err := b.Commit(t.Context(), b.parking(l)); !errors.Is(err, engine.ErrFenced) {
		t.Error("a turn after the cancellation:", err)
	}
	if _, err := b.Load(t.Context(), l.ID); !errors.Is(err, engine.ErrFenced) {
		t.Error("loaded after the cancellation:", err)
	}
}
