package client

import (
	"context"
	"strings"
)

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
	// Preview is what a rollout of a version set would change, if the plan is that of a set.
	Preview *Preview `json:"preview,omitempty"`
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
	// Deadline is how long the rollout may take there; nil for any time.
	Deadline *PlannedDeadline `json:"deadline,omitempty"`
}

// PlannedDeadline is how long a rollout may take in an environment.
type PlannedDeadline struct {
	Seconds int `json:"seconds"`
	// Action is FAIL or ABORT.
	Action string `json:"action"`
	// AtWork is whether only time counts in which the rollout is at work there: it is the default of pipelines without deadlines.
	AtWork bool `json:"atWork"`
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
		environments { environment { id name } needs { kind subject detail requirements { group quorum } approvers }`+plannedNewer+` } } } }`,
		map[string]any{"input": map[string]any{
			"repository": n.Repository, "branch": n.Branch, "paths": append([]string{}, n.Paths...), "sha": n.SHA, "message": n.Message,
		}}, &data)
	return data.PlanPreview, err
}

// Preview is what a rollout of a version set would change.
type Preview struct {
	ID string `json:"id"`
	// State is PENDING, MADE or FAILED; Reason is why it failed.
	State        string               `json:"state"`
	Reason       string               `json:"reason,omitempty"`
	Environments []PreviewEnvironment `json:"environments"`
}

// PreviewEnvironment is what would change in one environment, or why that is not known.
type PreviewEnvironment struct {
	Environment Reference    `json:"environment"`
	Reason      string       `json:"reason,omitempty"`
	Changes     []FileChange `json:"changes"`
	// Compared is what the driver lists as different; nil if it cannot compare manifests.
	Compared *ManifestComparison `json:"compared,omitempty"`
}

// ManifestComparison is what differs between the manifests that run and those that would.
type ManifestComparison struct {
	Workloads int            `json:"workloads"`
	Things    []ChangedThing `json:"things"`
	Reason    string         `json:"reason,omitempty"`
	// Commit is what was compared with what runs; empty if the driver names none.
	Commit string `json:"commit,omitempty"`
}

// ChangedThing is one thing that a rollout would change.
type ChangedThing struct {
	// Kind is IMAGE, REPLICAS, POD_TEMPLATE, CONFIG_MAP, SECRET or OTHER, and Action added, removed or changed.
	Kind   string `json:"kind"`
	Action string `json:"action"`
	Object string `json:"object"`
	Detail string `json:"detail,omitempty"`
}

// FileChange is the change of one file.
type FileChange struct {
	Path string `json:"path"`
	Diff string `json:"diff"`
}

const previewFields = `id state reason environments { environment { id name } reason changes { path diff }
	compared { workloads reason commit things { kind action object detail } } } `

// PreviewRollout requests a preview of a version set, which Preview reads.
func (c *Client) PreviewRollout(ctx context.Context, versionSet string) (Preview, error) {
	return change[Preview](ctx, c, "previewRollout", "PreviewRolloutInput", "preview", previewFields,
		map[string]any{"versionSetId": versionSet})
}

// Preview reads a preview. It is PENDING until it has been made.
func (c *Client) Preview(ctx context.Context, id string) (Preview, error) {
	var data struct{ RolloutPreview Preview }
	err := c.do(ctx, `query($id: ID!) { rolloutPreview(id: $id) { `+previewFields+` } }`, map[string]any{"id": id}, &data)
	return data.RolloutPreview, err
}

// Printed reads what the latest run that works for an object, such as rollout_7, has printed, oldest first.
func (c *Client) Printed(ctx context.Context, subject string) ([]string, error) {
	var data struct {
		Workflows struct {
			Nodes []struct {
				Logs struct{ Nodes []struct{ Text string } }
			}
		}
	}
	query := `query($subject: String!) { workflows(first: 1, subject: $subject) { nodes { logs(first: 200) { nodes { text } } } } }`
	err := c.do(ctx, query, map[string]any{"subject": subject}, &data)
	var all []string
	for _, run := range data.Workflows.Nodes {
		for _, line := range run.Logs.Nodes {
			all = append(all, line.Text)
		}
	}
	return all, err
}

// Calls is how many calls of Functions at a relay the run of a subject has made, by the prefix of their names; at most those of 200 steps
// of the latest one.
func (c *Client) Calls(ctx context.Context, subject, prefix string) (int, error) {
	var data struct {
		Workflows struct {
			Nodes []struct {
				Timeline struct{ Steps []struct{ Name string } }
			}
		}
	}
	query := `query($subject: String!) { workflows(first: 1, subject: $subject) { nodes { timeline(first: 200) { steps { name } } } } }`
	err := c.do(ctx, query, map[string]any{"subject": subject}, &data)
	calls := 0
	for _, run := range data.Workflows.Nodes {
		for _, step := range run.Timeline.Steps {
			if strings.HasPrefix(step.Name, prefix) {
				calls++
			}
		}
	}
	return calls, err
}
