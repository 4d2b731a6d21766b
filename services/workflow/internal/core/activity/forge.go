package activity

import (
	"context"
	"time"
)

// Forge is where the manifests of a workflow are kept (D26). Errors are classed: Invalid, Unauthenticated, Denied,
// NotFound (the message says what: repository, ref or path), Conflict, Refused (by a rule of the repository), Unavailable.
type Forge interface {
	// ReadFile is a file's content at a ref (a branch, a tag or a commit id), and the id of the commit it was read at, as an
	// organization may see it.
	ReadFile(ctx context.Context, organization int64, repoURL, ref, path string) (content []byte, sha string, err error)
	// ReadCommit is the commit that a ref (a branch, a tag or a commit id) names, as an organization may see it.
	ReadCommit(ctx context.Context, organization int64, repoURL, ref string) (CommitInfo, error)
	// FindCommit is the latest commit of a branch, of those that Commit looks at, that Lockstep has made with the value of a trailer; an empty
	// one if there is none.
	FindCommit(ctx context.Context, organization int64, repoURL, branch, trailer, value string) (CommitInfo, error)
	// ReadTree reads files of a commit by path, and returns the id of the commit. Links and submodules are left out.
	ReadTree(ctx context.Context, r TreeRequest) (files map[string][]byte, sha string, err error)
	// ReadDifference reads the files that differ between two commits of a repository.
	ReadDifference(ctx context.Context, r DifferenceRequest) (Difference, error)
	// Commit adds one commit to a branch, never by force, and returns its id. If the branch has these contents already, or
	// a commit of the same activity, nothing is added and the id that stands for them is returned.
	Commit(ctx context.Context, c CommitRequest) (sha string, err error)
	// Propose commits to a branch of a proposal's own, and opens the proposal or updates it. There is one for each branch: one that people
	// have closed or merged is returned as it is.
	Propose(ctx context.Context, p ProposalRequest) (Proposal, error)
	// Merge merges a proposal that consists of exactly the files of the call, and returns it. It is a Conflict if the head is another one, or
	// if one of the files has changed on the branch since: then it has to be proposed again. It is Refused if the forge does not allow it,
	// or not yet. One that was merged already is returned.
	Merge(ctx context.Context, m MergeRequest) (Proposal, error)
	// ReadProposal returns a proposal.
	ReadProposal(ctx context.Context, organization int64, repoURL string, number int64) (Proposal, error)
	// Withdraw closes a proposal from a branch, and returns it. One that is not open is returned as it is.
	Withdraw(ctx context.Context, organization int64, repoURL, branch string, number int64) (Proposal, error)
	// ReadBranch and WithdrawBranch are the same for a proposal that is a branch alone: it is merged once the other branch has its head in its
	// history, and closed once it was deleted before that. To withdraw it is to delete it; one with a commit of others is a Conflict.
	ReadBranch(ctx context.Context, p BranchProposal) (Proposal, error)
	WithdrawBranch(ctx context.Context, p BranchProposal) (Proposal, error)
	// ReadStatus returns what others have reported about a commit, by name.
	ReadStatus(ctx context.Context, organization int64, repoURL, commit string) ([]CommitStatus, error)
	// SetStatus reports a status of a commit, unless the forge has it already. A forge that accepts no more requests for now is no error.
	SetStatus(ctx context.Context, s StatusRequest) (StatusReport, error)
	// SetDeployment has the forge show a deployment, which it makes first if there is none. One is ended only by a call with its number: a
	// call without it makes it and leaves it open. A forge that accepts no more requests for now, or that has no deployments, is no error.
	SetDeployment(ctx context.Context, r DeploymentRequest) (DeploymentReport, error)
	// ReadChange reads what a pull request would change. A forge that accepts no more requests for now is no error.
	ReadChange(ctx context.Context, r ChangeRequest) (Change, error)
	// Comment has a pull request have the comment, once: one of its own account with the marker is changed, and further ones are removed.
	Comment(ctx context.Context, r CommentRequest) (CommentReport, error)
}

// DifferenceRequest names two commits, each by a branch, a tag or a commit id.
type DifferenceRequest struct {
	Organization       int64
	RepoURL, Base, Ref string
	// Under is the folder whose files are read, all if it is empty, and Also are other files.
	Under string
	Also  []string
}

