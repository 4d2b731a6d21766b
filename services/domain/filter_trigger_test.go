package domain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// D58: a trigger that names sources begins nothing for new versions of others, and says which it is about.
func TestAVersionTriggerFiltersBySource(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"sources":["registry.test/*/api"]}`)
	at := time.Unix(1_700_000_100, 0)
	w.publish(w.artifact("registry.test/shop/web", "1.9", 91, at))
	w.succeed(w.rollout(w.sets()[0]))
	w.decide()
	w.publish(w.artifact("registry.test/shop/web", "2.0", 92, at.Add(time.Minute)))
	w.want(w.decide(), []string{"declined: set-3 has no new version of registry.test/*/api"})
	w.publish(w.artifact("registry.test/shop/api", "1.4", 94, at.Add(2*time.Minute)))
	w.want(w.decide(), []string{"began: set-4 is new"})
}

// D58, D52: a trigger that filters by labels and facts waits for the lookup of a new image, declines what does not fit with what was found
// and what was expected, and decides again when more is known; what it has begun with a set it does not begin again.
func TestAVersionTriggerFiltersByLabelsAndFacts(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	u, registry := w.proving()
	claimed := &provenance.Claim{}
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"services":["api"],"labels":{"team":"shop-*"},"facts":{"signed_by":["release"],"critical":0}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.want(w.decide(), []string{"waiting: it waits for the labels and facts of 2.0 of api in set-2: it was not looked up"})
	w.now.Advance(time.Minute)
	registry.reports(provenance.Report{Claimed: claimed, Labels: map[string]string{"team": "billing"}}, false, nil)
	w.again(u)
	w.lookUp(u)
	w.want(w.decide(), []string{"declined: 2.0 of api in set-2 does not fit: label team is billing; expected shop-*"})

	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"signed_by":["release"],"critical":0}}`)
	for _, s := range w.sets() {
		if s.Name == "set-2" {
			w.set = s
		}
	}
	know := func(r provenance.Report) []string {
		t.Helper()
		w.now.Advance(3 * time.Minute)
		registry.reports(r, false, nil)
		w.again(u)
		return w.decide()
	}
	w.want(know(provenance.Report{SignedBy: []string{"other"}}), []string{"declined: 2.0 of api in set-2 does not fit: signed_by is other; expected release"})
	w.want(know(provenance.Report{SignedBy: []string{"release"}}), []string{
		"declined: 2.0 of api in set-2 does not fit: critical is not known: there is no verified scan; expected at most 0",
	})
	w.want(know(provenance.Report{SignedBy: []string{"release"}, Vulnerabilities: &provenance.Vulnerabilities{Critical: []string{"CVE-1"}}}), []string{
		"declined: 2.0 of api in set-2 does not fit: critical is 1; expected at most 0",
	})
	w.want(know(provenance.Report{SignedBy: []string{"release"}, Vulnerabilities: &provenance.Vulnerabilities{}}), []string{
		"began: set-2 has what the trigger requires since more is known of it",
	})
	_, err := w.rollouts.CancelRollout(t.Context(), user(), w.active().ID, "")
	w.ok(err)
	w.want(know(provenance.Report{SignedBy: []string{"release"}, Vulnerabilities: &provenance.Vulnerabilities{Scanner: "again"}}), []string{})
}

// D58: what was read of an image before labels were kept, or by a registry service that does not read them, is read again until it has
// been; no labels are something else than labels that were not read, and those that were found stay (D52).
func TestLabelsThatWereNotReadAreReadAgain(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	u, registry := w.proving()
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"labels":{"team":"shop-*"}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.set = w.sets()[0]
	know := func(labels map[string]string) []string {
		t.Helper()
		w.now.Advance(time.Minute)
		registry.reports(provenance.Report{Claimed: &provenance.Claim{Source: "https://git.test/shop/api"}, Labels: labels}, false, nil)
		w.again(u)
		return w.decide()
	}
	w.want(know(nil), []string{"waiting: it waits for the labels and facts of 2.0 of api in set-2: it was not looked up"})
	_, err := w.pool.Exec(t.Context(), `UPDATE cd_version_lookups SET due_at = NULL`) // an old image is not looked up by itself
	w.ok(err)
	w.now.Advance(time.Minute)
	w.decide()
	w.want(w.lookUp(u) > 0, true)
	w.want(know(map[string]string{}), []string{"declined: 2.0 of api in set-2 does not fit: it has no label team; expected shop-*"})
	w.want(know(map[string]string{"team": "shop-web"}), []string{}) // a digest has the same labels forever

	w.publish(w.artifact("registry.test/shop/api", "2.1", 95, time.Unix(1_800_000_200, 0)))
	w.set = w.sets()[0]
	w.want(know(map[string]string{"team": "shop-web"}), []string{"began: set-3 is new"})
	w.want(know(nil), []string{})
	found, err := u.Origins(t.Context(), org, w.versions())
	w.ok(err)
	for _, o := range found {
		if o.Report != nil && o.Report.Labels["team"] == "shop-web" {
			return
		}
	}
	t.Error("found no report with the label; want it kept")
}

