package event

import "encoding/json"

// What a rollout changes in files: before it is started, and once it is committed.

// DeploymentCommitted is com.gitlab.cd.deployment.committed: the desired state of the deployment is decided, in Git, in a registry of
// charts, or by a template.
type DeploymentCommitted struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// CommitSHA is the commit; absent if the desired state is in none, as that of a chart in a registry or of a template.
	CommitSHA string `json:"commit_sha,omitempty" jsonschema:"pattern=^[0-9a-f]{40}([0-9a-f]{24})?$"`
	// ManifestDigest is the digest of the manifest.
	ManifestDigest string `json:"manifest_digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	// Parameters are the values that were set, without secrets.
	Parameters json.RawMessage `json:"parameters,omitempty" jsonschema:"type=object"`
	// Changes are the differences from the commit before, if the driver reports them.
	Changes []FileChange `json:"changes,omitempty"`
}

// DeploymentSubmitted is com.gitlab.cd.deployment.submitted: what the deployment is outside of Lockstep, such as a pull request. A later
// one replaces it.
type DeploymentSubmitted struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Name is what it is called there.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=255"`
	// Namespace is the namespace there, if it has one.
	Namespace string `json:"namespace,omitempty" jsonschema:"maxLength=255"`
	// URL is the page for people.
	URL string `json:"url,omitempty" jsonschema:"maxLength=2048,pattern=^https?://[^\\s]+$"`
	// Status is its state there, for people.
	Status string `json:"status,omitempty" jsonschema:"maxLength=500"`
}

// EventType is com.gitlab.cd.deployment.submitted.
func (DeploymentSubmitted) EventType() string { return TypeDeploymentSubmitted }

// DeploymentProposed is com.gitlab.cd.deployment.proposed: what has become of a proposal of a rollout, such as a pull request, as its forge
// says. The engine reports it with the answer of the Function that has read it, so no program can say it in its place.
type DeploymentProposed struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// Name is which of the run's proposals it is: that of an environment, unless the program has chosen another.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=255"`
	// Repository is the URL of the repository.
	Repository string `json:"repository" jsonschema:"minLength=1,maxLength=2048"`
	// Branch is the branch to merge into, or once it is merged the one that it was merged into, and Paths are the files; not for other states
	// that were read.
	Branch string   `json:"branch,omitempty" jsonschema:"maxLength=255"`
	Paths  []string `json:"paths,omitempty" jsonschema:"maxItems=200"`
	// Number is that of the pull request; absent for a branch alone.
	Number int64 `json:"number,omitempty" jsonschema:"minimum=1"`
	// State is what has become of it; `withdrawn` and, of a branch alone, `merged` are reported before the run does that itself.
	State string `json:"state" jsonschema:"enum=open,enum=merged,enum=closed,enum=withdrawn"`
	// Head is the commit that is proposed, or once it is merged the one that a person has merged, absent where the commits do not show it; and
	// Commit the one that has the change on the branch.
	Head   string `json:"head,omitempty" jsonschema:"pattern=^(?:[0-9a-f]{40}|[0-9a-f]{64})$"`
	Commit string `json:"commit,omitempty" jsonschema:"pattern=^(?:[0-9a-f]{40}|[0-9a-f]{64})$"`
	// By is who has merged or closed it, and ByID the forge's number of that user; absent where the forge does not say.
	By   string `json:"by,omitempty" jsonschema:"maxLength=255"`
	ByID int64  `json:"by_id,omitempty" jsonschema:"minimum=1"`
	// Unshown is why it cannot be shown that a person has merged exactly what is proposed, for people.
	Unshown string `json:"unshown,omitempty" jsonschema:"maxLength=255"`
}

// EventType is com.gitlab.cd.deployment.proposed.
func (DeploymentProposed) EventType() string { return TypeDeploymentProposed }

// DeploymentNudged is com.gitlab.cd.deployment.nudged: what the deployment is outside of Lockstep may have changed, so its program need not
// wait any longer. It says nothing about the state there, which the program reads itself.
type DeploymentNudged struct {
	RolloutID    int64 `json:"rollout_id" jsonschema:"minimum=1"`
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Watch is "deployment/" and the number of the deployment, in place of the id of a watch.
	Watch string `json:"watch" jsonschema:"minLength=1,maxLength=64"`
}

// EventType is com.gitlab.cd.deployment.nudged.
func (DeploymentNudged) EventType() string { return TypeDeploymentNudged }

