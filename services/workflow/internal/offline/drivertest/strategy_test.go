package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

const blueGreenManifest = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: NAME}\nspec:\n  strategy: {blueGreen: {activeService: NAME}}\n" +
	"  template: {spec: {containers: [{name: NAME, image: old}]}}\n"

// blueGreenShop is shop with all traffic going from one version to the next at once.
func blueGreenShop(t *testing.T) (*world, func(in, environment object)) {
	t.Helper()
	w := shop(t)
	for _, service := range []string{"api", "worker"} {
		w.files["staging/"+service+".yaml"] = strings.ReplaceAll(blueGreenManifest, "NAME", service)
		r := w.rollouts["shop/"+service]
		r.weights, r.step, r.active, r.strategy = nil, 0, r.stable, object{"blueGreen": object{}}
	}
	return w, func(_, environment object) {
		configOf(environment)["rollout_strategy"] = "blue_green"
		environment["gates"] = []any{object{"weight": 50, "soak_duration": 30}, object{"weight": 100, "approval": object{}}}
	}
}

func configOf(environment object) object {
	return environment["application_environment"].(object)["config"].(object)
}

func TestBlueGreenWaitsAtEveryGateBeforeItsPromotion(t *testing.T) {
	t.Parallel()
	w, edit := blueGreenShop(t)
	w.answers = map[string]string{"staging/100": "approved"}
	w.rollouts["shop/worker"].pace = 60 * time.Second
	if failure := w.run(driver.Deploy, inputs(2, edit)); failure != "" {
		t.Fatal(failure)
	}
	expectEnd(t, w,
		"deployment.gate_reached deployment_id=11 weight=50", "deployment.gate_reached deployment_id=12 weight=50",
		"rollout.gate_reached environment_id=3 weight=50",
		"deployment.advance deployment_id=11 weight=50", "deployment.advance deployment_id=12 weight=50",
		"deployment.gate_reached deployment_id=11 weight=100", "deployment.gate_reached deployment_id=12 weight=100",
		"rollout.gate_reached environment_id=3 weight=100", "approval of staging/100: approved",
		"deployment.advance deployment_id=11 weight=100", "deployment.advance deployment_id=12 weight=100",
		"promote: api", "promote: worker",
		"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy",
	)
	if !strings.Contains(w.files["staging/api.yaml"], `"autoPromotionEnabled": false`) {
		t.Errorf("manifest: %s", w.files["staging/api.yaml"])
	}
}

func TestADegradedPreviewPromotesNobody(t *testing.T) {
	t.Parallel()
	w, edit := blueGreenShop(t)
	w.rollouts["shop/worker"].failsAt = 1
	w.run(driver.Deploy, inputs(2, edit))
	if slices.ContainsFunc(w.story, func(s string) bool { return strings.HasPrefix(s, "promote") }) {
		t.Errorf("story: %q", w.story)
	}
	expectEnd(t, w, "rollout.failed reason=staging: worker is degraded at gate 50: ProgressDeadlineExceeded")
}

func TestARolloutThatWouldNotWaitIsRefused(t *testing.T) {
	t.Parallel()
	w, edit := blueGreenShop(t)
	w.see = func(_ *rollout, o object) {
		o["spec"].(object)["strategy"].(object)["blueGreen"].(object)["autoPromotionEnabled"] = true
	}
	if failure := w.run(driver.Deploy, inputs(2, edit)); !strings.Contains(failure, "the Rollout promotes automatically") {
		t.Errorf("failure = %q", failure)
	}
	w = shop(t)
	w.see = func(_ *rollout, o object) {
		canary := o["spec"].(object)["strategy"].(object)["canary"].(object)
		canary["steps"] = canary["steps"].([]any)[:2]
	}
	if failure := w.run(driver.Deploy, inputs(2, nil)); !strings.Contains(failure, "the Rollout does not pause at 50") {
		t.Errorf("failure = %q", failure)
	}
}

// Without a gate the promotion is still everybody's: nobody gets traffic before all could.
func TestBlueGreenWithoutGatesIsPromotedTogether(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(in, environment object){
		"no gates":   func(_, environment object) { environment["gates"] = nil },
		"a rollback": func(in, _ object) { in["rollout"].(object)["promote_full"] = true },
	} {
		for _, watching := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, watching %t", name, watching), func(t *testing.T) {
				t.Parallel()
				w, edit := blueGreenShop(t)
				w.watching = watching
				w.rollouts["shop/worker"].pace = 90 * time.Second
				w.fail = func(name string, _ object) *history.FunctionError {
					if name == "argo.promote" && w.now.Sub(w.rollouts["shop/worker"].changed) < 90*time.Second &&
						w.rollouts["shop/worker"].active != w.rollouts["shop/worker"].current {
						t.Error("one is promoted before the other is ready")
					}
					return nil
				}
				if failure := w.run(driver.Deploy, inputs(2,
					func(in, environment object) { edit(in, environment); change(in, environment) })); failure != "" {
					t.Fatal(failure)
				}
				expectEnd(t, w, "sync: argocd/shop-staging", "promote: api", "promote: worker",
					"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
					"rollout_environment.healthy environment_id=3", "rollout.healthy")
			})
		}
	}
	t.Run("one fails", func(t *testing.T) {
		t.Parallel()
		w, edit := blueGreenShop(t)
		w.rollouts["shop/worker"].failsAt, w.rollouts["shop/worker"].pace = 1, 90*time.Second
		w.run(driver.Deploy, inputs(2, func(in, environment object) { edit(in, environment); environment["gates"] = nil }))
		if story := strings.Join(w.story, "\n"); strings.Contains(story, "promote") ||
			!strings.Contains(story, "worker is degraded after the last gate") {
			t.Errorf("story:\n%s", story)
		}
	})
}

