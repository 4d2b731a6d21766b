package pg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Migrate creates the schema if it is missing and applies the migrations in the root of the file system that have not been
// applied: goose's NNNN_intention.sql files. Each set of migrations has its own version table, goose_<name>. Replicas that
// start together are serialised by a session lock, and doing it again does nothing, so every start may call it.
//
// Like Open it waits for a server that is not there yet.
func Migrate(ctx context.Context, c Config, name string, migrations fs.FS) error {
	return withProvider(ctx, c, name, migrations, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Rollback undoes the migrations of the set down to, and without, version; 0 undoes them all. It exists for the test that
// every migration can be undone, and for operators who know what they lose by it.
func Rollback(ctx context.Context, c Config, name string, migrations fs.FS, version int64) error {
	return withProvider(ctx, c, name, migrations, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, version)
		return err
	})
}

// Newest is the version of the last of these migrations; 0 where there is none. Code is ahead of tables whose version is lower, and
// behind those whose version is higher.
func Newest(migrations fs.FS) (int64, error) {
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return 0, fmt.Errorf("list migrations: %w", err)
	}
	newest := int64(0)
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", name, err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

func withProvider(ctx context.Context, c Config, name string, migrations fs.FS, run func(*goose.Provider) error) error {
	if !identifier.MatchString("goose_" + name) {
		return fault.InvalidFields(fault.Field{
			Name:    "migration set",
			Problem: fmt.Sprintf("found %q; expected lower-case letters, digits and underscores", name),
		})
	}
	c = c.directly()
	c.Role = "" // tables belong to the account, not to the role that works with them
	pc, err := poolConfig(c)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*pc.ConnConfig)
	defer func() { _ = db.Close() }()
	if err := await(ctx, c.Log, db.PingContext); err != nil {
		return Classify(err, "migrate %s", name)
	}
	if err := createSchema(ctx, db, c.Schema); err != nil {
		return Classify(err, "create schema %s", c.Schema)
	}
	p, err := provider(db, c.Schema, name, migrations)
	if err != nil {
		return fmt.Errorf("read migrations %s: %w", name, err)
	}
	return Classify(run(p), "migrate %s", name)
}

func provider(db *sql.DB, schema, name string, migrations fs.FS) (*goose.Provider, error) {
	// The lock is looked at every second for five minutes, the least that goose allows.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID(schema, name)), lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("make session lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
		goose.WithTableName("goose_"+name), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, fmt.Errorf("%w: expected NNNN_intention.sql files in the root of the file system (see fs.Sub)", err)
	}
	return p, err
}

// lockID is the advisory lock of one set of migrations in one schema, so that other schemas of the same database do not
// wait for it.
func lockID(schema, name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("lockstep/migrate/" + schema + "/" + name)) // never fails
	return int64(h.Sum64() >> 1)
}

// createSchema has its SQL in Go, unlike the services: an identifier cannot be a parameter, so sqlc has no way to say
// it. It asks first, because CREATE SCHEMA IF NOT EXISTS needs a privilege that the owner of an existing schema lacks.
func createSchema(ctx context.Context, db *sql.DB, schema string) error {
	if schema == "" {
		return nil
	}
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&exists); err != nil ||
		exists {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Code == codeUniqueViolation {
		return nil // another replica made it at the same moment
	}
	return err
}
