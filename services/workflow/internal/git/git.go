// Package git reads and writes repositories over Git's smart HTTP protocol or SSH, whatever forge is behind it, or through the
// forge's own interface where credentials say which (D26). A commit is a compare-and-swap: it is built on the head just
// fetched and pushed with that head as the expected one, so that nobody's work is ever overwritten, and built again when
// another commit was faster.
//
// An operation fetches what it needs of a repository, shallowly and without the files that it does not touch, within the memory that all of
// them share (package gitfetch). It is no checkout.
package git

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/keylock"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Deps are what a Forge needs.
type Deps struct {
	// HTTP reaches the servers. It decides which may be reached (D41), and bounds how long an exchange takes, the reading of the
	// answer included.
	HTTP http.RoundTripper
	// Dial reaches the servers of SSH, by the same rules; nil for none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Credentials are the operator's, Own those of organizations; nil for none. They are tried by longest matching URL prefix.
	Credentials []Credential
	Own         *book.Book
	// Several reports whether there is more than one organization. Then a credential without organizations is not used: any program may name
	// any repository. nil if there is one.
	Several func(context.Context) (bool, error)
	// Budget is the memory that operations share with all other fetches of the process.
	Budget *gitfetch.Budget
	// Secrets follows their references; nil all but those to Vault.
	Secrets *secret.Reader
	// AuthorName and AuthorEmail sign the commits.
	AuthorName, AuthorEmail string
	Clock                   clock.Clock
	Log                     *slog.Logger
}

// Forge is plain Git over HTTP(S) and SSH. It is safe for concurrent use.
type Forge struct {
	credentials credentials
	author      author
	client      transport.Transport
	// dial reaches servers of SSH, and handshake is how long they may take for it; 0 for as long as package gitfetch has it.
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	handshake time.Duration
	// keys are those of SSH that were read.
	keys keys
	// rest reaches the interfaces of forges.
	rest   *http.Client
	budget *gitfetch.Budget
	clock  clock.Clock
	log    *slog.Logger
	// writers is locked for each branch and organization; between processes only the compare-and-swap of the push decides.
	writers keylock.Locks
	// shown are merges by hand that the commits were read of.
	shown shownMerges
}

var _ activity.Forge = (*Forge)(nil)

// author signs commits.
type author struct{ name, email string }

// is reports whether two authors are the same one, as Git and the forges write them: without what they take off both ends of names and
// addresses, so that "Acme Inc." is "Acme Inc" in the history.
func (a author) is(b author) bool {
	return bare(a.name) == bare(b.name) && bare(a.email) == bare(b.email)
}

// bare is a name or an address as Git keeps it: spaces, control characters and some punctuation at its ends are not kept, nor are line
// feeds and angle brackets anywhere.
func bare(text string) string {
	taken := func(c rune) bool { return c <= ' ' || strings.ContainsRune(".,:;<>\"\\'", c) }
	return strings.NewReplacer("\n", "", "<", "", ">", "").Replace(strings.TrimFunc(text, taken))
}

// historyDepth is how many commits of a branch are searched for the trailer of an activity. A repeat after a crash
// comes within seconds or minutes; the branch must not move on by more than this meanwhile.
const historyDepth = 50

// New checks the credentials' form and makes a Forge.
func New(d Deps) (*Forge, error) {
	for i, c := range d.Credentials {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("git credentials %d: %w", i+1, err)
		}
	}
	// Without a Timeout of its own: the Git library leaves the answer of a push as it is once it has read the report, and a timer with a
	// goroutine would stand by each for a minute.
	client := &http.Client{Transport: gitfetch.Transport{Next: bound{d.HTTP}}}
	return &Forge{
		credentials: credentials{all: d.Credentials, own: d.Own, secrets: d.Secrets, several: d.Several, apps: newApps(client, d.Clock)},
		author:      author{name: d.AuthorName, email: d.AuthorEmail},
		client:      githttp.NewClient(client), dial: d.Dial, rest: client, budget: d.Budget,
		clock: d.Clock, log: d.Log,
	}, nil
}

