package git

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// byHand has the one proposal look merged by ann as a commit, with a head.
func (s *server) byHand(commit, head string) {
	f := s.fake.pulls[0]
	f.state, f.by, f.merged, f.ended = "merged", "ann", commit, head
}

// moves points a branch to a commit.
func (s *server) moves(t *testing.T, branch, to string) {
	t.Helper()
	s.git(t, s.dir, "update-ref", "refs/heads/"+branch, to)
}

const notExactly = "what was merged is not exactly one commit with its changes"

// D55: only a merge of exactly the commit that was proposed shows it, by the commits and not by what the forge says of a branch.
func TestWhatAMergeShows(t *testing.T) {
	t.Parallel()
	type shown struct{ merged, unshown string }
	// Each merges in its own way, and answers what is to be shown; proposed stands for the proposed commit.
	tests := map[string]struct {
		forges []string
		merge  func(t *testing.T, s *server, base, proposedCommit string) shown
	}{
		"a merge commit": {[]string{GitHub, GitLab, Gitea}, func(t *testing.T, s *server, _, head string) shown {
			t.Helper()
			s.add(t, "main", map[string]string{"z": "hers\n"})
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			s.add(t, "main", map[string]string{"a": "newer\n"})
			return shown{merged: head}
		}},
		"a fast-forward": {[]string{GitHub, GitLab, Gitea}, func(t *testing.T, s *server, _, head string) shown {
			t.Helper()
			s.moves(t, "main", head)
			s.byHand(head, head)
			return shown{merged: head}
		}},
		"a squash": {[]string{GitHub, GitLab}, func(t *testing.T, s *server, _, head string) shown {
			t.Helper()
			s.add(t, "main", map[string]string{"z": "hers\n"})
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", true); problem != "" {
				t.Fatal(problem)
			}
			return shown{merged: head}
		}},
		"a rebase of a branch that was moved, and moved back": {[]string{Gitea}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, proposed, base)
			s.add(t, proposed, map[string]string{"evil": "x\n"})
			other := s.add(t, proposed, map[string]string{"a": "new\n"})
			s.moves(t, "main", other)
			s.moves(t, proposed, head)
			s.byHand(other, head)
			return shown{other, "it was squashed or rebased, and the forge does not keep which commit that was made of; merge it with a merge commit"}
		}},
		"a merge of a branch that was moved, and moved back": {[]string{Gitea}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, proposed, base)
			s.add(t, proposed, map[string]string{"evil": "x\n"})
			s.add(t, proposed, map[string]string{"a": "new\n"})
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			s.moves(t, proposed, head)
			s.byHand(s.fake.pulls[0].merged, head)
			return shown{unshown: notExactly}
		}},
		"a merge of another commit with the same changes": {[]string{Gitea, GitHub}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, proposed, base)
			other := s.add(t, proposed, map[string]string{"a": "new\n"})
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			s.moves(t, proposed, head)
			s.byHand(s.fake.pulls[0].merged, head)
			return shown{merged: other}
		}},
		"in another request, which has more": {[]string{GitHub, GitLab}, func(t *testing.T, s *server, _, head string) shown {
			t.Helper()
			s.moves(t, "feature", head)
			s.add(t, "feature", map[string]string{"evil": "x\n", "a": "old\n"})
			s.add(t, "feature", map[string]string{"a": "new\n"})
			other, _, _ := s.fake.opened("feature", "main", "docs", "")
			if _, problem := s.fake.mergePull(other, "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			s.byHand(other.merged, head)
			return shown{unshown: notExactly}
		}},
		"in another push, whose last commit has the same changes": {[]string{GitHub, GitLab}, func(t *testing.T, s *server, _, head string) shown {
			t.Helper()
			s.moves(t, "main", head)
			s.add(t, "main", map[string]string{"evil": "x\n", "a": "old\n"})
			s.byHand(s.add(t, "main", map[string]string{"a": "new\n"}), head)
			return shown{unshown: notExactly}
		}},
		"a merge commit with other contents": {[]string{GitHub, GitLab, Gitea}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, "tmp", base)
			s.add(t, "tmp", map[string]string{"a": "evil\n", "evil": "x\n"})
			m := strings.TrimSpace(s.commitAs(t, "ann", "Merge", s.rev(t, "tmp^{tree}"), base, head))
			s.moves(t, "main", m)
			s.byHand(m, head)
			return shown{unshown: notExactly}
		}},
		"a merge commit of three": {[]string{GitHub}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, "tmp", base)
			third := s.add(t, "tmp", map[string]string{"z": "2\n"})
			m := strings.TrimSpace(s.commitAs(t, "ann", "Merge", s.rev(t, head+"^{tree}"), base, head, third))
			s.moves(t, "main", m)
			s.byHand(m, head)
			return shown{unshown: notExactly}
		}},
		"a squash with a merge commit": {[]string{GitLab}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			squashed := strings.TrimSpace(s.commitAs(t, "ann", "Squash", s.rev(t, head+"^{tree}"), base))
			m := strings.TrimSpace(s.commitAs(t, "ann", "Merge", s.rev(t, head+"^{tree}"), base, squashed))
			s.moves(t, "main", m)
			s.byHand(m, head)
			return shown{merged: head}
		}},
		"a squash with a merge commit, on top of something else": {[]string{GitLab}, func(t *testing.T, s *server, base, head string) shown {
			t.Helper()
			s.moves(t, "tmp", base)
			s.add(t, "tmp", map[string]string{"z": "2\n"})
			s.add(t, "tmp", map[string]string{"z": "1\n"})
			squashed := s.add(t, "tmp", map[string]string{"a": "new\n"})
			m := strings.TrimSpace(s.commitAs(t, "ann", "Merge", s.rev(t, head+"^{tree}"), base, squashed))
			s.moves(t, "main", m)
			s.byHand(m, head)
			return shown{unshown: notExactly}
		}},
		"pointed to the branch after it was merged elsewhere": {[]string{GitHub, GitLab, Gitea}, func(t *testing.T, s *server, base, _ string) shown {
			t.Helper()
			s.moves(t, "scratch", base)
			s.fake.pulls[0].into = "scratch"
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			s.fake.pulls[0].into = "main"
			return shown{unshown: s.fake.pulls[0].merged[:12] + ` is not on branch "main"`}
		}},
	}
	for name, tt := range tests {
		for _, forge := range tt.forges {
			t.Run(name+" at "+forge, func(t *testing.T) {
				t.Parallel()
				s := setupForge(t, forge)
				base := s.add(t, "main", map[string]string{"a": "old\n", "z": "1\n"})
				made := s.propose(t, s.proposal(map[string]string{"a": "new\n"}))
				want := tt.merge(t, s, base, made.Head)
				read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1)
				if got := (shown{read.Merged, read.Unshown}); err != nil || got != want || read.ByID != 9 {
					t.Errorf("found %+v, %v; expected %+v of %s", read, err, want, made.Head)
				}
			})
		}
	}
}

