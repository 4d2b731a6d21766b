package domain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// announced are the latest announcements about environments, by name; those about applications are left out.
func (s *shop) announced() map[string]event.EnvironmentPlacesChanged {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT event->'data' FROM outbox WHERE event->>'type' = $1 ORDER BY id`,
		event.TypeEnvironmentPlacesChanged)
	s.ok(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[event.EnvironmentPlacesChanged])
	s.ok(err)
	latest := map[string]event.EnvironmentPlacesChanged{}
	for _, e := range all {
		if e.ApplicationID != 0 {
			continue
		}
		if before := latest[e.Name]; before.Sequence >= e.Sequence {
			s.t.Errorf("%s: sequence %d after %d", e.Name, e.Sequence, before.Sequence)
		}
		latest[e.Name] = e
	}
	return latest
}

// An environment is protected by its tier, or by an approval of its own, unless direct changes are allowed: a control with a reason and a
// row in the journal of changes (D46, D50).
func TestWhatProtectsAnEnvironment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	protected := func(name string, want bool) {
		t.Helper()
		if got := s.announced()[name]; got.Protected != want || got.EnvironmentID == 0 {
			t.Errorf("%s: found %+v, want protected %t", name, got, want)
		}
	}
	protected("production", true)
	protected("staging", false)
	_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.staging.ID,
		&core.EnvironmentApproval{GateRule: core.GateRule{Quorum: 1, OnExpiry: core.ExpiryRejects}})
	s.ok(err)
	protected("staging", true)
	_, err = s.setup.SetEnvironmentApproval(t.Context(), user(), s.staging.ID, nil)
	s.ok(err)
	protected("staging", false)

	if _, err := s.setup.SetDirectChanges(t.Context(), user(), s.production.ID, true, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	deployer := user()
	deployer.Permissions = core.RoleMaintainer.Permissions()
	if _, err := s.setup.SetDirectChanges(t.Context(), deployer, s.production.ID, true, "nightly jobs"); !fault.Is(err, fault.Denied) {
		t.Errorf("without the permission: %v", err)
	}
	protected("production", true)
	_, err = s.setup.SetDirectChanges(t.Context(), user(), s.production.ID, true, "nightly jobs")
	s.ok(err)
	protected("production", false)
	_, err = s.setup.SetDirectChanges(t.Context(), user(), s.production.ID, false, "")
	s.ok(err)
	protected("production", true)
	var journal []string
	rows, err := s.pool.Query(t.Context(), `SELECT before::text || ' ' || after::text || ' ' || reason FROM cd_changes WHERE action = 'setDirectChanges' ORDER BY id`)
	s.ok(err)
	journal, err = pgx.CollectRows(rows, pgx.RowTo[string])
	s.ok(err)
	s.want(journal, []string{
		`{"direct_changes": false} {"direct_changes": true} nightly jobs`, `{"direct_changes": true} {"direct_changes": false} `,
	})
}

// Everything is announced again from time to time, so that a workflow service that has lost it receives it; what is archived says so.
func TestPlacesAreAnnouncedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := s.announced()
	s.ok(s.setup.AnnouncePlaces(t.Context()))
	for name, after := range s.announced() {
		was := before[name]
		if after.Sequence <= was.Sequence {
			t.Errorf("%s: not announced again", name)
		}
		after.Sequence, was.Sequence = 0, 0
		s.want(after, was)
	}
	_, err := s.setup.ArchiveEnvironment(t.Context(), user(), s.production.ID, "")
	s.ok(err)
	if got := s.announced()["production"]; !got.Archived {
		t.Errorf("archived: %+v", got)
	}
}

// The passages of a rollout end with it, once, in the transaction that ends it (D46).
func TestPassagesEndWithTheRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	revoked := func() (n int) {
		s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE event->>'type' = $1`, event.TypeRolloutPassagesRevoked).Scan(&n))
		return n
	}
	s.deliver(s.emit(event.RolloutStarted{RolloutID: r.ID}, ""))
	if revoked() != 0 {
		t.Error("revoked before the end")
	}
	_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	failed := s.emit(event.RolloutFailed{RolloutID: r.ID, Reason: "late"}, "")
	s.deliver(failed, failed)
	if revoked() != 1 {
		t.Errorf("revoked %d times, want once", revoked())
	}
}

// A driver that declares no places opens everything of its clusters: who may configure one tier only neither binds it, nor has a pipeline
// newly go to where it is bound (D46, D50).
func TestOnlyThoseWithoutLimitsClaimEverything(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	limited := user()
	limited.Permissions = core.RoleViewer.Permissions()
	limited.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Tiers: []core.Tier{core.TierStaging}}}
	create := func(a core.Actor, name string) error {
		_, err := s.setup.CreateEnvironment(t.Context(), a, setup.NewEnvironment{
			Name: name, Tier: core.TierStaging, DriverRef: paper, DriverConfig: json.RawMessage(`{"drawer":3}`),
		})
		return err
	}
	if err := create(limited, "mine"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "does not declare what a rollout changes") {
		t.Errorf("an environment: found %v, want it denied", err)
	}
	s.ok(create(user(), "qa"))
	blog := s.fixture.application("blog", "site")
	define := func(a core.Actor, environment string) error {
		_, err := s.setup.CreateFlowDefinition(t.Context(), a, setup.NewFlowDefinition{ApplicationID: blog.ID, Definition: pipeline(environment)})
		return err
	}
	if err := define(limited, "staging"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "everything of its clusters") {
		t.Errorf("a pipeline: found %v, want it denied", err)
	}
	s.ok(define(user(), "staging"))
	s.ok(define(limited, "staging"))
}
