package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// counted counts the round trips to the database.
type counted struct{ roundTrips []int }

func (c *counted) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	c.roundTrips = append(c.roundTrips, d.Batch.Len())
	return ctx
}

func (*counted) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*counted) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.roundTrips = append(c.roundTrips, 1)
	return ctx
}
func (*counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// piped runs fn on a connection of its own, whose round trips are counted, in a transaction that has a table of pairs.
func piped(t *testing.T, fn func(ctx context.Context, p *pipeline, c *counted)) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{}
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `CREATE TEMPORARY TABLE pairs (id bigint, word text); INSERT INTO pairs VALUES (1, 'one'), (2, NULL), (3, '')`)
	if err != nil {
		t.Fatal(err)
	}
	c.roundTrips = nil
	fn(t.Context(), &pipeline{tx: tx}, c)
}

// words are the words of pairs from an id on; none is "(null)".
func words(ctx context.Context, db query.DBTX, from int64) (all []string, err error) {
	rows, err := db.Query(ctx, `SELECT id, word FROM pairs WHERE id >= $1 ORDER BY id`, from)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id   int64
			word *string
		)
		if err := rows.Scan(&id, &word); err != nil {
			return nil, err
		}
		if word == nil {
			all = append(all, "(null)")
			continue
		}
		all = append(all, *word)
	}
	return all, rows.Err()
}

// pairs is how many there are.
func pairs(ctx context.Context, db query.DBTX) (n int64, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM pairs`).Scan(&n)
	return n, err
}

func TestReadsTogetherTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	piped(t, func(ctx context.Context, p *pipeline, c *counted) {
		if _, err := (later{p, whatever}).Exec(ctx, `INSERT INTO pairs VALUES ($1, $2)`, int64(4), "four"); err != nil {
			t.Fatal(err)
		}
		var (
			from1, from3 []string
			n            int64
			runs         int
		)
		err := p.together(ctx, func(ctx context.Context) (err error) {
			runs++
			from1, err = words(ctx, p, 1)
			return err
		}, func(ctx context.Context) (err error) {
			n, err = pairs(ctx, p)
			return err
		}, func(ctx context.Context) (err error) {
			from3, err = words(ctx, p, 3)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(from1, []string{"one", "(null)", "", "four"}) || !slices.Equal(from3, []string{"", "four"}) || n != 4 {
			t.Errorf("found %q, %q and %d; expected what is in the table, with what was kept back", from1, from3, n)
		}
		if runs != 2 {
			t.Errorf("a read was run %d times; expected 2", runs)
		}
		if !slices.Equal(c.roundTrips, []int{4}) {
			t.Errorf("found round trips of %v statements; expected one of 4", c.roundTrips)
		}
	})
}

// What a read asks only because of an answer is asked by itself, and is right.
func TestAReadTogetherMayAskMore(t *testing.T) {
	t.Parallel()
	piped(t, func(ctx context.Context, p *pipeline, c *counted) {
		var more []string
		err := p.together(ctx, func(ctx context.Context) error {
			n, err := pairs(ctx, p)
			if err != nil || n == 0 {
				return err
			}
			more, err = words(ctx, p, n)
			return err
		})
		if err != nil || !slices.Equal(more, []string{""}) || !slices.Equal(c.roundTrips, []int{1, 1}) {
			t.Errorf("found %q by round trips of %v, error %v; expected one word by two round trips", more, c.roundTrips, err)
		}
	})
}

func TestReadsTogetherFail(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		read func(context.Context, *pipeline) error
		want error
	}{
		"a read that fails":  {func(context.Context, *pipeline) error { return refused }, refused},
		"a read that writes": {func(ctx context.Context, p *pipeline) error { _, err := p.Exec(ctx, `DELETE FROM pairs`); return err }, errTogether},
		"a row that is not there": {func(ctx context.Context, p *pipeline) error {
			var id int64
			return p.QueryRow(ctx, `SELECT id FROM pairs WHERE id = 99`).Scan(&id)
		}, pgx.ErrNoRows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			piped(t, func(ctx context.Context, p *pipeline, _ *counted) {
				err := p.together(ctx, func(ctx context.Context) error { return test.read(ctx, p) })
				if !errors.Is(err, test.want) {
					t.Errorf("found %v; expected %v", err, test.want)
				}
				if n, err := pairs(ctx, p); err != nil || n != 3 {
					t.Errorf("found %d rows, error %v; expected 3: nothing was written", n, err)
				}
			})
		})
	}
	piped(t, func(ctx context.Context, p *pipeline, _ *counted) {
		err := p.together(ctx, func(ctx context.Context) error {
			var nothing int
			return p.QueryRow(ctx, `SELECT nothing FROM pairs`).Scan(&nothing)
		})
		if err == nil || p.answers != nil {
			t.Errorf("found error %v; expected that of the server", err)
		}
	})
}

// What the server has against a statement, and the end of a connection, are errors of their class, whatever was kept back.
func TestErrorsOfAPipelineHaveTheirClass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql  string
		want fault.Class
	}{
		"refused by the server": {`INSERT INTO pairs VALUES (1 / (SELECT count(*) FROM pairs WHERE id = 99), 'x') RETURNING id`, fault.Internal},
		"a row that exists":     {`INSERT INTO pairs VALUES (1, 'again') RETURNING id`, fault.Conflict},
		"a broken connection":   {`SELECT 1 FROM pg_terminate_backend(pg_backend_pid())`, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			piped(t, func(ctx context.Context, p *pipeline, _ *counted) {
				if _, err := p.Exec(ctx, `ALTER TABLE pairs ADD UNIQUE (id)`); err != nil {
					t.Fatal(err)
				}
				if _, err := (later{p, whatever}).Exec(ctx, `INSERT INTO pairs VALUES (7, 'kept')`); err != nil {
					t.Fatal(err)
				}
				var id int64
				err := pg.Classify(p.QueryRow(ctx, test.sql).Scan(&id), "ask")
				if err == nil || fault.ClassOf(err) != test.want {
					t.Errorf("found %v of class %v; expected %v", err, fault.ClassOf(err), test.want)
				}
			})
		})
	}
	piped(t, func(ctx context.Context, p *pipeline, _ *counted) {
		_, _ = p.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		err := p.together(ctx, func(ctx context.Context) error {
			_, err := words(ctx, p, 1)
			return err
		})
		if fault.ClassOf(err) != fault.Unavailable {
			t.Errorf("found %v of class %v; expected that the database is unavailable", err, fault.ClassOf(err))
		}
	})
}
