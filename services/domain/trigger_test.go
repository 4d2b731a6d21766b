package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// clocked is a shop with a clock of the test's, whose rollouts are those of earlier releases.
func clocked(t *testing.T) winter {
	t.Helper()
	now := clocktest.New(time.Unix(1_800_000_000, 0))
	return winter{shopOf(setupAt(t, now)), now}
}

func (w winter) trigger(kind core.TriggerKind, config string) core.Trigger {
	w.t.Helper()
	t, err := w.triggers.PutTrigger(w.t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: string(kind), Kind: kind, Config: json.RawMessage(config), Enabled: true,
	})
	w.ok(err)
	return t
}

// decide has triggers decide until nothing is due, and answers what they decided: outcome and reason.
func (w winter) decide() []string {
	w.t.Helper()
	lines := []string{}
	for range 50 {
		d, worked, err := w.triggers.DecideDue(w.t.Context())
		w.ok(err)
		if !worked {
			return lines
		}
		lines = append(lines, string(d.Outcome)+": "+d.Reason)
	}
	w.t.Fatal("the triggers do not come to an end")
	return nil
}

// active is the rollout of the shop that is not over; the test ends without one.
func (w winter) active() core.Rollout {
	w.t.Helper()
	all, err := w.view.ActiveRollouts(w.t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	r, busy := all[w.application.ID]
	if !busy {
		w.t.Fatal("no rollout is active")
	}
	return r
}

func (w winter) rolloutCount() int { return w.countOf(`SELECT count(*) FROM cd_rollouts`) }

// created are who began a rollout and what triggered it, as its first row in the journal has it.
func (w winter) created(r core.Rollout) (by, triggeredBy string) {
	w.t.Helper()
	w.ok(w.pool.QueryRow(w.t.Context(), `SELECT principal_type, triggered_by FROM cd_rollout_transitions WHERE rollout_id = $1 AND event = 'create'`,
		r.ID).Scan(&by, &triggeredBy))
	return by, triggeredBy
}

const deployAtOnce = `{"quiet_seconds":0}`

// D58: a new version set begins a rollout, once, after a quiet time; it is recorded as begun by policy with the trigger as its cause. What
// is deployed already begins nothing.
func TestANewVersionSetBeginsARollout(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, `{}`)
	w.want(w.decide(), []string{})
	set := w.release(2)
	lines := w.decide()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "waiting: a version set arrived at ") {
		t.Fatalf("a set that has just arrived: found %q; want one that waits", lines)
	}
	w.now.Advance(2 * time.Minute)
	w.want(w.decide(), []string{"began: " + set.Name + " is new"})
	r := w.active()
	w.want(r.VersionSetID, set.ID)
	by, why := w.created(r)
	w.want([]string{by, why}, []string{"policy", fmt.Sprintf("trigger version (version): set:%d", set.ID)})
	w.succeed(r)
	w.now.Advance(time.Hour)
	w.want(w.decide(), []string{})
	w.verifyJournal(r)
}

// D58: sets that arrive in a row begin one rollout, of the last one, and not later than the bound although more arrive.
func TestVersionSetsThatArriveInARowBeginOneRollout(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":120,"at_most_seconds":300}`)
	for n := range 4 {
		w.release(2 + n)
		for _, line := range w.decide() {
			if !strings.HasPrefix(line, "waiting: ") {
				t.Errorf("release %d: found %q; want that it waits", n, line)
			}
		}
		w.now.Advance(80 * time.Second)
	}
	newest := w.sets()[0]
	w.want(w.decide(), []string{"began: " + newest.Name + " is new"}) // 320 s after the first, 80 s after the last
	w.want(w.rolloutCount(), 1)
	w.want(w.active().VersionSetID, newest.ID)
}