// D55: git.merge answers no merge that is not on the branch.
func TestAMergeElsewhereIsNotTaken(t *testing.T) {
	t.Parallel()
	s := setupForge(t, GitLab)
	s.moves(t, "scratch", s.add(t, "main", map[string]string{"a": "old\n"}))
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	s.fake.pulls[0].into = "scratch"
	if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
		t.Fatal(problem)
	}
	s.fake.pulls[0].into = "main"
	_, err := s.merge(t, p, made, activity.MergeCommit)
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), `is not on branch "main"`) {
		t.Errorf("found %v", err)
	}
	s.moves(t, "main", s.rev(t, "scratch"))
	if _, err := s.merge(t, p, made, activity.MergeCommit); err != nil {
		t.Errorf("once it is on it: %v", err)
	}
}

// D55: a fault that passes is no last answer: it is tried again, or said and looked at anew.
func TestAFaultThatPassesIsNoLastAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status  int
		account bool
		unshown string
	}{
		"the account, unavailable": {503, true, ""},
		"Git, unavailable":         {503, false, ""},
		"Git, busy":                {429, false, ""},
		"Git, unauthenticated":     {401, false, "the commits could not be read: "},
		"Git, denied":              {403, false, "the commits could not be read: "},
		"Git, missing":             {404, false, "the commits could not be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setupForge(t, Gitea)
			s.add(t, "main", map[string]string{"a": "old\n"})
			made := s.propose(t, s.proposal(map[string]string{"a": "new\n"}))
			if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", false); problem != "" {
				t.Fatal(problem)
			}
			var failing atomic.Bool
			failing.Store(true)
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				git := strings.Contains(r.URL.RawQuery+r.URL.Path, "git-upload-pack")
				if !failing.Load() || git == tt.account || !git && !strings.HasSuffix(r.URL.Path, "/user") {
					return false
				}
				refuse(w, tt.status, "for a moment")
				return true
			}
			read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1)
			if tt.unshown == "" && !fault.Is(err, fault.Unavailable) ||
				tt.unshown != "" && (err != nil || read.Merged != "" || read.ByID != 9 || !strings.HasPrefix(read.Unshown, tt.unshown)) {
				t.Errorf("during it: %+v, %v", read, err)
			}
			failing.Store(false)
			read, err = s.forge.ReadProposal(t.Context(), 1, s.url, 1)
			if err != nil || read.Merged != made.Head || read.ByID != 9 || read.Unshown != "" {
				t.Errorf("after it: %+v, %v", read, err)
			}
		})
	}
}

// D55: a merge that has not changed is not looked at with Git again, and its branch may be gone.
func TestGitIsAskedOnceAboutAMerge(t *testing.T) {
	t.Parallel()
	s := setupForge(t, GitHub)
	s.add(t, "main", map[string]string{"a": "old\n"})
	made := s.propose(t, s.proposal(map[string]string{"a": "new\n"}))
	if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", true); problem != "" {
		t.Fatal(problem)
	}
	var asked atomic.Int64
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.RawQuery+r.URL.Path, "git-upload-pack") {
			asked.Add(1)
		}
		return false
	}
	first := int64(0)
	for range 5 {
		read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1)
		if err != nil || read.Merged != made.Head {
			t.Errorf("found %+v, %v", read, err)
		}
		if first == 0 {
			first = asked.Load()
			s.git(t, s.dir, "update-ref", "-d", "refs/heads/"+proposed)
		}
	}
	if first == 0 || asked.Load() != first {
		t.Errorf("found %d requests, expected the %d of the first look", asked.Load(), first)
	}
	s.byHand(s.add(t, "main", map[string]string{"a": "newer\n"}), made.Head)
	if read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1); err != nil || read.Merged != "" || asked.Load() == first {
		t.Errorf("another merge: found %+v, %v", read, err)
	}
}
