// Package origin holds the use cases of provenance: it has the signatures and attestations of versions looked up, stores what they state,
// and searches it by component and by digest (D52).
//
// The registry service looks up and verifies. Package rollout evaluates policies with the result.
package origin

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// OrganizationsWithDueLookups are those with a version to look up, the one that waits longest first.
	OrganizationsWithDueLookups(ctx context.Context, at time.Time) ([]int64, error)
}

// Reads is what is read, also outside of transactions.
type Reads interface {
	// Origins returns the reports about versions, without components; no key for versions that have no image.
	Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error)
	// Components are those of versions, in order of name.
	Components(ctx context.Context, organization int64, versions []int64) (map[int64][]provenance.Component, error)
	EntriesByVersionSet(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.VersionSetEntry, error)
	// WhereComponent and WhereDigest return where versions are live, ordered by application, up to a limit.
	WhereComponent(ctx context.Context, organization int64, c provenance.Component, most int) ([]core.Whereabouts, error)
	WhereDigest(ctx context.Context, organization int64, digest string, most int) ([]core.Whereabouts, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	Reads
	// ClaimLookup claims the version that is due first until a time; false if none is.
	ClaimLookup(ctx context.Context, at, until time.Time) (Lookup, bool, error)
	// SettleLookup stores the outcome of a lookup, and when the version is looked up next; nil for never.
	SettleLookup(ctx context.Context, version int64, due, lookedAt *time.Time, failures int, problem string) error
	// RequestLookup makes a lookup of a version due at a time, unless it is due earlier. NotFound if the version does not exist, or is not
	// an image.
	RequestLookup(ctx context.Context, version int64, at time.Time) error
	// AddReport stores a report as the current one of a version, and indexes its components.
	AddReport(ctx context.Context, version int64, r provenance.Report, at time.Time) error
	// MarkForgeVersion marks what is being rolled out with a version: other commits may have to be green now.
	MarkForgeVersion(ctx context.Context, version int64) error
	// ReviewStopped schedules another evaluation of the passages that a control has stopped.
	ReviewStopped(ctx context.Context, kind core.StopKind, control int64, at time.Time) error
	// LockFactTriggers waits for what triggers that filter by facts or labels decide about a version, and keeps them from deciding until the
	// transaction ends: a decision knows of the report, or SignalFacts of the decision.
	LockFactTriggers(ctx context.Context, version int64) error
	// SignalFacts has those triggers decide again that have declined the newest set, which has the version, because of labels or facts.
	SignalFacts(ctx context.Context, version int64, at time.Time) error
}

// Lookup is a version to look up.
type Lookup struct {
	VersionID int64
	// Reference is the image with its digest.
	Reference string
	CreatedAt time.Time
	// Failures is how many lookups have failed since the last that succeeded.
	Failures int
}

// Prover looks up and verifies what is attached to an image. The error has a class: Unavailable if it is worth trying again.
type Prover interface {
	// Prove reports what verified evidence states, and with claims also what the image itself claims; off reports whether no signer is
	// configured for the organization.
	Prove(
		ctx context.Context, organization int64, image, digest string, claims bool,
	) (report provenance.Report, off bool, err error)
}

// UseCases look up versions and find them. They are safe for concurrent use.
type UseCases struct {
	store  Store
	prover Prover
	clock  clock.Clock
	// wake is called when passages are to be evaluated, and triggers to decide, now.
	wake func()

	mu sync.Mutex
	// turns counts lookups, by organization: the number of its last one, so that no organization waits for all versions of another.
	turns map[int64]int
	count int
}

// inTurn sorts organizations by their last turn, the earliest first.
func (u *UseCases) inTurn(organizations []int64) []int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.SortStableFunc(organizations, func(a, b int64) int { return u.turns[a] - u.turns[b] })
	return organizations
}

// tookTurn puts an organization behind all others.
func (u *UseCases) tookTurn(organization int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
	u.turns[organization] = u.count
}

// New makes the use cases.
func New(store Store, prover Prover, c clock.Clock, wake func()) *UseCases {
	return &UseCases{store: store, prover: prover, clock: c, wake: wake, turns: map[int64]int{}}
}

// The times of lookups. A signature or a scan may come minutes, and a report about vulnerabilities days after the image.
const (
	// claimed is how long a worker may take; then another one takes over.
	claimed = 5 * time.Minute
	// watched is how long a version is looked up again automatically.
	watched = 30 * 24 * time.Hour
	// offFor is the pause between lookups for an organization without signers.
	offFor = time.Hour
	// longest is the longest pause after failures.
	longest = time.Hour
)

