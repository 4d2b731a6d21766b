package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// small denies what is larger than two lines of one file, or whose size is not known.
const small = allowed + `@id("small") @message("at most two lines of one file")
forbid (principal, action in [Action::"environment.enter", Action::"gate.pass"], resource == Environment::"production")
unless { context has change && context.change has lines && context.change has files && context.change.lines <= 2 &&
context.change.files == 1 };`

// lines is a change of a file of production.
func lines(of string) event.FileChange {
	return event.FileChange{Path: "production/api.yaml", Diff: "--- a/production/api.yaml\n+++ b/production/api.yaml\n@@ -1,3 +1,3 @@\n" + of}
}

// looked is a preview that has found changes in production, if any from what is live there.
func (w winter) looked(live bool, changes ...event.FileChange) core.Preview {
	w.t.Helper()
	p := w.preview(rollout.NewPreview{VersionSetID: w.set.ID})
	found := event.PreviewedEnvironment{EnvironmentID: w.production.ID, Changes: append([]event.FileChange{}, changes...), FromLive: live}
	w.report(event.RolloutPreviewed{PreviewID: p.ID, Environments: []event.PreviewedEnvironment{found}})
	w.now.Advance(5 * time.Minute)
	w.review()
	return p
}

// size is what policies saw last of a rollout's change.
func (w winter) size(r core.Rollout) string {
	w.t.Helper()
	all, err := w.policies.PolicyDecisionsByRollout(w.t.Context(), org, []int64{r.ID})
	w.ok(err)
	c, text := all[r.ID][0].Request.Change, all[r.ID][0].GateID
	if c.Files != nil {
		text += fmt.Sprintf(" %d files", *c.Files)
	}
	if c.Lines != nil {
		text += fmt.Sprintf(" %d lines", *c.Lines)
	}
	return text
}

// D51: policies see how large a change is where that is known: by the latest preview, if its driver compares with what is live, and nothing
// has outdated it. Where it is not known it is absent, and a policy that requires it denies.
func TestPoliciesSeeTheSizeOfAChange(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: small})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.want(w.size(r), "production")
	pin := " name: api\n-image: 1\n+image: 2\n"
	w.looked(false, lines(pin)) // from the branch, to which authors may have pushed what is not live
	w.want(w.granted(), []string{"staging"})
	cut := lines(pin)
	cut.Truncated = true
	w.looked(true, cut) // how many lines it has is not known
	w.want(w.granted(), []string{"staging"})
	w.looked(true, lines("--- a comment\n-image: 1\n+image: 2\n"))
	w.want(w.granted(), []string{"staging"})
	w.looked(true, lines("-image: 1\n+image: 2\n"), lines("+a: 1\n")) // two changes of a file
	w.want(w.granted(), []string{"staging"})
	w.looked(true, lines(pin), lines(pin)) // one change of a file of two services
	w.want(w.size(r), "production 1 files 2 lines")
	w.want(w.granted(), []string{"staging", "production"})

	stop := w.stops(r)[1]
	w.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID})
	for _, d := range w.deployments(stop) {
		w.report(event.DeploymentStarted{DeploymentID: d.ID})
		w.report(event.DeploymentCommitted{
			DeploymentID: d.ID, CommitSHA: shaOf(7), ManifestDigest: digestOf(1), Parameters: []byte(`{}`), Changes: []event.FileChange{lines(pin)},
		})
	}
	w.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production/25", EnvironmentID: w.production.ID})
	w.want(w.size(r), "production/25") // what was committed says nothing of what was pushed before
}

// D51: a preview says nothing of a change once something was committed for the application since, another rollout was not at its end, or a
// later preview could not list the changes.
func TestAnOutdatedPreviewIsNotTheSizeOfAChange(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: small})
	pin := lines("-image: 1\n+image: 2\n")
	before := w.rollout(w.set)
	w.looked(true, pin)
	_, err := w.rollouts.CancelRollout(t.Context(), user(), before.ID, "another one")
	w.ok(err)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"}) // the other rollout was under way when it was asked for
	w.looked(true)
	w.want(w.granted(), []string{"staging"}) // nothing is listed

	w.looked(true, pin, lines("+a: 1\n"))
	w.want(w.granted(), []string{"staging"})
	p := w.preview(rollout.NewPreview{VersionSetID: w.set.ID})
	d := w.deployments(w.stops(r)[0])[0]
	w.report(event.DeploymentCommitted{DeploymentID: d.ID, CommitSHA: shaOf(7), ManifestDigest: digestOf(1), Parameters: []byte(`{}`)})
	w.report(event.RolloutPreviewed{PreviewID: p.ID, Environments: []event.PreviewedEnvironment{
		{EnvironmentID: w.production.ID, Changes: []event.FileChange{pin}, FromLive: true},
	}})
	w.now.Advance(5 * time.Minute)
	w.review()
	w.want(w.granted(), []string{"staging"}) // the commit may have changed the files
	w.looked(true, pin)
	w.want(w.granted(), []string{"staging", "production"})
}
