package domain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

func instant(minute int) time.Time { return time.Date(2026, 3, 25, 10, minute, 0, 0, time.UTC) }

func wire(minute int) string { return instant(minute).Format(time.RFC3339Nano) }

// R17: last write wins, by when it was seen; D13: since is when it began.
func TestTheHealthCacheKeepsTheNewestObservationAndSinceWhen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	e := f.environment("staging", core.TierStaging)
	services, err := f.view.ServicesByApplication(t.Context(), org, []int64{a.ID})
	f.ok(err)
	api := services[a.ID][0].ID
	seen := func(minute int, health string) {
		f.report(event.ServiceHealthObserved{ServiceID: api, EnvironmentID: e.ID, Health: health, Reason: health + "!", ObservedAt: wire(minute)})
	}
	expect := func(health core.Health, since, at int) {
		t.Helper()
		got, err := f.view.HealthsByEnvironment(t.Context(), org, []int64{e.ID})
		f.ok(err)
		want := map[int64][]core.ServiceHealth{e.ID: {{
			ServiceID: api, EnvironmentID: e.ID, Health: health, Reason: string(health) + "!", Since: instant(since), ObservedAt: instant(at),
		}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("healths (-want +got):\n%s", diff)
		}
	}
	seen(1, "healthy")
	expect(core.HealthHealthy, 1, 1)
	seen(5, "degraded")
	seen(6, "degraded")
	expect(core.HealthDegraded, 5, 6)
	seen(3, "progressing") // late
	expect(core.HealthDegraded, 5, 6)
	seen(9, "healthy")
	expect(core.HealthHealthy, 9, 9)

	stranger := f.emit(event.ServiceHealthObserved{ServiceID: api + 100, EnvironmentID: e.ID, Health: "healthy", ObservedAt: wire(1)}, "")
	if err := f.on.Domain(t.Context(), []bus.Delivery{{Event: stranger, Attempt: 1}})[0]; !fault.Is(err, fault.Invalid) {
		t.Errorf("a service that does not exist: %v", err)
	}
	others, err := f.view.HealthsByEnvironment(t.Context(), 2, []int64{e.ID})
	if f.ok(err); len(others) != 0 {
		t.Errorf("another organization sees %v", others)
	}
}

// TestAStandingReportIsOnlyAboutWhatItsRunIsFor (D47): a hostile program registers reports of other applications, environments and
// organizations. None changes a row; those of the rollout, the setup and the onboarding of what they are about do.
func TestAStandingReportIsOnlyAboutWhatItsRunIsFor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	other := s.fixture.application("billing", "ledger")
	_, err := s.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: other.ID, Definition: pipeline("staging", "production")})
	s.ok(err)
	services, err := s.view.ServicesByApplication(t.Context(), org, []int64{s.application.ID, other.ID})
	s.ok(err)
	all, err := s.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{s.application.ID, other.ID})
	s.ok(err)
	in := func(application int64, environment core.Environment) int64 {
		for _, ae := range all[application] {
			if ae.EnvironmentID == environment.ID {
				return ae.ID
			}
		}
		t.Fatalf("application %d has no row for %s", application, environment.Name)
		return 0
	}
	ours, theirs, here := in(s.application.ID, s.staging), in(other.ID, s.staging), s.staging.ID
	elsewhere := s.environment("elsewhere", core.TierStaging)
	health := func(service, environment int64) event.Data {
		return event.ServiceHealthObserved{ServiceID: service, EnvironmentID: environment, Health: "degraded", ObservedAt: wire(1)}
	}
	reconciled := func(ae int64) event.Data {
		return event.ApplicationEnvironmentReconciled{ApplicationEnvironmentID: ae, Revision: strings.Repeat("0", 40), ObservedAt: wire(1)}
	}
	contact := func(environment int64) event.Data {
		return event.EnvironmentContactChanged{EnvironmentID: environment, Reason: "down", ObservedAt: wire(1)}
	}
	api, ledger := services[s.application.ID][0].ID, services[other.ID][0].ID
	run := id.RolloutRun(r.ID)
	report := func(from string, data event.Data) error {
		return s.on.Domain(t.Context(), []bus.Delivery{{Event: s.emit(data, id.Observer(from, "some/key")), Attempt: 1}})[0]
	}
	before := s.rows()
	for name, c := range map[string]struct {
		run  string
		data event.Data
	}{
		"another application's service":            {run, health(ledger, here)},
		"an environment that is not the rollout's": {run, health(api, elsewhere.ID)},
		"another application's live state":         {run, reconciled(theirs)},
		"the environment's contact, of a rollout":  {run, contact(here)},
		"a rollout that does not exist":            {id.RolloutRun(r.ID + 100), health(api, here)},
		"another application's setup":              {id.SetupRun(theirs, 1), health(api, here)},
		"another application's setup, live state":  {id.SetupRun(theirs, 1), reconciled(ours)},
		"a setup in another environment":           {id.SetupRun(in(s.application.ID, s.production), 1), health(api, here)},
		"a setup, of its environment's contact":    {id.SetupRun(ours, 1), contact(here)},
		"an onboarding elsewhere":                  {id.OnboardingRun(elsewhere.ID, 1), contact(here)},
		"an onboarding, of a service":              {id.OnboardingRun(here, 1), health(api, here)},
		"an onboarding, of live state":             {id.OnboardingRun(here, 1), reconciled(ours)},
		"a preview":                                {id.PreviewRun(r.ID), health(api, here)},
	} {
		err := report(c.run, c.data)
		if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != event.ExtensionCorrelation {
			t.Errorf("%s: found %v, expected a refusal of its run", name, err)
		}
	}
	if diff := cmp.Diff(before, s.rows()); diff != "" {
		t.Errorf("reports about what their runs are not for have changed rows (-before +after):\n%s", diff)
	}
	for name, c := range map[string]struct {
		run  string
		data event.Data
	}{
		"the rollout, of a service":    {run, health(api, here)},
		"the rollout, of live state":   {run, reconciled(ours)},
		"the setup, of a service":      {id.SetupRun(theirs, 2), health(ledger, here)},
		"the setup, of live state":     {id.SetupRun(theirs, 2), reconciled(theirs)},
		"the onboarding, of contact":   {id.OnboardingRun(here, 3), contact(here)},
		"a registration of before D47": {"", contact(elsewhere.ID)},
	} {
		before := s.rows()
		if err := report(c.run, c.data); err != nil || before == s.rows() {
			t.Errorf("%s: %v, expected it to change a row", name, err)
		}
	}
}

