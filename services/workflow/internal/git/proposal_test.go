package git

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// TestProposals is what every forge with proposals has to do alike (D55).
func TestProposals(t *testing.T) {
	t.Parallel()
	for _, forge := range []string{GitLab, GitHub, Gitea, Bitbucket} {
		for name, check := range map[string]func(*testing.T, *server){
			"proposes":         proposesOnce,
			"shows":            showsWhatItChanges,
			"follows":          followsTheBase,
			"merges":           mergesTheHead,
			"by hand":          mergedByHand,
			"closed":           closedByHand,
			"tampered with":    tamperedWith,
			"copied trailers":  copiedTrailers,
			"protected":        fastForwards,
			"moves in between": movesInBetween,
			"withdraws":        withdraws,
			"statuses":         readsStatuses,
		} {
			t.Run(forge+" "+name, func(t *testing.T) {
				t.Parallel()
				s := setupForge(t, forge)
				s.protect(t)
				check(t, s)
			})
		}
	}
}

const proposed = "lockstep/proposals/o1/rollout-7/staging"

// protect has the server refuse pushes to main.
func (s *server) protect(t *testing.T) {
	t.Helper()
	hook := filepath.Join(s.dir, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o750); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nwhile read old new ref; do [ $ref != refs/heads/main ] || { echo 'main is protected' >&2; exit 1; }; done\n"
	if err := os.WriteFile(hook, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (s *server) unprotect(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.dir, "hooks", "pre-receive")); err != nil {
		t.Fatal(err)
	}
}

func (s *server) proposal(files map[string]string) activity.ProposalRequest {
	c := s.request(files)
	c.Organization, c.Activity = 1, ""
	c.Trailers = map[string]string{"Lockstep-Rollout": "7"}
	return activity.ProposalRequest{
		Commit: c, Branch: proposed, ID: strings.TrimPrefix(proposed, activity.ProposalPrefix), Description: "api becomes **2**.",
	}
}

