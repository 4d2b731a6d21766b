package domain

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// D51: the policies of the installation are read when a service starts, and what they have stopped is evaluated again then, not minutes
// later; once, and not by processes that have the same ones.
func TestChangedPoliciesOfTheInstallationOpenWhatTheyHaveStoppedAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base.cedar")
	if err := os.WriteFile(file, []byte(noProduction("")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := frozenWith(t, PolicyConfig{Name: "base", File: file})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.review()
	w.want(w.granted(), []string{"staging"})

	c := Config{DriverDir: filepath.Join("testdata", "drivers")} // without the set
	log := slog.New(slog.DiscardHandler)
	drivers, err := givenDrivers(t.Context(), c, log)
	w.ok(err)
	restarted := &fixture{log: w.log, t: w.t, pool: w.pool, db: w.db, on: w.on, engine: w.engine}
	restarted.service, err = assemble(pgtest.As(t, w.db, role), noBus{}, drivers, nil, w.now, c, log)
	w.ok(err)
	w.want(restarted.review(), 0) // nothing is due by time
	w.throughout(restarted.policies.ReviewInstallation)
	w.want(restarted.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})

	const stopped = `INSERT INTO cd_passage_stops (organization_id, rollout_id, gate_id, kind, control_id) VALUES ($1, $2, 'zoo', 'policy', 0)`
	_, err = w.pool.Exec(t.Context(), stopped, org, r.ID)
	w.ok(err)
	w.throughout(restarted.policies.ReviewInstallation) // as another replica would, or the same after a restart
	w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops WHERE gate_id = 'zoo'`), 1)
	w.throughout(w.policies.ReviewInstallation) // by other sets
	w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops WHERE gate_id = 'zoo'`), 0)
}

// throughout does in all organizations what a service does from time to time.
func (w winter) throughout(do func(ctx context.Context, only []int64) ([]int64, error)) {
	w.t.Helper()
	failed, err := do(w.t.Context(), nil)
	w.ok(err)
	w.want(failed, []int64(nil))
}

// D51: what fails in one organization is attempted again there and nowhere else, later each time, and not forever.
func TestOnlyWhatHasFailedIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	s := &service{log: slog.New(slog.DiscardHandler)}
	var of [][]int64
	var waits []time.Duration
	pause := func(_ context.Context, d time.Duration) { waits = append(waits, d) }
	s.attempt(t.Context(), "it", pause, func(_ context.Context, only []int64) ([]int64, error) {
		if of = append(of, only); len(of) == 4 {
			return nil, nil
		}
		return []int64{7}, errors.New("out of order")
	})
	if want := [][]int64{nil, {7}, {7}, {7}}; !reflect.DeepEqual(of, want) {
		t.Errorf("found attempts in %v; want %v", of, want)
	}
	if want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}; !slices.Equal(waits, want) {
		t.Errorf("found pauses of %v; want %v", waits, want)
	}
	waits = nil
	s.attempt(t.Context(), "it", pause, func(context.Context, []int64) ([]int64, error) { return []int64{7}, errors.New("out of order") })
	if many := len(waits); many < 30 || many > 60 || waits[many-1] != 10*time.Minute {
		t.Errorf("found %d attempts, the last pause %v; want that it ends within hours, every 10 minutes", many, waits[many-1])
	}
}

// D51: one organization that fails does not keep the sets of the others from being announced, and is named.
func TestPolicySetsOfOthersAreAnnouncedWhereOneOrganizationFails(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "calls", Text: `@id("all") permit (principal, action == Action::"function.call", resource);`})
	_, err := w.pool.Exec(t.Context(), `DELETE FROM outbox`)
	w.ok(err)
	failed, err := w.policies.AnnounceAgain(t.Context(), []int64{404, org})
	if err != nil || failed != nil { // an organization that does not exist has no sets
		t.Errorf("found %v, %v; want that it works", failed, err)
	}
	w.want(w.countOf(`SELECT count(*) FROM outbox`), 1)
	_, err = w.pool.Exec(t.Context(), `ALTER TABLE outbox ADD CONSTRAINT broken CHECK (false) NOT VALID`)
	w.ok(err)
	failed, err = w.policies.AnnounceAgain(t.Context(), nil)
	w.want(failed, []int64{org})
	if err == nil {
		t.Error("found no error; want one")
	}
}

