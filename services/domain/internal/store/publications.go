package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// What was published under which tag, and what is the newest of it.

// PublicationsOf implements intake.Tx.
func (t *tx) PublicationsOf(ctx context.Context, versions []int64) ([]intake.VersionPublication, error) {
	rows, err := t.q.PublicationsOfVersions(ctx, t.organization, versions)
	return convertAll(rows, func(r query.PublicationsOfVersionsRow) intake.VersionPublication {
		return intake.VersionPublication{
			ArtifactSourceID: r.ArtifactSourceID, VersionID: r.VersionID, Tag: r.Tag, Rank: r.Rank,
			PublishedAt: r.PublishedAt, AnnouncedAt: r.AnnouncedAt, Arrival: r.Arrival, Taken: r.Taken, DigestSeen: r.DigestSeen, AliveAt: r.AliveAt,
		}
	}), pg.Classify(err, "read the publications of %d versions", len(versions))
}

// NewestPublications implements intake.Tx.
func (t *tx) NewestPublications(ctx context.Context, applications, without []int64) (map[int64][]intake.SourceNewest, error) {
	// A list that is nil would be NULL, and leave out everything.
	rows, err := t.q.NewestPublications(ctx, t.organization, append([]int64{}, without...), applications)
	found := make(map[int64][]intake.SourceNewest, len(applications))
	for _, r := range rows {
		found[r.ApplicationID] = append(found[r.ApplicationID],
			intake.SourceNewest{
				ServiceID: r.ServiceID, Disabled: r.Disabled, Removed: r.Removed, ReplacedBy: r.ReplacedBy,
				HasVersions: r.HasVersions, HasSets: r.HasSets, VersionPublication: intake.VersionPublication{
					ArtifactSourceID: r.ArtifactSourceID, VersionID: r.VersionID, Rank: r.Rank, PublishedAt: r.PublishedAt, AnnouncedAt: r.AnnouncedAt,
					Arrival: r.Arrival, Taken: true,
				},
			})
	}
	return found, pg.Classify(err, "read the newest publications of %d applications", len(applications))
}

// SavePublications implements intake.Tx.
func (t *tx) SavePublications(ctx context.Context, all []intake.VersionPublication) error {
	p := query.SavePublicationsParams{OrganizationID: t.organization}
	for _, one := range all {
		seen := "" // a list of booleans may hold none that is missing
		if one.DigestSeen != nil {
			seen = strconv.FormatBool(*one.DigestSeen)
		}
		p.ArtifactSources, p.Versions, p.Tags = append(p.ArtifactSources, one.ArtifactSourceID), append(p.Versions, one.VersionID),
			append(p.Tags, one.Tag)
		p.Ranks, p.Published, p.Announced = append(p.Ranks, one.Rank), append(p.Published, one.PublishedAt), append(p.Announced, one.AnnouncedAt)
		p.Seen, p.Alive = append(p.Seen, seen), append(p.Alive, one.AliveAt)
	}
	return pg.Classify(t.q.SavePublications(ctx, p), "save %d publications", len(all))
}

// SaveAlive implements intake.Tx.
func (t *tx) SaveAlive(ctx context.Context, all []intake.VersionPublication) error {
	p := query.SaveAliveParams{OrganizationID: t.organization}
	for _, one := range all {
		p.Versions, p.Tags, p.Alive = append(p.Versions, one.VersionID), append(p.Tags, one.Tag), append(p.Alive, one.AliveAt)
	}
	return pg.Classify(t.q.SaveAlive(ctx, p), "save when %d publications were last known", len(all))
}

// SaveDeletions implements intake.Tx.
func (t *tx) SaveDeletions(ctx context.Context, all []intake.Deletion) ([]int64, error) {
	p := query.SaveDeletionsParams{OrganizationID: t.organization}
	of := query.VersionsOfDeletionsParams{OrganizationID: t.organization}
	for _, d := range all {
		p.ArtifactSources, p.Digests = append(p.ArtifactSources, d.ArtifactSourceID), append(p.Digests, d.Digest)
		p.Tags, p.Deleted = append(p.Tags, d.Tag), append(p.Deleted, d.At)
		if d.Digest != "" {
			of.SourcesOfDigests, of.Digests = append(of.SourcesOfDigests, d.ArtifactSourceID), append(of.Digests, d.Digest)
		} else {
			of.SourcesOfTags, of.Tags = append(of.SourcesOfTags, d.ArtifactSourceID), append(of.Tags, d.Tag)
		}
	}
	if err := t.q.SaveDeletions(ctx, p); err != nil {
		return nil, pg.Classify(err, "record %d deletions", len(all))
	}
	versions, err := t.q.VersionsOfDeletions(ctx, of)
	return versions, pg.Classify(err, "find the versions of %d deletions", len(all))
}

// MarkDeleted implements intake.Tx.
func (t *tx) MarkDeleted(ctx context.Context, versions []int64) error {
	return pg.Classify(t.q.MarkDeleted(ctx, t.organization, versions), "mark what was deleted of %d versions", len(versions))
}

// ForgetDeletions implements intake.Tx.
func (t *tx) ForgetDeletions(ctx context.Context, before time.Time, most int) error {
	return pg.Classify(t.q.ForgetDeletions(ctx, before, int32(most)), "forget deletions of before %s", before)
}

