package domain

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// looks has what is due be looked at for drift, and returns the numbers of the previews that the drivers were asked for.
func (w winter) looks() (previews []int64) {
	w.t.Helper()
	before := w.countOf(`SELECT coalesce(max(id), 0) FROM cd_rollout_previews`)
	for range 10 {
		looked, err := w.rollouts.LookForDriftDue(w.t.Context(), rollout.DriftPace{Every: 10 * time.Minute, Window: 5 * time.Minute})
		w.ok(err)
		if !looked {
			break
		}
	}
	for id := before + 1; id <= w.countOf(`SELECT coalesce(max(id), 0) FROM cd_rollout_previews`); id++ {
		previews = append(previews, int64(id))
	}
	w.handOver()
	return previews
}

// finds reports what a driver has found in production.
func (w winter) finds(preview int64, things ...event.ChangedThing) {
	w.t.Helper()
	w.report(event.RolloutPreviewed{PreviewID: preview, Environments: []event.PreviewedEnvironment{{
		EnvironmentID: w.production.ID, Changes: []event.FileChange{},
		Compared: &event.Comparison{Workloads: 1, Things: append([]event.ChangedThing{}, things...)},
	}}})
}

// drifts is what is known to differ in production.
func (w winter) drifts() string {
	w.t.Helper()
	var drift string
	w.ok(w.pool.QueryRow(w.t.Context(), `SELECT coalesce(max(r.drift), '') FROM cd_application_environment_reconciliations r
		JOIN cd_application_environments e ON e.id = r.application_environment_id WHERE e.environment_id = $1`, w.production.ID).Scan(&drift))
	return drift
}

// commits takes a rollout to its end, with a commit for each deployment.
func (w winter) commits(r core.Rollout) {
	w.t.Helper()
	for _, stop := range w.stops(r) {
		for _, d := range w.deployments(stop) {
			w.report(event.DeploymentStarted{DeploymentID: d.ID})
			w.report(event.DeploymentCommitted{DeploymentID: d.ID, CommitSHA: strings.Repeat("a", 40), ManifestDigest: digestOf(1)})
		}
	}
	w.succeed(r)
}

// drifting is a shop that is deployed, with a commit, and whose drift is repaired. Staging is not looked at.
func drifting(t *testing.T) winter {
	t.Helper()
	w := clocked(t)
	w.commits(w.rollout(w.set))
	w.onlyProduction()
	return w
}

// onlyProduction has nothing else be looked at, until the next rollout.
func (w winter) onlyProduction() {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), `UPDATE cd_drift_looks SET due_at = NULL WHERE application_environment_id IN (
		SELECT id FROM cd_application_environments WHERE environment_id <> $1)`, w.production.ID)
	w.ok(err)
}

func replicas() event.ChangedThing {
	return event.ChangedThing{Kind: "replicas", Action: "changed", Object: "Deployment/api", Detail: "9 → 2"}
}

// R4-11: where no observer sees what runs, the driver looks from time to time, with the commit that was deployed; it names what is missing,
// extra or different, and a trigger repairs it.
func TestADriverLooksForDrift(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.want(len(w.looks()), 0) // a rollout has ended just now
	w.now.Advance(6 * time.Minute)
	looks := w.looks()
	w.want(len(looks), 1)
	last := w.engine.started[len(w.engine.started)-1]
	w.want(last.ID, "preview-"+itoa(looks[0]))
	w.want(strings.Contains(string(last.Program.Source), "nothing to compare"), true)
	w.want(strings.Contains(strings.ReplaceAll(string(last.Inputs), " ", ""), `"compared_commit":"`+strings.Repeat("a", 40)+`"`), true)
	w.finds(looks[0])
	w.want(w.drifts(), "")
	w.want(len(w.looks()), 0)
	w.now.Advance(10 * time.Minute)
	looks = w.looks()
	w.want(len(looks), 1)
	w.finds(looks[0], replicas(), event.ChangedThing{Kind: "config_map", Action: "removed", Object: "ConfigMap/old"},
		event.ChangedThing{Kind: "other", Action: "added", Object: "Service/api"})
	w.want(w.drifts(), "ConfigMap/old is extra, Deployment/api differs (replicas 9 → 2), Service/api is missing")
	w.want(w.decide(), []string{"began: production differs from what was deployed"})
	w.want(w.rollouts.DriftLooks(), map[string]int64{"same": 1, "drift": 1, "unknown": 0, "late": 0})
	// What is looked at for drift says nothing about a rollout of the same set.
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_previews WHERE drift_of IS NULL`), 0)
}

// R4-10, R4-11: what we change ourselves is no drift: nobody looks while a rollout is under way, and an answer about what a rollout has
// replaced since counts for nothing.
func TestDriftThatWeHaveCausedIsNone(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{"window_seconds":0}`)
	w.now.Advance(6 * time.Minute)
	asked := w.looks()[0]
	r := w.rollout(w.release(2))
	w.finds(asked, replicas()) // while it is under way
	w.want(w.drifts(), "")
	w.now.Advance(time.Hour)
	w.want(len(w.looks()), 0)
	w.commits(r)
	w.onlyProduction()
	w.now.Advance(6 * time.Minute)
	asked = w.looks()[0]
	w.commits(w.rollout(w.release(3)))
	w.now.Advance(time.Hour)
	w.finds(asked, replicas()) // after one that has begun and ended since
	w.want(w.drifts(), "")
	w.want(w.decide(), []string{})
	w.want(w.rollouts.DriftLooks(), map[string]int64{"same": 0, "drift": 0, "unknown": 0, "late": 2})
}