// D58: an event that is delivered twice is decided about once, and a trigger that others decide about at the same time begins one rollout.
func TestAnEventThatComesTwiceBeginsOneRollout(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["build.*"],"sources":["/ci"],"data":{"build.branch":"ma*"}}`)
	send := func(e trigger.Event, want int) {
		t.Helper()
		n, err := w.triggers.SendEvent(t.Context(), user(), e)
		w.ok(err)
		w.want(n, trigger.Delivery{Triggers: want})
	}
	good := trigger.Event{ID: "1", Source: "/ci", Type: "build.passed", Data: json.RawMessage(`{"build":{"branch":"main"}}`)}
	for _, other := range []trigger.Event{
		{ID: "1", Source: "/ci", Type: "test.passed", Data: good.Data},
		{ID: "1", Source: "/elsewhere", Type: good.Type, Data: good.Data},
		{ID: "1", Source: "/ci", Type: good.Type, Data: json.RawMessage(`{"build":{"branch":"fix"}}`)},
		{ID: "1", Source: "/ci", Type: good.Type},
	} {
		send(other, 0)
	}
	send(good, 1)
	send(good, 1)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3 {
				_, _, err := w.triggers.DecideDue(t.Context())
				w.ok(err)
			}
		})
	}
	wg.Wait()
	w.want(w.rolloutCount(), 1)
	w.succeed(w.active())
	send(good, 1) // once more, after it was decided about
	w.want(w.decide(), []string{})
	again := good
	again.ID = "2"
	send(again, 1)
	w.want(w.decide(), []string{"declined: " + w.set.Name + " is live already wherever the trigger goes"})
	w.want(w.rolloutCount(), 1)
}

// D58: a schedule begins a rollout of the newest set at its times, in its time zone, as the principal schedule.
func TestAScheduleBeginsARolloutAtItsTimes(t *testing.T) {
	t.Parallel()
	w := clocked(t) // 2027-01-15 08:00 UTC
	w.trigger(core.TriggerSchedule, `{"cron":"0 6 * * *","time_zone":"Europe/Berlin","until":"staging"}`)
	w.now.Advance(20 * time.Hour) // 04:00 UTC
	w.want(w.decide(), []string{})
	w.now.Advance(time.Hour) // 05:00 UTC is 06:00 in Berlin
	w.want(w.decide(), []string{"began: " + w.set.Name + " is the newest version set at 2027-01-16T05:00:00Z"})
	r := w.active()
	by, why := w.created(r)
	w.want([]string{by, why}, []string{"schedule", "trigger schedule (schedule): schedule:2027-01-16T05:00:00Z"})
	w.want(len(w.stops(r)), 1) // the last environment is staging
	w.succeed(r)
	w.now.Advance(24 * time.Hour)
	w.want(w.decide(), []string{"declined: " + w.set.Name + " is live already wherever the trigger goes"})
	set := w.release(2)
	w.now.Advance(72 * time.Hour) // what was due meanwhile is due once
	w.want(w.decide(), []string{"began: " + set.Name + " is the newest version set at 2027-01-18T05:00:00Z"})
}

// D58: a time of a schedule that was changed since begins nothing, and the new one does; the metrics count both.
func TestAChangedScheduleForgetsItsFormerTimes(t *testing.T) {
	t.Parallel()
	w := clocked(t) // 2027-01-15 08:00 UTC
	w.trigger(core.TriggerSchedule, `{"cron":"0 9 * * *"}`)
	w.trigger(core.TriggerSchedule, `{"cron":"0 11 * * *"}`)
	w.now.Advance(2 * time.Hour)
	w.want(w.decide(), []string{"declined: the schedule was changed by user 1, and is not due at that time any more"})
	w.now.Advance(2 * time.Hour)
	w.want(w.decide(), []string{"began: " + w.set.Name + " is the newest version set at 2027-01-15T11:00:00Z"})
	counted := w.triggers.Decisions()
	w.want([]int64{counted["began"], counted["declined"], counted["failed"]}, []int64{1, 1, 0})
}

// D58, R4-04: while a rollout is under way, what a trigger wants waits in the application's queue, whatever its policy says about requests;
// the decision returns its outcome.
func TestATriggerFeedsTheQueue(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	first := w.rollout(w.set)
	on := w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"until":"staging"}`)
	set := w.release(2)
	w.want(w.decide(), []string{"queued: " + set.Name + " is new; it is in the queue of the application"})
	w.succeed(first)
	q, worked, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want(worked && q.Outcome == "", true)
	r := w.active()
	w.want([]int64{r.VersionSetID, int64(len(w.stops(r)))}, []int64{set.ID, 1})
	_, why := w.created(r)
	w.want(strings.Contains(why, fmt.Sprintf("trigger version (version): set:%d", set.ID)), true)
	all, err := w.triggers.TriggerDecisions(t.Context(), org, []int64{on.ID})
	w.ok(err)
	last := all[on.ID][0]
	w.want([]any{last.Outcome, last.RolloutID}, []any{core.TriggerBegan, r.ID})
}

