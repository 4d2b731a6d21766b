package domain

import (
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// settledRows are old and new rows of every kind of this organization, and old ones of another.
func (s *shop) settledRows(done, open core.Rollout) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), fmt.Sprintf(`
		ALTER TABLE cd_requests DISABLE TRIGGER USER; ALTER TABLE cd_handoffs DISABLE TRIGGER USER;
		ALTER TABLE cd_rollout_closings DISABLE TRIGGER USER; ALTER TABLE cd_access_tokens DISABLE TRIGGER USER;
		INSERT INTO cd_requests (organization_id, principal_type, principal_id, key, fingerprint, created_at)
			SELECT o, 'user', 1, age::text, '\x00', now() - make_interval(days => age) FROM unnest(ARRAY[1, 2]) o, unnest(ARRAY[1, 29, 31, 60]) age;
		UPDATE cd_handoffs SET state = 'done', updated_at = now() - interval '40 days';
		UPDATE cd_handoffs SET state = 'pending' WHERE subject_kind = 'environment' AND subject_id = %d;
		INSERT INTO cd_rollout_closings (organization_id, rollout_id, due_at, settled, updated_at)
			VALUES (1, %d, now(), true, now() - interval '31 days'), (1, %d, now(), false, now() - interval '31 days');
		INSERT INTO cd_members (organization_id, name, kind, role) VALUES (1, 'ann', 'user', 'owner');
		INSERT INTO cd_access_tokens (organization_id, member_id, name, digest, scopes, expires_at, sign_in)
			SELECT 1, m.id, n::text, sha256(n::text::bytea), 1, now() - make_interval(days => n), n <> 33
			FROM cd_members m, unnest(ARRAY[1, 31, 32, 33]) n WHERE m.name = 'ann';
		INSERT INTO cd_access_tokens (organization_id, member_id, parent_id, name, digest, scopes, expires_at)
			SELECT 1, t.member_id, t.id, 'session', '\x%064d', 1, t.expires_at FROM cd_access_tokens t WHERE t.name = '31'`,
		s.production.ID, done.ID, open.ID, 7))
	s.ok(err)
}

func (s *shop) rowsOf(table string) (n int) {
	s.t.Helper()
	s.ok(s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM "+table+" WHERE organization_id = 1").Scan(&n))
	return n
}

// D65: nothing is deleted without a rule, with a legal hold, or of another organization; with a rule exactly what is settled and older;
// the dry run says how much that is, and all of it is in the journal.
func TestSettledRowsEndByTheRulesOfTheirOrganization(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	done := s.rollout(s.set)
	s.succeed(done)
	open := s.rollout(s.release(2))
	s.handOver()
	s.settledRows(done, open)
	u := retention.New(s.store.ForRetention())
	tables := map[retention.Kind]string{
		retention.Requests: "cd_requests", retention.Handoffs: "cd_handoffs", retention.Closings: "cd_rollout_closings",
		retention.SignIns: "cd_access_tokens",
	}
	counts := func() map[retention.Kind]int {
		all := map[retention.Kind]int{}
		for kind, table := range tables {
			all[kind] = s.rowsOf(table)
		}
		return all
	}
	before := counts()
	deletes := func(want map[retention.Kind]int) {
		t.Helper()
		deleted, err := u.DeleteDue(t.Context())
		s.ok(err)
		got := map[retention.Kind]int{}
		for _, d := range deleted {
			s.want(d.Organization, int64(1))
			got[d.Kind] = d.Rows
		}
		s.want(got, want)
	}
	deletes(map[retention.Kind]int{})

	_, err := u.SetHold(t.Context(), user(), true, "case 7")
	s.ok(err)
	var r retention.Retention
	for _, kind := range retention.Kinds() {
		r, err = u.Set(t.Context(), user(), kind, 30, "growth")
		s.ok(err)
	}
	s.want(r.Hold, "case 7")
	due := map[retention.Kind]int{}
	for _, rule := range r.Rules {
		due[rule.Kind] = rule.Due
	}
	// Of the hand-overs: all but the one that is pending, and the one of the rollout under way. Of the tokens: the session, one without a
	// session; the token that the session began with follows it.
	s.want(due, map[retention.Kind]int{
		retention.Requests: 2, retention.Handoffs: before[retention.Handoffs] - 2, retention.Closings: 1, retention.SignIns: 2,
		retention.TriedCalls: 0,
	})
	deletes(map[retention.Kind]int{})
	s.want(counts(), before)

	_, err = u.SetHold(t.Context(), user(), false, "case 7 is closed")
	s.ok(err)
	delete(due, retention.TriedCalls) // none is due: TestCallsThatWereTriedEnd
	deletes(due)
	deletes(map[retention.Kind]int{retention.SignIns: 1})
	deletes(map[retention.Kind]int{})
	after := counts()
	for kind, n := range due {
		if kind == retention.SignIns {
			n++
		}
		if after[kind] != before[kind]-n {
			t.Errorf("%s: %d rows are left of %d, expected %d fewer", kind, after[kind], before[kind], n)
		}
	}
	var journal, others int
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_changes
		WHERE action IN ('setRetention', 'setLegalHold')`).Scan(&journal))
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_requests WHERE organization_id = 2`).Scan(&others))
	s.want([]int{journal, others}, []int{len(retention.Kinds()) + 2, 4})
	s.verifyJournal(done)
}