// R4-11: a look that finds out nothing leaves what was known, and one whose answer is lost is repeated.
func TestALookThatFindsOutNothing(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], replicas())
	w.now.Advance(10 * time.Minute)
	w.report(event.RolloutPreviewed{PreviewID: w.looks()[0], Environments: []event.PreviewedEnvironment{{
		EnvironmentID: w.production.ID, Changes: []event.FileChange{},
		Compared: &event.Comparison{Things: []event.ChangedThing{}, Reason: "no answer"},
	}}})
	w.want(w.drifts(), "Deployment/api differs (replicas 9 → 2)")
	w.now.Advance(10 * time.Minute)
	lost := w.looks()
	w.want(len(lost), 1) // its run fails
	w.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(lost[0]), Error: "no"})
	w.want(w.rollouts.DriftLooks()["unknown"], int64(2))
	w.now.Advance(10 * time.Minute)
	w.finds(w.looks()[0])
	w.want(w.drifts(), "")
}

// R4-11: where a rollout has failed after it had applied something, what was completed before is not what to compare with: nobody looks,
// and nothing is deployed again against the policy.
func TestDriftAfterAFailedRolloutIsLeftToPeople(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	_, err := w.rollouts.SetRollbackPolicy(t.Context(), user(), core.RollbackPolicy{ApplicationID: w.application.ID, OnFailed: false})
	w.ok(err)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], replicas())
	r := w.rollout(w.release(2))
	w.report(event.RolloutStarted{RolloutID: r.ID})
	stops := w.stops(r)
	for _, e := range stops {
		w.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for _, d := range w.deployments(e) {
			w.report(event.DeploymentStarted{DeploymentID: d.ID})
			w.report(event.DeploymentCommitted{DeploymentID: d.ID, CommitSHA: strings.Repeat("b", 40), ManifestDigest: digestOf(2)})
			if e.EnvironmentID != w.production.ID {
				w.report(event.DeploymentHealthy{DeploymentID: d.ID})
			}
		}
		if e.EnvironmentID != w.production.ID {
			w.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		}
	}
	w.report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: w.production.ID, Reason: "crash loop"})
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "crash loop"})
	w.onlyProduction()
	w.now.Advance(6 * time.Minute)
	w.want(len(w.looks()), 0)
	// What a look or an observer of before, or of a release of before, has found is not repaired either.
	place := w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID))
	w.report(event.ApplicationEnvironmentReconciled{
		ApplicationEnvironmentID: int64(place), Drift: "Deployment/api differs", ObservedAt: w.now.Now().Format(time.RFC3339Nano),
	})
	for _, d := range w.decide() {
		w.want(strings.HasPrefix(d, "declined"), true)
	}
	w.want(w.rolloutCount(), 2)
}

