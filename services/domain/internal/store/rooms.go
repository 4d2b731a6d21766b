package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
	stored "github.com/lockstep-cd/lockstep/services/domain/internal/store/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

var _ view.Reads = (*Store)(nil)

// room is the store as one package of core sees it: its transactions have the methods that the package declares, and no others.
type room[Tx any] struct {
	*Store
	as func(*tx) Tx
}

// In implements core.Transactions.
func (r room[Tx]) In(ctx context.Context, organization int64, fn func(context.Context, Tx) error) error {
	return r.in(ctx, organization, func(ctx context.Context, t *tx) error { return fn(ctx, r.as(t)) })
}

// InTwo implements access.Store.
func (r room[Tx]) InTwo(
	ctx context.Context, first int64, do func(context.Context, Tx) error, second int64, then func(context.Context, Tx) error,
) error {
	return r.inTwo(ctx, first, func(ctx context.Context, t *tx) error { return do(ctx, r.as(t)) },
		second, func(ctx context.Context, t *tx) error { return then(ctx, r.as(t)) })
}

// ForAccess is the store as package access sees it.
func (s *Store) ForAccess() access.Store {
	return room[access.Tx]{s, func(t *tx) access.Tx { return t }}
}

// ForSetup is the store as package setup sees it.
func (s *Store) ForSetup() setup.Store { return room[setup.Tx]{s, func(t *tx) setup.Tx { return t }} }

// ForIntake is the store as package intake sees it.
func (s *Store) ForIntake() intake.Store {
	return room[intake.Tx]{s, func(t *tx) intake.Tx { return t }}
}

// ForRollout is the store as package rollout sees it.
func (s *Store) ForRollout() rollout.Store {
	return room[rollout.Tx]{s, func(t *tx) rollout.Tx { return t }}
}

// ForFreeze is the store as package freeze sees it.
func (s *Store) ForFreeze() freeze.Store {
	return room[freeze.Tx]{s, func(t *tx) freeze.Tx { return t }}
}

// ForCheck is the store as package check sees it.
func (s *Store) ForCheck() check.Store {
	return room[check.Tx]{s, func(t *tx) check.Tx { return t }}
}

// ForPolicy is the store as package policy sees it.
func (s *Store) ForPolicy() policy.Store {
	return room[policy.Tx]{s, func(t *tx) policy.Tx { return t }}
}

// OrganizationsWithPolicySets implements policy.Store.
func (s *Store) OrganizationsWithPolicySets(ctx context.Context, behind int64, most int) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithPolicySets(ctx, behind, int32(most))
	return ids, pg.Classify(err, "find organizations with policy sets")
}

// OrganizationsStoppedBy implements policy.Store.
func (s *Store) OrganizationsStoppedBy(ctx context.Context, kind core.StopKind) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsStoppedBy(ctx, string(kind))
	return ids, pg.Classify(err, "find organizations whose passages are stopped by %s", kind)
}

// PoliciesReviewed implements policy.Store.
func (s *Store) PoliciesReviewed(ctx context.Context) (string, error) {
	digests, err := query.New(s.deps.Pool).PoliciesReviewed(ctx)
	if err != nil || len(digests) == 0 {
		return "", pg.Classify(err, "read which policies of the installation everything was evaluated by")
	}
	return digests[0], nil
}

// SavePoliciesReviewed implements policy.Store.
func (s *Store) SavePoliciesReviewed(ctx context.Context, digest string) error {
	err := query.New(s.deps.Pool).SavePoliciesReviewed(ctx, digest)
	return pg.Classify(err, "keep which policies of the installation everything was evaluated by")
}

// ForOrigin is the store as package origin sees it.
func (s *Store) ForOrigin() origin.Store {
	return room[origin.Tx]{s, func(t *tx) origin.Tx { return t }}
}

// OrganizationsWithDueLookups implements origin.Store.
func (s *Store) OrganizationsWithDueLookups(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueLookups(ctx, at)
	return ids, pg.Classify(err, "find organizations with versions to look up")
}

// ForControl is the store as package control sees it.
func (s *Store) ForControl() control.Store {
	return room[control.Tx]{s, func(t *tx) control.Tx { return t }}
}

