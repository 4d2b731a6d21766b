package client

import (
	"context"
	"time"
)

// RolloutCheck is a check of a rollout in one of its environments, and what it has come to.
type RolloutCheck struct {
	Environment Reference `json:"environment"`
	// Target is PROPOSED or ACTIVE.
	Target string `json:"target"`
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	// KindName is the kind as pipelines name it; of PROGRAM the check kind, name@major.
	KindName string `json:"kindName"`
	// WorkflowID is the run of its program; empty for none.
	WorkflowID string `json:"workflowId,omitempty"`
	// Own reports whether the environment requires it, and not the pipeline.
	Own bool `json:"own"`
	// Phase is PENDING, SUCCESS or FAILURE.
	Phase   string        `json:"phase"`
	Detail  string        `json:"detail"`
	Link    string        `json:"link,omitempty"`
	Since   *time.Time    `json:"since,omitempty"`
	Next    *time.Time    `json:"next,omitempty"`
	Reports []CheckReport `json:"reports,omitempty"`
}

const reportFields = `key phase description link application { id name } environment { id name } versionSet { id name } reporter reportedAt observedAt`

// RolloutChecks lists the checks of a rollout, in the order of promotion.
func (c *Client) RolloutChecks(ctx context.Context, rollout string) ([]RolloutCheck, error) {
	var data struct {
		Rollout *struct{ Checks []RolloutCheck }
	}
	err := c.do(ctx, `query($id: ID!) { rollout(id: $id) { checks { environment { id name } target key kind kindName workflowId own phase detail link since next `+
		`reports { `+reportFields+` } } } }`, map[string]any{"id": rollout}, &data)
	one, err := found(data.Rollout, err, "rollout", rollout)
	return one.Checks, err
}

// SetEnvironmentChecks sets the checks that an environment requires of every new rollout; nil for none.
func (c *Client) SetEnvironmentChecks(ctx context.Context, environment string, checks any) (Environment, error) {
	return change[Environment](ctx, c, "setEnvironmentChecks", "SetEnvironmentChecksInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "checks": checks})
}
