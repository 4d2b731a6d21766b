// Command domain measures what people wait for: pages of the domain's GraphQL API over HTTP, on an organization with ten
// thousand applications and two million rows of journal, on a real PostgreSQL. `make bench-domain` runs it.
//
// It is not a test, and asserts nothing: figures depend on the machine. It says beside each what the goal is.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

//go:embed seed.sql
var seed string

const (
	schema = "domain"
	token  = "a-token-for-measuring"
)

// options are what the command line says.
type options struct {
	// scale multiplies the sizes of the organization.
	scale float64
	// requests is how many times each page is asked for.
	requests int
	// events is how many words of workflows are turned into rows of the journal; 0 leaves that out, and the artifacts.
	events int
	// passages is how many rollouts wait for a passage of ten conditions, a third of them for each kind.
	passages int
	// notifications is how many approvals are asked for in a channel; 0 leaves that out.
	notifications int
	// followers is how many consoles follow the organization; 0 leaves that out.
	followers int
	// triggers is how many events are sent one by one with few triggers, and with one for each application; 0 leaves that out. pace is how
	// many are sent a second afterwards, for so many seconds, and matching of how many one matches a trigger.
	triggers, pace, paceFor, matching int
	// open is how many checks are open meanwhile, of which one in a hundred changes each second.
	open int
	// data is a folder that keeps the organization for the next time, whose pages are measured as they are; empty for none.
	data string
	// profile is where the processor's time during the pages goes to, and, with .paced behind, that during events at a pace; empty for none.
	profile string
	out     string
	// unsealed leaves out the chain of the journals, to compare.
	unsealed bool
}

func main() {
	// What runs the programs of notifications is a child of the workflow service.
	if len(os.Args) == 2 && os.Args[1] == workflow.SandboxCommand {
		os.Exit(run.Main("bench "+workflow.SandboxCommand, workflow.Sandbox)) //nolint:forbidigo // as below
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.Float64Var(&o.scale, "scale", 1, "sizes of the organization, as a `factor` of 10,000 applications and 100,000 rollouts")
	flag.IntVar(&o.requests, "requests", 300, "how many `times` each page is asked for")
	flag.IntVar(&o.events, "events", 16_000, "how many `words` of workflows the journal takes; 0 for none, and for no artifacts")
	flag.IntVar(&o.passages, "passages", 99, "how many `rollouts` pass an entrance with ten conditions; 0 for none")
	flag.IntVar(&o.notifications, "notifications", 0, "how many `approvals` are asked for in a channel, by a workflow service of its own; 0 for none")
	flag.IntVar(&o.followers, "followers", 0, "how many `consoles` follow the organization while rollouts report; 0 for none")
	flag.IntVar(&o.open, "open", 0, "how many `checks` are open while passages are measured, of which one in a hundred changes each second")
	flag.IntVar(&o.triggers, "triggers", 0, "how many `events` are sent to triggers, with few of them and with one for each application; 0 for none")
	flag.IntVar(&o.pace, "pace", 0, "how many `events` a second are sent to triggers afterwards; 0 for none")
	flag.IntVar(&o.matching, "matching", 1, "of how many `events` at a pace one matches a trigger")
	flag.IntVar(&o.paceFor, "pace-for", 20, "for how many `seconds`")
	flag.StringVar(&o.data, "data", "", "keep the organization in this `folder`, and measure its pages, and nothing else, if it has one")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of service and client during the pages, and one of events at a pace beside it, into this `file`")
	flag.BoolVar(&o.unsealed, "unsealed", false, "do not seal the journals, to compare")
	flag.StringVar(&o.out, "json", "", "write the figures as JSON into this `file`")
	flag.Parse()
	if err := bench(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // this is a main package, as tools/bench is
	}
}

func bench(ctx context.Context, o options) (failed error) {
	log := telemetry.Logger(os.Stderr, "warn")
	dir, err := probe.Folder()
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, os.RemoveAll(dir)) }()
	if o.data == "" {
		o.data = filepath.Join(dir, "postgres")
	}
	database, err := postgres.Start(ctx, postgres.Config{DataDir: o.data, Log: log})
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, database.Stop()) }()
	nats, err := natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(dir, "nats"), Log: log, Users: []natsserver.User{
			{Name: "workflow", Password: "workflow"},
			{Name: "domain", Password: "domain"},
			{Name: "registry", Password: "registry"},
		},
	})
	if err != nil {
		return err
	}
	defer nats.Shutdown()
	address, err := probe.FreeAddress()
	if err != nil {
		return err
	}
	runs, err := probe.FreeAddress()
	if err != nil {
		return err
	}
	c := domain.Config{
		Database: pg.Database{DatabaseURL: database.URL()}, Schema: schema, HTTPAddress: address, BootstrapToken: token,
		Settings: telemetry.Settings{LogLevel: "error"},
		NATS:     bus.NATS{NATSURL: nats.URL(), NATSPassword: "domain"},
		// Nothing listens there before notifications are measured: reading needs the database alone.
		WorkflowAddress: runs, WorkflowToken: token,
		Journal: domain.Journal{Unsealed: o.unsealed, SealEvery: time.Second, CheckEvery: 24 * time.Hour},
	}
	filled, err := fill(ctx, c, o, log)
	if err != nil {
		return err
	}
	published := 0
	if !filled {
		o.events = 0 // the events of an earlier run are applied, and their rollouts have ended
	}
	if o.events > 0 {
		if published, err = publish(ctx, nats.URL(), o, log); err != nil {
			return err
		}
	}
	if o.notifications > 0 {
		end, err := engine(ctx, database.URL(), nats.URL(), runs)
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, end()) }() // after the service that calls it
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- domain.Run(serving, c) }()
	service := probe.API{URL: "http://" + address + "/graphql", Token: token}
	err = takeIn(ctx, nats.URL(), database.URL(), published, o, log)
	if err == nil && published > 0 && o.passages > 0 {
		err = passages(ctx, nats.URL(), database.URL(), service, o, log)
	}
	if err == nil && o.notifications > 0 {
		if err = service.Await(ctx); err == nil {
			err = notifications(ctx, nats.URL(), database.URL(), service, o, log)
		}
	}
	if err == nil && filled && o.triggers > 0 {
		err = triggers(ctx, database.URL(), service, o, log)
	}
	if err == nil && o.followers > 0 {
		err = followers(ctx, nats.URL(), database.PID(), service, o, log)
	}
	if err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	figures, err := measure(ctx, service, o)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return report(figures, o.out)
}