// D65: only owners, within bounds, with a reason for a hold.
func TestRetentionIsForOwnersAndBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u := retention.New(s.store.ForRetention())
	maintainer := user()
	maintainer.Permissions = core.RoleMaintainer.Permissions()
	for name, call := range map[string]func(a core.Actor) error{
		"read": func(a core.Actor) error { _, err := u.Retention(t.Context(), a); return err },
		"set":  func(a core.Actor) error { _, err := u.Set(t.Context(), a, retention.Requests, 30, ""); return err },
		"hold": func(a core.Actor) error { _, err := u.SetHold(t.Context(), a, true, "case"); return err },
	} {
		if err := call(maintainer); !fault.Is(err, fault.Denied) {
			t.Errorf("%s by a maintainer: %v, expected a denial", name, err)
		}
		s.ok(call(user()))
	}
	for _, bad := range []struct {
		kind retention.Kind
		days int
	}{{"journal", 30}, {retention.Requests, 6}, {retention.Requests, 3651}, {retention.Requests, -1}} {
		if _, err := u.Set(t.Context(), user(), bad.kind, bad.days, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s for %d days: %v, expected a refusal", bad.kind, bad.days, err)
		}
	}
	_, err := u.SetHold(t.Context(), user(), true, " ")
	s.want(fault.ClassOf(err), fault.Invalid)
}

// D65, D51: calls on which policies were only tried out end after 30 days, or by the rule of their organization; what policies denied,
// and what people were asked, is kept, and so is everything under a legal hold.
func TestCallsThatWereTriedEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.pool.Exec(t.Context(), `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason,
			approver_group, quorum, requester_may, expires_at, decision, request, created_at)
		SELECT o, 'run', kind || age || '-' || quorum, 'act', kind, '', '', '', quorum, false, NULL, '{}', '{}',
			now() - make_interval(days => age)
		FROM unnest(ARRAY[1, 2]) o, unnest(ARRAY[5, 20, 29, 31, 60]) age,
			(VALUES ('permitted', 0), ('permitted', 1), ('denied', 0), ('refused', 1)) AS kinds (kind, quorum)`)
	s.ok(err)
	u := retention.New(s.store.ForRetention())
	tried := `SELECT count(*)::int FROM cd_call_requests WHERE state = 'permitted' AND quorum = 0 AND organization_id = `
	_, err = u.SetHold(t.Context(), user(), true, "case 7")
	s.ok(err)
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want([]int{s.countOf(tried + "1"), s.countOf(tried + "2")}, []int{5, 3}) // the other organization is under no hold
	_, err = u.SetHold(t.Context(), user(), false, "closed")
	s.ok(err)
	r, err := u.Retention(t.Context(), user())
	s.ok(err)
	at := len(r.Rules) - 1
	s.want(r.Rules[at], retention.Rule{Kind: retention.TriedCalls, KeepDays: 30, Due: 2})
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want(s.countOf(tried+"1"), 3)
	_, err = u.Set(t.Context(), user(), retention.TriedCalls, 7, "they are many")
	s.ok(err)
	_, err = u.DeleteDue(t.Context())
	s.ok(err)
	s.want([]int{s.countOf(tried + "1"), s.countOf(tried + "2")}, []int{1, 3})
	_, err = u.Set(t.Context(), user(), retention.TriedCalls, 0, "for the auditor")
	s.ok(err)
	s.want(s.countOf(`SELECT count(*)::int FROM cd_call_requests WHERE organization_id = 1`), 16)
}
