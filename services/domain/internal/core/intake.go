package core

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// told is a publication with the key of the sources that point at its artifact.
type told struct {
	Publication
	key string
}

// intake brings publications into the tables of one organization. Each table is read once and written once, however many
// publications there are; in between, what they lead to is worked out here, one after the other.
type intake struct {
	d   *Domain
	all []told

	// owners are the sources that take each publication, in the order of applications; applications are all of theirs.
	owners       [][]SourceOwner
	applications []int64
	// names and digests are those in use on each source, versions what is to be added, by source and digest.
	names, digests map[onSource]bool
	versions       []Version
	added          map[onSource]int
}

// onSource is a name or a digest on a source.
type onSource struct {
	source int64
	text   string
}

func newIntake(d *Domain, all []told) *intake {
	return &intake{
		d: d, all: all, owners: make([][]SourceOwner, len(all)), names: map[onSource]bool{}, digests: map[onSource]bool{}, added: map[onSource]int{},
	}
}

func (k *intake) run(ctx context.Context, tx Tx) error {
	if err := k.findOwners(ctx, tx); err != nil || len(k.applications) == 0 {
		return err
	}
	// Versions get their names, and sets are made, one after the other.
	if err := tx.LockApplications(ctx, k.applications); err != nil {
		return err
	}
	if err := k.nameVersions(ctx, tx); err != nil {
		return err
	}
	latest, err := tx.LatestVersions(ctx, k.applications)
	if err != nil {
		return err
	}
	if len(k.versions) > 0 {
		if err := tx.AddVersions(ctx, k.versions); err != nil {
			return err
		}
	}
	return k.addSets(ctx, tx, k.sets(latest))
}

