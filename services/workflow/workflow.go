// Package workflow is the workflow service: it runs durable Starlark programs (AutoFlow). It stores what programs have
// done, so that a program that was interrupted anywhere continues as if nothing had happened (E16 to E24).
//
// It knows no rollout and no environment: those are words of the programs it runs and of the domain that submits them.
package workflow

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/api"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
	batchstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/batches"
	limitstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/limits"
	reconcilestore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/reconcile"
	schedulestore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/schedules"
)

const (
	// name is the service's on the bus, in the logs and in its database. receiver is the service that reads what it
	// emits, and whose token it knows.
	name     = "workflow"
	receiver = "domain"
	// stopWithin is how long parts may take to end. What is cut off then is replayed, like after a crash.
	stopWithin = 15 * time.Second
	// poll is how often to look for work for which no signal was received.
	poll = time.Second
)

// Run is the service until ctx ends.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	log.InfoContext(ctx, "starting", telemetry.KeyConfiguration, config.Redacted(c))
	fitMemory(ctx, c, log)
	stopTracing, err := telemetry.StartTracing(ctx, name, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if c.Token == "" && len(c.Tokens) == 0 {
		log.WarnContext(ctx, "no token is configured: every call will be refused")
	}
	if err := migrate(ctx, c, log); err != nil {
		return err
	}
	connection := database(c, log)
	connection.Settings = store.Settings()
	pool, err := pg.Open(ctx, connection)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()
	// Programs start, and run for as long as they need no other service, also while the bus is unavailable (D44).
	nats := c.Config(name, c.NATSUser)
	nats.Background, nats.Layout = true, c.Layout
	conn, err := bus.Connect(ctx, nats, log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()
	return serve(ctx, c, pool, conn, log)
}

// serve puts the parts together and runs them.
func serve(ctx context.Context, c Config, pool *pgxpool.Pool, conn *bus.Conn, log *slog.Logger) error {
	wall := clock.System()
	sender := outbox.NewSender(outbox.SenderDeps{Pool: pool, Bus: conn, Clock: wall, Log: log, Name: name, Receivers: []string{receiver}})
	inbox := outbox.NewInbox(outbox.InboxDeps{Pool: pool, Bus: conn, Clock: wall, Log: log, Name: name})
	// They work on the store, which wakes them.
	var runner *engine.Engine
	var flows *flow.Flows
	limiter := limit.New(limitstore.New(pool), wall, log)
	executions := store.New(store.Deps{
		Tally: limiter.Tally,
		Pool:  pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, ClaimEvent: inbox.Claim, Committed: sender.Wake,
		Met:   func() { flows.Wake() },
		Woken: func(w engine.Woken) { runner.Wake(w) }, Clock: wall, Log: log, Generations: max(0, c.MaxGenerations),
	})
	if err := checkScopes(ctx, c, executions.SeveralOrganizations); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	scripts, tasks, err := children(c, wall, log)
	if err != nil {
		return err
	}
	defer scripts.Close()
	defer tasks.Close()
	watches, agents := relays(executions, conn, wall, log)
	owners := agent.NewRegistry(executions, wall, log)
	budget := gitfetch.NewBudget(c.GitLimits)
	watching := function.WatchDeps{Store: executions, Observers: executions, Changed: watches.Changed, Agents: owners}
	registry, forge, requests, err := functions(c, executions, executions.SeveralOrganizations, budget, wall, log, watching, tasks)
	if err != nil {
		return err
	}
	guardian := guard.New(executions, registry, wall, log)
	policies, err := c.callPolicies(executions, wall, log)
	if err != nil {
		return err
	}
	catalogue := worker.NewCatalogue(executions, function.OfWorker, wall, log)
	registry.Add(catalogue)
	workers := worker.NewHub(worker.Deps{
		Store: executions, Catalogue: catalogue, Guard: guardian, Secrets: requests, Heartbeat: c.WorkerHeartbeat, Poll: poll,
		Clock: wall, Log: log,
	})
	types, watchers := eventTypes(pool, wall, log), control.NewSubscriptions(executions, wall, log)
	runner = engine.New(engine.Deps{
		Store: watchers.Store(executions), Scripts: scripts, Functions: registry, Agents: owners, Guard: guardian, Policies: policies,
		Limits: limiter, CheckEmit: events.CheckEmitOf(ctx, types), CheckReport: events.CheckReport, Offered: workers.Offered,
		Room: workers.Room, Observe: observe(wall), Clock: wall, Log: log, Flows: func() { flows.Wake() }, Settings: settings(c),
	})
	service := control.NewService(executions, scripts, wall, runner)
	service.Admit, service.AdmitMessage, service.AdmitCall = limiter.Start, limiter.Event, limiter.Call
	service.Rests, service.Tries, service.Full = runner.Rests, runner.Tries, limiter.FullOf
	flows = flow.NewFlows(flow.Deps{Store: executions, Scripts: scripts, Start: service.StartOfFlow, Clock: wall, Log: log})
	measured, kept := newScheduleMetrics(), archiveMetrics()
	schedules := schedule.New(scheduleDeps(pool, scripts, service, measured, wall, log))
	operator := control.NewOperator(service, executions, watchers)
	keeping, shelf, err := keep(c, operator, limitstore.New(pool), kept, wall, log)
	if err != nil {
		return err
	}
	batches := batch.New(batch.Deps{Store: batchstore.New(pool), Runs: operator, Clock: wall, Log: log})
	grpc, err := grpcPart(c, log, api.Deps{
		Operator: operator, Batches: batches, Flows: flows, Schedules: schedules, Agents: owners, FromWire: events.FromWire,
		Checker: control.ProgramChecker{Scripts: scripts, Functions: registry, CheckType: checkType(types)},
		Workers: workers, Functions: builtins(), Types: types, Limits: limiter, Retention: keeping, Archive: shelf,
	}, &reconcile.Service{Forge: forge, Store: reconcilestore.New(reconcilestore.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.Add, Committed: sender.Wake,
	})})
	if err != nil {
		return err
	}
	dispatcher := agent.Dispatcher{
		Store: executions, Sender: events.Calls{Bus: conn, Clock: wall, Installation: executions.Installation}, Clock: wall,
		Log: log, Woken: runner.Calls(), Guard: guardian, Answerer: service,
	}
	topology := topology{bus: conn, configured: c.Agents, agents: owners}
	parts := []run.Part{
		run.Loop("topology", topology.Run),
		run.Loop("outbox", sender.Run),
		run.Loop("inbox", inbox.Run),
		{Name: "engine", Run: runner.Run},
		run.Loop("calls", dispatcher.Run),
		run.Loop("workers", workers.Run),
		run.Loop("watches", watches.Run),
		run.Loop("agents", agents.Run),
		run.Loop("owners", func(ctx context.Context) error { return own(ctx, owners, c.AgentOwners, wall, log) }),
		run.Loop("policies", policies.Run),
		run.Loop("watchers", watchers.Run),
		run.Loop("flows", flows.Run),
		run.Loop("schedules", schedules.Run),
		run.Loop("batches", batches.Run),
		run.Loop("limits", limiter.Run),
		run.Loop("retention", keeping.Run),
		grpc,
	}
	parts = append(parts, consumers(conn, events.Cluster{
		Answerer: service, Health: events.NewHealth(), Agents: agents, Observed: executions, Log: log,
	}, events.Domain{Receiver: executions, Policies: executions, Inbox: inbox, Log: log})...)
	parts = append(parts, health(c, log, topology.Ready, exposition{
		budget: budget, conn: func() *bus.Conn { return conn }, pool: pool, clock: wall, engine: runner, guard: guardian, policies: policies,
		workers: workers, limits: limiter, schedules: measured, archive: kept, scripts: isolation{scripts},
	})...)
	return run.Parts(ctx, log, stopWithin, parts...)
}

