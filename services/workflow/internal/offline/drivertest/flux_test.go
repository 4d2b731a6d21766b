package drivertest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// fakeFlux is a simulation of Flux: the source takes over the head of the branch at its interval, and at once when it is asked; the object
// that deploys then tries that commit. Revisions, conditions and the handled request are as the controllers v1.9.6 write them by their
// sources; the real ones are not tried here.
type fakeFlux struct {
	kind string
	// spec and source are the specs of both objects.
	spec, source object
	// interval is how long the source waits between two fetches, takes how long a commit takes to be deployed.
	interval, takes time.Duration
	// fails is why commits fail: reason and message; stalled is whether Flux then gives up.
	fails   map[string][2]string
	always  [2]string
	stalled bool
	// refused is a reason for which Flux does not try the object at all.
	refused string
	// refuses is what k8s.patch answers with.
	refuses *history.FunctionError
	// people are what a person does at a look at the deploying object, by its number from 1.
	people map[int]func(w *world)
	gone   map[string]bool

	fetchAt            time.Time
	at                 string
	attempted, applied string
	began              time.Time
	status             string
	asked              map[string]string
	handled            string
	since              time.Time
	looks              int
	snapshots          map[string]map[string]string
}

const fluxWait = 20 * time.Second

func (f *fakeFlux) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	f.snapshots[w.head] = maps.Clone(w.files)
	f.move(w)
	switch name {
	case "k8s.get":
		if f.gone[args["kind"].(string)] {
			return object{"found": false}, nil, true
		}
		if args["kind"] == "GitRepository" {
			return object{
				"found": true, "metadata": object{"name": args["name"], "generation": 1}, "spec": f.source,
				"status": object{"artifact": object{"revision": "main@sha1:" + f.at}},
			}, nil, true
		}
		f.looks++
		if act := f.people[f.looks]; act != nil {
			act(w)
			f.snapshots[w.head] = maps.Clone(w.files)
			f.move(w)
		}
		return f.view(), nil, true
	case "k8s.patch":
		if f.refuses != nil {
			return nil, f.refuses, true
		}
		annotations := args["patch"].(object)["metadata"].(object)["annotations"].(object)
		token := annotations["reconcile.fluxcd.io/requestedAt"].(string)
		f.asked[args["kind"].(string)] = token
		if args["kind"] == "GitRepository" {
			f.fetchAt = w.now.Add(time.Second)
		} else {
			if f.kind == "HelmRelease" && f.stalled && f.status == "False" && annotations["reconcile.fluxcd.io/resetAt"] != token {
				f.handled = token // it has used up its retries
			} else {
				f.begin(w.now)
			}
		}
		w.record("asked: %s %s/%s of %v", args["kind"], args["namespace"], args["name"], args["environment_id"])
		return object{"patched": true}, nil, true
	case "git.read_commit":
		return object{"sha": w.head}, nil, true
	case "git.read_file":
		if files, known := f.snapshots[args["ref"].(string)]; known {
			content, exists := files[args["path"].(string)]
			if !exists {
				return nil, &history.FunctionError{Code: "not_found", Message: "no file"}, true
			}
			return object{"content": content, "sha": args["ref"]}, nil, true
		}
	}
	return nil, nil, false
}

// move carries both objects to the present.
func (f *fakeFlux) move(w *world) {
	if !w.now.Before(f.fetchAt) && !f.suspended(f.source) {
		f.at, f.fetchAt = w.head, w.now.Add(f.interval)
	}
	if f.suspended(f.spec) {
		return
	}
	if f.attempted != f.at {
		f.attempted = f.at
		f.begin(w.now)
	}
	if again := f.since.Add(f.interval); f.status == "False" && !f.stalled && !w.now.Before(again) {
		f.begin(again)
	}
	if f.status == "Unknown" && !w.now.Before(f.began.Add(f.takes)) {
		f.status, f.handled, f.since = "True", f.asked[f.kind], f.began.Add(f.takes)
		if f.failure()[0] != "" {
			f.status = "False"
		} else {
			f.applied = f.attempted
		}
	}
}

// begin begins an attempt.
func (f *fakeFlux) begin(at time.Time) { f.began, f.since, f.status = at, at, "Unknown" }

func (*fakeFlux) suspended(spec object) bool { yes, _ := spec["suspend"].(bool); return yes }

