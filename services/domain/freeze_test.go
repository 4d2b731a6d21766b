package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// winter is a guarded shop without approvals, by a clock of the test's.
type winter struct {
	*shop
	now *clocktest.Clock
}

func frozen(t *testing.T) winter {
	t.Helper()
	return frozenWith(t)
}

// frozenWith is the same with policy sets of the installation.
func frozenWith(t *testing.T, policies ...PolicyConfig) winter {
	t.Helper()
	now := clocktest.New(time.Unix(1_800_000_000, 0))
	s := shopOf(setupWith(t, now, Config{DriverDir: filepath.Join("testdata", "drivers"), Policies: policies}))
	_, err := s.pool.Exec(t.Context(), `DROP TRIGGER earlier_release ON cd_rollouts`)
	s.ok(err)
	_, err = s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{"steps":[
			{"type":"deploy","environment":"staging","config":%s},{"type":"deploy","environment":"production","config":%s}]}`,
			appEnvConfig("staging"), appEnvConfig("production"))),
	})
	s.ok(err)
	s.makeReady()
	return winter{s, now}
}

func (w winter) freeze(n freeze.NewFreeze) core.Freeze {
	w.t.Helper()
	n.EndsAt = w.now.Now().Add(4 * time.Hour)
	if n.Reason == "" {
		n.Reason = "Black Friday"
	}
	f, err := w.freezes.StartFreeze(w.t.Context(), user(), n)
	w.ok(err)
	return f
}

// review evaluates everything that is due, and answers how often.
func (f *fixture) review() (times int) {
	f.t.Helper()
	for {
		_, worked, err := f.rollouts.ReviewDue(f.t.Context())
		f.ok(err)
		if !worked {
			return times
		}
		times++
	}
}

// waits are the kinds and details of what a rollout waits for.
func (s *shop) waits(r core.Rollout, kinds ...string) []string {
	s.t.Helper()
	all, err := s.view.Waits(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	lines := []string{}
	for _, w := range all[r.ID] {
		if len(kinds) == 0 || slices.Contains(kinds, string(w.Kind)) {
			lines = append(lines, fmt.Sprintf("%s: %s", w.Kind, w.Detail))
		}
	}
	return lines
}

// D49: a freeze stops a rollout under way at its next passage within its scope, says so in the journal once, and lets it continue when
// it ends.
func TestAFreezeStopsARolloutAtItsNextPassage(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	f := w.freeze(freeze.NewFreeze{Tiers: []core.Tier{core.TierProduction}})
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	w.want(w.waits(r, "freeze"), []string{
		`freeze: passage "production": freeze_1 by user 1 stops it until 2027-01-15T12:00:00Z: Black Friday`,
	})
	later, err := w.freezes.ExtendFreeze(t.Context(), user(), f.ID, w.now.Now().Add(6*time.Hour), "")
	w.ok(err)
	w.now.Advance(5 * time.Hour) // beyond the former end
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging"})
	w.want(w.stopRows(r), []string{"production: freeze_1 by user 1 stops it until 2027-01-15T12:00:00Z: Black Friday"})
	w.now.Advance(later.EndsAt.Sub(w.now.Now()))
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
	w.want(w.review(), 0) // nothing is left to evaluate
	w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops`)+w.countOf(`SELECT count(*) FROM cd_passage_reviews`), 0)
	w.verifyJournal(r)
}

// stopRows are the rows of the journal that say what stopped a passage.
func (s *shop) stopRows(r core.Rollout) []string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	lines := []string{}
	for _, row := range j.Nodes {
		if row.Verb == core.VerbStopPassage || row.Verb == core.VerbBypassFreeze {
			lines = append(lines, strings.TrimPrefix(row.GateID+": "+row.Reason, ": "))
		}
	}
	return lines
}

func (f *fixture) countOf(query string, args ...any) (n int) {
	f.t.Helper()
	f.ok(f.pool.QueryRow(f.t.Context(), query, args...).Scan(&n))
	return n
}