// relays are what is wanted of relays, and what they say of themselves.
func relays(executions *store.Store, conn *bus.Conn, wall clock.Clock, log *slog.Logger) (*events.Watches, *events.Agents) {
	watches := events.NewWatches(events.WatchesDeps{Store: executions, Bus: conn, Clock: wall, Log: log})
	return watches, events.NewAgents(events.AgentsDeps{Store: executions, Watches: watches, Clock: wall, Log: log})
}

// scheduleDeps is what schedules start runs with.
func scheduleDeps(
	pool *pgxpool.Pool, scripts program.Scripts, service *control.Service, m *scheduleMetrics, wall clock.Clock, log *slog.Logger,
) schedule.Deps {
	return schedule.Deps{
		Store: schedulestore.New(pool), Scripts: scripts, Start: service.StartOfFlow, Cancel: service.Cancel, Clock: wall, Log: log,
		Counted: m.counted, Late: func(late time.Duration) { m.late.Observe(late.Seconds()) },
	}
}

// Program is the service's program. Its subcommands: migrate, which updates the tables; restored, which leaves a gap in all numbers after a
// restore; and pgbouncer, which writes the entry of a pooler's configuration to out. SandboxCommand is none of them: it takes no
// configuration.
func Program(out io.Writer) config.Program[Config] {
	return config.Program[Config]{Service: name, Run: Run, Subcommands: map[string]func(context.Context, Config) error{
		"migrate": Migrate, "restored": Restored,
		"pgbouncer": func(_ context.Context, c Config) error {
			connection := database(c.withDefaults(), nil)
			connection.Settings = store.Settings()
			return connection.WritePoolerEntry(out)
		},
	}}
}

// Migrate brings the tables up to date and returns: the subcommand migrate. Run does the same at its start, so it is
// only needed where the service's own account may not change tables.
func Migrate(ctx context.Context, c Config) error {
	c = c.withDefaults()
	return migrate(ctx, c, telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name))
}

// Restored leaves a gap in all numbers that the service gives, and returns: the subcommand restored, for a database that was restored to an
// earlier time, before the service runs on it.
func Restored(ctx context.Context, c Config) error {
	c = c.withDefaults()
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	return outbox.AfterRestore(ctx, database(c, log), log)
}

// Tables are the sets of migrations of the service's schema, by the names that their versions are kept under.
func Tables() map[string]fs.FS {
	return map[string]fs.FS{"outbox": outbox.Migrations(), name: store.Migrations()}
}

// migrate brings the outbox's tables up to date first. They are pkg/outbox's, with a version of their own.
func migrate(ctx context.Context, c Config, log *slog.Logger) error {
	if err := pg.Migrate(ctx, database(c, log), "outbox", outbox.Migrations()); err != nil {
		return fmt.Errorf("migrate outbox in schema %s: %w", c.Schema, err)
	}
	if err := pg.Migrate(ctx, database(c, log), name, store.Migrations()); err != nil {
		return fmt.Errorf("migrate schema %s: %w", c.Schema, err)
	}
	return nil
}

func database(c Config, log *slog.Logger) pg.Config {
	return pg.Config{
		URL: c.DatabaseURL, DirectURL: c.DatabaseDirectURL, Schema: c.Schema, MaxConns: c.MaxConnections,
		TLS: c.Database.Certificates(), Log: log,
	}
}