// R36: an ended deployment never changes; the health of its service later is in the cache.
func TestHealthNeverReopensADeployment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.succeed(r)
	stop := s.stops(r)[0]
	before := s.deployments(stop)
	s.report(event.ServiceHealthObserved{
		ServiceID: before[0].ServiceID, EnvironmentID: stop.EnvironmentID, Health: "degraded",
		ObservedAt: wire(59),
	})
	if diff := cmp.Diff(before, s.deployments(stop)); diff != "" {
		t.Errorf("deployments (-before +after):\n%s", diff)
	}
}

// Two replicas may take words about two services of a cell at once: neither sees the other's, and the worse one counts.
func TestTheWorstHealthIsThatOfWordsWhichComeAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	services, err := s.view.ServicesByApplication(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	of := services[s.application.ID]
	for i := range of {
		s.report(event.ServiceHealthObserved{ServiceID: of[i].ID, EnvironmentID: s.staging.ID, Health: "healthy", ObservedAt: wire(1)})
	}
	const update = `UPDATE cd_service_environment_healths SET health = $1 WHERE service_id = $2 AND environment_id = $3`
	first, err := s.pool.Begin(t.Context())
	s.ok(err)
	defer func() { _ = first.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = first.Exec(t.Context(), update, core.HealthDegraded, of[0].ID, s.staging.ID)
	s.ok(err)
	second, err := s.pool.Acquire(t.Context())
	s.ok(err)
	defer second.Release()
	done := make(chan error, 1)
	go func() {
		_, err := second.Exec(t.Context(), update, core.HealthProgressing, of[1].ID, s.staging.ID)
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waits := false; !waits; {
		if err := s.pool.QueryRow(ctx, `SELECT cardinality(pg_blocking_pids($1)) > 0`, second.Conn().PgConn().PID()).Scan(&waits); err != nil {
			t.Fatalf("waited for the second word to wait for the first: %v", err)
		}
	}
	s.ok(first.Commit(t.Context()))
	s.ok(<-done)
	if found := s.checked(); len(found) > 0 {
		t.Errorf("the cell is not what the words say: %v", found)
	}
	var worst core.Health
	s.ok(s.pool.QueryRow(t.Context(), `SELECT worst FROM cd_cells WHERE environment_id = $1`, s.staging.ID).Scan(&worst))
	if worst != core.HealthDegraded {
		t.Errorf("worst: found %s; want degraded", worst)
	}
}

// E58: drift shows; an environment whose agent is gone shows since when.
func TestDriftAndContactAreKept(t *testing.T) {
	t.Parallel()
	f := newShop(t)
	all, err := f.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{f.application.ID})
	f.ok(err)
	ae := all[f.application.ID][0].ID
	saw := func(minute int, revision, drift string, automatic bool) {
		f.report(event.ApplicationEnvironmentReconciled{
			ApplicationEnvironmentID: ae, Revision: revision, ExpectedRevision: "abc", Automatic: automatic, Drift: drift, ObservedAt: wire(minute),
		})
	}
	saw(1, "abc", "", false)
	saw(2, "def", "automated sync is on", true)
	saw(3, "fed", "automated sync is on", true)
	reconciliations, err := f.view.Reconciliations(t.Context(), org, []int64{ae})
	f.ok(err)
	want := map[int64]core.Reconciliation{ae: {
		ApplicationEnvironmentID: ae, Revision: "fed", ExpectedRevision: "abc", Automatic: true, Objects: drift.InWords("automated sync is on"),
		Since: instant(2), ObservedAt: instant(3),
	}}
	if diff := cmp.Diff(want, reconciliations); diff != "" {
		t.Errorf("reconciliations (-want +got):\n%s", diff)
	}
	for minute, reachable := range []bool{true, false, false} {
		f.report(event.EnvironmentContactChanged{EnvironmentID: f.staging.ID, Reachable: reachable, Reason: "x", ObservedAt: wire(minute)})
	}
	contacts, err := f.view.Contacts(t.Context(), org, []int64{f.staging.ID})
	f.ok(err)
	contact := map[int64]core.Contact{f.staging.ID: {EnvironmentID: f.staging.ID, Reason: "x", Since: instant(1), ObservedAt: instant(2)}}
	if diff := cmp.Diff(contact, contacts); diff != "" {
		t.Errorf("contacts (-want +got):\n%s", diff)
	}
}
