package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// shop is an application of two services, api and worker, with its rollouts at version 1 in staging.
func shop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for _, service := range []string{"api", "worker"} {
		w.files["staging/"+service+".yaml"] = manifestOf(service, image(service, 1))
		w.rollouts["shop/"+service] = &rollout{
			namespace: "shop", name: service, image: image(service, 1), weights: []int64{25, 50, 100}, generation: 3, seen: true,
			stable: "hash-" + image(service, 1), current: "hash-" + image(service, 1), step: 6, pace: 2 * time.Second,
		}
	}
	return w
}

func image(service string, version int) string {
	return fmt.Sprintf("registry/shop/%s@sha256:%064d", service, version)
}

// inputs are those of a rollout of a version to staging, through gates 25 and 50; edit changes them.
func inputs(version int, edit func(rollout, environment object)) object {
	deployment := func(id int, service string) object {
		return object{"id": id, "service": object{"id": id, "name": service}, "versions": []any{object{
			"artifact_source_id": id, "name": fmt.Sprint(version), "digest": strings.SplitN(image(service, version), "@", 2)[1],
			"reference": "registry/shop/" + service + ":v", "image": "registry/shop/" + service,
		}}}
	}
	entry := func(service string) object {
		return object{"service": service, "file": "staging/" + service + ".yaml", "container": service}
	}
	environment := object{
		"id": 3, "name": "staging", "tier": "staging", "position": 0, "config": object{"cluster_agent_id": 42},
		"application_environment": object{"id": 5, "discovered": object{}, "config": object{
			"namespace": "argocd", "application": "shop-staging", "rollout_strategy": "canary", "use_load_balancing": false,
			"repository_url": "http://git/shop.git", "path": "staging", "destination_namespace": "shop",
			"services": []any{entry("api"), entry("worker")}, "poll_interval": 5, "deadline": 600,
		}},
		"gates":       []any{object{"weight": 25, "soak_duration": 7}, object{"weight": 50}},
		"approval":    nil,
		"deployments": []any{deployment(11, "api"), deployment(12, "worker")},
	}
	r := object{"id": 7, "organization_id": 1, "application": object{"id": 1, "name": "shop"}, "environments": []any{environment}}
	in := object{
		"rollout": r, "version_set": object{"id": 9, "name": "shop-9", "versions": []any{}},
		"pipeline": object{"steps": []any{object{"type": "deploy", "environment": "staging"}}},
	}
	if edit != nil {
		edit(in, environment)
	}
	return in
}

const opening = "commit: Deploy shop-9 to staging (2 files) map[Lockstep-Rollout:7 Lockstep-Version-Set:shop-9]"

func TestBothServicesMoveGateByGateTogether(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts["shop/worker"].pace = 60 * time.Second // one slow service
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12",
		opening, "deployment.committed deployment_id=11", "deployment.committed deployment_id=12", "sync: argocd/shop-staging",
		"deployment.gate_reached deployment_id=11 weight=25", "deployment.gate_reached deployment_id=12 weight=25",
		"rollout.gate_reached environment_id=3 weight=25",
		"deployment.advance deployment_id=11 weight=25", "deployment.advance deployment_id=12 weight=25",
		"promote: api past 25", "promote: worker past 25",
		"deployment.gate_reached deployment_id=11 weight=50", "deployment.gate_reached deployment_id=12 weight=50",
		"rollout.gate_reached environment_id=3 weight=50",
		"deployment.advance deployment_id=11 weight=50", "deployment.advance deployment_id=12 weight=50",
		"promote: api past 50", "promote: worker past 50",
		"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy",
	)
}

// TestASlowServiceShowsAsWhatTheOthersWaitFor: D25, and once for as long as nothing changes about it.
func TestASlowServiceShowsAsWhatTheOthersWaitFor(t *testing.T) {
	t.Parallel()
	for _, watching := range []bool{false, true} {
		t.Run(fmt.Sprintf("watching %t", watching), func(t *testing.T) {
			t.Parallel()
			w := shop(t)
			w.watching = watching
			w.rollouts["shop/worker"].pace = 300 * time.Second
			if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
				t.Fatal(failure)
			}
			for _, gate := range []string{"25", "50"} {
				line := `"staging: api wait(s) for worker to reach gate ` + gate + `: `
				if n := strings.Count(strings.Join(w.log, "\n"), line); n < 1 || n > 2 {
					t.Errorf("found %d lines %s…, expected one for each thing that is seen of it:\n%s", n, line, strings.Join(w.log, "\n"))
				}
			}
		})
	}
}

