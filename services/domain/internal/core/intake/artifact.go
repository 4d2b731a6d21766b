package intake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Artifact is what a registry says has been published.
type Artifact struct {
	Image, Digest, Tag string
	// CommitMessage is the beginning of the message of a commit, as far as it is known.
	CommitMessage string
	// Change is what the commit changes; zero where that is not known.
	Change core.CommitChange
	// PublishedAt decides between publications of equal rank, whatever order events come in. The clock of the publisher is
	// not ours: an instant in the future counts as now.
	PublishedAt time.Time
	// AnnouncedAt is when the event was made: the order of publications of the same instant.
	AnnouncedAt time.Time
	// DigestSeen reports whether the digest was seen at the registry; nil where the event does not say.
	DigestSeen *bool
	// AliveAt is the last instant at which it is known to exist: that of the publication or, if later, that at which its digest was seen.
	AliveAt time.Time
}

// Publication is an artifact with the event that announced it.
type Publication struct {
	In       core.Inbound
	Artifact Artifact
}

// PublishArtifacts records a version of each artifact on every source that points at it, in every organization (or in the
// event's own, if it has one), and a version set of each application concerned (R48, E61), in one transaction of each
// organization where all goes well. What is not right about one of them is found by publishing them one by one. It answers
// the error, or nil, of each that was tried; while the database is away, none behind the first is.
//
// It may be tried again at any point: every write asks first whether it has been made, and an event that was claimed before only adds
// what is missing (a source that is newer than its first delivery gets the version), and never counts as a tag that moves back. The order
// does not matter, except between publications of the same instant that were announced at the same instant.
func (u *UseCases) PublishArtifacts(ctx context.Context, all []Publication) []error {
	if len(all) > 1 && u.publishTogether(ctx, all) == nil {
		return make([]error, len(all))
	}
	var tried []error
	for _, p := range all {
		err := u.publishTogether(ctx, []Publication{p})
		if tried = append(tried, err); fault.Is(err, fault.Unavailable) {
			break
		}
	}
	return tried
}

func (u *UseCases) publishTogether(ctx context.Context, all []Publication) error {
	of, err := u.organizationsOf(ctx, all)
	if err != nil {
		return err
	}
	organizations := slices.Sorted(maps.Keys(of))
	if len(organizations) == 0 {
		organizations = []int64{0} // there is nothing to do but to say that it has come
	}
	for i, organization := range organizations {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			// With the last one, when all others have theirs.
			if err := newBatch(u, of[organization]).run(ctx, tx); err != nil || i < len(organizations)-1 {
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
			return fmt.Errorf("publish %d artifacts in organization %d: %w", len(all), organization, err)
		}
	}
	return nil
}

// organizationsOf are the organizations that artifacts concern, with what is announced to each, in order.
func (u *UseCases) organizationsOf(ctx context.Context, all []Publication) (map[int64][]announced, error) {
	now := u.clock.Now()
	keys, everybodys := make([]string, len(all)), []string{}
	for i, p := range all {
		key, err := u.matcher.KeyOf(p.Artifact.Image)
		if err != nil {
			return nil, fault.InvalidFields(fault.Field{Name: "data.image", Problem: err.Error()})
		}
		if keys[i] = key; p.In.Organization == 0 {
			everybodys = append(everybodys, key)
		}
	}
	owners := map[string][]int64{}
	if len(everybodys) > 0 {
		slices.Sort(everybodys)
		var err error
		if owners, err = u.store.OrganizationsWithSources(ctx, slices.Compact(everybodys)); err != nil {
			return nil, err
		}
	}
	of := map[int64][]announced{}
	for i, p := range all {
		t := announced{Publication: p, key: keys[i]}
		if at := t.Artifact.PublishedAt; at.IsZero() || at.After(now) {
			t.Artifact.PublishedAt = now
		}
		// As the database keeps it, or what is equal there would not be here.
		t.Artifact.PublishedAt = t.Artifact.PublishedAt.Truncate(time.Microsecond)
		if t.Artifact.AliveAt.After(now) {
			t.Artifact.AliveAt = now
		}
		if t.Artifact.AliveAt = t.Artifact.AliveAt.Truncate(time.Microsecond); t.Artifact.AliveAt.Before(t.Artifact.PublishedAt) {
			t.Artifact.AliveAt = t.Artifact.PublishedAt
		}
		t.Artifact.AnnouncedAt = t.Artifact.AnnouncedAt.Truncate(time.Microsecond)
		organizations := owners[t.key]
		if p.In.Organization != 0 {
			organizations = []int64{p.In.Organization}
		}
		for _, organization := range organizations {
			of[organization] = append(of[organization], t)
		}
	}
	return of, nil
}

// imageOf is the image without tag and digest, spelled as it came.
func imageOf(image string) string {
	image, _, _ = strings.Cut(strings.TrimSpace(image), "@")
	if slash, colon := strings.LastIndexByte(image, '/'), strings.LastIndexByte(image, ':'); colon > slash {
		image = image[:colon]
	}
	return image
}