// takeIn measures what comes in by the bus.
func takeIn(ctx context.Context, nats, database string, published int, o options, log *slog.Logger) error {
	if published == 0 {
		return nil
	}
	rows, perSecond, err := drained(ctx, database, published)
	if err != nil {
		return err
	}
	sealed, err := sealedRows(ctx, database)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "domain events to rows of the journal: %d events, %d rows, %.0f rows/s (goal 2000), %d rows sealed since the start, load %s\n",
		published, rows, perSecond, sealed, probe.Load())
	took, err := artifacts(ctx, nats, database, o, log)
	if err != nil {
		return err
	}
	p50, p99 := probe.Percentiles(took)
	fmt.Fprintf(os.Stdout, "artifacts to version sets at 200/s: %d, p50 %.1f ms (goal 50), p99 %.1f ms, load %s\n", len(took),
		p50, p99, probe.Load())
	return nil
}

// sealedRows is how many rows of the journals are in the chain.
func sealedRows(ctx context.Context, database string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT COALESCE(sum(row_count), 0)::bigint FROM `+schema+`.cd_journal_blocks`).Scan(&n)
	return n, pg.Classify(err, "count the rows that are sealed")
}

// fill creates the tables, and the organization unless it exists.
func fill(ctx context.Context, c domain.Config, o options, log *slog.Logger) (bool, error) {
	began := clock.System().Now()
	if err := domain.Migrate(ctx, c); err != nil {
		return false, err
	}
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	sizes := map[string]int{
		"applications": int(10_000 * o.scale), "environments": 50, "rollouts": int(100_000 * o.scale), "active": int(2_000 * o.scale),
		"asking": int(300 * o.scale),
	}
	if _, err := conn.Exec(ctx, `SELECT set_config('search_path', $1, false)`, schema); err != nil {
		return false, fmt.Errorf("choose the schema: %w", err)
	}
	var filled bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cd_applications)`).Scan(&filled); err != nil || filled {
		return false, pg.Classify(err, "check whether the organization exists")
	}
	for name, size := range sizes {
		if _, err := conn.Exec(ctx, `SELECT set_config($1, $2, false)`, "bench."+name, strconv.Itoa(max(size, 1))); err != nil {
			return false, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if _, err := conn.Exec(ctx, seed); err != nil {
		return false, fmt.Errorf("fill the organization: %w", err)
	}
	if _, err := conn.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		return false, fmt.Errorf("vacuum: %w", err)
	}
	log.WarnContext(ctx, "filled", "took", clock.System().Now().Sub(began).String())
	return true, nil
}

// page is what is measured: a query whose variables differ from request to request.
type page struct {
	name, query string
	variables   func(i int, o options) map[string]any
}