func TestTrafficRoutingIsPartOfTheGeneratedStrategy(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct {
		traffic object
		want    string
	}{
		"istio": {
			object{"virtual_service": "shop", "routes": []any{"primary"}},
			`{"istio": {"virtualService": {"name": "shop", "routes": ["primary"]}}}`,
		},
		"nginx": {object{"ingress": "shop"}, `{"nginx": {"stableIngress": "shop"}}`},
		"alb":   {object{"ingress": "shop", "service_port": 80}, `{"alb": {"ingress": "shop", "servicePort": 80}}`},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := shop(t)
			if failure := w.run(driver.Deploy, inputs(2, func(_, environment object) {
				c := configOf(environment)
				c["use_load_balancing"], c["load_balancer_type"] = true, kind
				for _, e := range c["services"].([]any) {
					service := e.(object)["service"].(string)
					traffic := object{"stable_service": service, "canary_service": service + "-canary"}
					maps.Copy(traffic, tc.traffic)
					e.(object)["traffic"] = traffic
				}
			})); failure != "" {
				t.Fatal(failure)
			}
			for _, want := range []string{`"stableService": "worker"`, `"canaryService": "worker-canary"`, `"trafficRouting": ` + tc.want} {
				if !strings.Contains(w.files["staging/worker.yaml"], want) {
					t.Errorf("manifest lacks %s: %s", want, w.files["staging/worker.yaml"])
				}
			}
		})
	}
}

// TestAManifestOnlyChangeGoesThroughTheGates: E48.
func TestAManifestOnlyChangeGoesThroughTheGates(t *testing.T) {
	t.Parallel()
	w := shop(t)
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	w.files["staging/api.yaml"] = strings.Replace(w.files["staging/api.yaml"], "{name: api, image", "{name: api, args: [--fast], image", 1)
	w.head, w.story = sha("a commit of the team"), nil
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	story := strings.Join(w.story, "\n")
	if strings.Contains(story, "commit: ") || !strings.Contains(story, "promote: api past 25") || strings.Contains(story, "promote: worker") {
		t.Errorf("story:\n%s", story)
	}
}

// TestARollbackToTheStableVersionHasNoGates: D14. Argo skips the steps, so no service waits anywhere.
func TestARollbackToTheStableVersionHasNoGates(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts["shop/worker"].failsAt = 50
	w.run(driver.Deploy, inputs(2, nil))
	w.story, w.rollouts["shop/worker"].failsAt = nil, 0
	if failure := w.run(driver.Deploy, inputs(1, nil)); failure != "" {
		t.Fatal(failure)
	}
	if story := strings.Join(w.story, "\n"); strings.Contains(story, "gate_reached") || strings.Contains(story, "promote") {
		t.Errorf("story:\n%s", story)
	}
}

// TestAWayBackToAnotherVersionMayPassAllGates: D14, by the application's policy.
func TestAWayBackToAnotherVersionMayPassAllGates(t *testing.T) {
	t.Parallel()
	w := shop(t)
	if failure := w.run(driver.Deploy, inputs(2, func(in, _ object) { in["rollout"].(object)["promote_full"] = true })); failure != "" {
		t.Fatal(failure)
	}
	if story := strings.Join(w.story, "\n"); strings.Contains(story, "gate_reached") || strings.Contains(story, "promote") {
		t.Errorf("story:\n%s", story)
	}
	if !strings.Contains(w.files["staging/api.yaml"], "steps: []") {
		t.Errorf("manifest: %s", w.files["staging/api.yaml"])
	}
}

// R4-02: a rollback that deploys, killed again and again at its steps, is the same as one that is not: one commit, and the same files and
// reports, by each driver.
func TestARollbackIsTheSameThroughKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes several seconds")
	}
	type end struct {
		commits int
		files   string
	}
	for name, one := range map[string]struct {
		shop   func(*testing.T) *world
		inputs func(version int) object
	}{
		"argo-rollouts": {shop, func(version int) object { return inputs(version, nil) }},
		"kubernetes":    {plainShop, func(version int) object { return versioned(plainInputs(nil), version) }},
		"flux":          {fluxShop, func(version int) object { return versioned(fluxInputs(nil), version) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want end
			for seed := range uint64(20) {
				w := one.shop(t)
				w.seed = seed + 1<<40 // the first is without kills
				if seed == 0 {
					w.seed = 0
				}
				w.run(driver.Deploy, one.inputs(2))
				before := len(w.commits)
				w.story = nil
				if failure := w.run(driver.Deploy, one.inputs(1)); failure != "" {
					t.Fatalf("seed %d: %s", seed, failure)
				}
				got := end{commits: len(w.commits) - before, files: fmt.Sprint(w.files)}
				if seed == 0 {
					want = got
				} else if got != want {
					t.Errorf("seed %d: found %+v; want %+v", seed, got, want)
				}
			}
		})
	}
}

// versioned has inputs deploy a version of each service.
func versioned(in object, version int) object {
	environment := in["rollout"].(object)["environments"].([]any)[0].(object)
	for _, each := range environment["deployments"].([]any) {
		d := each.(object)
		d["versions"].([]any)[0].(object)["digest"] = strings.SplitN(image(d["service"].(object)["name"].(string), version), "@", 2)[1]
	}
	return in
}
