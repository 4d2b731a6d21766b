// Package registry is the registry service: it receives reports of artifacts from registries, forges and CI jobs, and publishes them on the
// REGISTRY stream as events that the domain trusts in form and identity (E62, R48).
//
// It knows no applications and no versions: the domain determines which of them an artifact belongs to.
package registry

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

const (
	// receiver is the service whose receipts the outbox waits for before it deletes an event (D44). stopWithin leaves five seconds to
	// deliveries in progress, and the rest to the parts behind them.
	name       = "registry"
	receiver   = "domain"
	stopWithin = 15 * time.Second
)

// Run runs the service until ctx ends. It accepts deliveries as soon as the database is reachable; the bus may follow later.
func Run(ctx context.Context, c Config) error {
	c = config.WithDefaults(c)
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	log.InfoContext(ctx, "starting", telemetry.KeyConfiguration, config.Redacted(c))
	stopTracing, err := telemetry.StartTracing(ctx, name, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if len(c.Tokens)+len(c.ScopedTokens)+len(c.Hooks)+len(c.ForgeHooks.Secrets) == 0 {
		log.WarnContext(ctx, "neither tokens nor hooks are configured: every delivery will be refused")
	}
	if err := migrate(ctx, c, log); err != nil {
		return err
	}
	pool, err := pg.Open(ctx, database(c, log))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()

	withSources, err := store.Organizations(ctx, pool)
	if err != nil {
		return fmt.Errorf("list the organizations with sources: %w", err)
	}
	if err := c.checkOrganizations(ctx, withSources, log); err != nil {
		return err
	}
	nats := c.Config(name, c.NATSUser)
	nats.Background, nats.Layout = true, c.Layout
	conn, err := bus.Connect(ctx, nats, log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()
	sender := outbox.NewSender(outbox.SenderDeps{
		Pool: pool, Bus: conn, Clock: clock.System(), Log: log, Name: name, Receivers: []string{receiver},
	})
	in, err := newIntake(c, pool, log, sender.Wake) //nolint:contextcheck // secrets are read in the background as well
	if err != nil {
		return err
	}
	deliveries, err := rpc.HTTPPart("http", c.HTTPAddress, c.httpTLS(), log, in.handler)
	if err != nil {
		return fmt.Errorf("accept deliveries: %w", err)
	}
	// Parts stop in reverse: deliveries are refused before the parts that query and publish stop. What these leave behind is in the
	// database, and continues after a restart.
	parts := []run.Part{
		run.Loop("publisher", func(ctx context.Context) error { return publish(ctx, conn, sender, in.sources, log) }),
		{Name: "resolver", Run: in.resolve},
		{Name: "poller", Run: in.poll},
		deliveries,
	}
	if c.HealthAddress != "" {
		// Only the database: without the bus or a registry deliveries are still accepted, and an unready service would get none.
		checks := map[string]func(context.Context) error{"database": pool.Ping}
		parts = append(parts, rpc.PlainHTTPPart("health", c.HealthAddress, log, telemetry.Health(checks,
			exposition{budget: in.budget, conn: func() *bus.Conn { return conn }, pool: pool}.collectors()...)))
	}
	return run.Parts(ctx, log, stopWithin, parts...)
}

// Program is the service's program. Its subcommands: migrate, which updates the tables; restored, which leaves a gap in all numbers after a
// restore; pgbouncer, which writes the entry of a pooler's configuration to out; and hooks, which writes the paths of the hooks there.
func Program(out io.Writer) config.Program[Config] {
	return config.Program[Config]{Service: name, Run: Run, Subcommands: map[string]func(context.Context, Config) error{
		"migrate": Migrate, "restored": Restored,
		"pgbouncer": func(_ context.Context, c Config) error {
			return database(config.WithDefaults(c), nil).WritePoolerEntry(out)
		},
		"hooks": func(ctx context.Context, c Config) error { return ListHooks(ctx, out, c) },
	}}
}

// Migrate updates the tables and returns: the subcommand migrate. Run does the same at its start, so it is only needed if the service's own
// account may not change tables.
func Migrate(ctx context.Context, c Config) error {
	return migrate(ctx, config.WithDefaults(c), telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name))
}

// Restored leaves a gap in all numbers that the service gives, and returns: the subcommand restored, for a database that was restored to an
// earlier time, before the service runs on it.
func Restored(ctx context.Context, c Config) error {
	c = config.WithDefaults(c)
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	return outbox.AfterRestore(ctx, database(c, log), log)
}

// Tables returns the sets of migrations of the service's schema, by the names that their versions are stored under.
func Tables() map[string]fs.FS {
	return map[string]fs.FS{store.MigrationName: store.Migrations(), store.HookMigrationName: store.HookMigrations()}
}

// migrate updates both sets of tables. The outbox's set belongs to its package and has versions of its own, so that the two change
// independently.
func migrate(ctx context.Context, c Config, log *slog.Logger) error {
	all := Tables()
	for _, set := range slices.Sorted(maps.Keys(all)) {
		if err := pg.Migrate(ctx, database(c, log), set, all[set]); err != nil {
			return fmt.Errorf("migrate %s in schema %s: %w", set, c.Schema, err)
		}
	}
	return nil
}

func database(c Config, log *slog.Logger) pg.Config {
	return pg.Config{
		URL: c.DatabaseURL, DirectURL: c.DatabaseDirectURL, Schema: c.Schema, MaxConns: c.MaxConnections,
		TLS: c.Database.Certificates(), Log: log,
	}
}
