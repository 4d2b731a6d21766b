package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// foresee is what a change of the shop's manifests would roll out.
func (w winter) foresee(message string, paths ...string) []trigger.Touched {
	w.t.Helper()
	all, more, err := w.triggers.Foresee(w.t.Context(), user(), trigger.Change{
		Repository: "https://git.test/shop/config", Branch: "main", Paths: paths, SHA: shaOf(7), Message: message,
	})
	w.ok(err)
	w.want(more, false)
	return all
}

// begins are the triggers that would begin a rollout of a change, each with the environments that it would go to.
func (w winter) begins(message string) []string {
	w.t.Helper()
	all := []string{}
	for _, one := range w.foresee(message, "deploy/a.yaml") {
		names := make([]string, len(one.Environments))
		for i, e := range one.Environments {
			names[i] = e.Environment.Name
		}
		all = append(all, one.Trigger.Name+": "+strings.Join(names, ", "))
	}
	return all
}

// needsOf are the needs of an environment, as "kind subject: detail".
func needsOf(e rollout.ForeseenEnvironment) []string {
	all := []string{}
	for _, n := range e.Needs {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s: %s", n.Kind, n.Subject, n.Detail)))
	}
	return all
}

// R4-27, D60: which applications a change touches, what would begin, by which strategy, and what it would have to pass. Nothing is written.
func TestAChangeIsForeseen(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	services, err := w.view.ServicesByApplication(t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	_, err = w.setup.AddArtifactSource(t.Context(), user(), services[w.application.ID][0].ID, setup.NewArtifactSource{
		Ref: source.Git, Config: json.RawMessage(`{"repository":"https://git.test/shop/config.git","branch":"main","paths":"deploy/**","ignore_paths":"**/*.md"}`),
	})
	w.ok(err)
	_, err = w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, core.GitTriggerName, "") // it came with the source
	w.ok(err)
	w.weighted(`"checks":{"proposed":[{"key":"ticket"}],"active":[{"key":"probe"}]},"commitMatcher":{"quickSync":"^docs:"},`)
	// Other files, other branches and other repositories touch nothing.
	w.want(len(w.foresee("x", "README.md", "deploy/README.md")), 0)
	for _, other := range []trigger.Change{
		{Repository: "git.test/shop/config", Branch: "next", Paths: []string{"deploy/a.yaml"}},
		{Repository: "git.test/shop/configs", Branch: "main", Paths: []string{"deploy/a.yaml"}},
	} {
		all, _, err := w.triggers.Foresee(t.Context(), user(), other)
		w.ok(err)
		w.want(len(all), 0)
	}
	w.succeed(w.rollout(w.set))
	before := w.countOf(`SELECT (SELECT count(*) FROM cd_rollouts) + (SELECT count(*) FROM cd_rollout_transitions) + (SELECT count(*) FROM cd_handoffs) + (SELECT count(*) FROM outbox) + (SELECT count(*) FROM cd_changes)`)
	one := w.foresee("docs: x", "deploy/b.yaml", "README.md", "deploy/a.yaml", "deploy/README.md")[0]
	w.want(one.Files, []string{"deploy/a.yaml", "deploy/b.yaml"})
	w.want(one.Begins, "no trigger begins a rollout once the change is at the head of main; it waits for a request")
	w.want(one.Plan.Strategy, planner.Pipeline) // messages do not count for requests
	w.want(w.countOf(`SELECT (SELECT count(*) FROM cd_rollouts) + (SELECT count(*) FROM cd_rollout_transitions) + (SELECT count(*) FROM cd_handoffs) + (SELECT count(*) FROM outbox) + (SELECT count(*) FROM cd_changes)`), before)

	w.trigger(core.TriggerGit, `{"until":"production"}`)
	one = w.foresee("docs: x", "deploy/a.yaml")[0]
	w.want(one.Begins, "trigger git (git) begins a rollout once the change is at the head of main")
	w.want(one.Plan, planner.Decision{
		Strategy: planner.Quick, Why: "the message of commit 000000000000 (docs: x) matches commitMatcher.quickSync", SHA: one.Plan.SHA,
	})
	w.want(len(one.Plan.SHA), 40)
	w.want(one.Refused, "")
	w.want(len(one.Environments), 2)
	w.want(needsOf(one.Environments[0]), []string{"check ticket: a check of kind status about what would enter staging"})
	w.want(needsOf(one.Environments[1]), []string{
		"approval production/50: an approval of the weight 50 %, before it enters production: half",
		"check ticket: a check of kind status about what would enter production", "check probe: a check of kind status about what is in staging",
	})
	one = w.foresee("feat: x", "deploy/a.yaml")[0]
	w.want(one.Plan.Strategy, planner.Pipeline)
	w.want(needsOf(one.Environments[1])[0], "approval production/50: an approval at 50 % in production: half")

	// Each trigger that would begin a rollout is listed, with where that goes.
	w.trigger(core.TriggerVersion, `{"until":"staging"}`)
	w.want(w.begins("feat: x"), []string{"git: staging, production", "version: staging"})
	w.trigger(core.TriggerGit, `{"until":"staging"}`)
	w.trigger(core.TriggerVersion, `{}`)
	w.want(w.begins("feat: x"), []string{"git: staging", "version: staging, production"})
	w.trigger(core.TriggerGit, `{"until":"production"}`)
	_, err = w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, "version", "")
	w.ok(err)

	// A freeze stops it, a policy denies it, and an approval has those who may give it.
	w.people(1)
	_, err = w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		Reason: "sale", Tiers: []core.Tier{core.TierStaging}, EndsAt: w.now.Now().Add(time.Hour),
	})
	w.ok(err)
	_, err = w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{Name: "rules", Mode: core.PolicyEnforced, Reason: "test", Text: `
@id("all") permit (principal, action, resource);
@id("no") @message("not now") forbid (principal, action == Action::"environment.enter", resource == Environment::"production");`})
	w.ok(err)
	one = w.foresee("feat: x", "deploy/a.yaml")[0]
	w.want(strings.HasPrefix(needsOf(one.Environments[0])[1], "control freeze_1: freeze_1 by "), true)
	last := one.Environments[1].Needs
	if n := last[len(last)-1]; n.Kind != rollout.NeedPolicy || !strings.Contains(n.Detail, "not now") {
		t.Errorf("the last need: found %+v; expected what the policy denies", n)
	}
	if n := last[0]; len(n.Approvers) == 0 || len(n.Requirements) != 1 || n.Requirements[0].Quorum != 1 {
		t.Errorf("the approval: found %+v; expected one of those who may approve", n)
	}
	// What would be refused says why.
	w.trigger(core.TriggerGit, `{"until":"moon"}`)
	w.want(w.foresee("x", "deploy/a.yaml")[0].Refused, `the pipeline does not go to "moon", the last environment of the trigger`)
	w.want(w.rolloutCount(), 1)
}

