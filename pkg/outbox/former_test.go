package outbox_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// former is what the release before says to the database. It knows one sequence, and no lanes.
var former = struct{ lock, add, addNumbered, number, fresh, sent string }{
	lock: `SELECT pg_try_advisory_lock(hashtextextended(current_schema() || '/outbox/workflow', 0))`,
	add: `INSERT INTO outbox (source, event_id, event, receipted) SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[])::json, true
		ON CONFLICT ON CONSTRAINT outbox_event_once DO NOTHING`,
	addNumbered: `WITH moved AS (
		UPDATE outbox_cursor SET position = outbox_cursor.position + 1
		WHERE outbox_cursor.only_row AND (SELECT free.only_row FROM outbox_cursor free WHERE free.only_row FOR UPDATE SKIP LOCKED)
		RETURNING position
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

// A rolling deploy, and a rollback: the release before runs on these tables, beside this one and after it. What one of them has added the
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

	// And a rollback: what this one has added and not sent, the release before sends.
	stop()
	s.addOf(run+"/7", run+"/8")
	_, err = s.from.Exec(t.Context(), former.number)
	s.must(err)
	same(t, "what it would send after the rollback", ask(t, s.from, former.fresh), []string{run + "/7", run + "/8"})
}

// Whatever an event holds that the release before has stored, the upgrade takes it, and so does the trigger when that release adds it; also
// what PostgreSQL does not read, as a NUL or half a surrogate pair in a text of a tenant (D65).
func TestNoStoredEventStopsTheUpgrade(t *testing.T) {
	t.Parallel()
	before := fstest.MapFS{}
	files, err := fs.Glob(outbox.Migrations(), "000[1-4]_*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(outbox.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = &fstest.MapFile{Data: text}
	}
	pool, config := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: before})
	run := runsOfLanes()[5]
	lanes := map[string]int16{"{}": 2, "[]": 2, `"a"`: 2, `{"correlationid":"\u0000"}`: 5}
	for i, reason := range []string{`a\u0000b`, `\ud800`, `\u0000\u0000\uDFFF`, `\\u0000`, `\\\u0000`, `\ud83d\ude80`} {
		e, err := event.Make(event.Header{ID: fmt.Sprint("x", i), Source: "/s", Organization: 1, Correlation: run, Time: time.Unix(0, 0)},
			event.Raw{Type: event.TypeRolloutFailed, JSON: json.RawMessage(`{"rollout_id":1,"reason":"` + reason + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		lanes[string(e.JSON())] = outbox.LaneOf(e)
	}
	add := func(when string) {
		t.Helper()
		for text := range lanes {
			if _, err := pool.Exec(t.Context(), former.add, []string{when}, []string{text}, []string{text}); err != nil {
				t.Errorf("%s %s: %v", when, text, err)
			}
		}
	}
	add("before")
	if err := pg.Migrate(t.Context(), config, "outbox", outbox.Migrations()); err != nil {
		t.Fatal(err)
	}
	add("after")
	for text, want := range lanes {
		var lane []int16
		if err := pool.QueryRow(t.Context(), `SELECT array_agg(lane) FROM outbox WHERE event_id = $1`, text).Scan(&lane); err != nil {
			t.Fatal(err)
		}
		same(t, "lanes of "+text, lane, []int16{want, want})
	}
}

// What the release before has sent, and nobody has confirmed, is sent again before what is new of its lane: also where it has a place
// already, and would be due again only later.
func TestWhatTheReleaseBeforeHasSentComesFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	run := runsOfLanes()[5]
	s.addOf(run+"/1", run+"/2")
	for _, sql := range []string{former.number, former.sent} {
		_, err := s.from.Exec(t.Context(), sql)
		s.must(err)
	}
	s.addOf(run + "/3")
	s.running(1)
	wait.For(t, "all is sent", func() bool { return s.stream.stored() == 3 })
	same(t, "sent", ids(s.stream.take()), []string{run + "/1/2", run + "/2/2", run + "/3"})
	same(t, "positions of the release before", ask(t, s.from, `SELECT event_id FROM outbox WHERE position IS NOT NULL`), []string{})
}
