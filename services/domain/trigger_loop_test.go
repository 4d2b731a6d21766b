package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
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
