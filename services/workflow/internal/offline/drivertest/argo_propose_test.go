package drivertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// proposingShop is a shop whose repository is at a forge.
func proposingShop(t *testing.T) *world {
	t.Helper()
	w := shop(t)
	w.forge = &fakeForge{statuses: []string{"success"}}
	w.answers["staging"] = "approved"
	return w
}

// proposed are the inputs of a rollout whose change is proposed, with an approval; edit changes its configuration.
func proposed(edit func(config, environment object)) object {
	return inputs(2, func(_, environment object) {
		config := environment["application_environment"].(object)["config"].(object)
		config["proposal"] = "pull_request"
		environment["approval"] = object{"expires_after": 3600}
		if edit != nil {
			edit(config, environment)
		}
	})
}

// D55: the pull request is open before the passage is requested; behind it, exactly the merge is synced.
func TestArgoProposesAChange(t *testing.T) {
	t.Parallel()
	w := proposingShop(t)
	w.held["staging"] = 2 * time.Hour
	if failure := w.run(driver.Deploy, proposed(nil)); failure != "" {
		t.Fatal(failure)
	}
	const merged = "commit: merge (2 files) <nil>"
	expect(t, w, story("rollout.started", "proposed: staging Deploy shop-9 to staging", both("submitted", ""), "held at staging",
		"approval of staging: approved", started, merged, both("submitted", ""), both("committed", ""), "sync: argocd/shop-staging",
		both("gate_reached", " weight=25"), "rollout.gate_reached environment_id=3 weight=25", both("advance", " weight=25"),
		"promote: api past 25", "promote: worker past 25",
		both("gate_reached", " weight=50"), "rollout.gate_reached environment_id=3 weight=50", both("advance", " weight=50"),
		"promote: api past 50", "promote: worker past 50",
		both("healthy", ""), "rollout_environment.healthy environment_id=3", "rollout.healthy")...)
	if w.forge.proposed != 2 || w.forge.merged != 1 || w.forge.looks < 5 || w.forge.looks > 25 {
		t.Errorf("proposed %d times, merged %d times, looked at %d times", w.forge.proposed, w.forge.merged, w.forge.looks)
	}
	for _, c := range w.committed {
		if c.CommitSHA != w.head || len(c.Changes) != 1 || !strings.Contains(string(c.Parameters), `"gates":[25,50]`) {
			t.Errorf("snapshot %+v, expected one of %s with its own change", c, w.head)
		}
	}
	want := event.DeploymentSubmitted{DeploymentID: 11, Name: "#4", URL: "https://git/pulls/4", Status: "open"}
	if w.submitted[0] != want || w.submitted[2].Status != "merged" {
		t.Errorf("shown: %+v", w.submitted)
	}
}

// D55: a deployment of what is on the branch already needs no pull request.
func TestArgoProposesNothingThatExists(t *testing.T) {
	t.Parallel()
	w := proposingShop(t)
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	w.committed, w.commits = nil, nil
	w.forge.pull = object{"number": 0, "url": "", "state": "unchanged", "branch": "main", "head": w.head, "commit": w.head, "by": ""}
	if failure := w.run(driver.Deploy, proposed(nil)); failure != "" || len(w.submitted) > 0 || w.forge.merged > 0 || len(w.commits) > 0 ||
		w.committed[0].CommitSHA != w.head {
		t.Errorf("failure %q, shown %+v, merged %d times", failure, w.submitted, w.forge.merged)
	}
}

