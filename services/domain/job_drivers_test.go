package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

const inFiles = `"repository_url":"https://git.test/tool.git","branch":"main","services":[{"service":"tool","file":"%s.yaml"}]`

// deployStep is a step to an environment, with a job in it.
func deployStep(environment, config, more string) string {
	return fmt.Sprintf(`{"type":"deploy","environment":%q,"config":{%s}%s}`, environment, config, more)
}

func jobsOf(list, namespace string) string {
	if namespace != "" {
		namespace = fmt.Sprintf(`"namespace":%q,`, namespace)
	}
	return fmt.Sprintf(`,%q:[{"name":"migrate",%s"template":"kind: Job"}]`, list, namespace)
}

func inCluster(environment string) string {
	return `"namespace":"shop","services":[{"service":"tool","container":"tool"}],"repository_url":"https://git.test/` + environment +
		`.git","files":["a.yaml"]`
}

// withDrivers are runbooks with one more environment for each built-in driver that needs no Argo Rollouts.
func withDrivers(t *testing.T) *runbooks {
	t.Helper()
	b := newRunbooks(t)
	agent, _, err := b.access.RegisterAgent(t.Context(), user(), "others")
	b.ok(err)
	for name, config := range map[string]string{
		"files": `{}`, "pulled": fmt.Sprintf(`{"cluster_agent_id":%d,"namespaces":["flux-system","shop-*"]}`, agent.ID),
		"flows": fmt.Sprintf(`{"cluster_agent_id":%d}`, agent.ID),
		"away":  `{"access":"server","server_url":"argo.test","credential":"argo"}`,
	} {
		ref := map[string]string{"files": "git@1", "pulled": "flux@1", "flows": "argo-workflows@1", "away": "argo-workflows@1"}[name]
		e, err := b.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
			Name: name, Tier: core.TierStaging, DriverRef: ref, DriverConfig: json.RawMessage(config),
		})
		b.ok(err)
		b.report(event.EnvironmentReady{EnvironmentID: e.ID})
	}
	b.report(event.EnvironmentReady{EnvironmentID: b.live.ID})
	return b
}

// D53, R2-41: jobs of an environment need its driver, and no other one of the pipeline.
func TestJobsBesideADriverThatRunsNone(t *testing.T) {
	t.Parallel()
	b := withDrivers(t)
	files := deployStep("files", fmt.Sprintf(inFiles, "files"), "")
	for _, list := range []string{"before", "after", "on_failure"} {
		b.ok(b.write("", files, deployStep("live", inCluster("live"), jobsOf(list, ""))))
		err := b.write("", deployStep("files", fmt.Sprintf(inFiles, "files"), jobsOf(list, "shop")), deployStep("live", inCluster("live"), ""))
		b.refusedAt(err, "/definition/steps/0/"+list, "found jobs, which the driver does not run")
	}
	b.ok(b.write("", files, deployStep("live", inCluster("live"), ""), jobStep("live", "report", "shop")))
	err := b.write("", files, jobStep("files", "report", "shop"), deployStep("live", inCluster("live"), ""))
	b.refusedAt(err, "/definition/steps/1/type", `found "job", which the driver does not support; expected one of deploy, pause, approval`)
}

// D46, D54: jobs run in the namespace that the application is deployed to, which the passage opens. A pipeline with a job that could not
// run is refused.
func TestTheNamespaceOfJobs(t *testing.T) {
	t.Parallel()
	b := withDrivers(t)
	pulled := fmt.Sprintf(inFiles, "pulled") + `,"name":"shop"`
	for _, tt := range []struct{ step, problem string }{
		{deployStep("live", inCluster("live"), jobsOf("before", "tools")), `found "tools", which the passage of environment "live" does not open`},
		{deployStep("pulled", pulled, jobsOf("before", "")), `found none, and the configuration of environment "pulled" names none`},
		{deployStep("pulled", pulled, jobsOf("before", "flux-system")), `found "flux-system", which the passage`},
		{deployStep("away", `"template":"kind: Workflow"`, jobsOf("before", "")), `found environment "away", which has no agent`},
	} {
		b.refusedAt(b.write("", tt.step), "/definition/steps/0/before/0/namespace", tt.problem)
	}
	err := b.write("", deployStep("pulled", pulled+`,"target_namespace":"kube-system"`, ""))
	b.refusedAt(err, "/definition/steps/0/config/target_namespace", `expected one that the environment allows (namespaces: flux-system, shop-*)`)

	b.ok(b.write("", deployStep("live", inCluster("live"), jobsOf("before", "")),
		deployStep("flows", `"template":"kind: Workflow"`, jobsOf("after", "argo")),
		deployStep("pulled", pulled+`,"target_namespace":"shop-staging"`, jobsOf("on_failure", "")),
		deployStep("files", fmt.Sprintf(inFiles, "files"), "")))
	known, err := b.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{b.book.ID})
	b.ok(err)
	for _, ae := range known[b.book.ID] {
		b.report(event.ApplicationEnvironmentReady{
			ApplicationEnvironmentID: ae.ID, RolloutName: "tool", RolloutNamespace: "shop", Discovered: json.RawMessage(`{}`),
		})
	}
	r, err := b.begin("")
	b.ok(err)
	places := b.placesOf(r)
	for _, namespace := range []string{"shop", "argo", "shop-staging"} {
		if !slices.Contains(places, namespace) {
			t.Errorf("places %v, expected %s", places, namespace)
		}
	}
	var run struct {
		Rollout struct {
			Environments []struct {
				Name         string  `json:"name"`
				JobNamespace *string `json:"job_namespace"`
			} `json:"environments"`
		} `json:"rollout"`
	}
	b.ok(json.Unmarshal(b.inputsOfRun(r), &run))
	found := map[string]string{}
	for _, e := range run.Rollout.Environments {
		if e.JobNamespace == nil {
			t.Fatalf("%s: no member job_namespace", e.Name)
		}
		found[e.Name] = *e.JobNamespace
	}
	b.want(found, map[string]string{"live": "shop", "flows": "argo", "pulled": "shop-staging", "files": ""})
}
