package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// organizationsAtOnce is how many organizations are read at once.
const organizationsAtOnce = 500

// AnnounceAgain publishes the latest versions of all sets that are about calls, or may have been, although nothing has changed: the engine
// may have lost them, as after a restored backup, or a replica of an earlier release has stored a part of them. Of two events about a set,
// that of the later version counts, so nothing is locked.
//
// Only are the organizations; nil for all of them. With an error it answers those that failed, to be attempted again; nil for all.
func (u *UseCases) AnnounceAgain(ctx context.Context, only []int64) (failed []int64, err error) {
	for more := only == nil; more; {
		behind := int64(0)
		if len(only) > 0 {
			behind = only[len(only)-1]
		}
		page, err := u.store.OrganizationsWithPolicySets(ctx, behind, organizationsAtOnce)
		if err != nil {
			return nil, err
		}
		only, more = append(only, page...), len(page) == organizationsAtOnce
	}
	return u.each(ctx, only, "announce policy sets", u.announceAll)
}

// each does something in each of some organizations, and answers those in which that failed.
func (u *UseCases) each(
	ctx context.Context, organizations []int64, what string, do func(organization int64) func(ctx context.Context, tx Tx) error,
) (failed []int64, err error) {
	for _, organization := range organizations {
		if one := u.store.In(ctx, organization, do(organization)); one != nil {
			failed, err = append(failed, organization), errors.Join(err, fmt.Errorf("%s of organization %d: %w", what, organization, one))
		}
		if ctx.Err() != nil {
			return failed, errors.Join(err, ctx.Err())
		}
	}
	return failed, err
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

// ReviewInstallation has everything evaluated again that policies have stopped, if the sets of the installation are not those by which that
// was done last. Only and the answer are as those of AnnounceAgain.
func (u *UseCases) ReviewInstallation(ctx context.Context, only []int64) (failed []int64, err error) {
	digest, err := digestOf(u.installation)
	if err != nil {
		return nil, err
	}
	if only == nil {
		reviewed, err := u.store.PoliciesReviewed(ctx)
		if err != nil || reviewed == digest {
			return nil, err
		}
		if only, err = u.store.OrganizationsStoppedBy(ctx, core.StopPolicy); err != nil {
			return nil, err
		}
	}
	failed, err = u.each(ctx, only, "review what policies have stopped", func(int64) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return tx.ReviewStopped(ctx, core.StopPolicy, 0, u.clock.Now())
		}
	})
	u.wake()
	if err != nil {
		return failed, err
	}
	return nil, u.store.SavePoliciesReviewed(ctx, digest)
}

// digestOf returns a digest by which sets of the installation are compared.
func digestOf(sets []core.PolicySet) (string, error) {
	parts := make([][]string, len(sets))
	for i, s := range sets {
		parts[i] = []string{s.Name, string(s.Mode), s.TimeZone, s.Text}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("describe the policy sets of the installation: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
