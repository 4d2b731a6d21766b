package domain

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const inSync = `,{"kind":"health","in_sync":true}`

// unknownSync begins what a check says that does not know whether something differs.
const unknownSync = unhealthy + "pending: it is not known whether something differs from what was deployed: "

// reconciled reports what an observer sees that differs in dev.
func (c checked) reconciled(objects ...event.DriftedObject) {
	c.t.Helper()
	c.report(event.ApplicationEnvironmentReconciled{
		ApplicationEnvironmentID: c.placeOf("dev"), ObservedAt: c.now.Now().UTC().Format(time.RFC3339Nano), Objects: objects,
	})
	c.review()
}

// placeOf is the application environment of an environment.
func (c checked) placeOf(environment string) int64 {
	c.t.Helper()
	return int64(c.countOf(`SELECT id FROM cd_application_environments WHERE environment_id = ` + itoa(c.places[environment].ID)))
}

func differs(name string) event.DriftedObject {
	return event.DriftedObject{Kind: "Deployment", Name: name, How: "different", Detail: "replicas 9 → 2"}
}

// R3-17, R3-19, R4-11: a check of health that is in sync also waits while something differs from what was deployed, names the objects, and
// opens the passage once nothing does, without a request (R3-15). Drift that begins while a timer runs keeps the passage closed.
func TestACheckOfHealthWaitsForWhatDiffers(t *testing.T) {
	t.Parallel()
	c := promoter(t, inSync+`,{"kind":"timer","duration":3600}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.reconciled() // of what ran before
	c.now.Advance(time.Minute)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	c.want(strings.Join(c.waits(r, "check"), "\n"), unknownSync+`nobody has looked since the rollout deployed there`+"\n"+
		`check: passage "test" needs check "timer" of "dev", which is pending: requires 1 h, of which at most 1h0m0s remain`)
	c.now.Advance(time.Minute)
	c.reconciled()
	c.want(len(c.waits(r, "check")), 1) // the timer
	c.now.Advance(time.Minute)
	c.reconciled(differs("api"))
	c.now.Advance(time.Hour)
	c.review()
	c.want(c.waits(r, "check"), []string{
		unhealthy + "pending: it is healthy, and not as it was deployed: Deployment/api differs (replicas 9 → 2)",
	})
	c.want(c.granted(), []string{"dev"})
	c.now.Advance(time.Minute)
	c.reconciled()
	c.want(c.granted(), []string{"dev", "test"})
	c.want(strings.Contains(c.passed(r)[1], "check argocd-health: success"), true)
	c.verifyJournal(r)
}

// R3-17: without in_sync, as in every pipeline of before, what differs holds nothing.
func TestDriftHoldsNothingWithoutInSync(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"kind":"health"}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	c.now.Advance(time.Minute)
	c.reconciled(differs("api"))
	c.want(c.granted(), []string{"dev", "test"})
}

// R4-11: where nobody looks, where looking again fails, and where what differs was found before the rollout ended there, it is not known,
// and the passage stays closed.
func TestUnknownDriftKeepsThePassageClosed(t *testing.T) {
	t.Parallel()
	c := promoter(t, inSync)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.now.Advance(time.Minute)
	c.complete(r, "dev")
	c.review()
	c.want(c.waits(r, "check"), []string{unknownSync + "nobody has looked yet"})
	all, err := c.view.Waits(t.Context(), org, []int64{r.ID})
	c.ok(err)
	c.want(all[r.ID][0].Resolver, "the health of what was deployed, and a look that finds nothing that differs from it")
	failed := func(why string) {
		_, err := c.pool.Exec(t.Context(), `INSERT INTO cd_drift_looks (organization_id, application_environment_id, failed_at, failure)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (organization_id, application_environment_id) DO UPDATE SET failed_at = $3, failure = $4`,
			org, c.placeOf("dev"), c.now.Now(), why)
		c.ok(err)
	}
	failed("no answer")
	c.now.Advance(time.Minute)
	c.reconciled(differs("api"))
	c.now.Advance(time.Minute)
	failed("no answer")
	c.want(c.waits(r, "check"), []string{
		unknownSync + "looking again failed: no answer; before that: Deployment/api differs (replicas 9 → 2)",
	})
	failed(core.NobodyLooks)
	c.want(c.waits(r, "check"), []string{
		unknownSync + "nobody looks there any more; before that: Deployment/api differs (replicas 9 → 2)",
	})
	c.want(c.granted(), []string{"dev"})
	c.now.Advance(time.Minute)
	c.reconciled()
	c.want(c.granted(), []string{"dev", "test"})
}

// R3-17, R4-11: where the driver looks by itself, it does so during a rollout that waits for it, once it is complete in the environment,
// and nowhere else; what it finds opens or holds the passage.
func TestADriverLooksDuringARolloutThatWaitsForIt(t *testing.T) {
	t.Parallel()
	c := promoter(t, inSync)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev")
	for _, stop := range c.stops(r)[:1] {
		for _, d := range c.deployments(stop) {
			c.report(event.DeploymentStarted{DeploymentID: d.ID})
			c.report(event.DeploymentCommitted{DeploymentID: d.ID, CommitSHA: strings.Repeat("a", 40), ManifestDigest: digestOf(1)})
		}
	}
	c.want(len(c.looks()), 0) // it is not complete
	c.complete(r, "dev")
	c.enter(r, "test")
	c.review()
	c.want(len(c.looks()), 0) // what it has changed settles
	c.now.Advance(2 * time.Minute)
	looks := c.looks()
	c.want(len(looks), 1)
	found := func(preview int64, things ...event.ChangedThing) {
		c.report(event.RolloutPreviewed{PreviewID: preview, Environments: []event.PreviewedEnvironment{{
			EnvironmentID: c.places["dev"].ID, Changes: []event.FileChange{},
			Compared: &event.Comparison{Workloads: 1, Things: append([]event.ChangedThing{}, things...)},
		}}})
		c.review()
	}
	found(looks[0], replicas())
	c.want(c.waits(r, "check"), []string{
		unhealthy + "pending: it is healthy, and not as it was deployed: Deployment/api differs (replicas 9 → 2)",
	})
	c.now.Advance(10 * time.Minute)
	looks = c.looks()
	c.want(len(looks), 1)
	found(looks[0])
	c.want(c.granted(), []string{"dev", "test"})
}
