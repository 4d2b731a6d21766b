package outbox_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// What one lane, one event or one replica suffers stops no other lane (D65).

// A transaction that has a lane for long holds up what is to get a place in it, and nothing else.
func TestALaneThatATransactionHasStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	s.running(1)
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
		s.must(outbox.AddNew(t.Context(), tx, sealed(startedBy(runs[2], runs[2]+"/1"))...))
		s.addOf(runs[2]+"/2", runs[4]+"/1", runs[5]+"/1")
		s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
			return outbox.Add(t.Context(), tx, sealed(startedBy(runs[4], runs[4]+"/2"))...) // waits for its place, too
		}))
		wait.For(t, "the other lanes are sent", func() bool { return s.stream.stored() == 3 })
		return nil
	}))
	wait.For(t, "all are sent", func() bool { return s.stream.stored() == 5 })
	got := ids(s.stream.take())
	same(t, "lane 2", ofRun(runs[2], got), []string{runs[2] + "/1", runs[2] + "/2"})
	same(t, "lane 4", ofRun(runs[4], got), []string{runs[4] + "/1", runs[4] + "/2"})
}

// An event that the bus does not take at the moment, as one of a stream that is missing or full, holds up what comes after it in its lane.
func TestAnEventThatIsNotTakenStopsNoOtherLane(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	full := true
	s.stream.before = func(e event.Event) error {
		if full && e.ID() == runs[0]+"/1" {
			return errors.New("503 no responders")
		}
		return nil
	}
	s.addOf(runs[0]+"/1", runs[4]+"/1", runs[0]+"/2", runs[5]+"/1")
	s.round()
	s.addOf(runs[4]+"/2", runs[6]+"/1")
	s.round()
	same(t, "while it is not taken", ids(s.stream.take()), []string{runs[4] + "/1", runs[5] + "/1", runs[4] + "/2", runs[6] + "/1"})
	_, err := s.from.Exec(t.Context(), `UPDATE outbox SET added_at = added_at - '2 minutes'::interval`)
	s.must(err)
	s.must(testutil.CollectAndCompare(outbox.Metrics(s.from), strings.NewReader(`
# HELP lockstep_outbox_waiting_lanes Lanes of the outbox in which an event has waited for a minute to be sent at all.
# TYPE lockstep_outbox_waiting_lanes gauge
lockstep_outbox_waiting_lanes 1
`), "lockstep_outbox_waiting_lanes"))
	full = false
	s.clock.Advance(time.Second)
	s.round()
	same(t, "once it is", ids(s.stream.take()), []string{runs[0] + "/1", runs[0] + "/2"})
}

// Calls to a cluster have no place: where they are not taken, what has one is, and a round tries no more than two.
func TestAStreamThatIsAwayStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	runs := runsOfLanes()
	tries := 0
	s.stream.before = func(e event.Event) error {
		if e.Type() == event.TypeFunctionCalled {
			tries++
			return errors.New("503 no responders")
		}
		return nil
	}
	for _, run := range runs {
		call, err := event.New(event.Header{ID: "call-" + run, Source: "/services/workflow", Organization: 1, Correlation: run, Time: time.Unix(0, 0)},
			event.FunctionCalled{
				AgentID: 42, CallID: "1/7", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1, Deadline: "2026-03-25T10:05:00Z",
			})
		s.must(err)
		s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, sealed(call)...) }))
		s.addOf(run + "/1")
	}
	s.round()
	same(t, "tries", tries, 2)
	same(t, "sent", s.stream.stored(), len(runs))
	s.stream.take()
	s.stream.before = nil
	s.clock.Advance(time.Second)
	s.round()
	same(t, "calls that are sent", s.stream.stored(), len(runs))
}