// D49: the scope is what every list that is not empty names; a passage outside of it does not wait.
func TestTheScopeOfAFreeze(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	other := w.application.ID + 1000
	cases := []struct {
		name  string
		scope freeze.NewFreeze
		stops bool
	}{
		{"organization", freeze.NewFreeze{}, true},
		{"its tier", freeze.NewFreeze{Tiers: []core.Tier{core.TierQA, core.TierProduction}}, true},
		{"another tier", freeze.NewFreeze{Tiers: []core.Tier{core.TierStaging}}, false},
		{"its environment", freeze.NewFreeze{EnvironmentIDs: []int64{w.production.ID}}, true},
		{"another environment", freeze.NewFreeze{EnvironmentIDs: []int64{w.staging.ID}}, false},
		{"its application", freeze.NewFreeze{ApplicationIDs: []int64{w.application.ID}}, true},
		{"its application in another tier", freeze.NewFreeze{
			ApplicationIDs: []int64{w.application.ID}, Tiers: []core.Tier{core.TierStaging},
		}, false},
		{"to come", freeze.NewFreeze{StartsAt: w.now.Now().Add(time.Hour)}, false},
	}
	for _, c := range cases {
		point := core.PassagePoint{ApplicationID: w.application.ID, EnvironmentID: w.production.ID, Tier: core.TierProduction}
		f := w.freeze(c.scope)
		got := core.Controls{Freezes: []core.Freeze{f}}.Stopping(point, w.now.Now())
		if (len(got) > 0) != c.stops {
			t.Errorf("%s: %v", c.name, got)
		}
		_, err := w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
		w.ok(err)
	}
	_, err := w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		ApplicationIDs: []int64{other}, Reason: "x", EndsAt: w.now.Now().Add(time.Hour),
	})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("an application that does not exist: %v", err)
	}
}

// D49: a freeze has an end, at most 30 days ahead, a reason, and a permission; each mistake has its own error, and changes nothing.
func TestAFreezeIsRefused(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	now := w.now.Now()
	good := freeze.NewFreeze{Reason: "audit", EndsAt: now.Add(time.Hour)}
	with := func(change func(*freeze.NewFreeze)) freeze.NewFreeze {
		n := good
		change(&n)
		return n
	}
	viewer := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 9, Permissions: core.RoleDeployer.Permissions()}
	for _, c := range []struct {
		name  string
		actor core.Actor
		n     freeze.NewFreeze
		class fault.Class
		text  string
	}{
		{"no end", user(), with(func(n *freeze.NewFreeze) { n.EndsAt = time.Time{} }), fault.Invalid, "expected when the freeze ends"},
		{"31 days", user(), with(func(n *freeze.NewFreeze) { n.EndsAt = now.Add(31 * 24 * time.Hour) }), fault.Invalid, "at most 30 days"},
		{"an end that is over", user(), with(func(n *freeze.NewFreeze) { n.EndsAt = now.Add(-time.Hour) }), fault.Invalid, "expected a time after"},
		{"no reason", user(), with(func(n *freeze.NewFreeze) { n.Reason = "  " }), fault.Invalid, "expected why"},
		{"a long reason", user(), with(func(n *freeze.NewFreeze) { n.Reason = strings.Repeat("x", 1<<20) }), fault.Invalid, "found 1048576 bytes"},
		{"a tier that does not exist", user(), with(func(n *freeze.NewFreeze) { n.Tiers = []core.Tier{"prod"} }), fault.Invalid, `found "prod"`},
		{"a start long ago", user(), with(func(n *freeze.NewFreeze) { n.StartsAt = now.Add(-time.Hour) }), fault.Invalid, "expected a time from now"},
		{"without permission", viewer, good, fault.Denied, `"freeze"`},
	} {
		_, err := w.freezes.StartFreeze(t.Context(), c.actor, c.n)
		if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v (%v), expected %v with %q", c.name, err, fault.ClassOf(err), c.class, c.text)
		}
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_freezes`), 0)
	f := w.freeze(freeze.NewFreeze{})
	_, err := w.freezes.ExtendFreeze(t.Context(), user(), f.ID, f.EndsAt, "")
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("extended to the same end: %v", err)
	}
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
	w.ok(err)
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
	w.refused(err, "is over since")
	stranger := user()
	stranger.Organization = 2
	if _, err = w.freezes.EndFreeze(t.Context(), stranger, f.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization ends it: %v", err)
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action IN ('startFreeze', 'endFreeze')`), 2)
}