func (s *server) propose(t *testing.T, p activity.ProposalRequest) activity.Proposal {
	t.Helper()
	made, err := s.forge.Propose(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (s *server) merge(t *testing.T, p activity.ProposalRequest, made activity.Proposal, method string) (activity.Proposal, error) {
	t.Helper()
	return s.forge.Merge(t.Context(), activity.MergeRequest{
		Commit: p.Commit, Branch: p.Branch, Number: made.Number, Head: made.Head, Method: method,
	})
}

// showsWhatItChanges: the text of a request has what differs from the branch as it is now, before the trailers, and is made anew when the
// branch moves.
func showsWhatItChanges(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n", "same": "kept\n"})
	p := s.proposal(map[string]string{"a": "new\n", "made": "x\n", "same": "kept\n"})
	p.Show = func(files []activity.ChangedFile) string {
		var text strings.Builder
		for _, f := range files {
			fmt.Fprintf(&text, "%s %q %q %v\n", f.Path, f.Before, f.After, f.Unread)
		}
		return text.String()
	}
	s.propose(t, p)
	want := "api becomes **2**.\n\na \"old\\n\" \"new\\n\" false\nmade \"\" \"x\\n\" false\n\n\nLockstep-Rollout: 7"
	if diff := cmp.Diff(want, s.fake.pulls[0].body); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	s.unprotect(t)
	s.add(t, "main", map[string]string{"a": "other\n"})
	s.propose(t, p)
	if body := s.fake.pulls[0].body; len(s.fake.pulls) != 1 || !strings.Contains(body, `a "other\n" "new\n" false`) {
		t.Errorf("after the branch has moved: %s", body)
	}
}

// proposesOnce: a commit on a branch of its own, and one request for it, however often it is asked for.
func proposesOnce(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "z": "kept\n"})
	p := s.proposal(map[string]string{"staging/api.yaml": "new\n"})
	made := s.propose(t, p)
	want := activity.Proposal{
		Number: 1, URL: "https://forge/pulls/1", State: "open", Branch: proposed, Into: "main", Head: s.rev(t, proposed),
	}
	if diff := cmp.Diff(want, made); diff != "" || s.rev(t, "main") != base || s.rev(t, proposed+"^") != base {
		t.Errorf("main at %s (-want +got):\n%s", s.rev(t, "main"), diff)
	}
	wantMessage := "Deploy 7 to staging\n\nLockstep-Proposal: o1/rollout-7/staging\nLockstep-Rollout: 7\nLockstep <lockstep@example.com>\n"
	if diff := cmp.Diff(wantMessage, s.git(t, s.dir, "log", "-1", "--format=%B%an <%ae>", proposed)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if pull := s.fake.pulls[0]; pull.title != "Deploy 7 to staging" || pull.body != "api becomes **2**.\n\nLockstep-Rollout: 7" {
		t.Errorf("text: %q, %q", pull.title, pull.body)
	}
	p.Description = "Another text."
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if again, err := s.forge.Propose(t.Context(), p); err != nil || again.Head != made.Head || again.Number != 1 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
	group.Wait()
	if len(s.fake.pulls) != 1 || !strings.HasPrefix(s.fake.pulls[0].body, "Another text.") {
		t.Errorf("%d requests, %q", len(s.fake.pulls), s.fake.pulls[0].body)
	}
	same := s.proposal(map[string]string{"z": "kept\n"})
	same.Branch, same.ID = proposed+"2", same.ID+"2"
	if made := s.propose(t, same); made.State != "unchanged" || made.Commit != base || len(s.fake.pulls) != 1 {
		t.Errorf("the same contents: %+v", made)
	}
}

// followsTheBase: the commit stays as it is for as long as nobody else has changed its files, and is made anew after that.
func followsTheBase(t *testing.T, s *server) {
	t.Helper()
	first := s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	s.add(t, "main", map[string]string{"b": "hers\n"})
	if again := s.propose(t, p); again.Head != made.Head {
		t.Errorf("another file has changed: head %s, expected %s", again.Head, made.Head)
	}
	hers := s.add(t, "main", map[string]string{"a": "hers\n"})
	if _, err := s.merge(t, p, made, activity.MergeCommit); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "a has changed on branch") {
		t.Errorf("merge of an edit of an older file: %v", err)
	}
	again := s.propose(t, p)
	if again.Head == made.Head || s.rev(t, proposed+"^") != hers || again.Number != made.Number {
		t.Errorf("the file has changed: %+v on %s", again, s.rev(t, proposed+"^"))
	}
	p.Commit.Base = first
	p.Commit.Files["a"] = []byte("newer\n")
	if _, err := s.forge.Propose(t.Context(), p); !fault.Is(err, fault.Conflict) {
		t.Errorf("made from an older file: %v", err)
	}
}

// mergesTheHead: only the head that the call names, of the run's own proposal; and once.
func mergesTheHead(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	other := made
	other.Head = s.rev(t, "main")
	if _, err := s.merge(t, p, other, activity.MergeCommit); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "the head of the proposal is") {
		t.Errorf("another head: %v", err)
	}
	foreign := p
	foreign.Branch = "lockstep/proposals/o1/rollout-8/staging"
	if _, err := s.merge(t, foreign, made, activity.MergeCommit); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "expected that of this run's") {
		t.Errorf("another run's: %v", err)
	}
	s.fake.requires = "ci"
	if _, err := s.merge(t, p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "Not all required status checks") {
		t.Errorf("a required check is missing: %v", err)
	}
	s.fake.reported = map[string]map[string]string{made.Head: {"ci": "success"}}
	s.add(t, "main", map[string]string{"b": "hers\n"})
	merged, err := s.merge(t, p, made, activity.MergeCommit)
	if err != nil || merged.State != "merged" || merged.Commit != s.rev(t, "main") || merged.By != "" {
		t.Fatalf("%+v, %v", merged, err)
	}
	if got := s.git(t, s.dir, "show", "main:a", "main:b"); got != "new\nhers\n" {
		t.Errorf("main has %q", got)
	}
	if log := s.git(t, s.dir, "log", "-1", "--format=%B", "main"); log != "Deploy 7 to staging\n\nLockstep-Rollout: 7\n" {
		t.Errorf("message %q", log)
	}
	s.add(t, "main", map[string]string{"a": "newer\n"})
	if again, err := s.merge(t, p, made, activity.MergeCommit); err != nil || again.Commit != merged.Commit {
		t.Errorf("again: %+v, %v", again, err)
	}
	if again := s.propose(t, p); again.State != "merged" || again.Commit != merged.Commit {
		t.Errorf("proposed again: %+v", again)
	}
}