// findOwners finds the sources that take each publication.
func (k *intake) findOwners(ctx context.Context, tx Tx) error {
	var keys []string
	for _, t := range k.all {
		keys = append(keys, t.key)
	}
	slices.Sort(keys)
	known, err := tx.SourcesByMatchKeys(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	for i, t := range k.all {
		for _, o := range known[t.key] {
			if k.d.sources.Takes(o.Ref, o.Config, t.Artifact.Tag) {
				k.owners[i], k.applications = append(k.owners[i], o), append(k.applications, o.ApplicationID)
			}
		}
	}
	k.applications = distinct(k.applications)
	return nil
}

// nameVersions finds out which publications are new on which sources, and what the new versions are called. The digest is a
// version's identity: a second tag for it is no second version. Its name is the tag, or the first twelve digits of the
// digest where there is no tag. A tag that has moved to another digest gives "<tag>-<twelve digits>", and, should even that
// be taken, "<tag>-<all digits>": names stay unique and old ones keep their meaning.
func (k *intake) nameVersions(ctx context.Context, tx Tx) error {
	var names, digests []Version
	for i, t := range k.all {
		for _, o := range k.owners[i] {
			digests = append(digests, Version{ArtifactSourceID: o.SourceID, Digest: t.Artifact.Digest})
			for _, name := range namesOf(t.Artifact) {
				names = append(names, Version{ArtifactSourceID: o.SourceID, Name: name})
			}
		}
	}
	taken, err := tx.VersionsTaken(ctx, names, digests)
	if err != nil {
		return err
	}
	for _, v := range taken {
		k.names[onSource{v.ArtifactSourceID, v.Name}], k.digests[onSource{v.ArtifactSourceID, v.Digest}] = true, true
	}
	for i, t := range k.all {
		for _, o := range k.owners[i] {
			if err := k.nameVersion(o.SourceID, t.Artifact); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *intake) nameVersion(source int64, art Artifact) error {
	digest := onSource{source, art.Digest}
	if k.digests[digest] {
		return nil
	}
	names := namesOf(art)
	i := slices.IndexFunc(names, func(name string) bool { return !k.names[onSource{source, name}] })
	if i < 0 {
		return fault.New(fault.Conflict, "no name is left for %s on source %d", art.Digest, source)
	}
	k.digests[digest], k.names[onSource{source, names[i]}], k.added[digest] = true, true, len(k.versions)
	k.versions = append(k.versions, Version{
		ArtifactSourceID: source, Name: names[i], Digest: art.Digest, PublishedAt: art.PublishedAt, Reference: imageOf(art.Image) + "@" + art.Digest,
	})
	return nil
}

// namesOf are the names that a version of an artifact may have, the first that is free.
func namesOf(art Artifact) []string {
	hex := art.Digest[strings.IndexByte(art.Digest, ':')+1:] // a commit's SHA stands alone
	short := hex[:min(12, len(hex))]
	if art.Tag == "" {
		return []string{short, short + "-" + hex, hex}
	}
	return []string{art.Tag, art.Tag + "-" + short, art.Tag + "-" + hex}
}

// sets are those of the latest versions after each publication, of each application that it concerns once every source has
// one: also those that exist. Before the first publication, latest is what the tables say.
func (k *intake) sets(latest map[int64][]LatestVersion) []NewVersionSet {
	var sets []NewVersionSet
	seen := map[string]bool{}
	for i, t := range k.all {
		for n, o := range k.owners[i] {
			of := latest[o.ApplicationID]
			if at, isNew := k.added[onSource{o.SourceID, t.Artifact.Digest}]; isNew {
				k.succeed(of, k.versions[at])
			}
			// An artifact that several sources of an application take changes all of them at once.
			if n < len(k.owners[i])-1 && k.owners[i][n+1].ApplicationID == o.ApplicationID {
				continue
			}
			if len(of) == 0 || slices.ContainsFunc(of, func(l LatestVersion) bool { return l.VersionID == 0 }) {
				continue
			}
			entries := make([]VersionSetEntry, len(of))
			for j, l := range of {
				entries[j] = VersionSetEntry{ServiceID: l.ServiceID, ArtifactSourceID: l.ArtifactSourceID, VersionID: l.VersionID}
			}
			// The numbers of sources and versions are nobody else's, so neither is the digest.
			if digest := EntriesDigest(entries); !seen[digest] {
				seen[digest] = true
				sets = append(sets, NewVersionSet{VersionSet: VersionSet{ApplicationID: o.ApplicationID, EntriesDigest: digest}, Entries: entries, In: t.In})
			}
		}
	}
	return sets
}

// succeed makes a version the latest of its source, if it is: of two of the same instant, the one with the higher number.
func (k *intake) succeed(all []LatestVersion, v Version) {
	for i, l := range all {
		if l.ArtifactSourceID == v.ArtifactSourceID && (l.VersionID == 0 || v.PublishedAt.After(l.PublishedAt) || v.PublishedAt.Equal(l.PublishedAt) && v.ID > l.VersionID) {
			all[i].VersionID, all[i].PublishedAt = v.ID, v.PublishedAt
		}
	}
}

// addSets adds those that do not exist yet (R9), in their order.
func (k *intake) addSets(ctx context.Context, tx Tx, sets []NewVersionSet) error {
	if len(sets) == 0 {
		return nil
	}
	asked := make([]VersionSet, len(sets))
	for i, s := range sets {
		asked[i] = s.VersionSet
	}
	exist, err := tx.VersionSetsTaken(ctx, asked)
	if err != nil {
		return err
	}
	sets = slices.DeleteFunc(sets, func(s NewVersionSet) bool {
		return slices.ContainsFunc(exist, func(e VersionSet) bool {
			return e.ApplicationID == s.ApplicationID && e.EntriesDigest == s.EntriesDigest
		})
	})
	if len(sets) == 0 {
		return nil
	}
	newest, err := tx.NewestVersionSets(ctx, k.applications)
	if err != nil {
		return err
	}
	numbers := map[int64]int{}
	for application, name := range newest {
		if numbers[application], err = strconv.Atoi(strings.TrimPrefix(name, setPrefix)); err != nil {
			return fault.Because(err, fault.Internal, "found version set %q of application %d, expected %s<number>", name, application, setPrefix)
		}
	}
	for i, s := range sets {
		// The applications are locked and no set is ever deleted, so the number behind the newest is free (R6).
		numbers[s.ApplicationID]++
		sets[i].Name = setPrefix + strconv.Itoa(numbers[s.ApplicationID])
	}
	return tx.AddVersionSets(ctx, sets)
}

// setPrefix begins the name of every version set; its number follows.
const setPrefix = "set-"
