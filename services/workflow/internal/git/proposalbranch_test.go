package git

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// branchProposal is a proposal of a plain repository, with what it changes.
func branchProposal(t *testing.T, method string) (s *server, base string, p activity.ProposalRequest) {
	t.Helper()
	s = setup(t)
	base = s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "z": "kept\n"})
	p = s.proposal(map[string]string{"staging/api.yaml": "new\n"})
	p.Alone, p.Method = true, method
	return s, base, p
}

func (s *server) ends(p activity.ProposalRequest, head string) activity.BranchProposal {
	return activity.BranchProposal{Organization: 1, RepoURL: s.url, Branch: p.Branch, Into: p.Commit.Branch, Head: head}
}

func (s *server) mergeBranch(t *testing.T, p activity.ProposalRequest, head string) (activity.Proposal, error) {
	t.Helper()
	return s.forge.Merge(t.Context(), activity.MergeRequest{Commit: p.Commit, Branch: p.Branch, Head: head, Method: p.Method, Alone: true})
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

// commitAs makes a commit with our name and a message, as everybody who may push can.
func (s *server) commitAs(t *testing.T, name, message, tree string, parents ...string) string {
	t.Helper()
	args := []string{"-c", "user.name=" + name, "-c", "user.email=lockstep@example.com", "commit-tree", tree, "-F", "-"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return strings.TrimSpace(s.gitIn(t, s.dir, message, args...))
}

func methods() []string {
	return []string{activity.MergeCommit, activity.MergeSquash, activity.MergeFastForward}
}

// D55: a plain server without pull requests has a change as a branch of its own, once however often it is proposed; it is merged once, also
// if the answer was lost, and then its branch is gone.
func TestABranchAloneIsProposedAndMerged(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s, base, p := branchProposal(t, method)
			made := s.propose(t, p)
			again := p
			again.Head = made.Head
			if second := s.propose(t, again); second != made || s.rev(t, proposed+"^") != base || made.Number != 0 || made.State != activity.ProposalOpen {
				t.Errorf("found %+v and %+v", made, second)
			}
			s.stands(t, p, made.Head, activity.ProposalOpen)
			var first activity.Proposal
			for i := range 2 {
				merged, err := s.mergeBranch(t, p, made.Head)
				if err != nil || merged.State != activity.ProposalMerged || merged.Commit != s.rev(t, "main") || s.exists(t, proposed) || i > 0 && merged != first {
					t.Errorf("found %+v, %v; main at %s, the branch exists: %t", merged, err, s.rev(t, "main"), s.exists(t, proposed))
				}
				first = merged
			}
			want := map[string]string{
				activity.MergeCommit: base + " " + made.Head, activity.MergeSquash: base, activity.MergeFastForward: base,
			}[method]
			parents := strings.TrimSpace(s.git(t, s.dir, "log", "-1", "--format=%P", "main"))
			if parents != want || s.git(t, s.dir, "diff", "--name-only", base, "main") != "staging/api.yaml\n" ||
				s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" || (first.Commit == made.Head) != (method == activity.MergeFastForward) {
				t.Errorf("main has the parents %s, expected %s", parents, want)
			}
			s.stands(t, p, made.Head, activity.ProposalMerged)
			if found := s.propose(t, again); found.State != activity.ProposalUnchanged {
				t.Errorf("proposed once more: %+v", found)
			}
			s.add(t, "main", map[string]string{"staging/api.yaml": "later\n"})
			if merged, err := s.mergeBranch(t, p, made.Head); err != nil || merged.Commit != first.Commit {
				t.Errorf("a repeat, after another change: %+v, %v", merged, err)
			}
		})
	}
}