// D58, R4-28: automation never undoes a rollback: it begins nothing in that environment, and edits no files for it, until a person releases
// it, and then it does. A chain stops there.
func TestAutomationNeverUndoesARollback(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.withManifests()
	w.commit(1)
	w.succeed(w.rollout(w.sets()[0]))
	w.trigger(core.TriggerVersion, deployAtOnce)
	w.trigger(core.TriggerSchedule, `{"cron":"@hourly"}`)
	w.want([]string{"began: " + w.release(2).Name + " is new"}, w.decide())
	bad := w.active()
	w.succeed(bad)
	back, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: bad.ID, Reason: "errors"})
	w.ok(err)
	w.succeed(back)
	for range 3 {
		w.now.Advance(time.Hour)
		for _, line := range w.decide() {
			if !strings.Contains(line, "automation begins nothing there until the hold is released") {
				t.Errorf("after a rollback: found %q; want that it is held", line)
			}
		}
	}
	w.trigger(core.TriggerEvent, editing)
	w.built("1", built)
	for _, line := range w.decide() {
		w.want(strings.Contains(line, "automation begins nothing there until the hold is released"), true)
	}
	w.want(len(e.order), 0)
	blog := w.another("blog", 501)
	w.follow("blog")
	w.ok(blog.chain("then", `{"blocks":[{"applications":["shop"]}]}`))
	blog.succeed(blog.rollout(blog.set))
	lines := w.decide()
	w.want(len(lines), 3)
	w.want(strings.HasPrefix(lines[2], `declined: chain_1: after block 1 of 1 no block begins, for "shop" failed (rollout_3 rolled back in "staging"`), true)
	w.trigger(core.TriggerGit, `{}`)
	w.commit(2)
	set := w.release(3)
	w.want(len(w.decide()), 2)
	w.want(w.rolloutCount(), 4)
	machine := user()
	machine.Type, machine.ID = core.PrincipalAgent, 7
	_, err = w.rollouts.CreateRollout(t.Context(), machine, rollout.NewRollout{VersionSetID: set.ID})
	w.refused(err, "automation begins nothing there until the hold is released") // a machine is automation, too
	release := func(a core.Actor, environment int64) error {
		_, err := w.triggers.ReleasePromotionHold(t.Context(), a, w.application.ID, environment, "mended")
		return err
	}
	if err := release(machine, w.staging.ID); !fault.Is(err, fault.Denied) {
		t.Errorf("a machine that releases: found %v; want that it is for people", err)
	}
	holds, err := w.triggers.PromotionHolds(t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	w.want(len(holds[w.application.ID]), 2)
	w.ok(release(user(), w.staging.ID))
	for _, line := range w.decide() { // production is held still
		w.want(strings.HasPrefix(line, "declined: "), true)
	}
	w.ok(release(user(), w.production.ID))
	w.refused(release(user(), w.production.ID), "nothing was rolled back there since the last release")
	w.want(w.decide()[0], "began: "+set.Name+" has not been deployed, and automation was released")
	w.want(w.active().VersionSetID, set.ID)
}

// D58: what waited in the queue when something was rolled back does not begin.
func TestTheQueueDoesNotUndoARollback(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	bad := w.rollout(w.release(2))
	on := w.trigger(core.TriggerVersion, deployAtOnce)
	w.release(3)
	w.want(len(w.decide()), 1)
	w.report(event.DeploymentStarted{DeploymentID: w.deployments(w.stops(bad)[0])[0].ID})
	back, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: bad.ID, Reason: "errors"})
	w.ok(err)
	w.succeed(back)
	q, worked, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want(worked && strings.Contains(q.Outcome, "automation begins nothing there"), true)
	all, err := w.triggers.TriggerDecisions(t.Context(), org, []int64{on.ID})
	w.ok(err)
	w.want([]any{all[on.ID][0].Outcome, all[on.ID][0].Reason}, []any{core.TriggerDeclined, q.Outcome})
}