// A replica that reaches the database and not the bus leaves its lanes to those who reach both, and comes back.
func TestAReplicaWithoutABusLeavesItsLanes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other := newStream()
	s.running(1)
	s.runningOn(other, 1)
	wait.For(t, "they share", func() bool { return slices.Equal(s.shares(), []int{4, 4}) })
	set := func(away bool) {
		other.mu.Lock()
		defer other.mu.Unlock()
		other.away = away
	}
	set(true)
	wait.For(t, "it leaves", func() bool { return slices.Equal(s.shares(), []int{8}) })
	for _, run := range runsOfLanes() {
		s.addOf(run + "/1")
	}
	wait.For(t, "all is sent", func() bool { return s.stream.stored() == 8 })
	set(false)
	wait.For(t, "it is back", func() bool { return slices.Equal(s.shares(), []int{4, 4}) })
}

// Two senders that believe to have a lane: while one begins a new sequence, the other is about to store a receipt of the sequence before.
// What the new sequence holds at these places has not come to anybody.
func TestAReceiptOfAnEarlierSequenceDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	run := runsOfLanes()[3]
	s.addOf(run+"/1", run+"/2")
	var epoch string
	s.must(s.from.QueryRow(t.Context(), `SELECT epoch FROM outbox_lane WHERE lane = 3`).Scan(&epoch))
	s.sender.HaveAll()
	payload, err := json.Marshal(map[string]any{"sender": "workflow", "receiver": "domain", "epoch": epoch, "mark": 2})
	s.must(err)
	s.sender.Take(payload)
	tx, err := s.from.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), `SELECT FROM outbox_lane WHERE lane = 3 FOR UPDATE`)
	s.must(err)
	done := make(chan error, 1)
	go func() {
		_, err := s.sender.OneRoundOf(context.WithoutCancel(t.Context()))
		done <- err
	}()
	wait.For(t, "the other waits with its receipt", func() (waits bool) {
		s.must(s.to.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock')`,
			s.from.Config().ConnConfig.RuntimeParams["application_name"]).Scan(&waits))
		return waits
	})
	for _, sql := range []string{
		`UPDATE outbox_lane SET epoch = 'new', place = 2 WHERE lane = 3`,
		`UPDATE outbox_mark SET mark = 0 WHERE lane = 3`,
		`UPDATE outbox SET place = CASE event_id WHEN '` + run + `/1' THEN 1 ELSE 2 END WHERE lane = 3`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		s.must(err)
	}
	s.must(tx.Commit(t.Context()))
	s.must(<-done)
	same(t, "held", s.held(), []string{run + "/1", run + "/2"})
	same(t, "marks", ask(t, s.from, `SELECT mark::text FROM outbox_mark WHERE mark > 0`), []string{})
}

// pooler is an address at which the database answers as behind a pooler in session mode, which makes up the process that it says the
// session has.
func (s *stage) pooler(process uint32) string {
	s.t.Helper()
	c := s.from.Config().ConnConfig
	network, server := pgConnAddress(c)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	var all sync.WaitGroup
	s.t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			database, err := net.Dial(network, server)
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(database, client); _ = database.Close() })
			all.Go(func() { defer func() { _ = client.Close() }(); renamed(client, database, process) })
		}
	})
	return listener.Addr().String()
}

// pgConnAddress is where a database listens.
func pgConnAddress(c *pgx.ConnConfig) (network, address string) {
	if c.Host[0] == '/' {
		return "unix", fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	}
	return "tcp", net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
}

