package pg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

func TestInPipelineCommitsWhatItNotesInItsOrder(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	for range 2 { // the second time its statements are prepared
		err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
			for _, statement := range []string{
				`INSERT INTO fruit (name, weight) VALUES ('fig', 1)`,
				`UPDATE fruit SET weight = weight * 7 WHERE name = 'fig'`,
			} {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					return err
				}
			}
			rows, err := tx.Query(t.Context(), `SELECT name FROM fruit WHERE weight < 10`)
			if err != nil {
				return err
			}
			if names, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(names) != 1 || names[0] != "fig" {
				t.Errorf("found %v (%v), want the fig", names, err)
			}
			err = tx.QueryRow(t.Context(), `SELECT weight FROM fruit WHERE name = 'melon'`).Scan(new(int))
			if !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("a row that is not there answers %v", err)
			}
			_, err = tx.Exec(t.Context(), `DELETE FROM fruit WHERE name = 'pear'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := fruits(t, pool); n != 2 {
			t.Errorf("%d rows, want apple and fig", n)
		}
		if _, err := pool.Exec(t.Context(), `DELETE FROM fruit WHERE name = 'fig'; INSERT INTO fruit (name, weight) VALUES ('pear', 100)`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInPipelineAnswersWhatAStatementMetOnTheWay(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	twice := func(tx pgx.Tx) error {
		for range 2 {
			if _, err := tx.Exec(t.Context(), `INSERT INTO fruit (name, weight) VALUES ('fig', 1)`); err != nil {
				return err
			}
		}
		return nil
	}
	// Met by the commit, and by a question before it whose error is kept, or forgotten.
	for name, fn := range map[string]func(pgx.Tx) error{
		"commit": twice,
		"query": func(tx pgx.Tx) error {
			_ = twice(tx)
			return pg.Classify(tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)), "count")
		},
	} {
		if err := pg.InPipeline(t.Context(), pool, fn); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: answered %v, want a conflict", name, err)
		}
	}
	err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
		_ = twice(tx)
		_, _ = tx.Query(t.Context(), `SELECT 1`) //nolint:sqlclosecheck // it answers no rows
		return nil
	})
	if err == nil {
		t.Error("a transaction whose error was forgotten says that it was committed")
	}
	if n := fruits(t, pool); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	if total := pool.Stat().NewConnsCount(); total > 2 {
		t.Errorf("%d connections were made: errors have cost some", total)
	}
}

// Where nothing is asked, all of it is one transaction all the same: what only its end finds out undoes it, and what is set for it ends
// with it.
func TestInPipelineWithoutAQuestionIsOneTransaction(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	if _, err := pool.Exec(t.Context(), `ALTER TABLE fruit ADD CONSTRAINT light UNIQUE (weight) DEFERRABLE INITIALLY DEFERRED`); err != nil {
		t.Fatal(err)
	}
	exec := func(statements ...string) error {
		return pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
			for _, statement := range statements {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 { // the second time its statements are prepared
		if err := exec(`INSERT INTO fruit (name, weight) VALUES ('fig', 1)`,
			`INSERT INTO fruit (name, weight) VALUES ('date', 1)`); !fault.Is(err, fault.Conflict) {
			t.Errorf("two of one weight: answered %v, want a conflict", err)
		}
		if err := exec(`INSERT INTO fruit (name, weight) VALUES ('fig', 1)`, `UPDATE fruit SET weight = weight / 0`); err == nil {
			t.Error("a division by zero was committed")
		}
	}
	if err := exec(`SELECT set_config('application_name', 'only here', true)`,
		`INSERT INTO fruit (name, weight) SELECT current_setting('application_name'), 2`); err != nil {
		t.Fatal(err)
	}
	if err := exec(`INSERT INTO fruit (name, weight) SELECT 'not ' || (current_setting('application_name') = 'only here'), 3`); err != nil {
		t.Fatal(err)
	}
	if err := exec(); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
	rows, err := pool.Query(t.Context(), `SELECT name FROM fruit ORDER BY weight`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"only here", "not false", "apple", "pear"}, names); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if total := pool.Stat().NewConnsCount(); total > 2 {
		t.Errorf("%d connections were made: errors have cost some", total)
	}
}

func TestInPipelineRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
		_, begin := tx.Begin(t.Context())
		_, prepare := tx.Prepare(t.Context(), "", "SELECT 1")
		_, copied := tx.CopyFrom(t.Context(), pgx.Identifier{"fruit"}, nil, nil)
		for name, err := range map[string]error{
			"begin": begin, "prepare": prepare, "copy": copied, "commit": tx.Commit(t.Context()), "rollback": tx.Rollback(t.Context()),
			"batch": tx.SendBatch(t.Context(), &pgx.Batch{}).Close(),
		} {
			if err == nil {
				t.Errorf("%s was accepted", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheLastStatementOfAPipelineCommits(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	name := func(tx pgx.Tx, weight int) (name string, err error) {
		err = tx.QueryRow(t.Context(), `INSERT INTO fruit (name, weight) VALUES ('fig', $1) RETURNING name`, weight).Scan(&name)
		return name, pg.Classify(err, "store a fig")
	}
	for at, before := range map[string]func(pgx.Tx) error{
		"alone": func(pgx.Tx) error { return nil },
		"behind a statement": func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM fruit WHERE name = 'fig'`)
			return err
		},
		"behind a question": func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)) },
	} {
		for _, fails := range []bool{false, true} {
			if _, err := pool.Exec(t.Context(), `DELETE FROM fruit WHERE name = 'fig'`); err != nil {
				t.Fatal(err)
			}
			err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
				if err := before(tx); err != nil {
					return err
				}
				if fails {
					if _, err := tx.Exec(t.Context(), `INSERT INTO fruit (name, weight) VALUES ('fig', 1)`); err != nil {
						return err
					}
				}
				pg.Last(tx)
				got, err := name(tx, 2)
				if err == nil && (got != "fig" || fruits(t, pool) != 3) {
					t.Errorf("%s: found %q and %d rows, expected the fig, and that it is stored already", at, got, fruits(t, pool))
				}
				return err
			})
			if fault.Is(err, fault.Conflict) != fails || err != nil != fails {
				t.Errorf("%s: found %v, expected a conflict: %v", at, err, fails)
			}
			if want := map[bool]int{false: 3, true: 2}[fails]; fruits(t, pool) != want {
				t.Errorf("%s: found %d rows, expected %d", at, fruits(t, pool), want)
			}
		}
	}
}

