package drivertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// A Workflow that ends between two looks, before an abort stops it, is not stopped any more: the Argo Server answers 500 to that. It has
// done its work, and a retry does not do it again (R2-31, R2-34).
func TestAnAbortComesTooLate(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for _, how := range []string{"stop", "terminate"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				w := argoShop(t)
				// Looks are at 2, 6, 14 and 30 seconds.
				w.argo.takes["api"], w.argo.takes["worker"] = 20*time.Second, 120*time.Second
				w.asks = map[string]map[string]time.Duration{
					"deployment.started deployment_id=12":                      {"com.gitlab.cd.rollout.abort_requested": 25 * time.Second},
					"rollout.aborted environment_id=3 reason=aborted: because": {"com.gitlab.cd.rollout.retry_requested": 60 * time.Second},
				}
				failure := w.run(driver.Deploy, workflowInputs(func(environment, config object) {
					if edit != nil {
						edit(environment, config)
					}
					config["abort_with"] = how
				}))
				if failure != "" {
					t.Fatal(failure)
				}
				if !slices.Contains(w.argo.late, "deploy-api-d11") {
					t.Fatalf("late: %q, expected that api's Workflow had ended when it was to be stopped", w.argo.late)
				}
				expect(t, w,
					"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
					"deployment.started deployment_id=12", "workflow: deploy-api-d11", "deployment.committed deployment_id=11",
					"workflow: deploy-worker-d12", "deployment.committed deployment_id=12",
					how+": deploy-worker-d12", "rollout.aborted environment_id=3 reason=aborted: because",
					"workflow: deploy-worker-d12-2", "deployment.committed deployment_id=12",
					"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
					"rollout_environment.healthy environment_id=3", "rollout.healthy")
			})
		}
	}
}

// abortedAt25 is a rollout that is aborted after 25 seconds, when api's Workflow has ended if it takes 20, and retried a minute later.
func abortedAt25(t *testing.T, api time.Duration) *world {
	t.Helper()
	w := argoShop(t)
	w.argo.takes["api"], w.argo.takes["worker"] = api, 120*time.Second
	w.asks = map[string]map[string]time.Duration{
		"deployment.started deployment_id=12":                      {"com.gitlab.cd.rollout.abort_requested": 25 * time.Second},
		"rollout.aborted environment_id=3 reason=aborted: because": {"com.gitlab.cd.rollout.retry_requested": 60 * time.Second},
	}
	return w
}

// A Workflow whose steps have continueOn ends as Succeeded although it was stopped: it has not done its work, so a retry begins it anew
// (R2-34).
func TestAStoppedWorkflowThatCountsAsSucceeded(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := abortedAt25(t, 120*time.Second)
			w.argo.stoppedAs = "Succeeded"
			if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
				t.Fatal(failure)
			}
			if w.argo.created != 4 || w.argo.all["deploy-api-d11-2"] == nil || w.argo.all["deploy-worker-d12-2"] == nil {
				t.Errorf("%d Workflows were created, expected two of each deployment; story %q", w.argo.created, w.story)
			}

			// One that a person has stopped has failed.
			w = argoShop(t)
			w.argo.stoppedAs = "Succeeded"
			w.argo.away = func() bool {
				if wf := w.argo.all["deploy-api-d11"]; len(w.argo.looks) > 2 && wf.stopped.IsZero() {
					w.argo.stop(w, "deploy-api-d11", "stop")
				}
				return false
			}
			failure := w.run(driver.Deploy, workflowInputs(edit))
			if !strings.Contains(failure, "workflow deploy-api-d11 was stopped") {
				t.Errorf("a Workflow that a person has stopped: %q, expected a failure", failure)
			}
		})
	}
}

// While it cannot be read how the Workflow has ended, a retry waits, and begins none: what it did is not done twice (R2-31, R2-34).
func TestARetryThatCannotReadTheStatus(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for forever, want := range map[bool]string{
			false: "",
			true:  "workflow deploy-api-d11 is not run again, as it is not known how it has ended: ",
		} {
			t.Run(fmt.Sprintf("%s, forever %t", name, forever), func(t *testing.T) {
				t.Parallel()
				w := abortedAt25(t, 20*time.Second)
				looks := 0
				w.argo.away = func() bool {
					if len(w.argo.late) == 0 {
						return false
					}
					looks++
					return forever || looks < 4
				}
				failure := w.run(driver.Deploy, workflowInputs(edit))
				if (want == "") != (failure == "") || !strings.Contains(failure, want) {
					t.Errorf("failure %q, expected %q", failure, want)
				}
				if w.argo.all["deploy-api-d11-2"] != nil {
					t.Errorf("story %q, expected that api's Workflow is not run again", w.story)
				}
				if forever && (looks < 5 || looks > 40) {
					t.Errorf("%d looks, expected some, for a bounded time", looks)
				}
			})
		}
	}
}