// D55: what ends before the merge changes nothing in the cluster, and withdraws the proposal.
func TestArgoSyncsNothingThatIsNotMerged(t *testing.T) {
	t.Parallel()
	refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
	for name, tt := range map[string]struct {
		edit func(w *world)
		want string
	}{
		"rejected": {func(w *world) { w.answers["staging"] = "rejected" }, "gate staging was rejected: because"},
		"closed": {func(w *world) {
			w.held["staging"] = time.Hour
			w.forge.people = map[int]func(*world, object){2: func(_ *world, pull object) { pull["state"], pull["by"] = "closed", "ann" }}
		}, "staging: https://git/pulls/4 was closed by ann"},
		"not merged in time": {func(w *world) {
			for range 1000 {
				w.forge.merges = append(w.forge.merges, refused)
			}
		}, "did not reach gate 25 within 600 seconds; last seen: the forge does not merge https://git/pulls/4 yet: a review is missing"},
		"no right to merge": {func(w *world) {
			w.forge.merges = []*history.FunctionError{{Code: "unauthorized", Message: "the token may not"}}
		}, "api failed at gate 25: merge: the token may not"},
	} {
		w := proposingShop(t)
		tt.edit(w)
		failure := w.run(driver.Deploy, proposed(nil))
		all := strings.Join(w.story, "\n")
		if !strings.Contains(failure, tt.want) || !strings.Contains(all, "withdrawn: closed") || strings.Contains(all, "sync:") || w.forge.merged > 0 ||
			len(w.committed) > 0 {
			t.Errorf("%s: failure %q, merged %d times, story:\n%s", name, failure, w.forge.merged, all)
		}
	}
}

// D55: a forge that wants a review first, and does not answer once, is waited for; one merge serves all deployments.
func TestArgoWaitsForTheForge(t *testing.T) {
	t.Parallel()
	for _, watching := range []bool{false, true} {
		w := proposingShop(t)
		w.watching = watching
		refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
		w.forge.merges = []*history.FunctionError{refused, refused, {Code: "unreachable", Message: "away"}}
		if failure := w.run(driver.Deploy, proposed(nil)); failure != "" || w.forge.merged != 1 || len(w.committed) != 2 {
			t.Errorf("watching %t: failure %q, merged %d times, %d snapshots", watching, failure, w.forge.merged, len(w.committed))
		}
	}
}

// D55: the branch has moved under the edit, which is made again; another author's lines stay.
func TestArgoProposesAgain(t *testing.T) {
	t.Parallel()
	w := proposingShop(t)
	w.held["staging"] = time.Hour
	w.forge.people = map[int]func(*world, object){2: func(w *world, _ object) {
		w.commit(object{"files": []any{object{"path": "staging/api.yaml", "content": "# hers\n" + w.files["staging/api.yaml"]}}, "message": "hers"})
	}}
	w.forge.merges = []*history.FunctionError{{Code: "conflict", Message: "staging/api.yaml has changed"}}
	if failure := w.run(driver.Deploy, proposed(nil)); failure != "" {
		t.Fatal(failure)
	}
	if got := w.files["staging/api.yaml"]; !strings.HasPrefix(got, "# hers\n") || !strings.Contains(got, image("api", 2)) || w.committed[0].CommitSHA != w.head {
		t.Errorf("merged %q, snapshot of %s, head %s", got, w.committed[0].CommitSHA, w.head)
	}
}

// D55, E73: an abort before the merge changes nothing, and the pull request stays for the retry; one after it is that of any deployment.
func TestAnAbortOfAProposalOfArgo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after  string
		aborts bool
	}{
		"before the merge": {"deployment.started deployment_id=12", false},
		"after the merge":  {"deployment.gate_reached deployment_id=12 weight=25", true},
	} {
		w := proposingShop(t)
		if !tt.aborts {
			w.forge.merges = []*history.FunctionError{{Code: "refused", Message: "a review is missing"}}
		}
		w.asks = map[string]map[string]time.Duration{
			tt.after: {event.TypeRolloutAbortRequested: time.Second, event.TypeRolloutRetryRequested: time.Minute},
		}
		failure := w.run(driver.Deploy, proposed(nil))
		all := strings.Join(w.story, "\n")
		if failure != "" || w.forge.merged != 1 || !strings.Contains(all, "rollout.aborted") || strings.Contains(all, "withdrawn") ||
			strings.Contains(all, "abort: api") != tt.aborts {
			t.Errorf("%s: failure %q, merged %d times, story:\n%s", name, failure, w.forge.merged, all)
		}
	}
}

