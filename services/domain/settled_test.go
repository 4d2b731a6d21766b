package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/testkit/s3test"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// bucketOf opens a bucket for tests.
func bucketOf(t *testing.T, c archive.Config) *archive.Bucket {
	t.Helper()
	secrets, err := secret.New(secret.VaultConfig{}, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := archive.Open(c, secrets, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// archiveOf is an archive in a bucket for tests.
func archiveOf(t *testing.T, wrap func(http.Handler) http.Handler) archived {
	t.Helper()
	return archived{bucketOf(t, s3test.Start(t, wrap)), clock.System()}
}

// readArchived reads an archive with what the database has recorded.
func (s *shop) readArchived(a archived, organization int64, kind retention.Kind, out io.Writer) error {
	s.t.Helper()
	of := retention.Wanted{Organization: organization, Kind: kind}
	var err error
	of.Installation, err = s.store.InstallationID(s.t.Context())
	s.ok(err)
	of.Recorded, err = retention.AllArchived(s.t.Context(), s.store.ForRetention(), organization, kind)
	s.ok(err)
	if len(of.Recorded) == 0 {
		return nil
	}
	return a.Read(s.t.Context(), of, out, func(error) {})
}

// archiving deletes with an archive.
func (s *shop) archiving(a retention.Archive) *retention.UseCases {
	return retention.New(s.store.ForRetention()).Archiving(a, func(string, int) {})
}

// triedCalls are old calls on which policies were tried out, of two organizations.
func (s *shop) triedCalls() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason,
			approver_group, quorum, requester_may, expires_at, decision, request, created_at)
		SELECT o, 'run', 'c' || age, 'act', 'permitted', '', '', '', 0, false, NULL, '{}', '{}',
			now() - make_interval(days => age)
		FROM unnest(ARRAY[1, 2]) o, unnest(ARRAY[31, 32, 60]) age`)
	s.ok(err)
}

// archivedIDs are the numbers of the archived rows of a kind.
func (s *shop) archivedIDs(a archived, kind retention.Kind) (ids []int64) {
	s.t.Helper()
	var out bytes.Buffer
	s.ok(s.readArchived(a, 1, kind, &out))
	for line := range strings.Lines(out.String()) {
		var row struct {
			ID int64 `json:"id"`
		}
		s.ok(json.Unmarshal([]byte(line), &row))
		ids = append(ids, row.ID)
	}
	return ids
}

// idsOf are the numbers of the rows of a table.
func (s *shop) idsOf(table string) (ids []int64) {
	s.t.Helper()
	s.ok(s.pool.QueryRow(s.t.Context(), "SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM "+table+" WHERE organization_id = 1").Scan(&ids))
	return ids
}

// D65: with an archive, a row is deleted only after the archive has it, with all that it holds; nothing under a legal hold goes there; and
// while the storage is away, nothing is deleted. A process that dies between the two archives the same rows again, under the same name.
func TestSettledRowsAreArchivedBeforeTheyAreDeleted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	done := s.rollout(s.set)
	s.succeed(done)
	open := s.rollout(s.release(2))
	s.handOver()
	s.settledRows(done, open)
	var away atomic.Bool
	a := archiveOf(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				http.Error(w, "away", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	counts := map[string]int{}
	counted := func(outcome string, rows int) { counts[outcome] += rows }
	u := retention.New(s.store.ForRetention()).Archiving(a, counted)
	for _, kind := range retention.Kinds() {
		_, err := u.Set(t.Context(), user(), kind, 30, "growth")
		s.ok(err)
	}
	before := map[string][]int64{"cd_handoffs": s.idsOf("cd_handoffs"), "cd_rollout_closings": s.idsOf("cd_rollout_closings")}

	_, err := u.SetHold(t.Context(), user(), true, "case 7")
	s.ok(err)
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want([]int{len(s.archivedIDs(a, retention.Handoffs)), counts["archived"]}, []int{0, 0})
	_, err = u.SetHold(t.Context(), user(), false, "closed")
	s.ok(err)

	away.Store(true)
	_, err = u.DeleteDue(t.Context())
	s.want(fault.ClassOf(err), fault.Unavailable)
	s.want(s.idsOf("cd_handoffs"), before["cd_handoffs"])
	away.Store(false)

	dies := retention.New(s.store.ForRetention()).Archiving(dyingAfter{a}, counted)
	if _, err = dies.DeleteDue(t.Context()); !errors.Is(err, errDied) {
		t.Fatalf("answered %v", err)
	}
	s.want(s.idsOf("cd_handoffs"), before["cd_handoffs"])
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	for kind, table := range map[retention.Kind]string{retention.Handoffs: "cd_handoffs", retention.Closings: "cd_rollout_closings"} {
		left := s.idsOf(table)
		gone := slices.DeleteFunc(slices.Clone(before[table]), func(id int64) bool { return slices.Contains(left, id) })
		if len(gone) == 0 {
			t.Errorf("no rows of %s are gone", table)
		}
		s.want(s.archivedIDs(a, kind), gone)
	}
	var out bytes.Buffer
	s.ok(s.readArchived(a, 1, retention.Handoffs, &out))
	for _, want := range []string{`"workflow_id": "rollout-`, `"inputs": {`, `"organization_id": 1`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the archive has no %s:\n%s", want, out.String())
		}
	}
	s.want([]bool{counts["failed"] > 0, counts["archived"] > 0}, []bool{true, true})
}