func (f *fakeFlux) failure() [2]string {
	if why, fails := f.fails[f.attempted]; fails {
		return why
	}
	return f.always
}

func (f *fakeFlux) view() object {
	ready := object{"type": "Ready", "status": f.status, "reason": "Progressing", "message": "Reconciliation in progress", "observedGeneration": 2}
	ready["lastTransitionTime"] = f.since.Format(time.RFC3339)
	switch f.status {
	case "True":
		ready["reason"], ready["message"] = "ReconciliationSucceeded", "Applied revision"
	case "False":
		ready["reason"], ready["message"] = f.failure()[0], f.failure()[1]
	}
	conditions := []any{ready}
	if f.stalled && f.status == "False" {
		conditions = append(conditions, object{"type": "Stalled", "status": "True", "reason": "RetriesExceeded", "observedGeneration": 2})
	}
	if f.refused != "" {
		conditions = []any{
			object{"type": "Ready", "status": "False", "reason": f.refused, "message": "not allowed", "observedGeneration": 2},
			object{"type": "Stalled", "status": "True", "reason": f.refused, "message": "not allowed", "observedGeneration": 2},
		}
	}
	status := object{"observedGeneration": 2, "conditions": conditions, "lastHandledReconcileAt": f.handled}
	if f.kind == "HelmRelease" {
		status["lastAttemptedRevision"] = "1.0.0+" + f.attempted[:12] + ".1"
		status["history"] = []any{object{"chartVersion": "1.0.0+" + f.applied[:12] + ".1", "status": "deployed"}}
	} else {
		status["lastAttemptedRevision"], status["lastAppliedRevision"] = "main@sha1:"+f.attempted, "main@sha1:"+f.applied
	}
	return object{"found": true, "metadata": object{"name": "shop", "generation": 2}, "spec": f.spec, "status": status}
}

// fluxShop is an application of two services whose images are in two files, which Flux deploys.
func fluxShop(t *testing.T) *world {
	t.Helper()
	w := gitShop(t)
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = set.Get("flux@1"); err != nil {
		t.Fatal(err)
	}
	from := object{"kind": "GitRepository", "name": "flux-system"}
	w.flux = &fakeFlux{
		kind: "Kustomization", spec: object{"wait": true, "sourceRef": from}, source: object{"url": "ssh://git@git:22/shop", "ref": object{"branch": "main"}},
		interval: 10 * time.Minute, fetchAt: w.now.Add(5 * time.Minute), takes: fluxWait, since: w.now,
		asked: map[string]string{}, fails: map[string][2]string{},
		at: w.head, attempted: w.head, applied: w.head, status: "True", snapshots: map[string]map[string]string{}, gone: map[string]bool{},
	}
	return w
}

func fluxInputs(edit func(config, environment object)) object {
	return gitInputs(func(config, environment object) {
		environment["config"] = object{"cluster_agent_id": 42}
		config["name"], config["deadline"] = "shop", 1800
		if edit != nil {
			edit(config, environment)
		}
	})
}

// asHelmRelease makes the deploying object a HelmRelease of a chart in the repository.
func (f *fakeFlux) asHelmRelease() {
	f.kind = "HelmRelease"
	f.spec = object{"chart": object{"spec": object{"reconcileStrategy": "Revision", "sourceRef": object{"kind": "GitRepository", "name": "flux-system"}}}}
}

func helmRelease(config, _ object) { config["kind"] = "HelmRelease" }

// R2-01, R2-25: the files are committed, Flux is asked, and a deployment is healthy once the object is ready at exactly that commit.
func TestFluxDeploysACommit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Kustomization", "HelmRelease"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := fluxShop(t)
			if kind == "HelmRelease" {
				w.flux.asHelmRelease()
			}
			began, first := w.now, w.head
			if failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { c["kind"] = kind })); failure != "" {
				t.Fatal(failure)
			}
			want := story("rollout.started", started, opening, both("committed", ""), both("submitted", ""),
				"asked: GitRepository flux-system/flux-system of 3", both("submitted", ""), "deployment.healthy deployment_id=11",
				"deployment.healthy deployment_id=12", "rollout_environment.healthy environment_id=3", "rollout.healthy")
			expect(t, w, want...)
			if w.flux.applied != w.head || w.head == first {
				t.Errorf("applied %s, head %s", w.flux.applied, w.head)
			}
			if took := w.now.Sub(began); took > time.Minute {
				t.Errorf("it took %s, expected that Flux was asked, and was looked at soon", took)
			}
			shown := event.DeploymentSubmitted{DeploymentID: 11, Name: "shop", Namespace: "flux-system", Status: "ready at " + w.head[:12]}
			if w.submitted[2] != shown {
				t.Errorf("shown %+v, want %+v", w.submitted[2], shown)
			}
			if c := w.committed[0]; c.CommitSHA != w.head {
				t.Errorf("snapshot %+v", c)
			}
		})
	}
}

