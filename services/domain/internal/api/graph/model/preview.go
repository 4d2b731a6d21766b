package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// KindRolloutPreview is how the identifiers of previews begin.
const KindRolloutPreview = "rolloutpreview"

// RolloutPreview wraps the domain's.
type RolloutPreview struct{ core.Preview }

// PreviewedEnvironment wraps the domain's.
type PreviewedEnvironment struct{ core.PreviewedEnvironment }

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