var errDied = errors.New("the process died")

// dyingAfter is an archive whose process dies once it has stored.
type dyingAfter struct{ archived }

func (d dyingAfter) Keep(ctx context.Context, b retention.Batch) (retention.Object, error) {
	if o, err := d.archived.Keep(ctx, b); err != nil {
		return o, err
	}
	return retention.Object{}, errDied
}

// D65: what comes into use between the reading and the deletion stays, and so does everything once a hold has begun.
func TestWhatIsNoLongerDueIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	done := s.rollout(s.set)
	s.succeed(done)
	open := s.rollout(s.release(2))
	s.handOver()
	s.settledRows(done, open)
	a := archiveOf(t, nil)
	var during func()
	u := s.archiving(meanwhile{a, func() { during() }})
	_, err := u.Set(t.Context(), user(), retention.Handoffs, 30, "growth")
	s.ok(err)
	before := s.idsOf("cd_handoffs")
	during = func() {
		_, err := u.SetHold(t.Context(), user(), true, "case 8")
		s.ok(err)
	}
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want(s.idsOf("cd_handoffs"), before)
	_, err = u.SetHold(t.Context(), user(), false, "closed")
	s.ok(err)
	var used int64
	during = func() {
		s.ok(s.pool.QueryRow(t.Context(), `UPDATE cd_handoffs SET updated_at = now()
			WHERE id = (SELECT min(id) FROM cd_handoffs WHERE organization_id = 1 AND state = 'done' AND subject_kind <> 'rollout')
			RETURNING id`).Scan(&used))
	}
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	left := s.idsOf("cd_handoffs")
	s.want([]bool{slices.Contains(left, used), len(left) < len(before)}, []bool{true, true})
}

// meanwhile is an archive beside which something happens.
type meanwhile struct {
	archived
	do func()
}

func (m meanwhile) Keep(ctx context.Context, b retention.Batch) (retention.Object, error) {
	m.do()
	return m.archived.Keep(ctx, b)
}

// D65: rows that another transaction has locked are passed over, since it may bring them into use; and so are rows that it brought into
// use, with a rule or without an archive.
func TestRowsThatComeIntoUseAreNotDeleted(t *testing.T) {
	t.Parallel()
	for _, with := range []bool{true, false} {
		s := newShop(t)
		s.triedCalls()
		u := retention.New(s.store.ForRetention())
		if with {
			u.Archiving(archiveOf(t, nil), func(string, int) {})
		}
		tx, err := s.pool.Begin(t.Context())
		s.ok(err)
		_, err = tx.Exec(t.Context(), `UPDATE cd_call_requests SET state = 'pending', quorum = 1, expires_at = now() + interval '1 day'
			WHERE organization_id = 1 AND call_id = 'c60'`)
		s.ok(err)
		_, err = u.DeleteDue(t.Context())
		s.ok(err)
		s.ok(tx.Commit(t.Context()))
		others := s.countOf(`SELECT count(*)::int FROM cd_call_requests WHERE organization_id = 2`)
		s.want([]int{s.rowsOf("cd_call_requests"), others}, []int{1, 0})
		_, err = u.DeleteDue(t.Context())
		s.ok(err)
		s.want(s.rowsOf("cd_call_requests"), 1)
	}
}

