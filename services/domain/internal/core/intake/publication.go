package intake

import (
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// SourceOwner is an artifact source and what it belongs to.
type SourceOwner struct {
	SourceID, ServiceID, ApplicationID int64
	// Ref and Config are the source's, and say which of the artifacts it takes.
	Ref    string
	Config json.RawMessage
}

// VersionPublication is a version under a tag.
type VersionPublication struct {
	ArtifactSourceID, VersionID int64
	// Tag is empty for what was published without one.
	Tag  string
	Rank string
	// PublishedAt and AnnouncedAt are those of the publication that counts; Arrival is its place in the order of arrival.
	PublishedAt, AnnouncedAt time.Time
	Arrival                  int64
	// Taken reports whether the source takes the tag, as it is configured.
	Taken bool
	// DigestSeen reports whether the version's digest was seen at the registry; nil where that was never said.
	DigestSeen *bool
	// AliveAt is the last instant at which the version is known to have been at the registry under the tag; PublishedAt or later.
	AliveAt time.Time
}

// SourceNewest is the newest publication of a source; its VersionID is 0 where there is none.
type SourceNewest struct {
	ServiceID int64
	VersionPublication
	// Disabled, Removed and ReplacedBy are the source's; HasVersions and HasSets report whether it has a version, and its application a set.
	Disabled, Removed    bool
	ReplacedBy           int64
	HasVersions, HasSets bool
}

// UnrankedPublication is a publication whose place in the order of its source's selection is not worked out yet.
type UnrankedPublication struct {
	ID, ApplicationID int64
	Tag               string
	// Ref and Config are the source's.
	Ref    string
	Config json.RawMessage
}

// NewVersionSet is a version set that is to be added, and the event that led to it, whose trace it keeps.
type NewVersionSet struct {
	core.VersionSet
	Entries []core.VersionSetEntry
	In      core.Inbound
}