// R4-11: what people have changed in the pipeline since the last rollout is no drift, and goes along the pipeline: it is neither examined,
// nor deployed past the environments before.
func TestAnEditOfThePipelineIsNoDrift(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], replicas())
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition)
		SELECT organization_id, application_id, version + 1, definition FROM cd_application_flow_definitions
		WHERE application_id = $1 ORDER BY version DESC LIMIT 1`, w.application.ID)
	w.ok(err)
	w.now.Advance(time.Hour)
	w.want(len(w.looks()), 0)
	decided := w.decide()
	w.want(len(decided), 1)
	w.want(strings.HasSuffix(decided[0], `: looking again failed: the pipeline was changed after the last rollout to "production"`), true)
	w.want(w.rolloutCount(), 1)
	w.want(w.rollouts.DriftLooks(), map[string]int64{"same": 0, "drift": 1, "unknown": 1, "late": 0})
}

// R4-11: a look that fails because of an error in Lockstep is put off, so that the others have their turn, and organizations take turns.
func TestALookThatFailsKeepsNoneFromItsTurn(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	other := w.another("other", 5000)
	other.commits(other.rollout(other.set))
	w.now.Advance(time.Hour)
	_, err := w.pool.Exec(t.Context(), `CREATE FUNCTION refuse_previews() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.application_id = `+itoa(w.application.ID)+` THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse_previews BEFORE INSERT ON cd_rollout_previews FOR EACH ROW EXECUTE FUNCTION refuse_previews();
		UPDATE cd_drift_looks SET due_at = now() - interval '99 years' WHERE due_at IS NOT NULL AND application_environment_id IN (
			SELECT id FROM cd_application_environments WHERE application_id = `+itoa(w.application.ID)+`)`)
	w.ok(err)
	failed, looked := 0, 0
	for range 3 {
		found, err := w.rollouts.LookForDriftDue(t.Context(), rollout.DriftPace{Every: 10 * time.Minute, Window: 5 * time.Minute})
		switch {
		case err != nil:
			failed++
		case found:
			looked++
		}
	}
	w.want([]int{failed, looked}, []int{1, 2})
}

// R4-10, R4-11: drift is one as long as something differs, whatever the values are meanwhile; other objects are another cause, and after
// three repairs without having been as deployed it is left to people.
func TestDriftIsOneAsLongAsItLasts(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{"window_seconds":0}`)
	begun := 0
	look := func(thing event.ChangedThing) (lines []string) {
		w.now.Advance(30 * time.Minute)
		w.finds(w.looks()[0], thing)
		lines = w.decide()
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "began") }) {
			begun++
			w.commits(w.active())
			w.onlyProduction()
		}
		return lines
	}
	for i := range 12 {
		look(event.ChangedThing{Kind: "replicas", Action: "changed", Object: "Deployment/api", Detail: itoa(int64(i+3)) + " → 2"})
	}
	w.want(begun, 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'drift:%'`), 1)
	last := ""
	for i := range 12 {
		for _, line := range look(event.ChangedThing{Kind: "config_map", Action: "removed", Object: "ConfigMap/c" + itoa(int64(i))}) {
			last = line
		}
	}
	w.want(begun, 3)
	w.want(last, `declined: it was deployed again 3 times, and "production" was never as deployed in between: something else changes it`)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'drift:%'`), 10)
	w.now.Advance(30 * time.Minute)
	w.finds(w.looks()[0])
	look(replicas())
	w.want(begun, 4)
}

// R4-11: fields that others have taken over are shown, and no deploy that is known to fail is begun.
func TestFieldsOfOthersAreNotRepaired(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], event.ChangedThing{Kind: "config_map", Action: "changed", Object: "ConfigMap/a"}, event.ChangedThing{
		Kind: "pod_template", Action: "changed", Object: "Deployment/api", Namespace: "shop",
		Held: []event.HeldField{{Path: "spec.replicas", Manager: "hpa"}}, Detail: "others manage spec.replicas", // for replicas of before
	})
	w.want(w.drifts(), "Deployment/api differs (hpa manages spec.replicas), ConfigMap/a differs")
	w.want(w.decide(), []string{`declined: others (hpa) manage fields of what differs in "production", and a deploy takes nothing from them`})
	w.want(w.rolloutCount(), 1)
	w.want(w.objects(), `[{"how": "different", "kind": "ConfigMap", "name": "a"}, `+
		`{"how": "different", "held": [{"path": "spec.replicas", "manager": "hpa"}], "kind": "Deployment", "name": "api", "namespace": "shop"}]`)
}

