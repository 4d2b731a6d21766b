package intake

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// shelves are the publications of the sources of some applications that the newest version of each is chosen from: all of some versions,
// which may change, and beside them the newest of all others.
type shelves struct {
	// slots are the sources of each application, in their order.
	slots map[int64][]slot
	// hasSets are the applications that have a version set.
	hasSets map[int64]bool
	// takes are the sources that take versions: neither disabled nor removed, also not since they were found.
	takes map[int64]bool
	// others is the newest publication of each source among the versions that do not change; VersionID 0 for none.
	others map[int64]VersionPublication
	// on are the publications of the versions that may change, by source.
	on map[int64]map[underTag]*shelved
	// seen says of versions whether their digest was seen; seenNow are those of which that has changed.
	seen, seenNow map[int64]bool
	// arrivals counts what arrives here: it is later than everything that is stored.
	arrivals int64
}

// slot is a source of an application: its newest version is worked out when a set is made.
type slot = core.SourceInSet

// underTag is a version under a tag.
type underTag struct {
	version int64
	tag     string
}

// shelved is a publication; changed is whether it is to be saved, added whether it is new, and seenAgain whether only AliveAt is to be
// saved.
type shelved struct {
	VersionPublication
	changed, added, seenAgain bool
}

func readShelves(ctx context.Context, tx Tx, applications, versions []int64) (*shelves, error) {
	s := &shelves{
		slots: map[int64][]slot{}, hasSets: map[int64]bool{}, takes: map[int64]bool{}, others: map[int64]VersionPublication{},
		on:   map[int64]map[underTag]*shelved{},
		seen: map[int64]bool{}, seenNow: map[int64]bool{}, arrivals: math.MaxInt64 / 2,
	}
	newest, err := tx.NewestPublications(ctx, applications, versions)
	if err != nil {
		return nil, err
	}
	for application, sources := range newest {
		for _, n := range sources {
			s.slots[application] = append(s.slots[application], slot{
				ServiceID: n.ServiceID, SourceID: n.ArtifactSourceID, Disabled: n.Disabled, Removed: n.Removed, ReplacedBy: n.ReplacedBy,
				HasVersions: n.HasVersions,
			})
			s.hasSets[application], s.takes[n.ArtifactSourceID] = n.HasSets, !n.Disabled && !n.Removed
			s.others[n.ArtifactSourceID], s.on[n.ArtifactSourceID] = n.VersionPublication, map[underTag]*shelved{}
		}
	}
	if len(versions) == 0 {
		return s, nil
	}
	known, err := tx.PublicationsOf(ctx, versions)
	if err != nil {
		return nil, err
	}
	for _, p := range known {
		if s.on[p.ArtifactSourceID] == nil {
			continue // removed since it was found
		}
		s.on[p.ArtifactSourceID][underTag{p.VersionID, p.Tag}] = &shelved{VersionPublication: p}
		if p.DigestSeen != nil {
			s.seen[p.VersionID] = *p.DigestSeen
		}
	}
	return s, nil
}

// publish puts a version under a tag. A repeated event only adds what is missing: it says nothing about where the tag is now.
func (s *shelves) publish(version int64, o owner, art Artifact, repeated bool) {
	if !s.takes[o.SourceID] {
		return
	}
	if seen := art.DigestSeen; seen != nil {
		// What was seen once did exist; and what a poll has not found is not assumed to exist because other reports are silent about it.
		if before, known := s.seen[version]; !known || *seen && !before {
			s.seen[version], s.seenNow[version] = *seen, *seen
		}
	}
	key := underTag{version, art.Tag}
	p, known := s.on[o.SourceID][key]
	if !known {
		p = &shelved{added: true}
		s.on[o.SourceID][key] = p
	}
	if art.AliveAt.After(p.AliveAt) {
		p.AliveAt, p.seenAgain = art.AliveAt, true
	}
	if known {
		order := cmp.Or(art.PublishedAt.Compare(p.PublishedAt), art.AnnouncedAt.Compare(p.AnnouncedAt))
		if repeated || order == 0 || (order < 0) != o.placement.Earliest {
			return
		}
	}
	s.arrivals++
	*p = shelved{changed: true, added: p.added, VersionPublication: VersionPublication{
		ArtifactSourceID: o.SourceID, VersionID: version, Tag: art.Tag, Rank: o.placement.Rank,
		PublishedAt: art.PublishedAt, AnnouncedAt: art.AnnouncedAt, Arrival: s.arrivals, Taken: true, AliveAt: p.AliveAt,
	}}
}

// newest is the newest publication of a source that counts; its VersionID is 0 where there is none.
func (s *shelves) newest(source int64) VersionPublication {
	best := s.others[source]
	for _, p := range s.on[source] {
		if seen, known := s.seen[p.VersionID]; known && !seen || !p.Taken {
			continue
		}
		if best.VersionID == 0 || newer(p.VersionPublication, best) > 0 {
			best = p.VersionPublication
		}
	}
	return best
}

