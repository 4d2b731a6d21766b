package graph_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// userError is one of a payload.
type userError struct {
	Field   []string `json:"field"`
	Message string   `json:"message"`
	Code    string   `json:"code"`
}

// payload is what any mutation answers, its object under the alias "object".
type payload struct {
	Object map[string]any `json:"object"`
	Errors []userError    `json:"errors"`
}

// change sends one mutation; fields are those of its object.
func (f *fixture) change(organization int64, mutation, object, fields string, input map[string]any) payload {
	f.t.Helper()
	kind := strings.ToUpper(mutation[:1]) + mutation[1:] + "Input"
	if mutation == "approveGate" || mutation == "rejectGate" {
		kind = "ResolveGateInput"
	}
	a := f.ask(organization, "mutation($input: "+kind+"!) { it: "+mutation+"(input: $input) { object: "+object+" { "+fields+
		" } errors { field message code } } }",
		map[string]any{"input": input})
	var data struct {
		It payload `json:"it"`
	}
	a.into(f.t, &data)
	return data.It
}

func deployTo(environment string, config map[string]any) map[string]any {
	return map[string]any{"steps": []map[string]any{{"type": "deploy", "environment": environment, "config": config}}}
}

func shopConfig() map[string]any {
	return map[string]any{
		"namespace": "argocd", "application": "shop", "rollout_strategy": "canary", "use_load_balancing": false,
		"repository_url": "https://git.example.com/shop.git", "path": "staging", "destination_namespace": "shop",
		"services": []map[string]any{{"service": "api", "file": "staging/api.yaml", "container": "api"}},
	}
}

