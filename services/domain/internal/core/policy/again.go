package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// organizationsAtOnce is how many organizations are read at once.
const organizationsAtOnce = 500

// AnnounceAgain publishes the latest versions of all sets that are about calls, or may have been, although nothing has changed: the engine
// may have lost them, as after a restored backup, or a replica of an earlier release has stored a part of them. Of two events about a set,
// that of the later version counts, so nothing is locked.
func (u *UseCases) AnnounceAgain(ctx context.Context) error {
	var failed error
	for behind := int64(0); ; {
		page, err := u.store.OrganizationsWithPolicySets(ctx, behind, organizationsAtOnce)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, organization := range page {
			behind = organization
			if err := u.store.In(ctx, organization, u.announceAll(organization)); err != nil {
				failed = errors.Join(failed, fmt.Errorf("announce policy sets of organization %d: %w", organization, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
		if len(page) < organizationsAtOnce {
			return failed
		}
	}
}

func (u *UseCases) announceAll(organization int64) func(ctx context.Context, tx Tx) error {
	return func(ctx context.Context, tx Tx) error {
		all, err := tx.PolicySets(ctx, organization)
		if err != nil {
			return err
		}
		for _, s := range all {
			if !u.engine.AboutCalls(s) {
				if s.Version == 1 {
					continue // it never was
				}
				s.Text = ""
			}
			if err := tx.AnnouncePolicySet(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// ReviewInstallation has everything evaluated again that policies have stopped. A service calls it when it starts: the sets of the
// installation may have changed.
func (u *UseCases) ReviewInstallation(ctx context.Context) error {
	stopped, err := u.store.OrganizationsStoppedBy(ctx, core.StopPolicy)
	if err != nil {
		return err
	}
	var failed error
	for _, organization := range stopped {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("review what policies have stopped in organization %d: %w", organization, err))
		}
	}
	u.wake()
	return failed
}