// FileChange is the change to one file, for people to read.
type FileChange struct {
	// Path is the path of the file.
	Path string `json:"path" jsonschema:"minLength=1"`
	// Diff is a unified diff.
	Diff string `json:"diff"`
	// Truncated is true if the diff was cut off.
	Truncated bool `json:"truncated,omitempty"`
}

// RolloutPreviewed is com.gitlab.cd.rollout.previewed: what a rollout would change if it was started now.
type RolloutPreviewed struct {
	PreviewID int64 `json:"preview_id" jsonschema:"minimum=1"`
	// Environments are the environments that it would deploy to, in the order of promotion.
	Environments []PreviewedEnvironment `json:"environments"`
}

// PreviewedEnvironment is what would change in one environment.
type PreviewedEnvironment struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Changes are the changes to its files.
	Changes []FileChange `json:"changes"`
	// Reason is why the changes are unknown; absent if they are known.
	Reason string `json:"reason,omitempty"`
	// FromLive reports whether the changes are from what is live. Absent if they are from a branch to which authors may have pushed what is
	// not live: then policies see no size of the change.
	FromLive bool `json:"from_live,omitempty"`
	// Compared is what differs between the manifests that run and those that would; absent if they were not compared.
	Compared *Comparison `json:"compared,omitempty"`
}

// Comparison is what a program found when it compared the manifests that run with those that would.
type Comparison struct {
	// Workloads is how many objects with pods run or would run.
	Workloads int `json:"workloads" jsonschema:"minimum=0"`
	// Things are what would change.
	Things []ChangedThing `json:"things" jsonschema:"maxItems=200"`
	// Commit is what was compared with what runs: a commit, or what else the program of the driver knows it by; absent if that is unknown.
	Commit string `json:"commit,omitempty" jsonschema:"maxLength=200"`
	// Reason is why they could not be compared; absent if they were.
	Reason string `json:"reason,omitempty"`
}

// ChangedThing is one thing that a rollout would change.
type ChangedThing struct {
	// Kind is what kind of thing it is.
	Kind string `json:"kind" jsonschema:"enum=image,enum=replicas,enum=pod_template,enum=config_map,enum=secret,enum=other"`
	// Action is what happens to it.
	Action string `json:"action" jsonschema:"enum=added,enum=removed,enum=changed"`
	// Object is the name of the object, such as Deployment/api.
	Object string `json:"object" jsonschema:"minLength=1,maxLength=520"`
	// Namespace is that of the object; absent for one of the whole cluster, or if it is unknown.
	Namespace string `json:"namespace,omitempty" jsonschema:"maxLength=253"`
	// Detail is what it was and what it becomes; absent if that is not shown.
	Detail string `json:"detail,omitempty" jsonschema:"maxLength=2000"`
	// Held are fields that others have taken over, so that no deploy sets them; absent for none.
	Held []HeldField `json:"held,omitempty" jsonschema:"maxItems=100"`
}

// HeldField is a field that another manager has taken over.
type HeldField struct {
	// Path is where the field is in the object, such as spec.replicas.
	Path string `json:"path" jsonschema:"minLength=1,maxLength=1000"`
	// Manager is the one that has taken it over; absent if that is unknown.
	Manager string `json:"manager,omitempty" jsonschema:"maxLength=253"`
}

// DriftedObject is an object that differs from what was deployed.
type DriftedObject struct {
	// Kind is that of the object in its cluster, such as Deployment.
	Kind string `json:"kind" jsonschema:"minLength=1,maxLength=253"`
	// Namespace is absent for an object of the whole cluster, or if it is unknown.
	Namespace string `json:"namespace,omitempty" jsonschema:"maxLength=253"`
	// Name is that of the object in its namespace.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=253"`
	// How is how it differs: extra is what was not deployed, or not any more.
	How string `json:"how" jsonschema:"enum=missing,enum=extra,enum=different"`
	// Detail is what differs in it; absent if that is unknown.
	Detail string `json:"detail,omitempty" jsonschema:"maxLength=2000"`
	// Code is the kind of difference, which distinguishes drift of one object from other drift of it; absent from relays of before.
	Code string `json:"code,omitempty" jsonschema:"maxLength=100"`
}

// EventType is com.gitlab.cd.rollout.previewed.
func (RolloutPreviewed) EventType() string { return TypeRolloutPreviewed }

// exampleChange is for the examples of the catalogue.
func exampleChange() FileChange {
	return FileChange{Path: "staging/api.yaml", Diff: "--- a/staging/api.yaml\n+++ b/staging/api.yaml\n@@ -1,1 +1,1 @@\n-image: api:1\n+image: api:2\n"}
}