// ForTrigger is the store as package trigger sees it.
func (s *Store) ForTrigger() trigger.Store {
	return room[trigger.Tx]{s, func(t *tx) trigger.Tx { return t }}
}

// ForNotify is the store as package notify sees it.
func (s *Store) ForNotify() notify.Store {
	return room[notify.Tx]{s, func(t *tx) notify.Tx { return t }}
}

// ForFeed is the store as package feed sees it.
func (s *Store) ForFeed() feed.Store { return room[feed.Tx]{s, func(t *tx) feed.Tx { return t }} }

// ForForge is the store as package forge sees it.
func (s *Store) ForForge() forge.Store {
	return room[forge.Tx]{s, func(t *tx) forge.Tx { return t }}
}

// ForgeHooksAfter implements forge.Store.
func (s *Store) ForgeHooksAfter(ctx context.Context, id int64, most int) ([]forge.PlacedHook, error) {
	rows, err := query.New(s.deps.Pool).ForgeHooksAfter(ctx, id, int32(most))
	return convertAll(rows, func(r query.ForgeHooksAfterRow) forge.PlacedHook {
		return forge.PlacedHook{ID: r.ID, Organization: r.OrganizationID, Key: r.Key}
	}), pg.Classify(err, "read hooks of forges behind %d", id)
}

// RegistryCredentialsAfter implements credential.Store.
func (s *Store) RegistryCredentialsAfter(ctx context.Context, behind int64, most int) ([]credential.Credential, error) {
	rows, err := query.New(s.deps.Pool).RegistryCredentialsAfter(ctx, behind, int32(most))
	return convertAll(rows, stored.OfRegistry), pg.Classify(err, "read credentials of registries behind %d", behind)
}

// ForChat is the store as package chat sees it.
func (s *Store) ForChat() chat.Store { return room[chat.Tx]{s, func(t *tx) chat.Tx { return t }} }

// ForHandoff is the store as package handoff sees it.
func (s *Store) ForHandoff() handoff.Store {
	return room[handoff.Tx]{s, func(t *tx) handoff.Tx { return t }}
}

// ForCredential is the store as package credential sees it.
func (s *Store) ForCredential() credential.Store {
	return room[credential.Tx]{s, func(t *tx) credential.Tx { return t }}
}

// CredentialsAfter implements credential.Store.
func (s *Store) CredentialsAfter(ctx context.Context, behind int64, most int) ([]credential.Place, error) {
	rows, err := query.New(s.deps.Pool).CredentialsAfter(ctx, behind, int32(most))
	return convertAll(rows, func(r query.CredentialsAfterRow) credential.Place {
			return credential.Place{ID: r.ID, Organization: r.OrganizationID}
		}),
		pg.Classify(err, "read credentials behind %d", behind)
}

// CredentialsChanged implements credential.Store.
func (s *Store) CredentialsChanged(ctx context.Context, since time.Time, behind int64, most int) ([]credential.Place, error) {
	rows, err := query.New(s.deps.Pool).CredentialsChanged(ctx, since, behind, int32(most))
	return convertAll(rows, func(r query.CredentialsChangedRow) credential.Place {
		return credential.Place{ID: r.ID, Organization: r.OrganizationID}
	}), pg.Classify(err, "read credentials that have changed")
}

// CredentialsOfOtherKeys implements credential.Store.
func (s *Store) CredentialsOfOtherKeys(ctx context.Context, key uint32, behind int64, most int) ([]credential.Place, error) {
	rows, err := query.New(s.deps.Pool).CredentialsOfOtherKeys(ctx, int64(key), behind, int32(most))
	return convertAll(rows, func(r query.CredentialsOfOtherKeysRow) credential.Place {
		return credential.Place{ID: r.ID, Organization: r.OrganizationID}
	}), pg.Classify(err, "read credentials of other keys")
}

// CredentialsExpiring implements credential.Store.
func (s *Store) CredentialsExpiring(ctx context.Context, within time.Duration) (expiring, expired int64, err error) {
	row, err := query.New(s.deps.Pool).CredentialsExpiring(ctx, int64(within/time.Second))
	return row.Expiring, row.Expired, pg.Classify(err, "count credentials that expire")
}