// Difference is what differs between two commits.
type Difference struct {
	// Base and Head are the commits.
	Base, Head string
	Files      []ChangedFile
	// More reports whether other files differ as well.
	More bool
}

// CommitInfo is what a commit says of itself. Names, addresses and times are what its author claims.
type CommitInfo struct {
	SHA string
	// Message is the whole message.
	Message           string
	Author, Committer Signature
}

// Signature is a person and a time in a commit.
type Signature struct {
	Name, Email string
	At          time.Time
}

// Login is the credential that a program has named for an operation: the operator's name for it, or one of the run's secrets, whose
// references are by name.
type Login struct {
	Name    string
	Secrets map[string]string
}

type loginKey struct{}

// WithLogin is a context in which a Forge uses that credential and no other. A name that is empty leaves the choice to the Forge.
func WithLogin(ctx context.Context, l Login) context.Context {
	if l.Name == "" {
		return ctx
	}
	return context.WithValue(ctx, loginKey{}, l)
}

// LoginOf is the credential of WithLogin.
func LoginOf(ctx context.Context) (l Login, named bool) {
	l, named = ctx.Value(loginKey{}).(Login)
	return l, named
}

// CommitRequest is one commit that a workflow wants made.
type CommitRequest struct {
	// Organization is whose workflow it is: it says which credentials may be used.
	Organization    int64
	RepoURL, Branch string
	// Base is the commit that Files were made from; "" where that does not matter. If one of the files has changed on the
	// branch since, the error is a Conflict.
	Base string
	// Files are the new contents by path. Other files stay as they are.
	Files   map[string][]byte
	Message string
	// Trailers are added at the end of the message.
	Trailers map[string]string
	// Activity identifies the wish: a repeat after a crash finds the commit that was made before.
	Activity string
	// Shared is the key of the trailer that does so, too, where several runs are attempts at one commit; "" for none.
	Shared string
}

// Found are the lines of a message, among its trailers, that a commit has which was made for the same wish. Anybody can write the one that
// several runs share, so it counts only in a commit whose author is ours.
func (c CommitRequest) Found(ours bool) (lines []string) {
	if c.Activity != "" {
		lines = []string{TrailerActivity + ": " + c.Activity}
	}
	if value := c.Trailers[c.Shared]; ours && c.Shared != "" && value != "" {
		lines = append(lines, c.Shared+": "+value)
	}
	return lines
}

// TrailerActivity names the call that a commit was made for.
const TrailerActivity = "Lockstep-Activity"

// ProposalPrefix is what the names of the branches of proposals begin with. Nothing else is ever committed to them.
const ProposalPrefix = "lockstep/proposals/"

// The states of proposals. An unchanged one does not exist: the branch has the contents already.
const (
	ProposalOpen      = "open"
	ProposalMerged    = "merged"
	ProposalClosed    = "closed"
	ProposalUnchanged = "unchanged"
)

// How proposals are merged: with a commit that has two parents, with one commit that has all of it, or by moving the branch to the head.
const (
	MergeCommit      = "merge"
	MergeSquash      = "squash"
	MergeFastForward = "fast_forward"
)

// MostShownFiles is how many files of a proposal are read to show what differs; the others are unread.
const MostShownFiles = 20

// ProposalRequest is a change that a workflow proposes.
type ProposalRequest struct {
	// Commit is the change; its Branch is where it is to be merged.
	Commit CommitRequest
	// Branch is the branch of the proposal, and ID whose it is, in a trailer of its commit.
	Branch, ID string
	// Description is added to the text of the proposal, and so is what Show makes of the files that it changes; nil for nothing.
	Description string
	Show        func([]ChangedFile) string
	// Method is how it is to be merged: one that moves the branch needs a commit on top of it.
	Method string
	// Alone is a branch without a pull request.
	Alone bool
	// Head is what one that is a branch alone had before: if the branch does not exist any more, and was not merged, people have rejected it.
	// Empty for the first time.
	Head string
}

// BranchProposal is a proposal that is a branch alone.
type BranchProposal struct {
	Organization int64
	RepoURL      string
	// Branch is to be merged, Into where, and Head the commit that was proposed.
	Branch, Into, Head string
}