// mergedByHand: the answer says who; with other contents than were proposed, it is refused.
func mergedByHand(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", true); problem != "" {
		t.Fatal(problem)
	}
	merged, err := s.merge(t, p, made, activity.MergeSquash)
	if err != nil || merged.By != "ann" || merged.Commit != s.rev(t, "main") {
		t.Errorf("%+v, %v", merged, err)
	}
	number := int64(9)
	if s.forge.credentials.all[0].Forge == Bitbucket { // which has none
		number = 0
	}
	read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1)
	if err != nil || read.State != "merged" || read.By != "ann" || read.ByID != number || read.Head != made.Head {
		t.Errorf("%+v, %v", read, err)
	}
	shown, unshown := made.Head, ""
	switch s.forge.credentials.all[0].Forge {
	case Bitbucket:
		shown, unshown = "", "the forge gives no number of a person's account for it"
	case Gitea: // which shows where the branch is, and not what was squashed
		shown, unshown = merged.Commit, "it was squashed or rebased, and the forge does not keep which commit that was made of; merge it with a merge commit"
	}
	if read.Merged != shown || read.Unshown != unshown {
		t.Errorf("found %q merged and %q, expected %q and %q", read.Merged, read.Unshown, shown, unshown)
	}
	if number != 0 { // a push to the branch after it changes what the forge calls its head
		again := s.add(t, proposed, map[string]string{"b": "theirs\n"})
		if read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1); err != nil || read.Merged == again {
			t.Errorf("what was pushed after the merge looks merged: %+v, %v", read, err)
		}
	}
	s.fake.own = 9 // runs act with it as well, so nobody is linked to it
	if read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1); err != nil || read.By != "ann" || read.ByID != 0 {
		t.Errorf("by the account of the credential: %+v, %v", read, err)
	}
	p.Commit.Files["a"] = []byte("newer\n")
	if _, err := s.merge(t, p, made, activity.MergeSquash); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "by ann as") {
		t.Errorf("other contents: %v", err)
	}
	if _, err := s.forge.ReadProposal(t.Context(), 1, s.url, 2); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that does not exist: %v", err)
	}
}

// D55: an App is no person, so that nobody is linked to it.
func TestAnAppHasNoNumber(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int64{"User": 5, "": 5, "Bot": 0, "Organization": 0} {
		var p activity.Proposal
		(&gitHubUser{ID: 5, Login: "x", Type: kind}).by(&p)
		if p.By != "x" || p.ByID != want {
			t.Errorf("%s: found %+v", kind, p)
		}
	}
}

// closedByHand: what people have closed is not opened again.
func closedByHand(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	s.fake.end(s.fake.pulls[0], "ann")
	if again := s.propose(t, p); again.State != "closed" || again.Number != 1 || len(s.fake.pulls) != 1 {
		t.Errorf("proposed again: %+v", again)
	}
	if _, err := s.merge(t, p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "was closed") {
		t.Errorf("merged: %v", err)
	}
	want := "ann"
	if s.forge.credentials.all[0].Forge == Gitea { // which does not say
		want = ""
	}
	if read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1); err != nil || read.State != "closed" || read.By != want {
		t.Errorf("%+v, %v", read, err)
	}
}