// D58: a trigger that has never decided about a set does not begin it because something else becomes known of it.
func TestANewTriggerBeginsNoOldSet(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	u, registry := w.proving()
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.decide()
	w.set = w.sets()[0]
	w.now.Advance(20 * 24 * time.Hour)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"signed_by":["release"]}}`)
	registry.reports(provenance.Report{SignedBy: []string{"release"}}, false, nil)
	w.again(u)
	w.want(w.decide(), []string{})
}

// D58: what becomes known while a trigger decides is decided about after that: a lookup waits for the decision. Without that the decision
// does not know of the report, and the report not of the decision.
func TestWhatBecomesKnownDuringADecisionIsNotLost(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	u, registry := w.proving()
	one := w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"signed_by":["release"]}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.decide()
	w.set = w.sets()[0]

	decision, err := w.pool.Begin(t.Context())
	w.ok(err)
	_, err = decision.Exec(t.Context(), `SELECT FROM cd_triggers WHERE id = $1 FOR NO KEY UPDATE`, one.ID)
	w.ok(err)
	registry.reports(provenance.Report{SignedBy: []string{"release"}}, false, nil)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		w.again(u)
	}()
	for waits := false; !waits; { // until it waits, or does not
		select {
		case <-looked:
			t.Error("found a report that was stored during a decision; want it to wait")
			waits = true
		default:
			w.ok(w.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				WHERE NOT l.granted AND a.datname = current_database())`).Scan(&waits))
		}
	}
	_, err = decision.Exec(t.Context(), `UPDATE cd_trigger_signals SET state = 'decided', outcome = 'declined', reason = 'it is not signed', decided_at = now(),
		lacks_facts = true, version_set_id = $2 WHERE trigger_id = $1 AND state = 'pending'`, one.ID, w.set.ID)
	w.ok(err)
	w.ok(decision.Commit(t.Context()))
	<-looked
	w.want(w.decide(), []string{"began: set-2 has what the trigger requires since more is known of it"})
}

// D58: the hour for which a lookup is waited for is that of the newest set, which may come when an older one has waited for long.
func TestEachSetIsWaitedForAnHour(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"build_level":3}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.decide()
	w.now.Advance(59 * time.Minute)
	w.publish(w.artifact("registry.test/shop/api", "2.1", 95, time.Unix(1_800_000_200, 0)))
	w.now.Advance(2 * time.Minute)
	w.want(w.decide(), []string{"waiting: it waits for the labels and facts of 2.1 of api in set-3: it was not looked up"})
}

// D58, D62: that a set does not fit is notified once, and again only for another reason, however often its report changes.
func TestThatASetDoesNotFitIsNotifiedOnce(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	p := w.posting()
	p.channel("team", core.NotifyWebhook, hook, 60)
	p.route("declined", "team", `{"events":["trigger_declined"]}`)
	u, registry := w.proving()
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"signed_by":["release"]}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.set = w.sets()[0]
	for i, tt := range []struct {
		report provenance.Report
		want   int
	}{
		{provenance.Report{SignedBy: []string{"other"}}, 1},
		{provenance.Report{SignedBy: []string{"other"}, BuildLevel: 1}, 1},
		{provenance.Report{SignedBy: []string{"other"}, BuildLevel: 2}, 1},
		{provenance.Report{SignedBy: []string{"another"}}, 2},
		{provenance.Report{SignedBy: []string{"other"}}, 3},
	} {
		w.now.Advance(time.Minute)
		registry.reports(tt.report, false, nil)
		w.again(u)
		w.want(len(w.decide()), 1)
		if got := w.countOf(`SELECT count(*) FROM cd_notifications WHERE moment = 'trigger_declined'`); got != tt.want {
			t.Errorf("report %d: found %d notifications; want %d", i, got, tt.want)
		}
	}
}

// D58: a filter that requires nothing is refused, since who has written it expects something.
func TestAFilterRequiresSomething(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	for config, want := range map[string]string{
		`{"labels":{}}`:                  "/config/labels",
		`{"labels":null}`:                "/config/labels",
		`{"facts":{}}`:                   "/config/facts",
		`{"facts":null}`:                 "/config/facts",
		`{"facts":{"signed_by":[]}}`:     "/config/facts/signed_by",
		`{"facts":{"critical":null}}`:    "/config/facts/critical",
		`{"facts":{"build_level":0}}`:    "/config/facts/build_level",
		`{"facts":{"build_level":null}}`: "/config/facts/build_level",
		`{"facts":{"critical":0}}`:       "",
	} {
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: "sets", Kind: core.TriggerVersion, Config: json.RawMessage(config), Enabled: true,
		})
		found := ""
		for _, f := range fault.FieldsOf(err) {
			found += f.Name
		}
		if found != want {
			t.Errorf("%s: found %q refused (%v); want %q", config, found, err, want)
		}
	}
}

// D58: what nobody looks up is declined after an hour, and nothing waits for ever.
func TestAVersionTriggerDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0,"facts":{"build_level":3}}`)
	w.publish(w.artifact("registry.test/shop/api", "2.0", 94, time.Unix(1_800_000_100, 0)))
	w.decide()
	w.now.Advance(time.Hour)
	w.want(w.decide(), []string{
		"declined: the labels and facts of 2.0 of api in set-2 are not known after 1h0m0s: it was not looked up; expected a lookup, after which it is decided about again",
	})
}

// D58: a service or a source that the application does not have is refused when a trigger is saved, and one that was saved before may be
// saved again.
func TestATriggerNamesSourcesThatThereAre(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	put := func(config string, on bool) error {
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: "sets", Kind: core.TriggerVersion, Config: json.RawMessage(config), Enabled: on,
		})
		return err
	}
	err := put(`{"sources":["registry.test/shop/db"]}`, true)
	fields := fault.FieldsOf(err)
	w.want(fields, []fault.Field{{
		Name:    "/config/sources/0",
		Problem: `found "registry.test/shop/db", which no source of the application matches; expected one of registry.test/shop/api, registry.test/shop/web`,
	}})
	w.ok(put(`{"services":["web"]}`, true))
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_triggers SET config = '{"services":["gone"]}'`)
	w.ok(err)
	w.ok(put(`{"services":["gone"]}`, false))
}
