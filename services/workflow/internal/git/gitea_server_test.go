package git

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/giteatest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// realGitea is Gitea itself (`make forge-test`), with a repository whose branch main nobody may push to. ann is a person, and bot is
// Lockstep's account.
type realGitea struct {
	t       *testing.T
	server  *giteatest.Server
	address string
	forge   *Forge
}

func startGitea(t *testing.T) *realGitea {
	t.Helper()
	server := giteatest.Start(t, "ann", "bot")
	g := &realGitea{t: t, server: server, address: server.Address}
	g.ask("POST", "/user/repos", map[string]any{"name": "deploy", "auto_init": true, "default_branch": "main", "private": true})
	g.ask("PUT", "/repos/ann/deploy/collaborators/bot", map[string]any{"permission": "write"})
	g.protect()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(server.Tokens["bot"]), 0o600); err != nil {
		t.Fatal(err)
	}
	g.forge = newForge(t, Credential{URLPrefix: g.address, Username: "bot", PasswordRef: "file:" + token, Forge: Gitea})
	return g
}

// ask is what ann asks of the API. The answer may be anything that is no failure.
func (g *realGitea) ask(method, path string, in any) map[string]any {
	g.t.Helper()
	var out any
	g.server.Ask("ann", method, path, in, &out)
	found, _ := out.(map[string]any)
	return found
}

func (g *realGitea) protect() {
	g.t.Helper()
	g.ask("POST", "/repos/ann/deploy/branch_protections", map[string]any{
		"rule_name": "main", "enable_push": false, "enable_status_check": true, "status_check_contexts": []string{"ci"},
	})
}

// hers changes a file on main, as the administrator may.
func (g *realGitea) hers(path, content string) {
	g.t.Helper()
	g.ask("DELETE", "/repos/ann/deploy/branch_protections/main", nil)
	in := map[string]any{"branch": "main", "message": "hers", "content": base64.StdEncoding.EncodeToString([]byte(content))}
	method := "POST"
	if _, _, err := g.forge.ReadFile(g.t.Context(), 1, g.url(), "main", path); err == nil {
		found := g.ask("GET", "/repos/ann/deploy/contents/"+path+"?ref=main", nil)
		method, in["sha"] = "PUT", found["sha"]
	}
	g.ask(method, "/repos/ann/deploy/contents/"+path, in)
	g.protect()
}

func (g *realGitea) url() string { return g.address + "/ann/deploy.git" }

func (g *realGitea) proposal(name, path, content string) activity.ProposalRequest {
	id := "o1/rollout-7/" + name
	commit := activity.CommitRequest{
		Organization: 1, RepoURL: g.url(), Branch: "main", Files: map[string][]byte{path: []byte(content)}, Message: "Deploy 7 to " + name,
		Trailers: map[string]string{"Lockstep-Rollout": "7"},
	}
	return activity.ProposalRequest{Branch: activity.ProposalPrefix + id, ID: id, Description: "api becomes **2**.", Commit: commit}
}

func (g *realGitea) propose(p activity.ProposalRequest) activity.Proposal {
	g.t.Helper()
	made, err := g.forge.Propose(g.t.Context(), p)
	if err != nil {
		g.t.Fatal(err)
	}
	return made
}

func (g *realGitea) succeeds(commit string) {
	g.t.Helper()
	g.ask("POST", "/repos/ann/deploy/statuses/"+commit, map[string]string{"state": "success", "context": "ci", "target_url": "http://ci/1"})
}

// merge merges as soon as Gitea has looked at the pull request, which it does some time after a push.
func (g *realGitea) merge(p activity.ProposalRequest, made activity.Proposal, method string) (merged activity.Proposal, err error) {
	g.t.Helper()
	wait.For(g.t, "Gitea's look at the pull request", func() bool {
		merged, err = g.forge.Merge(g.t.Context(), activity.MergeRequest{
			Commit: p.Commit, Branch: p.Branch, Number: made.Number, Head: made.Head, Method: method,
		})
		return err == nil || !strings.Contains(err.Error(), "try again") && !strings.Contains(err.Error(), "head out of date")
	})
	return merged, err
}

func (g *realGitea) content(path string) string {
	g.t.Helper()
	content, _, err := g.forge.ReadFile(g.t.Context(), 1, g.url(), "main", path)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(content)
}