// D58: filters by service and by range say which version begins nothing.
func TestFiltersOfAVersionTrigger(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"services":["api"],"versions":">=1.3"}`)
	at := time.Unix(1_700_000_100, 0)
	w.publish(w.artifact("registry.test/shop/web", "1.9", 91, at))
	w.succeed(w.rollout(w.sets()[0]))
	w.decide()
	w.publish(w.artifact("registry.test/shop/web", "2.0", 92, at.Add(time.Minute)))
	w.want(w.decide(), []string{"declined: set-3 has no new version of api"})
	w.publish(w.artifact("registry.test/shop/api", "1.2", 93, at.Add(2*time.Minute)))
	w.want(w.decide(), []string{"declined: 1.2 of api in set-4 is not in the range >=1.3"})
	w.publish(w.artifact("registry.test/shop/api", "1.4", 94, at.Add(3*time.Minute)))
	w.want(w.decide(), []string{"began: set-5 is new"})
}

// R4-10, R4-11: drift begins a rollout if the trigger is on, something differs, nothing is being deployed, and the last rollout ended long
// enough ago; only where it differs, with what is live there. What comes back each time is left to people.
func TestDriftDeploysAgainIfAllConditionsHold(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	w.release(2) // newer, and not deployed
	all, err := w.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	var ae int64
	for _, one := range all[w.application.ID] {
		if one.EnvironmentID == w.production.ID {
			ae = one.ID
		}
	}
	saw := func(drift string) {
		t.Helper()
		w.report(event.ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: ae, Revision: "abc", ExpectedRevision: "abc", Drift: drift, ObservedAt: w.now.Now().UTC().Format(time.RFC3339),
		})
	}
	saw("deployment api is missing")
	w.want(w.decide(), []string{}) // no such trigger: off is the default
	saw("")
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(time.Minute)
	saw("deployment api is missing")
	w.want(w.decide(), []string{`waiting: "production" differs, and rollout_1 ended 1m0s ago: drift counts from 5m0s after a rollout`})
	w.now.Advance(10 * time.Minute)
	w.want(w.decide(), []string{"began: production differs from what was deployed"})
	r := w.active()
	w.want([]int64{r.VersionSetID, int64(len(w.stops(r))), w.stops(r)[0].EnvironmentID}, []int64{w.set.ID, 1, w.production.ID})
	w.now.Advance(time.Minute)
	saw("")
	w.now.Advance(time.Minute)
	saw("deployment web differs") // while it is deploying
	w.want(w.decide(), []string{`waiting: "production" differs, and rollout_2 is pending: drift counts once it has ended`})
	w.succeed(r)
	for range 2 {
		w.now.Advance(6 * time.Minute)
		saw("")
		w.now.Advance(time.Minute)
		saw("deployment web differs")
		w.want(w.decide(), []string{"began: production differs from what was deployed"})
		w.succeed(w.active())
	}
	w.now.Advance(6 * time.Minute)
	saw("")
	w.now.Advance(time.Minute)
	saw("deployment web differs")
	w.want(w.decide(), []string{`declined: it was deployed again 3 times within an hour, and "production" differs still: something else changes it`})
	w.verifyJournal(r)
}

// R4-06: each trigger can be switched off and on, the manual one as well; rolling back is always possible.
func TestTriggersCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	put := func(name string, kind core.TriggerKind, on bool) {
		t.Helper()
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: name, Kind: kind, Config: json.RawMessage(`{}`), Enabled: on,
		})
		w.ok(err)
	}
	put("sets", core.TriggerVersion, true)
	w.release(2)
	put("sets", core.TriggerVersion, false)
	w.want(w.decide(), []string{"declined: the trigger was switched off by user 1"})
	w.release(3)
	w.want(w.decide(), []string{})
	put("by-hand", core.TriggerManual, false)
	_, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	w.refused(err, `user 1 switched the manual trigger of "shop" off`)
	_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "two", Kind: core.TriggerManual,
	})
	w.refused(err, `the application has the manual trigger "by-hand" already`)
	put("by-hand", core.TriggerManual, true)
	w.succeed(w.rollout(w.set))
	put("by-hand", core.TriggerManual, false)
	_, err = w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, "by-hand", "")
	w.ok(err)
	w.succeed(w.rollout(w.sets()[0])) // the default is on
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action IN ('putTrigger', 'removeTrigger')`), 6)
}

