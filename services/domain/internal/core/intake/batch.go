package intake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// announced is a publication with the key of the sources that point at its artifact.
type announced struct {
	Publication
	key string
}

// batch brings publications into the tables of one organization. Each table is read once and written once, however many
// publications there are; in between, what they lead to is worked out here, one after the other.
type batch struct {
	d   *UseCases
	all []announced

	// owners are the sources that take each publication, in the order of applications; applications are all of theirs.
	owners       [][]owner
	applications []int64
	// repeated are the publications whose event was claimed before.
	repeated []bool
	// names and digests are those in use on each source, with the version's identifier; versions is what is to be added.
	names    map[onSource]bool
	digests  map[onSource]int64
	versions []core.Version
}

// owner is a source with what it makes of one publication.
type owner struct {
	SourceOwner
	placement Placement
}

// onSource is a name or a digest on a source.
type onSource struct {
	source int64
	text   string
}

func newBatch(u *UseCases, all []announced) *batch {
	return &batch{d: u, all: all, owners: make([][]owner, len(all)), names: map[onSource]bool{}, digests: map[onSource]int64{}}
}

func (k *batch) run(ctx context.Context, tx Tx) error {
	if err := k.findOwners(ctx, tx); err != nil || len(k.applications) == 0 {
		return err
	}
	// Versions get their names, and sets are made, one after the other.
	if err := tx.LockApplications(ctx, k.applications); err != nil {
		return err
	}
	if _, err := k.d.rank(ctx, tx, k.applications, 0); err != nil {
		return err
	}
	if err := k.findRepeated(ctx, tx); err != nil {
		return err
	}
	if err := k.nameVersions(ctx, tx); err != nil {
		return err
	}
	if err := k.addVersions(ctx, tx); err != nil {
		return err
	}
	s, err := readShelves(ctx, tx, k.applications, core.Distinct(slices.Collect(maps.Values(k.digests))))
	if err != nil {
		return err
	}
	var sets []NewVersionSet
	for i, t := range k.all {
		sets = append(sets, k.publish(s, i, t)...)
	}
	if err := s.save(ctx, tx); err != nil {
		return err
	}
	return addSets(ctx, tx, k.applications, sets, k.d.clock.Now(), false)
}

// findOwners finds the sources that take each publication.
func (k *batch) findOwners(ctx context.Context, tx Tx) error {
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
			if placement := k.d.matcher.Placement(o.Ref, o.Config, t.Artifact.Tag); placement.Taken {
				k.owners[i], k.applications = append(k.owners[i], owner{o, placement}), append(k.applications, o.ApplicationID)
			}
		}
	}
	k.applications = core.Distinct(k.applications)
	return nil
}

// findRepeated finds the events that came before, in the tables or in the list.
func (k *batch) findRepeated(ctx context.Context, tx Tx) error {
	events := make([]core.Inbound, len(k.all))
	for i, t := range k.all {
		events[i] = t.In
	}
	var err error
	k.repeated, err = tx.Applied(ctx, events)
	return err
}

