package domain

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/proof"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
)

// sealedShop is a shop with a rollout that ended and a policy that was changed, all of which is sealed, in several blocks.
func sealedShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.sealed()
	s.succeed(s.rollout(s.set))
	s.sealed()
	_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued})
	s.ok(err)
	s.sealed()
	return s
}

// sealed seals what there is. Transactions of other tests, such as one that fills large tables, may keep it from settling at once.
func (f *fixture) sealed() {
	f.t.Helper()
	wait.Within(f.t, 5*time.Minute, "the journals are sealed", func() bool {
		if _, err := f.evidence.SealAll(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		var left int
		f.ok(f.pool.QueryRow(f.t.Context(), `SELECT count(*) FROM (SELECT id FROM cd_changes UNION ALL SELECT id FROM cd_rollout_transitions
			UNION ALL SELECT id FROM cd_rollout_environment_transitions UNION ALL SELECT id FROM cd_deployment_transitions) j
			WHERE id > (SELECT COALESCE(max(upto), 0) FROM cd_journal_blocks)`).Scan(&left))
		return left == 0
	})
}

// chain is the first problem of the whole chain; empty for none.
func (f *fixture) chain() string {
	f.t.Helper()
	c, err := f.evidence.CheckChain(f.t.Context(), user(), 0, 1000)
	f.ok(err)
	return c.Problem
}

// journalTables are the tables that are sealed.
func journalTables() []string {
	return []string{"cd_changes", "cd_rollout_transitions", "cd_rollout_environment_transitions", "cd_deployment_transitions"}
}

// TestWhateverTheOwnerOfTheTablesChangesIsFound changes, removes, adds and reorders rows behind the back of every trigger (D50).
func TestWhateverTheOwnerOfTheTablesChangesIsFound(t *testing.T) {
	t.Parallel()
	s := sealedShop(t)
	if problem := s.chain(); problem != "" {
		t.Fatalf("before anything was changed: %s", problem)
	}
	exec := func(sql string, args ...any) int64 {
		t.Helper()
		tag, err := s.pool.Exec(t.Context(), sql, args...)
		s.ok(err)
		return tag.RowsAffected()
	}
	tables := append(journalTables(), "cd_journal_blocks")
	for _, table := range tables {
		exec(fmt.Sprintf(`ALTER TABLE %s DISABLE TRIGGER USER`, table))
		exec(fmt.Sprintf(`CREATE TABLE kept_%s AS TABLE %s`, table, table))
	}
	restore := func() {
		for _, table := range tables {
			exec(fmt.Sprintf(`DELETE FROM %s`, table))
			exec(fmt.Sprintf(`INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM kept_%[1]s`, table))
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		table := rapid.SampledFrom(tables).Draw(rt, "table")
		var ids []int64
		s.ok(s.pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT array_agg(id ORDER BY id) FROM %s WHERE organization_id = 1`, table)).Scan(&ids))
		id := rapid.SampledFrom(ids).Draw(rt, "id")
		changes := []string{"created_at = created_at - interval '1 microsecond'"}
		if table == "cd_journal_blocks" {
			changes = []string{
				"sealed_at = sealed_at - interval '1 second'", "digest = repeat('0', 64)", "upto = upto + 1",
				"above = above / 2 - 1", "row_count = row_count + 1",
			}
		} else {
			changes = append(changes, "principal_id = COALESCE(principal_id, 0) + 1", "reason = COALESCE(reason, '') || '.'", "id = -id")
		}
		var done int64
		switch kind := rapid.IntRange(0, 3).Draw(rt, "kind"); {
		case kind == 0:
			done = exec(fmt.Sprintf(`UPDATE %s SET %s WHERE id = $1`, table, rapid.SampledFrom(changes).Draw(rt, "change")), id)
		case kind == 1 && (table != "cd_journal_blocks" || id != ids[len(ids)-1]): // the end of the chain: see below
			done = exec(fmt.Sprintf(`DELETE FROM %s WHERE id = $1`, table), id)
		case kind == 2 && table != "cd_journal_blocks" && len(ids) > 1:
			other := rapid.SampledFrom(ids).Filter(func(n int64) bool { return n != id }).Draw(rt, "other")
			exec(fmt.Sprintf(`UPDATE %s SET id = -id WHERE id = $1`, table), id)
			exec(fmt.Sprintf(`UPDATE %s SET id = $1 WHERE id = $2`, table), id, other)
			done = exec(fmt.Sprintf(`UPDATE %s SET id = $1 WHERE id = -$2::bigint`, table), other, id)
		case table == "cd_changes":
			done = exec(`INSERT INTO cd_changes (id, organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name)
				SELECT -id, organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name FROM cd_changes WHERE id = $1`, id)
		}
		problem := s.chain()
		restore()
		if done > 0 && problem == "" {
			rt.Fatalf("row %d of %s: nothing was found", id, table)
		}
	})
	if problem := s.chain(); problem != "" {
		t.Fatalf("after everything was restored: %s", problem)
	}
}

func TestTheScheduleChecksNewRowsAndKeepsWhatItFound(t *testing.T) { // D50
	t.Parallel()
	s := sealedShop(t)
	checked, err := s.evidence.CheckDue(t.Context(), time.Hour)
	s.ok(err)
	if len(checked) != 2 || checked[0].Problem != "" || checked[0].Block < 3 {
		t.Fatalf("found %+v; want two organizations without a problem", checked)
	}
	if again, err := s.evidence.CheckDue(t.Context(), time.Hour); err != nil || len(again) != 0 {
		t.Errorf("again at once: %+v, %v; want nothing due", again, err)
	}
	// The end of the chain is taken away, with its rows: the block that was checked must still be there.
	for _, sql := range []string{
		`ALTER TABLE cd_journal_blocks DISABLE TRIGGER USER`, `ALTER TABLE cd_changes DISABLE TRIGGER USER`,
		`DELETE FROM cd_changes WHERE action = 'setRolloutPolicy'`,
		`DELETE FROM cd_journal_blocks b WHERE number = (SELECT max(number) FROM cd_journal_blocks WHERE organization_id = b.organization_id)`,
	} {
		_, err := s.pool.Exec(t.Context(), sql)
		s.ok(err)
	}
	checked, err = s.evidence.CheckDue(t.Context(), 0)
	s.ok(err)
	if !strings.Contains(checked[0].Problem, "is no longer present or is another one") {
		t.Errorf("found %q; want that the end is missing", checked[0].Problem)
	}
	last, known, err := s.evidence.LastCheck(t.Context(), user())
	if s.ok(err); !known || last.Problem != checked[0].Problem {
		t.Errorf("kept: %+v, want %+v", last, checked[0])
	}
	if problems, _, err := s.store.JournalHealth(t.Context()); err != nil || problems != 1 {
		t.Errorf("%d organizations with problems, %v; want 1", problems, err)
	}
}

// TestAClockThatGoesBackDoesNotBreakTheChain seals by a clock that is a day late (D50).
func TestAClockThatGoesBackDoesNotBreakTheChain(t *testing.T) {
	t.Parallel()
	s := sealedShop(t)
	_, err := s.pool.Exec(t.Context(), `ALTER TABLE cd_changes ALTER created_at SET DEFAULT now() - interval '1 day'`)
	s.ok(err)
	_, err = s.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerRefused})
	s.ok(err)
	s.sealed()
	if problem := s.chain(); problem != "" {
		t.Errorf("found %s", problem)
	}
}

// TestARowIsSealedOnlyOnceNothingBeforeItMayAppear holds a transaction open that has taken a position (D50).
func TestARowIsSealedOnlyOnceNothingBeforeItMayAppear(t *testing.T) {
	t.Parallel()
	s := sealedShop(t)
	late, err := s.pool.Begin(t.Context())
	s.ok(err)
	defer func() { _ = late.Rollback(t.Context()) }()
	_, err = late.Exec(t.Context(), `INSERT INTO cd_changes (organization_id, principal_type, principal_id, principal_name, action, subject_kind, subject_number, subject_name)
		VALUES (1, 'user', 1, 'late', 'late', 'member', 1, 'late')`)
	s.ok(err)
	_, err = s.rollouts.SetRolloutPolicy(t.Context(), user(),
		core.RolloutPolicy{ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerRefused})
	s.ok(err)
	for range 3 {
		if n, err := s.evidence.SealAll(t.Context()); n != 0 || err != nil {
			t.Fatalf("sealed %d rows, %v, beside one that may still appear", n, err)
		}
	}
	s.ok(late.Commit(t.Context()))
	s.sealed()
	if problem := s.chain(); problem != "" {
		t.Errorf("found %s", problem)
	}
}

// TestEveryColumnThatJournalsGainMayBeEmpty keeps the digests of old rows: a new column with a default would be in their canonical form.
func TestEveryColumnThatJournalsGainMayBeEmpty(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	first := map[string]bool{}
	for column := range strings.FieldsSeq(`id organization_id rollout_id rollout_environment_id deployment_id from_state to_state event gate_id principal_type
		principal_id principal_name reason triggered_by created_at updated_at action subject_kind subject_number subject_name application_id environment_id detail
		before after trace_id breach`) {
		first[column] = true
	}
	rows, err := s.pool.Query(t.Context(), `SELECT table_name || '.' || column_name, column_name::text FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name = ANY($1) AND (is_nullable = 'NO' OR column_default IS NOT NULL)`, journalTables())
	s.ok(err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var name, column string
		s.ok(rows.Scan(&name, &column))
		n++
		if !first[column] {
			t.Errorf("%s has a default or may not be NULL: rows that were sealed before it would no longer be what was sealed", name)
		}
	}
	if n == 0 {
		t.Error("no columns were found")
	}
}

// TestAnExportIsVerifiedWithoutTheService exports everything, and a stretch of it (D50).
func TestAnExportIsVerifiedWithoutTheService(t *testing.T) {
	t.Parallel()
	s := sealedShop(t)
	public, private, err := ed25519.GenerateKey(nil)
	s.ok(err)
	with := evidence.New(evidence.Deps{
		Store: s.store.ForEvidence(), States: s.rollouts, Clock: clock.System(),
		Key: func(context.Context) (ed25519.PrivateKey, error) { return private, nil },
	})
	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for what, bounds := range map[string][2]*time.Time{
		"everything": {nil, nil}, "an hour": {&past, &future}, "what is to come": {&future, nil}, "what was before": {nil, &past},
	} {
		var file bytes.Buffer
		s.ok(with.Export(t.Context(), user(), bounds[0], bounds[1], &file))
		report, err := proof.Verify(bytes.NewReader(file.Bytes()), public)
		if some := what == "everything" || what == "an hour"; err != nil || (report.End.Rows > 10) != some {
			t.Errorf("%s: %+v, %v", what, report, err)
		}
		if changed := bytes.Replace(file.Bytes(), []byte(`"principal_id":1`), []byte(`"principal_id":2`),
			1); !bytes.Equal(changed, file.Bytes()) {
			if _, err := proof.Verify(bytes.NewReader(changed), public); err == nil {
				t.Errorf("%s: another principal is not found", what)
			}
		}
	}
	if err := s.evidence.Export(t.Context(), user(), nil, nil, io.Discard); !fault.Is(err, fault.Refused) {
		t.Errorf("without a key: found %v; want it refused", err)
	}
	maintainer := user()
	maintainer.Permissions = core.RoleMaintainer.Permissions()
	if err := with.Export(t.Context(), maintainer, nil, nil, io.Discard); !fault.Is(err, fault.Denied) {
		t.Errorf("a maintainer: found %v; want it denied", err)
	}
}