// Flux that may not be asked is waited for, and the reason why that takes long is reported.
func TestFluxIsNotAsked(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(w *world, config object){
		"refused": func(w *world, _ object) {
			w.flux.refuses = &history.FunctionError{Code: "owned", Message: "hand it over"}
		},
		"not to": func(_ *world, c object) { c["request"] = false },
	} {
		w := fluxShop(t)
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { edit(w, c) }))
		if took := w.now.Sub(began); failure != "" || took < 5*time.Minute || took > 7*time.Minute {
			t.Errorf("%s: failure %q after %s", name, failure, took)
		}
		if reported := strings.Contains(strings.Join(w.log, "\n"), "Flux was not asked: hand it over"); reported != (name == "refused") {
			t.Errorf("%s: log %q", name, w.log)
		}
	}
}

// What Flux would not deploy is not committed, in a rollout as in the setup and a preview, which say why.
func TestFluxThatWouldNotDeploy(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(f *fakeFlux, config object){
		"Kustomization flux-system/shop is suspended; resume it: flux resume kustomization shop -n flux-system": func(f *fakeFlux, _ object) {
			f.spec["suspend"] = true
		},
		"GitRepository flux-system/flux-system is suspended; resume it: flux resume source git flux-system -n flux-system": func(f *fakeFlux, _ object) {
			f.source["suspend"] = true
		},
		"Kustomization flux-system/shop does not exist": func(f *fakeFlux, _ object) { f.gone["Kustomization"] = true },
		"takes its files from GitRepository flux-system/flux-system, expected GitRepository flux-system/other": func(_ *fakeFlux, c object) {
			c["source_name"] = "other"
		},
		"follows tag v1, expected branch main":        func(f *fakeFlux, _ object) { f.source["ref"] = object{"tag": "v1", "branch": "main"} },
		"follows branch next, expected branch main":   func(f *fakeFlux, _ object) { f.source["ref"] = object{"branch": "next"} },
		"follows branch master, expected branch main": func(f *fakeFlux, _ object) { delete(f.source, "ref") },
		"is ready as soon as its objects are applied": func(f *fakeFlux, _ object) { delete(f.spec, "wait") },
		"follows the version of its chart and no commits": func(f *fakeFlux, c object) {
			f.asHelmRelease()
			c["kind"] = "HelmRelease"
			delete(f.spec["chart"].(object)["spec"].(object), "reconcileStrategy")
		},
		"is of the repository https://git/other.git, expected http://git/shop.git": func(f *fakeFlux, _ object) { f.source["url"] = "https://git/other.git" },
		"is of the repository ssh://git@git:22/shop, expected https://mirror/shop": func(_ *fakeFlux, c object) { c["source_url"] = "https://mirror/shop" },
		"sets the image registry/shop/api itself": func(f *fakeFlux, c object) {
			c["services"].([]any)[0].(object)["image"] = "registry/shop/api"
			f.spec["images"] = []any{object{"name": "registry/shop/api", "newTag": "v9"}}
		},
		"expected no spec.upgrade.disableWait": func(f *fakeFlux, c object) {
			f.asHelmRelease()
			c["kind"], f.spec["upgrade"] = "HelmRelease", object{"disableWait": true}
		},
		"has no spec.chart": func(f *fakeFlux, c object) {
			f.asHelmRelease()
			c["kind"], f.spec = "HelmRelease", object{"chartRef": object{"kind": "OCIRepository"}}
		},
	} {
		for _, proposal := range []string{"none", "pull_request"} {
			w := fluxShop(t)
			in := fluxInputs(func(c, _ object) { c["proposal"] = proposal; edit(w.flux, c) })
			if failure := w.run(driver.Deploy, in); !strings.Contains(failure, want) || len(w.commits) > 0 || w.forge.proposed > 0 {
				t.Errorf("%s: failure %q, want %q and no commit", proposal, failure, want)
			}
			environment := in["rollout"].(object)["environments"].([]any)[0].(object)
			ae := environment["application_environment"].(object)
			ae["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
			if failure := w.run(driver.Setup, object{"application_environment": ae, "environment": environment}); !strings.Contains(failure, want) {
				t.Errorf("setup: failure %q, want %q", failure, want)
			}
			delete(in, "pipeline")
			in["preview"] = object{"id": 6}
			if failure := w.run(driver.Preview, in); failure != "" || !strings.Contains(w.previews[0].Environments[0].Reason, want) {
				t.Errorf("preview: failure %q, previews %+v", failure, w.previews)
			}
		}
	}
}

// R2-28: a commit that fails fails the deployment with Flux's own message.
func TestACommitThatFluxCannotDeploy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		why     [2]string
		helm    bool
		stalled bool
		want    string
	}{
		"a health check": {[2]string{"HealthCheckFailed", "timeout waiting for: [Deployment/shop/api]"}, false, false, "HealthCheckFailed: timeout waiting for: [Deployment/shop/api]"},
		"a chart":        {[2]string{"UpgradeFailed", "cannot patch"}, true, true, "UpgradeFailed: cannot patch"},
		// Flux waits for something else, or tries again by itself: until the deadline, with what it said last.
		"a dependency":  {[2]string{"DependencyNotReady", "dependency 'x' is not ready"}, false, false, "did not become healthy within 1800 seconds; last seen: Kustomization flux-system/shop"},
		"more attempts": {[2]string{"UpgradeFailed", "cannot patch"}, true, false, "did not become healthy within 1800 seconds; last seen: HelmRelease flux-system/shop"},
	} {
		w := fluxShop(t)
		w.flux.always = tt.why
		if tt.helm {
			w.flux.asHelmRelease()
		}
		w.flux.stalled = tt.stalled
		began := w.now
		failure := w.run(driver.Deploy, fluxInputs(func(c, e object) {
			if tt.helm {
				helmRelease(c, e)
			}
		}))
		if !strings.Contains(failure, tt.want) || !strings.Contains(failure, tt.why[1]) {
			t.Errorf("%s: failure %q, want %q", name, failure, tt.want)
		}
		if late := w.now.Sub(began) > 2*time.Minute; late != strings.Contains(tt.want, "within") {
			t.Errorf("%s: it took %s", name, w.now.Sub(began))
		}
	}
}

