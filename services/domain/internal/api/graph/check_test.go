package graph_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// D48: the checks of a rollout are read with their reports, and those that an environment requires as they were written. Another
// organization sees neither.
func TestChecksAreRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	var environment, name string
	if err := f.owner.QueryRow(t.Context(), `SELECT 'environment_' || e.id, e.name FROM cd_rollout_environments r
		JOIN cd_environments e ON e.id = r.environment_id WHERE r.rollout_id = 1
		ORDER BY r.position LIMIT 1`).Scan(&environment, &name); err != nil {
		t.Fatal(err)
	}
	if _, err := f.owner.Exec(t.Context(), `INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, own, kind, duration_seconds)
		SELECT 1, 1, id, 'active', 'healthy', true, 'status', 0 FROM cd_environments WHERE name = $1`, name); err != nil {
		t.Fatal(err)
	}
	required := map[string]any{"active": []any{map[string]any{"key": "healthy"}}}
	f.change(ours, "setEnvironmentChecks", "environment", "id", map[string]any{"environmentId": environment, "checks": required})
	var set struct {
		Rollout struct{ VersionSet struct{ ID string } }
	}
	f.ask(ours, `{ rollout(id: "rollout_1") { versionSet { id } } }`, nil).into(t, &set)
	if p := f.change(ours, "reportCheck", "report", "key", map[string]any{
		"application": "shop", "environment": name, "versionSetId": set.Rollout.VersionSet.ID, "key": "healthy", "phase": "FAILURE",
		"description": "slow", "link": "https://ci.test/1",
	}); len(p.Errors) > 0 {
		t.Fatalf("%+v", p.Errors)
	}
	var got, want any
	f.ask(ours, `{ rollout(id: "rollout_1") { checks { environment { name checks } target key kind own phase detail link next
		reports { reporter description application { name } } } } }`, nil).into(t, &got)
	text := `{"rollout": {"checks": [{"environment": {"name": "` + name + `", "checks": {"active": [{"key": "healthy"}]}}, "target": "ACTIVE", "key": "healthy",
		"kind": "STATUS", "own": true, "phase": "FAILURE", "detail": "failure by user 7: slow", "link": "https://ci.test/1", "next": null,
		"reports": [{"reporter": "user 7", "description": "slow", "application": {"name": "shop"}}]}]}}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if a := f.ask(theirs, `{ rollout(id: "rollout_1") { checks { key } } }`, nil); len(a.Errors) == 0 && string(a.Data) != `{"rollout":null}` {
		t.Errorf("another organization was answered %s", a.Data)
	}
}