// renamed passes on what the database says, with another process in its BackendKeyData.
func renamed(client io.Writer, database io.Reader, process uint32) {
	for kind := byte(0); kind != 'Z'; { // ReadyForQuery
		head := make([]byte, 5)
		if _, err := io.ReadFull(database, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(database, body); err != nil {
			return
		}
		if kind = head[0]; kind == 'K' {
			binary.BigEndian.PutUint32(body, process)
		}
		if _, err := client.Write(append(head, body...)); err != nil {
			return
		}
	}
	_, _ = io.Copy(client, database)
}

// Behind a pooler in session mode, which has numbers of its own for its sessions, replicas share the lanes as without one.
func TestSendersBehindAPoolerShareTheLanes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, process := range []uint32{1, 0xf0000000} {
		through := s.sending
		u, err := url.Parse(through.URL)
		s.must(err)
		q := u.Query()
		q.Set("sslmode", "disable")
		q.Del("host")
		q.Del("port")
		u.Host, u.RawQuery = s.pooler(process), q.Encode()
		through.URL = u.String()
		pool, err := pg.Open(t.Context(), through)
		s.must(err)
		t.Cleanup(pool.Close)
		s.runningThrough(pool)
	}
	wait.For(t, "they share", func() bool { return slices.Equal(s.shares(), []int{4, 4}) })
	for _, run := range runsOfLanes() {
		s.addOf(run + "/1")
	}
	wait.For(t, "all is sent", func() bool { return s.stream.stored() == 8 })
}

// runningThrough starts a sender whose database is reached through a pool.
func (s *stage) runningThrough(pool *pgxpool.Pool) {
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: pool, Bus: s.stream, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Name: "workflow", Receivers: []string{"domain"},
		ResendAfter: time.Hour,
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- sender.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); s.must(<-done) })
}

// However senders come, go and look, in whatever order, they soon have as many lanes each, or one more; nobody gives up one that it may
// keep, and one that the others do not see gets none.
func TestSharesAreEvenAndMoveLittle(t *testing.T) {
	t.Parallel()
	has := map[int32][]int16{}
	for step := range 500 {
		switch process := rand.Int32N(12); { //nolint:gosec // a test
		case has[process] != nil && len(has) > 1:
			delete(has, process)
		case has[process] == nil:
			has[process] = []int16{}
		}
		before, moved := 0, 0
		for _, lanes := range has {
			before += len(lanes)
		}
		for looks := 0; !even(has); looks++ {
			if looks > 100 {
				t.Fatalf("step %d: the shares stay uneven: %v", step, has)
			}
			for process := range has { // in any order
				leave, take, ok := outbox.Shares(has, process)
				if !ok {
					t.Fatalf("sender %d is not among %v", process, has)
				}
				moved += len(leave)
				has[process] = append(slices.DeleteFunc(has[process], func(l int16) bool { return slices.Contains(leave, l) }), take...)
			}
		}
		if most := outbox.Lanes/len(has) + 1; moved > most {
			t.Errorf("step %d: %d of %d lanes were given up for %d senders", step, moved, before, len(has))
		}
	}
	if _, _, ok := outbox.Shares(has, 99); ok {
		t.Error("one that is not among the senders has a share")
	}
}

// even reports whether all lanes are shared evenly, each by one.
func even(has map[int32][]int16) bool {
	seen := map[int16]bool{}
	for _, lanes := range has {
		if n := outbox.Lanes / len(has); len(lanes) < n || len(lanes) > n+1 {
			return false
		}
		for _, lane := range lanes {
			if seen[lane] {
				return false
			}
			seen[lane] = true
		}
	}
	return len(seen) == outbox.Lanes
}

// What a lane has that the bus does not take, however much, costs the sender of another lane nothing: no plan walks it.
func TestNoQuestionWalksTheEventsOfAnotherLane(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.from.Exec(t.Context(), `INSERT INTO outbox (source, event_id, event, receipted, lane)
		SELECT 's', 'e' || n, '{}', false, 0 FROM generate_series(1, 20000) n`)
	s.must(err)
	_, err = s.from.Exec(t.Context(), `ANALYZE outbox`)
	s.must(err)
	s.addOf(runsOfLanes()[1] + "/1")
	text, err := s.sender.ExplainFresh(t.Context(), 1)
	s.must(err)
	for _, found := range regexp.MustCompile(`Rows Removed by Filter: (\d+)|shared hit=(\d+)`).FindAllStringSubmatch(text, -1) {
		if n, _ := strconv.Atoi(found[1] + found[2]); n > 100 {
			t.Errorf("%s:\n%s", found[0], text)
			break
		}
	}
}
