package domain

import (
	"fmt"
	"strings"
	"testing"
)

// D50, issue 16: who did what, where and when is found by an index, in any combination of the conditions: each is asked of an organization
// and of one that is three times as large, and visits about as many rows in both.
func TestAnAuditCostsWhatItShows(t *testing.T) {
	long(t)
	t.Parallel()
	const (
		times        = 3
		ratio, slack = 1.25, 600
	)
	build := func(n int) *filled {
		f := fill(t, map[string]int{"applications": 300 * n, "environments": 50, "rollouts": 900 * n, "active": 100 * n, "asking": 60})
		_, err := f.pool.Exec(t.Context(), `INSERT INTO cd_members (id, organization_id, name, kind, role)
			OVERRIDING SYSTEM VALUE VALUES (3, 1, 'alice', 'user', 'owner')`)
		f.ok(err)
		// One in a hundred is by another member, or another action; an application has ten.
		_, err = f.pool.Exec(t.Context(), `INSERT INTO cd_changes (organization_id, principal_type, principal_id, principal_name, action,
			subject_kind,
			subject_number, subject_name, application_id, environment_id, created_at)
			SELECT 1, 'user', CASE WHEN k % $2 = 0 THEN 3 ELSE 1 END, 'alice', CASE WHEN k % $2 = 1 THEN 'rare' ELSE 'setRollbackPolicy' END,
			       'application', k, 'x', 1 + k % $3, 1 + k % 50, '2026-01-01'::timestamptz + k * interval '1 minute'
			FROM generate_series(1, $1::integer) k`, 3000*n, 100*n, 300*n)
		f.ok(err)
		_, err = f.pool.Exec(t.Context(), `ANALYZE cd_changes`)
		f.ok(err)
		return f
	}
	small, large := build(1), build(times)
	conditions := []string{
		`principal: "member_3"`, `action: "rare"`, `application: "application-00007"`, `environment: "environment-07"`,
		`since: "2026-01-02T00:00:00Z", until: "2026-01-02T01:00:00Z"`,
	}
	for chosen := range 1 << len(conditions) {
		var filter []string
		for i, condition := range conditions {
			if chosen>>i&1 == 1 {
				filter = append(filter, condition)
			}
		}
		where := ""
		if len(filter) > 0 {
			where = fmt.Sprintf("filter: {%s}, ", strings.Join(filter, ", "))
		}
		document := fmt.Sprintf(`{ audit(%sfirst: 50) { nodes { action principalName createdAt } pageInfo { endCursor } } }`, where)
		few, shown := small.cost(document, "", nil)
		many, size := large.cost(document, "", nil)
		fuller := max(1, float64(size)/float64(shown))
		t.Logf("%6.0f rows, %6.0f of %d times as many: %s", sum(few), sum(many), times, strings.Join(filter, ", "))
		for name, n := range many {
			if n > few[name]*fuller*ratio+slack {
				t.Errorf("%s: %s visits %.0f rows, and %.0f where there are %d times as many", where, name, few[name], n, times)
			}
		}
	}
}