// D55: the branch has moved by a commit about other files. What was proposed is merged as it is, in a merge commit or as one; for a
// fast-forward it is made anew on top. Neither waits for ever.
func TestABranchAloneAfterAnUnrelatedCommit(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s, _, p := branchProposal(t, method)
			made := s.propose(t, p)
			moved := s.add(t, "main", map[string]string{"z": "hers\n"})
			p.Head = made.Head
			if method == activity.MergeFastForward {
				if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Conflict) {
					t.Errorf("a fast-forward of a branch that has moved: %v", err)
				}
			}
			again := s.propose(t, p)
			if anew := again.Head != made.Head; anew != (method == activity.MergeFastForward) || again.State != activity.ProposalOpen {
				t.Errorf("proposed %+v after %+v", again, made)
			}
			merged, err := s.mergeBranch(t, p, again.Head)
			if err != nil || s.git(t, s.dir, "diff", "--name-only", moved, merged.Commit) != "staging/api.yaml\n" ||
				s.git(t, s.dir, "show", "main:z", "main:staging/api.yaml") != "hers\nnew\n" {
				t.Errorf("%+v, %v", merged, err)
			}
		})
	}
}

// D55: a commit about the same file is a conflict: nothing is merged, and the next proposal is an edit of the file as it is now.
func TestABranchAloneAfterARelatedCommit(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s, _, p := branchProposal(t, method)
			made := s.propose(t, p)
			moved := s.add(t, "main", map[string]string{"staging/api.yaml": "moved\n"})
			if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Conflict) || s.rev(t, "main") != moved {
				t.Errorf("a file that has changed: %v", err)
			}
			p.Head = made.Head
			again := s.propose(t, p)
			if again.Head == made.Head || s.rev(t, again.Head+"^") != moved {
				t.Errorf("proposed again: %+v", again)
			}
			if _, err := s.mergeBranch(t, p, again.Head); err != nil || s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" {
				t.Error(err)
			}
		})
	}
}

// D55: who deletes the branch has rejected the change: it is not made again, and not merged. Without the head it is a new one.
func TestABranchAloneIsDeletedByHand(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t, activity.MergeCommit)
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
	p.Head = ""
	if found := s.propose(t, p); found.State != activity.ProposalOpen {
		t.Errorf("a new one: %+v", found)
	}
}

// D55: between the last look and the push, another person deletes the branch, or moves it, or moves the branch to merge into. What was
// compared is not merged then; the next look decides.
func TestABranchAloneInTheLastMoment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act   func(t *testing.T, s *server)
		class fault.Class
	}{
		"deleted": {func(t *testing.T, s *server) { t.Helper(); s.git(t, s.dir, "branch", "-D", proposed) }, fault.Refused},
		"moved":   {func(t *testing.T, s *server) { t.Helper(); s.add(t, proposed, map[string]string{"evil": "x\n"}) }, fault.Conflict},
		"the file has changed": {
			func(t *testing.T, s *server) {
				t.Helper()
				s.add(t, "main", map[string]string{"staging/api.yaml": "hers\n"})
			}, fault.Conflict,
		},
		"another file has changed": {func(t *testing.T, s *server) { t.Helper(); s.add(t, "main", map[string]string{"z": "hers\n"}) }, fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, p := branchProposal(t, activity.MergeCommit)
			made := s.propose(t, p)
			var once sync.Once
			s.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
					once.Do(func() { tt.act(t, s) })
				}
				return false
			}
			merged, err := s.mergeBranch(t, p, made.Head)
			want := "old\n"
			switch name {
			case "another file has changed":
				want = "new\n"
			case "the file has changed":
				want = "hers\n"
			}
			if (err == nil) != (tt.class == fault.Internal) || err != nil && !fault.Is(err, tt.class) || s.git(t, s.dir, "show", "main:staging/api.yaml") != want || s.git(t, s.dir, "ls-tree", "main", "evil") != "" {
				t.Errorf("found %+v, %v; main has %s", merged, err, s.git(t, s.dir, "show", "main:staging/api.yaml"))
			}
		})
	}
}

