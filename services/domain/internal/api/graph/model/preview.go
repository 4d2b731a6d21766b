package model

import (
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// KindRolloutPreview is how the identifiers of previews begin.
const KindRolloutPreview = "rolloutpreview"

// RolloutPreview wraps the domain's.
type RolloutPreview struct{ core.Preview }

// PreviewedEnvironment wraps the domain's.
type PreviewedEnvironment struct{ core.PreviewedEnvironment }

// Compared is what the driver has compared; nil for nothing.
func (e PreviewedEnvironment) Compared() *ManifestComparison {
	if e.PreviewedEnvironment.Compared == nil {
		return nil
	}
	return &ManifestComparison{*e.PreviewedEnvironment.Compared}
}

// ManifestComparison wraps the domain's.
type ManifestComparison struct{ core.Comparison }

// Things are what would change.
func (c ManifestComparison) Things() []ChangedThing {
	all := make([]ChangedThing, len(c.Comparison.Things))
	for i, t := range c.Comparison.Things {
		all[i] = ChangedThing{t}
	}
	return all
}

// ChangedThing wraps the domain's.
type ChangedThing struct{ planner.Thing }

// Kind is the kind as the API names it.
func (t ChangedThing) Kind() ChangedThingKind {
	return ChangedThingKind(strings.ToUpper(string(t.Thing.Kind)))
}

// WrapPreview wraps the domain's.
func WrapPreview(p core.Preview) RolloutPreview { return RolloutPreview{p} }

// GlobalID is rolloutpreview_<number>.
func (p RolloutPreview) GlobalID() string { return id.Format(KindRolloutPreview, p.ID) }

// IsNode marks a node.
func (RolloutPreview) IsNode() {}

// MarshalPreviewState writes a state.
func MarshalPreviewState(s core.PreviewState) graphql.Marshaler { return word(string(s)) }

// UnmarshalPreviewState reads a state.
func UnmarshalPreviewState(v any) (core.PreviewState, error) {
	return enum(v, core.PreviewPending, core.PreviewMade, core.PreviewFailed)
}
