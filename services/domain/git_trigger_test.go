package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// withManifests adds a source of the manifests' repository to the first service of the shop, without the trigger that comes with it.
func (w winter) withManifests() {
	w.t.Helper()
	w.sourceOf("shop/config")
	if slices.Contains(w.triggersOf(w.application.ID), "git git true") {
		_, err := w.triggers.RemoveTrigger(w.t.Context(), user(), w.application.ID, core.GitTriggerName, "")
		w.ok(err)
	}
}

// sourceOf adds a source of a repository to the first service of the application.
func (w winter) sourceOf(repository string) {
	w.t.Helper()
	services, err := w.view.ServicesByApplication(w.t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	_, err = w.setup.AddArtifactSource(w.t.Context(), user(), services[w.application.ID][0].ID, gitSource(repository))
	w.ok(err)
}

func gitSource(repository string) setup.NewArtifactSource {
	return setup.NewArtifactSource{
		Ref: source.Git, Config: json.RawMessage(fmt.Sprintf(`{"repository":"https://git.test/%s.git","branch":"main"}`, repository)),
	}
}

// triggersOf are the saved triggers of an application: name, kind, and whether each is on.
func (f *fixture) triggersOf(application int64) []string {
	f.t.Helper()
	all, err := f.triggers.Triggers(f.t.Context(), org, []int64{application})
	f.ok(err)
	lines := []string{}
	for _, t := range all[application] {
		if t.ID != 0 {
			lines = append(lines, fmt.Sprintf("%s %s %t", t.Name, t.Kind, t.Enabled))
		}
	}
	return lines
}

// R4-06, D58: a new application has the trigger git from its first source of commits on, recorded as saved by who added the source; one
// that is switched off or removed stays so. An application that was set up before begins nothing that it did not.
func TestTheGitTriggerIsOnWithTheFirstSourceOfCommits(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	on, none := []string{"git git true"}, []string{}
	w.want(w.triggersOf(w.application.ID), none)
	w.sourceOf("shop/config")
	w.want(w.triggersOf(w.application.ID), on)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putTrigger' AND detail = 'trigger git (git), with the first source of commits' AND principal_type = 'user'`), 1)
	set := w.commit(901)
	w.want(w.decide(), []string{"began: commit 000000000000 of git.test/shop/config is new in " + set.Name})
	_, err := w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, "git", "")
	w.ok(err)
	w.sourceOf("shop/other")
	w.want(w.triggersOf(w.application.ID), none)

	// With the application, with a service, and in the place of another source.
	made, err := w.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "made", Services: []setup.NewService{
		{Name: "one", ArtifactSources: []setup.NewArtifactSource{gitSource("made/one")}},
		{Name: "two", ArtifactSources: []setup.NewArtifactSource{gitSource("made/two")}},
	}})
	w.ok(err)
	w.want(w.triggersOf(made.ID), on)
	grown := w.fixture.application("grown", "api")
	_, err = w.setup.AddService(t.Context(), user(), grown.ID, setup.NewService{
		Name: "manifests", ArtifactSources: []setup.NewArtifactSource{gitSource("grown/config")},
	}, "ticket 7")
	w.ok(err)
	w.want(w.triggersOf(grown.ID), on)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putTrigger' AND reason = 'ticket 7'`), 1)
	replaced := w.fixture.application("replaced", "api")
	services, err := w.view.ServicesByApplication(t.Context(), org, []int64{replaced.ID})
	w.ok(err)
	sources, err := w.view.ArtifactSourcesByService(t.Context(), org, []int64{services[replaced.ID][0].ID})
	w.ok(err)
	_, err = w.setup.ReplaceArtifactSource(t.Context(), user(), sources[services[replaced.ID][0].ID][0].ID, gitSource("replaced/config"), "")
	w.ok(err)
	w.want(w.triggersOf(replaced.ID), on)

	// What was saved before stays as it is.
	off := w.another("off", 601)
	_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: off.application.ID, Name: "commits", Kind: core.TriggerGit, Config: json.RawMessage(`{}`),
	})
	w.ok(err)
	off.sourceOf("off/config")
	w.want(w.triggersOf(off.application.ID), []string{"commits git false"})

	old, gradual := w.another("old", 603), w.another("gradual", 604)
	old.succeed(old.rollout(old.set))
	old.sourceOf("old/config")
	w.want(w.triggersOf(old.application.ID), none)
	gradual.trigger(core.TriggerVersion, `{"until":"staging"}`)
	gradual.sourceOf("gradual/config")
	w.want(w.triggersOf(gradual.application.ID), []string{"version version true"})

	// A policy about triggers holds for this one, and its decision is kept.
	kept := w.another("kept", 602)
	w.put(policy.NewPolicySet{Name: "kept", Text: `@id("base") permit (principal, action == Action::"control.change", resource);
@id("no") forbid (principal, action == Action::"control.change", resource) when { context.action == "putTrigger" };`})
	decisions := w.countOf(`SELECT count(*) FROM cd_policy_decisions`)
	kept.sourceOf("kept/config")
	w.want(w.triggersOf(kept.application.ID), none)
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions WHERE verdict = 'deny'`), 1)
	if decisions >= w.countOf(`SELECT count(*) FROM cd_policy_decisions`) {
		t.Error("no decision is kept")
	}
}

// commit reports a commit as the registry does, and answers the set that it makes.
func (w winter) commit(n int) core.VersionSet {
	w.t.Helper()
	w.mu.Lock()
	w.count++
	id := fmt.Sprintf("%s/commit/%d", w.t.Name(), w.count)
	w.mu.Unlock()
	at := time.Unix(1_700_000_000+int64(n), 0)
	changed, err := event.New(event.Header{ID: id, Source: "/services/registry", Time: at}, event.ArtifactPublished{
		Image: "git:git.test/shop/config#main", Digest: shaOf(n), PublishedAt: at.UTC().Format(time.RFC3339),
	})
	w.ok(err)
	w.publish(changed)
	return w.sets()[0]
}

func shaOf(n int) string { return fmt.Sprintf("%040x", n) }

// R4-07, D58: a commit of the manifests that is not deployed begins a rollout at once; a new image does not, and neither does a commit
// that was deployed already, or that a deployment made. Events that come twice begin one.
func TestANewCommitBeginsARollout(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	w.commit(901)
	w.succeed(w.rollout(w.sets()[0]))
	w.trigger(core.TriggerGit, `{}`)
	image := w.release(2)
	w.want(w.decide(), []string{"declined: " + image.Name + " has no new commit"})
	set := w.commit(902)
	w.commit(902)
	w.want(w.decide(), []string{"began: commit 000000000000 of git.test/shop/config is new in " + set.Name})
	r := w.active()
	by, why := w.created(r)
	w.want([]string{by, why}, []string{"policy", fmt.Sprintf("trigger git (git): set:%d", set.ID)})
	// The deployments commit, and the source reports what they have committed, as if its trailers had been lost.
	for _, e := range w.stops(r) {
		for _, d := range w.deployments(e) {
			w.report(event.DeploymentStarted{DeploymentID: d.ID})
			w.report(event.DeploymentCommitted{
				DeploymentID: d.ID, CommitSHA: shaOf(903), ManifestDigest: digestOf(1), Parameters: json.RawMessage(`{}`),
			})
		}
	}
	w.succeed(r)
	w.commit(903)
	w.want(w.decide(), []string{"declined: commit 000000000000 of git.test/shop/config is what deployments have recorded already wherever the trigger goes"})
	w.now.Advance(time.Hour)
	w.want(w.decide(), []string{})
	w.want(w.rolloutCount(), 2)
	w.trigger(core.TriggerGit, `{"repositories":["git.test/other/*"]}`)
	w.commit(904)
	w.want(w.decide(), []string{"declined: commit 000000000000 of git.test/shop/config is not one of the repositories of the trigger"})
	w.trigger(core.TriggerGit, `{"quiet_seconds":60,"until":"staging"}`)
	w.commit(905)
	for _, line := range w.decide() {
		w.want(strings.HasPrefix(line, "waiting: "), true)
	}
	w.now.Advance(time.Minute)
	w.want(len(w.decide()), 1)
	w.want(len(w.stops(w.active())), 1)
	w.verifyJournal(r)
}
