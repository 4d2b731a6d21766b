package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/utils/merkletrie"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// trailerProposal names the proposal that a commit was made for. The branch of a proposal is only ever replaced while its head has it.
const trailerProposal = "Lockstep-Proposal"

// draft is the text of a proposal.
type draft struct{ branch, into, title, body string }

// proposer is what a forge's own interface can do with proposals: pull requests, or merge requests as GitLab calls them. The commits are
// written and compared over Git's protocol, the same for all forges.
type proposer interface {
	// proposal is one by its number.
	proposal(ctx context.Context, number int64) (activity.Proposal, error)
	// proposed is the newest one from a branch into another, whatever its state; false for none.
	proposed(ctx context.Context, branch, into string) (activity.Proposal, bool, error)
	open(ctx context.Context, d draft) (activity.Proposal, error)
	edit(ctx context.Context, number int64, d draft) error
	close(ctx context.Context, number int64) error
	// merge merges one whose head is the given commit. It is Refused if the forge does not let it happen, now or ever.
	merge(ctx context.Context, m merging) error
}

// merging is how a proposal is merged.
type merging struct {
	number                    int64
	head, method, title, body string
}

// propose runs an operation with the interface of a repository's forge. It may run twice, as operations of within may.
func (f *Forge) propose(ctx context.Context, organization int64, repoURL string, operate func(context.Context, *hosted) error) error {
	return f.within(ctx, organization, repoURL, func(ctx context.Context, _ *gitfetch.Share) error {
		h, err := f.hosted(ctx, organization, repoURL)
		if err != nil {
			return err
		}
		if _, is, _ := sealing.ParseSSH(repoURL); is {
			return fault.Because(activity.NoForgeError{}, fault.Refused, "%s is reached over SSH, which reads and commits only; what the forge's interface does (pull requests, "+
				"statuses, comments, deployments) needs the https URL of the repository, and a credential with --forge for it", repoURL)
		}
		if h == nil {
			return fault.Because(activity.NoForgeError{}, fault.Refused, "no forge is configured for %s, so nothing can be proposed there; an operator has to set forge to one of %s, "+
				"with credentials for its API (git_credentials)", repoURL, strings.Join(Forges()[1:], ", "))
		}
		return operate(ctx, h)
	})
}

// Propose implements activity.Forge. What is on the branch of the proposal is replaced if it is ours, and kept for as long as it is the
// same edit of files that nobody else has changed: a new commit would dismiss reviews and start checks again. One that is merged by moving
// the branch has to be on top of it.
func (f *Forge) Propose(ctx context.Context, p activity.ProposalRequest) (found activity.Proposal, err error) {
	c := p.Commit
	if err := checkCommit(c); err != nil {
		return found, err
	}
	if err := checkBranch(p.Branch); err != nil {
		return found, err
	}
	if ofProposals(c.Branch) {
		return found, invalid("branch", "found %q, where proposals are made; expected the branch to merge into", c.Branch)
	}
	release, err := f.writer(ctx, c, p.Branch)
	if err != nil {
		return found, fault.Because(err, fault.Unavailable, "waited for another call to propose to %s", c.RepoURL)
	}
	defer release()
	if p.Alone {
		return f.proposeBranch(ctx, p)
	}
	d, exists, forge := draftOf(p, nil), false, ""
	err = f.propose(ctx, c.Organization, c.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		found, exists, err = h.proposed(ctx, d.branch, d.into)
		forge = h.forge
		return cmp.Or(err, h.disown(ctx, &found))
	})
	if err != nil {
		return found, err
	}
	if exists && found.State != activity.ProposalOpen { // a decision of people stays
		return found, f.show(ctx, c.Organization, c.RepoURL, forge, &found)
	}
	pushed, err := f.pushProposal(ctx, p)
	if err != nil {
		return found, err
	}
	if !pushed.changed {
		return activity.Proposal{State: activity.ProposalUnchanged, Head: pushed.head, Commit: pushed.head}, nil
	}
	d = draftOf(p, pushed.files)
	err = f.propose(ctx, c.Organization, c.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		if exists {
			return h.edit(ctx, found.Number, d)
		}
		found, err = h.open(ctx, d)
		if fault.Is(err, fault.Refused) { // another process may have been faster
			if other, there, lookErr := h.proposed(ctx, d.branch, d.into); lookErr == nil && there {
				err = h.disown(ctx, &other)
				found = other
			}
		}
		return err
	})
	found.Head = pushed.head // forges notice a push some time after it
	return found, err
}

