package driver

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the built-in driver changes follows from its configurations, with the defaults of their schemas (D46).
func TestPlacesOfTheBuiltInDriver(t *testing.T) {
	t.Parallel()
	all, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := all.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	config := `{"application": "shop", "repository_url": "https://git.example.com/deploy", "path": "production/", "destination_namespace": "shop",
		"services": [{"service": "api", "file": "production/api.yaml"}, {"service": "web", "file": "values.yaml", "rollout_file": "base/web.yaml"}]}`
	discovered := `{"services": {"api": {"rollout_name": "api", "rollout_namespace": "shop"}, "web": {"rollout_name": "web", "rollout_namespace": "web"}}}`
	const repository = "https://git.example.com/deploy"
	declared := []Place{
		{AgentID: 42, Application: "argocd/shop"},
		{AgentID: 42, Namespace: "shop"},
		{AgentID: 42, Namespace: "shop", Name: "api"},
		{AgentID: 42, Namespace: "web", Name: "web"},
		{Repository: repository, Branch: "main", Path: "production"},
		{Repository: repository, Branch: "main", Path: "production/api.yaml"},
		{Repository: repository, Branch: "main", Path: "values.yaml"},
		{Repository: repository, Branch: "main", Path: "base/web.yaml"},
	}
	for name, tt := range map[string]struct {
		discovered string
		want       []Place
	}{
		"set up":     {discovered, declared},
		"not set up": {"", append(append([]Place{}, declared[:2]...), declared[4:]...)},
		"null":       {"null", append(append([]Place{}, declared[:2]...), declared[4:]...)},
	} {
		got, err := b.Places(json.RawMessage(`{"cluster_agent_id": 42}`), json.RawMessage(config), json.RawMessage(tt.discovered))
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := b.Places(nil, json.RawMessage(`{`), nil); err == nil {
		t.Error("a configuration that is not JSON: no error")
	}
}

// Flux is asked at its two objects and nowhere else, and their namespaces have defaults (D46).
func TestPlacesOfFlux(t *testing.T) {
	t.Parallel()
	all, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := all.Get("flux@1")
	if err != nil {
		t.Fatal(err)
	}
	config := `{"repository_url": "https://git/x.git", "branch": "main", "name": "shop", "services": [{"service": "api", "file": "a.yaml"}]`
	for more, want := range map[string][]Place{
		"}": {{AgentID: 42, Namespace: "flux-system", Name: "shop"}, {AgentID: 42, Namespace: "flux-system", Name: "flux-system"}},
		`, "namespace": "team", "source_namespace": "team", "source_name": "deploy"}`: {
			{AgentID: 42, Namespace: "team", Name: "shop"}, {AgentID: 42, Namespace: "team", Name: "deploy"},
		},
	} {
		want = append([]Place{{Repository: "https://git/x.git", Branch: "main", Path: "a.yaml"}}, want...)
		got, err := b.Places(json.RawMessage(`{"cluster_agent_id": 42}`), json.RawMessage(config+more), nil)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", more, err, diff)
		}
	}
	// What the environment allows holds for the defaults, too.
	limited := json.RawMessage(`{"cluster_agent_id": 42, "namespaces": ["team-*"]}`)
	if err := b.CheckAllowed(limited, json.RawMessage(config+"}")); err == nil {
		t.Error("flux-system is allowed, expected team-* alone")
	}
}

// The Argo Server is changed only below the path of the namespace (D46, R2-33).
func TestPlacesOfArgoWorkflows(t *testing.T) {
	t.Parallel()
	all, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	b, err := all.Get("argo-workflows@1")
	if err != nil {
		t.Fatal(err)
	}
	for environment, want := range map[string][]Place{
		`{"cluster_agent_id": 42}`: {{AgentID: 42, Namespace: "work"}},
		`{"access": "server", "server_url": "argo.example.com/", "credential": "argo"}`:  {{URL: "https://argo.example.com/api/v1/workflows/work"}},
		`{"access": "server", "server_url": "http://argo:2746/x", "credential": "argo"}`: {{URL: "http://argo:2746/x/api/v1/workflows/work"}},
	} {
		got, err := b.Places(json.RawMessage(environment), json.RawMessage(`{"namespace": "work", "template": "x"}`), nil)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", environment, err, diff)
		}
	}
	if got, err := b.Places(json.RawMessage(`{"cluster_agent_id": 42}`), json.RawMessage(`{"template": "x"}`), nil); err != nil || got[0].Namespace != "argo" {
		t.Errorf("the default namespace (R2-06): %v, %v", got, err)
	}
	for config, valid := range map[string]bool{
		`{"cluster_agent_id": 1}`: true, `{"access": "relay"}`: false, `{"access": "server", "cluster_agent_id": 1}`: false,
		`{"access": "server", "server_url": "https://user:pass@argo", "credential": "a"}`: false, `{"cluster_agent_id": 1, "token": "x"}`: false,
	} {
		if err := b.ValidateEnvironment(json.RawMessage(config)); (err == nil) != valid {
			t.Errorf("%s: %v, expected valid %t (R2-06, R2-44)", config, err, valid)
		}
	}
}

// R2-02, R2-05, R2-07, R2-43: Argo Workflows is a driver of its own beside that of Argo CD, under one registry of names, and each
// refuses the configuration of the other when it is written.
func TestArgoWorkflowsIsADriverOfItsOwn(t *testing.T) {
	t.Parallel()
	all, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	workflows, err := all.Get("argo-workflows@1")
	if err != nil {
		t.Fatal(err)
	}
	rollouts, err := all.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	ours := json.RawMessage(`{"template": "x"}`)
	theirs := json.RawMessage(`{"namespace":"argocd","application":"shop","rollout_strategy":"canary","use_load_balancing":false,
		"repository_url":"http://git/shop.git","path":"staging","destination_namespace":"shop","services":[{"service":"api","file":"staging/api.yaml","container":"api"}]}`)
	for _, tc := range []struct {
		of     *Bundle
		config json.RawMessage
		valid  bool
	}{{workflows, ours, true}, {workflows, theirs, false}, {rollouts, theirs, true}, {rollouts, ours, false}} {
		if err := tc.of.ValidateApplicationEnvironment(tc.config); (err == nil) != tc.valid {
			t.Errorf("%s with %s: %v, expected valid %t", tc.of.Ref(), tc.config, err, tc.valid)
		}
	}
	// R2-03: through a relay neither a URL nor a credential of the cluster is configured, and none may be.
	for config, valid := range map[string]bool{`{"cluster_agent_id": 1}`: true, `{"cluster_agent_id": 1, "kubeconfig": "x"}`: false} {
		if err := workflows.ValidateEnvironment(json.RawMessage(config)); (err == nil) != valid {
			t.Errorf("%s: %v, expected valid %t", config, err, valid)
		}
	}
}
