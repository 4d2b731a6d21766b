package graph_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// D57: the API shows display names, and takes them where it takes the names of environments and services.
func TestDisplayNamesByTheAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	for _, c := range []struct {
		mutation, object string
		input            map[string]any
	}{
		{"renameEnvironment", "environment", map[string]any{"environmentId": "environment_1", "displayName": "rehearsal"}},
		{"renameService", "service", map[string]any{"serviceId": "service_1", "displayName": "front"}},
	} {
		p := f.change(ours, c.mutation, c.object, "name displayName", c.input)
		if len(p.Errors) > 0 || p.Object["displayName"] != c.input["displayName"] || p.Object["name"] == p.Object["displayName"] {
			t.Fatalf("%s: %+v", c.mutation, p)
		}
	}
	var data struct {
		Environment  struct{ ID, Name, DisplayName string }
		Environments struct {
			Nodes []struct{ Name, DisplayName string }
		}
		Rollouts, None struct{ TotalCount int }
	}
	f.ask(ours, `{ environment(name: "rehearsal") { id name displayName } environments(name: "HEARS") { nodes { name displayName } }
		rollouts(environment: "rehearsal") { totalCount } none: rollouts(environment: "environment_1") { totalCount } }`, nil).into(t, &data)
	if e := data.Environment; e.ID != "environment_1" || e.Name != "staging" || e.DisplayName != "rehearsal" {
		t.Errorf("found %+v", e)
	}
	if all := data.Environments.Nodes; len(all) != 1 || all[0].Name != "staging" {
		t.Errorf("a part of the display name: found %+v", all)
	}
	if data.Rollouts.TotalCount == 0 || data.Rollouts.TotalCount != data.None.TotalCount {
		t.Errorf("rollouts by display name and by identifier: found %d and %d", data.Rollouts.TotalCount, data.None.TotalCount)
	}
	// The scope of a rollout: of two, only what does not exist is refused.
	p := f.change(ours, "createRollout", "rollout", "id", map[string]any{"versionSetId": "versionset_1", "environments": []string{"rehearsal", "nowhere"}})
	if len(p.Errors) != 1 || strings.Join(p.Errors[0].Field, "/") != "environments/1" || !strings.Contains(p.Errors[0].Message, `found "nowhere"`) {
		t.Errorf("a scope by display name: %+v", p.Errors)
	}
	taken := f.change(ours, "renameEnvironment", "environment", "id", map[string]any{"environmentId": "environment_1", "displayName": "production"})
	if len(taken.Errors) != 1 || taken.Errors[0].Code != "CONFLICT" || cmp.Diff([]string{"displayName"}, taken.Errors[0].Field) != "" {
		t.Errorf("a name that is taken: %+v", taken.Errors)
	}
}