// ofProposals reports whether a branch is one of proposals. Forges may compare names without case.
func ofProposals(branch string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimPrefix(branch, "refs/heads/")), activity.ProposalPrefix)
}

// draftOf is the text of a proposal: the message of its commit, what the program says about it, what it changes, and the trailers.
func draftOf(p activity.ProposalRequest, files []activity.ChangedFile) draft {
	title, body := splitTitle(message(p.Commit))
	if p.Show != nil {
		body = strings.TrimSpace(p.Show(files) + "\n\n" + body)
	}
	if p.Description != "" {
		body = strings.TrimSpace(p.Description) + "\n\n" + body
	}
	return draft{branch: p.Branch, into: strings.TrimPrefix(p.Commit.Branch, "refs/heads/"), title: title, body: body}
}

// splitTitle separates the first line of a message from the rest.
func splitTitle(message string) (title, body string) {
	title, body, _ = strings.Cut(strings.TrimSpace(message), "\n")
	return title, strings.TrimSpace(body)
}

// pushedProposal is the branch of a proposal; changed is false if the files have these contents already.
type pushedProposal struct {
	head    string
	changed bool
	// files are those that it changes, for its text.
	files []activity.ChangedFile
}

// pushProposal has the branch of a proposal point to a commit with the edit, and returns it.
func (f *Forge) pushProposal(ctx context.Context, p activity.ProposalRequest) (pushed pushedProposal, err error) {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := f.within(ctx, p.Commit.Organization, p.Commit.RepoURL, func(ctx context.Context, share *gitfetch.Share) (err error) {
			pushed, err = f.pushProposalOnce(ctx, share, p)
			return err
		})
		if !errors.Is(err, errMoved) {
			return pushed, err
		}
		if attempt == maxAttempts || clock.Sleep(ctx, f.clock, pause) != nil {
			return pushed, fault.New(fault.Conflict, "branch %q of %s moved %d times while proposing", p.Branch, p.Commit.RepoURL, attempt)
		}
		pause = min(2*pause, longestPause)
	}
}

func (f *Forge) pushProposalOnce(
	ctx context.Context, share *gitfetch.Share, p activity.ProposalRequest,
) (pushed pushedProposal, err error) {
	c := p.Commit
	r, err := f.open(ctx, share, c.Organization, c.RepoURL)
	if err != nil {
		return pushed, err
	}
	base, err := r.branch(ctx, strings.TrimPrefix(c.Branch, "refs/heads/"))
	if err != nil {
		return pushed, err
	}
	c.Trailers = withProposal(c.Trailers, p)
	made, err := r.build(base, c, f.author, f.clock.Now())
	if err != nil {
		return pushed, err
	}
	if made.tree == base.TreeHash {
		return pushedProposal{head: base.Hash.String()}, nil
	}
	if err := r.unchangedSince(base, c); err != nil {
		return pushed, err
	}
	pushed.changed = true
	if p.Show != nil && !p.Alone {
		if pushed.files, err = r.changedFiles(ctx, base, c); err != nil {
			return pushed, err
		}
	}
	now := r.refs.References[string(plumbing.NewBranchReferenceName(p.Branch))]
	if p.Head != "" && now == plumbing.ZeroHash {
		alone := activity.BranchProposal{Branch: p.Branch, Into: c.Branch, Head: p.Head}
		if f.standing(r, base, alone, f.squashed(alone)).State != activity.ProposalMerged {
			return pushed, errDeleted
		}
	}
	if now != plumbing.ZeroHash {
		old, err := r.tip(ctx, p.Branch)
		if err != nil {
			return pushed, err
		}
		if !f.made(old, p.ID) {
			return pushed, fault.New(fault.Conflict, "the last commit of branch %q of %s, %s, is not that of the proposal %s: the branch was changed by others",
				p.Branch, c.RepoURL, old.Hash, p.ID)
		}
		// Others who may push to the branch could have the same files merged with another message, and with the trailers of another rollout.
		onTop := p.Method != activity.MergeFastForward || slices.Equal(old.ParentHashes, []plumbing.Hash{base.Hash})
		undone := p.Alone && includes(base, old.Hash) // people have merged it, and changed the files since
		if onTop && !undone && old.Message == message(c) && r.sameEdit(base, old, c) == nil {
			pushed.head = old.Hash.String()
			return pushed, nil
		}
	}
	if err := r.push(ctx, p.Branch, now, made); err != nil {
		return pushed, err
	}
	pushed.head = made.commit.String()
	return pushed, nil
}

