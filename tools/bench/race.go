package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// raceProgram asks for events at a moment that the sender of them can foresee: it begins with the commit of an event that the whole cohort
// has long waited for. Each of these waits is one half of a pair. The event before that one has the runs in the memory of the process that
// gets both, so that the moment is as far from its beginning each time.
const raceProgram = `
def one(round, place):
    wait_for_event("com.example.race", filter = {"cohort": cohort, "round": round, "place": place}, timeout = 60)

for round in range(rounds):
    wait_for_event("com.example.steady", filter = {"cohort": cohort, "round": round})
    wait_for_event("com.example.ready", filter = {"cohort": cohort, "round": round})
    gather([spawn(one, round, place) for place in range(places)])
`

const (
	// raceRuns is how many runs ask at one moment, racePlaces for how many events each, one through either process: of two that one process
	// gets within a millisecond the second has to wait for the commit of the first. raceRounds is how many moments a cohort has.
	raceRuns, racePlaces, raceRounds = 16, 2, 5
	// racePairs is how many pairs have one moment.
	racePairs = raceRuns * racePlaces
	// raceAhead is by how many moments a cohort is made steady before its own, and is learned from behind it.
	raceAhead = 2
	// raceSpread is how far apart the moments are at most for which events are meant, and raceShift by how much their middle is behind the
	// wait: one that comes to the wait's own process a little later has to let its commit pass.
	raceSpread, raceShift = time.Millisecond, -300 * time.Microsecond
	// naiveClients is how many pairs of the naive version are under way at a time.
	naiveClients = 6
	// raceSeed decides when each event is sent.
	raceSeed = 6
)

// meetings are by how many microseconds the event of a pair went later into the store than its wait, as their rows say, whether it was
// committed after it, and whether one transaction has committed both: a row has the transaction that made it, and the wait that of the turn
// which recorded the event before it. The parameters are the runs' names, a round, or -1 for all, and the number of places.
const meetings = `SELECT substr(x.workflow, 6)::int, asked.round::int, place::int, (extract(epoch FROM e.received_at - asked.recorded_at) * 1000000)::bigint,
    pg_xact_commit_timestamp(e.xmin) > pg_xact_commit_timestamp(asked.xmin), e.xmin = asked.xmin
FROM workflow.execution x
CROSS JOIN LATERAL (
    SELECT n.xmin, n.recorded_at, row_number() OVER (ORDER BY n.op) / 2 - 1 AS round, row_number() OVER (ORDER BY n.op) % 2 = 0 AS ready
    FROM workflow.entry n WHERE n.execution = x.id AND n.branch = 0 AND n.kind = 'wait'
) AS asked
CROSS JOIN generate_series(0, $4::int - 1) AS place
JOIN workflow.event e ON e.organization = x.organization AND e.source = '/bench'
    AND e.event_id = 'race-' || substr(x.workflow, 6)::int / $5::int || '-' || asked.round || '-' || place
WHERE x.organization = $1 AND x.workflow = ANY ($2::text[]) AND asked.ready AND $3::bigint IN (-1, asked.round)`

// racing are pairs that are under way, through two processes of the service on one database.
type racing struct {
	*world

	pool      *pgxpool.Pool
	processes [2]autoflowv1.AutoFlowClient
	cohorts   int
	aim       *aim
}

// race is B6: events that become known within about a millisecond of the wait for them, on either side of it. Every run has to get
// every event. What an engine loses that stores its side, looks for the other and commits is measured beside it, on the same server.
func race(ctx context.Context, w *world, r *report) error {
	if err := w.timed(ctx); err != nil {
		return err
	}
	address, err := w.join(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, w.database.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	c := &racing{pool: pool, world: w, cohorts: max(2*raceAhead, w.scaled(100_000)/(racePairs*raceRounds)), aim: newAim(2 * time.Millisecond)}
	if c.processes[0], err = w.client(); err != nil {
		return err
	}
	if c.processes[1], err = w.clientOf(address); err != nil {
		return err
	}
	_, _, err = w.drive(ctx, 32, c.cohorts*raceRuns,
		func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			return 0, begin(ctx, client, raceName(i), raceProgram,
				fmt.Sprintf(`{"cohort": %d, "rounds": %d, "places": %d}`, i/raceRuns, raceRounds, racePlaces))
		})
	if err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	n := c.cohorts * raceRounds * racePairs
	for i := range raceAhead {
		if err := c.steady(ctx, i); err != nil {
			return err
		}
	}
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	_, took, err := w.drive(ctx, 1, n/racePairs, c.moment)
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
	m := row{
		Scenario: "event beside its wait", Engine: "lockstep", Clients: racePlaces, N: n, Unit: "pairs",
		PerSecond: float64(n) / took.Seconds(),
	}
	r.add(m.used(after.since(before), n))
	if err := c.raced(ctx, r, n); err != nil {
		return err
	}
	return c.naive(ctx, r, max(n/5, 1000))
}

// steady has the cohort of a moment wait for its beginning in the memory of the process that will get that.
func (c *racing) steady(ctx context.Context, moment int) error {
	p := paired(moment*racePairs, c.cohorts)
	if p.round >= raceRounds {
		return nil
	}
	return c.deliver(ctx, p.in(), "steady", p)
}