// tamperedWith: whatever else is on the branch of the proposal is never merged, however it got there and whatever the call says.
func tamperedWith(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	forged := func(files map[string]string, from string) string {
		t.Helper()
		s.git(t, s.dir, "update-ref", "refs/heads/"+proposed, from)
		return s.add(t, proposed, files)
	}
	for name, head := range map[string]string{
		"another file": forged(map[string]string{"a": "new\n", "b": "forged\n"}, base),
		"a new file":   forged(map[string]string{"a": "new\n", "deep/er": "forged\n"}, base),
		"other text":   forged(map[string]string{"a": "forged\n"}, base),
		"two commits":  forged(map[string]string{"a": "new\n"}, forged(map[string]string{"b": "forged\n"}, base)),
	} {
		s.git(t, s.dir, "update-ref", "refs/heads/"+proposed, head)
		if _, err := s.merge(t, p, made, activity.MergeCommit); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s, under the former head: %v", name, err)
		}
		of := made
		of.Head = head
		if _, err := s.merge(t, p, of, activity.MergeCommit); !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s, under its own head: %v", name, err)
		}
		if _, err := s.forge.Propose(t.Context(), p); !fault.Is(err, fault.Conflict) ||
			!strings.Contains(err.Error(), "the branch was changed by others") {
			t.Errorf("%s, proposed again: %v", name, err)
		}
	}
	if s.rev(t, "main") != base {
		t.Error("main has moved")
	}
}

// copiedTrailers: everybody who may push can copy the message of our commit. It is ours only if we have made it, with the modes that files
// had.
func copiedTrailers(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"a": "old\n", "100755 b": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n", "b": "new\n"})
	made := s.propose(t, p)
	message := s.git(t, s.dir, "log", "-1", "--format=%B", made.Head)
	commit := func(name, tree string) string {
		t.Helper()
		sha := strings.TrimSpace(s.gitIn(t, s.dir, message, "-c", "user.name="+name, "-c", "user.email=lockstep@example.com", "commit-tree", tree, "-p", base, "-F", "-"))
		s.git(t, s.dir, "update-ref", "refs/heads/"+proposed, sha)
		return sha
	}
	merge := func(head string) error {
		of := made
		of.Head = head
		_, err := s.merge(t, p, of, activity.MergeCommit)
		return err
	}
	same := s.rev(t, made.Head+"^{tree}")
	if err := merge(commit("Eve", same)); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "was made by Eve") {
		t.Errorf("of another: %v", err)
	}
	if _, err := s.forge.Propose(t.Context(), p); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "the branch was changed by others") {
		t.Errorf("of another, proposed again: %v", err)
	}
	entries := s.git(t, s.dir, "ls-tree", made.Head)
	for name, tree := range map[string]string{
		"made executable":      strings.Replace(entries, "100644", "100755", 1),
		"not executable":       strings.Replace(entries, "100755", "100644", 1),
		"made a symbolic link": strings.Replace(entries, "100644", "120000", 1),
	} {
		if err := merge(commit("Lockstep", strings.TrimSpace(s.gitIn(t, s.dir, tree, "mktree")))); !fault.Is(err, fault.Refused) ||
			!strings.Contains(err.Error(), "the mode") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again := s.propose(t, p); s.rev(t, again.Head+"^{tree}") != same {
		t.Error("the modes were not put right")
	}
	proposedAs := message
	message = strings.Replace(message, "Lockstep-Rollout: 7", "Lockstep-Rollout: 8\nLockstep-Activity: rollout-8/0.1", 1)
	forged := commit("Lockstep", same)
	if again := s.propose(t, p); again.Head == forged || s.git(t, s.dir, "log", "-1", "--format=%B", again.Head) != proposedAs {
		t.Errorf("%s with the trailers of another rollout is proposed, expected the commit as it was made", again.Head)
	}
}

// fastForwards: a protected branch is not pushed to; one that may be is moved to exactly the head, if it is where the commit was made.
func fastForwards(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	if _, err := s.merge(t, p, made, activity.MergeFastForward); !fault.Is(err, fault.Refused) || s.rev(t, "main") != base {
		t.Errorf("a protected branch: %v", err)
	}
	s.unprotect(t)
	s.add(t, "main", map[string]string{"b": "hers\n"})
	if _, err := s.merge(t, p, made, activity.MergeFastForward); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "cannot be fast-forwarded") {
		t.Errorf("a branch that has moved: %v", err)
	}
	if again := s.propose(t, p); again.Head != made.Head {
		t.Errorf("proposed %s anew for another merge, expected %s: no file of it has changed", again.Head, made.Head)
	}
	p.Method = activity.MergeFastForward
	again := s.propose(t, p)
	if twice := s.propose(t, p); again.Head == made.Head || twice.Head != again.Head {
		t.Errorf("proposed %s and %s, expected one new commit on top of the branch", again.Head, twice.Head)
	}
	s.git(t, s.dir, "update-ref", "refs/heads/main", base)
	made = s.propose(t, p)
	for range 2 {
		if merged, err := s.merge(t, p, made, activity.MergeFastForward); err != nil || merged.Commit != made.Head ||
			s.rev(t, "main") != made.Head {
			t.Errorf("%+v, %v", merged, err)
		}
	}
}