// mergedByAnn: the forge says the number of who has merged it, and the commits that it was this head, unless it is squashed or rebased:
// this forge does not keep what of.
func (g *realGitea) mergedByAnn(made activity.Proposal, how string) {
	g.t.Helper()
	ann, _ := g.ask("GET", "/user", nil)["id"].(float64)
	read, err := g.forge.ReadProposal(g.t.Context(), 1, g.url(), made.Number)
	kept := how == "merge" || read.Commit == made.Head
	if err != nil || ann < 1 || read.By != "ann" || read.ByID != int64(ann) || (read.Merged == made.Head) != kept || (read.Unshown == "") != kept ||
		read.Into != "main" {
		g.t.Errorf("found %+v, %v; expected the %s of %s by ann, %.0f", read, err, how, made.Head, ann)
	}
}

// D55, on a real forge: a protected branch, a base that moves, a merge and a closing by hand.
func TestProposalsOnGitea(t *testing.T) {
	t.Parallel()
	g := startGitea(t)
	g.hers("a", "1\n")
	g.hers("b", "1\n")

	// Nobody may push, so it is proposed: once, however often.
	p := g.proposal("staging", "a", "2\n")
	if _, err := g.forge.Commit(t.Context(), p.Commit); err == nil {
		t.Fatal("main is not protected")
	}
	made := g.propose(p)
	if again := g.propose(p); again.Number != made.Number || again.Head != made.Head || made.State != activity.ProposalOpen {
		t.Fatalf("%+v, then %+v", made, again)
	}
	pull := g.ask("GET", fmt.Sprintf("/repos/ann/deploy/pulls/%d", made.Number), nil)
	if pull["title"] != "Deploy 7 to staging" || pull["body"] != "api becomes **2**.\n\nLockstep-Rollout: 7" ||
		pull["html_url"] != made.URL {
		t.Errorf("shown: %v %v %v", pull["title"], pull["body"], pull["html_url"])
	}

	// A check is required; another file has changed; the branch may not be pushed to.
	if _, err := g.merge(p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "status checks") {
		t.Errorf("without the check: %v", err)
	}
	if all, err := g.forge.ReadStatus(t.Context(), 1, g.url(), made.Head); err != nil || len(all) != 0 {
		t.Errorf("statuses %v, %v", all, err)
	}
	g.succeeds(made.Head)
	all, err := g.forge.ReadStatus(t.Context(), 1, g.url(), made.Head)
	if err != nil || len(all) != 1 || all[0] != (activity.CommitStatus{Name: "ci", State: activity.StatusSuccess, URL: "http://ci/1"}) {
		t.Errorf("statuses %+v, %v", all, err)
	}
	if _, err := g.merge(p, made, activity.MergeFastForward); err == nil {
		t.Error("main was pushed to")
	}
	g.hers("b", "2\n")
	merged, err := g.merge(p, made, activity.MergeCommit)
	if err != nil || merged.State != activity.ProposalMerged || g.content("a") != "2\n" || g.content("b") != "2\n" {
		t.Fatalf("%+v, %v: %q, %q", merged, err, g.content("a"), g.content("b"))
	}
	if again, err := g.merge(p, made, activity.MergeCommit); err != nil || again.Commit != merged.Commit {
		t.Errorf("again: %+v, %v", again, err)
	}
	if c, err := g.forge.ReadCommit(t.Context(), 1, g.url(), merged.Commit); err != nil ||
		!strings.Contains(c.Message, "Lockstep-Rollout: 7") {
		t.Errorf("%+v, %v", c, err)
	}

	// The base moves under the edit.
	p = g.proposal("production", "a", "3\n")
	made = g.propose(p)
	g.succeeds(made.Head)
	g.hers("a", "hers\n")
	if _, err := g.merge(p, made, activity.MergeSquash); !fault.Is(err, fault.Conflict) {
		t.Errorf("an edit of an older file: %v", err)
	}
	again := g.propose(p)
	if again.Number != made.Number || again.Head == made.Head {
		t.Errorf("%+v, then %+v", made, again)
	}
	g.succeeds(again.Head)
	if merged, err := g.merge(p, again, activity.MergeSquash); err != nil || g.content("a") != "3\n" {
		t.Errorf("%+v, %v: %q", merged, err, g.content("a"))
	}

	// By hand.
	p = g.proposal("by-hand", "a", "4\n")
	made = g.propose(p)
	g.succeeds(made.Head)
	path := fmt.Sprintf("/repos/ann/deploy/pulls/%d", made.Number)
	wait.For(t, "that it can be merged", func() bool { return g.ask("GET", path, nil)["mergeable"] == true })
	g.ask("POST", path+"/merge", map[string]string{"Do": "merge"})
	if merged, err := g.merge(p, made, activity.MergeCommit); err != nil || merged.By != "ann" || g.content("a") != "4\n" {
		t.Errorf("%+v, %v", merged, err)
	}
	g.mergedByAnn(made, "merge")
	for _, how := range []string{"squash", "rebase"} {
		p = g.proposal("by-hand-"+how, "b", how+"\n")
		made = g.propose(p)
		g.succeeds(made.Head)
		path := fmt.Sprintf("/repos/ann/deploy/pulls/%d", made.Number)
		wait.For(t, "that it can be merged", func() bool { return g.ask("GET", path, nil)["mergeable"] == true })
		g.ask("POST", path+"/merge", map[string]any{"Do": how, "delete_branch_after_merge": true})
		g.mergedByAnn(made, how)
	}
	p = g.proposal("closed", "a", "5\n")
	made = g.propose(p)
	g.ask("PATCH", fmt.Sprintf("/repos/ann/deploy/pulls/%d", made.Number), map[string]string{"state": "closed"})
	if again := g.propose(p); again.State != activity.ProposalClosed || again.Number != made.Number {
		t.Errorf("proposed again: %+v", again)
	}
	if _, err := g.merge(p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) {
		t.Errorf("a closed one: %v", err)
	}
	p = g.proposal("withdrawn", "a", "6\n")
	made = g.propose(p)
	if gone, err := g.forge.Withdraw(t.Context(), 1, g.url(), p.Branch, made.Number); err != nil ||
		gone.State != activity.ProposalClosed {
		t.Errorf("%+v, %v", gone, err)
	}
	if read, err := g.forge.ReadProposal(t.Context(), 1, g.url(), made.Number); err != nil || read.State != activity.ProposalClosed {
		t.Errorf("%+v, %v", read, err)
	}
	if g.content("a") != "4\n" {
		t.Errorf("main has %q", g.content("a"))
	}
}