func TestAnErrorOfTheLastStatementIsReportedAlsoIfItIsDropped(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	for name, before := range map[string]func(pgx.Tx) error{
		"alone":             func(pgx.Tx) error { return nil },
		"behind a question": func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)) },
	} {
		for _, twice := range []string{"(", ""} { // an error of the statement, and one that its rows come to
			err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
				if err := before(tx); err != nil {
					return err
				}
				pg.Last(tx)
				_ = tx.QueryRow(t.Context(), `INSERT INTO fruit (name, weight) VALUES ('apple', 1) RETURNING name`+twice).Scan(new(string))
				return nil
			})
			if err == nil {
				t.Errorf("%s: found no error, expected that of the statement", name)
			}
		}
	}
	if n := fruits(t, pool); n != 2 {
		t.Errorf("found %d rows, expected the two of before", n)
	}
}

func TestNothingFollowsTheLastStatementOfAPipeline(t *testing.T) {
	t.Parallel()
	pool, _ := fruitPool(t)
	for name, further := range map[string]func(pgx.Tx) error{
		"a question": func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)) },
		"a statement": func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM fruit`)
			return err
		},
	} {
		err := pg.InPipeline(t.Context(), pool, func(tx pgx.Tx) error {
			pg.Last(tx)
			if err := tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)); err != nil {
				return err
			}
			return further(tx)
		})
		if err == nil || !strings.Contains(err.Error(), "behind the last one") {
			t.Errorf("%s: found %v, expected a refusal", name, err)
		}
	}
	if n := fruits(t, pool); n != 2 {
		t.Errorf("found %d rows, expected the two of before", n)
	}
}