// The failure of an earlier rollout of the same files is none of this one: Flux is asked to try again, and its answer counts.
func TestAFailureFromBefore(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		w := fluxShop(t)
		w.files["staging/api.yaml"] = "# api\nimage: " + image("api", 2) + "\n"
		w.files["staging/worker.yaml"] = "spec:\n  worker:\n    image: " + image("worker", 2) + "\n"
		w.flux.fails[w.head] = [2]string{"HealthCheckFailed", "too late"}
		w.flux.status = "False"
		if !again {
			w.flux.people = map[int]func(*world){3: func(w *world) { delete(w.flux.fails, w.head) }}
		}
		failure := w.run(driver.Deploy, fluxInputs(nil))
		if again != strings.Contains(failure, "too late") || again == (failure == "") || w.flux.asked["Kustomization"] == "" {
			t.Errorf("it fails again %t: failure %q, asked %v", again, failure, w.flux.asked)
		}
	}
}

// Another author commits after the rollout, and Flux never is at the rollout's commit: what counts is whether its files are the same there.
func TestALaterCommitByAnotherAuthor(t *testing.T) {
	t.Parallel()
	hers := func(path, content string) func(w *world) {
		return func(w *world) {
			w.commit(object{"files": []any{object{"path": path, "content": content}}, "message": "hers"})
		}
	}
	for name, tt := range map[string]struct {
		act            func(w *world)
		exactly        bool
		want, reported string
	}{
		"another file": {hers("docs.md", "x"), false, "", "another commit with the same files as"},
		"another file, with only_own_commit": {
			hers("docs.md", "x"), true, "a commit by another author; Kustomization flux-system/shop is not deployed at", "",
		},
		"the same file": {
			hers("staging/api.yaml", "image: "+image("api", 1)+"\n"), false,
			"a commit by another author, in which staging/api.yaml is not as this rollout has committed it", "",
		},
	} {
		w := fluxShop(t)
		// The second look is the first after the commit: she commits before Flux has fetched it.
		w.flux.people = map[int]func(*world){2: tt.act}
		failure := w.run(driver.Deploy, fluxInputs(func(c, _ object) { c["only_own_commit"] = tt.exactly }))
		if tt.want == "" && failure != "" || !strings.Contains(failure, tt.want) {
			t.Errorf("%s: failure %q, want %q", name, failure, tt.want)
		}
		if tt.reported != "" && (!strings.Contains(strings.Join(w.log, "\n"), tt.reported) || !strings.Contains(w.submitted[len(w.submitted)-1].Status, tt.reported)) {
			t.Errorf("%s: log %q, shown %+v", name, w.log, w.submitted)
		}
	}
}