// changedFiles are the files that a request changes on a branch, in order. Of the first ones it has the texts.
func (r *repository) changedFiles(ctx context.Context, base *object.Commit, c activity.CommitRequest) ([]activity.ChangedFile, error) {
	var files []activity.ChangedFile
	tree, err := base.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", base.Hash, err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		after := c.Files[path]
		if hashAt(tree, path).String() == blobID(after) {
			continue
		}
		one := activity.ChangedFile{Path: path, Unread: true}
		if len(files) < activity.MostShownFiles && len(after) <= maxManifest {
			before, _, plain, err := r.side(ctx, base, path)
			if err != nil {
				return nil, err
			}
			if plain && len(before) <= maxManifest {
				one.Before, one.After, one.Unread = before, after, false
			}
		}
		files = append(files, one)
	}
	return files, nil
}

// made reports whether a commit is one that was made here for a proposal. The trailer alone shows nothing: others may copy it.
func (f *Forge) made(c *object.Commit, id string) bool {
	ours := func(s object.Signature) bool { return f.author.is(author{name: s.Name, email: s.Email}) }
	return ours(c.Author) && ours(c.Committer) && endsWith(c.Message, trailerProposal+": "+id)
}

func withProposal(trailers map[string]string, p activity.ProposalRequest) map[string]string {
	all := maps.Clone(trailers)
	if all == nil {
		all = map[string]string{}
	}
	all[trailerProposal] = p.ID
	return all
}

