package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// D58, R4-07, R4-10, R4-12: triggers that could feed each other come to rest. An application repairs drift, takes every commit and every
// set, and is followed by another, which it follows itself; each repair is reported as a commit whose trailers were lost, and the drift
// comes back.
func TestDriftCommitsAndChainsMakeNoLoop(t *testing.T) {
	t.Parallel()
	shop := clocked(t)
	shop.withManifests()
	shop.commit(901)
	blog := shop.another("blog", 501)
	shop.succeed(shop.rollout(shop.sets()[0]))
	blog.succeed(blog.rollout(blog.set))
	shop.trigger(core.TriggerGit, `{}`)
	shop.trigger(core.TriggerVersion, `{"quiet_seconds":0}`)
	shop.trigger(core.TriggerDrift, `{}`)
	blog.follow("shop")
	shop.ok(shop.chain("then", `{"blocks":[{"applications":["blog"]}]}`))
	// A chain in the other direction is refused, so it is written as an earlier release might have left it.
	_, err := shop.pool.Exec(t.Context(), `INSERT INTO cd_triggers (organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
		VALUES (1, $1, 'back', 'chain', '{"follows":["*"]}', true, 'user', 1, 'ann', now()), (1, $2, 'on', 'chain', '{"blocks":[{"applications":["*"]}]}', true, 'user', 1, 'ann', now())`,
		shop.application.ID, blog.application.ID)
	shop.ok(err)
	all, err := shop.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{shop.application.ID})
	shop.ok(err)
	commit := 903
	for range 20 { // twenty rounds of five minutes
		for _, ae := range all[shop.application.ID] {
			for _, drift := range []string{"", "deployment web differs"} {
				shop.now.Advance(time.Minute)
				shop.report(event.ApplicationEnvironmentReconciled{
					ApplicationEnvironmentID: ae.ID, Revision: "abc", ExpectedRevision: "abc", Drift: drift,
					ObservedAt: shop.now.Now().UTC().Format(time.RFC3339),
				})
			}
		}
		shop.now.Advance(time.Minute)
		shop.decide()
		for _, w := range []winter{shop, blog} {
			active, err := w.view.ActiveRollouts(t.Context(), org, []int64{w.application.ID})
			w.ok(err)
			r, busy := active[w.application.ID]
			if !busy {
				continue
			}
			for _, e := range w.stops(r) {
				for _, d := range w.deployments(e) {
					w.report(event.DeploymentStarted{DeploymentID: d.ID})
					w.report(event.DeploymentCommitted{
						DeploymentID: d.ID, CommitSHA: shaOf(commit), ManifestDigest: digestOf(1), Parameters: json.RawMessage(`{}`),
					})
				}
			}
			w.succeed(r)
			shop.commit(commit)
			commit++
			_, _, err = w.rollouts.BeginQueued(t.Context())
			w.ok(err)
			shop.decide()
		}
	}
	// Drift that comes back is repaired three times within an hour. The commit of a repair, which one environment has recorded, may lead to
	// one rollout along the pipeline, whose commits lead to none. Nothing reaches the other application or comes back.
	shop.want(shop.countOf(`SELECT count(*) FROM cd_rollouts WHERE application_id = $1`, blog.application.ID), 1)
	made := shop.countOf(`SELECT count(*) FROM cd_rollouts WHERE application_id = $1`, shop.application.ID)
	if made < 2 || made > 1+2*2*3 {
		t.Errorf("found %d rollouts in 100 minutes; want at most six repairs, and one more of each", made)
	}
	rows, err := shop.pool.Query(t.Context(), `SELECT COALESCE(triggered_by, '') FROM cd_rollout_transitions WHERE event = 'create' AND rollout_id IS NOT NULL`)
	shop.ok(err)
	defer rows.Close()
	for rows.Next() {
		var cause string
		shop.ok(rows.Scan(&cause))
		if strings.Contains(cause, "(chain)") || strings.Contains(cause, "(version)") {
			t.Errorf("a rollout was begun by %q", cause)
		}
	}
	shop.ok(rows.Err())
}

// D58, R4-28: what Lockstep's own channels send begins nothing: a runbook whose end is reported would begin itself again.
func TestEventsOfLockstepAreRefused(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["*"]}`)
	for _, e := range []trigger.Event{
		{ID: "1", Source: "/lockstep/organizations/1", Type: "com.lockstep.notification.v1"},
		{ID: "1", Source: "relay", Type: "com.lockstep.notification.v1"},
		{ID: "1", Source: "/lockstep/organizations/1", Type: "dev.cdevents.service.deployed.0.2.0"},
	} {
		_, err := w.triggers.SendEvents(t.Context(), user(), []trigger.Event{{ID: "0", Source: "/ci", Type: "t"}, e})
		w.want(strings.Contains(fmt.Sprint(err), "which a notification channel of Lockstep sends"), true)
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals`), 0)
	code, answer := w.sent("POST", "deploys", map[string]string{"Content-Type": "application/cloudevents+json"},
		`{"specversion":"1.0","type":"com.lockstep.notification.v1","source":"/x","id":"1"}`)
	w.want(code, 400)
	w.want(strings.Contains(answer, "a trigger of kind chain"), true)
}

// R4-28: a run of an edit that may have begun is not forgotten: what would refuse it now lets it come to its end.
func TestAnEditThatHasBegunComesToItsEnd(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	w.built("1", built)
	w.after(0, 1)
	w.want(len(e.order), 1)
	_, err := w.freezes.PinEnvironment(t.Context(), user(), w.staging.ID, "audit")
	w.ok(err)
	w.want(strings.HasPrefix(w.after(time.Minute, 1), "waiting: its files are being edited"), true)
	e.answers = []map[string]string{{"outcome": "committed", "commit": shaOf(77)}}
	w.want(strings.Contains(w.after(time.Minute, 1), "is pinned"), true)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE edit ->> 'state' = 'committed'`), 1)
	w.built("2", built)
	w.want(strings.Contains(w.after(time.Minute, 1), "is pinned"), true)
	w.want(len(e.order), 1)
}

// D58: who has sent an event is kept with it, and stands in the cause of its rollout, in which what the sender chose comes last; what was
// stored before has no sender.
func TestAnEventKeepsItsSender(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	on := w.trigger(core.TriggerEvent, `{"types":["t"]}`)
	ci := user()
	ci.Name = "ci"
	_, err := w.triggers.SendEvent(t.Context(), ci, trigger.Event{ID: "1, sent by user 9 (eve)", Source: "/ci", Type: "t"})
	w.ok(err)
	w.decide()
	_, why := w.created(w.active())
	w.want(why, "trigger event (event): sent by user 1 (ci): event:/ci/1, sent by user 9 (eve)")
	found := func() core.Author {
		all, err := w.triggers.TriggerDecisions(t.Context(), org, []int64{on.ID})
		w.ok(err)
		return all[on.ID][0].Sender
	}
	w.want(found(), core.AuthorOf(ci))
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_trigger_signals SET sender_type = NULL, sender_id = NULL, sender_name = NULL`)
	w.ok(err)
	w.want(found(), core.Author{})
}