// ReadFile is a file's content at a ref, and the commit it was read at.
func (f *Forge) ReadFile(ctx context.Context, organization int64, repoURL, ref, path string) (content []byte, sha string, err error) {
	if err := checkPath(path); err != nil {
		return nil, "", err
	}
	err = f.within(ctx, organization, repoURL, func(ctx context.Context, share *gitfetch.Share) error {
		content, sha, err = f.readFile(ctx, share, organization, repoURL, ref, path)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return content, sha, nil
}

// ReadCommit implements activity.Forge. It speaks Git's protocol to every server, also to those with a forge.
func (f *Forge) ReadCommit(ctx context.Context, organization int64, repoURL, ref string) (found activity.CommitInfo, err error) {
	err = f.within(ctx, organization, repoURL, func(ctx context.Context, share *gitfetch.Share) error {
		r, err := f.open(ctx, share, organization, repoURL)
		if err != nil {
			return err
		}
		c, err := r.resolve(ctx, ref)
		if err != nil {
			return err
		}
		found = activity.CommitInfo{
			SHA: c.Hash.String(), Message: c.Message, Author: signature(c.Author), Committer: signature(c.Committer),
		}
		return nil
	})
	return found, err
}

// FindCommit is the latest commit of a branch, of those that Commit looks at, that we have made with the value of a trailer; an empty one
// if there is none. Nothing is written.
func (f *Forge) FindCommit(
	ctx context.Context, organization int64, repoURL, branch, trailer, value string,
) (found activity.CommitInfo, err error) {
	wanted := activity.CommitRequest{Shared: trailer, Trailers: map[string]string{trailer: value}}
	err = f.within(ctx, organization, repoURL, func(ctx context.Context, share *gitfetch.Share) error {
		found = activity.CommitInfo{}
		r, err := f.open(ctx, share, organization, repoURL)
		if err != nil {
			return err
		}
		head, err := r.branch(ctx, branch)
		if err != nil {
			return err
		}
		if c, exists := findActivity(head, wanted, f.author); exists {
			found = activity.CommitInfo{
				SHA: c.Hash.String(), Message: c.Message, Author: signature(c.Author), Committer: signature(c.Committer),
			}
		}
		return nil
	})
	return found, err
}

func signature(s object.Signature) activity.Signature {
	return activity.Signature{Name: s.Name, Email: s.Email, At: s.When.UTC()}
}

// How long an operation waits for a server to know a token that was just issued: twice as long each time.
const firstSettling, longestSettling = time.Second, 4 * time.Second

// within runs an operation within a share of the memory for fetches. It may run several times, so that it has to begin anew each time: also
// if a server does not accept a token any more that was issued for an earlier operation, or not yet.
func (f *Forge) within(
	ctx context.Context, organization int64, repoURL string, operate func(context.Context, *gitfetch.Share) error,
) error {
	attempt := withPlaces(ctx)
	err := f.once(attempt, organization, operate)
	for again, pause := true, firstSettling; fault.Is(err, fault.Unauthenticated); {
		switch {
		case settling(attempt) && pause <= longestSettling:
			if clock.Sleep(ctx, f.clock, pause) != nil {
				return fault.Because(err, fault.Unavailable, "%s does not accept a token yet that was just issued", repoURL)
			}
			pause *= 2
		case renewed(attempt) && again:
			again = false
		default:
			return err
		}
		attempt = withPlaces(ctx) //nolint:fatcontext // of the one outside of the loop
		err = f.once(attempt, organization, operate)
	}
	if limit, ok := errors.AsType[*gitfetch.LimitError](err); ok {
		return fault.New(fault.Refused, "%s cannot be read: %w", repoURL, limit)
	}
	return err
}

// once is one attempt at an operation, whose connections of SSH end with it.
func (f *Forge) once(ctx context.Context, organization int64, operate func(context.Context, *gitfetch.Share) error) error {
	return f.budget.Do(ctx, organization, func(ctx context.Context, share *gitfetch.Share) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return operate(ctx, share)
	})
}

// readFile is one attempt to read.
func (f *Forge) readFile(
	ctx context.Context, share *gitfetch.Share, organization int64, repoURL, ref, path string,
) (content []byte, sha string, err error) {
	if h, err := f.hosted(ctx, organization, repoURL); err != nil || h != nil && !h.plain {
		if err != nil {
			return nil, "", err
		}
		return h.readFile(ctx, ref, path)
	}
	r, err := f.open(ctx, share, organization, repoURL)
	if err != nil {
		return nil, "", err
	}
	commit, err := r.resolve(ctx, ref)
	if err != nil {
		return nil, "", err
	}
	content, err = r.file(ctx, commit, path)
	if err != nil {
		return nil, "", err
	}
	return content, commit.Hash.String(), nil
}

// Commit adds one commit to the branch. One process writes to a branch one commit at a time; against other writers it
// reads again and retries.
func (f *Forge) Commit(ctx context.Context, c activity.CommitRequest) (string, error) {
	if err := checkCommit(c); err != nil {
		return "", err
	}
	if ofProposals(c.Branch) {
		return "", invalid("branch", "found %q, where only proposals are made", c.Branch)
	}
	// Without the queue the branches of one rollout would make each other's pushes fail, and pay for each with a new
	// fetch.
	release, err := f.writer(ctx, c, c.Branch)
	if err != nil {
		return "", fault.Because(err, fault.Unavailable, "waited for other commits to %s of %s", c.Branch, c.RepoURL)
	}
	defer release()
	pause := firstPause
	for attempt := 1; ; attempt++ {
		var sha string
		err := f.within(ctx, c.Organization, c.RepoURL, func(ctx context.Context, share *gitfetch.Share) (err error) {
			sha, err = f.commitOnce(ctx, share, c)
			return err
		})
		if !errors.Is(err, errMoved) {
			return sha, err
		}
		f.log.InfoContext(ctx, "branch moved while committing", "repository", c.RepoURL, "branch", c.Branch, "attempt", attempt)
		if attempt == maxAttempts || clock.Sleep(ctx, f.clock, pause) != nil {
			return "", fault.New(fault.Conflict, "branch %q of %s moved %d times while committing", c.Branch, c.RepoURL, attempt)
		}
		pause = min(2*pause, longestPause)
	}
}

// writer waits for the other writers of an organization to a branch. Those of another organization do not wait for it: its servers may take
// long to answer.
func (f *Forge) writer(ctx context.Context, c activity.CommitRequest, branch string) (release func(), err error) {
	return f.writers.Lock(ctx, fmt.Sprintf("%d %s %s", c.Organization, c.RepoURL, branch))
}

// How often and how fast a commit is repeated after another one was faster. A process that pauses loses to one that does not, so the
// attempts last longer than another process's queue of fifty commits takes.
const (
	maxAttempts  = 30
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// errMoved means that the branch is no longer where the commit was built on.
var errMoved = errors.New("the branch has moved")

// commitOnce is one attempt: look, build, push. Each attempt looks at everything again, also for our own commit, because the answer to an
// earlier push may have been lost.
func (f *Forge) commitOnce(ctx context.Context, share *gitfetch.Share, c activity.CommitRequest) (string, error) {
	if h, err := f.hosted(ctx, c.Organization, c.RepoURL); err != nil || h != nil && !h.plain {
		if err != nil {
			return "", err
		}
		return h.commitOnce(ctx, c, f.author)
	}
	r, err := f.open(ctx, share, c.Organization, c.RepoURL)
	if err != nil {
		return "", err
	}
	head, err := r.branch(ctx, c.Branch)
	if err != nil {
		return "", err
	}
	// The activity comes first: a repeat of our commit must not revert files that others have changed after it.
	if found, ok := findActivity(head, c, f.author); ok {
		return found.Hash.String(), nil
	}
	made, err := r.build(head, c, f.author, f.clock.Now())
	if err != nil {
		return "", err
	}
	// The same tree means that the branch has these contents; a commit without a change would only be noise.
	if made.tree == head.TreeHash {
		return head.Hash.String(), nil
	}
	if err := r.unchangedSince(head, c); err != nil {
		return "", err
	}
	if err := r.push(ctx, c.Branch, head.Hash, made); err != nil {
		return "", err
	}
	return made.commit.String(), nil
}