// D65: a hold is confirmed only after the deletions that have not seen it.
func TestAHoldWaitsForDeletions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	tx, err := s.pool.Begin(t.Context())
	s.ok(err)
	_, err = tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', '1', true)`)
	s.ok(err)
	var n int
	s.ok(tx.QueryRow(t.Context(), `SELECT cd_delete_settled('tried_calls', 1)`).Scan(&n))
	hold := make(chan error, 1)
	go func() {
		_, err := retention.New(s.store.ForRetention()).SetHold(context.WithoutCancel(t.Context()), user(), true, "case 9")
		hold <- err
	}()
	waits := func() bool {
		return s.countOf(fmt.Sprintf(`SELECT count(*)::int FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))`, tx.Conn().PgConn().PID())) > 0
	}
	for len(hold) == 0 && !waits() {
		runtime.Gosched()
	}
	s.want(len(hold), 0)
	s.ok(tx.Commit(t.Context()))
	s.ok(<-hold)
	_, err = retention.New(s.store.ForRetention()).DeleteDue(t.Context())
	s.ok(err)
	s.want([]int{n, s.rowsOf("cd_call_requests")}, []int{1, 2})
}

// D65: an organization whose rows cannot be archived stops neither the others nor the kinds that are not archived.
func TestOneOrganizationDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO cd_retention_rules (organization_id, kind, keep_days) VALUES (1, 'requests', 30), (2, 'requests', 30);
		ALTER TABLE cd_requests DISABLE TRIGGER USER;
		INSERT INTO cd_requests (organization_id, principal_type, principal_id, key, fingerprint, created_at)
			SELECT o, 'user', 1, 'old', '\x00', now() - interval '60 days' FROM unnest(ARRAY[1, 2]) o`)
	s.ok(err)
	_, err = s.archiving(archiveOf(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "settled/1/") {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	})).DeleteDue(t.Context())
	if err == nil || !strings.Contains(err.Error(), "organization 1") {
		t.Errorf("the failure is not reported: %v", err)
	}
	s.want([]int{
		s.rowsOf("cd_call_requests"), s.countOf(`SELECT count(*)::int FROM cd_call_requests WHERE organization_id = 2`),
		s.countOf(`SELECT count(*)::int FROM cd_requests WHERE key = 'old'`),
	}, []int{3, 0, 0})
}

// D65: rows that were archived before a crash, and again with others afterwards, are read once, as they were when they were deleted.
func TestRowsThatWereArchivedTwiceAreReadOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	a := archiveOf(t, nil)
	if _, err := s.archiving(dyingAfter{a}).DeleteDue(t.Context()); !errors.Is(err, errDied) {
		t.Fatalf("answered %v", err)
	}
	_, err := s.pool.Exec(t.Context(), `UPDATE cd_call_requests SET reason = 'later' WHERE call_id = 'c60';
		INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason,
			approver_group, quorum, requester_may, expires_at, decision, request, created_at)
		SELECT 1, 'run', 'late', 'act', 'permitted', '', '', '', 0, false, NULL, '{}', '{}', now() - interval '31 days'`)
	s.ok(err)
	ids := s.idsOf("cd_call_requests")
	s.want(len(ids), 4)
	_, err = s.archiving(a).DeleteDue(t.Context())
	s.ok(err)
	s.want(s.archivedIDs(a, retention.TriedCalls), ids)
	var out bytes.Buffer
	s.ok(s.readArchived(a, 1, retention.TriedCalls, &out))
	s.want(strings.Count(out.String(), `"reason": "later"`), 1)

	// Without the record, such as of a lost database, what differs is read in both states.
	out.Reset()
	s.ok(a.Read(t.Context(), retention.Wanted{Organization: 1, Kind: retention.TriedCalls}, &out, func(err error) { t.Error(err) }))
	s.want(strings.Count(out.String(), "\n"), 5)
}

// D65: a batch is bounded by bytes, and has at least one row.
func TestABatchIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.triedCalls()
	within := func(bytes int) (rows []retention.Row) {
		s.ok(s.store.ForRetention().In(t.Context(), 1, func(ctx context.Context, tx retention.Tx) (err error) {
			rows, err = tx.SettledRows(ctx, retention.TriedCalls, 1000, bytes)
			return err
		}))
		return rows
	}
	all := within(1 << 20)
	two := len(all[0].Content) + len(all[1].Content)
	s.want([]int{len(all), len(within(two)), len(within(two - 1)), len(within(1))}, []int{3, 2, 1, 1})
}

// D65: what could not be read is not stored.
func TestWhatCouldNotBeReadIsNotArchived(t *testing.T) {
	t.Parallel()
	a := archiveOf(t, nil)
	_, err := a.Keep(t.Context(), retention.Batch{Organization: 1, Kind: retention.Handoffs, Rows: []retention.Row{
		{ID: 1, Content: strings.Repeat(" ", mostArchived)},
	}})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("rows of %d bytes: %v", mostArchived+1, err)
	}
}

// D65: a day of a rule has 24 hours, whatever the session's time zone, to the archive, to the deletion and to the dry run.
func TestDaysOfRulesDoNotDependOnTheTimeZone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	// Whenever the test runs, the clocks of Berlin were changed between now and one of these.
	kinds := map[string]int{"tried_calls": 90, "handoffs": 180, "closings": 270}
	for kind, days := range kinds {
		_, err := s.pool.Exec(t.Context(), `INSERT INTO cd_retention_rules (organization_id, kind, keep_days) VALUES (1, $1, $2)`, kind, days)
		s.ok(err)
	}
	tx, err := s.pool.Begin(t.Context())
	s.ok(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', '1', true), set_config('timezone', 'Europe/Berlin', true)`)
	s.ok(err)
	for kind, days := range kinds {
		var exact bool
		s.ok(tx.QueryRow(t.Context(), `SELECT cd_settled_due($1) = x.at AND cd_settled_before($1) = x.at
			FROM (SELECT now() - make_interval(hours => 24 * $2) AS at) x`, kind, days).Scan(&exact))
		s.want(exact, true)
	}
}