// MergeRequest is a proposal that a workflow wants merged.
type MergeRequest struct {
	// Commit is the change, as in its proposal.
	Commit CommitRequest
	// Branch is the branch of the proposal.
	Branch string
	Number int64
	// Head is the commit that is merged, and no other.
	Head string
	// Method is how: MergeCommit, MergeSquash or MergeFastForward.
	Method string
	// Alone is a branch without a pull request.
	Alone bool
}

// Proposal is a pull request, or a merge request; one that is a branch alone has neither number nor URL.
type Proposal struct {
	Number int64
	URL    string
	State  string
	// Branch is what is merged, Into where, and Head the last commit of Branch.
	Branch, Into, Head string
	// Commit is the commit of Into that has the change, if it was merged. Merged is the head that it has merged, as the commits show; empty
	// where that is not known, and where nobody asks, since no person's account has merged it.
	Commit, Merged string
	// Unshown is why it cannot be shown that a person has merged exactly Head; empty where Merged is it, and for what nobody has merged.
	Unshown string
	// By is who has merged or closed it, where the forge says so, and ByID the forge's number of that user; 0 where the forge has none, and
	// for what is no person's account.
	By   string
	ByID int64
	// Note is what people have to know about a merge, such as an answer of theirs that was not heard in time.
	Note string
}

// CommitStatus is what something outside has reported about a commit.
type CommitStatus struct {
	Name string
	// State is StatusPending, StatusSuccess or StatusFailure.
	State, URL string
	// Description is empty for what has none, such as a check run.
	Description string
}

// StatusRequest is a status of a commit that is to be reported to its forge.
type StatusRequest struct {
	Organization    int64
	RepoURL, Commit string
	Status          CommitStatus
}

// NoForgeError reports that a repository has no credential with a forge, so that nothing was sent anywhere. It is inside of an error of the
// class Refused.
type NoForgeError struct{}

// Error implements error.
func (NoForgeError) Error() string { return "no forge is configured" }

// StatusReport is the outcome of a status.
type StatusReport struct {
	// Unchanged reports whether the forge had it already.
	Unchanged bool
	// Limited is why the forge accepts no more requests for now; empty if it has the status. Wait is how long, if it says so.
	Limited string
	Wait    time.Duration
	// Quota is how many requests the forge still accepts, if it says so; nil if not.
	Quota *Quota
	// Shared reports whether the credential is the operator's, which other organizations may use as well.
	Shared bool
}

// DeploymentRequest is a deployment that a forge is to show.
type DeploymentRequest struct {
	Organization    int64
	RepoURL, Commit string
	// Environment is its name at the forge, and Key what the deployment is found again by where a forge keeps it.
	Environment, Key string
	// Number is what the forge calls the deployment; 0 if that is not known.
	Number int64
	// Taken are the numbers of deployments that belong to others: none of them is taken for this one.
	Taken []int64
	// State is one of DeploymentStates.
	State, Description, URL string
	// EnvironmentURL is where what is deployed is reached; "" if that is not known.
	EnvironmentURL string
	// Production reports whether people use the environment.
	Production bool
}

// Ended reports whether the deployment has come to an end.
func (r DeploymentRequest) Ended() bool {
	return r.State != DeploymentQueued && r.State != DeploymentInProgress
}

// DeploymentReport is the outcome of a deployment.
type DeploymentReport struct {
	Limit
	// Number is what the forge calls it; 0 if that is not known.
	Number int64
	// Open reports whether it is made and has yet to be ended, by a call with its number; Unchanged whether the forge showed it already.
	Open, Unchanged bool
	// Unsupported is why the forge can show none; empty if it can.
	Unsupported string
}

// Quota is how many requests a forge accepts from a credential until ResetsAt.
type Quota struct {
	Limit, Remaining int64
	ResetsAt         time.Time
}

// The states that are reported about commits.
const (
	StatusPending = "pending"
	StatusSuccess = "success"
	StatusFailure = "failure"
)

// The states of deployments at forges.
const (
	DeploymentQueued     = "queued"
	DeploymentInProgress = "in_progress"
	DeploymentSuccess    = "success"
	DeploymentFailure    = "failure"
	DeploymentInactive   = "inactive"
)

// DeploymentStates are all of them.
func DeploymentStates() []string {
	return []string{DeploymentQueued, DeploymentInProgress, DeploymentSuccess, DeploymentFailure, DeploymentInactive}
}