// sameEdit returns why a commit may not be merged into a branch as it is: it has to be one commit on top of one of the branch, which
// changes the files of the request to their contents, and nothing else; and the branch must not have changed them since.
func (r *repository) sameEdit(base, edit *object.Commit, c activity.CommitRequest) error {
	if edit.NumParents() != 1 {
		return fault.New(fault.Refused, "%s has %d parents, expected one commit on top of branch %q", edit.Hash, edit.NumParents(), c.Branch)
	}
	var parent *object.Commit
	for each := range recent(base) {
		if each.Hash == edit.ParentHashes[0] {
			parent = each
			break
		}
	}
	if parent == nil {
		return fault.New(fault.Conflict, "%s is made on %s, which is not among the last %d commits of branch %q of %s; propose it again", edit.Hash,
			edit.ParentHashes[0], historyDepth, c.Branch, r.url)
	}
	before, err := parent.Tree()
	if err != nil {
		return fmt.Errorf("read tree of %s: %w", parent.Hash, err)
	}
	after, err := edit.Tree()
	if err != nil {
		return fmt.Errorf("read tree of %s: %w", edit.Hash, err)
	}
	changes, err := object.DiffTree(before, after)
	if err != nil {
		return fmt.Errorf("compare %s and %s: %w", parent.Hash, edit.Hash, err)
	}
	for _, change := range changes {
		path := change.To.Name
		action, err := change.Action()
		if err != nil {
			return fmt.Errorf("compare %s and %s: %w", parent.Hash, edit.Hash, err)
		}
		if _, ours := c.Files[path]; action == merkletrie.Delete || !ours {
			return fault.New(fault.Refused, "%s changes %q, which is not part of the call", edit.Hash, cmp.Or(path, change.From.Name))
		}
	}
	now, err := base.Tree()
	if err != nil {
		return fmt.Errorf("read tree of %s: %w", base.Hash, err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if hashAt(after, path).String() != blobID(c.Files[path]) {
			return fault.New(fault.Refused, "%s has another %s than the call", edit.Hash, path)
		}
		mode := filemode.Regular
		if modeAt(before, path) == filemode.Executable {
			mode = filemode.Executable
		}
		if is := modeAt(after, path); is != mode {
			return fault.New(fault.Refused, "%s gives %s the mode %s, expected %s", edit.Hash, path, is, mode)
		}
		if hashAt(before, path) != hashAt(now, path) {
			return fault.New(fault.Conflict, "%s has changed on branch %q of %s since %s; propose the change again", path, c.Branch, r.url, parent.Hash)
		}
	}
	return nil
}

// Merge implements activity.Forge.
func (f *Forge) Merge(ctx context.Context, m activity.MergeRequest) (p activity.Proposal, err error) {
	c := m.Commit
	if err := checkCommit(c); err != nil {
		return p, err
	}
	if ofProposals(c.Branch) {
		return p, invalid("branch", "found %q, where proposals are made; expected the branch to merge into", c.Branch)
	}
	if !commitID.MatchString(m.Head) {
		return p, invalid("head", "found %q, expected the id of a commit", m.Head)
	}
	if m.Alone {
		return f.mergeBranch(ctx, m)
	}
	err = f.propose(ctx, c.Organization, c.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		p, err = h.proposal(ctx, m.Number)
		return err
	})
	if err != nil {
		return p, err
	}
	switch into := strings.TrimPrefix(c.Branch, "refs/heads/"); {
	case p.Branch != m.Branch:
		return p, fault.New(fault.Refused, "%s is about branch %q, expected that of this run's proposal, %q", p.URL, p.Branch, m.Branch)
	case p.Into != into:
		return p, fault.New(fault.Conflict, "%s is for branch %q, expected %q", p.URL, p.Into, into)
	case p.State == activity.ProposalClosed:
		return p, fault.New(fault.Refused, "%s was closed%s without a merge", p.URL, by(p.By))
	case p.State == activity.ProposalOpen:
		if p, err = f.merge(ctx, p, m); err != nil {
			return p, err
		}
	}
	return p, f.checkMerged(ctx, m, p)
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// merge merges an open proposal, after its head was compared with what the call has.
func (f *Forge) merge(ctx context.Context, p activity.Proposal, m activity.MergeRequest) (activity.Proposal, error) {
	err := f.within(ctx, m.Commit.Organization, m.Commit.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		return f.mayMerge(ctx, share, m)
	})
	if errors.Is(err, errMoved) {
		err = fault.New(fault.Conflict, "branch %q of %s has moved; propose the change again", m.Commit.Branch, m.Commit.RepoURL)
	}
	if err != nil {
		return activity.Proposal{}, err
	}
	if m.Method == activity.MergeFastForward {
		p.State, p.Commit = activity.ProposalMerged, m.Head // forges notice it some time later
		return p, nil
	}
	title, body := splitTitle(message(m.Commit))
	err = f.propose(ctx, m.Commit.Organization, m.Commit.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		now, err := h.proposal(ctx, m.Number)
		if err != nil {
			return err
		}
		if now.Into != p.Into || now.Branch != p.Branch {
			return fault.New(fault.Conflict, "%s is now from branch %q for %q; propose the change again", p.URL, now.Branch, now.Into)
		}
		if err := h.merge(ctx, merging{number: m.Number, head: m.Head, method: m.Method, title: title, body: body}); err != nil {
			return err
		}
		p, err = h.proposal(ctx, m.Number)
		return err
	})
	if into := strings.TrimPrefix(m.Commit.Branch, "refs/heads/"); err == nil && p.Into != into {
		err = fault.New(
			fault.Refused, "%s was pointed to branch %q while it was merged, expected %q: look at what was merged there", p.URL, p.Into, into,
		)
	}
	if err == nil && p.State != activity.ProposalMerged {
		err = fault.New(fault.Unavailable, "%s has accepted the merge and not carried it out yet", p.URL)
	}
	p.By, p.ByID = "", 0 // it was this call
	return p, err
}

