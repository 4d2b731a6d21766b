package event

// PullRequestReported is com.gitlab.cd.pull_request.reported: a pull request at a forge, or merge request, may have changed, or its plan
// was asked for. What it is, the forge is asked for.
type PullRequestReported struct {
	// Hook is the key of the organization's hook that received it.
	Hook string `json:"hook" jsonschema:"minLength=1,maxLength=64"`
	// Repository is the address of the repository that it is to be merged into.
	Repository string `json:"repository" jsonschema:"minLength=1,maxLength=1024"`
	// Number is that of the pull request in the repository.
	Number int64 `json:"number" jsonschema:"minimum=1"`
	// AskedBy is who has asked by a comment, as the forge knows them: a name, or the number of the user. It is absent where nobody has.
	AskedBy string `json:"asked_by,omitempty" jsonschema:"maxLength=255"`
}

// PullRequestRead is com.gitlab.cd.pull_request.read: what a run has found out about a pull request.
type PullRequestRead struct {
	// PullRequestID is what the run was started for, and Run which of its runs it is.
	PullRequestID int64 `json:"pull_request_id" jsonschema:"minimum=1"`
	Run           int   `json:"run" jsonschema:"minimum=1"`
	// State is open, merged or closed.
	State string `json:"state" jsonschema:"enum=open,enum=merged,enum=closed"`
	// Into is the branch that it is to be merged into, Head its last commit, and Message that of the commit.
	Into    string `json:"into" jsonschema:"minLength=1,maxLength=255"`
	Head    string `json:"head" jsonschema:"pattern=^(?:[0-9a-f]{40}|[0-9a-f]{64})$"`
	Message string `json:"message,omitempty" jsonschema:"maxLength=4096"`
	// Refused is why it is not planned; absent if it is.
	Refused string `json:"refused,omitempty" jsonschema:"maxLength=1000"`
	// Paths are the files that it changes; More reports whether there are others.
	Paths []string `json:"paths,omitempty" jsonschema:"maxItems=3000"`
	More  bool     `json:"more,omitempty"`
	// Resources are the Kubernetes objects that it adds, changes or removes, one a line; absent where that is not known.
	Resources []string `json:"resources,omitempty" jsonschema:"maxItems=200"`
}
