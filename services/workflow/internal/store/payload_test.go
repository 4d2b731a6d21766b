package store

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// large is JSON data of about n bytes that does not compress below half of that.
func large(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n/2)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return `{"blob":"` + hex.EncodeToString(b) + `","n":1}`
}

func (b *testStore) due() {
	b.t.Helper()
	if _, err := b.Due(b.t.Context(), engine.Round{Lease: b.lease, Now: b.clock.Now(), Soon: b.clock.Now()}); err != nil {
		b.t.Fatal(err)
	}
}

// startWith is startRun with inputs.
func (b *testStore) startWith(inputs string) engine.Loaded {
	b.t.Helper()
	n := b.start(1)
	n.Inputs = json.RawMessage(inputs)
	c, err := b.Create(b.t.Context(), n)
	if err != nil {
		b.t.Fatal(err)
	}
	b.claim(b.lease)
	return b.load(c.ID)
}

// TestAPayloadIsStoredOnce has 100 events, the inputs of 20 runs, and histories with one value of 1 MiB (issue 18, point 8).
func TestAPayloadIsStoredOnce(t *testing.T) {
	t.Parallel()
	b, data := newTestStore(t), large(t, 1<<20)
	waiting := b.startRun(1)
	b.commit(b.parking(waiting, waitFor(0, "x", nil)))
	b.receive(1, "e0", "x", data)
	var sends sync.WaitGroup
	for i := 1; i < 100; i++ {
		sends.Go(func() { b.receive(1, fmt.Sprintf("e%d", i), "x", data) })
	}
	sends.Wait()
	for range 20 {
		if l := b.startWith(data); string(l.Inputs) != data {
			t.Fatalf("a run was started with %d bytes and has %d", len(data), len(l.Inputs))
		}
	}
	l := b.load(waiting.ID)
	if got := string(l.Arrived[0].Value); !strings.Contains(got, data) {
		t.Fatalf("the event that arrived has %d bytes, expected the %d that were sent", len(got), len(data))
	}
	next := b.border(l, history.Entry{Op: history.OpRef{}, Kind: history.KindWait, Value: l.Arrived[0].Value, Event: l.Arrived[0].Event})
	next.Continue = json.RawMessage(`{"args":[` + data + `],"function":"again"}`)
	next.Closed = []history.OpRef{{}}
	b.commit(next)
	after := b.load(waiting.ID)
	same(t, "what the next generation is called with", string(next.Continue), string(after.Continuation))
	entries, err := b.History(t.Context(), waiting.ID, 0, 10)
	if err != nil || string(entries[0].Value) != string(l.Arrived[0].Value) {
		t.Errorf("the history has an event of %d bytes (%v), expected %d", len(entries[0].Value), err, len(l.Arrived[0].Value))
	}
	logged, err := b.Logs(t.Context(), control.LogQuery{Execution: waiting.ID, Limit: 10})
	if err != nil || len(logged) != 1 || string(logged[0].Value) != string(next.Entries[1].Value) {
		t.Errorf("the log has %d entries (%v), expected the continuation", len(logged), err)
	}
	same(t, "payloads", 1, b.count(`SELECT count(*) FROM payload`))
	// A transaction that was repeated has left a copy behind.
	if _, err := b.Pool.Exec(t.Context(), `VACUUM FULL payload`); err != nil {
		t.Fatal(err)
	}
	size := b.count(`SELECT sum(pg_total_relation_size(to_regclass(current_schema() || '.' || name)))::bigint
FROM unnest(ARRAY['event', 'entry', 'execution', 'generation', 'payload', 'payload_use', 'delivery']) AS name`)
	if size > 2<<20 {
		t.Errorf("122 uses of %d bytes take %d bytes, expected less than two copies", len(data), size)
	}
	if _, err := b.Create(t.Context(), b.start(1)); err != nil {
		t.Fatal(err)
	}
}

// TestAPayloadGoesWithItsLastUse deletes what refers to payloads, one after the other.
func TestAPayloadGoesWithItsLastUse(t *testing.T) {
	t.Parallel()
	b, data := newTestStore(t), large(t, 100<<10)
	b.receive(1, "e", "x", data)
	l := b.startRun(1)
	last := b.parking(l)
	last.Next, last.LastSeq = execution.Failed, 2
	last.Entries = []history.Entry{
		b.entry(1, history.OpRef{}, history.KindRun, data), b.entry(2, history.OpRef{Branch: -1}, history.KindFailed, "{}"),
	}
	b.commit(last)
	present := func(when string, want int) {
		t.Helper()
		if err := b.Forget(t.Context(), b.clock.Now()); err != nil {
			t.Fatal(err)
		}
		same(t, "payloads "+when, want, b.count(`SELECT count(*) FROM payload`))
	}
	present("with an event and an entry", 1)
	reset := control.ResetRequest{
		Organization: 1, Workflow: l.Workflow, New: "again", Ref: "again", To: 2, Labels: map[string]string{"a": "b"}, At: b.clock.Now(),
	}
	if _, err := b.Reset(t.Context(), reset); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Hour)
	present("without the event", 1)
	same(t, "events", 0, b.count(`SELECT count(*) FROM event`))
	if err := b.Retry(t.Context(), control.RetryRequest{Organization: 1, Workflow: l.Workflow, From: 1, At: b.clock.Now()}); err != nil {
		t.Fatal(err)
	}
	present("in the run that was reset only", 1)
	copied, err := b.Get(t.Context(), 1, "again")
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := b.History(t.Context(), copied.ID, 0, 10); err != nil || len(entries) != 1 || string(entries[0].Value) != data {
		t.Errorf("the run that was reset has %d entries, %v", len(entries), err)
	}
	if err := b.queries.DropEntryPayloads(t.Context(), query.DropEntryPayloadsParams{Execution: copied.ID, Seq: 1}); err != nil {
		t.Fatal(err)
	}
	present("that nothing refers to", 0)
}