// again returns when a version is looked up next after a successful lookup; nil for never.
func again(l Lookup, now time.Time) *time.Time {
	pause := 24 * time.Hour
	switch age := now.Sub(l.CreatedAt); {
	case age < time.Hour:
		pause = 2 * time.Minute
	case age < 24*time.Hour:
		pause = 30 * time.Minute
	case age > watched:
		return nil
	}
	due := now.Add(pause)
	return &due
}

// LookUpDue looks up one due version, of each organization in turn, and stores what is new about it. Passages that policies have stopped
// are then evaluated again. It returns false if none was due.
func (u *UseCases) LookUpDue(ctx context.Context) (version int64, worked bool, err error) {
	organizations, err := u.store.OrganizationsWithDueLookups(ctx, u.clock.Now())
	if err != nil {
		return 0, false, err
	}
	for _, organization := range u.inTurn(organizations) {
		var l Lookup
		var claim bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			now := u.clock.Now()
			l, claim, err = tx.ClaimLookup(ctx, now, now.Add(claimed))
			return err
		})
		if err != nil {
			return 0, false, err
		}
		if claim {
			u.tookTurn(organization)
			return l.VersionID, true, u.lookUp(ctx, organization, l)
		}
	}
	return 0, false, nil
}

func (u *UseCases) lookUp(ctx context.Context, organization int64, l Lookup) error {
	image, digest, _ := strings.Cut(l.Reference, "@")
	before, err := u.store.Origins(ctx, organization, []int64{l.VersionID})
	if err != nil {
		return err
	}
	// A digest claims the same forever: it is read until it is known, with its labels.
	known := before[l.VersionID].Report
	claims := known == nil || known.Claimed == nil || known.Labels == nil
	report, off, failed := u.prover.Prove(ctx, organization, image, digest, claims)
	if ctx.Err() != nil {
		return ctx.Err() // the claim ends by itself
	}
	changed := false
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now := u.clock.Now()
		changed = false
		switch {
		case off:
			due := now.Add(offFor)
			return tx.SettleLookup(ctx, l.VersionID, &due, nil, 0, "")
		case failed != nil:
			pause := min(longest, time.Minute<<min(l.Failures, 6))
			due := now.Add(pause)
			return tx.SettleLookup(ctx, l.VersionID, &due, nil, l.Failures+1, provenance.Cut(failed.Error()))
		}
		report.Bound()
		known, err := u.known(ctx, tx, organization, l.VersionID)
		if err != nil {
			return err
		}
		if known != nil && known.Claimed != nil {
			report.Claimed = known.Claimed
		}
		if known != nil && known.Labels != nil {
			report.Labels = known.Labels
		}
		if changed = known == nil || !same(*known, report); changed {
			if err := tx.LockFactTriggers(ctx, l.VersionID); err != nil {
				return err
			}
			if err := tx.AddReport(ctx, l.VersionID, report, now); err != nil {
				return err
			}
			if err := tx.MarkForgeVersion(ctx, l.VersionID); err != nil {
				return err
			}
			if err := tx.ReviewStopped(ctx, core.StopPolicy, 0, now); err != nil {
				return err
			}
			if err := tx.SignalFacts(ctx, l.VersionID, now); err != nil {
				return err
			}
		}
		return tx.SettleLookup(ctx, l.VersionID, again(l, now), &now, 0, "")
	})
	if err == nil && changed {
		u.wake()
	}
	return err
}

// known is the present report about a version with its components; nil before the first.
func (u *UseCases) known(ctx context.Context, tx Tx, organization, version int64) (*provenance.Report, error) {
	all, err := tx.Origins(ctx, organization, []int64{version})
	if err != nil || all[version].Report == nil {
		return nil, err
	}
	r := *all[version].Report
	if r.Contents != nil {
		components, err := tx.Components(ctx, organization, []int64{version})
		if err != nil {
			return nil, err
		}
		contents := *r.Contents
		contents.Components = components[version]
		r.Contents = &contents
	}
	return &r, nil
}

// same reports whether two reports are equal. Both are bounded, which sorts them.
func same(a, b provenance.Report) bool {
	first, err := a.Encode()
	if err != nil {
		return false
	}
	second, err := b.Encode()
	return err == nil && bytes.Equal(first, second)
}

