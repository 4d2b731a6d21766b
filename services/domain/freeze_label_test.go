package domain

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

var (
	critical = map[string]string{"tier": "critical"}
	inEurope = map[string]string{"region": "eu"}
)

// D49: each part of the scope of a freeze narrows it, also labels of applications and of environments; while nobody has read the labels, it
// stops whatever may have them.
func TestAFreezeByLabelNarrows(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	place := core.PassagePoint{ApplicationID: 1, EnvironmentID: 2, Tier: core.TierProduction}
	behind := core.PassagePoint{ApplicationID: 1}
	both := map[core.Detailed]core.Details{
		{Kind: core.ChangedApplication, ID: 1}: {Labels: map[string]string{"tier": "critical", "team": "web"}},
		{Kind: core.ChangedEnvironment, ID: 2}: {Labels: inEurope},
	}
	none := map[core.Detailed]core.Details{}
	for _, c := range []struct {
		name   string
		freeze core.Freeze
		point  core.PassagePoint
		labels map[core.Detailed]core.Details
		stops  bool
	}{
		{"its application", core.Freeze{ApplicationLabels: critical}, place, both, true},
		{"another value", core.Freeze{ApplicationLabels: map[string]string{"tier": "low"}}, place, both, false},
		{"one label too many", core.Freeze{ApplicationLabels: map[string]string{"tier": "critical", "team": "api"}}, place, both, false},
		{"without labels", core.Freeze{ApplicationLabels: critical}, place, none, false},
		{"its environment", core.Freeze{EnvironmentLabels: inEurope}, place, both, true},
		{"an environment with that of an application", core.Freeze{EnvironmentLabels: critical}, place, both, false},
		{"both", core.Freeze{ApplicationLabels: critical, EnvironmentLabels: inEurope}, place, both, true},
		{"in another tier", core.Freeze{ApplicationLabels: critical, Tiers: []core.Tier{core.TierStaging}}, place, both, false},
		{"another application by name", core.Freeze{ApplicationLabels: critical, ApplicationIDs: []int64{7}}, place, both, false},
		{"behind the last environment", core.Freeze{EnvironmentLabels: inEurope}, behind, both, false},
		{"behind it, by its application", core.Freeze{ApplicationLabels: critical}, behind, both, true},
		{"labels that nobody has read", core.Freeze{ApplicationLabels: critical}, place, nil, true},
	} {
		c.freeze.StartsAt, c.freeze.EndsAt = now, now.Add(time.Hour)
		got := core.Controls{Freezes: []core.Freeze{c.freeze}, Details: c.labels}.Stopping(c.point, now)
		if (len(got) > 0) != c.stops {
			t.Errorf("%s: found %v", c.name, got)
		}
	}
}

// D49: a freeze by label stops rollouts of what has the labels at the next passage; what loses them continues at once, and what gets them
// stops, as when a freeze ends and starts. A label that the freeze does not ask of changes nothing.
func TestAFreezeByLabelFollowsTheLabels(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(winter) (core.Detailed, freeze.NewFreeze){
		"application": func(w winter) (core.Detailed, freeze.NewFreeze) {
			return core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID},
				freeze.NewFreeze{ApplicationLabels: critical, Tiers: []core.Tier{core.TierProduction}}
		},
		"environment": func(w winter) (core.Detailed, freeze.NewFreeze) {
			return core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}, freeze.NewFreeze{EnvironmentLabels: critical}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := frozen(t)
			of, n := of(w)
			w.freeze(n)
			r := w.rollout(w.set)
			w.enter(r, "staging")
			w.want(w.granted(), []string{"staging"})
			w.ok(w.label(of, map[string]string{"tier": "critical", "team": "web"})) // before it enters: it is within the scope now
			w.enter(r, "production")
			w.want(w.granted(), []string{"staging"})
			if waits := w.waits(r, "freeze"); len(waits) != 1 || !strings.Contains(waits[0], "freeze_1 by user 1 stops it") {
				t.Errorf("found %v; want that the freeze stops it", waits)
			}
			w.ok(w.label(of, map[string]string{"team": "shop"})) // the freeze does not ask of that
			w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops WHERE kind = 'freeze'`), 1)
			w.review()
			w.want(w.granted(), []string{"staging"})
			w.ok(w.label(of, nil, "tier"))
			w.want(w.waits(r, "freeze"), []string{})
			w.want(w.review(), 1)
			w.want(w.granted(), []string{"staging", "production"})
			w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops`), 0)
			w.verifyJournal(r)
		})
	}
}