// R2-29, R2-34: a cancellation of the rollout while Workflows run asks to stop them. At an Argo Server the engine refuses that, as every
// change of a program whose rollout has ended.
func TestACancellationStopsTheWorkflows(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			w.argo.takes[""] = 120 * time.Second
			why := "not today"
			state, _ := w.play(driver.Deploy, workflowInputs(edit), []offline.Action{{Advance: "30s"}, {Cancel: &why}})
			if state != "cancelled" {
				t.Errorf("found the run %s, expected it to be cancelled", state)
			}
			for _, stopped := range []string{"stop: deploy-api-d11", "stop: deploy-worker-d12"} {
				if !slices.Contains(w.story, stopped) {
					t.Errorf("story %q, expected %s", w.story, stopped)
				}
			}
			if w.argo.created != 2 {
				t.Errorf("%d Workflows were created, expected two", w.argo.created)
			}
		})
	}
}

// R2-01, R2-04, R2-12: graphs, conditions, retries with backoff, artifacts and parameters of Argo reach the cluster as their author wrote
// them.
func TestTheGraphIsTheAuthors(t *testing.T) {
	t.Parallel()
	const graph = `
      dag:
        tasks:
          - {name: migrate, template: step, arguments: {parameters: [{name: do, value: migrate}]}}
          - {name: seed, template: step, dependencies: [migrate], when: "{{workflow.parameters.seed}} == yes"}
          - {name: test, template: step, depends: "migrate && (seed || seed.Skipped)", arguments: {artifacts: [{name: report, from: "{{tasks.migrate.outputs.artifacts.report}}"}]}}
`
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			failure := w.run(driver.Deploy, workflowInputs(func(environment, config object) {
				if edit != nil {
					edit(environment, config)
				}
				config["template"] = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: \"deploy-{[ .deployment.slug ]}-\"}\n" +
					"spec:\n  entrypoint: main\n  templates:\n    - name: main" + graph +
					"    - name: step\n      retryStrategy: {limit: 3, backoff: {duration: 5s, factor: 2}}\n      container: {image: x}\n"
			}))
			if failure != "" {
				t.Fatal(failure)
			}
			templates := w.argo.all["deploy-api-d11"].object["spec"].(object)["templates"].([]any)
			text, err := json.Marshal(templates)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				`"when":"{{workflow.parameters.seed}} == yes"`, `"from":"{{tasks.migrate.outputs.artifacts.report}}"`,
				`"backoff":{"duration":"5s","factor":2}`, `"dependencies":["migrate"]`, `"name":"do","value":"migrate"`,
			} {
				if !strings.Contains(strings.ReplaceAll(string(text), `\u0026`, "&"), want) {
					t.Errorf("the cluster has %s, expected %s in it", text, want)
				}
			}
		})
	}
}

// R2-09: a deploy that lacks what it is about fails with the name of what is missing, and submits nothing.
func TestADeployWithoutItsContext(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"rollout", "version_set", "pipeline"} {
		w := argoShop(t)
		in := workflowInputs(nil)
		delete(in, missing)
		encoded, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = offline.Play(offline.Case{
			Program: w.program(driver.Deploy), Inputs: encoded, Outside: outside{w}, Begins: w.now, CallTimeout: time.Hour, WaitTimeout: time.Hour,
		}, 0, refuse)
		if err == nil || !strings.Contains(err.Error(), "undefined: "+missing) || w.argo.created != 0 {
			t.Errorf("without %s: found %v after %d Workflows, expected an error that names it", missing, err, w.argo.created)
		}
	}
}

// R2-20: what refers to a template keeps the reference and the arguments, and has no ttlStrategy that would replace the template's.
func TestAWorkflowThatRefersToATemplate(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			failure := w.run(driver.Deploy, workflowInputs(func(environment, config object) {
				if edit != nil {
					edit(environment, config)
				}
				config["template"] = `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: "deploy-{[ .deployment.slug ]}-"}
spec:
  workflowTemplateRef: {name: deploy, clusterScope: true}
  arguments: {parameters: [{name: image, value: {[ .version.reference | toJson ]}}]}
`
			}))
			if failure != "" {
				t.Fatal(failure)
			}
			spec := w.argo.all["deploy-api-d11"].object["spec"].(object)
			ref, _ := spec["workflowTemplateRef"].(object)
			if ref["name"] != "deploy" || ref["clusterScope"] != true || !strings.Contains(fmt.Sprint(spec["arguments"]), image("api", 2)) ||
				spec["ttlStrategy"] != nil {
				t.Errorf("found %v, expected the reference with its arguments, and no ttlStrategy", spec)
			}
		})
	}
}