// One that is suspended, or whose relay is away, after the commit is waited for.
func TestFluxStopsAfterTheCommit(t *testing.T) {
	t.Parallel()
	w := fluxShop(t)
	w.flux.people = map[int]func(*world){
		2: func(w *world) { w.flux.spec["suspend"] = true },
		8: func(w *world) { delete(w.flux.spec, "suspend") },
	}
	if failure := w.run(driver.Deploy, fluxInputs(nil)); failure != "" {
		t.Error(failure)
	}
	w = fluxShop(t)
	w.flux.people = map[int]func(*world){2: func(w *world) { w.flux.spec["suspend"] = true }}
	failure := w.run(driver.Deploy, fluxInputs(nil))
	if !strings.Contains(failure, "within 1800 seconds; last seen: Kustomization flux-system/shop is suspended") {
		t.Errorf("failure %q", failure)
	}
	w = fluxShop(t)
	calls := 0
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "k8s.get" {
			if calls++; calls > 3 && calls < 8 {
				return &history.FunctionError{Code: "timeout", Message: "no answer"}
			}
		}
		return nil
	}
	if failure := w.run(driver.Deploy, fluxInputs(nil)); failure != "" {
		t.Error(failure)
	}
}

// D55: the pull request, or the branch alone, is merged after the passage, and Flux has to be at the merge.
func TestFluxDeploysAMerge(t *testing.T) {
	t.Parallel()
	for _, proposal := range []string{"pull_request", "branch"} {
		w := fluxShop(t)
		w.answers["staging"] = "approved"
		w.held["staging"] = 2 * time.Hour
		if failure := w.run(driver.Deploy, fluxInputs(func(c, e object) { proposing(c, e); c["proposal"], c["deadline"] = proposal, 1800 })); failure != "" {
			t.Fatal(failure)
		}
		if w.forge.merged != 1 || w.flux.applied != w.head || w.committed[0].CommitSHA != w.head {
			t.Errorf("%s: merged %d times, applied %s, head %s", proposal, w.forge.merged, w.flux.applied, w.head)
		}
		if last := w.submitted[len(w.submitted)-1]; last.Status != "ready at "+w.head[:12] {
			t.Errorf("%s: shown %+v", proposal, w.submitted)
		}
	}
}

// D55: a branch alone that people have merged by hand, and that Flux has deployed before the passage, is healthy with it.
func TestFluxHasDeployedABranchThatWasMergedByHand(t *testing.T) {
	t.Parallel()
	w := fluxShop(t)
	w.answers["staging"] = "approved"
	w.held["staging"] = 10 * time.Minute
	w.forge.people = map[int]func(*world, object){2: func(w *world, pull object) {
		w.commit(object{"files": w.forge.files, "message": "by hand"})
		pull["state"], pull["commit"], pull["head"] = "unchanged", w.head, w.head
	}}
	failure := w.run(driver.Deploy, fluxInputs(func(c, e object) { proposing(c, e); c["proposal"], c["deadline"] = "branch", 1800 }))
	if failure != "" || w.forge.merged != 0 || w.flux.applied != w.head || w.committed[0].CommitSHA != w.head {
		t.Errorf("failure %q, merged %d times, applied %s, head %s", failure, w.forge.merged, w.flux.applied, w.head)
	}
}

// A rollback is a new commit of the earlier version, and an older commit with the same files is not it.
func TestARollbackByFlux(t *testing.T) {
	t.Parallel()
	w := fluxShop(t)
	for _, version := range []int{2, 1} {
		in := fluxInputs(nil)
		for _, each := range in["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any) {
			d := each.(object)
			name := d["service"].(object)["name"].(string)
			d["versions"].([]any)[0].(object)["digest"] = strings.SplitN(image(name, version), "@", 2)[1]
		}
		before := len(w.commits)
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatal(failure)
		}
		if len(w.commits) != before+1 || w.flux.applied != w.head || !strings.Contains(w.files["staging/api.yaml"], image("api", version)) {
			t.Errorf("version %d: %d commits, applied %s, head %s, file %s", version, len(w.commits), w.flux.applied, w.head, w.files["staging/api.yaml"])
		}
	}
}