// D58: a configuration that does not fit its kind is refused, with the field; every default of the schemas is one that the kind takes.
func TestConfigurationsOfTriggersAreChecked(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	put := func(kind core.TriggerKind, config string) error {
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: string(kind), Kind: kind, Config: json.RawMessage(config),
		})
		return err
	}
	schemas := map[core.TriggerKind]*schema.Schema{}
	for _, k := range trigger.Kinds() {
		s, err := schema.Compile(k.Schema)
		w.ok(err)
		schemas[k.Kind] = s
	}
	for _, tt := range []struct {
		kind          core.TriggerKind
		config, field string
	}{
		{core.TriggerVersion, `{}`, ""},
		{core.TriggerVersion, `{"until":"staging","quiet_seconds":0,"at_most_seconds":0,"services":["a*"],"versions":"^1"}`, ""},
		{core.TriggerVersion, `{"sources":["registry.test/shop/*"],"labels":{"team":"shop"},"facts":{"signed_by":["release"],"build_level":2,"critical":0,"sbom_formats":["SPDX"]}}`, ""},
		{core.TriggerVersion, `{"services":["api","nobody"]}`, "/config/services/1"},
		{core.TriggerVersion, `{"sources":["registry.test/other/*"]}`, "/config/sources/0"},
		{core.TriggerVersion, `{"labels":{"":"x"}}`, "/config/labels"},
		{core.TriggerVersion, `{"facts":{"signed":["x"]}}`, "/config/facts/signed"},
		{core.TriggerVersion, `{"facts":{"build_level":5}}`, "/config/facts/build_level"},
		{core.TriggerVersion, `{"facts":{"signed_by":[""]}}`, "/config/facts/signed_by/0"},
		{core.TriggerVersion, `{"facts":{"sbom_formats":["pdf"]}}`, "/config/facts/sbom_formats/0"},
		{core.TriggerVersion, `{"facts":{"high":-1}}`, "/config/facts/high"},
		{core.TriggerGit, `{"facts":{"high":0}}`, "/config/facts"},
		{core.TriggerVersion, `{"quiet_seconds":-1}`, "/config/quiet_seconds"},
		{core.TriggerVersion, `{"quiet_seconds":"abc"}`, "/config/quiet_seconds"},
		{core.TriggerVersion, `{"services":"api"}`, "/config/services"},
		{core.TriggerVersion, `{"versions":"about 1"}`, "/config/versions"},
		{core.TriggerVersion, `{"cron":"@daily"}`, "/config/cron"},
		{core.TriggerSchedule, `{}`, "/config/cron"},
		{core.TriggerSchedule, `{"cron":"61 * * * *"}`, "/config/cron"},
		{core.TriggerSchedule, `{"cron":"@daily","time_zone":"Mars/Base"}`, "/config/time_zone"},
		{core.TriggerEvent, `{}`, "/config/types"},
		{core.TriggerEvent, `{"types":["x"],"data":{"a b":"c"}}`, "/config/data"},
		{core.TriggerEvent, `{"types":[""]}`, "/config/types/0"},
		{core.TriggerDrift, `{"window_seconds":90000}`, "/config/window_seconds"},
		{core.TriggerManual, `{"until":"x"}`, "/config/until"},
		{core.TriggerManual, `[]`, "/config"},
		{"pull", `{}`, "/kind"},
	} {
		err := put(tt.kind, tt.config)
		found := ""
		if fields := fault.FieldsOf(err); len(fields) > 0 {
			found = fields[0].Name
		}
		if found != tt.field || (err == nil) != (tt.field == "") {
			t.Errorf("%s %s: found %v; want a problem with %q", tt.kind, tt.config, err, tt.field)
		}
		if s := schemas[tt.kind]; s != nil && tt.field == "" && s.Validate([]byte(tt.config)) != nil {
			t.Errorf("%s %s: the schema of the kind refuses it", tt.kind, tt.config)
		}
	}
	stranger := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
	_, err := w.triggers.PutTrigger(t.Context(), stranger, trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "x", Kind: core.TriggerVersion,
	})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a trigger of another organization's application: %v", err)
	}
	for i := range trigger.MaxTriggers {
		_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: fmt.Sprintf("t%d", i), Kind: core.TriggerVersion,
		})
	}
	w.refused(err, "expected at most 20")
	n, err := w.triggers.SendEvent(t.Context(), stranger, trigger.Event{ID: "1", Source: "/ci", Type: "x"})
	w.ok(err)
	w.want(n, trigger.Delivery{})
}

// D58: an organization whose triggers have much to decide about does not keep those of another one waiting, and a decision that fails
// does not keep the others from deciding.
func TestTriggersOfOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	other := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_applications (organization_id, name) VALUES (2, 'theirs'), (1, 'a'), (1, 'b'), (1, 'c')`)
	w.ok(err)
	rows, err := w.pool.Query(t.Context(), `SELECT organization_id, id FROM cd_applications ORDER BY id`)
	w.ok(err)
	type place struct{ organization, id int64 }
	var places []place
	for rows.Next() {
		var p place
		w.ok(rows.Scan(&p.organization, &p.id))
		places = append(places, p)
	}
	w.ok(rows.Err())
	for _, p := range places {
		a := user()
		if p.organization == 2 {
			a = other
		}
		_, err := w.triggers.PutTrigger(t.Context(), a, trigger.NewTrigger{
			ApplicationID: p.id, Name: "nightly", Kind: core.TriggerSchedule, Config: json.RawMessage(`{"cron":"@hourly"}`), Enabled: true,
		})
		w.ok(err)
	}
	w.now.Advance(2 * time.Hour)
	var turns []int64
	for range 4 {
		d, worked, err := w.triggers.DecideDue(t.Context())
		w.ok(err)
		w.want(worked, true)
		turns = append(turns, d.Organization)
	}
	w.want(turns[:2], []int64{1, 2})
}
