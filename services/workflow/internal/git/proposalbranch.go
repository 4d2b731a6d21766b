package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Proposals that are branches alone (D55), for servers without an interface for pull requests. People merge them with Git, and reject them
// by deleting the branch. Everything goes over Git's protocol.

// trailerMerged names, in a commit that has all of a proposal, the head that was merged.
const trailerMerged = "Lockstep-Merged"

// errDeleted means that people have deleted the branch of a proposal.
var errDeleted = errors.New("the branch was deleted")

// proposeBranch implements Propose for a branch alone; the caller holds its lock.
func (f *Forge) proposeBranch(ctx context.Context, p activity.ProposalRequest) (activity.Proposal, error) {
	if p.Head != "" && !commitID.MatchString(p.Head) {
		return activity.Proposal{}, invalid("head", "found %q, expected the id of a commit", p.Head)
	}
	found := activity.Proposal{State: activity.ProposalOpen, Branch: p.Branch, Into: strings.TrimPrefix(p.Commit.Branch, "refs/heads/")}
	pushed, err := f.pushProposal(ctx, p)
	switch {
	case errors.Is(err, errDeleted):
		found.State, found.Head = activity.ProposalClosed, p.Head
		return found, nil // a decision of people stays
	case err != nil:
		return activity.Proposal{}, err
	case !pushed.changed:
		return activity.Proposal{State: activity.ProposalUnchanged, Head: pushed.head, Commit: pushed.head}, nil
	}
	found.Head = pushed.head
	return found, nil
}

// ReadBranch implements activity.Forge.
func (f *Forge) ReadBranch(ctx context.Context, p activity.BranchProposal) (found activity.Proposal, err error) {
	err = f.onBranch(ctx, p, false, func(_ context.Context, _ *repository, now activity.Proposal) error {
		found = now
		return nil
	})
	return found, err
}

// onBranch does something with a proposal that is a branch, as it is now. It may run several times, as operations of within may.
// With alone, the branch that it is for may be gone: nothing was merged there then.
func (f *Forge) onBranch(
	ctx context.Context, p activity.BranchProposal, alone bool, do func(ctx context.Context, r *repository, now activity.Proposal) error,
) error {
	if err := checkBranch(p.Branch); err != nil {
		return err
	}
	if !commitID.MatchString(p.Head) {
		return invalid("head", "found %q, expected the id of a commit", p.Head)
	}
	return f.within(ctx, p.Organization, p.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		r, err := f.open(ctx, share, p.Organization, p.RepoURL)
		if err != nil {
			return err
		}
		into := strings.TrimPrefix(p.Into, "refs/heads/")
		if _, exists := r.refs.References[string(plumbing.NewBranchReferenceName(into))]; alone && !exists {
			return do(ctx, r, f.standing(r, nil, p, nil))
		}
		base, err := r.branch(ctx, into)
		if err != nil {
			return err
		}
		return do(ctx, r, f.standing(r, base, p, f.squashed(p)))
	})
}

// squashed reports of a commit whether it is the one that was made here of a proposal.
func (f *Forge) squashed(p activity.BranchProposal) func(*object.Commit) bool {
	id := strings.TrimPrefix(p.Branch, activity.ProposalPrefix)
	return func(c *object.Commit) bool { return f.made(c, id) && endsWith(c.Message, trailerMerged+": "+p.Head) }
}

// standing is how a proposal that is a branch stands. It is merged once the branch that it is for has its head in its history, or the one
// commit that was made of it here, which squashed knows; and closed if it was deleted before that. Who did either is not known. Without a
// base nothing is merged.
func (f *Forge) standing(
	r *repository, base *object.Commit, p activity.BranchProposal, squashed func(*object.Commit) bool,
) activity.Proposal {
	now := activity.Proposal{State: activity.ProposalClosed, Branch: p.Branch, Into: strings.TrimPrefix(p.Into, "refs/heads/"), Head: p.Head}
	var merged *object.Commit
	switch {
	case base == nil:
	case includes(base, plumbing.NewHash(p.Head)):
		merged = bringing(base, plumbing.NewHash(p.Head))
	default:
		for c := range recent(base) {
			if squashed(c) {
				merged = c
				break
			}
		}
	}
	tip := r.refs.References[string(plumbing.NewBranchReferenceName(p.Branch))]
	switch {
	case merged != nil:
		now.State, now.Commit = activity.ProposalMerged, merged.Hash.String()
	case tip != plumbing.ZeroHash:
		now.State, now.Head = activity.ProposalOpen, tip.String()
	}
	return now
}

// includes reports whether a commit is in the history of a branch that was fetched.
func includes(head *object.Commit, commit plumbing.Hash) bool {
	for c := range recent(head) {
		if c.Hash == commit {
			return true
		}
	}
	return false
}

