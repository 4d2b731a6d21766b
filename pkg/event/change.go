package event

import "encoding/json"

// What a rollout changes in files: before it is begun, and once it is committed.

// DeploymentCommitted is com.gitlab.cd.deployment.committed: what exactly was deployed (E46).
type DeploymentCommitted struct {
	DeploymentID   int64  `json:"deployment_id" jsonschema:"minimum=1"`
	CommitSHA      string `json:"commit_sha" jsonschema:"pattern=^[0-9a-f]{40}([0-9a-f]{24})?$"`
	ManifestDigest string `json:"manifest_digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	// Parameters are the values that were set, without secrets; Changes what differs from before, where the driver tells.
	Parameters json.RawMessage `json:"parameters,omitempty" jsonschema:"type=object"`
	Changes    []FileChange    `json:"changes,omitempty"`
}

// FileChange is what changes in one file, for people to read.
type FileChange struct {
	Path string `json:"path" jsonschema:"minLength=1"`
	// Diff is in the unified form; Truncated is that the rest was left out.
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated,omitempty"`
}

// RolloutPreviewed is com.gitlab.cd.rollout.previewed: what a rollout would change, were it begun now.
type RolloutPreviewed struct {
	PreviewID    int64                  `json:"preview_id" jsonschema:"minimum=1"`
	Environments []PreviewedEnvironment `json:"environments"`
}

// PreviewedEnvironment is what would change in one environment.
type PreviewedEnvironment struct {
	EnvironmentID int64        `json:"environment_id" jsonschema:"minimum=1"`
	Changes       []FileChange `json:"changes"`
	// Reason is why that cannot be told; then there are no changes.
	Reason string `json:"reason,omitempty"`
}

// EventType is com.gitlab.cd.rollout.previewed.
func (RolloutPreviewed) EventType() string { return TypeRolloutPreviewed }

// exampleChange is for the examples of the catalogue.
func exampleChange() FileChange {
	return FileChange{Path: "staging/api.yaml", Diff: "--- a/staging/api.yaml\n+++ b/staging/api.yaml\n@@ -1,1 +1,1 @@\n-image: api:1\n+image: api:2\n"}
}