func TestThePauseAfterTheLastGateIsNoGate(t *testing.T) {
	t.Parallel()
	w := shop(t)
	before := w.fail
	w.fail = func(name string, args object) *history.FunctionError { // as if the manifest had a stop at 100 that no gate stands for
		if name == "manifest.pin" {
			args["gates"] = append(args["gates"].([]any), float64(100))
		}
		return before(name, args)
	}
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	story := strings.Join(w.story, "\n")
	if !strings.Contains(story, "promote: api past 100") || strings.Contains(story, "weight=100") {
		t.Errorf("story:\n%s", story)
	}
}

func TestAFirstDeployHasNoGates(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts = map[string]*rollout{}
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12",
		opening, "deployment.committed deployment_id=11", "deployment.committed deployment_id=12", "sync: argocd/shop-staging",
		"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy",
	)
}

func TestDegradedAtAGateStopsTheOthers(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts["shop/worker"].failsAt = 50
	w.rollouts["shop/worker"].pace = 30 * time.Second
	failure := w.run(driver.Deploy, inputs(2, nil))
	const reason = "staging: worker is degraded at gate 50: ProgressDeadlineExceeded"
	if !strings.Contains(failure, reason) {
		t.Errorf("failure = %q", failure)
	}
	expectEnd(t, w,
		"promote: api past 25", "promote: worker past 25",
		"deployment.gate_reached deployment_id=11 weight=50",
		"deployment.degraded deployment_id=12 reason=ProgressDeadlineExceeded",
		"deployment.failed deployment_id=11 reason=stopped: "+reason,
		"rollout_environment.failed environment_id=3 reason="+reason, "rollout.failed reason="+reason,
	)
}

func TestDegradedWhileOthersAreOnTheirWay(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.rollouts["shop/api"].failsAt = 25
	w.rollouts["shop/worker"].pace = 500 * time.Second
	start := w.now
	if w.run(driver.Deploy, inputs(2, nil)) == "" {
		t.Fatal("the rollout does not fail")
	}
	if took := w.now.Sub(start); took > time.Minute {
		t.Errorf("it takes %v until the failure is reported", took)
	}
}

func TestTheDegradationOfAnotherVersionIsNotOurs(t *testing.T) {
	t.Parallel()
	w := shop(t)
	r := w.rollouts["shop/worker"] // the rollout before has failed
	r.image, r.current, r.degraded, r.step, r.weights = image("worker", 9), "hash-bad", "ProgressDeadlineExceeded", 2, []int64{25, 50, 100}
	if failure := w.run(driver.Deploy, inputs(1, nil)); failure != "" {
		t.Fatal(failure)
	}
	expectEnd(t, w, "deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy")
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	edit := func(in, environment object) {
		environment["approval"] = object{"reason": "ask first"}
		environment["gates"].([]any)[1].(object)["approval"] = object{}
		in["pipeline"] = object{"steps": []any{
			object{"type": "approval", "name": "release"},
			object{"type": "pause", "duration": 60},
			object{"type": "deploy", "environment": "staging"},
		}}
	}
	t.Run("given", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.answers = map[string]string{"release": "approved", "staging": "approved", "staging/50": "approved"}
		if failure := w.run(driver.Deploy, inputs(2, edit)); failure != "" {
			t.Fatal(failure)
		}
		story := strings.Join(w.story, "\n")
		for _, want := range []string{
			"rollout.started\napproval of release: approved\napproval of staging: approved\nrollout_environment.started environment_id=3\ndeployment.started",
			"rollout.gate_reached environment_id=3 weight=50\napproval of staging/50: approved\ndeployment.advance",
		} {
			if !strings.Contains(story, want) {
				t.Errorf("story lacks %q:\n%s", want, story)
			}
		}
	})
	t.Run("rejected before the environment", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.answers = map[string]string{"release": "approved", "staging": "rejected"}
		w.run(driver.Deploy, inputs(2, edit))
		expectEnd(t, w, "rollout_environment.failed environment_id=3 reason=gate staging was rejected: because",
			"rollout.failed reason=gate staging was rejected: because")
	})
	t.Run("rejected at a gate", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.answers = map[string]string{"release": "approved", "staging": "approved", "staging/50": "rejected"}
		w.run(driver.Deploy, inputs(2, edit))
		const reason = "staging: gate staging/50 was rejected: because"
		expectEnd(t, w, "deployment.failed deployment_id=11 reason=stopped: "+reason,
			"deployment.failed deployment_id=12 reason=stopped: "+reason,
			"rollout_environment.failed environment_id=3 reason="+reason, "rollout.failed reason="+reason)
	})
	t.Run("nobody answers", func(t *testing.T) {
		t.Parallel()
		w := shop(t)
		w.answers = map[string]string{"release": "approved", "staging": "approved"}
		w.run(driver.Deploy, inputs(2, edit))
		expectEnd(t, w, "rollout.failed reason=staging: the passage through gate staging/50 was not granted within 604800 seconds")
	})
}