// D55, E73: a new rollout after an aborted one retries what that has left as soon as the merge is synced.
func TestArgoRetriesWhatAnEarlierRolloutLeft(t *testing.T) {
	t.Parallel()
	w := proposingShop(t)
	for _, name := range []string{"api", "worker"} {
		r := w.rollouts["shop/"+name]
		r.image, r.current, r.step, r.degraded = image(name, 2), "hash-"+image(name, 2), 0, "RolloutAborted"
	}
	w.forge.merges = []*history.FunctionError{{Code: "refused", Message: "a review is missing"}}
	in := proposed(nil)
	in["rollout"].(object)["retry"] = true
	failure := w.run(driver.Deploy, in)
	all := strings.Join(w.story, "\n")
	if failure != "" || strings.Count(all, "retry: api") != 1 || strings.Index(all, "retry: api") < strings.Index(all, "sync:") {
		t.Errorf("failure %q, story:\n%s", failure, all)
	}
}

// D55, E73: an abort that is requested between merge and first sync, or behind that, reaches all deployments, which share the sync; after
// the retry all of them get it. It is the same without a proposal.
func TestAnAbortBetweenTheMergeAndTheSyncOfArgo(t *testing.T) {
	t.Parallel()
	for _, nth := range []int{1, 2} {
		for _, proposal := range []string{"pull_request", "branch", "none"} {
			w := proposingShop(t)
			if nth == 2 {
				w.hooks = &hooks{post: 40 * time.Second}
			}
			w.asks = map[string]map[string]time.Duration{
				"deployment.committed deployment_id=12": {event.TypeRolloutAbortRequested: 0},
				hasAborted:                              {event.TypeRolloutRetryRequested: time.Minute},
			}
			n := 0
			w.fail = func(name string, _ object) *history.FunctionError {
				if name == "argo.sync" {
					if n++; n == nth {
						return &history.FunctionError{Code: "forbidden", Message: "the rollout is being aborted"}
					}
				}
				return nil
			}
			failure := w.run(driver.Deploy, proposed(func(c, _ object) { c["proposal"] = proposal }))
			all := strings.Join(w.story, "\n")
			if failure != "" || nth == 2 && (!strings.Contains(all, "abort: api") || !strings.Contains(all, "abort: worker")) {
				t.Errorf("call %d, %s: failure %q, story:\n%s", nth, proposal, failure, all)
			}
			if w.forge.merged > 1 || len(w.commits) != max(1, w.forge.merged) && proposal != "none" {
				t.Errorf("call %d, %s: merged %d times, commits %v", nth, proposal, w.forge.merged, w.commits)
			}
		}
	}
}

// D55, E67: once its sync has begun, what was proposed is watched as any deployment, and not longer than it lasts.
func TestWhatArgoHasMergedIsWatched(t *testing.T) {
	t.Parallel()
	looks := map[string]int{}
	for _, proposal := range []string{"pull_request", "none"} {
		w, kinds := proposingShop(t), map[string]int{}
		w.watching = true
		w.forge.merges = []*history.FunctionError{{Code: "refused", Message: "a review is missing"}}
		w.fail = func(name string, args object) *history.FunctionError {
			if name == "k8s.watch" {
				kinds[fmt.Sprint(args["kind"], " ", args["name"])]++
			}
			return nil
		}
		failure := w.run(driver.Deploy, proposed(func(c, _ object) { c["proposal"] = proposal }))
		if failure != "" || kinds["Rollout api"] == 0 || kinds["Rollout worker"] == 0 || len(w.watches) > 0 {
			t.Errorf("%s: failure %q, watched %v, left %v", proposal, failure, kinds, w.watches)
		}
		looks[proposal] = w.looks
	}
	if looks["pull_request"] > 2*looks["none"] {
		t.Errorf("looked %v times, expected about as often", looks)
	}
}

// fleetOfTwo makes an environment one of two clusters, in two waves.
func fleetOfTwo(_, environment object) {
	environment["gates"] = []any{}
	environment["fleet"] = object{"agents": []any{"cluster_agent_id"}, "deadline": 3600, "waves": []any{
		[]any{object{"agent_id": 51, "name": "eu-1"}}, []any{object{"agent_id": 52, "name": "eu-2"}},
	}}
}

