package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// withManifests adds a source of the manifests' repository to the first service of the shop.
func (w winter) withManifests() {
	w.t.Helper()
	services, err := w.view.ServicesByApplication(w.t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	_, err = w.setup.AddArtifactSource(w.t.Context(), user(), services[w.application.ID][0].ID, setup.NewArtifactSource{
		Ref: source.Git, Config: json.RawMessage(`{"repository":"https://git.test/shop/config.git","branch":"main"}`),
	})
	w.ok(err)
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
