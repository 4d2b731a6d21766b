package outbox_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// former is what the release before says to the database. It knows one sequence, and no lanes.
var former = struct{ lock, add, addNumbered, number, fresh, sent string }{
	lock: `SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/outbox/workflow', 0))`,
	add: `INSERT INTO outbox (source, event_id, event, receipted) SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[])::json, true
		ON CONFLICT ON CONSTRAINT outbox_event_once DO NOTHING`,
	addNumbered: `WITH moved AS (
		UPDATE outbox_cursor SET position = outbox_cursor.position + 1
		WHERE outbox_cursor.only_row AND (SELECT free.only_row FROM outbox_cursor free WHERE free.only_row FOR UPDATE SKIP LOCKED) RETURNING position
	) INSERT INTO outbox (source, event_id, event, receipted, position) SELECT $1, $2, $3::json, true,
		CASE WHEN NOT EXISTS (SELECT FROM outbox ahead WHERE ahead.receipted AND ahead.position IS NULL) THEN moved.position END FROM moved`,
	number: `WITH fresh AS (
		SELECT oldest.id, outbox_cursor.position + row_number() OVER (ORDER BY oldest.id) AS position
		FROM (SELECT id FROM outbox WHERE receipted AND position IS NULL ORDER BY id LIMIT 1000) AS oldest, outbox_cursor
	), numbered AS (
		UPDATE outbox SET position = fresh.position FROM fresh WHERE outbox.id = fresh.id RETURNING outbox.position
	) UPDATE outbox_cursor SET position = (SELECT max(numbered.position) FROM numbered) WHERE EXISTS (SELECT FROM numbered)`,
	fresh: `SELECT event_id FROM outbox WHERE position > 0 AND attempts = 0 ORDER BY position`,
	sent:  `UPDATE outbox SET attempts = attempts + 1, next_attempt_at = now() + '1 hour' WHERE position > 0 AND attempts = 0`,
}

// ask asks the release before's question.
func ask(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// A rolling deploy, and the way back: the release before runs on these tables, beside this one and after it. What one of them has added the
// other sends, each event's run in its order, and they never send at once.
func TestTheReleaseBeforeRunsOnTheseTables(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	run := runsOfLanes()[5]
	formerly := func(sql, name string) {
		t.Helper()
		e := sealed(startedBy(run, name))[0]
		var err error
		if sql == former.add {
			_, err = s.from.Exec(t.Context(), sql, []string{e.Source()}, []string{e.ID()}, []string{string(e.JSON())})
		} else {
			_, err = s.from.Exec(t.Context(), sql, e.Source(), e.ID(), string(e.JSON()))
		}
		s.must(err)
	}
	old, err := s.from.Acquire(t.Context())
	s.must(err)
	leaving := old.Hijack()
	var leads bool
	s.must(leaving.QueryRow(t.Context(), former.lock).Scan(&leads))
	same(t, "the release before sends", leads, true)

	// Both add, and the release before sends.
	formerly(former.addNumbered, run+"/1")
	s.addOf(run + "/2")
	formerly(former.addNumbered, run+"/3")
	formerly(former.add, run+"/4")
	s.addOf(run + "/5")
	for range 2 {
		stop := s.running(1)[0]
		stop() // it has tried, and left
	}
	same(t, "sent beside it", s.stream.stored(), 0)
	_, err = s.from.Exec(t.Context(), former.number)
	s.must(err)
	want := []string{run + "/1", run + "/2", run + "/3", run + "/4", run + "/5"}
	same(t, "what it would send", ask(t, s.from, former.fresh), want)
	_, err = s.from.Exec(t.Context(), former.sent)
	s.must(err)

	// Then this one sends: also what the other has sent, since nobody knows who has it.
	s.must(leaving.Close(t.Context()))
	formerly(former.add, run+"/6")
	stop := s.running(1)[0]
	wait.For(t, "this one sends everything", func() bool { return s.stream.stored() >= 6 })
	want = append(want, run+"/6")
	messages := s.stream.take()
	got := make([]string, len(messages))
	for i, m := range messages {
		got[i] = m.event.ID()
	}
	same(t, "what this one sent", got, want)
	same(t, "positions", positions(t, messages), []int{1, 2, 3, 4, 5, 6})
	wait.For(t, "this one leads", func() bool { return slices.Equal(s.shares(), []int{8}) })
	s.must(s.from.QueryRow(t.Context(), former.lock).Scan(&leads))
	same(t, "the release before sends at the same time", leads, false)

	// And back: what this one has added and not sent, the release before sends.
	stop()
	s.addOf(run+"/7", run+"/8")
	_, err = s.from.Exec(t.Context(), former.number)
	s.must(err)
	same(t, "what it would send after the way back", ask(t, s.from, former.fresh), []string{run + "/7", run + "/8"})
}
