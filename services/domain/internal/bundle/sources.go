package bundle

import (
	"encoding/json"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Sources is setup.Sources and intake.Matcher over pkg/source.
type Sources struct{}

var _ setup.Sources = Sources{}

// Kinds implements setup.Sources.
func (Sources) Kinds() []setup.SourceKind {
	var all []setup.SourceKind
	for _, k := range source.Kinds() {
		all = append(all, setup.SourceKind{Ref: k.Ref, Schema: k.Schema})
	}
	return all
}

// Key implements setup.Sources.
func (Sources) Key(ref string, config json.RawMessage) (string, []fault.Field) {
	s, found := source.Parse(ref, config)
	if found != nil {
		return "", found
	}
	return s.Key(), nil
}

// KeyOf implements intake.Matcher.
func (Sources) KeyOf(image string) (string, error) { return source.ImageKey(image) }

// Placement implements intake.Matcher.
func (Sources) Placement(ref string, config json.RawMessage, tag string) intake.Placement {
	s, found := source.Parse(ref, config)
	if found != nil {
		// What a newer release of ours has made of it is not understood here: take it, as the key alone says.
		return intake.Placement{Taken: true}
	}
	return intake.Placement{Taken: s.Takes(tag), Rank: s.Rank(tag), Earliest: s.Earliest()}
}

// Repositories is trigger.Repositories over pkg/source.
type Repositories struct{}

// Name implements trigger.Repositories.
func (Repositories) Name(repository string) string {
	if !strings.Contains(repository, "://") {
		repository = "https://" + repository
	}
	return source.RepositoryName(repository)
}

// KeyPrefix implements trigger.Repositories.
func (Repositories) KeyPrefix(name string) string { return source.KeyPrefix(name) }

// Filter implements trigger.Repositories.
func (Repositories) Filter(ref string, config json.RawMessage, branch string) (string, func(file string) bool) {
	s, found := source.Parse(ref, config)
	if r, is := s.(*source.Repository); found == nil && is && r.Branch == branch {
		return r.Artifact(), r.Counts
	}
	return "", nil
}

// SourceName implements trigger.Repositories.
func (Repositories) SourceName(ref string, config json.RawMessage) string {
	s, found := source.Parse(ref, config)
	if found != nil {
		return ""
	}
	switch s := s.(type) {
	case *source.Repository:
		return source.RepositoryName(s.URL)
	case *source.Image:
		return s.Repository
	}
	return ""
}

// Ranges is trigger.Ranges over pkg/source.
type Ranges struct{}

// Check implements trigger.Ranges.
func (Ranges) Check(within string) error {
	_, err := source.ParseRange(within)
	return err
}

// Contains implements trigger.Ranges.
func (Ranges) Contains(within, version string) bool {
	r, err := source.ParseRange(within)
	return err == nil && r.Contains(version)
}
