package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Artifact is what a registry says has been published.
type Artifact struct {
	Image, Digest, Tag string
	// PublishedAt decides which version is the latest, whatever order events come in. The clock of whoever published is
	// not ours: an instant in the future counts as now.
	PublishedAt time.Time
}

// PublishArtifact records a version on every source that points at the artifact, in every organization (or in the event's
// own, if it has one), and a version set of each application concerned (R48, E61). Again is nothing: every write asks
// first whether it has been made, so the claim that ends it is only the receipt.
func (d *Domain) PublishArtifact(ctx context.Context, in Inbound, art Artifact) error {
	key, err := d.sources.KeyOf(art.Image)
	if err != nil {
		return fault.InvalidFields(fault.Field{Name: "data.image", Problem: err.Error()})
	}
	if now := d.clock.Now(); art.PublishedAt.IsZero() || art.PublishedAt.After(now) {
		art.PublishedAt = now
	}
	organizations := []int64{in.Organization}
	if in.Organization == 0 {
		if organizations, err = d.store.OrganizationsWithSource(ctx, key); err != nil {
			return err
		}
	}
	for _, organization := range organizations {
		if err := d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error { return d.publish(ctx, tx, key, art) }); err != nil {
			return fmt.Errorf("publish %s in organization %d: %w", art.Image, organization, err)
		}
	}
	return d.store.In(ctx, in.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Claim(ctx, in)
		return err
	})
}

// publish does one organization, application after application, each locked: versions get their names, and sets are
// made, one after the other.
func (d *Domain) publish(ctx context.Context, tx Tx, key string, art Artifact) error {
	owners, err := tx.SourcesByMatchKey(ctx, key)
	if err != nil {
		return err
	}
	owners = slices.DeleteFunc(owners, func(o SourceOwner) bool { return !d.sources.Takes(o.Ref, o.Config, art.Tag) })
	for i, o := range owners {
		if i == 0 || owners[i-1].ApplicationID != o.ApplicationID {
			if _, err := tx.LockApplication(ctx, o.ApplicationID); err != nil {
				return err
			}
		}
		if err := addVersion(ctx, tx, o.SourceID, art); err != nil {
			return err
		}
		if i == len(owners)-1 || owners[i+1].ApplicationID != o.ApplicationID {
			if err := addVersionSet(ctx, tx, o.ApplicationID); err != nil {
				return err
			}
		}
	}
	return nil
}

// addVersion records the artifact on a source. The digest is its identity: a second tag for it is no second version. Its
// name is the tag, or the first twelve digits of the digest where there is no tag. A tag that has moved to another digest
// gives "<tag>-<twelve digits>", and, should even that be taken, "<tag>-<all digits>": names stay unique and old ones
// keep their meaning.
func addVersion(ctx context.Context, tx Tx, source int64, art Artifact) error {
	hex := art.Digest[strings.IndexByte(art.Digest, ':')+1:] // a commit's SHA stands alone
	short := hex[:min(12, len(hex))]
	names := []string{short, short + "-" + hex, hex}
	if art.Tag != "" {
		names = []string{art.Tag, art.Tag + "-" + short, art.Tag + "-" + hex}
	}
	taken, err := tx.VersionNames(ctx, source, names, art.Digest)
	if err != nil {
		return err
	}
	if _, known := taken[art.Digest]; known {
		return nil
	}
	inUse := map[string]bool{}
	for _, name := range taken {
		inUse[name] = true
	}
	i := slices.IndexFunc(names, func(name string) bool { return !inUse[name] })
	if i < 0 {
		return fault.New(fault.Conflict, "no name is left for %s on source %d", art.Digest, source)
	}
	_, err = tx.AddVersion(ctx, Version{
		ArtifactSourceID: source, Name: names[i], Digest: art.Digest, PublishedAt: art.PublishedAt,
		Reference: imageOf(art.Image) + "@" + art.Digest,
	})
	return err
}

// addVersionSet makes the set of the latest versions of an application, once every source has one and unless it exists
// already (R9).
func addVersionSet(ctx context.Context, tx Tx, application int64) error {
	entries, err := tx.LatestVersions(ctx, application)
	if err != nil {
		return err
	}
	if len(entries) == 0 || slices.ContainsFunc(entries, func(e VersionSetEntry) bool { return e.VersionID == 0 }) {
		return nil
	}
	digest := EntriesDigest(entries)
	if exists, err := tx.VersionSetByDigest(ctx, application, digest); err != nil || exists {
		return err
	}
	// The application is locked and no set is ever deleted, so the count gives a name that is free (R6).
	before, err := tx.CountVersionSets(ctx, application)
	if err != nil {
		return err
	}
	_, err = tx.AddVersionSet(ctx, VersionSet{
		ApplicationID: application, Name: "set-" + strconv.Itoa(before+1), EntriesDigest: digest,
	}, entries)
	return err
}

// EntriesDigest identifies the content of a version set: SHA-256 over its (source, version) pairs in the order of sources.
func EntriesDigest(entries []VersionSetEntry) string {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b VersionSetEntry) int { return int(a.ArtifactSourceID - b.ArtifactSourceID) })
	h := sha256.New()
	for _, e := range sorted {
		// Digests are stored and compared for ever: another form would make every set a new one (R9).
		fmt.Fprintf(h, "%d:%d\n", e.ArtifactSourceID, e.VersionID)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// imageOf is the image without tag and digest, spelled as it came.
func imageOf(image string) string {
	image, _, _ = strings.Cut(strings.TrimSpace(image), "@")
	if slash, colon := strings.LastIndexByte(image, '/'), strings.LastIndexByte(image, ':'); colon > slash {
		image = image[:colon]
	}
	return image
}
