// Command outbox measures how fast, and for how much of the processors, the outbox of a service empties itself into a
// stream: as it does, in atomic batches, and beside that in the same run one event after the other, each waiting for its
// confirmation, as it does where NATS knows no batches; and in batches with events in all lanes instead of one. `make bench-outbox` runs
// it.
//
// It is not a test: figures depend on the machine, and what to read is the ratio.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

const (
	schema = "outbox"
	// together is how many events a transaction adds.
	together = 1000
	// within bounds one turn.
	within = 5 * time.Minute
)

// options are what the command line says.
type options struct {
	// events is how many are sent in each turn, and turns how often each way is measured, in turn.
	events, turns int
	// sync has NATS write to disk before it confirms.
	sync    bool
	profile string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == natsCommand {
		serveNATS()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.events, "events", 5000, "how many `events` are sent in each turn")
	flag.IntVar(&o.turns, "turns", 3, "how many `times` each way is measured")
	flag.BoolVar(&o.sync, "sync", true, "NATS writes to disk before it confirms (sync_interval: always)")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the sender in batches into this `file`")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // this is a main package, as tools/bench is
	}
}

func run(ctx context.Context, o options) (err error) {
	log := telemetry.Logger(os.Stderr, "warn")
	dir, err := probe.Folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	database, err := postgres.Start(ctx, postgres.Config{DataDir: filepath.Join(dir, "postgres"), Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Stop()) }()
	nats, err := startNATS(ctx, filepath.Join(dir, "nats"), o.sync)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nats.stop()) }()
	c := pg.Config{URL: database.URL(), Schema: schema, Log: log}
	if err := pg.Migrate(ctx, c, "outbox", outbox.Migrations()); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	pool, err := pg.Open(ctx, c)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()
	conn, err := bus.Connect(ctx, bus.Config{URL: nats.url, User: "workflow", Password: "workflow", Name: "bench"}, log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()
	if err := conn.Apply(ctx, bus.Topology{Streams: []bus.Stream{bus.DomainStream()}}); err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	m := measurement{options: o, pool: pool, database: database.PID(), nats: nats.pid(), log: log}
	return m.compare(ctx, conn)
}

// measurement is what the turns share.
type measurement struct {
	options
	pool *pgxpool.Pool
	// database and nats are processes.
	database, nats int
	log            *slog.Logger
	// added numbers the events of all turns.
	added int
}

// way is one way to publish, and what it came to.
type way struct {
	name string
	bus  outbox.Publisher
	// runs is how many runs the events are of: those of one run are in one lane.
	runs int
	sum  spent
}

// spent is what one turn, or several, took.
type spent struct{ wall, sender, nats, database time.Duration }

func (m *measurement) compare(ctx context.Context, conn *bus.Conn) error {
	ways := []*way{
		{name: "one by one", bus: oneByOne{conn}, runs: 1},
		{name: "in batches", bus: conn, runs: 1},
		{name: "in batches, all lanes", bus: conn, runs: 16 * outbox.Lanes},
	}
	for range m.turns {
		for _, w := range ways {
			if err := m.turn(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "WAY\tEVENTS\tEVENTS/S\tCPU µs AN EVENT: SENDER\tNATS\tPOSTGRESQL\tLOAD")
	n := float64(m.events * m.turns)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / n }
	for _, w := range ways {
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%s\n", w.name, n, n/w.sum.wall.Seconds(), each(w.sum.sender), each(w.sum.nats),
			each(w.sum.database), probe.Load())
	}
	for i, name := range []string{"batches to one by one", "all lanes to one"} {
		old, now := ways[i].sum, ways[i+1].sum
		fmt.Fprintf(out, "%s\t\t%.2f times\t%.2f\t%.2f\t%.2f\t\n", name, old.wall.Seconds()/now.wall.Seconds(),
			now.sender.Seconds()/old.sender.Seconds(),
			now.nats.Seconds()/old.nats.Seconds(), now.database.Seconds()/old.database.Seconds())
	}
	return out.Flush()
}

// turn fills the outbox and measures until all of it is in the stream.
func (m *measurement) turn(ctx context.Context, w *way) (err error) {
	if err := m.fill(ctx, w.runs); err != nil {
		return err
	}
	if m.profile != "" && w.name == "in batches" {
		f, err := os.Create(filepath.Clean(m.profile))
		if err != nil {
			return fmt.Errorf("make the profile: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("begin the profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	before, err := m.meters()
	if err != nil {
		return err
	}
	// Nobody confirms, so that nothing but publishing is measured; what would be sent again is due after the measurement.
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: m.pool, Bus: w.bus, Clock: clock.System(), Log: m.log, Name: "workflow", Receivers: []string{"domain"}, ResendAfter: time.Hour,
		ResendAtMost: time.Hour,
	})
	began := clock.System().Now()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- sender.Run(running) }()
	err = m.drained(ctx)
	wall := clock.System().Now().Sub(began)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	after, err := m.meters()
	if err != nil {
		return err
	}
	w.sum.wall += wall
	w.sum.sender += after.sender - before.sender
	w.sum.nats += after.nats - before.nats
	w.sum.database += after.database - before.database
	_, err = m.pool.Exec(ctx, `TRUNCATE outbox`)
	return pg.Classify(err, "empty the outbox")
}

// meters are what the processes have used so far.
func (m *measurement) meters() (s spent, err error) {
	if s.sender, err = probe.ProcessorTime(os.Getpid()); err != nil {
		return s, err
	}
	if s.nats, err = probe.ProcessorTime(m.nats); err != nil {
		return s, err
	}
	s.database, err = probe.FamilyTime(m.database)
	return s, err
}

// fill adds the events of a turn, of so many runs in turn.
func (m *measurement) fill(ctx context.Context, runs int) error {
	for left := m.events; left > 0; left -= together {
		events := make([]event.Sealed, min(left, together))
		for i := range events {
			m.added++
			e, err := event.Make(event.Header{
				ID: fmt.Sprintf("bench-%d", m.added), Source: "/services/workflow", Organization: 1, Correlation: id.RolloutRun(int64(m.added%runs + 1)),
				Time: clock.System().Now(),
			}, event.DeploymentGateReached{DeploymentID: int64(m.added), Weight: 25})
			if err != nil {
				return err
			}
			events[i] = e
		}
		if err := pg.InTx(ctx, m.pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, events...) }); err != nil {
			return err
		}
	}
	_, err := m.pool.Exec(ctx, `VACUUM ANALYZE outbox`)
	return pg.Classify(err, "vacuum")
}

// drained waits until everything has been published.
func (m *measurement) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		var left bool
		if err := m.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox WHERE attempts = 0)`).Scan(&left); err != nil || !left {
			return pg.Classify(err, "look for what is left")
		}
		if err := clock.Sleep(ctx, clock.System(), 5*time.Millisecond); err != nil {
			return fmt.Errorf("not all is published within %s: %w", within, err)
		}
	}
}

// oneByOne publishes each event and waits for its confirmation before the next.
type oneByOne struct{ *bus.Conn }

// PublishAll implements outbox.Publisher.
func (o oneByOne) PublishAll(ctx context.Context, events []event.Sealed, msgIDs []string) (errs []error) {
	for i := range events {
		if errs = append(errs, o.Conn.PublishAll(ctx, events[i:i+1], msgIDs[i:i+1])...); len(errs) <= i || errs[i] != nil {
			break
		}
	}
	return errs
}
