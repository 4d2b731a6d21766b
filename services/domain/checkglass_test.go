package domain

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// throughAll takes a rollout through all environments.
func (c checked) throughAll(r core.Rollout, set core.VersionSet) {
	c.t.Helper()
	c.reports(1, "prod", set, "deployment-freeze", core.CheckSuccess)
	for _, name := range []string{"dev", "test", "prod"} {
		c.enter(r, name)
		c.reports(1, name, set, "healthy", core.CheckSuccess)
		c.complete(r, name)
		c.review()
	}
	c.report(event.RolloutHealthy{RolloutID: r.ID})
}

// heldBack is a rollback in prod to what ran everywhere, which a check of prod holds that has failed since.
func heldBack(c checked) core.Rollout {
	c.t.Helper()
	c.throughAll(c.rollout(c.set), c.set)
	set := c.release(2)
	second := c.rollout(set)
	c.throughAll(second, set)
	c.reports(2, "prod", c.set, "deployment-freeze", core.CheckFailure)
	return c.goesBack(second, false)
}

// goesBack is a rollback in prod to the first set.
func (c checked) goesBack(from core.Rollout, glass bool) core.Rollout {
	c.t.Helper()
	back, err := c.rollouts.RollbackRollout(c.t.Context(), user(), rollout.Rollback{
		RolloutID: from.ID, VersionSetID: c.set.ID, Scope: rollout.Scope{Only: []string{"prod"}}, Reason: "incident 99", BreakGlass: glass,
	})
	c.ok(err)
	c.enter(back, "prod")
	return back
}

// D48, D49: a check holds a rollback, and no report of another reporter turns a red one green; the person who breaks the glass lets it
// past, and the journal says which check, and by whom.
func TestBreakGlassPassesTheChecksOfARollback(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	p := c.posting()
	p.channel("security", core.NotifyWebhook, hook, 60)
	p.route("bypasses", "security", `{"events":["freeze_bypassed"]}`)
	back := heldBack(c)
	c.want(c.passed(back), []string{})
	c.want(c.waits(back, "check"), []string{`check: passage "prod" needs check "deployment-freeze" of "prod", which is failure: ` +
		`the reporters contradict each other: failure by ci-2, success by ci-1`})
	all, err := c.view.Waits(t.Context(), org, []int64{back.ID})
	c.ok(err)
	c.want(strings.Contains(all[back.ID][0].Resolver, "in a rollback to what has run there also break-glass by"), true)

	_, err = c.rollouts.BreakGlass(t.Context(), user(), back.ID, "incident 99: alone on call")
	c.ok(err)
	c.want(c.passed(back), []string{"prod (no approval required; check deployment-freeze: passed by break-glass by user 1)"})
	p.work()
	p.has("user broke the glass: it entered prod past checks that are not green", `"event":"freeze_bypassed"`)
	c.verifyJournal(back)
}

// D49: as a rollback passes a freeze, only what has run there goes past its checks; and a freeze of rollbacks stops it all the same.
func TestBreakGlassPassesNoOtherChecks(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	_, err := c.rollouts.BreakGlass(t.Context(), user(), r.ID, "in a hurry")
	c.ok(err)
	c.enter(r, "dev", "test")
	c.want(c.granted(), []string{"dev"}) // a rollout that is no rollback waits for its checks

	c = promoter(t, "")
	back := heldBack(c)
	c.freeze(freeze.NewFreeze{Rollbacks: true})
	_, err = c.rollouts.BreakGlass(t.Context(), user(), back.ID, "incident 99: alone on call")
	c.ok(err)
	c.want(c.passed(back), []string{})
	_, err = c.rollouts.BypassFreeze(t.Context(), user(), back.ID, "incident 99: alone on call")
	c.ok(err)
	c.want(c.passed(back), []string{"prod (no approval required; check deployment-freeze: passed by break-glass by user 1)"})
}

// A set that has been live in dev only goes back there past its checks, and in prod, where it never ran, it waits for them.
func TestBreakGlassWaitsForChecksWhereTheSetNeverRan(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev")
	c.complete(r, "dev")
	_, err := c.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	c.ok(err)
	set := c.release(2)
	second := c.rollout(set)
	c.throughAll(second, set)
	back := c.goesBack(second, true)
	c.want(c.passed(back), []string{})
	c.reports(1, "prod", c.set, "deployment-freeze", core.CheckSuccess)
	c.want(c.passed(back), []string{"prod (no approval required; check deployment-freeze: success)"})
}