// D55: what people have merged by hand is merged, however they did it, with the commit that brought it; other contents are refused.
func TestABranchAloneIsMergedByHand(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(t *testing.T, s *server, head string) string{
		"a fast-forward": func(t *testing.T, s *server, head string) string {
			t.Helper()
			s.git(t, s.dir, "update-ref", "refs/heads/main", head)
			return head
		},
		"a merge commit": func(t *testing.T, s *server, head string) string {
			t.Helper()
			s.add(t, "main", map[string]string{"z": "hers\n"})
			tree := strings.TrimSpace(s.gitIn(t, s.dir, "", "merge-tree", "--write-tree", "main", head))
			s.git(t, s.dir, "update-ref", "refs/heads/main", s.commitAs(t, "Ann", "merge", tree, s.rev(t, "main"), head))
			return s.rev(t, "main")
		},
		"a squash": func(t *testing.T, s *server, _ string) string {
			t.Helper()
			return s.add(t, "main", map[string]string{"staging/api.yaml": "new\n"})
		},
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, _, p := branchProposal(t, activity.MergeCommit)
				made := s.propose(t, p)
				commit := by(t, s, made.Head)
				if deleted {
					s.git(t, s.dir, "branch", "-D", proposed)
				}
				if name != "a squash" {
					s.add(t, "main", map[string]string{"later": "x\n"})
					s.stands(t, p, made.Head, activity.ProposalMerged)
				}
				again := p
				again.Head = made.Head
				if found := s.propose(t, again); found.State != activity.ProposalUnchanged || found.Commit != s.rev(t, "main") {
					t.Errorf("proposed again: %+v", found)
				}
				found, err := s.mergeBranch(t, p, made.Head)
				if err != nil || found.State != activity.ProposalMerged || found.Commit != commit || s.exists(t, proposed) {
					t.Errorf("found %+v, %v; want %s", found, err, commit)
				}
			})
		}
	}
	s, _, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	s.git(t, s.dir, "update-ref", "refs/heads/main", made.Head)
	p.Commit.Files["staging/api.yaml"] = []byte("another\n")
	if found, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Refused) {
		t.Errorf("other contents than the call's: %+v, %v", found, err)
	}
}

// D55: who merges by hand and takes it back has not rejected it: it is proposed anew, with the branch deleted or not, and that is merged.
func TestABranchAloneIsMergedAndRevertedByHand(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		s, _, p := branchProposal(t, activity.MergeCommit)
		made := s.propose(t, p)
		s.git(t, s.dir, "update-ref", "refs/heads/main", made.Head)
		s.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
		if deleted {
			s.git(t, s.dir, "branch", "-D", proposed)
		}
		p.Head = made.Head
		again := s.propose(t, p)
		if again.State != activity.ProposalOpen || again.Head == made.Head || s.rev(t, again.Head+"^") != s.rev(t, "main") {
			t.Fatalf("deleted %t: proposed again %+v", deleted, again)
		}
		s.stands(t, p, again.Head, activity.ProposalOpen)
		if merged, err := s.mergeBranch(t, p, again.Head); err != nil || merged.Commit != s.rev(t, "main") ||
			s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" {
			t.Errorf("deleted %t: %+v, %v", deleted, merged, err)
		}
	}
}

