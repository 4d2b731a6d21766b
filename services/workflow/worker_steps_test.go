package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	declarations "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// doomedOffers is the store of workers' calls in a process that may die at a statement. Taking calls is one if there are any.
type doomedOffers struct {
	worker.Store
	pool *pgxpool.Pool
	life *doomed
	die  func()
	// extended is notified of each heartbeat that was stored.
	extended chan struct{}
}

func (s doomedOffers) do(what func() error) error {
	err := s.life.do(what)
	if errors.Is(err, errKilled) {
		s.die()
	}
	return err
}

func (s doomedOffers) SaveDeclarations(ctx context.Context, r worker.Registration) error {
	return s.do(func() error { return s.Store.SaveDeclarations(ctx, r) })
}

func (s doomedOffers) TakeOffers(ctx context.Context, t worker.Taking) (calls []worker.Call, err error) {
	var offered bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM call WHERE organization = $1 AND offer_at <= $2 AND deadline > $2)`, t.Organization, t.Now).Scan(&offered)
	if err != nil || !offered {
		return nil, err
	}
	err = s.do(func() (err error) { calls, err = s.Store.TakeOffers(ctx, t); return err })
	if err != nil {
		calls = nil
	}
	return calls, err
}

func (s doomedOffers) ExtendOffers(ctx context.Context, session string, ids []string, until time.Time) (lost []string, err error) {
	err = s.do(func() (err error) { lost, err = s.Store.ExtendOffers(ctx, session, ids, until); return err })
	select {
	case s.extended <- struct{}{}:
	default:
	}
	return lost, err
}

func (s doomedOffers) ReleaseOffers(ctx context.Context, session string, ids []string, now time.Time) error {
	return s.do(func() error { return s.Store.ReleaseOffers(ctx, session, ids, now) })
}

func (s doomedOffers) AnswerOffer(ctx context.Context, a worker.Answer) (accepted bool, err error) {
	err = s.do(func() (err error) { accepted, err = s.Store.AnswerOffer(ctx, a); return err })
	return accepted && err == nil, err
}

// shop is what workers act on. Whatever dies, it stays.
type shop struct {
	t     *testing.T
	pool  *pgxpool.Pool
	clock *clocktest.Clock
	// instance is the name of its processes.
	instance string

	mu sync.Mutex
	// effects are what was done, by the id of the call; attempts counts repeats, too.
	effects  map[string]int
	attempts int
	// once has what happens at the first attempt at a call alone.
	once map[string]bool
}

func (s *shop) effect(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.effects[id] == 0 {
		s.effects[id] = len(s.effects) + 1
	}
}

func (s *shop) number(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[id]
}

// first reports whether something is asked for the first time.
func (s *shop) first(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once[what] {
		return false
	}
	s.once[what] = true
	return true
}

const (
	heartbeatOfShop = 10 * time.Second
	// shopping has a call that is answered, one that fails at first, one whose worker drains, and one whose worker ends in order without
	// an answer.
	shopping = `print([run("shop.effect", {"n": n}) for n in range(1, 5)])`
)

func effects() []worker.Declaration {
	return []worker.Declaration{{Name: "shop.effect", Effect: "reads", Retry: true}}
}

// shopProcess is a life of the service, with one worker at a time.
type shopProcess struct {
	*shop
	hub      *worker.Hub
	offers   doomedOffers
	ctx      context.Context //nolint:containedctx // that of the process
	service  *control.Service
	sessions sync.WaitGroup
	stop     func()
}

func (s *shop) boot(life *doomed) *shopProcess {
	s.t.Helper()
	ctx, die := context.WithCancel(s.t.Context())
	log, wall := bustest.Log(s.t), shown{s.clock}
	var runner *engine.Engine
	kept := store.New(store.Deps{
		Pool: s.pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Woken: func(woken engine.Woken) { runner.Wake(woken) }, Clock: wall, Log: log,
	})
	p := &shopProcess{shop: s, ctx: ctx, offers: doomedOffers{kept, s.pool, life, die, make(chan struct{}, 1)}}
	catalogue := worker.NewCatalogue(p.offers, declarations.OfWorker, wall, log)
	registry, err := activity.NewFunctions()
	if err != nil {
		s.t.Fatal(err)
	}
	registry.Add(catalogue)
	p.hub = worker.NewHub(worker.Deps{
		Store: p.offers, Catalogue: catalogue, Heartbeat: heartbeatOfShop, Poll: 5 * time.Millisecond, Clock: wall, Log: log,
	})
	scripts := script.New(script.Limits{})
	runner = engine.New(engine.Deps{
		Store: kept, Scripts: scripts, Functions: registry, Agents: agent.NewRegistry(declared{organization: 1}, wall, log),
		Offered: p.hub.Offered, Room: p.hub.Room, CheckEmit: events.CheckEmit, Clock: wall, Log: log, Settings: engine.Settings{
			Instance: s.instance, Lease: time.Hour, Poll: 5 * time.Millisecond, CallTimeout: time.Hour, WaitTimeout: time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: 1000, Crashes: 100, Retention: time.Hour,
		},
	})
	p.service = control.NewService(kept, scripts, wall, runner)
	var parts sync.WaitGroup
	parts.Go(func() {
		_ = runner.Run(ctx, func() {})
		die() // what a process that was killed had sent to the database may come behind what its successor does, which is replaced then
	})
	p.stop = func() { die(); parts.Wait(); p.sessions.Wait() }
	return p
}

// work is a worker that dies as life says; closes is set if the service notices at once, because the connection breaks. It returns when
// the worker or the process is gone, or the worker has ended in order.
func (p *shopProcess) work(life *doomed, closes bool) {
	session, err := p.hub.Open(p.ctx, worker.Opening{
		Organization: 1, Prefix: "shop", Name: "worker", InFlight: 1,
		Functions: effects(),
	})
	if err != nil {
		return
	}
	gone, leave := context.WithCancel(p.ctx)
	defer leave()
	over := make(chan struct{})
	p.sessions.Go(func() {
		defer close(over)
		_ = session.Run(gone)
	})
	for {
		select {
		case m := <-session.Messages():
			ended := m.Drained
			if m.Call != nil {
				ended = p.carryOut(session, *m.Call, life)
			}
			if !ended {
				continue
			}
			leave()
			<-over
			if !life.dead || closes {
				session.Close(p.ctx)
			} else { // a worker that says nothing is given up after its time
				p.clock.Advance(heartbeatOfShop + time.Second)
			}
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// carryOut reports whether the worker ends.
func (p *shopProcess) carryOut(session *worker.Session, c worker.Call, life *doomed) (ended bool) {
	var args struct{ N int }
	if err := json.Unmarshal(c.Args, &args); err != nil {
		p.t.Error(err)
	}
	session.Heartbeat()
	select {
	case <-p.offers.extended:
	case <-p.ctx.Done():
		return true
	}
	switch {
	case args.N == 2 && p.first("busy"):
		busy := &history.FunctionError{Code: "busy", Message: "later", Retryable: true}
		return life.do(func() error { return session.Answer(p.ctx, c.ID, nil, busy) }) != nil
	case args.N == 3:
		session.Drain(p.ctx)
	case args.N == 4 && p.first("close"):
		return true
	}
	if life.do(func() error { p.effect(c.ID); return nil }) != nil {
		return true
	}
	value, _ := json.Marshal(p.number(c.ID)) // a number is JSON
	return life.do(func() error { return session.Answer(p.ctx, c.ID, value, nil) }) != nil
}

// shopOnce starts the run in a life of the service that dies as process says, with a worker that dies as of says, and lets others
// finish it.
func shopOnce(t *testing.T, pool *pgxpool.Pool, n int, process, of *doomed, closes bool) {
	t.Helper()
	s := &shop{
		t: t, pool: pool, clock: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC).AddDate(0, 0, n)),
		effects: map[string]int{}, once: map[string]bool{}, instance: fmt.Sprintf("shop-%d", n),
	}
	p := s.boot(process)
	defer func() { p.stop() }()
	// Another worker was here before: the program's calls wait for one, whatever comes first.
	if err := p.offers.Store.SaveDeclarations(t.Context(), worker.Registration{
		Organization: 1, All: effects(), Most: worker.MaxFunctions, Now: s.clock.Now(), Admit: func([]worker.Kept) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("shopping-%d", n)
	start := execution.Start{Organization: 1, Workflow: name, Program: program.Program{Source: []byte(shopping)}}
	if _, err := p.service.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	ended := func() (execution.Execution, bool) {
		e, _, err := p.service.Get(t.Context(), 1, name)
		if err != nil {
			t.Fatal(err)
		}
		return e, e.State.Ended()
	}
	working := make(chan struct{})
	work := func() {
		working = make(chan struct{})
		go func(p *shopProcess, done chan<- struct{}) { defer close(done); p.work(of, closes) }(p, working)
	}
	work()
	deadline := clock.System().Now().Add(within)
	for {
		if clock.System().Now().After(deadline) || clock.Sleep(t.Context(), clock.System(), time.Millisecond) != nil {
			e, _ := ended()
			t.Fatalf("the run does not end: %+v, statements %d, steps of workers %d", e, process.n, of.n)
		}
		if p.ctx.Err() != nil { // nobody is notified: its calls are offered again when their time is over
			<-working
			p.stop()
			s.clock.Advance(heartbeatOfShop + time.Second)
			p = s.boot(&doomed{})
			work()
			continue
		}
		if e, over := ended(); over {
			if e.State != execution.Completed {
				t.Fatalf("the run is %s: %s", e.State, e.Error)
			}
			break
		}
		select {
		case <-working: // another worker
			if of.dead {
				of = &doomed{}
			}
			work()
		default:
		}
		s.skipPause()
	}
	s.judge(p, name)
}

// skipPause lets the time until a postponed call is offered again pass.
func (s *shop) skipPause() {
	var at *time.Time
	if err := s.pool.QueryRow(s.t.Context(), `SELECT min(offer_at) FROM call WHERE holder = '' AND refused > 0 AND offer_at > $1`, s.clock.Now()).Scan(&at); err != nil {
		s.t.Fatal(err)
	}
	if at != nil {
		s.clock.Advance(at.Sub(s.clock.Now()))
	}
}

// judge compares the answers in the history with the effects: one for each call.
func (s *shop) judge(p *shopProcess, name string) {
	s.t.Helper()
	entries, err := p.service.History(s.t.Context(), 1, name, 0, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	e, _, err := p.service.Get(s.t.Context(), 1, name)
	if err != nil {
		s.t.Fatal(err)
	}
	var kinds []string
	for _, entry := range entries {
		kinds = append(kinds, string(entry.Kind))
		if entry.Kind == history.KindRun && string(entry.Value) != fmt.Sprint(s.number(history.ActivityID(e.Ref, entry.Op))) {
			s.t.Errorf("the call %s is recorded with %s, and its effect is %d", entry.Op, entry.Value, s.number(history.ActivityID(e.Ref, entry.Op)))
		}
	}
	if !slices.Equal(kinds, []string{"run", "run", "run", "run", "print", "completed"}) || len(s.effects) != 4 {
		s.t.Errorf("recorded %v with %d effects, expected 4 calls with one each", kinds, len(s.effects))
	}
	var left int
	if err := s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM call`).Scan(&left); err != nil || left != 0 {
		s.t.Errorf("%d calls are left, error %v", left, err)
	}
}

