package client

import "context"

// Change is a change of a repository that is not on its branch yet.
type Change struct {
	Repository, Branch string
	Paths              []string
	SHA, Message       string
}

// Plan is what a change would roll out.
type Plan struct {
	Applications []PlannedApplication `json:"applications"`
	// More reports whether it touches other applications, too.
	More bool `json:"more"`
}

// PlannedApplication is an application that a change touches.
type PlannedApplication struct {
	Application Reference `json:"application"`
	Files       []string  `json:"files"`
	FileCount   int       `json:"fileCount"`
	// Trigger is the one that would begin a rollout; nil for none.
	Trigger *PlannedTrigger `json:"trigger,omitempty"`
	Begins  string          `json:"begins"`
	// Strategy is QUICK or PIPELINE, and StrategyReason why; both are empty if the rollout cannot be planned.
	Strategy       string `json:"strategy,omitempty"`
	StrategyReason string `json:"strategyReason,omitempty"`
	// Refused is why no rollout would begin; empty if one would.
	Refused      string               `json:"refused,omitempty"`
	Environments []PlannedEnvironment `json:"environments"`
}

// PlannedTrigger is a trigger by its name.
type PlannedTrigger struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// PlannedEnvironment is an environment that a rollout would enter.
type PlannedEnvironment struct {
	Environment Reference  `json:"environment"`
	Needs       []PlanNeed `json:"needs"`
}

// PlanNeed is a condition that a rollout would have to meet.
type PlanNeed struct {
	// Kind is APPROVAL, CHECK, CONTROL or POLICY.
	Kind         string            `json:"kind"`
	Subject      string            `json:"subject,omitempty"`
	Detail       string            `json:"detail"`
	Requirements []PlanRequirement `json:"requirements,omitempty"`
	Approvers    []string          `json:"approvers,omitempty"`
}

// PlanRequirement is a number of approvals, of a group or of anybody.
type PlanRequirement struct {
	Group  string `json:"group,omitempty"`
	Quorum int    `json:"quorum"`
}

// PlanPreview returns what a change would roll out. It changes nothing.
func (c *Client) PlanPreview(ctx context.Context, n Change) (Plan, error) {
	var data struct{ PlanPreview Plan }
	err := c.do(ctx, `query($input: PlanPreviewInput!) { planPreview(input: $input) { more applications {
		application { id name } files fileCount trigger { name kind } begins strategy strategyReason refused
		environments { environment { id name } needs { kind subject detail requirements { group quorum } approvers } } } } }`,
		map[string]any{"input": map[string]any{
			"repository": n.Repository, "branch": n.Branch, "paths": append([]string{}, n.Paths...), "sha": n.SHA, "message": n.Message,
		}}, &data)
	return data.PlanPreview, err
}
