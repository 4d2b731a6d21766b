package client

import "context"

// Retention is how long an organization keeps what is settled.
type Retention struct {
	Rules []RetentionRule `json:"rules"`
	// LegalHold is why nothing is deleted for its age; empty if no legal hold is in force.
	LegalHold string `json:"legalHold,omitempty"`
}

// RetentionRule is how long a kind is kept.
type RetentionRule struct {
	Kind string `json:"kind"`
	// KeepDays is 0 for as long as the organization exists.
	KeepDays int `json:"keepDays"`
	// Due is how many rows are older, counted up to 10000.
	Due int `json:"due"`
}

const retentionFields = `rules { kind keepDays due } legalHold`

// Retention returns the rules of the organization, and what is due by them.
func (c *Client) Retention(ctx context.Context) (Retention, error) {
	var data struct{ Retention Retention }
	err := c.do(ctx, `{ retention { `+retentionFields+` } }`, nil, &data)
	return data.Retention, err
}

// SetRetention sets how long a kind is kept, in days; 0 for as long as the organization exists.
func (c *Client) SetRetention(ctx context.Context, kind string, days int, reason string) (Retention, error) {
	return change[Retention](ctx, c, "setRetention", "SetRetentionInput", "retention", retentionFields,
		map[string]any{"kind": kind, "keepDays": days, "reason": reason})
}

// SetLegalHold puts a legal hold into force, or ends it.
func (c *Client) SetLegalHold(ctx context.Context, on bool, reason string) (Retention, error) {
	return change[Retention](ctx, c, "setLegalHold", "SetLegalHoldInput", "retention", retentionFields,
		map[string]any{"on": on, "reason": reason})
}