// D49: a freeze that is ended early lets continue at once what it has stopped, also where the end and the stop happen together.
func TestAFreezeThatEndsLeavesNothingWaiting(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	f := w.freeze(freeze.NewFreeze{})
	var wg sync.WaitGroup
	wg.Go(func() { w.enter(r, "production") })
	wg.Go(func() {
		if _, err := w.freezes.EndFreeze(context.WithoutCancel(t.Context()), user(), f.ID, "over"); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	w.review()
	w.want(w.granted(), []string{"staging", "production"})
}

// D49: a rollback to what has run there passes a freeze, unless the freeze includes rollbacks.
func TestARollbackPassesAFreezeUnlessItIncludesRollbacks(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	first := w.rollout(w.set)
	w.pass(first, "staging", "production")
	w.succeed(first)
	second := w.rollout(w.release(2))
	w.pass(second, "staging", "production")
	w.succeed(second)
	w.freeze(freeze.NewFreeze{})
	back, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID, Reason: "down"})
	w.ok(err)
	before := len(w.granted())
	w.enter(back, "staging")
	w.want(len(w.granted()), before+1)
	strict := w.freeze(freeze.NewFreeze{Rollbacks: true, Reason: "nothing moves"})
	w.enter(back, "production")
	w.want(len(w.granted()), before+1)
	w.want(len(w.waits(back, "freeze")), 1)
	_, err = w.freezes.EndFreeze(t.Context(), user(), strict.ID, "")
	w.ok(err)
	w.review()
	w.want(len(w.granted()), before+2)
}

