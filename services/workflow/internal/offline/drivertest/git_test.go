package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// fakeForge has one pull request for each name, as git.propose has for each run.
type fakeForge struct {
	// text is the latest description, and name which of the run's proposals it is.
	text     any
	name     any
	pull     object
	files    []any
	proposed int
	merged   int
	// merges is what git.merge answers before it merges: an error each.
	merges []*history.FunctionError
	// people is what is done at the forge at a look, by the number of the look from 1.
	people map[int]func(w *world, pull object)
	looks  int
	// statuses are the states that git.read_status answers, one after the other; the last one stays.
	statuses []string
}

func (f *fakeForge) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	switch name {
	case "git.propose":
		f.proposed++
		f.text, f.name = args["description"], args["name"]
		if f.pull == nil {
			f.pull = object{"number": 4, "url": "https://git/pulls/4", "state": "open", "branch": "lockstep/proposals/x", "commit": "", "by": ""}
			w.record("proposed: %s %s", args["name"], args["message"])
		}
		if f.pull["state"] == "open" && fmt.Sprint(f.files) != fmt.Sprint(args["files"]) {
			f.files, f.pull["head"] = args["files"].([]any), sha(fmt.Sprint(args["files"]))
		}
		return f.pull, nil, true
	case "git.read_proposal":
		f.looks++
		if args["name"] != f.name { // the engine reports only what has the name of a proposal of the run (D55)
			return nil, &history.FunctionError{Code: "invalid", Message: fmt.Sprintf("found the name %v, expected %v", args["name"], f.name)}, true
		}
		if act := f.people[f.looks]; act != nil {
			act(w, f.pull)
		}
		return f.pull, nil, true
	case "git.merge":
		if len(f.merges) > 0 {
			failed := f.merges[0]
			f.merges = f.merges[1:]
			return nil, failed, true
		}
		if f.pull["state"] == "closed" {
			return nil, &history.FunctionError{Code: "refused", Message: "https://git/pulls/4 was closed"}, true
		}
		if args["head"] != f.pull["head"] || fmt.Sprint(args["files"]) != fmt.Sprint(f.files) {
			return nil, &history.FunctionError{Code: "conflict", Message: "the head is another one"}, true
		}
		if f.pull["state"] == "open" {
			f.merge(w, "")
		}
		return f.pull, nil, true
	case "git.withdraw":
		if f.pull["state"] == "open" {
			f.pull["state"] = "closed"
		}
		w.record("withdrawn: %s", f.pull["state"])
		return f.pull, nil, true
	case "git.read_status":
		state := f.statuses[0]
		if len(f.statuses) > 1 {
			f.statuses = f.statuses[1:]
		}
		return object{"state": state, "statuses": []any{object{"name": "smoke", "state": state, "url": ""}}}, nil, true
	default:
		return nil, nil, false
	}
}

func (f *fakeForge) merge(w *world, by string) {
	w.commit(object{"files": f.files, "message": "merge"})
	f.merged++
	f.pull["state"], f.pull["commit"], f.pull["by"] = "merged", w.head, by
}

// gitShop is an application of two services whose images are in two files.
func gitShop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = set.Get("git@1"); err != nil {
		t.Fatal(err)
	}
	w.forge = &fakeForge{statuses: []string{"success"}}
	w.files["staging/api.yaml"] = "# api\nimage: " + image("api", 1) + "\n"
	w.files["staging/worker.yaml"] = "spec:\n  worker:\n    image: " + image("worker", 1) + "\n"
	return w
}

func gitInputs(edit func(config, environment object)) object {
	return inputs(2, func(_, environment object) {
		config := object{
			"repository_url": "http://git/shop.git", "branch": "main", "services": []any{
				object{"service": "api", "file": "staging/api.yaml"},
				object{"service": "worker", "file": "staging/worker.yaml", "field": "spec.worker.image"},
			},
		}
		environment["config"] = object{}
		environment["gates"] = []any{}
		if edit != nil {
			edit(config, environment)
		}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": config}
	})
}