// R4-10: drift of other kinds of one Application is another cause, and begins another repair.
func TestOtherKindsOfDriftOfAnApplication(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	place := w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID))
	for _, one := range []string{"automatic", "revision", "revision", "out_of_sync"} {
		w.now.Advance(time.Hour)
		w.report(event.ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: int64(place), Drift: one, ObservedAt: w.now.Now().Format(time.RFC3339Nano),
			Objects: []event.DriftedObject{{Kind: "Application", Name: "shop", How: "different", Detail: w.now.Now().String(), Code: one}},
		})
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'drift:%'`), 3)
}

// R4-10: an observation of before a rollout is waited for, for an hour, as an observer may never report again; then it is left to people.
func TestTheWaitForAnObserverEnds(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.now.Advance(6 * time.Minute)
	place := w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID))
	w.trigger(core.TriggerDrift, `{}`)
	found := w.now.Now()
	w.report(event.ApplicationEnvironmentReconciled{
		ApplicationEnvironmentID: int64(place), Drift: "automated sync is on", ObservedAt: found.Format(time.RFC3339Nano),
	})
	w.commits(w.rollout(w.release(2)))
	w.now.Advance(30 * time.Minute)
	at := `what differs in "production" was observed at ` + found.UTC().Format(time.RFC3339)
	w.want(w.decide(), []string{"waiting: " + at + ": a rollout has changed something there since"})
	w.now.Advance(40 * time.Minute)
	w.want(w.decide(), []string{"declined: " + at + ", and not since: a rollout has changed something there since"})
}

// R4-11: drift that a look has found where none succeeds any more is shown as of then, and not repaired; and that looks fail is shown where
// nothing differed before.
func TestDriftWhereNoLookSucceeds(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	place := int64(w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID)))
	stale := func() string {
		seen, err := w.view.Reconciliations(t.Context(), org, []int64{place})
		w.ok(err)
		return seen[place].StaleReason()
	}
	w.finds(w.looks()[0])
	w.want(stale(), "")
	w.now.Advance(10 * time.Minute)
	w.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(w.looks()[0]), Error: "no agent"})
	w.want(stale(), "looking again failed: no agent")
	w.now.Advance(10 * time.Minute)
	w.finds(w.looks()[0], replicas())
	w.want(stale(), "")
	// The driver can look no more: the place is a fleet now.
	_, err := w.pool.Exec(t.Context(), `ALTER TABLE cd_environment_driver_bindings DISABLE TRIGGER USER`)
	w.ok(err)
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_environment_driver_bindings SET fleet = $1 WHERE environment_id = $2`, twoWaves, w.production.ID)
	w.ok(err)
	w.now.Advance(10 * time.Minute)
	w.want(len(w.looks()), 0)
	w.want(strings.HasPrefix(stale(), "looking again failed: "), true)
	w.want(w.drifts(), "Deployment/api differs (replicas 9 → 2)")
	w.want(slices.ContainsFunc(w.decide(), func(one string) bool { return strings.HasPrefix(one, "began") }), false)
}

// R4-11: drift that a look has found stays shown, as of then, where nobody looks any more, as after one cluster has become many, and is
// declined at once.
func TestDriftWhereNobodyLooks(t *testing.T) {
	t.Parallel()
	w := fleetsOf(clocked(t), "")
	w.production = w.edge // one cluster as yet
	w.commits(w.rollout(w.set))
	w.onlyProduction()
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], replicas())
	place := int64(w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.edge.ID)))
	stale := func() string {
		t.Helper()
		seen, err := w.view.Reconciliations(t.Context(), org, []int64{place})
		w.ok(err)
		return seen[place].StaleReason()
	}
	w.want(stale(), "")
	_, err := w.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{
		ID: w.edge.ID, Fleet: json.RawMessage(twoWaves), Reason: "more stores",
	})
	w.ok(err)
	w.report(event.EnvironmentReady{EnvironmentID: w.edge.ID})
	w.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: place})
	w.now.Advance(10 * time.Minute)
	w.want(len(w.looks()), 0)
	w.want(stale(), core.NobodyLooks)
	w.want(w.drifts(), "Deployment/api differs (replicas 9 → 2)")
	decided := w.decide()
	w.want(len(decided), 1)
	w.want(strings.HasPrefix(decided[0], "declined: ") && strings.HasSuffix(decided[0], core.NobodyLooks), true)
	// Nobody is asked again before another rollout has arrived there.
	w.now.Advance(24 * time.Hour)
	w.want(len(w.looks()), 0)
	w.want(stale(), core.NobodyLooks)
}

// objects is what is stored to differ in production.
func (w winter) objects() string {
	w.t.Helper()
	var objects string
	w.ok(w.pool.QueryRow(w.t.Context(), `SELECT coalesce(max(r.objects::text), '') FROM cd_application_environment_reconciliations r
		JOIN cd_application_environments e ON e.id = r.application_environment_id WHERE e.environment_id = $1`, w.production.ID).Scan(&objects))
	return objects
}