// D49: who may not end a freeze takes nothing out of its scope by a label, of an application or an environment; other labels are theirs.
func TestNobodyGetsPastAFreezeByALabel(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	application := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	environment := core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}
	w.ok(w.label(application, critical))
	w.ok(w.label(environment, inEurope))
	f := w.freeze(freeze.NewFreeze{ApplicationLabels: critical})
	g := w.freeze(freeze.NewFreeze{EnvironmentLabels: inEurope, StartsAt: w.now.Now().Add(time.Hour)}) // it is to come
	w.freeze(freeze.NewFreeze{ApplicationLabels: map[string]string{"team": "web"}})                    // not its label
	configures := user()
	configures.Permissions = 0
	configures.Grants = []core.Grant{
		{Permissions: core.PermissionsOf(core.MayConfigure, core.MayFreeze), Applications: []int64{w.application.ID}},
		{Permissions: core.PermissionsOf(core.MayConfigure, core.MayFreeze), Environments: []int64{w.production.ID}},
	}
	label := func(of core.Detailed, set map[string]string, unset ...string) error {
		return w.setup.SetLabels(t.Context(), configures, setup.ChangedLabels{Of: of, Set: set, Unset: unset})
	}
	for name, err := range map[string]error{
		"freeze_1 would no longer stop shop, and stops applications with tier=critical":         label(application, nil, "tier"),
		"freeze_1 would no longer stop shop":                                                    label(application, map[string]string{"tier": "low"}),
		"freeze_2 would no longer stop production, and stops environments with region=eu: that": label(environment, nil, "region"),
	} {
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), name) {
			t.Errorf("found %v; want it denied with %q", err, name)
		}
	}
	w.ok(label(application, map[string]string{"team": "web", "owner": "ann"}))
	for _, one := range []core.Freeze{f, g} {
		_, err := w.freezes.EndFreeze(t.Context(), user(), one.ID, "")
		w.ok(err)
	}
	w.ok(label(application, nil, "tier"))
	w.ok(label(environment, nil, "region"))
	h := w.freeze(freeze.NewFreeze{ApplicationLabels: map[string]string{"owner": "ann"}})
	w.ok(w.label(application, nil, "owner"))
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'setLabels' AND detail = 'leaves ' || $1`, h.Name()), 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'setLabels' AND detail <> ''`), 1)
}