// D60: a change makes a version set of its own, so vetoes on the newest one and on what the change replaces do not stop it; those on what
// stays do. A plan waits for nobody who changes environments.
func TestAChangeOfWhatIsVetoed(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	set := w.commit(1)
	entries, err := w.view.EntriesByVersionSet(t.Context(), org, []int64{set.ID})
	w.ok(err)
	ids := make([]int64, len(entries[set.ID]))
	for i, e := range entries[set.ID] {
		ids[i] = e.VersionID
	}
	versions, err := w.view.VersionsByID(t.Context(), org, ids)
	w.ok(err)
	veto := func(n freeze.NewVeto) {
		n.Reason = "bad"
		_, err := w.freezes.VetoVersion(t.Context(), user(), n)
		w.ok(err)
	}
	veto(freeze.NewVeto{VersionSetID: set.ID})
	other := int64(0)
	for id, v := range versions {
		if v.IsImage() {
			other = id
		} else {
			veto(freeze.NewVeto{VersionID: id})
		}
	}
	w.want(w.foresee("x", "deploy/a.yaml")[0].Refused, "")

	changing, err := w.pool.Begin(t.Context())
	w.ok(err)
	_, err = changing.Exec(t.Context(), `SELECT FROM cd_environments FOR UPDATE`)
	w.ok(err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	all, _, err := w.triggers.Foresee(ctx, user(), trigger.Change{
		Repository: "https://git.test/shop/config", Branch: "main", Paths: []string{"deploy/a.yaml"}, SHA: shaOf(7),
	})
	w.ok(err)
	w.want(len(all[0].Environments), 2)
	w.ok(changing.Rollback(t.Context()))

	veto(freeze.NewVeto{VersionID: other})
	if got := w.foresee("x", "deploy/a.yaml")[0].Refused; !strings.Contains(got, "vetoed by user 1") {
		t.Errorf("a change beside a version that is vetoed: found %q; expected that it is refused", got)
	}
}

// D60: another organization sees nothing of it, and what is too large is refused.
func TestWhatCannotBeForeseen(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	other := user()
	other.Organization = 2
	all, _, err := w.triggers.Foresee(t.Context(), other, trigger.Change{Repository: "git.test/shop/config", Branch: "main", Paths: []string{"a"}})
	w.ok(err)
	w.want(len(all), 0)
	for at, c := range map[string]trigger.Change{
		"/repository": {Repository: "https://user@git.test/x", Branch: "main"},
		"/branch":     {Repository: "git.test/shop/config"},
		"/paths":      {Repository: "git.test/shop/config", Branch: "main", Paths: strings.Split(strings.Repeat("a,", 5000)+"a", ",")},
		"/paths/0":    {Repository: "git.test/shop/config", Branch: "main", Paths: []string{strings.Repeat("a", 4097)}},
		"/sha":        {Repository: "git.test/shop/config", Branch: "main", SHA: strings.Repeat("a", 65)},
	} {
		_, _, err := w.triggers.Foresee(t.Context(), user(), c)
		if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != at {
			t.Errorf("found %v (%+v); expected an error at %s", err, fields, at)
		}
	}
}