// mayMerge compares the head of a proposal with the call and the branch, and moves the branch if that is a fast-forward.
func (f *Forge) mayMerge(ctx context.Context, share *gitfetch.Share, m activity.MergeRequest) error {
	r, err := f.open(ctx, share, m.Commit.Organization, m.Commit.RepoURL)
	if err != nil {
		return err
	}
	edit, err := r.branch(ctx, m.Branch)
	if err != nil {
		return err
	}
	if edit.Hash.String() != m.Head {
		return fault.New(fault.Conflict, "the head of the proposal is %s, expected %s", edit.Hash, m.Head)
	}
	into := strings.TrimPrefix(m.Commit.Branch, "refs/heads/")
	base, err := r.branch(ctx, into)
	if err != nil {
		return err
	}
	if m.Method == activity.MergeFastForward && base.Hash == edit.Hash {
		return nil // by an earlier attempt, whose answer was lost
	}
	if id := strings.TrimPrefix(m.Branch, activity.ProposalPrefix); !f.made(edit, id) {
		return fault.New(fault.Refused, "%s was made by %s <%s>, expected the commit of the proposal %s; propose the change again", edit.Hash,
			edit.Committer.Name, edit.Committer.Email, id)
	}
	if err := r.sameEdit(base, edit, m.Commit); err != nil {
		return err
	}
	if m.Method != activity.MergeFastForward {
		return nil
	}
	if edit.ParentHashes[0] != base.Hash {
		return fault.New(fault.Conflict, "branch %q of %s has moved to %s, so that it cannot be fast-forwarded to %s; propose the change again",
			into, r.url, base.Hash, m.Head)
	}
	return r.push(ctx, into, base.Hash, built{commit: edit.Hash, tree: edit.TreeHash, objects: []plumbing.Hash{edit.Hash}})
}

// checkMerged compares the files of a merge commit with those of the call: between the look and the merge, the branch can have moved, and
// people may have merged another edit.
func (f *Forge) checkMerged(ctx context.Context, m activity.MergeRequest, p activity.Proposal) error {
	if p.Head != m.Head {
		return fault.New(fault.Conflict, "%s was merged%s with the head %s, expected %s", p.URL, by(p.By), p.Head, m.Head)
	}
	return f.within(ctx, m.Commit.Organization, m.Commit.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		r, err := f.open(ctx, share, m.Commit.Organization, m.Commit.RepoURL)
		if err != nil {
			return err
		}
		into := strings.TrimPrefix(m.Commit.Branch, "refs/heads/")
		merged, on, err := r.onBranch(ctx, into, p.Commit)
		if err != nil {
			return err
		}
		if !on {
			return fault.New(fault.Refused, "%s was merged%s as %s, which is not on branch %q", p.URL, by(p.By), p.Commit, into)
		}
		tree, err := merged.Tree()
		if err != nil {
			return fmt.Errorf("read tree of %s: %w", p.Commit, err)
		}
		for _, path := range slices.Sorted(maps.Keys(m.Commit.Files)) {
			if hashAt(tree, path).String() != blobID(m.Commit.Files[path]) {
				return fault.New(fault.Refused, "%s was merged%s as %s, in which %s has other contents than were proposed", p.URL, by(p.By), p.Commit, path)
			}
		}
		return nil
	})
}

// Withdraw implements activity.Forge.
func (f *Forge) Withdraw(ctx context.Context, organization int64, repoURL, branch string, number int64) (p activity.Proposal, err error) {
	err = f.propose(ctx, organization, repoURL, func(ctx context.Context, h *hosted) (err error) {
		if p, err = h.proposal(ctx, number); err != nil {
			return err
		}
		if p.Branch != branch {
			return fault.New(fault.Refused, "%s is about branch %q, expected that of this run's proposal, %q", p.URL, p.Branch, branch)
		}
		if p.State != activity.ProposalOpen {
			return nil
		}
		p.State = activity.ProposalClosed
		return h.close(ctx, number)
	})
	return p, err
}
