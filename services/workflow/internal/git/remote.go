package git

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// repository is one remote repository during one operation, and what has been fetched of it.
type repository struct {
	url      string
	client   transport.Transport
	endpoint *transport.Endpoint
	// auth is nil where nothing is configured: public repositories are read without.
	auth    transport.AuthMethod
	session transport.UploadPackSession
	// refs are those of the moment of opening; a push asks for them again.
	refs    *packp.AdvRefs
	objects *gitfetch.Store
	// alone has commits fetched by themselves only, never with all branches.
	alone bool
}

// open asks the repository for its refs.
func (f *Forge) open(ctx context.Context, share *gitfetch.Share, organization int64, repoURL string) (*repository, error) {
	u, err := parseURL("repo_url", repoURL, false)
	if err != nil {
		return nil, err
	}
	endpoint, err := transport.NewEndpoint(u.String())
	if err != nil {
		return nil, invalid("repo_url", "found %q, expected an http or https URL", repoURL)
	}
	r := &repository{url: repoURL, client: f.client, endpoint: endpoint, objects: gitfetch.NewStore(share)}
	if u.Scheme == sealing.SchemeSSH {
		r.client, err = f.overSSH(ctx, organization, repoURL)
	} else {
		err = r.authenticate(ctx, f, organization, u)
	}
	if err != nil {
		return nil, err
	}
	r.session, err = r.client.NewUploadPackSession(endpoint, r.auth)
	if err != nil {
		return nil, fmt.Errorf("session with %s: %w", repoURL, err)
	}
	r.refs, err = r.session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, r.classify(err, "read")
	}
	return r, nil
}

// authenticate chooses the credentials of the repository, if any are configured for the organization.
func (r *repository) authenticate(ctx context.Context, f *Forge, organization int64, u *url.URL) error {
	auth, err := f.credentials.login(ctx, organization, u)
	if err != nil || auth == nil { // a nil *BasicAuth must not become a non-nil AuthMethod
		return err
	}
	r.auth = auth
	return nil
}

// fetch gets commits and their folders, with their last depth commits; 0 is all of them. Servers that cannot leave files out send these,
// too.
func (r *repository) fetch(ctx context.Context, depth int, wants ...plumbing.Hash) error {
	return r.get(ctx, gitfetch.Want{Objects: wants, Depth: depth, TreesAlone: true})
}

func (r *repository) get(ctx context.Context, want gitfetch.Want) error {
	err := r.objects.Fetch(ctx, r.session, r.refs, want)
	switch {
	case errors.Is(err, gitfetch.ErrInterrupted):
		return fault.Because(err, fault.Unavailable, "reading from %s was interrupted", r.url)
	case err != nil:
		return r.classify(err, "read")
	}
	return nil
}

// branch is the head of a branch, with enough history to find the trailer of a commit that may be ours, and the base that files were
// made from.
func (r *repository) branch(ctx context.Context, name string) (*object.Commit, error) {
	hash, ok := r.refs.References[string(plumbing.NewBranchReferenceName(name))]
	if !ok {
		return nil, fault.New(fault.NotFound, "branch %q does not exist in %s", name, r.url)
	}
	if err := r.fetch(ctx, historyDepth, hash); err != nil {
		return nil, err
	}
	return r.commit(hash)
}

// commitID is a full SHA-1. Shorter ones may become ambiguous, and Git's protocol does not know them.
var commitID = regexp.MustCompile(`^[0-9a-f]{40}$`)

// resolve finds the commit that a ref names: HEAD, a full name, a branch, a tag, or a commit id.
func (r *repository) resolve(ctx context.Context, ref string) (*object.Commit, error) {
	hash, ok := r.lookup(ref)
	if !ok && commitID.MatchString(ref) {
		return r.resolveCommit(ctx, plumbing.NewHash(ref))
	}
	if !ok {
		return nil, fault.New(fault.NotFound, "ref %q does not exist in %s", ref, r.url)
	}
	if err := r.fetch(ctx, 1, hash); err != nil {
		return nil, err
	}
	return r.commit(hash)
}

// lookup finds a ref among those that the remote advertises, in the order in which Git looks.
func (r *repository) lookup(ref string) (plumbing.Hash, bool) {
	if ref == "HEAD" && r.refs.Head != nil {
		return *r.refs.Head, true
	}
	for _, name := range []string{ref, "refs/heads/" + ref, "refs/tags/" + ref} {
		if hash, ok := r.refs.References[name]; ok {
			return hash, true
		}
	}
	return plumbing.ZeroHash, false
}

