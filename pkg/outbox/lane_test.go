package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// addOf adds events of runs, each in its own transaction; an event is RUN/NUMBER.
func (s *stage) addOf(events ...string) {
	s.t.Helper()
	for _, name := range events {
		run, _, _ := strings.Cut(name, "/")
		e := sealed(startedBy(run, name))
		s.must(pg.InTx(s.t.Context(), s.from, func(tx pgx.Tx) error { return outbox.AddNumbered(s.t.Context(), tx, e...) }))
	}
}

// ofRun are those of some events that are of a run.
func ofRun(run string, events []string) (of []string) {
	for _, name := range events {
		if strings.HasPrefix(name, run+"/") {
			of = append(of, name)
		}
	}
	return of
}

// runsOfLanes are runs, one of each lane, in the order of the lanes.
func runsOfLanes() []string {
	runs := make([]string, outbox.Lanes)
	for n, found := 1, 0; found < len(runs); n++ {
		run := id.RolloutRun(int64(n))
		if lane := outbox.LaneOf(sealed(startedBy(run, "x"))[0]); runs[lane] == "" {
			runs[lane], found = run, found+1
		}
	}
	return runs
}

// What is about the same rows is in one lane: a run, its children and theirs, and the run that stops what a cancelled rollout left behind.
// The database finds the same lane as this code, for what the release before adds (D65).
func TestARunAndItsChildrenShareALane(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lanes := map[int16]bool{}
	for _, run := range []string{
		"rollout-7", "rollout-8", "rollout-9", "rollout-10", "rollout-11", "rollout-12", "rollout-13", "setup-1-1", "nightly/eu/3", "",
		"é\U0001F680",
		strings.Repeat("long", 50), strings.Repeat("ü", 170), "child:1:", "a-cancelled-cancelled", "child:0:x",
	} {
		family := []string{run}
		if run != "" && !id.IsChildRun(run) {
			child, err := id.ChildRun(run, "key", "eu")
			s.must(err)
			grandchild, err := id.ChildRun(child, "key", "")
			s.must(err)
			family = append(family, child, grandchild, id.Observer(run, "key"), id.Observer(child, "key"))
		}
		if strings.HasPrefix(run, "rollout-") {
			family = append(family, run+"-cancelled")
		}
		first := sealed(startedBy(run, "e"))[0]
		lanes[outbox.LaneOf(first)] = true
		for _, one := range family {
			e := sealed(startedBy(one, "e"))[0]
			same(t, "lane of "+one, outbox.LaneOf(e), outbox.LaneOf(first))
			var stored int16
			s.must(s.from.QueryRow(t.Context(), `SELECT outbox_lane_of($1::json)`, string(e.JSON())).Scan(&stored))
			same(t, "lane of "+one+" in the database", stored, outbox.LaneOf(e))
			restored, err := event.Restore(e.JSON())
			s.must(err)
			same(t, "lane of "+one+" as it is read", outbox.LaneOf(restored), outbox.LaneOf(e))
		}
	}
	if len(lanes) < outbox.Lanes/2 {
		t.Errorf("the runs are in %d lanes", len(lanes))
	}
}

// What holds up one lane holds up no other (D65).
func TestALaneWaitsForNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	s.addOf(runs[0]+"/1", runs[1]+"/1", runs[0]+"/2", runs[1]+"/2")
	s.sender.Have(1)
	_, err := s.sender.OneRoundOf(t.Context())
	s.must(err)
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{runs[1] + "/1", runs[1] + "/2"})
	same(t, "positions", positions(t, messages), []int{1, 2})
	s.deliver(messages...)
	s.must(s.inbox.Flush(t.Context()))
	_, err = s.sender.OneRoundOf(t.Context())
	s.must(err)
	same(t, "held", s.held(), []string{runs[0] + "/1", runs[0] + "/2"})
	s.confirm() // a sender that has all lanes
	s.deliver(s.stream.take()...)
	s.confirm()
	same(t, "held in the end", s.held(), []string{})
}

// A transaction that adds to some lanes holds up nobody who adds to others, and who adds to the same leaves the places to the sender.
func TestTransactionsShareTheLanes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
		s.must(outbox.AddNew(t.Context(), tx, sealed(startedBy(runs[2], runs[2]+"/1"), startedBy(runs[3], runs[3]+"/1"))...))
		s.addOf(runs[3]+"/2", runs[4]+"/1") // in the meantime
		return nil
	}))
	rows, err := s.from.Query(t.Context(), `SELECT event_id || ' ' || coalesce(place::text, '-') FROM outbox ORDER BY 1`)
	s.must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	want := []string{runs[2] + "/1 1", runs[3] + "/1 1", runs[3] + "/2 -", runs[4] + "/1 1"}
	slices.Sort(want)
	same(t, "places", got, want)
	s.round()
	same(t, "of the lane that was held", ofRun(runs[3], ids(s.stream.take())), []string{runs[3] + "/1", runs[3] + "/2"})
}