// R4-11: programs and relays of an earlier release have in words what others hold and what differs; what is decided is the same.
func TestDriftInWords(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], event.ChangedThing{
		Kind: "pod_template", Action: "changed", Object: "Deployment/api", Detail: "others manage spec.replicas, spec.paused",
	})
	w.want(w.drifts(), "Deployment/api differs (others manage spec.replicas, spec.paused)")
	w.want(w.decide(), []string{`declined: others manage fields of what differs in "production", and a deploy takes nothing from them`})
	w.now.Advance(10 * time.Minute)
	place := w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID))
	w.report(event.ApplicationEnvironmentReconciled{
		ApplicationEnvironmentID: int64(place), Drift: "ConfigMap/a (others manage nothing of it) differs",
		ObservedAt: w.now.Now().Format(time.RFC3339Nano),
	})
	w.want(w.objects(), `[{"how": "different", "kind": "", "name": "", "differs": ["ConfigMap/a (others manage nothing of it) differs"]}]`)
	w.want(w.decide(), []string{"began: production differs from what was deployed"})
	// A replica of an earlier release stores no list.
	_, err := w.pool.Exec(t.Context(), `UPDATE cd_application_environment_reconciliations SET drift = 'Service/b differs (others manage spec.x, spec.y)'`)
	w.ok(err)
	w.want(w.objects(), `[{"how": "different", "held": [{"path": "spec.x"}], "kind": "", "name": "", "differs": ["Service/b differs (others manage spec.x, spec.y)"]}]`)
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_application_environment_reconciliations SET drift = ''`)
	w.ok(err)
	w.want(w.objects(), `[]`)
}

// R4-10, R4-11: drift that nobody could look at since it was found is shown as of then, and begins nothing until a look finds it again; the
// trigger is not lost meanwhile, however long that takes.
func TestStaleDriftBeginsNothing(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	found := w.now.Now()
	w.finds(w.looks()[0], replicas())
	w.now.Advance(10 * time.Minute)
	asked := w.looks()
	w.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(asked[0]), Error: "no agent"})
	waits := `waiting: what differs in "production" was observed at ` + found.UTC().Format(time.RFC3339) + ": looking again failed: no agent"
	w.want(w.decide(), []string{waits})
	w.want(w.rolloutCount(), 1)
	stale := func() string {
		var all []core.Reconciliation
		place := w.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(w.production.ID))
		seen, err := w.view.Reconciliations(t.Context(), org, []int64{int64(place)})
		w.ok(err)
		for _, r := range seen {
			all = append(all, r)
		}
		w.want(len(all), 1)
		w.want(all[0].ObservedAt.Equal(found), true)
		return all[0].StaleReason()
	}
	w.want(stale(), "looking again failed: no agent")
	for range 12 { // no answer for hours
		w.now.Advance(11 * time.Minute)
		w.looks()
		w.decide()
	}
	w.want(stale(), "looking again failed: the driver has not answered")
	w.want(w.rolloutCount(), 1)
	w.now.Advance(11 * time.Minute)
	looks := w.looks()
	found = w.now.Now()
	w.finds(looks[0], replicas())
	w.want(stale(), "")
	w.now.Advance(9 * time.Minute)
	w.want(w.decide(), []string{"began: production differs from what was deployed"})
	w.commits(w.active())
	w.want(stale(), "a rollout has changed something there since")
}

// R4-11: a driver that names an object without its kind, or a file by its path, is understood; replicas of before are distinguished from
// those of now by the list, which they leave as it is.
func TestDriftOfFilesAndOfObjectsWithoutAKind(t *testing.T) {
	t.Parallel()
	w := drifting(t)
	w.now.Advance(6 * time.Minute)
	w.finds(w.looks()[0], event.ChangedThing{Kind: "other", Action: "changed", Object: "api"},
		event.ChangedThing{Kind: "image", Action: "changed", Object: "apps/x/values.yaml", Detail: "→ a:1"})
	w.want(w.drifts(), "api differs, apps/x/values.yaml differs (image → a:1)")
	w.want(w.objects(), `[{"how": "different", "kind": "", "name": "api"}, `+
		`{"how": "different", "kind": "", "name": "apps/x/values.yaml", "differs": ["image → a:1"]}]`)
	_, err := w.pool.Exec(t.Context(), `UPDATE cd_application_environment_reconciliations SET drift = '', objects = '[{"how": "different"}]'`)
	w.ok(err)
	w.want(w.objects(), `[{"how": "different"}]`)
}
