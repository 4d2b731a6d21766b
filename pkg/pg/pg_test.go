package pg_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fruit() fstest.MapFS {
	return fstest.MapFS{
		"0001_fruit.sql": {Data: []byte(`-- +goose Up
CREATE TABLE fruit (
	name   text PRIMARY KEY,
	weight integer NOT NULL CONSTRAINT fruit_has_weight CHECK (weight > 0),
	basket text CONSTRAINT fruit_basket_exists REFERENCES fruit (name)
);
-- +goose Down
DROP TABLE fruit;
`)},
		"0002_rotten.sql": {Data: []byte(`-- +goose Up
ALTER TABLE fruit ADD COLUMN rotten boolean NOT NULL DEFAULT false;
-- +goose Down
ALTER TABLE fruit DROP COLUMN rotten;
`)},
	}
}

func fruitPool(t *testing.T) (*pgxpool.Pool, pg.Config) {
	t.Helper()
	pool, c := pgtest.New(t, pgtest.Migration{Name: "fruit", FS: fruit()})
	if _, err := pool.Exec(t.Context(), `INSERT INTO fruit VALUES ('apple', 100), ('pear', 120)`); err != nil {
		t.Fatal(err)
	}
	return pool, c
}

func TestMigratingTwiceIsMigratingOnce(t *testing.T) {
	t.Parallel()
	pool, c := fruitPool(t)
	if err := pg.Migrate(t.Context(), c, "fruit", fruit()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM goose_fruit WHERE version_id > 0`).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d versions are noted, want 2 (%v)", n, err)
	}
}

func TestReplicasThatMigrateAtOnceDoNotCollide(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t)
	c.Schema += "_made" // the schema does not exist either
	t.Cleanup(func() { drop(t, c) })
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := pg.Migrate(t.Context(), c, "fruit", fruit()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func drop(t *testing.T, c pg.Config) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it has ended when a test cleans up
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+c.Schema+" CASCADE"); err != nil {
		t.Error(err)
	}
}

func TestMigrationsCanBeUndone(t *testing.T) {
	t.Parallel()
	pool, c := fruitPool(t)
	if err := pg.Rollback(t.Context(), c, "fruit", fruit(), 0); err != nil {
		t.Fatal(err)
	}
	var exists bool
	if err := pool.QueryRow(t.Context(), `SELECT to_regclass('fruit') IS NOT NULL`).Scan(&exists); err != nil || exists {
		t.Errorf("the table is still there (%v)", err)
	}
	if err := pg.Migrate(t.Context(), c, "fruit", fruit()); err != nil {
		t.Fatal(err)
	}
}

func TestMigrationsInTheWrongPlaceAreNamed(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t)
	err := pg.Migrate(t.Context(), c, "fruit", fstest.MapFS{"migrations/0001_fruit.sql": fruit()["0001_fruit.sql"]})
	if err == nil || !strings.Contains(err.Error(), "in the root of the file system") {
		t.Errorf("migrate answered %v", err)
	}
}

func TestAWrongConfigurationIsInvalidAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]pg.Config{
		"database URL: empty":  {},
		`found "Shop; drop"`:   {URL: "postgres://localhost/x", Schema: "Shop; drop"},
		"database URL: cannot": {URL: "postgres://lockstep:hunter2@localhost:port/x"},
	} {
		_, err := pg.Open(t.Context(), c)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("open answered %v, want %s", err, name)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("open shows the password: %v", err)
		}
	}
}

func TestWhatWaitingCannotMendEndsAtOnce(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t)
	cc, err := pgx.ParseConfig(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.URL = strings.Replace(c.URL, "/"+cc.Database+"?", "/no_such_database?", 1)
	if _, err := pg.Open(t.Context(), c); err == nil || fault.Is(err, fault.Unavailable) {
		t.Errorf("open answered %v", err)
	}
}

func TestOpenWaitsForAServerThatIsStarting(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lockstep-pg-test-") //nolint:usetesting // t.TempDir is open to its owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	config := postgres.Config{DataDir: filepath.Join(dir, "pg"), Fast: true, Log: slog.New(slog.DiscardHandler)}
	s, err := postgres.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pg.Open(short, pg.Config{URL: s.URL()}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("open of a stopped server answered %v", err)
	}
	waiting := make(chan struct{})
	log := slog.New(notifying{slog.DiscardHandler, waiting})
	opened := make(chan error, 1)
	go func() {
		pool, err := pg.Open(t.Context(), pg.Config{URL: s.URL(), Log: log})
		if err == nil {
			pool.Close()
		}
		opened <- err
	}()
	<-waiting
	if s, err = postgres.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// notifying closes a channel at the first record.
type notifying struct {
	slog.Handler
	first chan struct{}
}

func (n notifying) Enabled(context.Context, slog.Level) bool { return true }

func (n notifying) Handle(context.Context, slog.Record) error {
	close(n.first)
	return nil
}

func TestInTxRepeatsATransactionThatLostARace(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	// Each transaction locks one row, and once both have, the other one: a deadlock, of which PostgreSQL ends one side.
	var both, all sync.WaitGroup
	both.Add(2)
	attempts := make(chan struct{}, 1000)
	for _, order := range [][]string{{"apple", "pear"}, {"pear", "apple"}} {
		all.Go(func() {
			once := sync.OnceFunc(func() { both.Done(); both.Wait() })
			err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				attempts <- struct{}{}
				if _, err := tx.Exec(t.Context(), `UPDATE fruit SET weight = weight + 1 WHERE name = $1`, order[0]); err != nil {
					return err
				}
				once()
				_, err := tx.Exec(t.Context(), `UPDATE fruit SET weight = weight + 1 WHERE name = $1`, order[1])
				return pg.Classify(err, "weigh")
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// One side may lose more than once: it has its row again before the other one has been woken.
	if n := len(attempts); n < 3 {
		t.Errorf("%d attempts, want 3 or more", n)
	}
	var total int
	if err := pool.QueryRow(t.Context(), `SELECT sum(weight) FROM fruit`).Scan(&total); err != nil || total != 224 {
		t.Errorf("the weights add up to %d, want 224 (%v)", total, err)
	}
}

// The settings of a transaction are texts, whatever is in them, and end with it.
func TestInTxWithSettings(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	settings := map[string]string{"lockstep.quoted": `it's \'; DROP TABLE fruit; --`, "lockstep.other": "2"}
	const read = `SELECT COALESCE(current_setting($1, true), '')`
	err := pg.InTxWith(t.Context(), pool, settings, func(tx pgx.Tx) error {
		for name, want := range settings {
			var got string
			if err := tx.QueryRow(t.Context(), read, name).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range settings {
		var got string
		if err := pool.QueryRow(t.Context(), read, name).Scan(&got); err != nil || got != "" {
			t.Errorf("after the transaction %s is %q, want none (%v)", name, got, err)
		}
	}
}

func TestInTxUndoesWhatFailedAndReturnsItsError(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(context.Context, *pgxpool.Pool, func(pgx.Tx) error) error{
		"InTx":       pg.InTx,
		"InPipeline": pg.InPipeline,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, _ := fruitPool(t)
			mine := errors.New("mine")
			err := in(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `DELETE FROM fruit`); err != nil {
					return err
				}
				var left int
				if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM fruit`).Scan(&left); err != nil || left != 0 {
					t.Errorf("inside, %d rows are left, want 0 (%v)", left, err)
				}
				return mine
			})
			if err != mine { //nolint:errorlint // the very same
				t.Errorf("answered %v", err)
			}
			if n := fruits(t, pool); n != 2 {
				t.Errorf("%d rows are left, want 2", n)
			}
		})
	}
}

func fruits(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM fruit`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClassify(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	for _, test := range []struct {
		name       string
		ctx        context.Context //nolint:containedctx // a case of the table
		sql        string
		class      fault.Class
		constraint string
		text       string
	}{
		{"unique", t.Context(), `INSERT INTO fruit VALUES ('apple', 1)`, fault.Conflict, "fruit_pkey", "fruit_pkey exists already"},
		{"check", t.Context(), `INSERT INTO fruit VALUES ('fig', 0)`, fault.Invalid, "fruit_has_weight", "fruit_has_weight does not hold"},
		{
			"foreign key", t.Context(), `INSERT INTO fruit VALUES ('fig', 1, 'none')`, fault.Invalid, "fruit_basket_exists",
			"fruit_basket_exists does not hold",
		},
		{"not null", t.Context(), `INSERT INTO fruit VALUES ('fig')`, fault.Invalid, "", "fruit.weight is missing"},
		{
			"NUL in JSON", t.Context(), `SELECT '"\u0000"'::jsonb ->> 0, '{"a":"\u0000"}'::jsonb ->> 'a'`, fault.Invalid,
			"", "expected UTF-8 without NUL",
		},
		{"not UTF-8", t.Context(), `SELECT convert_from('\xff', 'UTF8')`, fault.Invalid, "", "expected UTF-8 without NUL"},
		{"syntax", t.Context(), `SELEKT`, fault.Internal, "", "syntax error"},
		{"time-out", t.Context(), `SET LOCAL statement_timeout = 1; SELECT pg_sleep(9)`, fault.Unavailable, "", "57014"},
		{"deadline", late, `SELECT 1`, fault.Unavailable, "", "no answer in time"},
		{"given up", gone, `SELECT 1`, fault.Internal, "", "canceled"},
		{"killed", t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`, fault.Unavailable, "", "the database is unavailable"},
	} {
		_, err := pool.Exec(test.ctx, test.sql, pgx.QueryExecModeSimpleProtocol)
		err = pg.Classify(err, "store %s", "fig")
		if got := fault.ClassOf(err); got != test.class {
			t.Errorf("%s: class %v, want %v: %v", test.name, got, test.class, err)
		}
		if got := pg.Constraint(err); got != test.constraint {
			t.Errorf("%s: constraint %q, want %q", test.name, got, test.constraint)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "store fig: ") || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: says %v, want %q", test.name, err, test.text)
		}
	}
	if err := pg.Classify(nil, "store"); err != nil {
		t.Errorf("nil became %v", err)
	}
	if err := pg.Classify(pgx.ErrNoRows, "load"); !errors.Is(err, pgx.ErrNoRows) || fault.ClassOf(err) != fault.Internal {
		t.Errorf("no rows became %v", err)
	}
	conflict := fault.New(fault.Refused, "not now")
	if err := pg.Classify(conflict, "start"); !fault.Is(err, fault.Refused) {
		t.Errorf("a class was lost: %v", err)
	}
}
