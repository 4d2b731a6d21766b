package git

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// branchProposal is a proposal of a plain repository, with what it changes.
func branchProposal(t *testing.T) (s *server, base string, p activity.ProposalRequest) {
	t.Helper()
	s = setup(t)
	base = s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "z": "kept\n"})
	p = s.proposal(map[string]string{"staging/api.yaml": "new\n"})
	p.Alone = true
	return s, base, p
}

func (s *server) ends(p activity.ProposalRequest, head string) activity.BranchProposal {
	return activity.BranchProposal{Organization: 1, RepoURL: s.url, Branch: p.Branch, Into: p.Commit.Branch, Head: head}
}

func (s *server) mergeBranch(t *testing.T, p activity.ProposalRequest, head string) (activity.Proposal, error) {
	t.Helper()
	return s.forge.Merge(t.Context(), activity.MergeRequest{
		Commit: p.Commit, Branch: p.Branch, Head: head, Method: activity.MergeFastForward, Alone: true,
	})
}

func (s *server) exists(t *testing.T, branch string) bool {
	t.Helper()
	return strings.TrimSpace(s.git(t, s.dir, "for-each-ref", "refs/heads/"+branch)) != ""
}

func (s *server) stands(t *testing.T, p activity.ProposalRequest, head, want string) {
	t.Helper()
	if found, err := s.forge.ReadBranch(t.Context(), s.ends(p, head)); err != nil || found.State != want {
		t.Errorf("found %+v, %v; want %s", found, err, want)
	}
}

// D55: a plain server without pull requests has a change as a branch of its own, once however often it is proposed; it is merged once, also
// if the answer was lost, and then it is gone.
func TestABranchAloneIsProposedAndMerged(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t)
	made := s.propose(t, p)
	again := p
	again.Head = made.Head
	if second := s.propose(t, again); second != made || s.rev(t, proposed+"^") != base || made.Number != 0 || made.State != activity.ProposalOpen {
		t.Errorf("found %+v and %+v", made, second)
	}
	s.stands(t, p, made.Head, activity.ProposalOpen)
	for range 2 {
		merged, err := s.mergeBranch(t, p, made.Head)
		if err != nil || merged.State != activity.ProposalMerged || s.rev(t, "main") != made.Head || s.exists(t, proposed) {
			t.Errorf("found %+v, %v; main at %s, the branch exists: %t", merged, err, s.rev(t, "main"), s.exists(t, proposed))
		}
	}
	s.stands(t, p, made.Head, activity.ProposalMerged)
	if found := s.propose(t, again); found.State != activity.ProposalUnchanged {
		t.Errorf("proposed once more: %+v", found)
	}
}

// D55: who deletes the branch has rejected the change: it is not made again, and not merged. Without the head it is a new one.
func TestABranchAloneIsDeletedByHand(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t)
	made := s.propose(t, p)
	s.git(t, s.dir, "branch", "-D", proposed)
	p.Head = made.Head
	if found := s.propose(t, p); found.State != activity.ProposalClosed || s.exists(t, proposed) {
		t.Errorf("proposed again: %+v, the branch exists: %t", found, s.exists(t, proposed))
	}
	s.stands(t, p, made.Head, activity.ProposalClosed)
	if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Refused) || s.rev(t, "main") != base {
		t.Errorf("merged: %v, main at %s", err, s.rev(t, "main"))
	}
}

// D55: what people have merged by hand is merged; with other contents it is refused.
func TestABranchAloneIsMergedByHand(t *testing.T) {
	t.Parallel()
	s, _, p := branchProposal(t)
	made := s.propose(t, p)
	s.git(t, s.dir, "update-ref", "refs/heads/main", made.Head)
	s.add(t, "main", map[string]string{"z": "another\n"})
	if found, err := s.mergeBranch(t, p, made.Head); err != nil || found.Commit != s.rev(t, "main") {
		t.Errorf("found %+v, %v", found, err)
	}
	s.add(t, "main", map[string]string{"staging/api.yaml": "edited\n"})
	if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Refused) {
		t.Errorf("with other contents: %v", err)
	}
}

// D55: a base that has moved is a conflict, and the next proposal is on top of it; a commit of others on the branch is neither replaced,
// nor merged, nor deleted; a protected branch stays where it is.
func TestABranchAloneIsNeverMergedBlindly(t *testing.T) {
	t.Parallel()
	s, _, p := branchProposal(t)
	made := s.propose(t, p)
	moved := s.add(t, "main", map[string]string{"staging/api.yaml": "moved\n"})
	if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Conflict) || s.rev(t, "main") != moved {
		t.Errorf("a base that has moved: %v", err)
	}
	p.Head = made.Head
	made = s.propose(t, p)
	s.protect(t)
	if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Refused) || s.rev(t, "main") != moved {
		t.Errorf("a protected branch: %v", err)
	}
	s.unprotect(t)
	theirs := s.add(t, proposed, map[string]string{"evil": "x\n"})
	for _, head := range []string{made.Head, theirs} {
		if found, err := s.mergeBranch(t, p, head); err == nil || s.rev(t, "main") != moved {
			t.Errorf("a commit of others: %+v, main at %s", found, s.rev(t, "main"))
		}
	}
	if _, err := s.forge.Propose(t.Context(), p); !fault.Is(err, fault.Conflict) {
		t.Errorf("proposed over a commit of others: %v", err)
	}
	if _, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head)); !fault.Is(err, fault.Conflict) || s.rev(t, proposed) != theirs {
		t.Errorf("withdrawn: %v", err)
	}
}

// D55: a withdrawn branch is deleted, once; one that was merged stays merged.
func TestABranchAloneIsWithdrawn(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t)
	made := s.propose(t, p)
	for range 2 {
		found, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head))
		if err != nil || found.State != activity.ProposalClosed || s.exists(t, proposed) || s.rev(t, "main") != base {
			t.Errorf("found %+v, %v", found, err)
		}
	}
	made = s.propose(t, p)
	if _, err := s.mergeBranch(t, p, made.Head); err != nil {
		t.Fatal(err)
	}
	if found, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head)); err != nil || found.State != activity.ProposalMerged {
		t.Errorf("a merged one: %+v, %v", found, err)
	}
}
