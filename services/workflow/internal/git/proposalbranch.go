package git

import (
	"context"
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Proposals that are branches alone (D55), for servers without an interface for pull requests. People merge them with Git, and reject them
// by deleting the branch. Everything goes over Git's protocol.

// errDeleted means that people have deleted the branch of a proposal.
var errDeleted = errors.New("the branch was deleted")

// proposeBranch implements Propose for a branch alone; the caller holds its lock.
func (f *Forge) proposeBranch(ctx context.Context, p activity.ProposalRequest) (activity.Proposal, error) {
	if p.Head != "" && !commitID.MatchString(p.Head) {
		return activity.Proposal{}, invalid("head", "found %q, expected the id of a commit", p.Head)
	}
	found := activity.Proposal{State: activity.ProposalOpen, Branch: p.Branch, Into: strings.TrimPrefix(p.Commit.Branch, "refs/heads/")}
	head, changed, err := f.pushProposal(ctx, p)
	switch {
	case errors.Is(err, errDeleted):
		found.State, found.Head = activity.ProposalClosed, p.Head
		return found, nil // a decision of people stays
	case err != nil:
		return activity.Proposal{}, err
	case !changed:
		return activity.Proposal{State: activity.ProposalUnchanged, Head: head, Commit: head}, nil
	}
	found.Head = head
	return found, nil
}

// ReadBranch implements activity.Forge.
func (f *Forge) ReadBranch(ctx context.Context, p activity.BranchProposal) (found activity.Proposal, err error) {
	err = f.onBranch(ctx, p, func(_ context.Context, _ *repository, now activity.Proposal) error {
		found = now
		return nil
	})
	return found, err
}

// onBranch does something with a proposal that is a branch, as it is now. It may run twice, as operations of within may.
func (f *Forge) onBranch(
	ctx context.Context, p activity.BranchProposal, do func(ctx context.Context, r *repository, now activity.Proposal) error,
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
		now, err := r.proposal(ctx, p)
		if err != nil {
			return err
		}
		return do(ctx, r, now)
	})
}

// proposal is one that is a branch: merged once the branch that it is for has its head, and closed if it was deleted before.
func (r *repository) proposal(ctx context.Context, p activity.BranchProposal) (activity.Proposal, error) {
	into := strings.TrimPrefix(p.Into, "refs/heads/")
	now := activity.Proposal{State: activity.ProposalClosed, Branch: p.Branch, Into: into, Head: p.Head}
	base, err := r.branch(ctx, into)
	if err != nil {
		return activity.Proposal{}, err
	}
	for each := range recent(base) {
		if each.Hash.String() == p.Head {
			now.State, now.Commit = activity.ProposalMerged, base.Hash.String()
			return now, nil
		}
	}
	if hash := r.refs.References[string(plumbing.NewBranchReferenceName(p.Branch))]; hash != plumbing.ZeroHash {
		now.State, now.Head = activity.ProposalOpen, hash.String()
	}
	return now, nil
}

// mergeBranch implements Merge for a branch alone: what it is for is moved to it, and it is deleted.
func (f *Forge) mergeBranch(ctx context.Context, m activity.MergeRequest) (activity.Proposal, error) {
	if m.Method != activity.MergeFastForward {
		return activity.Proposal{}, invalid("method", "found %q for a branch alone, expected %s", m.Method, activity.MergeFastForward)
	}
	p := activity.BranchProposal{
		Organization: m.Commit.Organization, RepoURL: m.Commit.RepoURL, Branch: m.Branch, Into: m.Commit.Branch, Head: m.Head,
	}
	found, err := f.ReadBranch(ctx, p)
	switch {
	case err != nil:
		return found, err
	case found.State == activity.ProposalClosed:
		return found, fault.New(fault.Refused, "branch %q of %s was deleted without a merge", p.Branch, p.RepoURL)
	case found.State == activity.ProposalOpen:
		if found, err = f.merge(ctx, found, m); err != nil {
			return found, err
		}
	}
	if err := f.checkMerged(ctx, m, found); err != nil {
		return found, err
	}
	// A branch that stays is in nobody's way.
	err = f.onBranch(ctx, p, func(ctx context.Context, r *repository, _ activity.Proposal) error {
		return r.deleteBranch(ctx, p.Branch, plumbing.NewHash(p.Head))
	})
	if err != nil {
		f.log.InfoContext(ctx, "the branch of a merged proposal was not deleted", "repository", p.RepoURL, "branch", p.Branch, "error", err)
	}
	return found, nil
}

// WithdrawBranch implements activity.Forge.
func (f *Forge) WithdrawBranch(ctx context.Context, p activity.BranchProposal) (found activity.Proposal, err error) {
	err = f.onBranch(ctx, p, func(ctx context.Context, r *repository, now activity.Proposal) error {
		if found = now; now.State != activity.ProposalOpen {
			return nil
		}
		tip, err := r.branch(ctx, p.Branch)
		if err != nil {
			return err
		}
		if id := strings.TrimPrefix(p.Branch, activity.ProposalPrefix); !f.made(tip, id) {
			return fault.New(fault.Conflict, "the last commit of branch %q of %s, %s, is not that of the proposal %s: the branch was changed by others, and stays",
				p.Branch, p.RepoURL, tip.Hash, id)
		}
		found.State = activity.ProposalClosed
		return r.deleteBranch(ctx, p.Branch, tip.Hash)
	})
	if errors.Is(err, errMoved) {
		err = fault.New(fault.Conflict, "branch %q of %s has moved while it was deleted", p.Branch, p.RepoURL)
	}
	return found, err
}

// deleteBranch deletes a branch, if it is at the commit; otherwise the error is errMoved. One that does not exist is no error.
func (r *repository) deleteBranch(ctx context.Context, branch string, at plumbing.Hash) error {
	session, err := r.client.NewReceivePackSession(r.endpoint, r.auth)
	if err != nil {
		return fault.Because(err, fault.Unavailable, "a session with %s failed", r.url)
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.classify(err, "write to")
	}
	name := plumbing.NewBranchReferenceName(branch)
	switch refs.References[string(name)] {
	case plumbing.ZeroHash:
		return nil
	case at:
	default:
		return errMoved
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	if refs.Capabilities.Supports(capability.DeleteRefs) {
		if err := req.Capabilities.Set(capability.DeleteRefs); err != nil {
			return fault.Because(err, fault.Internal, "a request to %s could not be made", r.url)
		}
	}
	req.Commands = []*packp.Command{{Name: name, Old: at, New: plumbing.ZeroHash}}
	report, err := session.ReceivePack(ctx, req)
	if report == nil && err != nil {
		return r.classify(err, "write to")
	}
	if err != nil {
		return r.refused(ctx, branch, at, err)
	}
	return nil
}
