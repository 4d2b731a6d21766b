package client

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Chain is what follows one rollout: rollouts of other applications, in blocks.
type Chain struct {
	ID string `json:"id"`
	// Application and Rollout are what it follows, and Parent the chain that began that rollout.
	Application Reference  `json:"application"`
	Rollout     Reference  `json:"rollout"`
	Parent      *Reference `json:"parent,omitempty"`
	// State is RUNNING, COMPLETED, STOPPED or CANCELLED, and Reason why it ended as it did.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// Block is the number of the block that has begun last; 0 for none.
	Block   int        `json:"block"`
	Blocks  int        `json:"blocks"`
	BeganAt time.Time  `json:"beganAt"`
	EndedAt *time.Time `json:"endedAt,omitempty"`
	// Nodes are the applications in it, by block.
	Nodes []ChainNode `json:"nodes"`
}

// ChainNode is an application in a chain.
type ChainNode struct {
	Application Reference `json:"application"`
	Block       int       `json:"block"`
	State       string    `json:"state"`
	Reason      string    `json:"reason"`
	// Rollout is the one that began; nil for none.
	Rollout *Reference `json:"rollout,omitempty"`
	// Chains are those that the rollout began in its turn.
	Chains []Reference `json:"chains"`
}

const chainFields = `id application { id name } rollout { id } parent { id } state reason block blocks beganAt endedAt ` +
	`nodes { application { id name } block state reason rollout { id } chains { id } }`

// Chains reads the latest that rollouts of an application began.
func (c *Client) Chains(ctx context.Context, application string) ([]Chain, error) {
	var data struct{ Application *struct{ Chains []Chain } }
	err := c.do(ctx, `query($name: String!) { application(name: $name) { chains { `+chainFields+` } } }`, map[string]any{"name": application}, &data)
	a, err := found(data.Application, err, "application", application)
	return a.Chains, err
}

// Chain reads one.
func (c *Client) Chain(ctx context.Context, id string) (Chain, error) {
	var data struct{ Node *Chain }
	err := c.do(ctx, `query($id: ID!) { node(id: $id) { ... on Chain { `+chainFields+` } } }`, map[string]any{"id": id}, &data)
	if err == nil && data.Node != nil && data.Node.ID == "" {
		return Chain{}, fault.New(fault.Invalid, "found %q; expected the id of a chain, such as chain_12", id)
	}
	return found(data.Node, err, "chain", id)
}

// CancelChain ends a chain with everything in it.
func (c *Client) CancelChain(ctx context.Context, id, reason string) (Chain, error) {
	return change[Chain](ctx, c, "cancelChain", "CancelChainInput", "chain", chainFields, map[string]any{"chainId": id, "reason": reason})
}
