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

// PullRequestCommented is com.gitlab.cd.pull_request.commented: a user has written a command into a comment on a pull request, or merge
// request. Who it is, the domain service knows by the accounts that members have linked.
type PullRequestCommented struct {
	// Hook is the key of the organization's hook that received it.
	Hook string `json:"hook" jsonschema:"minLength=1,maxLength=64"`
	// Repository is the address of the repository that it is to be merged into.
	Repository string `json:"repository" jsonschema:"minLength=1,maxLength=1024"`
	// Number is that of the pull request in the repository.
	Number int64 `json:"number" jsonschema:"minimum=1"`
	// CommentID is the forge's number of the comment, by which a repeated one is recognized.
	CommentID int64 `json:"comment_id" jsonschema:"minimum=1"`
	// AuthorID is the forge's number of who has written it, which stays when the account is renamed; Author is the name.
	AuthorID int64  `json:"author_id" jsonschema:"minimum=1"`
	Author   string `json:"author" jsonschema:"minLength=1,maxLength=255"`
	// MadeAt is when the forge says that it was made.
	MadeAt string `json:"made_at" jsonschema:"format=date-time"`
	// Text is the first line of the comment as it was made, without changes that were made to it later.
	Text string `json:"text" jsonschema:"minLength=1,maxLength=2000"`
}

// PullRequestReviewed is com.gitlab.cd.pull_request.reviewed: a user has written a command into a review of a pull request, or into a
// comment in one. It is a type of its own, beside that of comments: who does not know that an App may have written it must not take it.
type PullRequestReviewed struct {
	// Hook is the key of the organization's hook that received it.
	Hook string `json:"hook" jsonschema:"minLength=1,maxLength=64"`
	// Repository is the address of the repository that it is to be merged into.
	Repository string `json:"repository" jsonschema:"minLength=1,maxLength=1024"`
	// Number is that of the pull request in the repository.
	Number int64 `json:"number" jsonschema:"minimum=1"`
	// CommentID is the number of the review or the comment in it, by which a repeated one is recognized: above those of other comments.
	CommentID int64 `json:"comment_id" jsonschema:"minimum=1"`
	// AuthorID is the forge's number of who has written it, which stays when the account is renamed; Author is the name.
	AuthorID int64  `json:"author_id" jsonschema:"minimum=1"`
	Author   string `json:"author" jsonschema:"minLength=1,maxLength=255"`
	// MadeAt is when the forge says that it was made.
	MadeAt string `json:"made_at" jsonschema:"format=date-time"`
	// Text is the first line as it was made, without changes that were made to it later.
	Text string `json:"text" jsonschema:"minLength=1,maxLength=2000"`
	// MaybeApp is true if the forge does not say whether an App has written it for the user.
	MaybeApp bool `json:"maybe_app,omitempty"`
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
	// Base is the commit that Head is compared with; absent where contents are not shown, as of a pull request from a fork.
	Base string `json:"base,omitempty" jsonschema:"pattern=^(?:[0-9a-f]{40}|[0-9a-f]{64})$"`
	// Refused is why it is not planned; absent if it is.
	Refused string `json:"refused,omitempty" jsonschema:"maxLength=1000"`
	// Paths are the files that it changes; More reports whether there are others.
	Paths []string `json:"paths,omitempty" jsonschema:"maxItems=3000"`
	More  bool     `json:"more,omitempty"`
	// Resources are the Kubernetes objects that it adds, changes or removes, one a line; absent where that is not known.
	Resources []string `json:"resources,omitempty" jsonschema:"maxItems=200"`
	// Diffs are what differs in the first of them; absent where that is not shown, as of a pull request from a fork.
	Diffs []ResourceDiff `json:"diffs,omitempty" jsonschema:"maxItems=100"`
	// Rendered are the overlays and charts of environments that it changes; absent where none is rendered, as of a pull request from a fork.
	Rendered []RenderedChange `json:"rendered,omitempty" jsonschema:"maxItems=20"`
	// Unrendered is how many others it changes, which were not rendered.
	Unrendered int `json:"unrendered,omitempty" jsonschema:"minimum=0"`
}

// RenderedChange is what differs once the overlay or the chart of an environment is rendered.
type RenderedChange struct {
	// ApplicationID and Environment are what is deployed from it.
	ApplicationID int64  `json:"application_id" jsonschema:"minimum=1"`
	Environment   string `json:"environment" jsonschema:"minLength=1,maxLength=255"`
	// Why is why it was not rendered; absent if it was. Before is the same of how it was before the change.
	Why    string `json:"why,omitempty" jsonschema:"maxLength=2000"`
	Before string `json:"before,omitempty" jsonschema:"maxLength=2000"`
	// Resources are the objects that differ, and Diffs what differs in the first of them, as those of the event.
	Resources []string       `json:"resources,omitempty" jsonschema:"maxItems=100"`
	Diffs     []ResourceDiff `json:"diffs,omitempty" jsonschema:"maxItems=100"`
}

// ResourceDiff is what differs in a Kubernetes object. Of secrets it has no values.
type ResourceDiff struct {
	// Object is one of the resources of the event, such as changed Deployment shop/api.
	Object string `json:"object" jsonschema:"minLength=1,maxLength=1000"`
	// Diff are hunks in the unified form; empty if nothing fits. Truncated means that the rest was left out.
	Diff      string `json:"diff,omitempty" jsonschema:"maxLength=40960"`
	Truncated bool   `json:"truncated,omitempty"`
}