// bringing is the first commit of a branch that has another one in its history: itself, or what has merged it.
func bringing(head *object.Commit, commit plumbing.Hash) *object.Commit {
	for head.Hash != commit && head.NumParents() > 0 {
		before, err := head.Parent(0)
		if err != nil || !includes(before, commit) {
			break
		}
		head = before
	}
	return head
}

// mergeBranch implements Merge for a branch alone. Others may move either branch at the same time: it looks at both again until its push
// was the first.
func (f *Forge) mergeBranch(ctx context.Context, m activity.MergeRequest) (found activity.Proposal, err error) {
	if err := checkBranch(m.Branch); err != nil {
		return found, err
	}
	release, err := f.writer(ctx, m.Commit, m.Commit.Branch)
	if err != nil {
		return found, fault.Because(err, fault.Unavailable, "waited for other commits to %s of %s", m.Commit.Branch, m.Commit.RepoURL)
	}
	defer release()
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := f.within(ctx, m.Commit.Organization, m.Commit.RepoURL, func(ctx context.Context, share *gitfetch.Share) (err error) {
			found, err = f.mergeBranchOnce(ctx, share, m)
			return err
		})
		if !errors.Is(err, errMoved) {
			return found, err
		}
		if attempt == maxAttempts || clock.Sleep(ctx, f.clock, pause) != nil {
			return found, fault.New(fault.Conflict, "branch %q of %s moved %d times while merging", m.Commit.Branch, m.Commit.RepoURL, attempt)
		}
		pause = min(2*pause, longestPause)
	}
}

// mergeBranchOnce is one attempt: look, compare, and push what was compared. The answer to an earlier push may have been lost, and people
// may have merged it.
func (f *Forge) mergeBranchOnce(ctx context.Context, share *gitfetch.Share, m activity.MergeRequest) (found activity.Proposal, err error) {
	c := m.Commit
	c.Branch = strings.TrimPrefix(c.Branch, "refs/heads/")
	r, err := f.open(ctx, share, c.Organization, c.RepoURL)
	if err != nil {
		return found, err
	}
	base, err := r.branch(ctx, c.Branch)
	if err != nil {
		return found, err
	}
	p := activity.BranchProposal{Organization: c.Organization, RepoURL: c.RepoURL, Branch: m.Branch, Into: c.Branch, Head: m.Head}
	// The trailers alone can be copied by everybody who may push: another commit with them is no merge.
	whole := message(squash(c, m))
	found = f.standing(r, base, p, func(commit *object.Commit) bool {
		has, err := hasFiles(commit, c)
		return err == nil && has && commit.Message == whole && f.squashed(p)(commit)
	})
	same, err := hasFiles(base, c)
	if err != nil {
		return found, err
	}
	switch {
	case found.State == activity.ProposalMerged:
		return found, f.mergedAs(ctx, r, found, c)
	case same: // people have made one commit of it
		found.State, found.Head, found.Commit = activity.ProposalMerged, m.Head, base.Hash.String()
		r.clean(ctx, f, m)
		return found, nil
	case found.State == activity.ProposalClosed:
		return found, fault.New(fault.Refused, "branch %q of %s was deleted without a merge", m.Branch, c.RepoURL)
	}
	made, err := f.comparedMerge(ctx, r, base, m)
	if err != nil {
		return found, err
	}
	if found.Note, err = r.land(ctx, c.Branch, base.Hash, made, m); err != nil {
		return found, err
	}
	r.clean(ctx, f, m)
	found.State, found.Head, found.Commit = activity.ProposalMerged, m.Head, made.commit.String()
	return found, nil
}

// squash is the one commit that a proposal becomes: its change, with the head that it had, by which a repeat finds it.
func squash(c activity.CommitRequest, m activity.MergeRequest) activity.CommitRequest {
	c.Trailers = withProposal(c.Trailers, activity.ProposalRequest{ID: strings.TrimPrefix(m.Branch, activity.ProposalPrefix)})
	c.Trailers[trailerMerged] = m.Head
	return c
}

// mergedAs compares the files of a merge that has happened with those of the call.
func (f *Forge) mergedAs(ctx context.Context, r *repository, p activity.Proposal, c activity.CommitRequest) error {
	merged, err := r.commit(plumbing.NewHash(p.Commit))
	if err != nil {
		return err
	}
	if same, err := hasFiles(merged, c); err != nil || !same {
		if err == nil {
			err = fault.New(fault.Refused, "branch %q of %s was merged as %s, in which a file has other contents than were proposed", p.Branch, c.RepoURL, p.Commit)
		}
		return err
	}
	r.clean(ctx, f, activity.MergeRequest{Commit: c, Branch: p.Branch, Head: p.Head})
	return nil
}