// D49: what a label takes out of the scope of a freeze waits for nothing, also where the change and the stop happen together.
func TestALabelThatChangesLeavesNothingWaiting(t *testing.T) {
	t.Parallel()
	for range 4 {
		w := frozen(t)
		of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
		w.ok(w.label(of, critical))
		w.freeze(freeze.NewFreeze{ApplicationLabels: critical, Tiers: []core.Tier{core.TierProduction}})
		r := w.rollout(w.set)
		w.enter(r, "staging")
		var both sync.WaitGroup
		both.Go(func() { w.enter(r, "production") })
		both.Go(func() {
			if err := w.label(of, nil, "tier"); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		w.review()
		w.want(w.granted(), []string{"staging", "production"})
		w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops`), 0)
	}
}

// D49: a selector that is wrong, or asks of nothing, is refused with what was expected, and starts no freeze.
func TestTheLabelsOfAFreezeAreChecked(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	for text, n := range map[string]freeze.NewFreeze{
		"expected a key such as team":   {ApplicationLabels: map[string]string{"a b": "c"}},
		"/environmentLabels/team":       {EnvironmentLabels: map[string]string{"team": "a=b"}},
		"found no label; expected one":  {ApplicationLabels: map[string]string{}},
		"/environmentLabels: found no ": {EnvironmentLabels: map[string]string{}},
	} {
		n.Reason, n.EndsAt = "audit", w.now.Now().Add(time.Hour)
		_, err := w.freezes.StartFreeze(t.Context(), user(), n)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("found %v; want %q", err, text)
		}
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_freezes`), 0)
	w.freeze(freeze.NewFreeze{ApplicationLabels: critical, EnvironmentLabels: inEurope})
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'startFreeze'
		AND detail = 'environments with region=eu, applications with tier=critical'`), 1)
}

// D49: who may freeze only in some places starts no freeze by label of all of them: others with the label would be stopped.
func TestAGrantWithLimitsStartsNoFreezeByLabel(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	limited := user()
	limited.Permissions = 0
	limited.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayFreeze), Environments: []int64{w.production.ID}}}
	start := func(n freeze.NewFreeze) error {
		n.Reason, n.EndsAt = "audit", w.now.Now().Add(time.Hour)
		_, err := w.freezes.StartFreeze(t.Context(), limited, n)
		return err
	}
	for _, n := range []freeze.NewFreeze{{ApplicationLabels: critical}, {EnvironmentLabels: inEurope}} {
		if err := start(n); !fault.Is(err, fault.Denied) {
			t.Errorf("found %v; want it denied", err)
		}
	}
	w.ok(start(freeze.NewFreeze{ApplicationLabels: critical, EnvironmentIDs: []int64{w.production.ID}}))
}

// D49, D51: the incident of a freeze by label is open for what has the labels.
func TestAnIncidentIsOpenForWhatHasTheLabels(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	application := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	environment := core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}
	w.put(policy.NewPolicySet{Text: allowed + `
@id("not-in-9") @message("nothing new in INC-9")
forbid (principal, action == Action::"rollout.create", resource) when { context.incidents.contains("INC-9") };`})
	w.freeze(freeze.NewFreeze{Incident: "INC-9", ApplicationLabels: critical, EnvironmentLabels: inEurope})
	create := func() error {
		_, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
		return err
	}
	w.ok(w.label(application, critical))
	w.ok(w.label(environment, inEurope))
	w.refused(create(), "nothing new in INC-9")
	w.ok(w.label(environment, nil, "region"))
	w.ok(create())
}

// D49: during a rolling upgrade, a replica that does not know labels of freezes lets nothing begin or pass, and changes no label, while
// there is such a freeze: it would take it for one of everything, or let labels be changed that it asks of.
func TestAReplicaThatDoesNotKnowFreezesByLabelLeavesThemAlone(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	of := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	_, err := w.pool.Exec(t.Context(), `
		CREATE FUNCTION a_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM set_config('lockstep.controls', '3', true); RETURN NEW; END $$;
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_passage_stops FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT OR UPDATE ON cd_details FOR EACH ROW EXECUTE FUNCTION a_earlier()`)
	w.ok(err)
	w.ok(w.label(of, map[string]string{"team": "shop"})) // there is none
	f := w.freeze(freeze.NewFreeze{ApplicationLabels: critical})
	if err := w.label(of, map[string]string{"team": "other"}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "freezes by label") {
		t.Errorf("an earlier release changes a label: %v", err)
	}
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "freezes by label") {
		t.Errorf("an earlier release begins a rollout: %v", err)
	}
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
	w.ok(err)
	r := w.rollout(w.set)
	f = w.freeze(freeze.NewFreeze{EnvironmentLabels: critical})
	_, err = w.pool.Exec(t.Context(), `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type)
		VALUES (1, $1, 'in_progress', 'in_progress', 'pass_gate', 'staging', 'system')`, r.ID)
	if err == nil || !strings.Contains(err.Error(), "freezes by label") {
		t.Errorf("an earlier release grants a passage: %v", err)
	}
	stop := func(freeze int64) error {
		_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_passage_stops (organization_id, rollout_id, gate_id, kind, control_id)
			VALUES (1, $1, 'staging', 'freeze', $2)`, r.ID, freeze)
		return err
	}
	if err := stop(f.ID); err == nil || !strings.Contains(err.Error(), "freezes by label") {
		t.Errorf("an earlier release stops a passage by a freeze by label: %v", err)
	}
	bypass := func() error {
		_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, reason,
			principal_type, principal_id) VALUES (1, $1, 'in_progress', 'in_progress', 'bypass_freeze', 'INC-1', 'user', 1)`, r.ID)
		return err
	}
	if err := bypass(); err == nil || !strings.Contains(err.Error(), "freezes by label") {
		t.Errorf("an earlier release bypasses a freeze by label: %v", err)
	}
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "")
	w.ok(err)
	g := w.freeze(freeze.NewFreeze{}) // that one it knows
	w.ok(stop(g.ID))
	_, err = w.freezes.EndFreeze(t.Context(), user(), g.ID, "")
	w.ok(err)
	w.ok(w.label(of, map[string]string{"team": "other"}))
}

// D49, D62, D64: messages and the calendar say which labels a freeze asks of, and no reason in the calendar.
func TestMessagesAndCalendarsNameTheLabelsOfAFreeze(t *testing.T) {
	t.Parallel()
	p := notifying(t)
	p.channel("team", core.NotifyWebhook, hook, 0)
	p.route("all", "team", `{}`)
	_, err := p.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		Reason: "audit", ApplicationLabels: critical, EnvironmentLabels: inEurope, EndsAt: p.now.Now().Add(time.Hour),
	})
	p.ok(err)
	p.work()
	if sent := p.sent(); len(sent) != 1 || !strings.Contains(sent[0], "environments with region=eu, applications with tier=critical: frozen until") {
		t.Errorf("found %q; want the labels", sent)
	}
	r := reading{winter: p.winter}.serving()
	if body := r.get(http.MethodGet, r.feed(user(), "c", feed.KindFreezes), "", 1).Body.String(); !strings.Contains(
		strings.ReplaceAll(body, "\r\n ", ""), `SUMMARY:Freeze of environments with region=eu\, applications with tier=critical`) {
		t.Errorf("found %q; want the labels", body)
	}
}