// TestARolloutFromNothing makes everything through the API alone, as the demo does.
func TestARolloutFromNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := func(got payload, object map[string]any) {
		t.Helper()
		if diff := cmp.Diff(payload{Object: object, Errors: []userError{}}, got); diff != "" {
			t.Fatalf("payload (-want +got):\n%s", diff)
		}
	}
	want(f.change(ours, "createApplication", "application", "id name description services { name artifactSources { sourceConfig } }",
		map[string]any{
			"name": "shop", "services": []map[string]any{{"name": "api", "artifactSources": []map[string]any{
				{"sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": "r.example.com/shop/api"}},
			}}},
		}), map[string]any{"id": "application_1", "name": "shop", "description": "", "services": []any{map[string]any{
		"name": "api", "artifactSources": []any{map[string]any{"sourceConfig": map[string]any{"image": "r.example.com/shop/api"}}},
	}}})
	want(f.change(ours, "createEnvironment", "environment", "id tier readiness driverBindings { driverConfig }", map[string]any{
		"name": "staging", "tier": "STAGING", "driverRef": "argo-rollouts@1",
		"driverConfig": map[string]any{"cluster_agent_id": f.clusterOf(ours)},
	}), map[string]any{"id": "environment_1", "tier": "STAGING", "readiness": "PENDING", "driverBindings": []any{
		map[string]any{"driverConfig": map[string]any{"cluster_agent_id": 42.0}},
	}})
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: 1, Ready: true})
	want(f.change(ours, "createFlowDefinition", "flowDefinition", "id version", map[string]any{
		"application": "shop", "definition": deployTo("staging", shopConfig()),
	}), map[string]any{"id": "flowdefinition_1", "version": 1.0})
	f.apply(ours, rollout.ApplicationEnvironmentReadiness{ApplicationEnvironmentID: 1, Ready: true})
	want(f.change(ours, "retryApplicationEnvironmentSetup", "applicationEnvironment", "id readiness",
		map[string]any{"applicationEnvironmentId": "applicationenvironment_1"}),
		map[string]any{"id": "applicationenvironment_1", "readiness": "PENDING"})
	f.apply(ours, rollout.ApplicationEnvironmentReadiness{ApplicationEnvironmentID: 1, Ready: true})
	f.publish(ours, "shop/api", "1.0", 1)
	want(f.change(ours, "previewRollout", "preview", "id state versionSet { id } environments { reason }",
		map[string]any{"versionSetId": "versionset_1"}),
		map[string]any{"id": "rolloutpreview_1", "state": "PENDING", "versionSet": map[string]any{"id": "versionset_1"}, "environments": []any{}})
	f.apply(ours, rollout.Previewed{
		PreviewID: 1,
		Environments: []core.PreviewedEnvironment{{
			EnvironmentID: 1,
			Changes:       []core.FileChange{{Path: "staging/api.yaml", Diff: "@@", Truncated: true}},
		}},
	})
	var previewed struct{ RolloutPreview any }
	f.ask(ours, `{ rolloutPreview(id: "rolloutpreview_1") { state reason environments { environment { name } reason changes { path diff truncated } } } }`, nil).into(t, &previewed)
	if diff := cmp.Diff(any(map[string]any{"state": "MADE", "reason": "", "environments": []any{map[string]any{
		"environment": map[string]any{"name": "staging"}, "reason": "",
		"changes": []any{map[string]any{"path": "staging/api.yaml", "diff": "@@", "truncated": true}},
	}}}), previewed.RolloutPreview); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
	want(f.change(ours, "createRollout", "rollout", "id state strategy strategyReason awaitingApproval journal { nodes { event reason } }",
		map[string]any{"versionSetId": "versionset_1", "reason": "first"}),
		map[string]any{"id": "rollout_1", "state": "PENDING", "awaitingApproval": false, "journal": map[string]any{"nodes": []any{
			map[string]any{"event": "create", "reason": "first"},
			map[string]any{"event": "plan", "reason": "quick sync: the pipeline has no weights where the rollout goes"},
			map[string]any{"event": "create", "reason": nil},
			map[string]any{"event": "create", "reason": nil},
		}}, "strategy": "QUICK", "strategyReason": "the pipeline has no weights where the rollout goes"})
	f.apply(ours, rollout.ApprovalRequested{RolloutID: 1, GateID: "staging", Reason: "who says so?"})
	want(f.change(ours, "approveGate", "rollout", "id state awaitingApproval",
		map[string]any{"rolloutId": "rollout_1", "gateId": "staging", "reason": "fine"}),
		map[string]any{"id": "rollout_1", "state": "IN_PROGRESS", "awaitingApproval": false})
	want(f.change(ours, "setRollbackPolicy", "application", "id rollbackPolicy { onFailed onDegraded degradedAfterSeconds }",
		map[string]any{"application": "shop", "onFailed": false, "onDegraded": true, "degradedAfterSeconds": 90}),
		map[string]any{"id": "application_1", "rollbackPolicy": map[string]any{
			"onFailed": false, "onDegraded": true,
			"degradedAfterSeconds": 90.0,
		}})
	want(f.change(ours, "pauseRollout", "rollout", "id state pauseRequested", map[string]any{"rolloutId": "rollout_1", "reason": "wait"}),
		map[string]any{"id": "rollout_1", "state": "IN_PROGRESS", "pauseRequested": true})
	f.apply(ours, rollout.PassageRequested{RolloutID: 1, GateID: "staging"})
	want(f.change(ours, "resumeRollout", "rollout", "id state pauseRequested", map[string]any{"rolloutId": "rollout_1", "reason": "go"}),
		map[string]any{"id": "rollout_1", "state": "IN_PROGRESS", "pauseRequested": false})
	f.apply(ours, rollout.GatePassage{DeploymentID: 1, Verb: core.VerbReachGate, Weight: 25})
	f.apply(ours, rollout.GateReached{RolloutID: 1, EnvironmentID: 1, Weight: 25})
	want(f.change(ours, "pauseRollout", "rollout", "id state environments { deployments { gates { gateId weight passedAt } } }",
		map[string]any{"rolloutId": "rollout_1"}),
		map[string]any{
			"id": "rollout_1", "state": "PAUSED",
			"environments": []any{map[string]any{"deployments": []any{map[string]any{"gates": []any{
				map[string]any{"gateId": "staging/25", "weight": 25.0, "passedAt": nil},
			}}}}},
		})
	want(f.change(ours, "cancelRollout", "rollout", "id state", map[string]any{"rolloutId": "rollout_1", "reason": "enough"}),
		map[string]any{"id": "rollout_1", "state": "CANCELLED"})
	refused := f.change(ours, "createRollout", "rollout", "id", map[string]any{"versionSetId": "versionset_1", "strategy": "PIPELINE"}) // R4-18
	if e := refused.Errors; len(e) != 1 || e[0].Code != "INVALID" || strings.Join(e[0].Field, "/") != "strategy" ||
		!strings.Contains(e[0].Message, "has no weights where the rollout goes; expected auto or quick") {
		t.Errorf("a pipeline without weights: %+v", refused)
	}
	// R4-20: the plan is shown with the versions that it deploys.
	want(f.change(ours, "createRollout", "rollout", "id strategyReason versionSet { entries { version { name } } }",
		map[string]any{"versionSetId": "versionset_1", "strategy": "QUICK"}),
		map[string]any{"id": "rollout_2", "strategyReason": "the requester chose a quick sync", "versionSet": map[string]any{"entries": []any{
			map[string]any{"version": map[string]any{"name": "1.0"}},
		}}})
	f.apply(ours, rollout.ApprovalRequested{RolloutID: 2, GateID: "staging"})
	want(f.change(ours, "rejectGate", "rollout", "id state", map[string]any{"rolloutId": "rollout_2", "gateId": "staging", "reason": "no"}),
		map[string]any{"id": "rollout_2", "state": "CANCELLED"})
	want(f.change(ours, "createRollout", "rollout", "id deadlines { kind atWork }", map[string]any{"versionSetId": "versionset_1"}),
		map[string]any{"id": "rollout_3", "deadlines": []any{map[string]any{"kind": "ENVIRONMENT", "atWork": true}}})
	want(f.change(ours, "cancelRollout", "rollout", "state journal(last: 1) { nodes { reason } }",
		map[string]any{"rolloutId": "rollout_3", "then": "LEAVE", "reason": "enough"}),
		map[string]any{"state": "CANCELLED", "journal": map[string]any{"nodes": []any{map[string]any{"reason": "the rollout was cancelled: what is deployed stays: enough"}}}})
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: 1, Reason: "the cluster is gone"})
	want(f.change(ours, "retryEnvironmentOnboarding", "environment", "id readiness", map[string]any{"environmentId": "environment_1"}),
		map[string]any{"id": "environment_1", "readiness": "PENDING"})
}

func TestUserErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story() // rollout_2 of shop is active, with the gate "production" open
	source := map[string]any{"sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": "r.example.com/a"}}
	application := func(name string, services ...map[string]any) map[string]any {
		return map[string]any{"name": name, "services": append([]map[string]any{}, services...)}
	}
	svc := func(name string, sources ...map[string]any) map[string]any {
		return map[string]any{"name": name, "artifactSources": sources}
	}
	environment := func(name, driver string, config any) map[string]any {
		return map[string]any{"name": name, "tier": "QA", "driverRef": driver, "driverConfig": config}
	}
	gate := func(rollout, gate string) map[string]any { return map[string]any{"rolloutId": rollout, "gateId": gate} }
	tests := []struct {
		name, mutation, object string
		input                  map[string]any
		code                   string
		field                  string // joined by slashes
		part                   string
	}{
		{"name taken", "createApplication", "application", application("shop", svc("api", source)), "CONFLICT", "", `"shop" exists already`},
		{"bad name", "createApplication", "application", application("", svc("api", source)), "INVALID", "name", "expected 1 to 63 letters"},
		{"no services", "createApplication", "application", application("x"), "INVALID", "services", "found none"},
		{
			"bad source", "createApplication", "application",
			application("x", svc("api", map[string]any{"sourceRef": "ftp@1", "sourceConfig": map[string]any{}})), "INVALID",
			"services/0/artifactSources/0/sourceRef", `found "ftp@1"`,
		},
		{"unknown driver", "createEnvironment", "environment", environment("x", "nomad@1", map[string]any{}), "INVALID", "driverRef", "nomad@1"},
		{
			"bad config", "createEnvironment", "environment", environment("x", "argo-rollouts@1", map[string]any{"cluster_agent_id": "forty-two"}),
			"INVALID", "driverConfig/cluster_agent_id", "",
		},
		{
			"unknown agent", "createEnvironment", "environment", environment("x", "argo-rollouts@1", map[string]any{"cluster_agent_id": 7}),
			"INVALID", "driverConfig/cluster_agent_id", "agent 7 does not exist",
		},
		{"agent of another organization", "createEnvironment", "environment", environment("x", "argo-rollouts@1",
			map[string]any{"cluster_agent_id": f.clusterOf(theirs)}), "INVALID", "driverConfig/cluster_agent_id", "agent 43 does not exist"},
		{
			"environment taken", "createEnvironment", "environment",
			environment("staging", "argo-rollouts@1", map[string]any{"cluster_agent_id": 42}), "CONFLICT", "", "exists already",
		},
		{"unknown application", "createFlowDefinition", "flowDefinition", map[string]any{
			"application": "nothing",
			"definition":  deployTo("staging", shopConfig()),
		}, "NOT_FOUND", "application", "does not exist"},
		{"unknown application by id", "createFlowDefinition", "flowDefinition", map[string]any{
			"application": "application_99",
			"definition":  deployTo("staging", shopConfig()),
		}, "NOT_FOUND", "application", "does not exist"},
		{
			"unsupported step", "createFlowDefinition", "flowDefinition",
			map[string]any{"application": "shop", "definition": map[string]any{"steps": []map[string]any{{
				"type":        "deploy",
				"environment": "staging", "config": shopConfig(),
			}, {"type": "analysis", "name": "x"}}}},
			"INVALID",
			"definition/steps/1/type", "analysis",
		},
		{"unknown environment", "createFlowDefinition", "flowDefinition", map[string]any{
			"application": "shop",
			"definition":  deployTo("moon", shopConfig()),
		}, "INVALID", "definition/steps/0/environment", "moon"},
		{
			"bad version set id", "createRollout", "rollout",
			map[string]any{"versionSetId": "rollout_1"},
			"INVALID", "versionSetId",
			`expected "versionset_"`,
		},
		{
			"unknown version set", "createRollout", "rollout",
			map[string]any{"versionSetId": "versionset_99"},
			"NOT_FOUND",
			"versionSetId", "does not exist",
		},
		{"second rollout", "createRollout", "rollout", map[string]any{"versionSetId": "versionset_1"}, "REFUSED", "", "rollout_2 is in progress"},
		{"unknown gate", "approveGate", "rollout", gate("rollout_2", "nothing"), "REFUSED", "", `"nothing"`},
		{"bad rollout id", "rejectGate", "rollout", gate("x", "production"), "INVALID", "rolloutId", `expected "rollout_"`},
		{"unknown rollout", "cancelRollout", "rollout", map[string]any{"rolloutId": "rollout_99"}, "NOT_FOUND", "rolloutId", "does not exist"},
		{"unending wait", "setRollbackPolicy", "application", map[string]any{
			"application": "shop", "onFailed": true, "onDegraded": true,
			"degradedAfterSeconds": 604801,
		}, "INVALID", "degradedAfterSeconds", "expected 0 to 604800"},
		{
			"policy of nothing", "setRollbackPolicy", "application",
			map[string]any{"application": "nothing", "onFailed": true, "onDegraded": true},
			"NOT_FOUND", "application", "does not exist",
		},
		{
			"unknown rollout to pause", "pauseRollout", "rollout",
			map[string]any{"rolloutId": "rollout_99"},
			"NOT_FOUND",
			"rolloutId", "does not exist",
		},
		{"not paused", "resumeRollout", "rollout", map[string]any{"rolloutId": "rollout_2"}, "REFUSED", "", "nobody has paused it"},
		{"pause of what is over", "pauseRollout", "rollout", map[string]any{"rolloutId": "rollout_1"}, "REFUSED", "", "has ended: failed"},
		{
			"no rollback", "rollbackRollout", "rollout",
			map[string]any{"rolloutId": "rollout_1"},
			"REFUSED", "",
			"nothing was live before rollout_1",
		},
		{
			"back to nowhere", "rollbackRollout", "rollout",
			map[string]any{"rolloutId": "rollout_1", "versionSetId": "versionset_99"},
			"NOT_FOUND",
			"", "version set 99",
		},
		{"rollout is over", "cancelRollout", "rollout", map[string]any{"rolloutId": "rollout_1"}, "REFUSED", "", "failed"},
		{
			"bad environment id", "retryEnvironmentOnboarding", "environment",
			map[string]any{"environmentId": "staging"},
			"INVALID",
			"environmentId", `expected "environment_"`,
		},
		{
			"unknown setup", "retryApplicationEnvironmentSetup", "applicationEnvironment",
			map[string]any{"applicationEnvironmentId": "applicationenvironment_99"},
			"NOT_FOUND", "applicationEnvironmentId", "does not exist",
		},
	}
	for _, tt := range tests {
		p := f.change(ours, tt.mutation, tt.object, "id", tt.input)
		if p.Object != nil || len(p.Errors) == 0 {
			t.Errorf("%s: payload is %+v, want errors alone", tt.name, p)
			continue
		}
		e := p.Errors[0]
		if e.Code != tt.code || strings.Join(e.Field, "/") != tt.field || !strings.Contains(e.Message, tt.part) {
			t.Errorf("%s: error is %+v, want %s about %q that says %q", tt.name, e, tt.code, tt.field, tt.part)
		}
	}
}
