package intake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Deletion is what a registry no longer has of a source: the image of a digest with every tag, if there is no tag; a tag, whatever it
// named, if there is no digest; or a tag that named a digest.
type Deletion struct {
	ArtifactSourceID int64
	Digest, Tag      string
	At               time.Time
}

// deletionsKept is for how long a publication may arrive later than its deletion, and still be marked; forgottenDeletions is how many older
// ones are dropped at once.
const (
	deletionsKept      = 30 * 24 * time.Hour
	forgottenDeletions = 1000
)

// DeleteArtifacts marks the versions of artifacts that their registry has deleted: PublishedAt of each is when. Versions stay, and so do
// version sets and what is newest. It answers the error, or nil, of each that was tried, as PublishArtifacts does. The order does not
// matter, and again is a no-op: what counts is which is later, the last publication or the last deletion.
func (u *UseCases) DeleteArtifacts(ctx context.Context, all []Publication) []error {
	if len(all) > 1 && u.deleteTogether(ctx, all) == nil {
		return make([]error, len(all))
	}
	var tried []error
	for _, p := range all {
		err := u.deleteTogether(ctx, []Publication{p})
		if tried = append(tried, err); fault.Is(err, fault.Unavailable) {
			break
		}
	}
	return tried
}

func (u *UseCases) deleteTogether(ctx context.Context, all []Publication) error {
	for _, p := range all {
		if p.Artifact.Digest == "" && p.Artifact.Tag == "" {
			return fault.InvalidFields(fault.Field{Name: "data.tag", Problem: "missing; expected the tag or the digest that was deleted"})
		}
	}
	of, err := u.organizationsOf(ctx, all)
	if err != nil {
		return err
	}
	organizations := slices.Sorted(maps.Keys(of))
	if len(organizations) == 0 {
		organizations = []int64{0} // nothing points at it; the event is claimed all the same
	}
	for i, organization := range organizations {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var keys []string
			var artifacts []Artifact
			for _, t := range of[organization] {
				keys, artifacts = append(keys, t.key), append(artifacts, t.Artifact)
			}
			if err := u.deleteIn(ctx, tx, keys, artifacts); err != nil || i < len(organizations)-1 {
				return err
			}
			events := make([]core.Inbound, len(all))
			for i, p := range all {
				events[i] = p.In
			}
			_, err := tx.ClaimAll(ctx, events)
			return err
		})
		if err != nil {
			return fmt.Errorf("mark %d artifacts as deleted in organization %d: %w", len(all), organization, err)
		}
	}
	return nil
}

// deleteIn marks what was deleted in one organization; keys and artifacts go side by side.
func (u *UseCases) deleteIn(ctx context.Context, tx Tx, keys []string, artifacts []Artifact) error {
	known, err := tx.SourcesByMatchKeys(ctx, slices.Compact(slices.Sorted(slices.Values(keys))))
	if err != nil || len(known) == 0 {
		return err
	}
	var applications []int64
	latest := map[Deletion]time.Time{}
	for i, art := range artifacts {
		for _, o := range known[keys[i]] {
			applications = append(applications, o.ApplicationID)
			deleted := Deletion{ArtifactSourceID: o.SourceID, Digest: art.Digest, Tag: art.Tag}
			if at := art.PublishedAt; at.After(latest[deleted]) {
				latest[deleted] = at
			}
		}
	}
	// Publications that are being recorded now see these deletions, or are seen by them.
	if err := tx.LockApplications(ctx, core.Distinct(applications)); err != nil {
		return err
	}
	deletions := make([]Deletion, 0, len(latest))
	for deleted, at := range latest {
		deleted.At = at
		deletions = append(deletions, deleted)
	}
	versions, err := tx.SaveDeletions(ctx, deletions)
	if err != nil {
		return err
	}
	if err := tx.ForgetDeletions(ctx, u.clock.Now().Add(-deletionsKept), forgottenDeletions); err != nil || len(versions) == 0 {
		return err
	}
	if err := tx.MarkDeleted(ctx, versions); err != nil {
		return err
	}
	return tx.NotifyOfDeletions(ctx, versions, u.clock.Now())
}
