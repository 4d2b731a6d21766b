package graph_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
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

// D57, D50: renaming takes a second person where an environment is under change control. What was proposed with a display name goes where
// it went then, also if another environment is shown by it when it is confirmed.
func TestProposalsDoNotFollowDisplayNames(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	rename := func(a core.Actor, environment core.Environment, name string) error {
		_, err := c.setup.RenameEnvironment(t.Context(), a, setup.Displaying{ID: environment.ID, DisplayName: name})
		return err
	}
	confirm := func(err error) {
		t.Helper()
		must(c.control.Confirm(t.Context(), c.bob, c.proposed(err).ID, ""))(t)
	}
	confirm(rename(c.alice, c.production, "live"))
	found := must(c.view.EnvironmentByName(t.Context(), ours, "live"))(t)
	if found.ID != c.production.ID {
		t.Errorf("confirmed: found %+v", found)
	}
	pipelines := must(c.view.LatestFlowDefinitions(t.Context(), ours, []int64{c.shop.ID}))(t)
	definition := string(pipelines[c.shop.ID].Definition)
	written := strings.ReplaceAll(definition, `"production"`, `"live"`)
	if written == definition {
		t.Fatalf("nothing of %s is written otherwise", definition)
	}
	_, err := c.setup.CreateFlowDefinition(t.Context(), c.alice, setup.NewFlowDefinition{
		ApplicationID: c.shop.ID, Definition: json.RawMessage(strings.Replace(written, `"steps"`, `"deadline":{"after":60},"steps"`, 1)),
	})
	p := c.proposed(err)
	confirm(rename(c.alice, c.production, "production"))
	if err := rename(c.alice, c.staging, "live"); err != nil {
		confirm(err)
	}
	must(c.control.Confirm(t.Context(), c.bob, p.ID, ""))(t)
	pipelines = must(c.view.LatestFlowDefinitions(t.Context(), ours, []int64{c.shop.ID}))(t)
	if now := string(pipelines[c.shop.ID].Definition); strings.Contains(now, `"environment": "live"`) || !strings.Contains(now, `"environment": "production"`) {
		t.Errorf("confirmed later: found %s", now)
	}
}