// resolveCommit fetches a commit by its id. Servers that only serve the heads of branches are asked for all of these.
func (r *repository) resolveCommit(ctx context.Context, want plumbing.Hash) (*object.Commit, error) {
	var heads []plumbing.Hash
	for _, hash := range r.refs.References {
		if hash == want {
			heads = nil
			break
		}
		heads = append(heads, hash)
	}
	caps := r.refs.Capabilities
	if heads == nil || caps.Supports(capability.AllowReachableSHA1InWant) {
		if err := r.fetch(ctx, 1, want); err == nil {
			return r.commit(want)
		} else if fault.Is(err, fault.Unavailable) {
			return nil, err
		}
	}
	if len(heads) > 0 && r.alone {
		return nil, fault.New(fault.NotFound, "%s does not serve commit %s by its id", r.url, want)
	}
	if len(heads) > 0 {
		if err := r.fetch(ctx, 0, heads...); err != nil {
			return nil, err
		}
	}
	return r.commit(want)
}

// commit reads a fetched commit, through an annotated tag if need be.
func (r *repository) commit(hash plumbing.Hash) (*object.Commit, error) {
	c, err := object.GetCommit(r.objects, hash)
	if err == nil {
		return c, nil
	}
	if tag, tagErr := object.GetTag(r.objects, hash); tagErr == nil {
		if c, err = tag.Commit(); err == nil {
			return c, nil
		}
	}
	if errors.Is(err, plumbing.ErrObjectNotFound) || errors.Is(err, object.ErrUnsupportedObject) {
		return nil, fault.New(fault.NotFound, "commit %s does not exist in %s", hash, r.url)
	}
	return nil, fmt.Errorf("read commit %s of %s: %w", hash, r.url, err)
}

// file reads a file out of a commit whose folders were fetched.
func (r *repository) file(ctx context.Context, commit *object.Commit, path string) ([]byte, error) {
	tree, err := commit.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", commit.Hash, err)
	}
	if !isTreePath(path) {
		return nil, invalid("path", "found %q, which Git takes for no path in a commit", path)
	}
	entry, err := tree.FindEntry(path)
	if errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) || err != nil && belowNoFolder(tree, path) {
		return nil, fault.New(fault.NotFound, "path %q does not exist in %s at %s", path, r.url, commit.Hash)
	}
	if err != nil {
		return nil, fmt.Errorf("find %s in %s: %w", path, commit.Hash, err)
	}
	if !entry.Mode.IsFile() {
		return nil, invalid("path", "found %q, which is no file at %s", path, commit.Hash)
	}
	if err := r.fetchFile(ctx, commit, entry.Hash); err != nil {
		return nil, err
	}
	content, err := r.objects.File(entry.Hash)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", path, commit.Hash, err)
	}
	return content, nil
}

// isTreePath reports whether a path may be in a commit: on every system, so that git~1/x may not. Nothing is in an empty tree.
func isTreePath(path string) bool {
	_, err := new(object.Tree).FindEntry(path)
	return errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound)
}

// belowNoFolder reports whether a part of a path is a file, a link or a submodule.
func belowNoFolder(tree *object.Tree, path string) bool {
	for i, c := range path {
		if c != '/' {
			continue
		}
		switch entry, err := tree.FindEntry(path[:i]); {
		case err != nil:
			return false
		case entry.Mode != filemode.Dir:
			return true
		}
	}
	return false
}

// fetchFile gets a file that was left out: by its name, or, from servers that do not send files by their names although they can leave them
// out, with all others of the commit.
func (r *repository) fetchFile(ctx context.Context, commit *object.Commit, file plumbing.Hash) error {
	if !gitfetch.CanFilter(r.refs) || r.objects.Has(file) {
		return nil
	}
	if gitfetch.CanFetchFiles(r.refs) {
		err := r.get(ctx, gitfetch.Want{Objects: []plumbing.Hash{file}})
		if err == nil || fault.Is(err, fault.Unavailable) {
			return err
		}
	}
	return r.get(ctx, gitfetch.Want{Objects: []plumbing.Hash{commit.Hash}, Depth: 1})
}

