package model

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// KindChain is the kind of chains.
const KindChain = "chain"

// Chain wraps the domain's.
type Chain struct{ core.Chain }

// GlobalID is chain_<number>.
func (c Chain) GlobalID() string { return id.Format(KindChain, c.ID) }

// IsNode marks a node.
func (Chain) IsNode() {}

// WrapChain wraps the domain's.
func WrapChain(c core.Chain) Chain { return Chain{c} }

// ChainNode wraps the domain's.
type ChainNode struct{ core.ChainNode }

// StateNow is its state.
func (n ChainNode) StateNow() core.ChainNodeState {
	state, _ := n.Standing()
	return state
}

// Sentence is what there is to say about its state.
func (n ChainNode) Sentence() string {
	_, why := n.Standing()
	return why
}

// WrapChainNode wraps the domain's.
func WrapChainNode(n core.ChainNode) ChainNode { return ChainNode{n} }

// MarshalChainState writes a state.
func MarshalChainState(s core.ChainState) graphql.Marshaler { return word(string(s)) }

// UnmarshalChainState reads a state.
func UnmarshalChainState(v any) (core.ChainState, error) {
	return enum(v, core.ChainRunning, core.ChainCompleted, core.ChainStopped, core.ChainCancelled)
}

// MarshalChainNodeState writes a state.
func MarshalChainNodeState(s core.ChainNodeState) graphql.Marshaler { return word(string(s)) }

// UnmarshalChainNodeState reads a state.
func UnmarshalChainNodeState(v any) (core.ChainNodeState, error) {
	return enum(v, core.NodeWaiting, core.NodePending, core.NodeQueued, core.NodeRunning, core.NodeCompleted, core.NodeUnchanged,
		core.NodeFailed,
		core.NodeSkipped, core.NodeStopped, core.NodeCancelled)
}