// D55: all who may push can move the branch, also after the approval, and sign as we do. Only the commit that was proposed is merged: not
// one with other files, of another author, or with the message of another rollout; and one that is not ours stays where it is.
func TestABranchAloneIsForcePushed(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s, base, p := branchProposal(t, method)
			made := s.propose(t, p)
			message := strings.TrimRight(s.git(t, s.dir, "log", "-1", "--format=%B", made.Head), "\n") + "\n"
			same := s.rev(t, made.Head+"^{tree}")
			s.add(t, "evil", map[string]string{"staging/api.yaml": "new\n", "z": "forged\n"})
			evil := s.rev(t, "evil^{tree}")
			for name, head := range map[string]string{
				"of another author":             s.commitAs(t, "Eve", message, same, base),
				"with another file":             s.commitAs(t, "Lockstep", message, evil, base),
				"with two commits":              s.commitAs(t, "Lockstep", message, same, s.commitAs(t, "Lockstep", "x", evil, base)),
				"with another rollout's number": s.commitAs(t, "Lockstep", strings.Replace(message, "Rollout: 7", "Rollout: 8", 1), same, base),
			} {
				s.git(t, s.dir, "update-ref", "refs/heads/"+proposed, head)
				for _, of := range []string{made.Head, head} {
					if found, err := s.mergeBranch(t, p, of); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Refused) || s.rev(t, "main") != base {
						t.Errorf("%s: %+v, %v", name, found, err)
					}
				}
				now, err := s.forge.ReadBranch(t.Context(), s.ends(p, made.Head))
				if err != nil || now.Head != head || now.State != activity.ProposalOpen {
					t.Errorf("%s: reads %+v, %v", name, now, err)
				}
				again := p
				again.Head = made.Head
				found, err := s.forge.Propose(t.Context(), again)
				if name == "of another author" {
					if !fault.Is(err, fault.Conflict) || s.rev(t, proposed) != head {
						t.Errorf("%s: proposed %+v, %v", name, found, err)
					}
					if _, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head)); !fault.Is(err, fault.Conflict) || s.rev(t, proposed) != head {
						t.Errorf("%s: withdrawn, %v", name, err)
					}
				} else if err != nil || found.Head == head || s.rev(t, found.Head+"^{tree}") != same || !strings.HasPrefix(s.git(t, s.dir, "log", "-1", "--format=%B", found.Head), message) {
					t.Errorf("%s: proposed %+v, %v; expected the edit anew", name, found, err)
				}
			}
		})
	}
}