// proposing is a configuration of pull requests, with an approval.
func proposing(config, environment object) {
	config["proposal"] = "pull_request"
	config["deadline"] = 600
	environment["approval"] = object{"expires_after": 3600}
}

// started are the events of an environment's entrance.
var started = []string{"rollout_environment.started environment_id=3", "deployment.started deployment_id=11", "deployment.started deployment_id=12"}

// both is an event of both deployments.
func both(kind, more string) []string {
	return []string{"deployment." + kind + " deployment_id=11" + more, "deployment." + kind + " deployment_id=12" + more}
}

func story(parts ...any) (all []string) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			all = append(all, p)
		case []string:
			all = append(all, p...)
		}
	}
	return all
}

// D55: a pull request says what moves from which version to which, and where its rollout is, if the domain knows it.
func TestAPullRequestDescribesItsChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		url  string
		want string
	}{
		"with the console": {
			"https://cd.example.com/rollouts/rollout_7",
			"shop-9 is to be deployed to staging.\n\n- api: `1` → `2`, as `" + image("api", 2) + "`\n- worker: `2`, as `" + image("worker", 2) + "`\n\n" +
				"Rollout 7: https://cd.example.com/rollouts/rollout_7\n\nLockstep merges",
		},
		"of an earlier release": {
			"", "- api: `1` → `2`, as `" + image("api", 2) + "`\n- worker: `2`, as `" + image("worker", 2) + "`\n\nLockstep merges",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gitShop(t)
			in := gitInputs(func(c, e object) {
				c["proposal"] = "pull_request"
				e["deployments"].([]any)[0].(object)["before"] = []any{object{"name": "1"}}
			})
			if test.url != "" {
				in["rollout"].(object)["url"] = test.url
			}
			if failure := w.run(driver.Deploy, in); failure != "" {
				t.Fatal(failure)
			}
			if text := fmt.Sprint(w.forge.text); !strings.Contains(text, test.want) {
				t.Errorf("found %s; want %s", text, test.want)
			}
		})
	}
}

// Images are committed to files, and a deployment is healthy once the status of the commit is.
func TestFilesAreCommitted(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.forge.statuses = []string{"pending", "pending", "pending", "success"}
	if failure := w.run(driver.Deploy, gitInputs(func(c, _ object) { c["statuses"] = []any{"smoke"} })); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w, story("rollout.started", started, opening, both("committed", ""), both("healthy", ""),
		"rollout_environment.healthy environment_id=3", "rollout.healthy")...)
	if w.files["staging/api.yaml"] != "# api\nimage: "+image("api", 2)+"\n" ||
		!strings.Contains(w.files["staging/worker.yaml"], image("worker", 2)) {
		t.Errorf("files %q", w.files)
	}
	if c := w.committed[1]; c.CommitSHA != w.head || !strings.Contains(string(c.Parameters), image("worker", 2)) || len(c.Changes) != 2 {
		t.Errorf("snapshot %+v", c)
	}
}

// A kustomization has the names of images instead of fields.
func TestImagesOfAKustomization(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.files["staging/kustomization.yaml"] = "resources: [all.yaml]\nimages:\n  - name: api\n    newTag: \"1\"\n  - name: worker\n    newTag: \"1\"\n"
	edit := func(worker object) func(c, _ object) {
		return func(c, _ object) {
			c["services"] = []any{object{"service": "api", "file": "staging/kustomization.yaml", "image_name": "api"}, worker}
		}
	}
	worker := object{"service": "worker", "file": "staging/kustomization.yaml", "image_name": "worker"}
	if failure := w.run(driver.Deploy, gitInputs(edit(worker))); failure != "" {
		t.Fatal(failure)
	}
	for _, service := range []string{"api", "worker"} {
		name, digest, _ := strings.Cut(image(service, 2), "@")
		text := w.files["staging/kustomization.yaml"]
		if !strings.Contains(text, name) || !strings.Contains(text, digest) || !strings.Contains(text, "resources: [all.yaml]") {
			t.Errorf("%s: %s", service, text)
		}
	}
	delete(worker, "image_name")
	failure := w.run(driver.Deploy, gitInputs(edit(worker)))
	if !strings.Contains(failure, "staging/kustomization.yaml: some services have image_name, and others field") {
		t.Errorf("failure %q", failure)
	}
}