// hasFiles reports whether a commit has exactly the contents of a request.
func hasFiles(commit *object.Commit, c activity.CommitRequest) (bool, error) {
	tree, err := commit.Tree()
	if err != nil {
		return false, fmt.Errorf("read tree of %s: %w", commit.Hash, err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if hashAt(tree, path).String() != blobID(c.Files[path]) || modeAt(tree, path) == filemode.Symlink {
			return false, nil
		}
	}
	return true, nil
}

// comparedMerge is what is pushed to merge a proposal, after its head was compared with the call: the commit that was proposed, and none
// that others may have put in its place, with the message that it was proposed with.
func (f *Forge) comparedMerge(ctx context.Context, r *repository, base *object.Commit, m activity.MergeRequest) (built, error) {
	edit, err := r.tip(ctx, m.Branch)
	if err != nil {
		return built{}, err
	}
	if edit.Hash.String() != m.Head {
		return built{}, fault.New(fault.Conflict, "the head of the proposal is %s, expected %s", edit.Hash, m.Head)
	}
	id := strings.TrimPrefix(m.Branch, activity.ProposalPrefix)
	c := m.Commit
	c.Branch, c.Trailers = strings.TrimPrefix(c.Branch, "refs/heads/"), withProposal(c.Trailers, activity.ProposalRequest{ID: id})
	switch {
	case !f.made(edit, id):
		return built{}, fault.New(fault.Refused, "%s was made by %s <%s>, expected the commit of the proposal %s; propose the change again", edit.Hash,
			edit.Committer.Name, edit.Committer.Email, id)
	case edit.Message != message(c):
		return built{}, fault.New(fault.Refused, "%s has another message than the call; propose the change again", edit.Hash)
	}
	if err := r.sameEdit(base, edit, c); err != nil {
		return built{}, err
	}
	switch m.Method {
	case activity.MergeSquash:
		return r.build(base, squash(c, m), f.author, f.clock.Now())
	case activity.MergeFastForward:
		if edit.ParentHashes[0] != base.Hash {
			return built{}, fault.New(fault.Conflict, "branch %q of %s has moved to %s, so that it cannot be fast-forwarded to %s; propose the change again",
				c.Branch, r.url, base.Hash, m.Head)
		}
		return built{commit: edit.Hash, tree: edit.TreeHash, objects: []plumbing.Hash{edit.Hash}}, nil
	default:
		return r.build(base, c, f.author, f.clock.Now(), edit.Hash)
	}
}

// land moves a branch to a merge and deletes the branch of the proposal, both or neither: who deletes or moves that at the last moment is
// heard. A server that cannot do both at once, or does not let branches be deleted, is asked for the first alone; what was not heard there
// is the note.
func (r *repository) land(
	ctx context.Context, into string, base plumbing.Hash, made built, m activity.MergeRequest,
) (note string, err error) {
	name, head := plumbing.NewBranchReferenceName(m.Branch), plumbing.NewHash(m.Head)
	move := &packp.Command{Name: plumbing.NewBranchReferenceName(into), Old: base, New: made.commit}
	err = r.update(ctx, made.objects, true, move, &packp.Command{Name: name, Old: head, New: plumbing.ZeroHash})
	if !errors.Is(err, errNotAtOnce) && (!fault.Is(err, fault.Refused) || errors.Is(err, errFirstRefused)) {
		return "", err
	}
	if err := r.isAt(ctx, name, head); err != nil {
		return "", err
	}
	if err := r.update(ctx, made.objects, false, move); err != nil {
		return "", err
	}
	return r.unheard(ctx, name, head), nil
}

// unheard is what others have done with the branch of a proposal while it was merged, and before Lockstep deletes it; empty for nothing,
// and if it cannot be known: it is merged.
func (r *repository) unheard(ctx context.Context, name plumbing.ReferenceName, head plumbing.Hash) string {
	const inTime = " in the moment of the merge, which this server does not let Lockstep hear in time"
	refs, err := r.session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return ""
	}
	switch now := refs.References[string(name)]; now {
	case head:
		return ""
	case plumbing.ZeroHash:
		return "its branch was deleted by others" + inTime
	default:
		return "its branch was moved by others to " + now.String() + inTime
	}
}

// tip is the head of the branch of a proposal. If it has moved since the look, or was deleted, the server may not serve it any more: that
// is errMoved.
func (r *repository) tip(ctx context.Context, branch string) (*object.Commit, error) {
	commit, err := r.branch(ctx, branch)
	if fault.Is(err, fault.Unavailable) {
		name := plumbing.NewBranchReferenceName(branch)
		if moved := r.isAt(ctx, name, r.refs.References[string(name)]); errors.Is(moved, errMoved) {
			return nil, moved
		}
	}
	return commit, err
}

