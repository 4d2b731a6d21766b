package git

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// deepDepth is how many commits of a branch are searched for a merge that is not among the latest.
const deepDepth = 2000

// ReadProposal implements activity.Forge.
func (f *Forge) ReadProposal(ctx context.Context, organization int64, repoURL string, number int64) (p activity.Proposal, err error) {
	var forge string
	err = f.propose(ctx, organization, repoURL, func(ctx context.Context, h *hosted) (err error) {
		p, err = h.proposal(ctx, number)
		forge = h.forge
		return cmp.Or(err, h.disown(ctx, &p))
	})
	if err != nil {
		return p, err
	}
	return p, f.show(ctx, organization, repoURL, forge, &p)
}

// disown drops the number of who has ended a proposal if it is that of the credential's own account, with which runs end proposals, or if
// the forge does not say which that is: nobody is linked to it.
func (h *hosted) disown(ctx context.Context, p *activity.Proposal) error {
	if p.ByID == 0 {
		return nil
	}
	own, err := h.account(ctx)
	switch {
	case fault.Is(err, fault.Unavailable):
		return err
	case err != nil || own == 0:
		p.ByID, p.Unshown = 0, "the forge does not say whose the credential of the repository is, so it may have been the run itself"
	case own == p.ByID:
		p.ByID, p.Unshown = 0, "it is the account of the repository's credential, with which runs merge"
	}
	return nil
}

// merge is one by hand, as a forge says it. What the commits of it show does not change, once they are on the branch.
type merge struct {
	organization                  int64
	repository, forge, into       string
	commit, head, merged, unshown string
}

// shownMerges keeps what was found out about merges, so that a look at one that has not changed does not read the commits again. It is
// forgotten with the process, and when there are many.
type shownMerges struct {
	mu  sync.Mutex
	all map[merge]merge
}

// mostShown is how many merges are kept.
const mostShown = 1000

func (s *shownMerges) get(asked merge) (merge, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[asked]
	return found, ok
}

func (s *shownMerges) add(asked, found merge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= mostShown {
		s.all = map[merge]merge{}
	}
	s.all[asked] = found
}

// show finds out which commit a merge by an account has merged, or why that cannot be shown. What a forge says of the branch may have
// changed since: others who push to it after the merge could have another commit look merged than was.
func (f *Forge) show(ctx context.Context, organization int64, repoURL, forge string, p *activity.Proposal) error {
	switch {
	case p.State != activity.ProposalMerged || p.Unshown != "":
		return nil
	case p.ByID == 0:
		if p.By != "" {
			p.Unshown = "the forge gives no number of a person's account for it"
		}
		return nil
	case !commitID.MatchString(p.Commit):
		p.Unshown = "the forge does not say as which commit it was merged"
		return nil
	}
	asked := merge{organization: organization, repository: repoURL, forge: forge, into: p.Into, commit: p.Commit, head: p.Head}
	found, known := f.shown.get(asked)
	if !known {
		found = asked
		err := f.within(ctx, organization, repoURL, func(ctx context.Context, share *gitfetch.Share) error {
			r, err := f.open(ctx, share, organization, repoURL)
			if err != nil {
				return err
			}
			merged, on, err := r.onBranch(ctx, p.Into, p.Commit)
			if err != nil {
				return err
			}
			if !on { // it may be soon
				found.unshown = fmt.Sprintf("%s is not on branch %q", short(p.Commit), p.Into)
				return nil
			}
			if found.merged, found.unshown, err = r.mergedBy(ctx, forge, merged, p); err == nil {
				f.shown.add(asked, found)
			}
			return err
		})
		if fault.Is(err, fault.Unavailable) {
			return err
		}
		if err != nil { // it may pass
			found.merged, found.unshown = "", "the commits could not be read: "+fault.Public(err)
		}
	}
	p.Merged, p.Unshown = found.merged, found.unshown
	return nil
}

func short(id string) string { return id[:min(len(id), 12)] }

// onBranch is a commit if it is on a branch, as Git has it.
func (r *repository) onBranch(ctx context.Context, name, id string) (*object.Commit, bool, error) {
	want := plumbing.NewHash(id)
	for _, depth := range []int{historyDepth, deepDepth} {
		hash, ok := r.refs.References[string(plumbing.NewBranchReferenceName(name))]
		if !ok {
			return nil, false, fault.New(fault.NotFound, "branch %q does not exist in %s", name, r.url)
		}
		if err := r.fetch(ctx, depth, hash); err != nil {
			return nil, false, err
		}
		if r.reaches(hash, want) {
			found, err := r.commit(want)
			return found, err == nil, err
		}
	}
	return nil, false, nil
}