// SaveSeenDigests implements intake.Tx.
func (t *tx) SaveSeenDigests(ctx context.Context, seen map[int64]bool) error {
	versions := slices.Sorted(maps.Keys(seen))
	values := make([]bool, len(versions))
	for i, v := range versions {
		values[i] = seen[v]
	}
	return pg.Classify(t.q.SaveSeenDigests(ctx, t.organization, versions, values),
		"save whether the digests of %d versions were seen", len(seen))
}

// Unranked implements intake.Tx.
func (t *tx) Unranked(ctx context.Context, applications []int64, most int) ([]intake.UnrankedPublication, error) {
	rows, err := t.q.UnrankedPublications(ctx, t.organization, applications, int32(most))
	return convertAll(rows, func(r query.UnrankedPublicationsRow) intake.UnrankedPublication {
		return intake.UnrankedPublication{ID: r.ID, ApplicationID: r.ApplicationID, Tag: r.Tag, Ref: r.SourceRef, Config: r.SourceConfig}
	}), pg.Classify(err, "read publications without rank of %d applications", len(applications))
}

// ApplicationWithUnranked implements intake.Tx.
func (t *tx) ApplicationWithUnranked(ctx context.Context) (int64, error) {
	id, err := t.q.ApplicationWithUnranked(ctx, t.organization)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, pg.Classify(err, "find an application with publications without rank")
}

// SaveRanks implements intake.Tx.
func (t *tx) SaveRanks(ctx context.Context, placements map[int64]intake.Placement) error {
	p := query.RankPublicationsParams{OrganizationID: t.organization}
	for _, id := range slices.Sorted(maps.Keys(placements)) {
		p.Ids, p.Ranks, p.Taken = append(p.Ids, id), append(p.Ranks, placements[id].Rank), append(p.Taken, placements[id].Taken)
	}
	return pg.Classify(t.q.RankPublications(ctx, p), "rank %d publications", len(placements))
}

// ForgetRanks implements setup.Tx.
func (t *tx) ForgetRanks(ctx context.Context, source int64) error {
	return pg.Classify(t.q.ForgetRanks(ctx, t.organization, source), "forget the ranks of source %d", source)
}

// OrganizationsWithUnranked implements intake.Store.
func (s *Store) OrganizationsWithUnranked(ctx context.Context) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithUnrankedPublications(ctx)
	return ids, pg.Classify(err, "find organizations with publications without rank")
}

// Compositions implements view.Reads.
func (r reader) Compositions(ctx context.Context, organization int64, applications []int64) (map[int64]core.Composition, error) {
	all, hasSets := map[int64][]core.SourceInSet{}, map[int64]bool{}
	_, err := byKey(ctx, r, organization, applications, "what version sets consist of",
		func(q *query.Queries, ctx context.Context, organization int64, ids []int64) ([]query.NewestPublicationsRow, error) {
			return q.NewestPublications(ctx, organization, []int64{}, ids)
		}, func(row query.NewestPublicationsRow) (int64, struct{}) {
			hasSets[row.ApplicationID] = row.HasSets
			all[row.ApplicationID] = append(all[row.ApplicationID], core.SourceInSet{
				ServiceID: row.ServiceID, SourceID: row.ArtifactSourceID, Disabled: row.Disabled, Removed: row.Removed, ReplacedBy: row.ReplacedBy,
				Newest: row.VersionID, HasVersions: row.HasVersions,
			})
			return row.ApplicationID, struct{}{}
		})
	found := make(map[int64]core.Composition, len(all))
	for application, sources := range all {
		found[application] = core.Compose(sources, hasSets[application])
	}
	return found, err
}

// CuratedVersionSets implements view.Reads.
func (r reader) CuratedVersionSets(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.Curated, error) {
	return under(ctx, r, organization, versionSets, "curated version sets", (*query.Queries).CuratedVersionSets,
		keyed(curated, func(c core.Curated) int64 { return c.VersionSetID }))
}

// NewestVersionSets implements view.Reads.
func (r reader) NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error) {
	return byKey(ctx, r, organization, applications, "newest version sets", (*query.Queries).NewestVersionSets,
		keyed(versionSet, func(s core.VersionSet) int64 { return s.ApplicationID }))
}

// SeenDigests implements view.Reads.
func (r reader) SeenDigests(ctx context.Context, organization int64, versions []int64) (map[int64]bool, error) {
	return byKey(ctx, r, organization, versions, "seen digests", (*query.Queries).SeenDigests, func(row query.SeenDigestsRow) (int64, bool) {
		return row.VersionID, row.Seen
	})
}

// NotifyOfDeletions implements intake.Tx.
func (t *tx) NotifyOfDeletions(ctx context.Context, versions []int64, at time.Time) error {
	gone, err := t.DeletedVersions(ctx, t.organization, versions)
	if err != nil || len(gone) == 0 {
		return err
	}
	ids, marks := slices.Sorted(maps.Keys(gone)), make([]string, len(gone))
	for i, id := range ids {
		marks[i] = ":" + strconv.FormatInt(gone[id].UnixMicro(), 10)
	}
	return t.OfArtifacts(ctx, core.MomentArtifactDeleted, ids, marks, at)
}

// DeletedVersions implements view.Reads.
func (r reader) DeletedVersions(ctx context.Context, organization int64, versions []int64) (map[int64]time.Time, error) {
	return byKey(ctx, r, organization, versions, "deleted versions", (*query.Queries).DeletedVersions,
		func(row query.DeletedVersionsRow) (int64, time.Time) {
			return row.VersionID, row.DeletedAt
		})
}