// TestPayloadsAreDeletedWhileTheyAreStored has senders and a sweeper of one payload meet.
func TestPayloadsAreDeletedWhileTheyAreStored(t *testing.T) {
	t.Parallel()
	b, data := newTestStore(t), large(t, 70<<10)
	var work sync.WaitGroup
	for sender := range 4 {
		work.Go(func() {
			for i := range 25 {
				b.receive(1, fmt.Sprintf("%d-%d", sender, i), "x", data)
			}
		})
	}
	work.Go(func() {
		for range 25 {
			if err := b.Forget(t.Context(), b.clock.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
		}
	})
	work.Wait()
	missing := b.count(`SELECT count(*) FROM event e WHERE e.data::text LIKE '%lockstep.dev/payload%'
AND NOT EXISTS (SELECT FROM payload p JOIN payload_use u USING (organization, digest) WHERE u.holder = 'event' AND u.owner = e.id)`)
	same(t, "events without their payload", 0, missing)
}

// TestValuesStayInPlaceWhileAnOlderReleaseRuns: a process of the release before would take a reference for the value.
func TestValuesStayInPlaceWhileAnOlderReleaseRuns(t *testing.T) {
	t.Parallel()
	b, data := newTestStore(t), large(t, 100<<10)
	_, err := b.Pool.Exec(t.Context(), `INSERT INTO lease (instance, epoch, until) VALUES ('older', 3, $1)`, b.clock.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	b.acquire("another")
	b.receive(1, "at the start", "x", data)
	b.due()
	b.receive(1, "beside an older one", "x", data)
	same(t, "payloads", 0, b.count(`SELECT count(*) FROM payload`))
	b.clock.Advance(2 * time.Minute)
	b.due()
	b.receive(1, "alone", "x", data)
	same(t, "payloads", 1, b.count(`SELECT count(*) FROM payload`))
	inPlace := b.count(`SELECT count(*) FROM event WHERE length(data::text) = $1`, len(data))
	same(t, "values in their rows, as an earlier release has stored them", 2, inPlace)
	l := b.startRun(2)
	same(t, "inputs", `{"b": 1, "a": 2}`, string(l.Inputs))
}

// TestAMissingPayloadIsDamage: it is reported, and never taken for a value.
func TestAMissingPayloadIsDamage(t *testing.T) {
	t.Parallel()
	b, data := newTestStore(t), large(t, 100<<10)
	l, other := b.startWith(data), b.startRun(1)
	for _, sql := range []string{`DELETE FROM payload_use`, `DELETE FROM payload`} {
		if _, err := b.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Load(t.Context(), l.ID)
	if damaged, is := errors.AsType[*engine.Damaged](err); !is || !strings.Contains(damaged.What, "is missing") {
		t.Errorf("found %v, expected damage", err)
	}
	b.load(other.ID)
}

// TestLargeInputsOfARolloutAreGuarded: whether a run is exempt from passages is in its inputs (D46).
func TestLargeInputsOfARolloutAreGuarded(t *testing.T) {
	t.Parallel()
	for passages, exempt := range map[string]bool{"true": false, "false": true} {
		b := newTestStore(t)
		n := b.start(1)
		n.Workflow = "rollout-7"
		n.Inputs = json.RawMessage(`{"rollout":{"passages":` + passages + `,"application":{"id":5},"list":[` +
			strings.TrimSuffix(strings.Repeat(`"0123456789",`, 10_000), ",") + `],"more":[` + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") +
			`],"rest":[` + strings.TrimSuffix(strings.Repeat("2,", 20_000), ",") + `]}}`)
		if _, err := b.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		same(t, "payloads", 1, b.count(`SELECT count(*) FROM payload`))
		run, err := b.Guarded(t.Context(), 1, "rollout-7")
		if err != nil || run.Exempt != exempt || run.Application != 5 {
			t.Errorf("with passages %s: exempt %v, application %d, %v", passages, run.Exempt, run.Application, err)
		}
	}
}