func TestAStatusThatFails(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.forge.statuses = []string{"pending", "pending", "failure"}
	failure := w.run(driver.Deploy, gitInputs(func(c, _ object) { c["statuses"] = []any{"smoke"} }))
	if !strings.Contains(failure, "smoke is failure") {
		t.Errorf("failure %q", failure)
	}
}

// D55: the pull request is open before the passage is requested, and merged after it is granted.
func TestAChangeIsProposed(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.answers["staging"] = "approved"
	w.held["staging"] = 2 * time.Hour
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w, story("rollout.started", "proposed: staging Deploy shop-9 to staging", both("submitted", ""), "held at staging",
		"approval of staging: approved", started, "commit: merge (2 files) <nil>", both("submitted", ""), both("committed", ""), both("healthy", ""),
		"rollout_environment.healthy environment_id=3", "rollout.healthy")...)
	if w.forge.proposed != 2 || w.forge.merged != 1 || w.committed[0].CommitSHA != w.head {
		t.Errorf("proposed %d times, merged %d times; snapshot %+v, head %s", w.forge.proposed, w.forge.merged, w.committed[0], w.head)
	}
	if w.forge.looks < 5 || w.forge.looks > 25 {
		t.Errorf("%d looks in two hours, expected that they become rare", w.forge.looks)
	}
	want := event.DeploymentSubmitted{DeploymentID: 11, Name: "#4", URL: "https://git/pulls/4", Status: "open"}
	if w.submitted[0] != want || w.submitted[2].Status != "merged" {
		t.Errorf("shown: %+v", w.submitted)
	}
}

// What is in the repository already needs no pull request, and its passage all the same.
func TestAChangeThatExists(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.forge.pull = object{"number": 0, "url": "", "state": "unchanged", "branch": "", "head": w.head, "commit": w.head, "by": ""}
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure == "" || !strings.Contains(failure, "was not granted within") {
		t.Errorf("failure %q, expected that it waits for its passage", failure)
	}
	w = gitShop(t)
	w.forge.pull = object{"number": 0, "url": "", "state": "unchanged", "branch": "", "head": w.head, "commit": w.head, "by": ""}
	w.answers["staging"] = "approved"
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure != "" || len(w.submitted) > 0 ||
		w.committed[0].CommitSHA != w.head {
		t.Errorf("failure %q, shown %+v", failure, w.submitted)
	}
}

// Merged by hand: the rollout says so, and waits for its passage (D55).
func TestAProposalIsMergedByHand(t *testing.T) {
	t.Parallel()
	for _, approved := range []bool{true, false} {
		w := gitShop(t)
		w.held["staging"] = time.Hour
		if w.answers["staging"] = "approved"; !approved {
			w.answers["staging"] = ""
		}
		w.forge.people = map[int]func(*world, object){2: func(w *world, _ object) { w.forge.merge(w, "ann") }}
		failure := w.run(driver.Deploy, gitInputs(proposing))
		if approved && failure != "" || !approved && !strings.Contains(failure, "was not granted within") {
			t.Errorf("approved %t: failure %q", approved, failure)
		}
		if s := w.submitted[2]; s.Status != "merged by ann before the passage was granted" {
			t.Errorf("shown %+v", s)
		}
		if entered := strings.Contains(strings.Join(w.story, "\n"), "rollout_environment.started"); entered != approved ||
			w.forge.merged != 1 {
			t.Errorf("approved %t: entered %t, merged %d times", approved, entered, w.forge.merged)
		}
	}
}