// isAt returns errMoved if a branch is not at a commit now.
func (r *repository) isAt(ctx context.Context, name plumbing.ReferenceName, at plumbing.Hash) error {
	refs, err := r.session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.classify(err, "read")
	}
	if refs.References[string(name)] != at {
		return errMoved
	}
	return nil
}

// errNotAtOnce means that a server cannot change several branches at once.
var errNotAtOnce = errors.New("several branches cannot be changed at once")

// update changes branches, if each is where it is expected; otherwise the error is errMoved. With atomic it changes all of them or none.
func (r *repository) update(ctx context.Context, objects []plumbing.Hash, atomic bool, commands ...*packp.Command) error {
	session, err := r.client.NewReceivePackSession(r.endpoint, r.auth)
	if err != nil {
		return fault.Because(err, fault.Unavailable, "a session with %s failed", r.url)
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.classify(err, "write to")
	}
	for _, command := range commands {
		if refs.References[string(command.Name)] != command.Old {
			return errMoved
		}
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	var reported hookText
	if refs.Capabilities.Supports(capability.Sideband64k) {
		if err := req.Capabilities.Set(capability.Sideband64k); err != nil {
			return fault.Because(err, fault.Internal, "a request to %s could not be made", r.url)
		}
		req.Progress = &reported
	}
	wanted := []capability.Capability{capability.DeleteRefs}
	if atomic {
		wanted = append(wanted, capability.Atomic)
	}
	for _, each := range wanted {
		if !refs.Capabilities.Supports(each) {
			if atomic {
				return errNotAtOnce
			}
			continue
		}
		if err := req.Capabilities.Set(each); err != nil {
			return fault.Because(err, fault.Internal, "a request to %s could not be made", r.url)
		}
	}
	if len(objects) > 0 {
		var pack bytes.Buffer
		if _, err := packfile.NewEncoder(&pack, r.objects, false).Encode(objects, 0); err != nil {
			return fmt.Errorf("pack commit for %s: %w", r.url, err)
		}
		req.Packfile = io.NopCloser(&pack)
	}
	req.Commands = commands
	report, err := session.ReceivePack(ctx, req)
	if report == nil && err != nil {
		return r.classify(err, "write to")
	}
	if err != nil {
		return r.refusedUpdate(ctx, commands, report, reported.String(), err)
	}
	return nil
}

// clean deletes the branch of a proposal that was merged. One that stays is in nobody's way.
func (r *repository) clean(ctx context.Context, f *Forge, m activity.MergeRequest) {
	if err := r.deleteBranch(ctx, m.Branch, plumbing.NewHash(m.Head)); err != nil {
		f.log.InfoContext(ctx, "the branch of a merged proposal was not deleted", "repository", r.url, "branch", m.Branch, "error", err)
	}
}

// deleteBranch deletes a branch, if it is at the commit; otherwise the error is errMoved. One that does not exist is no error.
func (r *repository) deleteBranch(ctx context.Context, branch string, at plumbing.Hash) error {
	name := plumbing.NewBranchReferenceName(branch)
	if r.isAt(ctx, name, plumbing.ZeroHash) == nil {
		return nil
	}
	return r.update(ctx, nil, false, &packp.Command{Name: name, Old: at, New: plumbing.ZeroHash})
}

// WithdrawBranch implements activity.Forge.
func (f *Forge) WithdrawBranch(ctx context.Context, p activity.BranchProposal) (found activity.Proposal, err error) {
	err = f.onBranch(ctx, p, true, func(ctx context.Context, r *repository, now activity.Proposal) error {
		if found = now; now.State == activity.ProposalOpen {
			found.State = activity.ProposalClosed
		}
		at := r.refs.References[string(plumbing.NewBranchReferenceName(p.Branch))]
		if at == plumbing.ZeroHash {
			return nil
		}
		tip, err := r.tip(ctx, p.Branch)
		if err != nil {
			return err
		}
		if id := strings.TrimPrefix(p.Branch, activity.ProposalPrefix); !f.made(tip, id) {
			return fault.New(fault.Conflict, "the last commit of branch %q of %s, %s, is not that of the proposal %s: the branch was changed by others, and stays",
				p.Branch, p.RepoURL, tip.Hash, id)
		}
		return r.deleteBranch(ctx, p.Branch, at)
	})
	if errors.Is(err, errMoved) {
		err = fault.New(fault.Conflict, "branch %q of %s has moved while it was deleted", p.Branch, p.RepoURL)
	}
	return found, err
}
