package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// secondMonth is the position at which the second partition of a journal begins, and thirdMonth that at which no partition is ready (D65).
const (
	secondMonth = 1_000_000_000
	thirdMonth  = 2 * secondMonth
)

// partitioned has journals attached, as they are, to tables that are partitioned by ranges of the position, with a partition for the next
// month and one for whatever no other is for. What has to read the rows is done beside writers.
func (s *shop) partitioned(tables ...string) {
	s.t.Helper()
	for _, table := range tables {
		s.sql(fmt.Sprintf(`ALTER TABLE %[1]s ADD CONSTRAINT %[1]s_first CHECK (id < %d) NOT VALID`, table, secondMonth))
		s.sql(fmt.Sprintf(`ALTER TABLE %[1]s VALIDATE CONSTRAINT %[1]s_first`, table))
		// What the table has, as the statements that make it. Partitions inherit the triggers of rows, and not those of TRUNCATE.
		made := slices.Concat(
			s.texts(`SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
				FROM pg_constraint WHERE conrelid = $1::regclass AND contype IN ('p', 'u', 'f')`, table),
			s.texts(`SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::regclass
				AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND conrelid = indrelid)`, table),
			s.texts(`SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal`, table))
		truncates := s.texts(`SELECT tgname FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal AND tgtype & 1 = 0`, table)
		steps := slices.Concat(
			[]string{`SET LOCAL lock_timeout = '1s'`},
			s.texts(`SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger
				WHERE tgrelid = $1::regclass AND NOT tgisinternal AND tgtype & 1 = 1`, table),
			s.texts(`SELECT format('ALTER INDEX %I RENAME TO %I', relname, 'first_' || relname) FROM pg_index
				JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = $1::regclass`, table),
			[]string{
				fmt.Sprintf(`ALTER TABLE %[1]s RENAME TO %[1]s_first`, table),
				fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[1]s_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS) PARTITION BY RANGE (id)`, table),
				fmt.Sprintf(`ALTER TABLE %[1]s DROP CONSTRAINT %[1]s_first`, table),
			},
			made,
			[]string{
				fmt.Sprintf(`ALTER TABLE %[1]s ATTACH PARTITION %[1]s_first FOR VALUES FROM (MINVALUE) TO (%d)`, table, secondMonth),
				fmt.Sprintf(`CREATE TABLE %[1]s_second PARTITION OF %[1]s FOR VALUES FROM (%d) TO (%d)`, table, secondMonth, thirdMonth),
				fmt.Sprintf(`CREATE TABLE %[1]s_other PARTITION OF %[1]s DEFAULT`, table),
			})
		for _, trigger := range truncates {
			for _, of := range []string{"second", "other"} {
				steps = append(steps, fmt.Sprintf(`CREATE TRIGGER %s BEFORE TRUNCATE ON %s_%s EXECUTE FUNCTION cd_refuse()`, trigger, table, of))
			}
		}
		files := s.files(table)
		s.ok(pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
			for _, sql := range steps {
				if _, err := tx.Exec(s.t.Context(), sql); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
			return nil
		}))
		s.want(s.files(table+"_first"), files) // no row and no index was written again
	}
	s.ok(store.Protect(s.t.Context(), s.db, role))
}

func (s *shop) sql(sql string) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *shop) texts(sql string, args ...any) []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), sql, args...)
	s.ok(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.ok(err)
	return all
}

// files are those that the rows and indexes of a table are in.
func (s *shop) files(table string) []string {
	s.t.Helper()
	return s.texts(`SELECT pg_relation_filepath($1::regclass) UNION ALL
		SELECT pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = $1::regclass ORDER BY 1`, table)
}

// parts is how many rows of the rollouts' journal are in each partition.
func (s *shop) parts() (n [3]int) {
	s.t.Helper()
	s.ok(s.pool.QueryRow(s.t.Context(), `SELECT (SELECT count(*) FROM cd_rollout_transitions_first),
		(SELECT count(*) FROM cd_rollout_transitions_second), (SELECT count(*) FROM cd_rollout_transitions_other)`).Scan(&n[0], &n[1], &n[2]))
	return n
}

// TestJournalsCanBePartitionedLater attaches the journals to tables that are partitioned by ranges of the position, without moving a row.
// The service works as before, also in the next month and where no partition is ready: no column, query or reference changes (R52, D65).
func TestJournalsCanBePartitionedLater(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := s.rollout(s.set)
	s.succeed(before)
	s.sealed()
	story := s.story(before)
	s.partitioned(journalTables()...)
	s.want(s.story(before), story)
	was := s.parts()

	for release, position := range []int{secondMonth, thirdMonth} {
		s.sql(fmt.Sprintf(`SELECT setval('cd_journal_positions', %d, false)`, position))
		after := s.rollout(s.release(release + 2))
		s.succeed(after)
		s.verifyJournal(after)
	}
	if is := s.parts(); is[0] != was[0] || is[1] == 0 || is[2] == 0 {
		t.Errorf("found %v rows in the partitions, %v before; want the later ones in the second, and in the one for all others", is, was)
	}
	if found := s.checked(); len(found) > 0 {
		t.Errorf("the journal differs: %v", found)
	}
	s.sealed()
	s.want(s.chain(), "")

	// Nobody gets around the rules by naming a partition.
	var open int
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname LIKE 'cd\_%'
		AND (relkind = 'p' OR relispartition AND relkind = 'r') AND NOT (relrowsecurity AND relforcerowsecurity)`).Scan(&open))
	s.want(open, 0)
	service := pgtest.As(t, s.db, role)
	for _, table := range journalTables() {
		for _, part := range []string{table, table + "_first", table + "_second", table + "_other"} {
			for _, sql := range []string{`UPDATE %s SET created_at = now()`, `DELETE FROM %s`, `TRUNCATE %s`} {
				sql = fmt.Sprintf(sql, part)
				if _, err := service.Exec(t.Context(), sql); code(err) != "42501" {
					t.Errorf("%s by the service: %v; want it refused for want of privilege", sql, err)
				}
				if table != part && table == "cd_changes" && !strings.HasSuffix(part, "first") {
					continue // without rows, whose trigger would refuse
				}
				if _, err := s.pool.Exec(t.Context(), `SET lockstep.organization = 1; `+sql); code(err) != "23000" {
					t.Errorf("%s by the owner: %v; want it refused by a trigger", sql, err)
				}
			}
			var seen int
			s.ok(service.QueryRow(t.Context(), `SELECT count(*) FROM `+part).Scan(&seen))
			s.want(seen, 0) // of no organization in particular
		}
	}
}