// Closed by hand: before the passage, and after it.
func TestAProposalIsClosedByHand(t *testing.T) {
	t.Parallel()
	closing := func(_ *world, pull object) { pull["state"], pull["by"] = "closed", "ann" }
	refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
	for name, tt := range map[string]struct {
		look    int
		merges  []*history.FunctionError
		want    string
		entered bool
	}{
		"before": {2, nil, "staging: https://git/pulls/4 was closed by ann", false},
		"after":  {3, []*history.FunctionError{refused, refused, refused, refused, refused, refused}, "api failed after the last gate: merge: a review is missing", true},
	} {
		w := gitShop(t)
		if w.answers["staging"] = "approved"; !tt.entered {
			w.held["staging"] = time.Hour
		}
		w.forge.merges = tt.merges
		w.forge.people = map[int]func(*world, object){tt.look: closing}
		failure := w.run(driver.Deploy, gitInputs(proposing))
		all := strings.Join(w.story, "\n")
		if !strings.Contains(failure, tt.want) || strings.Contains(all, "rollout_environment.started") != tt.entered ||
			w.forge.merged > 0 ||
			!strings.Contains(all, "rollout.failed reason=") {
			t.Errorf("%s: failure %q, story:\n%s", name, failure, all)
		}
	}
}

// A forge that wants reviews or checks first is waited for; one that does not get them in time fails the deployment, and the pull
// request is closed.
func TestAForgeThatDoesNotMergeYet(t *testing.T) {
	t.Parallel()
	refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
	w := gitShop(t)
	w.answers["staging"] = "approved"
	w.forge.merges = []*history.FunctionError{refused, refused, {Code: "unreachable", Message: "away"}}
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure != "" || w.forge.merged != 1 {
		t.Errorf("failure %q, merged %d times", failure, w.forge.merged)
	}
	w = gitShop(t)
	w.answers["staging"] = "approved"
	for range 1000 {
		w.forge.merges = append(w.forge.merges, refused)
	}
	failure := w.run(driver.Deploy, gitInputs(proposing))
	if !strings.Contains(failure, "did not become healthy within 600 seconds; last seen: the forge does not merge https://git/pulls/4 yet: a review is missing") ||
		!strings.Contains(strings.Join(w.story, "\n"), "withdrawn: closed") {
		t.Errorf("failure %q, story %q", failure, w.story)
	}
}

// The branch has moved under the edit: it is made again from the files as they are now, and that is merged.
func TestAProposalIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.answers["staging"] = "approved"
	w.held["staging"] = time.Hour
	w.forge.people = map[int]func(*world, object){2: func(w *world, _ object) {
		w.commit(object{"files": []any{object{"path": "staging/api.yaml", "content": "# hers\nimage: " + image("api", 1) + "\n"}}, "message": "hers"})
	}}
	w.forge.merges = []*history.FunctionError{{Code: "conflict", Message: "staging/api.yaml has changed"}}
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure != "" {
		t.Fatal(failure)
	}
	if got := w.files["staging/api.yaml"]; got != "# hers\nimage: "+image("api", 2)+"\n" || w.forge.proposed != 3 {
		t.Errorf("merged %q after %d proposals", got, w.forge.proposed)
	}
	// A branch that moves each time does not keep it going for ever.
	w = gitShop(t)
	w.answers["staging"] = "approved"
	for range 100 {
		w.forge.merges = append(w.forge.merges, &history.FunctionError{Code: "conflict", Message: "moved"})
	}
	if failure := w.run(driver.Deploy, gitInputs(proposing)); !strings.Contains(failure, "merge: moved") || w.forge.proposed > 10 {
		t.Errorf("failure %q after %d proposals", failure, w.forge.proposed)
	}
}

// A rejection withdraws the pull request.
func TestARejectionWithdrawsTheProposal(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.answers["staging"] = "rejected"
	failure := w.run(driver.Deploy, gitInputs(proposing))
	expect(t, w, story("rollout.started", "proposed: staging Deploy shop-9 to staging", both("submitted", ""), "approval of staging: rejected",
		"withdrawn: closed", both("submitted", ""), "rollout_environment.failed environment_id=3 reason=gate staging was rejected: because",
		"rollout.failed reason=gate staging was rejected: because")...)
	if !strings.Contains(failure, "was rejected") || w.forge.merged > 0 {
		t.Errorf("failure %q, merged %d times", failure, w.forge.merged)
	}
}