// nameVersions finds out which publications are new on which sources, and what the new versions are called. The digest is a
// version's identity: a second tag for it is no second version. Its name is the tag, or the first twelve digits of the
// digest where there is no tag. A tag that has moved to another digest gives "<tag>-<twelve digits>", and, should even that
// be taken, "<tag>-<all digits>": names stay unique and old ones keep their meaning.
func (k *batch) nameVersions(ctx context.Context, tx Tx) error {
	var names, digests []core.Version
	for i, t := range k.all {
		for _, o := range k.owners[i] {
			digests = append(digests, core.Version{ArtifactSourceID: o.SourceID, Digest: t.Artifact.Digest})
			for _, name := range namesOf(t.Artifact) {
				names = append(names, core.Version{ArtifactSourceID: o.SourceID, Name: name})
			}
		}
	}
	taken, err := tx.VersionsTaken(ctx, names, digests)
	if err != nil {
		return err
	}
	for _, v := range taken {
		k.names[onSource{v.ArtifactSourceID, v.Name}], k.digests[onSource{v.ArtifactSourceID, v.Digest}] = true, v.ID
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

func (k *batch) nameVersion(source int64, art Artifact) error {
	digest := onSource{source, art.Digest}
	if _, known := k.digests[digest]; known {
		return nil
	}
	names := namesOf(art)
	i := slices.IndexFunc(names, func(name string) bool { return !k.names[onSource{source, name}] })
	if i < 0 {
		return fault.New(fault.Conflict, "no name is left for %s on source %d", art.Digest, source)
	}
	k.digests[digest], k.names[onSource{source, names[i]}] = 0, true
	k.versions = append(k.versions, core.Version{
		ArtifactSourceID: source, Name: names[i], Digest: art.Digest, PublishedAt: art.PublishedAt,
		Reference: imageOf(art.Image) + "@" + art.Digest, CommitMessage: art.CommitMessage,
		Change: art.Change,
	})
	return nil
}

func (k *batch) addVersions(ctx context.Context, tx Tx) error {
	if len(k.versions) == 0 {
		return nil
	}
	if err := tx.AddVersions(ctx, k.versions); err != nil {
		return err
	}
	ids := make([]int64, len(k.versions))
	for i, v := range k.versions {
		k.digests[onSource{v.ArtifactSourceID, v.Digest}], ids[i] = v.ID, v.ID
	}
	return tx.NotifyOfVersions(ctx, ids, k.d.clock.Now())
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

// publish puts one publication on the shelves of its sources, and answers the newest sets afterwards of the applications that it concerns:
// also those that exist.
func (k *batch) publish(s *shelves, i int, t announced) []NewVersionSet {
	var sets []NewVersionSet
	for n, o := range k.owners[i] {
		s.publish(k.digests[onSource{o.SourceID, t.Artifact.Digest}], o, t.Artifact, k.repeated[i])
		// An artifact that several sources of an application take changes all of them at once.
		if n < len(k.owners[i])-1 && k.owners[i][n+1].ApplicationID == o.ApplicationID {
			continue
		}
		if set, whole := s.set(o.ApplicationID); whole {
			set.In = t.In
			sets = append(sets, set)
		}
	}
	return sets
}

// addSets adds those that do not exist yet (R9), in their order, makes the last one of each application its newest, and has the triggers of
// new sets decide (D58), unless quiet. A set that a person had put together before is new when it becomes the newest.
func addSets(ctx context.Context, tx Tx, applications []int64, sets []NewVersionSet, at time.Time, quiet bool) error {
	if len(sets) == 0 {
		return nil
	}
	asked := make([]core.VersionSet, len(sets))
	for i, s := range sets {
		asked[i] = s.VersionSet
	}
	exist, err := tx.VersionSetsTaken(ctx, asked)
	if err != nil {
		return err
	}
	// The numbers of sources and versions belong to one application, and so does the digest of a set.
	ids, curated := map[string]int64{}, map[int64]bool{}
	for _, e := range exist {
		ids[e.EntriesDigest], curated[e.ID] = e.ID, e.Curated
	}
	var missing []NewVersionSet
	for _, s := range sets {
		if _, known := ids[s.EntriesDigest]; !known {
			ids[s.EntriesDigest], missing = 0, append(missing, s)
		}
	}
	if err := addMissingSets(ctx, tx, applications, missing); err != nil {
		return err
	}
	added := map[int64]string{}
	for _, s := range missing {
		ids[s.EntriesDigest] = s.ID
		added[s.ApplicationID] = fmt.Sprintf("set:%d", s.ID)
	}
	newest := map[int64]int64{}
	for _, s := range sets {
		newest[s.ApplicationID] = ids[s.EntriesDigest]
	}
	changed, err := tx.SaveNewestVersionSets(ctx, newest)
	if err != nil || quiet {
		return err
	}
	for _, application := range changed {
		if set := newest[application]; curated[set] { // triggers have not heard of it when it was put together
			added[application] = fmt.Sprintf("set:%d", set)
		}
	}
	if err := tx.SignalTriggers(ctx, core.TriggerVersion, added, at); err != nil {
		return err
	}
	return tx.SignalTriggers(ctx, core.TriggerGit, added, at)
}

func addMissingSets(ctx context.Context, tx Tx, applications []int64, sets []NewVersionSet) error {
	if len(sets) == 0 {
		return nil
	}
	last, err := tx.LastVersionSets(ctx, applications)
	if err != nil {
		return err
	}
	numbers := map[int64]int{}
	for application, name := range last {
		if numbers[application], err = strconv.Atoi(strings.TrimPrefix(name, setPrefix)); err != nil {
			return fault.Because(err, fault.Internal, "found version set %q of application %d, expected %s<number>", name, application, setPrefix)
		}
	}
	for i, s := range sets {
		// The applications are locked and no set is ever deleted, so the number behind the last is free (R6).
		numbers[s.ApplicationID]++
		sets[i].Name = setPrefix + strconv.Itoa(numbers[s.ApplicationID])
	}
	return tx.AddVersionSets(ctx, sets)
}

// setPrefix begins the name of every version set; its number follows.
const setPrefix = "set-"