// D49: a bypass needs a permission of its own, a person and a reason; it is for one rollout and the freezes that stop it now.
func TestABypassIsForOneRolloutAndTheFreezesOfNow(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	_, err := w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	w.refused(err, "no freeze stops")
	w.freeze(freeze.NewFreeze{})
	w.enter(r, "staging")
	deployer := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 9, Permissions: core.RoleDeployer.Permissions()}
	machine := user()
	machine.Type = core.PrincipalAgent
	for _, a := range []core.Actor{deployer, machine} {
		if _, err = w.rollouts.BypassFreeze(t.Context(), a, r.ID, "incident 7"); !fault.Is(err, fault.Denied) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err = w.rollouts.BypassFreeze(t.Context(), user(), r.ID, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	w.want(w.granted(), []string{})
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	w.ok(err)
	w.want(w.granted(), []string{"staging"})
	w.enter(r, "production")
	w.want(w.granted(), []string{"staging", "production"})
	w.want(w.stopRows(r), []string{"staging: freeze_1 by user 1 stops it until 2027-01-15T12:00:00Z: Black Friday", "incident 7"})
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'bypassFreeze' AND detail = 'past freeze_1'`), 1)
	times, err := w.store.FreezeBypasses(t.Context())
	w.ok(err)
	w.want(times, int64(1))
	w.succeed(r)
	w.verifyJournal(r)

	second := w.rollout(w.release(2)) // another rollout is stopped all the same
	w.enter(second, "staging")
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), second.ID, "incident 8")
	w.ok(err)
	w.freeze(freeze.NewFreeze{Reason: "a new one"}) // which nobody has bypassed
	w.enter(second, "production")
	w.want(w.granted(), []string{"staging", "production", "staging"})
}

// D49: what is vetoed is refused when a rollout is created, and stops at every passage of those under way; lifting is an action of its own.
func TestAVetoedVersionIsNeverDeployed(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	entries, err := w.view.EntriesByVersionSet(t.Context(), org, []int64{w.set.ID})
	w.ok(err)
	v, err := w.freezes.VetoVersion(t.Context(), user(), freeze.NewVeto{VersionID: entries[w.set.ID][0].VersionID, Reason: "CVE-1"})
	w.ok(err)
	_, err = w.freezes.VetoVersion(t.Context(), user(), freeze.NewVeto{VersionID: entries[w.set.ID][0].VersionID, Reason: "again"})
	w.refused(err, "vetoed already")
	w.enter(r, "production")
	w.want(w.granted(), []string{"staging"})
	w.want(w.waits(r, "veto"), []string{`veto: passage "production": veto_1 by user 1 stops it: CVE-1`})
	_, err = w.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	w.ok(err)
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID, Again: true})
	w.refused(err, "vetoed by user 1 (veto_1): CVE-1")
	_, err = w.freezes.LiftVeto(t.Context(), user(), v.ID, "patched")
	w.ok(err)
	w.review() // the cancelled rollout
	again := w.rollout(w.set)
	w.enter(again, "staging")
	set, err := w.freezes.VetoVersion(t.Context(), user(), freeze.NewVeto{VersionSetID: w.set.ID, Reason: "bad together"})
	w.ok(err)
	w.enter(again, "production")
	w.want(w.granted(), []string{"staging", "staging"})
	_, err = w.freezes.LiftVeto(t.Context(), user(), set.ID, "fine")
	w.ok(err)
	w.review()
	w.want(w.granted(), []string{"staging", "staging", "production"})
	_, err = w.freezes.LiftVeto(t.Context(), user(), set.ID, "twice")
	w.refused(err, "was lifted")
}

// D49: a pin keeps automation from changing what runs in an environment: it begins no rollout there, and those it has begun do not enter.
func TestAPinnedEnvironmentIsForPeople(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	robot := core.Actor{Organization: org, Type: core.PrincipalAgent, ID: 7, Permissions: core.RoleDeployer.Permissions()}
	made, err := w.rollouts.CreateRollout(t.Context(), robot, rollout.NewRollout{VersionSetID: w.set.ID, Again: true})
	w.ok(err)
	_, err = w.freezes.PinEnvironment(t.Context(), user(), w.production.ID, "migration by hand")
	w.ok(err)
	_, err = w.freezes.PinEnvironment(t.Context(), user(), w.production.ID, "again")
	w.refused(err, "pinned already")
	w.enter(*made.Rollout, "staging", "production")
	w.want(w.granted(), []string{"staging"})
	w.want(len(w.waits(*made.Rollout, "pin")), 1)
	_, err = w.freezes.UnpinEnvironment(t.Context(), user(), w.production.ID, "done")
	w.ok(err)
	w.review()
	w.want(w.granted(), []string{"staging", "production"})
	w.succeed(*made.Rollout)
	_, err = w.freezes.PinEnvironment(t.Context(), user(), w.production.ID, "once more")
	w.ok(err)
	newer := w.release(2)
	_, err = w.rollouts.CreateRollout(t.Context(), robot, rollout.NewRollout{VersionSetID: newer.ID})
	w.refused(err, `environment "production" is pinned by user 1: once more`)
	person := w.rollout(newer) // people may
	w.enter(person, "staging", "production")
	w.want(len(w.granted()), 4)
}

// D49: what policies want is dropped with the reason where an environment is pinned or the rollback's target is vetoed; nothing is
// tried forever.
func TestAnAutomaticRollbackObeysPinsAndVetoes(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	first := w.rollout(w.set)
	w.pass(first, "staging", "production")
	w.succeed(first)
	second := w.rollout(w.release(2))
	w.pass(second, "staging", "production")
	for _, d := range w.deployments(w.stops(second)[0]) {
		w.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
	_, err := w.freezes.PinEnvironment(t.Context(), user(), w.production.ID, "migration by hand")
	w.ok(err)
	w.report(event.RolloutFailed{RolloutID: second.ID, Reason: "degraded"})
	w.close()
	due, worked, err := w.rollouts.RollBackDue(t.Context())
	w.ok(err)
	if !worked || due.MadeRolloutID != 0 || !strings.Contains(due.Outcome, "is pinned by") {
		t.Errorf("%+v, expected none for the pin", due)
	}
}

// D49, D62: a bypass of a freeze is a notification: by default, and where a route asks for nothing else.
func TestABypassOfAFreezeIsNotified(t *testing.T) {
	t.Parallel()
	p := frozen(t).posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.channel("security", core.NotifyWebhook, hook, 60)
	p.route("bypasses", "security", `{"events":["freeze_bypassed"]}`)
	const messages = `SELECT count(*) FROM cd_notification_messages m JOIN cd_notification_channels c ON c.id = m.channel_id
		JOIN cd_notifications n ON n.id = ANY(m.notification_ids) WHERE c.name = $1 AND n.moment = $2`
	r := p.rollout(p.set)
	p.freeze(freeze.NewFreeze{})
	p.enter(r, "staging")
	p.work()
	p.want(p.countOf(messages, "team", "rollout_began"), 1)
	_, err := p.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	p.ok(err)
	p.work()
	p.has("user let it past the freezes that are in force: incident 7", `"event":"freeze_bypassed"`)
	for _, channel := range []string{"team", "security"} {
		p.want(p.countOf(messages, channel, "freeze_bypassed"), 1)
	}
	p.want(p.countOf(messages, "security", "rollout_began"), 0)
}
