package activity

import "time"

// ChangeRequest is a pull request, or merge request, that is to be read.
type ChangeRequest struct {
	Organization int64
	RepoURL      string
	Number       int64
	// AskedBy are those who want it read, as the forge knows them; empty where nobody has asked. One who may write is enough.
	AskedBy []string
}

// Change is what a pull request would change.
type Change struct {
	URL string
	// State is ProposalOpen, ProposalMerged or ProposalClosed.
	State string
	// Into is the branch that it is to be merged into, Head its last commit and Message that of the commit.
	Into, Head, Message string
	// Refused is why it is not planned: it comes from a fork, and nobody who may write has asked. Then nothing else was read.
	Refused string
	// Paths are the files that it changes, under both names where one was moved; More reports whether there are others.
	Paths []string
	More  bool
	// Files are the first of the manifests among them, before and after; none where the server does not serve both commits.
	Files []ChangedFile
	// Fork reports whether it comes from a fork: contents are not shown.
	Fork bool
	// Base is the commit that it is compared with; empty where that is not known.
	Base string
	Limit
}

// ChangedFile is a file before and after a change; empty where it did not exist.
type ChangedFile struct {
	Path          string
	Before, After []byte
	// Unread reports whether it is too large to be read.
	Unread bool
}

// Limit is what a forge says about the requests that it accepts.
type Limit struct {
	// Limited is why it accepts no more for now; empty if it does. Wait is how long, if it says so.
	Limited string
	Wait    time.Duration
	// Quota is how many it still accepts, if it says so; nil if not.
	Quota *Quota
	// Shared reports whether the credential is the operator's, which other organizations may use as well.
	Shared bool
}

// CommentRequest is a comment of which a pull request has one.
type CommentRequest struct {
	Organization int64
	RepoURL      string
	Number       int64
	// Marker is the first line of the comment, by which it is found again.
	Marker string
	// Body is the rest.
	Body string
	// OnlyKnown reports whether only a comment that exists is changed, and none is made.
	OnlyKnown bool
	// Known is where it is, as an earlier report said; empty if none has. It is the comment also where another account has written it.
	Known string
}

// CommentReport is what became of a comment.
type CommentReport struct {
	// URL is where it is; empty without one.
	URL string
	// Held is why it could not be changed: another account has written it. Then it is as it was, and there is no other one.
	Held string
	Limit
}