// D51: what the engine decides by is sent again from time to time, with the labels of groups: it may have lost it.
func TestPolicySetsAreAnnouncedAgain(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	const calls = `@id("all") permit (principal, action == Action::"function.call", resource);`
	w.put(policy.NewPolicySet{Name: "rollouts", Text: allowed})
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: calls})
	w.put(policy.NewPolicySet{Name: "former", Text: allowed})
	_, err := w.pool.Exec(t.Context(), `DELETE FROM outbox`)
	w.ok(err)
	w.throughout(w.policies.AnnounceAgain)
	rows, err := w.pool.Query(t.Context(), `SELECT (event->'data'->>'name') || ' ' || (event->'data'->>'version') || ' ' ||
		(event->'data'->>'text' <> '') || ' ' || COALESCE(event->'data'->>'application_labels', '') FROM outbox WHERE event->>'type'
		= $1 ORDER BY id`,
		event.TypePolicySetChanged)
	w.ok(err)
	var sent []string
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		sent = append(sent, line)
	}
	w.ok(rows.Err())
	w.want(sent, []string{`critical 1 true {"tier":"critical"}`, "former 2 false "})
}

// D51: policies see the incidents that are open where a rollout goes: those of freezes that cover its application in the environment that
// is entered, or in one of those of a rollout as a whole. What they have stopped is evaluated again when an incident is closed, or opens.
func TestPoliciesSeeOpenIncidents(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: allowed + `
@id("calm") @message("an incident is open")
forbid (principal, action == Action::"environment.enter", resource) when { !context.incidents.isEmpty() };
@id("not-in-9") @message("nothing new in INC-9")
forbid (principal, action == Action::"rollout.create", resource) when { context.incidents.contains("INC-9") };`})
	other := w.fixture.application("other", "web")
	production := []core.Tier{core.TierProduction}
	w.freeze(freeze.NewFreeze{Incident: "INC-1", ApplicationIDs: []int64{other.ID}, Tiers: production})                // of another one
	w.freeze(freeze.NewFreeze{Tiers: production, ApplicationIDs: []int64{other.ID}})                                   // for no incident
	w.freeze(freeze.NewFreeze{Incident: "INC-2", Tiers: production, StartsAt: w.now.Now().Add(time.Hour)})             // later
	w.freeze(freeze.NewFreeze{Incident: "INC-9", Tiers: []core.Tier{core.TierDevelopment}})                            // it goes nowhere there
	w.freeze(freeze.NewFreeze{Incident: "INC-9", Tiers: production, EnvironmentIDs: []int64{w.staging.ID}})            // neither
	nine := w.freeze(freeze.NewFreeze{Incident: "INC-9", EnvironmentIDs: []int64{w.production.ID}, Tiers: production}) // it does
	_, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	w.refused(err, "nothing new in INC-9")
	_, err = w.freezes.EndFreeze(t.Context(), user(), nine.ID, "mended")
	w.ok(err)
	r := w.rollout(w.set)
	ten := w.freeze(freeze.NewFreeze{Incident: "INC-10", Tiers: production})
	w.enter(r, "staging")
	w.want(w.granted(), []string{"staging"}) // the incident is not there
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	if waits := w.waits(r, "policy"); len(waits) != 1 || !strings.Contains(waits[0], "an incident is open") {
		t.Errorf("found %v; want that the incident stops it", waits)
	}
	_, err = w.freezes.EndFreeze(t.Context(), user(), ten.ID, "mended")
	w.ok(err)
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
	decided, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, []int64{r.ID})
	w.ok(err)
	var seen [][]string
	for _, d := range decided[r.ID] {
		seen = append(seen, d.Request.Incidents)
	}
	w.want(seen[:3], [][]string{nil, {"INC-10"}, nil})
	for _, wrong := range []string{strings.Repeat("x", 101), "two\nlines", " 9"} {
		_, err := w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Incident: wrong, Reason: "why", EndsAt: w.now.Now().Add(time.Hour)})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: found %v; want it refused", wrong, err)
		}
	}
}

// D49, D51: who may freeze in development only opens no incident elsewhere.
func TestAnIncidentIsOpenOnlyWhereItsAuthorMayFreeze(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: allowed + `
@id("calm") @message("an incident is open")
forbid (principal, action == Action::"rollout.create", resource) when { !context.incidents.isEmpty() };`})
	limited := core.Actor{Organization: org, Type: core.PrincipalUser, ID: user().ID, Permissions: core.PermissionsOf(core.MayRead)}
	limited.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayFreeze), Tiers: []core.Tier{core.TierDevelopment}}}
	n := freeze.NewFreeze{Tiers: []core.Tier{core.TierProduction}, Incident: "X", Reason: "why", EndsAt: w.now.Now().Add(time.Hour)}
	if _, err := w.freezes.StartFreeze(t.Context(), limited, n); !fault.Is(err, fault.Denied) {
		t.Errorf("found %v; want it denied", err)
	}
	n.Tiers = []core.Tier{core.TierDevelopment}
	_, err := w.freezes.StartFreeze(t.Context(), limited, n)
	w.ok(err)
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	w.ok(err)
}