// LookUp makes a lookup of a version due now.
func (u *UseCases) LookUp(ctx context.Context, a core.Actor, version int64) error {
	if err := a.MaySomewhere(core.ActionLookUpProvenance); err != nil {
		return err
	}
	return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return tx.RequestLookup(ctx, version, u.clock.Now())
	})
}

// Origins returns the provenance of versions; no key for those that are not images.
func (u *UseCases) Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error) {
	return u.store.Origins(ctx, organization, versions)
}

// Components are those of versions, in order of name.
func (u *UseCases) Components(ctx context.Context, organization int64, versions []int64) (map[int64][]provenance.Component, error) {
	return u.store.Components(ctx, organization, versions)
}

// MaxWhere is how many places a search finds.
const MaxWhere = 500

// WhereComponent is where versions are live that have a component: by its name, or by its package URL, with its version or without; at most
// MaxWhere places, the first by application.
func (u *UseCases) WhereComponent(ctx context.Context, a core.Actor, name, version string) ([]core.Whereabouts, error) {
	c := provenance.Component{Name: name, Version: version}
	if strings.HasPrefix(name, "pkg:") {
		c = byURL(name)
	}
	if c.Name == "" || len(name) > provenance.MaxText || len(version) > provenance.MaxText {
		return nil, fault.InvalidFields(fault.Field{
			Name: "/name", Problem: "found no name, or more than 500 bytes; expected the name of a component, or its package URL",
		})
	}
	return u.store.WhereComponent(ctx, a.Organization, c, MaxWhere)
}

// byURL is a component by its package URL: its name is the last part of the path, with the scope of npm packages.
func byURL(url string) provenance.Component {
	path, _, _ := strings.Cut(url, "?")
	path, _, _ = strings.Cut(path, "#")
	if at := strings.LastIndex(path, "@"); at > strings.LastIndex(path, "/") {
		path = path[:at]
	}
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return provenance.Component{}
	}
	name := parts[len(parts)-1]
	if scope := parts[len(parts)-2]; strings.HasPrefix(scope, "%40") {
		name = "@" + strings.TrimPrefix(scope, "%40") + "/" + name
	}
	return provenance.Component{Name: name, PURL: url}
}

// WhereDigest is where versions with a digest are live; at most MaxWhere places, the first by application.
func (u *UseCases) WhereDigest(ctx context.Context, a core.Actor, digest string) ([]core.Whereabouts, error) {
	if digest == "" || len(digest) > provenance.MaxText {
		return nil, fault.InvalidFields(fault.Field{
			Name: "/digest", Problem: "found none, or more than 500 bytes; expected sha256:… of an image, or the SHA of a commit",
		})
	}
	return u.store.WhereDigest(ctx, a.Organization, digest, MaxWhere)
}

// ComponentChange is a component whose versions differ between two version sets.
type ComponentChange struct {
	Name string
	// Before and After are its versions in each set, in order; empty where the set does not have it.
	Before, After []string
}

// maxChanges is how many changes are listed.
const maxChanges = 2000

// ComponentChanges returns the components that differ between two version sets, by name; at most 2000. Known reports whether every image of
// both has an SBOM: otherwise a component that only one of them lists may be in the other as well.
func (u *UseCases) ComponentChanges(
	ctx context.Context, organization, before, after int64,
) (changes []ComponentChange, known bool, err error) {
	entries, err := u.store.EntriesByVersionSet(ctx, organization, []int64{before, after})
	if err != nil {
		return nil, false, err
	}
	var versions [2]map[string][]string
	known = len(entries[before]) > 0 && len(entries[after]) > 0
	for i, set := range []int64{before, after} {
		versions[i] = map[string][]string{}
		var ids []int64
		for _, e := range entries[set] {
			ids = append(ids, e.VersionID)
		}
		components, err := u.store.Components(ctx, organization, ids)
		if err != nil {
			return nil, false, err
		}
		for _, id := range ids {
			known = known && len(components[id]) > 0
			for _, c := range components[id] {
				if !slices.Contains(versions[i][c.Name], c.Version) {
					versions[i][c.Name] = append(versions[i][c.Name], c.Version)
				}
			}
		}
	}
	names := maps.Clone(versions[0])
	maps.Copy(names, versions[1])
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := ComponentChange{Name: name, Before: versions[0][name], After: versions[1][name]}
		slices.Sort(c.Before)
		slices.Sort(c.After)
		if !slices.Equal(c.Before, c.After) && len(changes) < maxChanges {
			changes = append(changes, c)
		}
	}
	return changes, known, nil
}
