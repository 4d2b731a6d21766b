package intake

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	// OrganizationsWithSources are those with an artifact source of each match key; no key for one that nobody has. Together
	// with the methods below it is the only look across organizations.
	OrganizationsWithSources(ctx context.Context, matchKeys []string) (map[string][]int64, error)
	// OrganizationsWithUnranked are those with publications whose place in the order of their selection is not worked out.
	OrganizationsWithUnranked(ctx context.Context) ([]int64, error)
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does not have.
type Tx interface {
	core.ChangeTx
	core.TargetReads
	// LockApplication locks one, and answers it.
	LockApplication(ctx context.Context, id int64) (core.Application, error)
	ServicesByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Service, error)
	VersionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Version, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	// VersionsNamed are the versions of an application that have one of some names.
	VersionsNamed(ctx context.Context, application int64, names []string) ([]core.Version, error)
	// CuratedBefore reports whether the same principal has put a set together in the same words, and how many rows the application has,
	// counted up to a bound.
	CuratedBefore(ctx context.Context, c core.Curated, most int) (same bool, items int, err error)
	// AddCurated keeps who has put a set together; Conflict if the application has a set of that name.
	AddCurated(ctx context.Context, c core.Curated) error

	// ClaimAll is Claim for several, in their order.
	ClaimAll(ctx context.Context, all []core.Inbound) (firsts []bool, err error)
	// Applied reports which of some events were claimed before, and takes none.
	Applied(ctx context.Context, all []core.Inbound) ([]bool, error)

	// LockApplications is LockApplication for several; it answers nothing about them.
	LockApplications(ctx context.Context, ids []int64) error
	// SourcesByMatchKeys is where artifacts belong, by key, in the order of applications.
	SourcesByMatchKeys(ctx context.Context, matchKeys []string) (map[string][]SourceOwner, error)
	// VersionsTaken are the versions that have one of some names on their source, or one of some digests: only the source,
	// the name and the digest of what is asked for are read, and of what is answered filled in, with the identifier.
	VersionsTaken(ctx context.Context, names, digests []core.Version) ([]core.Version, error)
	// AddVersions fills in the identifiers, which follow the order of the list.
	AddVersions(ctx context.Context, all []core.Version) error
	// NotifyOfVersions stores moments of versions that were recorded, where a route names them.
	NotifyOfVersions(ctx context.Context, versions []int64, at time.Time) error
	// PublicationsOf is every publication of versions.
	PublicationsOf(ctx context.Context, versions []int64) ([]VersionPublication, error)
	// NewestPublications is the newest publication that counts of every source that decides on version sets of applications, some versions
	// left out, in the order of sources; the version's ID is 0 where there is none.
	NewestPublications(ctx context.Context, applications, without []int64) (map[int64][]SourceNewest, error)
	// SavePublications adds publications, or replaces those of the same version and tag, in their order of arrival.
	SavePublications(ctx context.Context, all []VersionPublication) error
	// SaveSeenDigests says of versions whether their digest was seen.
	SaveSeenDigests(ctx context.Context, seen map[int64]bool) error
	// SaveAlive writes AliveAt alone, where it is later than what was saved.
	SaveAlive(ctx context.Context, all []VersionPublication) error
	// SaveDeletions records what was deleted, each source, digest and tag once, and answers the versions that it may concern.
	SaveDeletions(ctx context.Context, all []Deletion) (versions []int64, err error)
	// MarkDeleted marks the publications of versions as the recorded deletions have it; repeated, it is a no-op.
	MarkDeleted(ctx context.Context, versions []int64) error
	// NotifyOfDeletions stores moments of those versions that their registry does not have any more, where a route names them, once for each
	// deletion.
	NotifyOfDeletions(ctx context.Context, versions []int64, at time.Time) error
	// ForgetDeletions drops deletions that were recorded before an instant, as many as most at once; the marks stay.
	ForgetDeletions(ctx context.Context, before time.Time, most int) error
	// Unranked are publications of applications whose place in the order of their selection is not worked out, at most so many.
	Unranked(ctx context.Context, applications []int64, most int) ([]UnrankedPublication, error)
	// ApplicationWithUnranked is the application of such a publication; 0 where there is none.
	ApplicationWithUnranked(ctx context.Context) (int64, error)
	// SaveRanks says where publications are in the order of their selections, and whether they are taken.
	SaveRanks(ctx context.Context, placements map[int64]Placement) error
	// VersionSetsTaken are those of some contents that their applications have: application and digest are read, and filled in with the
	// identifier.
	VersionSetsTaken(ctx context.Context, all []core.VersionSet) ([]core.VersionSet, error)
	// LastVersionSets are the names of the sets made last, for the names of the next ones; no key for an application that has
	// none. The caller holds the applications' locks.
	LastVersionSets(ctx context.Context, applications []int64) (map[int64]string, error)
	// NewestVersionSets is the newest set of each application that has one, and EntriesByVersionSet what sets consist of.
	NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error)
	EntriesByVersionSet(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.VersionSetEntry, error)
	// SaveNewestVersionSets says which set of each application is the newest, and answers the applications of which it was another one.
	SaveNewestVersionSets(ctx context.Context, sets map[int64]int64) (changed []int64, err error)
	// SignalTriggers gives the triggers of a kind that applications have something to decide about, by application. It is idempotent.
	SignalTriggers(ctx context.Context, kind core.TriggerKind, causes map[int64]string, at time.Time) error
	// AddVersionSets adds sets, each with all of its entries, and fills in the identifiers; none ever gets another entry (E8).
	AddVersionSets(ctx context.Context, all []NewVersionSet) error
}