// owners are how many lanes each sender's session has.
func (s *stage) owners() map[int]int {
	rows, err := s.from.Query(s.t.Context(), `SELECT a.pid, count(*) FILTER (WHERE l.mode = 'ExclusiveLock')
		FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND a.application_name = current_setting('application_name') GROUP BY a.pid`)
	s.must(err)
	owners := map[int]int{}
	var pid, lanes int
	_, err = pgx.ForEachRow(rows, []any{&pid, &lanes}, func() error { owners[pid] = lanes; return nil })
	s.must(err)
	return owners
}

// shares are how many lanes the senders have, fewest first.
func (s *stage) shares() []int {
	var shares []int
	for _, lanes := range s.owners() {
		shares = append(shares, lanes)
	}
	slices.Sort(shares)
	return shares
}

// meeting is a bus that takes nothing before several senders publish at once.
type meeting struct {
	*stream
	guests int

	mu     sync.Mutex
	inside map[string]bool // what the senders have come with
	met    chan struct{}
}

func (m *meeting) PublishAll(ctx context.Context, events []event.Sealed, msgIDs []string) []error {
	m.mu.Lock()
	if m.inside[msgIDs[0]] = true; len(m.inside) == m.guests {
		close(m.met)
	}
	m.mu.Unlock()
	select {
	case <-m.met:
	case <-ctx.Done():
		return []error{ctx.Err()}
	}
	return m.stream.PublishAll(ctx, events, msgIDs)
}

// Replicas publish at the same time, each in lanes of its own: what limits one of them, another adds to (D65).
func TestReplicasPublishAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const replicas = 3
	bus := &meeting{stream: s.stream, guests: replicas, inside: map[string]bool{}, met: make(chan struct{})}
	s.runningOn(bus, replicas)
	wait.For(t, "the lanes are shared", func() bool { return slices.Equal(s.shares(), []int{2, 3, 3}) })
	var want []string
	for _, run := range runsOfLanes() {
		want = append(want, run+"/1", run+"/2")
	}
	s.addOf(want...)
	wait.For(t, "all have published", func() bool { return s.stream.stored() == len(want) })
	got := ids(s.stream.take())
	for _, run := range runsOfLanes() {
		same(t, "events of "+run, ofRun(run, got), []string{run + "/1", run + "/2"})
	}
}

// Lanes follow the replicas that there are: all of them are sent when one comes, when one goes, and when one is killed (D65).
func TestLanesFollowTheReplicas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	var want []string
	next := func(what string, shares ...int) {
		t.Helper()
		wait.For(t, what, func() bool { return slices.Equal(s.shares(), shares) })
		for _, run := range runs {
			want = append(want, fmt.Sprintf("%s/%d", run, len(want)))
		}
		s.addOf(want[len(want)-len(runs):]...)
		wait.For(t, what+": all is published", func() bool { return s.stream.stored() == len(want) })
	}
	first := s.running(1)[0]
	next("one sends all", 8)
	s.running(2)
	next("three share", 2, 3, 3)
	first()
	next("two share", 4, 4)
	for pid := range s.owners() {
		_, err := s.to.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid) // it joins again
		s.must(err)
		break
	}
	next("two share again", 4, 4)
	s.running(8)
	next("more than there are lanes", 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
	got := ids(s.stream.take())
	for _, run := range runs {
		same(t, "events of "+run, ofRun(run, got), ofRun(run, want))
	}
}

// Several processes send, and are killed anywhere, again and again: each event of each run arrives once, and in its order (D44, D65).
func TestKilledSendersOfLanesLoseNothing(t *testing.T) {
	t.Parallel()
	s := newOverNATS(t)
	runs := runsOfLanes()
	var want []string
	for round := range 3 {
		var all []event.Event
		for n := range 400 {
			run := runs[rand.IntN(len(runs))] //nolint:gosec // a test
			name := fmt.Sprintf("%s/%d", run, 1000*round+n)
			want, all = append(want, name), append(all, startedBy(run, name))
		}
		s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, sealed(all...)...) }))
		seen := len(s.arrived())
		one, other := s.child(), s.child()
		wait.For(t, "the children send", func() bool { return len(s.arrived()) > seen+20*round })
		s.must(one.Process.Kill())
		_ = one.Wait()
		wait.For(t, "the other has taken over, or all was sent", func() bool {
			return slices.Equal(s.shares(), []int{outbox.Lanes})
		})
		s.must(other.Process.Kill())
		_ = other.Wait()
	}
	s.run(s.connected(time.Minute).Run)
	s.run(s.connected(time.Minute).Run)
	wait.For(t, "everything is confirmed", func() bool { return len(s.held()) == 0 })
	got := s.arrived()
	same(t, "events that arrived", len(got), len(want))
	for _, run := range runs {
		same(t, "events of "+run, ofRun(run, got), ofRun(run, want))
	}
}