// push has the branch moved from base to the commit, if it is still at base; otherwise the error is errMoved.
func (r *repository) push(ctx context.Context, branch string, base plumbing.Hash, made built) error {
	ctx, end := telemetry.StartChildSpan(ctx, "git push", telemetry.Client, telemetry.Count(telemetry.GitObjects, len(made.objects)))
	err := r.pushObjects(ctx, branch, base, made)
	if err != nil {
		end("the push failed")
	} else {
		end("")
	}
	return err
}

func (r *repository) pushObjects(ctx context.Context, branch string, base plumbing.Hash, made built) error {
	session, err := r.client.NewReceivePackSession(r.endpoint, r.auth)
	if err != nil {
		return fmt.Errorf("session with %s: %w", r.url, err)
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.classify(err, "write to")
	}
	// Another push may have been faster already; the server checks once more, when it has the lock.
	name := plumbing.NewBranchReferenceName(branch)
	if refs.References[string(name)] != base {
		return errMoved
	}
	// Only what is new is sent: the remote has everything else, since it served it.
	var pack bytes.Buffer
	if _, err := packfile.NewEncoder(&pack, r.objects, false).Encode(made.objects, 0); err != nil {
		return fmt.Errorf("pack commit for %s: %w", r.url, err)
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	req.Commands = []*packp.Command{{Name: name, Old: base, New: made.commit}}
	req.Packfile = io.NopCloser(&pack)
	// Without a report the exchange itself has failed, and whether the branch moved is open: the repeat looks for the
	// trailer.
	report, err := session.ReceivePack(ctx, req)
	if report == nil && err != nil {
		return r.classify(err, "write to")
	}
	if err != nil {
		return r.refused(ctx, branch, base, err)
	}
	return nil
}

// refused distinguishes a push that came too late from one that a rule of the repository forbids: only in the first case has the branch
// moved.
func (r *repository) refused(ctx context.Context, branch string, base plumbing.Hash, cause error) error {
	refs, err := r.session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.classify(err, "read")
	}
	if refs.References[string(plumbing.NewBranchReferenceName(branch))] != base {
		return errMoved
	}
	return fault.Because(cause, fault.Refused, "%s refuses the commit to %q: %v", r.url, branch, cause)
}

// classify turns the error of a failed exchange into one for the caller.
func (r *repository) classify(err error, op string) error {
	var unexpected *plumbing.UnexpectedError
	var response *githttp.Err
	if errors.As(err, &unexpected) {
		err = unexpected.Err // it does not unwrap by itself
	}
	if failed, ok := errors.AsType[*gitfetch.SSHError](err); ok {
		return fault.Because(err, fault.ClassOf(failed), "%s: %s", r.url, failed)
	}
	switch {
	case fault.Is(err, fault.Denied): // by the rules about where a program may go
		return fault.Because(err, fault.Refused, "%s may not be reached: %s", r.url, fault.Public(err))
	case errors.Is(err, transport.ErrAuthenticationRequired):
		if r.auth == nil {
			return fault.Because(err, fault.Unauthenticated, "%s wants credentials, and none are configured for it", r.url)
		}
		return fault.Because(err, fault.Unauthenticated, "%s does not accept the configured credentials", r.url)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return fault.Because(err, fault.Denied, "the configured credentials may not %s %s", op, r.url)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fault.Because(err, fault.NotFound, "repository %s does not exist", r.url)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fault.Because(err, fault.NotFound, "repository %s is empty: no ref exists in it", r.url)
	// 429 is a server that has too much to do: it falls through to Unavailable, which is tried again.
	case errors.As(err, &response) && response.StatusCode() < 500 && response.StatusCode() != 429:
		return fault.Because(err, fault.NotFound, "repository %s cannot be used: HTTP status %d", r.url, response.StatusCode())
	case isMalformed(err):
		return fault.Because(err, fault.NotFound, "%s does not answer like a Git repository", r.url)
	default:
		return silent(r.url, err)
	}
}

// isMalformed recognizes an answer that is no Git: a web page, most likely.
func isMalformed(err error) bool {
	var decode *packp.ErrUnexpectedData
	return errors.As(err, &decode) || errors.Is(err, packp.ErrEmptyInput) || errors.Is(err, pktline.ErrInvalidPktLen)
}

// silent says of a server that gave no answer why, where it is the server's certificate: nobody would look there for what is
// otherwise a server that is away. It is tried again too, since certificates and authorities are replaced without a restart.
func silent(url string, err error) error {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.Because(err, fault.Unavailable, "the certificate of %s is not trusted: %s", url, untrusted.Err)
	}
	return fault.Because(err, fault.Unavailable, "%s does not answer", url)
}