// D55, D61: one look at the forge that fails does not end a rollout to a fleet, at whichever call; the change is proposed once and kept.
func TestAFleetOutlastsTheForge(t *testing.T) {
	t.Parallel()
	refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
	away := &history.FunctionError{Code: "unreachable", Message: "502 bad gateway"}
	for name, tt := range map[string]struct {
		merges   []*history.FunctionError
		ill      int // the call of git.propose that fails
		proposed int
	}{
		"proposed": {nil, 2, 2},
		"reviewed": {[]*history.FunctionError{refused, refused, refused, refused, refused}, 0, 2},
		"merged":   {[]*history.FunctionError{away, {Code: "timeout"}, {Code: "internal"}}, 0, 2},
		"again":    {[]*history.FunctionError{refused, {Code: "conflict", Message: "api.yaml has changed"}}, 3, 3},
	} {
		w, calls := proposingShop(t), 0
		w.forge.merges = tt.merges
		w.fail = func(name string, _ object) *history.FunctionError {
			if name == "git.propose" {
				if calls++; calls == tt.ill {
					return away
				}
			}
			return nil
		}
		failure := w.run(driver.Deploy, proposed(fleetOfTwo))
		if failure != "" || w.forge.merged != 1 || w.forge.proposed > tt.proposed || strings.Contains(strings.Join(w.story, "\n"), "withdrawn") {
			t.Errorf("%s: failure %q, merged %d times, proposed %d times", name, failure, w.forge.merged, w.forge.proposed)
		}
	}
}

// D53, D61: every snapshot of a fleet has the change that was merged for all of it, and says whose the parameters of an Application are.
func TestTheSnapshotsOfAFleetHaveItsChange(t *testing.T) {
	t.Parallel()
	w := proposingShop(t)
	w.objects["Application argocd/shop-staging"] = object{
		"kind": "Application", "metadata": object{"name": "shop-staging", "namespace": "argocd"},
		"spec": object{"source": object{"kustomize": object{"namePrefix": "x-"}}},
	}
	if failure := w.run(driver.Deploy, proposed(func(config, environment object) {
		fleetOfTwo(config, environment)
		config["mode"] = "existing"
	})); failure != "" {
		t.Fatal(failure)
	}
	if len(w.committed) < 4 {
		t.Fatalf("%d snapshots, expected those of both targets", len(w.committed))
	}
	for i, c := range w.committed {
		if len(c.Changes) != 1 || !strings.Contains(c.Changes[0].Diff, "+") || c.CommitSHA != w.head {
			t.Errorf("snapshot %d of %s: changes %+v", i, c.CommitSHA, c.Changes)
		}
	}
	if first, last := string(w.committed[0].Parameters), string(w.committed[3].Parameters); !strings.Contains(first, `"target":"eu-1"`) ||
		!strings.Contains(last, `"target":"eu-2"`) {
		t.Errorf("parameters %s and %s", first, last)
	}
}

// D55: a configuration that proposes what is never committed ends a rollout with the sentence of the setup, before anything is changed.
func TestArgoProposesNoParameters(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(config, environment object){"one": func(_, _ object) {}, "fleet": fleetOfTwo} {
		w := proposingShop(t)
		failure := w.run(driver.Deploy, proposed(func(config, environment object) {
			edit(config, environment)
			config["version_setting"] = "parameters"
		}))
		if !strings.Contains(failure, "nothing is committed, so nothing can be proposed") || w.forge.proposed > 0 || len(w.commits) > 0 {
			t.Errorf("%s: failure %q, proposed %d times, commits %v", name, failure, w.forge.proposed, w.commits)
		}
	}
}