// D65: what was changed in the bucket, moved there, lost or is another installation's is reported, and does not hide what is behind it.
func TestWhatIsWrongInTheArchiveIsReported(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := archiveOf(t, nil)
	of := retention.Wanted{Organization: 1, Kind: retention.Handoffs, Installation: "this"}
	var names []string
	for i := range int64(4) {
		rows := []retention.Row{{ID: i + 1, Content: fmt.Sprintf(`{"id": %d}`, i+1)}}
		o, err := a.Keep(ctx, retention.Batch{Installation: "this", Organization: 1, Kind: retention.Handoffs, Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		of.Recorded, names = append(of.Recorded, o), append(names, o.Name)
	}
	read := func(of retention.Wanted) (rows string, problems []string, err error) {
		var out bytes.Buffer
		err = a.Read(ctx, of, &out, func(err error) { problems = append(problems, err.Error()) })
		return out.String(), problems, err
	}
	if rows, problems, err := read(of); err != nil || len(problems) > 0 || strings.Count(rows, "\n") != 4 {
		t.Fatalf("read %q, %q, %v", rows, problems, err)
	}
	content, err := a.bucket.Get(ctx, names[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{names[1], strings.Replace(names[0], "/1/", "/2/", 1)} {
		if err := a.bucket.Put(ctx, name, "application/gzip", content); err != nil {
			t.Fatal(err)
		}
	}
	lost := slices.Clone(of.Recorded)
	lost = append(lost, retention.Object{Name: archivedName(1, retention.Handoffs, 9, 9, make([]byte, 32)), Rows: 3, Kept: []int64{9}})
	lost[3].Kept = []int64{4}
	for name, tt := range map[string]struct {
		of       retention.Wanted
		rows     string
		problems []string
	}{
		"replaced":             {of, "{\"id\": 1}\n{\"id\": 3}\n{\"id\": 4}\n", []string{names[1]}},
		"lost":                 {retention.Wanted{Organization: 1, Kind: of.Kind, Installation: "this", Recorded: lost}, "{\"id\": 1}\n{\"id\": 3}\n", []string{names[1], "2 rows were deleted with it"}},
		"another installation": {retention.Wanted{Organization: 1, Kind: of.Kind, Installation: "that", Recorded: of.Recorded[2:3]}, "", []string{"installation this"}},
		"without a record":     {retention.Wanted{Organization: 1, Kind: of.Kind}, "{\"id\": 1}\n{\"id\": 3}\n{\"id\": 4}\n", []string{names[1]}},
		"another organization": {retention.Wanted{Organization: 2, Kind: of.Kind}, "", []string{"of organization 1"}},
	} {
		rows, problems, err := read(tt.of)
		if !fault.Is(err, fault.Terminal) || rows != tt.rows || len(problems) != len(tt.problems) {
			t.Errorf("%s: read %q, %q, %v", name, rows, problems, err)
			continue
		}
		for i, want := range tt.problems {
			if !strings.Contains(problems[i], want) {
				t.Errorf("%s: reported %q; expected %q in it", name, problems[i], want)
			}
		}
	}
}

// D65: the counters exist before the first failure, so that it is an increase.
func TestCountersOfTheArchiveBeginAtZero(t *testing.T) {
	t.Parallel()
	if n := testutil.CollectAndCount(archivedRows()); n != 2 {
		t.Errorf("found %d counters, expected 2", n)
	}
}