func TestDegradedWhilePeopleDecide(t *testing.T) {
	t.Parallel()
	w := shop(t)
	asked := time.Time{}
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "k8s.get" && strings.Contains(strings.Join(w.story, "\n"), "approval of") {
			if asked.IsZero() {
				asked = w.now
			}
			w.rollouts["shop/api"].paused, w.rollouts["shop/api"].degraded = false, "RolloutAborted"
		}
		return nil
	}
	w.run(driver.Deploy, inputs(2, func(_, environment object) {
		environment["gates"].([]any)[0].(object)["approval"] = object{}
	}))
	expectEnd(t, w, "rollout.failed reason=staging: api is degraded at gate 25: RolloutAborted")
}

func TestACommitThatLosesARaceIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := shop(t)
	lost := 0
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "git.commit" && lost < 2 {
			lost++
			return &history.FunctionError{Code: "conflict", Message: "staging/api.yaml has changed since"}
		}
		return nil
	}
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	if len(w.commits) != 1 || lost != 2 {
		t.Errorf("%d commits after %d lost races", len(w.commits), lost)
	}
}

func TestAChangeByOthersIsRecognized(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "k8s.get" && strings.Contains(strings.Join(w.story, "\n"), "rollout.gate_reached") {
			w.rollouts["shop/api"].image = "hotfix:1"
		}
		return nil
	}
	w.run(driver.Deploy, inputs(2, nil))
	expectEnd(t, w, "rollout.failed reason=staging: api failed at gate 25: container api runs hotfix:1, expected "+image("api", 2)+
		": another actor has changed the Rollout")
}

func TestPodsThatAreDeclaredElsewhere(t *testing.T) {
	t.Parallel()
	w := shop(t)
	deployment := object{
		"kind": "Deployment", "metadata": object{"name": "api", "generation": 4},
		"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "api", "image": image("api", 2)}}}}},
	}
	w.objects["Deployment shop/api"] = deployment
	seen := 3
	w.see = func(r *rollout, o object) {
		if r.name != "api" {
			return
		}
		spec := o["spec"].(object)
		delete(spec, "template")
		spec["workloadRef"] = object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
		o["status"].(object)["workloadObservedGeneration"] = fmt.Sprint(seen)
		if w.now.Sub(r.changed) > 20*time.Second { // the controller is slow to see the Deployment
			seen = 4
		}
	}
	start := w.now
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	if took := w.now.Sub(start); took < 20*time.Second {
		t.Errorf("the rollout is healthy after %v, before the controller has seen the Deployment", took)
	}
	if !strings.Contains(strings.Join(w.story, "\n"), "deployment.gate_reached deployment_id=11 weight=50") {
		t.Errorf("story: %q", w.story)
	}
}

// expectEnd compares the last lines of the story.
func expectEnd(t *testing.T, w *world, want ...string) {
	t.Helper()
	if len(w.story) > len(want) {
		w.story = w.story[len(w.story)-len(want):]
	}
	expect(t, w, want...)
}