// D55, D61: what is proposed to a fleet is merged once, before its first wave; its targets find it, and sync exactly that.
func TestAFleetIsProposedOnce(t *testing.T) {
	t.Parallel()
	refused := &history.FunctionError{Code: "refused", Message: "a review is missing"}
	for _, late := range []int{1, 1000} {
		w := proposingShop(t)
		for range late {
			w.forge.merges = append(w.forge.merges, refused)
		}
		var synced []string
		w.fail = func(name string, args object) *history.FunctionError {
			if name == "argo.sync" {
				synced = append(synced, fmt.Sprint(args["agent_id"], " ", args["revision"] == w.head))
			}
			return nil
		}
		failure := w.run(driver.Deploy, proposed(func(_, environment object) {
			environment["gates"] = []any{}
			environment["fleet"] = object{
				"agents": []any{"cluster_agent_id"}, "deadline": 3600, "waves": []any{
					[]any{object{"agent_id": 51, "name": "eu-1"}}, []any{object{"agent_id": 52, "name": "eu-2"}},
				},
			}
		}))
		all := strings.Join(w.story, "\n")
		if late > 1 {
			if !strings.Contains(failure, "staging: the forge does not merge https://git/pulls/4 yet: a review is missing") || len(synced) > 0 ||
				!strings.Contains(all, "withdrawn: closed") {
				t.Errorf("failure %q, synced %v, story:\n%s", failure, synced, all)
			}
			continue
		}
		seen := strings.Join(synced, "\n")
		if failure != "" || w.forge.merged != 1 || len(w.commits) != 1 || strings.Contains(seen, "false") ||
			!strings.Contains(seen, "51 true") || !strings.Contains(seen, "52 true") {
			t.Errorf("failure %q, merged %d times, commits %v, synced:\n%s\nstory:\n%s", failure, w.forge.merged, w.commits, seen, all)
		}
	}
}

// D55: what cannot be proposed is found by the setup, and so is a forge that cannot be asked. A preview proposes nothing.
func TestTheSetupOfProposalsOfArgo(t *testing.T) {
	t.Parallel()
	setup := func(edit func(config, environment object)) object {
		environment := proposed(edit)["rollout"].(object)["environments"].([]any)[0].(object)
		ae := environment["application_environment"].(object)
		ae["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
		return object{"application_environment": ae, "environment": environment}
	}
	w := proposingShop(t)
	if failure := w.run(driver.Setup, setup(nil)); failure != "" || w.forge.proposed > 0 {
		t.Errorf("failure %q, proposed %d times", failure, w.forge.proposed)
	}
	w = proposingShop(t)
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "git.read_status" {
			return &history.FunctionError{Code: "refused", Message: "no forge is configured"}
		}
		return nil
	}
	if failure := w.run(driver.Setup, setup(nil)); !strings.Contains(failure, "the forge cannot be asked: no forge is configured") {
		t.Errorf("failure %q", failure)
	}
	w = proposingShop(t)
	failure := w.run(driver.Setup, setup(func(config, _ object) {
		config["version_setting"] = "parameters"
		for _, service := range config["services"].([]any) {
			s := service.(object)
			s["format"], s["rollout_file"], s["image_name"] = "kustomize", s["file"], "x"
		}
	}))
	if !strings.Contains(failure, "nothing is committed, so nothing can be proposed") {
		t.Errorf("failure %q", failure)
	}
	w = proposingShop(t)
	in := proposed(nil)
	delete(in, "pipeline")
	in["preview"] = object{"id": 6}
	if failure := w.run(driver.Preview, in); failure != "" || w.forge.proposed > 0 || len(w.previews[0].Environments[0].Changes) != 2 {
		t.Errorf("failure %q, proposed %d times, previews %+v", failure, w.forge.proposed, w.previews)
	}
}

// D55, R21: a configuration from before says nothing about proposals, and means commits; the reference is the same.
func TestAConfigurationOfArgoFromBeforeProposals(t *testing.T) {
	t.Parallel()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := set.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	environment := proposed(nil)["rollout"].(object)["environments"].([]any)[0].(object)
	config := environment["application_environment"].(object)["config"].(object)
	for value, valid := range map[any]bool{nil: true, "none": true, "branch": true, "pull_request": true, "push": false} {
		if config["proposal"] = value; value == nil {
			delete(config, "proposal")
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := bundle.ValidateApplicationEnvironment(text); (err == nil) != valid {
			t.Errorf("proposal %v: %v", value, err)
		}
	}
}
