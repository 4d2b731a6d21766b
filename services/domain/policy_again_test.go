package domain

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// D51: the policies of the installation are read when a service starts, and what they have stopped is evaluated again then, not minutes
// later.
func TestChangedPoliciesOfTheInstallationOpenWhatTheyHaveStoppedAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base.cedar")
	if err := os.WriteFile(file, []byte(noProduction("")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := frozenWith(t, PolicyConfig{Name: "base", File: file})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.review()
	w.want(w.granted(), []string{"staging"})

	c := Config{DriverDir: filepath.Join("testdata", "drivers")} // without the set
	log := slog.New(slog.DiscardHandler)
	drivers, err := givenDrivers(t.Context(), c, log)
	w.ok(err)
	restarted := *w.fixture
	restarted.service, err = assemble(pgtest.As(t, w.db, role), noBus{}, drivers, nil, w.now, c, log)
	w.ok(err)
	w.want(restarted.review(), 0) // nothing is due by time
	w.ok(restarted.policies.ReviewInstallation(t.Context()))
	w.want(restarted.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
}

// D51: what the engine decides by is sent again from time to time, with the labels of groups: it may have lost it.
func TestPolicySetsAreAnnouncedAgain(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	const calls = `@id("all") permit (principal, action == Action::"function.call", resource);`
	w.put(policy.NewPolicySet{Name: "rollouts", Text: allowed})
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: allowed})
	_, err := w.pool.Exec(t.Context(), `DELETE FROM outbox`)
	w.ok(err)
	w.ok(w.policies.AnnounceAgain(t.Context()))
	rows, err := w.pool.Query(t.Context(), `SELECT (event->'data'->>'name') || ' ' || (event->'data'->>'version') || ' ' ||
		(event->'data'->>'text' <> '') || ' ' || COALESCE(event->'data'->>'application_labels', '') FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypePolicySetChanged)
	w.ok(err)
	var sent []string
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		sent = append(sent, line)
	}
	w.ok(rows.Err())
	w.want(sent, []string{`critical 1 true {"tier":"critical"}`, "former 2 false "})
}

// D51: policies see the incidents that are open for an application, also outside of what their freezes stop, and what they have stopped is
// evaluated again when an incident is closed, or opens.
func TestPoliciesSeeOpenIncidents(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: allowed + `
@id("calm") @message("an incident is open")
forbid (principal, action == Action::"environment.enter", resource == Environment::"staging") when { !context.incidents.isEmpty() };
@id("not-in-9") @message("nothing new in INC-9")
forbid (principal, action == Action::"rollout.create", resource) when { context.incidents.contains("INC-9") };`})
	other := w.fixture.application("other", "web")
	w.freeze(freeze.NewFreeze{Incident: "INC-1", ApplicationIDs: []int64{other.ID}, Tiers: []core.Tier{core.TierProduction}}) // of another one
	w.freeze(freeze.NewFreeze{Tiers: []core.Tier{core.TierProduction}})                                                       // for no incident
	later := freeze.NewFreeze{Incident: "INC-2", Tiers: []core.Tier{core.TierProduction}, StartsAt: w.now.Now().Add(time.Hour)}
	w.freeze(later)
	nine := w.freeze(freeze.NewFreeze{Incident: "INC-9", Tiers: []core.Tier{core.TierProduction}})
	_, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	w.refused(err, "nothing new in INC-9")
	_, err = w.freezes.EndFreeze(t.Context(), user(), nine.ID, "mended")
	w.ok(err)
	r := w.rollout(w.set)
	ten := w.freeze(freeze.NewFreeze{Incident: "INC-10", Tiers: []core.Tier{core.TierProduction}})
	w.enter(r, "staging", "staging")
	w.want(w.granted(), []string{})
	if waits := w.waits(r, "policy"); len(waits) != 1 || !strings.Contains(waits[0], "an incident is open") {
		t.Errorf("found %v; want that the incident stops it", waits)
	}
	_, err = w.freezes.EndFreeze(t.Context(), user(), ten.ID, "mended")
	w.ok(err)
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging"})
	decided, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, []int64{r.ID})
	w.ok(err)
	all := decided[r.ID]
	w.want([][]string{all[0].Request.Incidents, all[1].Request.Incidents}, [][]string{nil, {"INC-10"}})
	for _, wrong := range []string{strings.Repeat("x", 101), "two\nlines", " 9"} {
		_, err := w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Incident: wrong, Reason: "why", EndsAt: w.now.Now().Add(time.Hour)})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: found %v; want it refused", wrong, err)
		}
	}
}

// D51: policies see how large a change is where that is known: at the entrance by the latest preview that no rollout has outdated, and at a
// weight by what was committed. Where it is not known it is absent, and a policy that requires it denies.
func TestPoliciesSeeTheSizeOfAChange(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: allowed + `@id("small") @message("at most two lines of one file")
forbid (principal, action in [Action::"environment.enter", Action::"gate.pass"], resource == Environment::"production")
unless { context has change && context.change has lines && context.change has files && context.change.lines <= 2 && context.change.files == 1 };`})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	size := func() string {
		t.Helper()
		all, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, []int64{r.ID})
		w.ok(err)
		c := all[r.ID][0].Request.Change
		text := all[r.ID][0].GateID
		if c.Files != nil {
			text += fmt.Sprintf(" %d files", *c.Files)
		}
		if c.Lines != nil {
			text += fmt.Sprintf(" %d lines", *c.Lines)
		}
		return text
	}
	w.want(size(), "production")
	diff := func(lines string) event.FileChange {
		return event.FileChange{Path: "production/api.yaml", Diff: "--- a/production/api.yaml\n+++ b/production/api.yaml\n@@ -1,3 +1,3 @@\n" + lines}
	}
	look := func(changes ...event.FileChange) {
		t.Helper()
		p := w.preview(rollout.NewPreview{VersionSetID: w.set.ID})
		w.report(event.RolloutPreviewed{PreviewID: p.ID, Environments: []event.PreviewedEnvironment{{EnvironmentID: w.production.ID, Changes: changes}}})
		w.now.Advance(5 * time.Minute)
		w.review()
	}
	cut := diff(" name: api\n-image: 1\n+image: 2\n")
	cut.Truncated = true
	look(cut) // how many lines it has is not known
	w.want(w.granted(), []string{"staging"})
	look(diff("--- a comment\n-image: 1\n+image: 2\n"))
	w.want(w.granted(), []string{"staging"})
	look(diff(" name: api\n-image: 1\n+image: 2\n"), diff("-image: 1\n+image: 2\n")) // the same file for two services
	w.want(size(), "production 1 files 2 lines")
	w.want(w.granted(), []string{"staging", "production"})

	stop := w.stops(r)[1]
	w.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID})
	other := diff("+a: 1\n")
	other.Path = "production/web.yaml"
	for i, d := range w.deployments(stop) {
		w.report(event.DeploymentStarted{DeploymentID: d.ID})
		w.report(event.DeploymentCommitted{
			DeploymentID: d.ID, CommitSHA: shaOf(7), ManifestDigest: digestOf(1), Parameters: []byte(`{}`),
			Changes: [][]event.FileChange{{diff("-image: 1\n+image: 2\n")}, {other}}[i],
		})
	}
	w.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production/25", EnvironmentID: w.production.ID})
	w.want(size(), "production/25 2 files 3 lines")
}
