// Package git polls repositories over Git's smart HTTP protocol for sources of kind git@1: which commit a branch or the newest tag
// points to, and whether the changes up to it match the source's path filters.
//
// It does not clone: for a branch that has changed it fetches commits and trees without blobs, and for the first commit or a new tag that
// one commit, whose message the artifact has; otherwise only refs, within the memory budget that all fetches of the process share (package
// gitfetch). Commits that Lockstep made itself, which have its trailers, are no artifacts. It writes to no repository.
package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Deps are the dependencies of Repositories.
type Deps struct {
	// Transport connects to the repositories: their addresses come from tenants (D41).
	Transport http.RoundTripper
	// Budget is the shared memory budget.
	Budget *gitfetch.Budget
	// Login returns an organization's account for a repository, given as host and path; an empty password means none.
	Login func(organization int64, repository string) (username, password string, err error)
}

// Repositories polls Git repositories.
type Repositories struct {
	client transport.Transport
	budget *gitfetch.Budget
	login  func(organization int64, repository string) (username, password string, err error)
}

var _ core.Finder = (*Repositories)(nil)

// New returns Repositories over a transport.
func New(d Deps) *Repositories {
	client := &http.Client{Transport: gitfetch.Transport{Next: d.Transport}}
	return &Repositories{client: githttp.NewClient(client), budget: d.Budget, login: d.Login}
}

// note is the memory of a source between polls: the commit that the branch was at.
type note struct {
	Commit string `json:"commit"`
	// Reported is the last commit that counted: the source's newest artifact.
	Reported string `json:"reported"`
}

// Find implements core.Finder.
func (r *Repositories) Find(ctx context.Context, s core.Source) (core.Finding, error) {
	parsed, problems := source.Parse(s.Ref, s.Config)
	repository, ok := parsed.(*source.Repository)
	if len(problems) > 0 || !ok {
		return core.Finding{}, fault.InvalidFields(problems...)
	}
	var noted note
	if s.Memory != nil {
		if err := json.Unmarshal(s.Memory, &noted); err != nil {
			noted = note{} // from another release: the commit is reported again, under the same identity
		}
	}
	var finding core.Finding
	look := func(whole bool) error {
		return r.budget.Do(ctx, s.Organization, func(ctx context.Context, share *gitfetch.Share) (err error) {
			finding, err = r.look(ctx, share, s, repository, noted, whole)
			return err
		})
	}
	err := look(true)
	if _, limit := errors.AsType[*gitfetch.LimitError](err); limit && !repository.Filtered() {
		err = look(false) // every commit counts, also those of Lockstep
	}
	if limit, ok := errors.AsType[*gitfetch.LimitError](err); ok {
		return core.Finding{}, fault.New(fault.Refused, "%s: %w", repository.URL, limit)
	}
	return finding, err
}

// look is one attempt at Find; whole fetches commits where that is needed.
func (r *Repositories) look(
	ctx context.Context, share *gitfetch.Share, s core.Source, repository *source.Repository, noted note, whole bool,
) (core.Finding, error) {
	session, refs, err := r.open(ctx, s.Organization, repository)
	if err != nil {
		return core.Finding{}, err
	}
	defer session.Close() //nolint:errcheck // everything has been read
	found, err := newest(repository, refs)
	if err != nil {
		return core.Finding{}, err
	}
	if found == nil {
		return core.Finding{Memory: s.Memory}, nil
	}
	counts, objects := true, gitfetch.NewStore(share)
	if whole {
		counts, err = r.counts(ctx, objects, repository, session, refs, noted, found.Digest)
	}
	if err != nil {
		return core.Finding{}, err
	}
	if whole && counts && noted.Reported != found.Digest {
		if found.Message, err = message(ctx, objects, session, refs, *found); err != nil {
			return core.Finding{}, fmt.Errorf("read the message of %s: %w", found.Digest, err)
		}
		if repository.Branch != "" && noted.Reported != "" {
			if err := (change{from: noted.Reported, to: found.Digest}).fill(ctx, objects, repository, found); err != nil {
				return core.Finding{}, fmt.Errorf("compare %s with %s: %w", noted.Reported, found.Digest, err)
			}
		}
	}
	noted.Commit = found.Digest
	if counts {
		noted.Reported = found.Digest
	} else {
		found = nil
	}
	raw, err := json.Marshal(noted)
	if err != nil {
		return core.Finding{}, fmt.Errorf("encode the memory of %s: %w", repository.URL, err)
	}
	return core.Finding{Found: found, Memory: raw}, nil
}