func pages() []page {
	matrix := `nodes { application { id name } newest { name } cells { environment { id name } readiness live { id name } liveSince latestVersionSet { name } state health gates { gateId }
		reconciliation { drift since } latest { rollout { id } } } } pageInfo { hasNextPage endCursor }`
	filtered := func(name, filter string) page {
		return page{
			name:      "matrix: " + name,
			query:     `query($after: String) { matrix(first: 20, after: $after, filter: {` + filter + `}) { ` + matrix + ` } }`,
			variables: func(int, options) map[string]any { return nil },
		}
	}
	return []page{
		{
			name:  "matrix: 20 applications by name, 10 environments each",
			query: `query($after: String) { matrix(first: 20, after: $after) { ` + matrix + ` } }`,
			variables: func(i int, o options) map[string]any {
				return map[string]any{"after": nameCursor(fmt.Sprintf("application-%05d", i*31%int(10_000*o.scale)))}
			},
		},
		{
			name:      "matrix: searched",
			query:     `query($name: String) { matrix(first: 20, filter: {text: $name}) { ` + matrix + ` } }`,
			variables: func(i int, _ options) map[string]any { return map[string]any{"name": strconv.Itoa(100 + i%900)} },
		},
		filtered("one environment", `environments: ["environment-07"]`),
		filtered("failed", `states: [FAILED]`),
		filtered("failed nowhere near", `states: [CANCELLED]`),
		filtered("completed", `states: [COMPLETED]`),
		filtered("degraded", `health: [DEGRADED]`),
		filtered("healthy", `health: [HEALTHY]`),
		filtered("waiting", `waiting: true`),
		filtered("not waiting, one driver", `waiting: false, drivers: ["argo-rollouts@1"]`),
		{
			name: "a rollout with its journal",
			query: `query($id: ID!) { rollout(id: $id) { id state isRollback awaitingApproval application { name } versionSet { name entries { service { name } version { name digest } } }
				waitingOn { kind detail since until } viewerCan { action allowed reason }
				environments { id state environment { name tier } deployments { state service { name } gates { gateId reachedAt passedAt } } }
				journal(first: 100) { nodes { subject fromState toState event gateId reason triggeredBy createdAt principal { name } } } } }`,
			variables: func(i int, o options) map[string]any {
				// Every other one is under way.
				all := int(100_000 * o.scale)
				n := 1 + i*331%all
				if i%2 == 0 {
					n = all - i%int(2_000*o.scale)
				}
				return map[string]any{"id": fmt.Sprintf("rollout_%d", n)}
			},
		},
		{
			name:      "what waits for me",
			query:     `{ gatesForMe(first: 50) { nodes { gateId reason requestedAt quorum rollout { id application { name } } viewerCan { action allowed } } pageInfo { hasNextPage endCursor } } }`,
			variables: func(int, options) map[string]any { return nil },
		},
		{
			name:      "rollouts under way",
			query:     `{ rollouts(first: 50, states: [PENDING, IN_PROGRESS, PAUSED]) { nodes { id state isRollback awaitingApproval application { name } versionSet { name } createdAt } pageInfo { hasNextPage endCursor } } }`,
			variables: func(int, options) map[string]any { return nil },
		},
		{
			name:  "the journal of everything, from the middle",
			query: `query($after: String) { journal(first: 50, after: $after) { nodes { cursor rollout { id application { name } } transition { subject event reason createdAt } } pageInfo { endCursor } } }`,
			variables: func(i int, o options) map[string]any {
				return map[string]any{"after": cursor(i * 7001 % int(2_000_000*o.scale))}
			},
		},
	}
}

// figure is what came of one page.
type figure struct {
	Page  string  `json:"page"`
	N     int     `json:"n"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Bytes int     `json:"bytes"`
	Load  string  `json:"load"`
}

// profiled writes a CPU profile into a file until the returned function is called; nothing for an empty name.
func profiled(name string) (end func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Clean(name))
	if err != nil {
		return nil, fmt.Errorf("make the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("begin the profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func measure(ctx context.Context, api probe.API, o options) (all []figure, err error) {
	if err := api.Await(ctx); err != nil {
		return nil, err
	}
	end, err := profiled(o.profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, p := range pages() {
		var took []time.Duration
		largest := 0
		for i := range o.requests {
			began := clock.System().Now()
			answer, err := api.Ask(ctx, p.query, p.variables(i, o))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			took = append(took, clock.System().Now().Sub(began))
			largest = max(largest, len(answer))
		}
		p50, p99 := probe.Percentiles(took)
		all = append(all, figure{Page: p.name, N: len(took), P50: p50, P99: p99, Bytes: largest, Load: probe.Load()})
	}
	return all, nil
}

func report(figures []figure, out string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PAGE\tREQUESTS\tP50 (goal 30 ms)\tP99 (goal 150 ms)\tLARGEST (goal 60 KB)\tLOAD")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%d\t%.1f ms\t%.1f ms\t%.1f KB\t%s\n", f.Page, f.N, f.P50, f.P99, float64(f.Bytes)/1000, f.Load)
	}
	if err := w.Flush(); err != nil || out == "" {
		return err
	}
	b, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	return os.WriteFile(filepath.Clean(out), append(b, '\n'), 0o600)
}
