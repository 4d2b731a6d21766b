package trigger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// commits returns why the commits of the version set begin no rollout; empty if one does (R4-07): it is live nowhere, its repository
// fits, and no deployment has recorded it wherever the trigger goes. Which files matter is up to the source, which reports no other
// commits, and none that Lockstep made.
func (d *decision) commits(ctx context.Context) (refused string, _ time.Time, err error) {
	_, fresh, err := d.fresh(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	found, err := d.tx.VersionsByID(ctx, d.organization, fresh)
	if err != nil {
		return "", time.Time{}, err
	}
	refused = d.set.Name + " has no new commit"
	for _, id := range fresh {
		v := found[id]
		if v.IsImage() {
			continue
		}
		repository, _, _ := strings.Cut(strings.TrimPrefix(v.Reference, "git:"), "#")
		commit := fmt.Sprintf("commit %.12s of %s", v.Digest, repository)
		if !d.config.reactsTo(repository) {
			refused = commit + " is not one of the repositories of the trigger"
			continue
		}
		recorded, err := d.recorded(ctx, v)
		if err != nil {
			return "", time.Time{}, err
		}
		if recorded {
			refused = commit + " is what deployments have recorded already wherever the trigger goes"
			continue
		}
		d.commit = commit
		return "", time.Time{}, nil
	}
	return refused, time.Time{}, nil
}

// onlyRecorded reports whether everything that is new in the version set is a commit that deployments have recorded: what they commit must
// begin no further ones, also where its trailers were lost.
func (d *decision) onlyRecorded(ctx context.Context) (bool, error) {
	_, fresh, err := d.fresh(ctx)
	if err != nil || len(fresh) == 0 {
		return false, err
	}
	found, err := d.tx.VersionsByID(ctx, d.organization, fresh)
	if err != nil {
		return false, err
	}
	for _, id := range fresh {
		v := found[id]
		if v.IsImage() {
			return false, nil
		}
		if recorded, err := d.recorded(ctx, v); err != nil || !recorded {
			return false, err
		}
	}
	return true, nil
}

// recorded reports whether deployments have recorded a commit in every environment that the trigger goes to: they have made it, or
// deployed it.
func (d *decision) recorded(ctx context.Context, v core.Version) (bool, error) {
	known, err := d.tx.EnvironmentsOfCommit(ctx, d.trigger.ApplicationID, v.Digest)
	if err != nil || len(known) == 0 {
		return false, err
	}
	all, err := d.tx.ApplicationEnvironmentsByApplication(ctx, d.organization, []int64{d.trigger.ApplicationID})
	if err != nil {
		return false, err
	}
	var ids []int64
	for _, e := range all[d.trigger.ApplicationID] {
		ids = append(ids, e.EnvironmentID)
	}
	names, err := d.tx.EnvironmentsByID(ctx, d.organization, ids)
	if err != nil {
		return false, err
	}
	// Rollouts come to the last environment last.
	return !slices.ContainsFunc(ids, func(id int64) bool {
		return (d.config.Until == "" || names[id].Name == d.config.Until) && !slices.Contains(known, id)
	}), nil
}