// TestAMonthIsDetachedBesideWriters: a month of the rollouts' journal leaves, and comes back, while rows are written to the next. To detach
// takes locks of the tables that the journal refers to, too, so it takes these first, as writers do: in the other order, both would wait
// for one another. It waits a moment for each, and holds them for a second at most. The test also shows why that is not all: the chain of
// blocks and the states of rollouts miss what has left.
func TestAMonthIsDetachedBesideWriters(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := s.rollout(s.set)
	s.succeed(before)
	s.sealed()
	s.partitioned("cd_rollout_transitions")
	s.sql(fmt.Sprintf(`SELECT setval('cd_journal_positions', %d, false)`, secondMonth))

	const (
		first  = `SET LOCAL lockstep.organization = 1; UPDATE cd_rollouts SET updated_at = now()`
		second = `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type)
			SELECT organization_id, id, state, state, 'reach_gate', 'g', 'system' FROM cd_rollouts`
		detach = `ALTER TABLE cd_rollout_transitions DETACH PARTITION cd_rollout_transitions_first`
		attach = `ALTER TABLE cd_rollout_transitions ATTACH PARTITION cd_rollout_transitions_first FOR VALUES FROM (MINVALUE) TO (1000000000)`
	)
	writing := func(between func()) error { // a rollout and its journal, as the service does
		return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), first); err != nil {
				return err
			}
			between()
			_, err := tx.Exec(t.Context(), second)
			return err
		})
	}
	changing := func(sql string) error { // one statement, so that its time bounds for how long it holds its locks
		mode := map[string]string{detach: "SHARE ROW EXCLUSIVE", attach: "ACCESS EXCLUSIVE"}[sql]
		return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), fmt.Sprintf(`SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = '1s';
				DO $$ BEGIN LOCK TABLE cd_organizations, cd_rollouts IN %s MODE; %s; END $$`, mode, sql))
			return err
		})
	}
	// beside changes partitions while rows are written, one after the other. What gave up is tried again.
	beside := func(sql string) {
		t.Helper()
		s.ok(writing(func() {}))
		ended, writers := make(chan struct{}), make(chan error)
		go func() {
			var err error
			for done := false; !done && err == nil; err = writing(func() {}) {
				select {
				case <-ended:
					done = true
				default:
				}
			}
			writers <- err
		}()
		err := changing(sql)
		for code(err) == "55P03" || code(err) == "57014" {
			err = changing(sql)
		}
		close(ended)
		if failed := <-writers; failed != nil {
			t.Errorf("beside %s: a row was not written: %v", sql, failed)
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}

	// Where there is a partition for all others, PostgreSQL has no way to detach beside readers.
	if _, err := s.pool.Exec(t.Context(), detach+` CONCURRENTLY`); code(err) != "55000" {
		t.Errorf("detached concurrently: %v; want it refused", err)
	}
	s.ok(writing(func() {
		if err := changing(detach); code(err) != "55P03" {
			t.Errorf("detached beside a writer who does not end: %v; want it to give up", err)
		}
	}))
	files := s.files("cd_rollout_transitions_first")
	beside(detach)
	if problem := s.chain(); !strings.Contains(problem, "was sealed with") {
		t.Errorf("the chain without its first month: %q; want what is missing", problem)
	}
	if found := s.checked(); len(found) == 0 {
		t.Error("the states without the first month: found no difference")
	}
	if _, err := s.pool.Exec(t.Context(), `TRUNCATE cd_rollout_transitions_first`); code(err) != "23000" {
		t.Errorf("emptied what was detached: %v; want it refused", err)
	}
	beside(attach)
	s.want(s.files("cd_rollout_transitions_first"), files)
	s.want(s.chain(), "")
}

// code is that of PostgreSQL for an error; empty for none.
func code(err error) string {
	if pe, is := errors.AsType[*pgconn.PgError](err); is {
		return pe.Code
	}
	return ""
}
