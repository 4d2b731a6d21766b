package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// What was published under which tag, and what is the newest of it.

// PublicationsOf implements core.Tx.
func (t *tx) PublicationsOf(ctx context.Context, versions []int64) ([]core.VersionPublication, error) {
	rows, err := t.q.PublicationsOfVersions(ctx, t.organization, versions)
	return convertAll(rows, func(r query.PublicationsOfVersionsRow) core.VersionPublication {
		return core.VersionPublication{
			ArtifactSourceID: r.ArtifactSourceID, VersionID: r.VersionID, Tag: r.Tag, Rank: r.Rank,
			PublishedAt: r.PublishedAt, ToldAt: r.ToldAt, Arrival: r.Arrival, Taken: r.Taken, DigestSeen: r.DigestSeen,
		}
	}), pg.Classify(err, "read the publications of %d versions", len(versions))
}

// NewestPublications implements core.Tx.
func (t *tx) NewestPublications(ctx context.Context, applications, without []int64) (map[int64][]core.SourceNewest, error) {
	// A list that is nil would be NULL, and leave out everything.
	rows, err := t.q.NewestPublications(ctx, t.organization, append([]int64{}, without...), applications)
	found := make(map[int64][]core.SourceNewest, len(applications))
	for _, r := range rows {
		found[r.ApplicationID] = append(found[r.ApplicationID], core.SourceNewest{ServiceID: r.ServiceID, VersionPublication: core.VersionPublication{
			ArtifactSourceID: r.ArtifactSourceID, VersionID: r.VersionID, Rank: r.Rank, PublishedAt: r.PublishedAt, ToldAt: r.ToldAt, Arrival: r.Arrival, Taken: true,
		}})
	}
	return found, pg.Classify(err, "read the newest publications of %d applications", len(applications))
}

// SavePublications implements core.Tx.
func (t *tx) SavePublications(ctx context.Context, all []core.VersionPublication) error {
	p := query.SavePublicationsParams{OrganizationID: t.organization}
	for _, one := range all {
		seen := "" // a list of booleans may hold none that is missing
		if one.DigestSeen != nil {
			seen = strconv.FormatBool(*one.DigestSeen)
		}
		p.ArtifactSources, p.Versions, p.Tags = append(p.ArtifactSources, one.ArtifactSourceID), append(p.Versions, one.VersionID), append(p.Tags, one.Tag)
		p.Ranks, p.Published, p.Told = append(p.Ranks, one.Rank), append(p.Published, one.PublishedAt), append(p.Told, one.ToldAt)
		p.Seen = append(p.Seen, seen)
	}
	return pg.Classify(t.q.SavePublications(ctx, p), "save %d publications", len(all))
}

// SaveSeenDigests implements core.Tx.
func (t *tx) SaveSeenDigests(ctx context.Context, seen map[int64]bool) error {
	versions := slices.Sorted(maps.Keys(seen))
	values := make([]bool, len(versions))
	for i, v := range versions {
		values[i] = seen[v]
	}
	return pg.Classify(t.q.SaveSeenDigests(ctx, t.organization, versions, values), "save whether the digests of %d versions were seen", len(seen))
}

// Unranked implements core.Tx.
func (t *tx) Unranked(ctx context.Context, applications []int64, most int) ([]core.UnrankedPublication, error) {
	rows, err := t.q.UnrankedPublications(ctx, t.organization, applications, int32(most))
	return convertAll(rows, func(r query.UnrankedPublicationsRow) core.UnrankedPublication {
		return core.UnrankedPublication{ID: r.ID, ApplicationID: r.ApplicationID, Tag: r.Tag, Ref: r.SourceRef, Config: r.SourceConfig}
	}), pg.Classify(err, "read publications without rank of %d applications", len(applications))
}

// ApplicationWithUnranked implements core.Tx.
func (t *tx) ApplicationWithUnranked(ctx context.Context) (int64, error) {
	id, err := t.q.ApplicationWithUnranked(ctx, t.organization)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, pg.Classify(err, "find an application with publications without rank")
}

// SaveRanks implements core.Tx.
func (t *tx) SaveRanks(ctx context.Context, placements map[int64]core.Placement) error {
	p := query.RankPublicationsParams{OrganizationID: t.organization}
	for _, id := range slices.Sorted(maps.Keys(placements)) {
		p.Ids, p.Ranks, p.Taken = append(p.Ids, id), append(p.Ranks, placements[id].Rank), append(p.Taken, placements[id].Taken)
	}
	return pg.Classify(t.q.RankPublications(ctx, p), "rank %d publications", len(placements))
}

// ForgetRanks implements core.Tx.
func (t *tx) ForgetRanks(ctx context.Context, source int64) error {
	return pg.Classify(t.q.ForgetRanks(ctx, t.organization, source), "forget the ranks of source %d", source)
}

// OrganizationsWithUnranked implements core.Store.
func (s *Store) OrganizationsWithUnranked(ctx context.Context) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithUnrankedPublications(ctx)
	return ids, pg.Classify(err, "find organizations with publications without rank")
}

// NewestVersionSets implements core.Reads.
func (r reader) NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error) {
	return byKey(ctx, r, organization, applications, "newest version sets", (*query.Queries).NewestVersionSets,
		keyed(versionSet, func(s core.VersionSet) int64 { return s.ApplicationID }))
}

// SeenDigests implements core.Reads.
func (r reader) SeenDigests(ctx context.Context, organization int64, versions []int64) (map[int64]bool, error) {
	return byKey(ctx, r, organization, versions, "seen digests", (*query.Queries).SeenDigests, func(row query.SeenDigestsRow) (int64, bool) {
		return row.VersionID, row.Seen
	})
}
