package git

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D55: a program that may commit other files of the branch cannot say in its message what Lockstep has done, in whatever case or place.
func TestMessagesCannotClaimWhatLockstepHasDone(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	for _, line := range []string{
		"Lockstep-Proposal: " + p.ID, "lockstep-merged: " + made.Head, "LOCKSTEP-ACTIVITY: run/1.1", "  Lockstep-Merged:" + made.Head, "Lockstep-Merged : x",
	} {
		for _, text := range []string{line, "innocent\n\n" + line, "innocent\r\n" + line + "\r\n\r\nmore", "innocent\r" + line} {
			c := s.request(map[string]string{"other/readme": "x\n"})
			c.Message = text
			other, m := p, activity.MergeRequest{Branch: p.Branch, Head: made.Head, Method: p.Method, Alone: true}
			other.Commit.Message = text
			m.Commit = other.Commit
			_, err := s.forge.Commit(t.Context(), c)
			_, proposing := s.forge.Propose(t.Context(), other)
			_, merging := s.forge.Merge(t.Context(), m)
			for _, err := range []error{err, proposing, merging} {
				if !fault.Is(err, fault.Invalid) || s.rev(t, "main") != base {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	}
	c := s.request(map[string]string{"other/readme": "x\n"})
	c.Message = "Explain what Lockstep-Merged: means\n\nLockstep-Rollout: 8"
	if _, err := s.forge.Commit(t.Context(), c); err != nil {
		t.Errorf("an innocent message: %v", err)
	}
}

// D55: lines of a message that are no trailers are not believed, and those of a commit without the change keep nothing from being merged:
// all who may push can write them.
func TestABranchAloneWithForgedTrailers(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		for _, last := range []bool{false, true} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				s, _, p := branchProposal(t, method)
				made := s.propose(t, p)
				message := "innocent\n\nLockstep-Proposal: " + p.ID + "\nLockstep-Merged: " + made.Head + "\n"
				if !last {
					message += "\nLockstep-Activity: another/1.1\n"
				}
				s.add(t, "other", map[string]string{"staging/api.yaml": "old\n", "z": "kept\n", "other": "x\n"})
				forged := s.commitAs(t, "Lockstep", message, s.rev(t, "other^{tree}"), s.rev(t, "main"))
				s.git(t, s.dir, "update-ref", "refs/heads/main", forged)
				if !last {
					s.stands(t, p, made.Head, activity.ProposalOpen)
				}
				p.Head = made.Head
				again := s.propose(t, p)
				merged, err := s.mergeBranch(t, p, again.Head)
				if err != nil || merged.Commit == forged || s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" || s.exists(t, proposed) {
					t.Errorf("found %+v, %v", merged, err)
				}
			})
		}
	}
}

// D55: Lockstep's own squash that was taken back, with its branch gone, is proposed again.
func TestABranchAloneIsSquashedAndReverted(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		s, _, p := branchProposal(t, method)
		made := s.propose(t, p)
		if _, err := s.mergeBranch(t, p, made.Head); err != nil {
			t.Fatal(err)
		}
		s.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
		p.Head = made.Head
		again := s.propose(t, p)
		if again.State != activity.ProposalOpen {
			t.Fatalf("%s: proposed again %+v", method, again)
		}
		if merged, err := s.mergeBranch(t, p, again.Head); err != nil || s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" {
			t.Errorf("%s: %+v, %v", method, merged, err)
		}
	}
}

// D55: a server that changes one branch at a time merges what others reject in the last moment; the answer says so. The deletion by
// Lockstep itself is not taken for one.
func TestABranchAloneInTheLastMomentWithoutAtomicPushes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act  func(t *testing.T, s *server)
		note string
	}{
		"nothing": {func(t *testing.T, _ *server) { t.Helper() }, ""},
		"deleted": {func(t *testing.T, s *server) { t.Helper(); s.git(t, s.dir, "branch", "-D", proposed) }, "was deleted by others in the moment of the merge"},
		"moved":   {func(t *testing.T, s *server) { t.Helper(); s.add(t, proposed, map[string]string{"evil": "x\n"}) }, "was moved by others to "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, p := branchProposal(t, activity.MergeCommit)
			s.git(t, s.dir, "config", "receive.advertiseAtomic", "false")
			made := s.propose(t, p)
			var once sync.Once
			s.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
					once.Do(func() { tt.act(t, s) })
				}
				return false
			}
			m, err := s.mergeBranch(t, p, made.Head)
			if err != nil || m.State != activity.ProposalMerged || (m.Note == "") != (tt.note == "") || !strings.Contains(m.Note, tt.note) ||
				s.git(t, s.dir, "ls-tree", "main", "evil") != "" {
				t.Errorf("found %+v, %v", m, err)
			}
		})
	}
}

// D55: the branch that a proposal is for was renamed: the proposal cannot be read, and is deleted all the same.
func TestABranchAloneWhoseTargetIsGone(t *testing.T) {
	t.Parallel()
	s, _, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	s.git(t, s.dir, "branch", "-m", "main", "trunk")
	_, err := s.forge.ReadBranch(t.Context(), s.ends(p, made.Head))
	if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.Public(err), `branch "main" does not exist`) {
		t.Errorf("read: %v", err)
	}
	for range 2 {
		found, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head))
		if err != nil || found.State != activity.ProposalClosed || s.exists(t, proposed) {
			t.Errorf("withdrawn: %+v, %v, the branch exists: %t", found, err, s.exists(t, proposed))
		}
	}
}

// D55: who refuses the push is named, with what the server's hook says, and is asked once where the refusal is about the branch itself.
func TestABranchAloneThatMayNotBePushed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hook, text string
		pushes     int
	}{
		"a hook for each branch": {"update", "#!/bin/sh\n[ \"$1\" != refs/heads/main ] || { echo 'only Ann may push \x1b[31m'; exit 1; }\n", 1},
		"a hook for all of them": {"pre-receive", "#!/bin/sh\necho 'only Ann may push'\nexit 1\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, base, p := branchProposal(t, activity.MergeCommit)
			made := s.propose(t, p)
			if err := os.WriteFile(filepath.Join(s.dir, "hooks", tt.hook), []byte(tt.text), 0o755); err != nil {
				t.Fatal(err)
			}
			pushes := 0
			s.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
					pushes++
				}
				return false
			}
			_, err := s.mergeBranch(t, p, made.Head)
			text := fault.Public(err)
			if !fault.Is(err, fault.Refused) || s.rev(t, "main") != base || !s.exists(t, proposed) || pushes != tt.pushes {
				t.Errorf("%d pushes, %v", pushes, err)
			}
			if !strings.HasPrefix(text, `the server refuses the push to "main"`) || !strings.Contains(text, "only Ann may push") ||
				strings.ContainsRune(text, '\x1b') || !strings.HasSuffix(text, "the account has to be allowed to push there") {
				t.Errorf("the text is %q", text)
			}
		})
	}
}