// reaches reports whether a commit is another one, or has it in its history, as far as that was fetched.
func (r *repository) reaches(from, want plumbing.Hash) bool {
	seen, next := map[plumbing.Hash]bool{from: true}, []plumbing.Hash{from}
	for len(next) > 0 {
		c, err := r.commit(next[0])
		if next = next[1:]; err != nil { // beyond what was fetched
			continue
		}
		if c.Hash == want {
			return true
		}
		for _, parent := range c.ParentHashes {
			if !seen[parent] {
				seen[parent], next = true, append(next, parent)
			}
		}
	}
	return false
}

// mergedBy is the commit that a commit of a branch has brought there, and nothing else with it; or why that cannot be shown. The head is
// the one that the forge has for the proposal, which counts only where it is kept as that of the merge.
func (r *repository) mergedBy(
	ctx context.Context, forge string, m *object.Commit, p *activity.Proposal,
) (merged, unshown string, err error) {
	head := p.Head
	keeps := (forge == GitHub || forge == GitLab) && commitID.MatchString(head)
	const others = "what was merged is not exactly one commit with its changes"
	var all map[string]string
	switch m.NumParents() {
	case 1:
		switch {
		case m.Hash.String() == head:
			return head, "", nil
		case !keeps: // the commit itself may be the one that was proposed
			return m.Hash.String(), "it was squashed or rebased, and the forge does not keep which commit that was made of; " +
				"merge it with a merge commit", nil
		case r.reaches(m.Hash, plumbing.NewHash(head)):
			return "", others, nil // that came in with something else
		}
	case 2:
		if all, err = r.changesOf(ctx, m); err != nil {
			return "", "", err
		}
		second, err := r.whole(ctx, m.ParentHashes[1])
		if err != nil || second.NumParents() != 1 {
			return "", others, err
		}
		own, err := r.changesOf(ctx, second)
		if err != nil || !maps.Equal(own, all) {
			return "", others, err
		}
		if forge != GitLab || !keeps || second.Hash.String() == head {
			return second.Hash.String(), "", nil
		}
		// A squash, if exactly that commit has come in.
		if _, _, err := r.onBranch(ctx, p.Into, second.ParentHashes[0].String()); err != nil {
			return "", "", err
		}
		if !r.reaches(m.ParentHashes[0], second.ParentHashes[0]) {
			return "", others, nil
		}
	default:
		return "", others, nil
	}
	if all == nil {
		if all, err = r.changesOf(ctx, m); err != nil {
			return "", "", err
		}
	}
	proposed, err := r.whole(ctx, plumbing.NewHash(head))
	if err != nil || proposed.NumParents() != 1 {
		return "", others, err
	}
	own, err := r.changesOf(ctx, proposed)
	if err != nil || !maps.Equal(own, all) {
		return "", others, err
	}
	return head, "", nil
}

// whole is a commit that was fetched with its parents.
func (r *repository) whole(ctx context.Context, id plumbing.Hash) (*object.Commit, error) {
	c, err := r.commit(id)
	if err != nil {
		if c, err = r.resolve(ctx, id.String()); err != nil {
			return nil, err
		}
	}
	for _, parent := range c.ParentHashes {
		if _, err := r.commit(parent); err != nil {
			return c, r.fetch(ctx, 2, id)
		}
	}
	return c, nil
}

// changesOf are what a commit changes of its first parent: the files, each as it is after it.
func (r *repository) changesOf(ctx context.Context, c *object.Commit) (map[string]string, error) {
	c, err := r.whole(ctx, c.Hash)
	if err != nil {
		return nil, err
	}
	parent, err := r.commit(c.ParentHashes[0])
	if err != nil {
		return nil, err
	}
	before, err := parent.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", parent.Hash, err)
	}
	after, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", c.Hash, err)
	}
	changes, err := object.DiffTree(before, after)
	if err != nil {
		return nil, fmt.Errorf("compare %s and %s: %w", parent.Hash, c.Hash, err)
	}
	all := map[string]string{}
	for _, change := range changes {
		for _, path := range []string{change.From.Name, change.To.Name} {
			if path != "" {
				all[path] = hashAt(after, path).String() + " " + modeAt(after, path).String()
			}
		}
	}
	return all, nil
}
