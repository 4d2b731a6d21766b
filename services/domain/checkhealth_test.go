package domain

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// observed reports the health of what the rollout has deployed to an environment, as the standing observer saw it after a time from now.
func (c checked) observed(environment, health, reason string, after time.Duration) {
	c.t.Helper()
	services, err := c.view.ServicesByApplication(c.t.Context(), org, []int64{c.application.ID})
	c.ok(err)
	for _, s := range services[c.application.ID] {
		c.report(event.ServiceHealthObserved{
			ServiceID: s.ID, EnvironmentID: c.places[environment].ID, Health: health, Reason: reason,
			ObservedAt: c.now.Now().Add(after).UTC().Format(time.RFC3339Nano),
		})
	}
	c.review()
}

// contact reports whether the agent of an environment can be reached.
func (c checked) contact(environment string, reachable bool) {
	c.t.Helper()
	reason := ""
	if !reachable {
		reason = "agent 42 is offline"
	}
	c.report(event.EnvironmentContactChanged{
		EnvironmentID: c.places[environment].ID, Reachable: reachable, Reason: reason, ObservedAt: c.now.Now().UTC().Format(time.RFC3339Nano),
	})
	c.review()
}

const unhealthy = `check: passage "test" needs check "argocd-health" of "dev", which is `

// R3-17, R3-18, R3-19: what was healthy before the new version was deployed opens nothing; the health of exactly that version does, and
// only as long as it lasts: degraded stops, and recovery opens the passage without a request (R3-15).
func TestHealthOfWhatWasDeployedOpensThePassage(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"kind":"health"}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.observed("dev", "healthy", "", 0) // of the version before
	c.want(c.waits(r, "check"), []string{unhealthy + "pending: the rollout has not completed there yet"})
	c.now.Advance(time.Minute)
	c.contact("dev", false)
	c.complete(r, "dev")
	c.review()
	c.want(c.waits(r, "check"), []string{
		unhealthy + "pending: the health is not known at present: the agent cannot be reached: agent 42 is offline",
	})
	c.want(c.granted(), []string{"dev"})
	c.now.Advance(time.Minute)
	c.observed("dev", "degraded", "CrashLoopBackOff", 0)
	c.now.Advance(time.Minute)
	c.contact("dev", true)
	c.want(c.waits(r, "check"), []string{unhealthy + "failure: api is degraded: CrashLoopBackOff"})
	c.observed("dev", "healthy", "", -time.Hour) // late
	c.want(c.granted(), []string{"dev"})
	c.observed("dev", "progressing", "Progressing", time.Minute)
	c.want(c.waits(r, "check"), []string{unhealthy + "pending: api is progressing: Progressing"})
	c.observed("dev", "unknown", "the rollout does not exist", 2*time.Minute)
	c.want(c.granted(), []string{"dev"})
	c.observed("dev", "healthy", "", 3*time.Minute)
	c.want(c.granted(), []string{"dev", "test"})
	c.want(c.passed(r)[1], "test (no approval required; check argocd-health: success; check healthy: success)")
	c.verifyJournal(r)
}

// R3-15: a passage that only waits for an agent is granted when the agent is back, without any other event.
func TestAnAgentThatIsBackOpensThePassage(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"key":"argocd-health","kind":"health"}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.contact("dev", false)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	c.review()
	c.want(c.granted(), []string{"dev"})
	c.now.Advance(time.Second)
	c.contact("dev", true)
	c.want(c.granted(), []string{"dev", "test"})
}

// A deployment that ended degraded stops the rollout although the program reports that the environment is complete; one that was never
// reported healthy is waited for.
func TestHealthNeedsEveryDeployment(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]struct {
		report func(core.Deployment) []event.Data
		want   string
	}{
		"degraded": {func(d core.Deployment) []event.Data {
			return []event.Data{event.DeploymentStarted{DeploymentID: d.ID}, event.DeploymentDegraded{DeploymentID: d.ID, Reason: "slow"}}
		}, "failure: api is degraded: its deployment ended so"},
		"not reported": {func(d core.Deployment) []event.Data {
			return []event.Data{event.DeploymentStarted{DeploymentID: d.ID}}
		}, "pending: api is unknown: its deployment is deploying"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := promoter(t, `,{"kind":"health"}`)
			r := c.rollout(c.set)
			c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
			c.enter(r, "dev", "test")
			stop := c.stops(r)[slices.IndexFunc(c.stops(r), func(e core.RolloutEnvironment) bool { return e.EnvironmentID == c.places["dev"].ID })]
			for _, d := range c.deployments(stop) {
				c.report(last.report(d)...)
			}
			c.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID})
			c.review()
			c.want(c.waits(r, "check"), []string{unhealthy + last.want})
			c.want(c.granted(), []string{"dev"})
		})
	}
}

// D57: a retired service that was degraded, or becomes so, keeps no passage closed.
func TestARetiredServiceKeepsNoPassageClosed(t *testing.T) {
	t.Parallel()
	c := promoter(t, `,{"kind":"health"}`)
	r := c.rollout(c.set)
	c.reports(1, "dev", c.set, "healthy", core.CheckSuccess)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	c.now.Advance(time.Minute)
	services, err := c.view.ServicesByApplication(t.Context(), org, []int64{c.application.ID})
	c.ok(err)
	api := services[c.application.ID][0]
	c.report(event.ServiceHealthObserved{
		ServiceID: api.ID, EnvironmentID: c.places["dev"].ID, Health: "degraded", ObservedAt: c.now.Now().UTC().Format(time.RFC3339Nano),
	})
	c.review()
	c.want(c.granted(), []string{"dev"})
	_, err = c.setup.RetireService(t.Context(), user(), api.ID, "merged")
	c.ok(err)
	c.review()
	c.want(c.granted(), []string{"dev", "test"})
}
