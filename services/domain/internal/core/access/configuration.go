package access

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// actionApplyConfiguration is in the journal of changes like a mutation; a start of the service performs it.
const actionApplyConfiguration core.Action = "applyConfiguration"

// RecordConfiguration adds a row to an organization's journal of changes if the settings by which its members sign in, or with which it
// begins, are not those that were recorded last (D50). They are changed in a file or in a chart, so no mutation records them. Settings are
// nil where none concern the organization. It is idempotent, and a no-op for an organization that does not exist.
func (u *UseCases) RecordConfiguration(ctx context.Context, organization int64, settings any) error {
	a := core.Actor{Organization: organization, Type: core.PrincipalSystem, Name: "configuration"}
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		// Replicas that start at the same time wait for each other.
		if _, err := tx.LockOrganization(ctx); err != nil {
			return err
		}
		before, err := tx.LatestChange(ctx, actionApplyConfiguration, core.ChangedConfiguration)
		if err != nil {
			return err
		}
		return core.RecordDifference(ctx, tx, a, core.Change{
			Action: actionApplyConfiguration, Subject: core.AccessSubject{Kind: core.ChangedConfiguration, Name: "sign-in and bootstrap"},
			Detail: "found at the start of the service",
		}, before, settings)
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// LatestConfiguration are the settings of an organization that RecordConfiguration has recorded last; nil for none.
func (u *UseCases) LatestConfiguration(ctx context.Context, organization int64) (settings json.RawMessage, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		settings, err = tx.LatestChange(ctx, actionApplyConfiguration, core.ChangedConfiguration)
		return err
	})
	return settings, err
}