// After an abort nothing is merged until the retry; the pull request stays.
func TestAnAbortBeforeTheMerge(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	w.answers["staging"] = "approved"
	w.forge.merges = []*history.FunctionError{{Code: "refused", Message: "a review is missing"}}
	w.asks = map[string]map[string]time.Duration{
		"deployment.started deployment_id=12": {event.TypeRolloutAbortRequested: 5 * time.Second, event.TypeRolloutRetryRequested: time.Minute},
	}
	if failure := w.run(driver.Deploy, gitInputs(proposing)); failure != "" || w.forge.merged != 1 {
		t.Errorf("failure %q, merged %d times, story:\n%s", failure, w.forge.merged, strings.Join(w.story, "\n"))
	}
	if all := strings.Join(w.story, "\n"); !strings.Contains(all, "rollout.aborted") || strings.Contains(all, "withdrawn") {
		t.Errorf("story:\n%s", all)
	}
}

// What does not fit is found before anything is changed, and says where it is.
func TestFilesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(w *world, config object){
		"service worker has no file": func(_ *world, c object) { c["services"] = c["services"].([]any)[:1] },
		"read gone.yaml":             func(_ *world, c object) { c["services"].([]any)[0].(object)["file"] = "gone.yaml" },
		"staging/api.yaml: ":         func(w *world, _ object) { w.files["staging/api.yaml"] = "tag: 1\n" },
		"expected one version of other/image in the version set": func(_ *world, c object) {
			c["services"].([]any)[0].(object)["image"] = "other/image"
		},
	} {
		w := gitShop(t)
		failure := w.run(driver.Deploy, gitInputs(func(c, e object) { proposing(c, e); edit(w, c) }))
		if !strings.Contains(failure, want) || w.forge.proposed > 0 || len(w.commits) > 0 {
			t.Errorf("failure %q, want %q", failure, want)
		}
	}
}

func TestTheSetupOfFiles(t *testing.T) {
	t.Parallel()
	inputsOf := func(more object) object {
		in := gitInputs(func(c, _ object) {
			for k, v := range more {
				c[k] = v
			}
		})
		environment := in["rollout"].(object)["environments"].([]any)[0].(object)
		ae := environment["application_environment"].(object)
		ae["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
		return object{"application_environment": ae, "environment": environment}
	}
	w := gitShop(t)
	if failure := w.run(driver.Setup, inputsOf(object{"proposal": "pull_request"})); failure != "" {
		t.Error(failure)
	}
	expect(t, w, "application_environment.ready application_environment_id=5")
	w = gitShop(t)
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "git.read_status" {
			return &history.FunctionError{Code: "refused", Message: "no forge is configured"}
		}
		return nil
	}
	if failure := w.run(driver.Setup, inputsOf(object{"proposal": "pull_request"})); !strings.Contains(failure, "no forge is configured") {
		t.Errorf("failure %q", failure)
	}
	w.story = nil
	if failure := w.run(driver.Setup, inputsOf(nil)); failure != "" { // commits need no forge
		t.Error(failure)
	}
	w = gitShop(t)
	if failure := w.run(driver.Onboarding, object{"environment": object{"id": 3, "name": "staging", "config": object{}}}); failure != "" {
		t.Error(failure)
	}
}

func TestThePreviewOfFiles(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	in := gitInputs(proposing)
	delete(in, "pipeline")
	in["preview"] = object{"id": 6}
	if failure := w.run(driver.Preview, in); failure != "" {
		t.Fatal(failure)
	}
	if p := w.previews[0].Environments[0]; len(p.Changes) != 2 || p.Reason != "" || w.forge.proposed > 0 ||
		!strings.Contains(p.Changes[0].Diff, image("api", 2)) {
		t.Errorf("%+v", p)
	}
}