// An abort before the merge leaves the pull request for the retry, which is merged and deployed; one after it says that the commit stays.
func TestAnAbortAndARetryByFlux(t *testing.T) {
	t.Parallel()
	w := fluxShop(t)
	w.answers["staging"] = "approved"
	w.forge.merges = []*history.FunctionError{{Code: "refused", Message: "a review is missing"}}
	w.asks = map[string]map[string]time.Duration{
		"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: time.Second, event.TypeRolloutRetryRequested: time.Minute},
	}
	if failure := w.run(driver.Deploy, fluxInputs(proposing)); failure != "" || w.forge.merged != 1 || w.flux.applied != w.head {
		t.Errorf("failure %q, merged %d times, story:\n%s", failure, w.forge.merged, strings.Join(w.story, "\n"))
	}
	if all := strings.Join(w.story, "\n"); !strings.Contains(all, "rollout.aborted") {
		t.Errorf("story:\n%s", all)
	}
	w = fluxShop(t)
	w.flux.takes = 10 * time.Minute
	w.asks = map[string]map[string]time.Duration{"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: 30 * time.Second}}
	if failure := w.run(driver.Deploy, fluxInputs(nil)); !strings.Contains(failure, "what is on the branch stays; a rollback returns to the version before") {
		t.Errorf("failure %q", failure)
	}
}

// The onboarding says what is missing, and the setup of what fits is ready.
func TestTheSetupOfFlux(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"timeout": "does not answer within 30 seconds", "unknown_kind": "the cluster does not have Flux", "forbidden": "", "": "",
	} {
		w := fluxShop(t)
		w.fail = func(name string, _ object) *history.FunctionError {
			if code != "" && name == "k8s.get" {
				return &history.FunctionError{Code: code, Message: "found none"}
			}
			return nil
		}
		failure := w.run(driver.Onboarding, object{"environment": object{"id": 3, "name": "staging", "config": object{"cluster_agent_id": 42}}})
		if want == "" && failure != "" || !strings.Contains(failure, want) {
			t.Errorf("%s: failure %q, want %q", code, failure, want)
		}
	}
	for _, proposal := range []string{"none", "pull_request", "branch"} {
		w := fluxShop(t)
		w.fail = func(name string, _ object) *history.FunctionError {
			if name == "git.read_status" && proposal == "branch" {
				return &history.FunctionError{Code: "refused", Message: "a plain server has no forge"}
			}
			return nil
		}
		in := fluxInputs(func(c, _ object) { c["proposal"] = proposal })
		environment := in["rollout"].(object)["environments"].([]any)[0].(object)
		ae := environment["application_environment"].(object)
		ae["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
		if failure := w.run(driver.Setup, object{"application_environment": ae, "environment": environment}); failure != "" {
			t.Error(failure)
		}
		if fmt.Sprint(w.story) != "[application_environment.ready application_environment_id=5]" {
			t.Errorf("story %q", w.story)
		}
	}
}

// D61: an environment of many clusters that was made before is not deployed to: Flux would deploy the commit of the first wave in all of
// them.
func TestFluxDeploysToNoFleet(t *testing.T) {
	t.Parallel()
	for _, proposal := range []string{"none", "pull_request"} {
		w := fluxShop(t)
		failure := w.run(driver.Deploy, fluxInputs(func(config, environment object) {
			config["proposal"] = proposal
			environment["fleet"] = object{
				"agents": []any{"cluster_agent_id"}, "deadline": 600, "waves": []any{[]any{object{"agent_id": 51, "name": "eu-1"}}},
			}
		}))
		if !strings.Contains(failure, "flux@1 deploys to all clusters that follow the branch at once") || len(w.commits) > 0 ||
			strings.Contains(strings.Join(w.story, "\n"), "rollout_environment.started") {
			t.Errorf("proposal %s: failure %q, commits %v, story:\n%s", proposal, failure, w.commits, strings.Join(w.story, "\n"))
		}
	}
}
