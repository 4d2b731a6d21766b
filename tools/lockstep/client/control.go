package client

import (
	"context"
	"encoding/json"
	"time"
)

// ProposedChange is a change of a control that a second person has to confirm, or had to.
type ProposedChange struct {
	ID           string          `json:"id"`
	State        string          `json:"state"`
	Action       string          `json:"action"`
	Subject      string          `json:"subject"`
	SubjectName  string          `json:"subjectName"`
	Application  *Reference      `json:"application,omitempty"`
	Environments []Reference     `json:"environments"`
	ProposerName string          `json:"proposerName"`
	Reason       string          `json:"reason"`
	Detail       string          `json:"detail"`
	Before       json.RawMessage `json:"before,omitempty"`
	After        json.RawMessage `json:"after,omitempty"`
	CreatedAt    time.Time       `json:"createdAt"`
	ExpiresAt    time.Time       `json:"expiresAt"`
	DecidedAt    *time.Time      `json:"decidedAt,omitempty"`
	Decider      *Reference      `json:"decider,omitempty"`
	Decision     string          `json:"decision"`
}

const proposedFields = `id state action subject subjectName application { id name } environments { id name } proposerName reason detail before after
	createdAt expiresAt decidedAt decider { id name } decision`

// ProposedChanges lists proposed changes, newest first: all, or those that can be decided now.
func (c *Client) ProposedChanges(ctx context.Context, open bool, most int) ([]ProposedChange, error) {
	return all(most, func(first int, after *string) (connection[ProposedChange], error) {
		var data struct{ ProposedChanges connection[ProposedChange] }
		err := c.do(ctx, `query($open: Boolean, $first: Int, $after: String) { proposedChanges(open: $open, first: $first, after: $after) { nodes { `+
			proposedFields+` } pageInfo { hasNextPage endCursor } } }`, map[string]any{"open": open, "first": first, "after": after}, &data)
		return data.ProposedChanges, err
	})
}

// ProposedChange returns one by identifier.
func (c *Client) ProposedChange(ctx context.Context, id string) (ProposedChange, error) {
	var data struct{ Node *ProposedChange }
	err := c.do(ctx, `query($id: ID!) { node(id: $id) { ... on ProposedChange { `+proposedFields+` } } }`, map[string]any{"id": id}, &data)
	return found(data.Node, err, "proposed change", id)
}

// ConfirmChange makes a proposed change, as the second person.
func (c *Client) ConfirmChange(ctx context.Context, id, reason string) (ProposedChange, error) {
	return c.decideChange(ctx, "confirmChange", id, reason)
}

// RejectChange ends a proposed change, as another person.
func (c *Client) RejectChange(ctx context.Context, id, reason string) (ProposedChange, error) {
	return c.decideChange(ctx, "rejectChange", id, reason)
}

// WithdrawChange ends a proposed change, as its proposer.
func (c *Client) WithdrawChange(ctx context.Context, id, reason string) (ProposedChange, error) {
	return c.decideChange(ctx, "withdrawChange", id, reason)
}

// ForceChange makes a proposed change by break-glass.
func (c *Client) ForceChange(ctx context.Context, id, reason string) (ProposedChange, error) {
	return c.decideChange(ctx, "forceChange", id, reason)
}

func (c *Client) decideChange(ctx context.Context, mutation, id, reason string) (ProposedChange, error) {
	return change[ProposedChange](ctx, c, mutation, "DecideChangeInput", "change", proposedFields, map[string]any{"changeId": id, "reason": reason})
}

// SetChangeControl decides whether changes of an environment's controls take a second person.
func (c *Client) SetChangeControl(ctx context.Context, environment string, on bool, reason string) (Environment, error) {
	return change[Environment](ctx, c, "setChangeControl", "SetChangeControlInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "on": on, "reason": reason})
}
