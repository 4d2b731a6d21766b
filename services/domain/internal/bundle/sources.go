package bundle

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Sources is core.Sources over pkg/source.
type Sources struct{}

var _ core.Sources = Sources{}

// Kinds implements core.Sources.
func (Sources) Kinds() []core.SourceKind {
	var all []core.SourceKind
	for _, k := range source.Kinds() {
		all = append(all, core.SourceKind{Ref: k.Ref, Schema: k.Schema})
	}
	return all
}

// Key implements core.Sources.
func (Sources) Key(ref string, config json.RawMessage) (string, []fault.Field) {
	s, found := source.Parse(ref, config)
	if found != nil {
		return "", found
	}
	return s.Key(), nil
}

// KeyOf implements core.Sources.
func (Sources) KeyOf(image string) (string, error) { return source.ImageKey(image) }

// Placement implements core.Sources.
func (Sources) Placement(ref string, config json.RawMessage, tag string) core.Placement {
	s, found := source.Parse(ref, config)
	if found != nil {
		// What a newer release of ours has made of it is not understood here: take it, as the key alone says.
		return core.Placement{Taken: true}
	}
	return core.Placement{Taken: s.Takes(tag), Rank: s.Rank(tag), Earliest: s.Earliest()}
}
