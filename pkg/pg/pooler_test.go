package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgbouncer"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// behind is the configuration of a test's schema behind a PgBouncer with two connections to the server. entry changes its line.
func behind(t *testing.T, entry func(string) string) pg.Config {
	t.Helper()
	pgbouncer.Program(t)
	_, c := pgtest.New(t)
	address := pgbouncer.Address(t)
	through, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.DirectURL = c.URL
	through.Host, through.Path, through.RawQuery = address, "/pooled", "sslmode=disable"
	c.URL = through.String()
	c.Settings = map[string]string{"jit": "off", "plan_cache_mode": "force_generic_plan"}
	c.MaxConns = 10
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	line, err := c.PoolerEntry()
	if err != nil {
		t.Fatal(err)
	}
	pgbouncer.Start(t, address, c.DirectURL, entry(line), 2)
	return c
}

// open waits for the pooler no longer than a test may take.
func open(t *testing.T, c pg.Config) (*pgxpool.Pool, error) {
	t.Helper()
	// The connections past the pooler end with this context.
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	waiting := time.AfterFunc(time.Minute, cancel)
	defer waiting.Stop()
	return pg.Open(ctx, c)
}

func same(line string) string { return line }

// The connections past the pooler end with an Open that fails, also where its context has no end: TestMain looks for what is left.
func TestAFailedOpenLeavesNoConnections(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t)
	missing, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	missing.Path = "/missing"
	c.URL, c.DirectURL = missing.String(), c.URL
	if pool, err := pg.Open(context.WithoutCancel(t.Context()), c); err == nil {
		pool.Close()
		t.Error("opened a database that does not exist")
	}
}

// D66: behind PgBouncer in transaction mode, ten connections share two to the server. Each transaction has the schema and the parameters of
// the service, statements with any arguments work, alone, in transactions and in pipelines, and nothing of one shows in another.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	c := behind(t, same)
	pool, err := open(t, c)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE kept (n bigint PRIMARY KEY, names text[], content json)"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	const writers, each = 10, 20
	for w := range writers {
		all.Go(func() {
			for i := range each {
				n := int64(w*each + i)
				write := func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "SELECT set_config('statement_timeout', $1, true)", fmt.Sprintf("%ds", 10+w)); err != nil {
						return err
					}
					if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", n%3); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), "INSERT INTO kept SELECT n, $2, $3 FROM unnest($1::bigint[]) AS n",
						[]int64{n}, []string{"a", "b"}, []byte(`{"x": 1}`))
					return err
				}
				transaction := pg.InTx
				if i%2 == 0 {
					transaction = pg.InPipeline
				}
				var set, schema string
				err := errors.Join(
					transaction(t.Context(), pool, write),
					pool.QueryRow(t.Context(), `SELECT current_setting('plan_cache_mode'), current_schema()
WHERE current_setting('statement_timeout') = '0'`).Scan(&set, &schema),
				)
				if err != nil || set != "force_generic_plan" || schema != c.Schema {
					t.Errorf("found plan_cache_mode %q, schema %q, error %v", set, schema, err)
				}
			}
		})
	}
	all.Wait()
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&rows); err != nil || rows != writers*each {
		t.Errorf("found %d rows (%v), expected %d", rows, err, writers*each)
	}
}

// What belongs to a session is past the pooler: a leader is the only one, for as long as it leads, and notifications arrive.
func TestSessionsArePastThePooler(t *testing.T) {
	t.Parallel()
	c := behind(t, same)
	pool, err := open(t, c)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	leading, most, terms := 0, 0, 0
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			_ = pg.AsLeader(ctx, pool, "one", clock.System(), func(ctx context.Context) error {
				mu.Lock()
				leading, terms = leading+1, terms+1
				most = max(most, leading)
				if terms > 3 {
					stop()
				}
				mu.Unlock()
				_ = clock.Sleep(ctx, clock.System(), 50*time.Millisecond)
				mu.Lock()
				leading--
				mu.Unlock()
				return nil
			})
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d led at the same time, expected one", most)
	}

	conn, err := pg.Session(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN behind"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "NOTIFY behind, 'x'"); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := conn.Conn().WaitForNotification(within); err != nil || n.Payload != "x" {
		t.Errorf("found notification %v, error %v", n, err)
	}
}

// A pooler whose entry lacks what the service sets is an error at the start, which names what to do.
func TestAPoolerWithoutTheEntryIsRefused(t *testing.T) {
	t.Parallel()
	c := behind(t, func(line string) string {
		line, _, _ = strings.Cut(line, " connect_query=")
		return line
	})
	_, err := open(t, c)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "connect_query that the subcommand pgbouncer prints") {
		t.Errorf("found error %v, expected that the entry of the pooler is wrong", err)
	}
}

// The entry has everything that a connection sets, in the quotes of PgBouncer.
func TestThePoolersEntry(t *testing.T) {
	t.Parallel()
	c := pg.Config{
		URL: "postgres://a@pooler:6432/lockstep_workflow", DirectURL: "postgres://a@db:5433/lockstep", Schema: "workflow", Role: "worker",
		Settings: map[string]string{"jit": "off"},
	}
	entry, err := c.PoolerEntry()
	const want = `lockstep_workflow = host=db port=5433 dbname=lockstep pool_mode=transaction connect_query='SELECT ` +
		`set_config(''jit'', ''off'', false), set_config(''role'', ''worker'', false), set_config(''search_path'', ''"workflow"'', false)'` + "\n"
	if err != nil || entry != want {
		t.Errorf("found %v\n%s\nexpected\n%s", err, entry, want)
	}
	c.DirectURL = ""
	if _, err := c.PoolerEntry(); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a direct URL: found error %v", err)
	}
	c.DirectURL = "postgres://a@db,other/lockstep"
	if _, err := c.PoolerEntry(); !fault.Is(err, fault.Invalid) {
		t.Errorf("with two servers: found error %v", err)
	}
}