// D55: two replicas propose and merge the same at once: there is one commit, and one merge of it.
func TestABranchAloneOfTwoReplicas(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s, base, p := branchProposal(t, method)
			var group sync.WaitGroup
			var heads, merges [2]string
			replicas := [2]*Forge{s.forge, newForge(t, s.forge.credentials.all...)}
			for i, f := range replicas {
				group.Go(func() {
					made, err := f.Propose(t.Context(), p)
					if heads[i] = made.Head; err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			for i, f := range replicas {
				group.Go(func() {
					merged, err := f.Merge(t.Context(), activity.MergeRequest{
						Commit: p.Commit, Branch: p.Branch, Head: heads[0], Method: method, Alone: true,
					})
					if merges[i] = merged.Commit; err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			log := strings.Fields(s.git(t, s.dir, "rev-list", "--first-parent", base+"..main"))
			if heads[0] != heads[1] || merges[0] != merges[1] || len(log) != 1 || log[0] != merges[0] || s.exists(t, proposed) {
				t.Errorf("heads %v, merges %v, main has %v", heads, merges, log)
			}
		})
	}
}

// D55: a protected branch is not moved, and the branch of the proposal stays; a server that does not let branches be deleted, or not at
// once with another change, gets the merge all the same.
func TestABranchAloneAtServersWithRules(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	s.protect(t)
	if _, err := s.mergeBranch(t, p, made.Head); !fault.Is(err, fault.Refused) || s.rev(t, "main") != base || s.rev(t, proposed) != made.Head {
		t.Errorf("a protected branch: %v", err)
	}
	s.unprotect(t)
	s.git(t, s.dir, "config", "receive.denyDeletes", "true")
	if merged, err := s.mergeBranch(t, p, made.Head); err != nil || merged.Commit != s.rev(t, "main") || !s.exists(t, proposed) {
		t.Errorf("branches are not deleted: %+v, %v", merged, err)
	}
	s, _, p = branchProposal(t, activity.MergeCommit)
	made = s.propose(t, p)
	s.git(t, s.dir, "config", "receive.advertiseAtomic", "false")
	if merged, err := s.mergeBranch(t, p, made.Head); err != nil || merged.Commit != s.rev(t, "main") || s.exists(t, proposed) {
		t.Errorf("nothing at once: %+v, %v", merged, err)
	}
}

// D55: a withdrawn branch is deleted, once; also that of one that people have merged, which stays merged.
func TestABranchAloneIsWithdrawn(t *testing.T) {
	t.Parallel()
	s, base, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	for range 2 {
		found, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head))
		if err != nil || found.State != activity.ProposalClosed || s.exists(t, proposed) || s.rev(t, "main") != base {
			t.Errorf("found %+v, %v", found, err)
		}
	}
	made = s.propose(t, p)
	s.git(t, s.dir, "update-ref", "refs/heads/main", made.Head)
	found, err := s.forge.WithdrawBranch(t.Context(), s.ends(p, made.Head))
	if err != nil || found.State != activity.ProposalMerged || s.exists(t, proposed) {
		t.Errorf("a merged one: %+v, %v", found, err)
	}
}

// D55: the branches of proposals are written by proposals alone: no commit and no merge of another call goes there.
func TestBranchesOfProposalsAreNoTargets(t *testing.T) {
	t.Parallel()
	s, _, p := branchProposal(t, activity.MergeCommit)
	made := s.propose(t, p)
	other := p
	for _, branch := range []string{proposed, "Lockstep/Proposals/o1/rollout-8/staging", "refs/heads/" + proposed} {
		other.Commit.Branch = branch
		if _, err := s.mergeBranch(t, other, made.Head); !fault.Is(err, fault.Invalid) {
			t.Errorf("merged into %s: %v", branch, err)
		}
		if _, err := s.forge.Commit(t.Context(), other.Commit); !fault.Is(err, fault.Invalid) || s.rev(t, proposed) != made.Head {
			t.Errorf("committed to %s: %v", branch, err)
		}
	}
}

// D55: a process that dies after any request of a proposal and its merge leaves what the next one completes: one commit, and one merge.
func TestACrashAtEachRequestOfABranchAlone(t *testing.T) {
	t.Parallel()
	for _, method := range methods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			for after := int64(1); ; after++ {
				s, base, p := branchProposal(t, method)
				d := &dying{}
				d.left.Store(after)
				first, err := New(Deps{
					HTTP: d, Budget: s.forge.budget, Credentials: s.forge.credentials.all, AuthorName: "Lockstep", AuthorEmail: "lockstep@example.com",
					Clock: s.forge.clock, Log: s.forge.log,
				})
				if err != nil {
					t.Fatal(err)
				}
				made, err := first.Propose(t.Context(), p)
				pushed := s.exists(t, proposed)
				if err == nil {
					_, err = first.Merge(t.Context(), activity.MergeRequest{
						Commit: p.Commit, Branch: p.Branch, Head: made.Head, Method: method, Alone: true,
					})
				}
				lived := d.left.Load() > 0
				if lived && err != nil {
					t.Fatalf("after %d requests: %v", after, err)
				}
				// The next process repeats the call that was not recorded.
				if made.Head == "" {
					tip := ""
					if pushed {
						tip = s.rev(t, proposed)
					}
					if made = s.propose(t, p); tip != "" && made.Head != tip {
						t.Errorf("after %d requests: another commit is proposed", after)
					}
				}
				merged, err := s.mergeBranch(t, p, made.Head)
				log := strings.Fields(s.git(t, s.dir, "rev-list", "--first-parent", base+"..main"))
				if err != nil || len(log) != 1 || log[0] != merged.Commit || s.git(t, s.dir, "show", "main:staging/api.yaml") != "new\n" || s.exists(t, proposed) {
					t.Fatalf("after %d requests: %+v, %v; main has %v", after, merged, err, log)
				}
				if lived {
					if after < 8 {
						t.Errorf("only %d requests", after)
					}
					return
				}
			}
		})
	}
}