// counts reports whether the branch's commit is an artifact of the source: the first one seen is, and any later one if others than Lockstep
// have changed files that the filters want since the previous poll, or if the changes are unknown. Tags always count.
func (r *Repositories) counts(
	ctx context.Context, objects *gitfetch.Store, s *source.Repository, session transport.UploadPackSession, refs *packp.AdvRefs,
	noted note, commit string,
) (bool, error) {
	switch {
	case s.Branch == "" || noted.Commit == "":
		return true, nil
	case noted.Commit == commit:
		return noted.Reported == commit, nil
	}
	matters, known, err := change{from: noted.Commit, to: commit}.matters(ctx, objects, session, refs, s)
	if err != nil {
		return false, classify(err, s.URL)
	}
	return !known || matters, nil
}

// newest returns the commit of the branch, or the newest tag; nil if there is none.
func newest(s *source.Repository, refs *packp.AdvRefs) (*core.Notification, error) {
	if s.Branch != "" {
		hash, ok := refs.References[string(plumbing.NewBranchReferenceName(s.Branch))]
		if !ok {
			return nil, fault.New(fault.NotFound, "%s: there is no branch %q", s.URL, s.Branch)
		}
		return &core.Notification{Image: s.Artifact(), Digest: hash.String()}, nil
	}
	commits := map[string]string{}
	for name, hash := range refs.References {
		if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
			commits[tag] = hash.String()
		}
	}
	// An annotated tag is an object of its own; its target is advertised beside it.
	for name, hash := range refs.Peeled {
		if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
			commits[tag] = hash.String()
		}
	}
	names := make([]string, 0, len(commits))
	for tag := range commits {
		names = append(names, tag)
	}
	tag, ok := s.Newest(names)
	if !ok {
		return nil, nil //nolint:nilnil // nothing was found, and nothing went wrong
	}
	return &core.Notification{Image: s.Artifact(), Tag: tag, Digest: commits[tag]}, nil
}

// open requests a repository's refs.
func (r *Repositories) open(
	ctx context.Context, organization int64, s *source.Repository,
) (transport.UploadPackSession, *packp.AdvRefs, error) {
	endpoint, err := transport.NewEndpoint(s.URL)
	if err != nil {
		return nil, nil, fault.Because(err, fault.Invalid, "%s is not a repository", s.URL)
	}
	var auth transport.AuthMethod
	username, password, err := r.login(organization, s.Name())
	if err != nil {
		return nil, nil, err
	}
	if password != "" {
		if username == "" {
			username = "git" // forges accept any name with a token, but require one
		}
		auth = &githttp.BasicAuth{Username: username, Password: password}
	}
	session, err := r.client.NewUploadPackSession(endpoint, auth)
	if err != nil {
		return nil, nil, classify(err, s.URL)
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, nil, classify(err, s.URL)
	}
	return session, refs, nil
}

// classify classifies an error.
func classify(err error, url string) error {
	if own, ok := errors.AsType[*fault.Error](err); ok { // the transport's own refusals
		return fault.New(own.Class(), "%s: %w", url, own)
	}
	switch {
	case errors.Is(err, transport.ErrRepositoryNotFound), errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fault.New(fault.NotFound, "%s: there is no such repository, or it is empty", url)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return fault.New(fault.Denied, "%s: the repository refuses access", url)
	default:
		return fault.New(fault.Unavailable, "%s: the repository does not answer: %w", url, err)
	}
}
