package model

import (
	"encoding/json"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// RolloutFleet wraps the domain's.
type RolloutFleet struct{ core.RolloutFleet }

// RolloutWave wraps the domain's.
type RolloutWave struct{ core.RolloutWave }

// RolloutTarget wraps the domain's.
type RolloutTarget struct{ core.RolloutTarget }

// WrapRolloutFleet wraps the domain's.
func WrapRolloutFleet(f core.RolloutFleet) RolloutFleet { return RolloutFleet{f} }

// WrapRolloutWave wraps the domain's.
func WrapRolloutWave(w core.RolloutWave) RolloutWave { return RolloutWave{w} }

// WrapRolloutTarget wraps the domain's.
func WrapRolloutTarget(t core.RolloutTarget) RolloutTarget { return RolloutTarget{t} }

// AgentNumber is that of its agent.
func (t RolloutTarget) AgentNumber() int64 { return t.AgentID }

// MarshalRolloutTargetState writes a state.
func MarshalRolloutTargetState(s core.TargetState) graphql.Marshaler { return word(string(s)) }

// UnmarshalRolloutTargetState reads a state.
func UnmarshalRolloutTargetState(v any) (core.TargetState, error) {
	return enum(v, core.TargetPending, core.TargetDeploying, core.TargetHealthy, core.TargetFailed)
}

// LabelsText are the labels as an object.
func (a Agent) LabelsText() json.RawMessage {
	text, err := json.Marshal(a.Labels)
	if err != nil || len(a.Labels) == 0 {
		return json.RawMessage("{}")
	}
	return text
}

type (
	// RolloutTargetConnection is a page of them.
	RolloutTargetConnection Connection[RolloutTarget, RolloutTargetEdge]
	// RolloutTargetEdge is one of them.
	RolloutTargetEdge Edge[RolloutTarget]
)
