package graph_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// TestTargetsAreAConnection pages through the targets of a rollout from both ends (D61), and sets labels by the API.
func TestTargetsAreAConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 5 {
		agent := f.register(ours, fmt.Sprintf("c%d", i+1)).Agent.ID
		labelled := f.agents(ours, "setAgentLabels", "SetAgentLabelsInput", map[string]any{"agentId": agent, "set": map[string]any{"a": "b"}}, "")
		if len(labelled.Errors) > 0 {
			t.Fatalf("labels: %+v", labelled.Errors)
		}
		for field, in := range map[string]map[string]any{
			"/set": {"agentId": agent, "set": nil}, "/set/a": {"agentId": agent, "set": map[string]any{"a": nil}},
		} {
			wrong := f.agents(ours, "setAgentLabels", "SetAgentLabelsInput", in, "")
			if len(wrong.Errors) != 1 || wrong.Errors[0].Code != "INVALID" {
				t.Errorf("null at %s: %+v", field, wrong.Errors)
			}
		}
	}
	e := must(f.setup.CreateEnvironment(t.Context(), actor(ours), setup.NewEnvironment{
		Name: "edge", Tier: core.TierQA, DriverRef: "argo-rollouts@1",
		DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.clusterOf(ours))),
		Fleet:        json.RawMessage(`{"selector":{"a":"b"},"waves":[{"targets":2}]}`),
	}))(t)
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: e.ID, Ready: true})
	shop := f.application(ours, "shop", "api")
	f.pipeline(ours, shop, e)
	r := f.rollout(ours, shop)
	list := place{`%s`, `{ name wave }`}
	of := fmt.Sprintf(`rolloutId: "rollout_%d", environment: "edge"`, r.ID)
	whole := list.page(f, "rolloutTargets", of, "totalCount")
	all := whole.items()
	want := []string{
		`{"name":"c1","wave":1}`, `{"name":"c2","wave":1}`, `{"name":"c3","wave":2}`, `{"name":"c4","wave":2}`, `{"name":"c5","wave":3}`,
	}
	if diff := cmp.Diff(want, all); diff != "" || whole.TotalCount != 5 {
		t.Fatalf("total %d; targets (-want +got):\n%s", whole.TotalCount, diff)
	}
	for arguments, c := range map[string]struct{ from, to, total int }{
		"first: 2": {0, 2, 5}, "last: 2": {3, 5, 5},
		fmt.Sprintf("first: 2, after: %q", whole.Edges[1].Cursor): {2, 4, 5},
		fmt.Sprintf("first: 2, after: %q", whole.Edges[4].Cursor): {5, 5, 5},
		fmt.Sprintf("last: 2, before: %q", whole.Edges[3].Cursor): {1, 3, 5},
		"first: 9, wave: 0, state: PENDING":                       {0, 5, 5},
	} {
		page := list.page(f, "rolloutTargets", of+", "+arguments, "totalCount")
		if diff := cmp.Diff(all[c.from:c.to], page.items()); diff != "" || page.TotalCount != c.total ||
			page.PageInfo.HasPreviousPage != (c.from > 0) || page.PageInfo.HasNextPage != (c.to < 5) {
			t.Errorf("%s: total %d, %+v (-want +got):\n%s", arguments, page.TotalCount, page.PageInfo, diff)
		}
	}
	if wave := list.page(f, "rolloutTargets", of+", wave: 2", "totalCount"); wave.TotalCount != 2 {
		t.Errorf("wave 2: %+v", wave)
	}
	if none := list.page(f, "rolloutTargets", of+", state: FAILED", "totalCount"); none.TotalCount != 0 {
		t.Errorf("failed: %+v", none)
	}
}