// moment has a cohort ask for its next events, and sends these when they are expected to meet the waits.
func (c *racing) moment(ctx context.Context, _ autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
	asked := paired(i*racePairs, c.cohorts)
	began, problems := now(), make([]error, racePlaces+1)
	var senders sync.WaitGroup
	senders.Go(func() { problems[racePlaces] = c.deliver(ctx, asked.in(), "ready", asked) })
	for place := range racePlaces {
		p := asked
		p.place = place
		wait := c.aim.after(pathOf(p.through(), p.in()), p.spread(c.cohorts))
		senders.Go(func() {
			if problems[place] = pause(ctx, wait-now().Sub(began)); problems[place] == nil {
				problems[place] = c.deliver(ctx, p.through(), "race", p)
			}
		})
	}
	senders.Wait()
	if err := errors.Join(problems...); err != nil {
		return 0, err
	}
	took := now().Sub(began)
	if err := c.learn(ctx, i-raceAhead); err != nil {
		return 0, err
	}
	return took, c.steady(ctx, i+raceAhead)
}

// learn has the aim learn from a moment that lies so far back that all of its waits are in the store: those that are stored first alone
// would suggest that the events come too late.
func (c *racing) learn(ctx context.Context, moment int) error {
	if moment < 0 {
		return nil
	}
	asked := paired(moment*racePairs, c.cohorts)
	names := make([]string, raceRuns)
	for member := range names {
		p := asked
		p.member = member
		names[member] = raceName(p.run())
	}
	var missed [racePaths][]time.Duration
	if err := c.meetings(ctx, names, asked.round, func(m met) {
		path := pathOf(m.through(), m.in())
		missed[path] = append(missed[path], m.later-m.spread(c.cohorts))
	}); err != nil {
		return err
	}
	for path, by := range missed {
		c.aim.learn(path, by)
	}
	return nil
}

// meetings calls fn with each pair of the runs with these names whose both sides have been committed, in one round or in all (-1).
func (c *racing) meetings(ctx context.Context, names []string, round int, fn func(met)) error {
	rows, err := c.pool.Query(ctx, meetings, organization, names, round, racePlaces, raceRuns)
	if err != nil {
		return err
	}
	var m met
	var run int
	var later int64
	_, err = pgx.ForEachRow(rows, []any{&run, &m.round, &m.place, &later, &m.second, &m.together}, func() error {
		m.cohort, m.member, m.later = run/raceRuns, run%raceRuns, time.Duration(later)*time.Microsecond
		fn(m)
		return nil
	})
	return err
}

func raceName(run int) string { return fmt.Sprintf("race-%d", run) }

// deliver sends an event of a pair, or of its moment, through a process.
func (c *racing) deliver(ctx context.Context, through int, what string, p pair) error {
	_, err := c.processes[through].CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
		`{"specversion":"1.0","id":"%s-%d-%d-%d","source":"/bench","type":"com.example.%s","organizationid":"%d","data":{"cohort":%d,"round":%d,"place":%d}}`,
		what, p.cohort, p.round, p.place, what, organization, p.cohort, p.round, p.place)})
	return err
}

// raced checks the outcome of n pairs: how many of the waits have received their events, and how these have met.
func (c *racing) raced(ctx context.Context, r *report, n int) error {
	var received int
	if err := c.pool.QueryRow(ctx, `SELECT count(DISTINCT (n.execution, n.event)) FROM workflow.entry n JOIN workflow.execution x ON x.id = n.execution JOIN workflow.event e ON e.id = n.event
WHERE x.organization = $1 AND x.state = 'completed' AND n.kind = 'wait' AND n.branch > 0 AND e.type = 'com.example.race'`,
		organization).Scan(&received); err != nil {
		return err
	}
	names := make([]string, c.cohorts*raceRuns)
	for run := range names {
		names[run] = raceName(run)
	}
	var t tally
	if err := c.meetings(ctx, names, -1, t.add); err != nil {
		return err
	}
	note := t.note(n, received)
	r.add(row{Scenario: "event beside its wait, lost", Engine: "lockstep", N: n, Unit: "pairs", Note: note})
	if received != n || t.stored() != n || t.first == 0 || t.second == 0 {
		return fmt.Errorf("race of %d pairs, %d of them in the store: %s", n, t.stored(), note)
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
	apart := func(i int) time.Duration {
		return paired(i*raceRuns, c.cohorts).spread(c.cohorts) - raceShift
	}
	var lost atomic.Int64
	m := row{Scenario: "event beside its wait", Engine: "naive", Clients: naiveClients, N: n, Unit: "pairs"}
	err := measured(ctx, c.world, r, m, func(ctx context.Context, _ autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		began, waiting := now(), make(chan saw, 1)
		go func() {
			waiting <- side(ctx, -apart(i), "INSERT INTO naive_wait VALUES ($1)", "SELECT EXISTS (SELECT FROM naive_event WHERE pair = $1)", i)
		}()
		event := side(ctx, apart(i), "INSERT INTO naive_event VALUES ($1)", "SELECT EXISTS (SELECT FROM naive_wait WHERE pair = $1)", i)
		wait := <-waiting
		if !event.other && !wait.other {
			lost.Add(1)
		}
		return now().Sub(began), errors.Join(event.err, wait.err)
	})
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d lost, %.0f%%: each side stores itself, looks for the other and commits", lost.Load(),
		100*float64(lost.Load())/float64(n))
	r.add(row{Scenario: "event beside its wait, lost", Engine: "naive", N: n, Unit: "pairs", Note: note})
	if lost.Load() == 0 {
		return fmt.Errorf("%d pairs of the naive version: none was lost, so their moments are no race", n)
	}
	return nil
}