// R3-09, on a real forge: statuses are set once and read back, beyond a page, and a protection of the branch that requires them is kept to.
func TestStatusesOnGitea(t *testing.T) {
	t.Parallel()
	g := startGitea(t)
	g.hers("a", "1\n")
	g.ask("PATCH", "/repos/ann/deploy/branch_protections/main", map[string]any{
		"enable_status_check": true, "status_check_contexts": []string{"lockstep/*"},
	})
	p := g.proposal("staging", "a", "2\n")
	made := g.propose(p)
	set := func(state, description string, unchanged bool) {
		t.Helper()
		got, err := g.forge.SetStatus(t.Context(), activity.StatusRequest{
			Organization: 1, RepoURL: g.url(), Commit: made.Head, Status: activity.CommitStatus{
				Name: "lockstep/production/e2e", State: state, URL: "https://cd.example.com/rollouts/rollout_7", Description: description,
			},
		})
		if err != nil || got.Unchanged != unchanged || got.Limited != "" {
			t.Fatalf("%s: %+v, %v", state, got, err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if _, err := g.merge(p, made, activity.MergeCommit); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "status checks") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("without a status")
	set(activity.StatusPending, "waits", false)
	set(activity.StatusPending, "waits", true)
	refused("pending")
	set(activity.StatusFailure, "failure by ci-1", false)
	refused("failed")
	set(activity.StatusSuccess, strings.Repeat("é", 200), false)
	set(activity.StatusSuccess, strings.Repeat("é", 200), true)
	for i := range 60 {
		g.ask("POST", "/repos/ann/deploy/statuses/"+made.Head, map[string]string{"state": "success", "context": fmt.Sprintf("ci/%d", i)})
	}
	all, err := g.forge.ReadStatus(t.Context(), 1, g.url(), made.Head)
	if err != nil || len(all) != 61 || all[60].Name != "lockstep/production/e2e" || all[60].State != activity.StatusSuccess ||
		all[60].URL != "https://cd.example.com/rollouts/rollout_7" {
		t.Errorf("found %d statuses, %v; want 61 with ours", len(all), err)
	}
	set(activity.StatusSuccess, strings.Repeat("é", 200), true)
	if merged, err := g.merge(p, made, activity.MergeCommit); err != nil || merged.State != activity.ProposalMerged ||
		g.content("a") != "2\n" {
		t.Errorf("%+v, %v: %q", merged, err, g.content("a"))
	}
	_, err = g.forge.SetStatus(t.Context(), activity.StatusRequest{
		Organization: 1, RepoURL: g.url(), Commit: strings.Repeat("a", 40), Status: activity.CommitStatus{
			Name:  "lockstep/a",
			State: activity.StatusSuccess,
		},
	})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a commit that is not there: %v", err)
	}
}