// movesInBetween: the branch moves after it was compared and before the forge merges. What was merged is compared again.
func movesInBetween(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "1\n2\n3\n4\n5\n6\n"})
	p := s.proposal(map[string]string{"a": "1\n2\n3\n4\n5\nsix\n"})
	made := s.propose(t, p)
	var once sync.Once
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/merge") {
			once.Do(func() { s.add(t, "main", map[string]string{"a": "one\n2\n3\n4\n5\n6\n"}) })
		}
		return false
	}
	if _, err := s.merge(t, p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "has other contents than were proposed") {
		t.Errorf("%v; main has %q", err, s.git(t, s.dir, "show", "main:a"))
	}
}

func withdraws(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	made := s.propose(t, p)
	if _, err := s.forge.Withdraw(t.Context(), 1, s.url, "another", made.Number); !fault.Is(err, fault.Refused) {
		t.Errorf("another run's: %v", err)
	}
	for range 2 {
		if gone, err := s.forge.Withdraw(t.Context(), 1, s.url, proposed, made.Number); err != nil || gone.State != "closed" {
			t.Errorf("%+v, %v", gone, err)
		}
	}
}

func readsStatuses(t *testing.T, s *server) {
	t.Helper()
	commit := s.add(t, "main", map[string]string{"a": "old\n"})
	s.fake.reported = map[string]map[string]string{commit: {"build": "success", "lint": "error", "test": "pending"}}
	got, err := s.forge.ReadStatus(t.Context(), 1, s.url, commit)
	want := []activity.CommitStatus{
		{Name: "build", State: "success", URL: "https://ci/build"},
		{Name: "lint", State: "failure", URL: "https://ci/lint"},
		{Name: "test", State: "pending", URL: "https://ci/test"},
	}
	if s.forge.credentials.all[0].Forge == GitHub {
		want = []activity.CommitStatus{
			{Name: "action", State: "pending", URL: "https://forge/run"}, want[0], {Name: "done", State: "success"}, {Name: "gone", State: "failure"}, want[1], want[2],
		}
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := s.forge.ReadStatus(t.Context(), 1, s.url, "main"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a branch: %v", err)
	}
}

// Plain Git has no proposals: the error says what an operator has to configure.
func TestPlainGitHasNoProposals(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	if _, err := s.forge.Propose(t.Context(), s.proposal(map[string]string{"a": "new\n"})); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "no forge is configured") {
		t.Errorf("%v", err)
	}
}

// D55: where the forge does not say whose the credential is, nobody is linked to who has merged or closed a proposal: it may be the run.
func TestAnUnknownAccountEndsAProposalAsNobody(t *testing.T) {
	t.Parallel()
	s := setupForge(t, GitHub)
	s.add(t, "main", map[string]string{"a": "old\n"})
	p := s.proposal(map[string]string{"a": "new\n"})
	s.propose(t, p)
	if _, problem := s.fake.mergePull(s.fake.pulls[0], "", "hers", "ann", true); problem != "" {
		t.Fatal(problem)
	}
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		unknown := strings.HasSuffix(r.URL.Path, "/user") || strings.HasSuffix(r.URL.Path, "/graphql")
		if unknown {
			refuse(w, http.StatusForbidden, "Resource not accessible by integration")
		}
		return unknown
	}
	if read, err := s.forge.ReadProposal(t.Context(), 1, s.url, 1); err != nil || read.By != "ann" || read.ByID != 0 {
		t.Errorf("found %+v, %v; expected nobody's number", read, err)
	}
}