// TestKilledAtEveryStepOfAWorker kills the service before and after each statement about the calls of workers (a registration, taking a
// call, a heartbeat, an answer, one that postpones the call, giving a call back), and the worker before and after each effect and each
// answer, noticed at once or by its silence. A worker drains on the way. Every call takes effect once by its id, and its own answer is
// recorded, once (C25).
func TestKilledAtEveryStepOfAWorker(t *testing.T) { // issue 18
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	undisturbed, worked := &doomed{}, &doomed{}
	shopOnce(t, pool, 0, undisturbed, worked, true)
	statements, steps := undisturbed.n, worked.n
	// A call that finds a worker with room is not taken, so how many statements there are depends on what was first.
	const always = 12
	if statements < always || steps != 9 {
		t.Errorf("found %d statements and %d steps of the worker, expected at least %d and 9", statements, steps, always)
	}
	n := 0
	for at := 1; at <= statements; at++ {
		for _, applied := range []bool{false, true} {
			n++
			life := &doomed{at: at, applied: applied}
			shopOnce(t, pool, n, life, &doomed{}, true)
			if !life.dead && at <= always {
				t.Errorf("the service was not killed at statement %d", at)
			}
		}
	}
	for at := 1; at <= steps; at++ {
		for _, applied := range []bool{false, true} {
			for _, closes := range []bool{false, true} {
				n++
				life := &doomed{at: at, applied: applied}
				shopOnce(t, pool, n, &doomed{}, life, closes)
				if !life.dead {
					t.Errorf("the worker was not killed at step %d", at)
				}
			}
		}
	}
	t.Logf("%d statements, %d steps of the worker, %d kills", statements, steps, n)
}