// newer compares publications of a source: by the order of its selection, then by time, then by arrival.
func newer(a, b VersionPublication) int {
	return cmp.Or(
		cmp.Compare(a.Rank, b.Rank), a.PublishedAt.Compare(b.PublishedAt), a.AnnouncedAt.Compare(b.AnnouncedAt),
		cmp.Compare(a.Arrival, b.Arrival),
	)
}

// set is the next version set of an application (core.Compose); false while it waits for a source.
func (s *shelves) set(application int64) (NewVersionSet, bool) {
	sources := slices.Clone(s.slots[application])
	for i := range sources {
		if sources[i].Newest = s.newest(sources[i].SourceID).VersionID; sources[i].Newest != 0 {
			sources[i].HasVersions = true
		}
	}
	made := core.Compose(sources, s.hasSets[application])
	if !made.Whole() {
		return NewVersionSet{}, false
	}
	s.hasSets[application] = true
	return NewVersionSet{
		VersionSet: core.VersionSet{ApplicationID: application, EntriesDigest: core.EntriesDigest(made.Entries)}, Entries: made.Entries,
	}, true
}

// save stores what has changed, in the order of arrival.
func (s *shelves) save(ctx context.Context, tx Tx) error {
	var (
		changed, again []VersionPublication
		added          []int64
	)
	for _, on := range s.on {
		for _, p := range on {
			if p.added {
				added = append(added, p.VersionID)
			}
			if p.seenAgain && !p.changed {
				again = append(again, p.VersionPublication)
			}
			if p.changed {
				if seen, known := s.seen[p.VersionID]; known {
					p.DigestSeen = &seen
				}
				changed = append(changed, p.VersionPublication)
			}
		}
	}
	slices.SortFunc(changed, func(a, b VersionPublication) int { return cmp.Compare(a.Arrival, b.Arrival) })
	if len(changed) > 0 {
		if err := tx.SavePublications(ctx, changed); err != nil {
			return err
		}
	}
	if len(again) > 0 {
		if err := tx.SaveAlive(ctx, again); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		if err := tx.MarkDeleted(ctx, core.Distinct(added)); err != nil {
			return err
		}
	}
	if len(s.seenNow) == 0 {
		return nil
	}
	return tx.SaveSeenDigests(ctx, s.seenNow)
}

// rankAtOnce is how many publications get their place in the order of a selection in one statement.
const rankAtOnce = 1000

// rank works out the place of publications of applications that have none yet: those that another release or a change of the selection
// has left. At most is how many; 0 for all. It answers whether there may be more. The caller holds the applications' locks.
func (u *UseCases) rank(ctx context.Context, tx Tx, applications []int64, atMost int) (more bool, err error) {
	for done := 0; atMost == 0 || done < atMost; done += rankAtOnce {
		unranked, err := tx.Unranked(ctx, applications, rankAtOnce)
		if err != nil || len(unranked) == 0 {
			return false, err
		}
		placements := make(map[int64]Placement, len(unranked))
		for _, p := range unranked {
			placements[p.ID] = u.matcher.Placement(p.Ref, p.Config, p.Tag)
		}
		if err := tx.SaveRanks(ctx, placements); err != nil {
			return false, err
		}
	}
	return true, nil
}

// goesWithout reports whether a set has no version that the newest one has not: a source was removed, or a service was retired. There is
// nothing to roll out for a trigger.
func goesWithout(ctx context.Context, tx Tx, organization int64, set NewVersionSet) (bool, error) {
	newest, err := tx.NewestVersionSets(ctx, organization, []int64{set.ApplicationID})
	if err != nil {
		return false, err
	}
	entries, err := tx.EntriesByVersionSet(ctx, organization, []int64{newest[set.ApplicationID].ID})
	for _, e := range set.Entries {
		known := func(n core.VersionSetEntry) bool { return n.VersionID == e.VersionID }
		if !slices.ContainsFunc(entries[newest[set.ApplicationID].ID], known) {
			return false, err
		}
	}
	return true, err
}

// rankPerTurn is how many publications RankDue ranks in one transaction.
const rankPerTurn = 5 * rankAtOnce

// RankDue works out the newest version set of the next application of which publications have no place in the order of their selection:
// after an upgrade, beside an older release, and when a selection, a source or a service has changed. It answers the application; false
// when there was none.
func (u *UseCases) RankDue(ctx context.Context) (application int64, worked bool, err error) {
	organizations, err := u.store.OrganizationsWithUnranked(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, organization := range organizations {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if application, err = tx.ApplicationWithUnranked(ctx); err != nil || application == 0 {
				return err
			}
			applications := []int64{application}
			if err := tx.LockApplications(ctx, applications); err != nil {
				return err
			}
			if more, err := u.rank(ctx, tx, applications, rankPerTurn); err != nil || more {
				return err
			}
			s, err := readShelves(ctx, tx, applications, nil)
			if err != nil {
				return err
			}
			set, whole := s.set(application)
			if !whole {
				return nil
			}
			quiet, err := goesWithout(ctx, tx, organization, set)
			if err != nil {
				return err
			}
			return addSets(ctx, tx, applications, []NewVersionSet{set}, u.clock.Now(), quiet)
		})
		if err != nil || application != 0 {
			return application, err == nil, err
		}
	}
	return 0, false, nil
}
