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
	// Commit adds one commit to a branch, never by force, and returns its id. If the branch has these contents already, or
	// a commit of the same activity, nothing is added and the id that stands for them is returned.
	Commit(ctx context.Context, c CommitRequest) (sha string, err error)
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
}
