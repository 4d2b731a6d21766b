package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// raceProgram asks for many events at one moment, which the sender of them can foresee: it begins with the commit of an event that the
// run has long waited for. Each of these waits is one half of a pair.
const raceProgram = `
def one(round, place):
    wait_for_event("com.example.race", filter = {"run": number, "round": round, "place": place}, timeout = 60)

for round in range(rounds):
    wait_for_event("com.example.ready", filter = {"run": number, "round": round})
    gather([spawn(one, round, place) for place in range(width)])
`

const (
	// raceWidth is how many pairs have one moment, raceRounds how many moments a run has, and raceClients how many moments are there at
	// a time: with more, events queue, and come later than they were sent.
	raceWidth, raceRounds, raceClients = 32, 5, 2
	// raceSpread is how far from the moment of the wait an event is to be sent, on either side.
	raceSpread = time.Millisecond
	// naiveClients is how many pairs of the naive version are under way at a time.
	naiveClients = 6
	// raceStep is which part of itself is added to the time in which the moment is expected, or taken from it.
	raceStep = 8
	// raceSeed decides when each event is sent.
	raceSeed = 6
)

// spread is by how much the event of a pair is to be sent later than the moment of its wait.
func spread(pair int) time.Duration {
	chance := rand.New(rand.NewPCG(raceSeed, uint64(pair))) //nolint:gosec // the same moments in every run
	return time.Duration(chance.Int64N(2*int64(raceSpread))) - raceSpread
}

// moments are when runs have asked for the events of a round: when their turns were made whose entries are the events before.
const moments = `SELECT substr(x.workflow, 6)::int, n.recorded_at FROM workflow.entry n JOIN workflow.execution x ON x.id = n.execution
WHERE x.organization = $1 AND n.kind = 'wait' AND n.branch = 0`

// racing are pairs that are under way, through two processes of the service on one database.
type racing struct {
	*world

	pool      *pgxpool.Pool
	processes [2]autoflowv1.AutoFlowClient
	runs      int
	// foreseen is how long after a first event was sent its run asks for the others, in nanoseconds.
	foreseen atomic.Int64
	// sent is when the event of each pair was sent, and first whether it was stored before its wait, as far as its sender was told.
	sent  []time.Time
	first []bool
}

// race is B6: events that become known within about a millisecond of the wait for them, on either side of it. Every run has to get
// every event. What an engine loses that stores its side, looks for the other and commits is measured beside it, with the same
// moments on the same server.
func race(ctx context.Context, w *world, r *report) error {
	address, err := w.join(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, w.database.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	c := &racing{pool: pool, world: w, runs: max(2*raceClients, w.scaled(100_000)/(raceWidth*raceRounds))}
	if c.processes[0], err = w.client(); err != nil {
		return err
	}
	if c.processes[1], err = w.clientOf(address); err != nil {
		return err
	}
	_, _, err = w.drive(ctx, 32, c.runs, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		return 0, begin(ctx, client, fmt.Sprintf("race-%d", i), raceProgram, fmt.Sprintf(`{"number": %d, "rounds": %d, "width": %d}`, i, raceRounds, raceWidth))
	})
	if err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	n := c.runs * raceRounds * raceWidth
	c.sent, c.first = make([]time.Time, n), make([]bool, n)
	c.foreseen.Store(int64(2 * time.Millisecond))
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	_, took, err := w.drive(ctx, raceClients, n/raceWidth, c.moment)
	if err != nil {
		return err
	}
	if err := w.ended(ctx); err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m := row{Scenario: "event beside its wait", Engine: "lockstep", Clients: raceClients * raceWidth, N: n, Unit: "pairs", PerSecond: float64(n) / took.Seconds()}
	r.add(m.used(after.since(before), n))
	if err := c.raced(ctx, r); err != nil {
		return err
	}
	return c.naive(ctx, r, max(n/5, 1000))
}

// moment has a run ask for its next events, and sends these: every second one at the moment that is foreseen from those before, the
// others when the run has just been told that it may ask, which is close to the moment also where its distance is uncertain.
func (c *racing) moment(ctx context.Context, _ autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
	run, round := i%c.runs, i/c.runs
	began, told := now(), make(chan struct{})
	problems := make([]error, raceWidth+1)
	var senders sync.WaitGroup
	senders.Go(func() {
		defer close(told)
		_, problems[raceWidth] = c.tell(ctx, c.processes[run%2], "ready", run, round, 0)
	})
	foreseen := time.Duration(c.foreseen.Load())
	for place := range raceWidth {
		senders.Go(func() {
			pair := i*raceWidth + place
			wait := foreseen + spread(pair)
			if place%2 == 1 {
				<-told
				wait = spread(pair)
			}
			if problems[place] = pause(ctx, max(0, wait)); problems[place] != nil {
				return
			}
			c.sent[pair] = now()
			// Half of either kind go to the process that the run is in, and half to the other.
			matched, err := c.tell(ctx, c.processes[place/2%2], "race", run, round, place)
			c.first[pair], problems[place] = matched == 0, err
		})
	}
	senders.Wait()
	if err := errors.Join(problems...); err != nil {
		return 0, err
	}
	took := now().Sub(began)
	var asked time.Time
	err := c.pool.QueryRow(ctx, moments+" AND x.workflow = $2 ORDER BY n.op OFFSET $3 LIMIT 1", organization, fmt.Sprintf("race-%d", run), round).Scan(nil, &asked)
	if errors.Is(err, pgx.ErrNoRows) {
		return took, nil // not committed yet: nothing to learn from it
	}
	if err != nil {
		return 0, err
	}
	step := int64(max(foreseen, raceSpread)) / raceStep
	if began.Add(foreseen).After(asked) {
		step = -step
	}
	c.foreseen.Add(step)
	return took, nil
}

// tell sends an event, and answers how many waits it has found.
func (c *racing) tell(ctx context.Context, to autoflowv1.AutoFlowClient, what string, run, round, place int) (int32, error) {
	resp, err := to.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
		`{"specversion":"1.0","id":"%s-%d-%d-%d","source":"/bench","type":"com.example.%s","organizationid":"%d","data":{"run":%d,"round":%d,"place":%d}}`,
		what, run, round, place, what, organization, run, round, place)})
	return resp.GetMatched(), err
}

// raced looks at what became of the pairs.
func (c *racing) raced(ctx context.Context, r *report) error {
	asked := make(map[int][]time.Time, c.runs)
	rows, err := c.pool.Query(ctx, moments+" ORDER BY x.id, n.op", organization)
	if err != nil {
		return err
	}
	var run int
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&run, &at}, func() error {
		asked[run] = append(asked[run], at)
		return nil
	}); err != nil {
		return err
	}
	// A row of the history has the transaction that made it: the one that stored the event, where both came together.
	rows, err = c.pool.Query(ctx, `SELECT substr(x.workflow, 6)::int, n.branch - 1, coalesce(e.xmin = asked.xmin, false)
FROM workflow.entry n JOIN workflow.execution x ON x.id = n.execution JOIN workflow.event e ON e.id = n.event
JOIN LATERAL (SELECT a.xmin FROM workflow.entry a WHERE a.execution = x.id AND a.branch = 0 AND a.kind = 'wait' ORDER BY a.op OFFSET (n.branch - 1) / $2 LIMIT 1) asked ON true
WHERE x.organization = $1 AND x.state = 2 AND n.kind = 'wait' AND n.branch > 0`, organization, raceWidth)
	if err != nil {
		return err
	}
	var got, early, together, before, after, near, branch int
	var one bool
	if _, err := pgx.ForEachRow(rows, []any{&run, &branch, &one}, func() error {
		got++
		round, place := branch/raceWidth, branch%raceWidth
		pair := (round*c.runs+run)*raceWidth + place
		offset := c.sent[pair].Sub(asked[run][round])
		switch {
		case offset.Abs() > raceSpread:
		case offset < 0:
			before++
		default:
			after++
		}
		if offset.Abs() <= 5*raceSpread {
			near++
		}
		switch {
		case one:
			together++
		case c.first[pair]:
			early++
		}
		return nil
	}); err != nil {
		return err
	}
	lost := len(c.sent) - got
	note := fmt.Sprintf("%d lost; stored before the wait %d, after it %d, in one transaction with it %d; sent at most 1 ms before the wait was asked for %d, at most 1 ms after that %d, within 5 ms of it %d",
		lost, early, got-early-together, together, before, after, near)
	r.add(row{Scenario: "event beside its wait, lost", Engine: "lockstep", N: len(c.sent), Unit: "pairs", Note: note})
	if lost > 0 || early == 0 || early == got {
		return fmt.Errorf("race of %d pairs: %s", len(c.sent), note)
	}
	return nil
}

// saw is what one side of a pair of the naive version has seen of the other.
type saw struct {
	other bool
	err   error
}

// naive races n pairs of the version that suggests itself: each side, in a transaction of its own, stores itself, looks for the other
// and commits. Where neither has seen the other the event is lost. It has to lose some, or the moments are no race.
func (c *racing) naive(ctx context.Context, r *report, n int) error {
	if _, err := c.pool.Exec(ctx, "CREATE TABLE naive_wait (pair integer PRIMARY KEY); CREATE TABLE naive_event (pair integer PRIMARY KEY)"); err != nil {
		return err
	}
	side := func(ctx context.Context, wait time.Duration, insert, look string, pair int) (s saw) {
		if s.err = pause(ctx, max(0, wait)); s.err != nil {
			return s
		}
		s.err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, pair); err != nil {
				return err
			}
			return tx.QueryRow(ctx, look, pair).Scan(&s.other)
		})
		return s
	}
	var lost atomic.Int64
	m := row{Scenario: "event beside its wait", Engine: "naive", Clients: naiveClients, N: n, Unit: "pairs"}
	err := measured(ctx, c.world, r, m, func(ctx context.Context, _ autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		began, waiting := now(), make(chan saw, 1)
		go func() {
			waiting <- side(ctx, -spread(i), "INSERT INTO naive_wait VALUES ($1)", "SELECT EXISTS (SELECT FROM naive_event WHERE pair = $1)", i)
		}()
		event := side(ctx, spread(i), "INSERT INTO naive_event VALUES ($1)", "SELECT EXISTS (SELECT FROM naive_wait WHERE pair = $1)", i)
		wait := <-waiting
		if !event.other && !wait.other {
			lost.Add(1)
		}
		return now().Sub(began), errors.Join(event.err, wait.err)
	})
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d lost, %.0f%%: each side stores itself, looks for the other and commits", lost.Load(), 100*float64(lost.Load())/float64(n))
	r.add(row{Scenario: "event beside its wait, lost", Engine: "naive", N: n, Unit: "pairs", Note: note})
	if lost.Load() == 0 {
		return fmt.Errorf("%d pairs of the naive version: none was lost, so their moments are no race", n)
	}
	return nil
}
