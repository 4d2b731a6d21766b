package crash

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// untouched is what the file of the environment has before anything is deployed there.
const untouched = "name: api\nimage: none\n"

// proposingAtGitea is a stack whose environment has a file in a real Gitea, changed by pull requests, and whose gate ann may approve:
// she has linked her account for the hook. It answers the version set to deploy.
func proposingAtGitea(t *testing.T) (*atGitea, client.VersionSet) {
	t.Helper()
	g := startAtGitea(t)
	stage := &g.Scenario.Stages[0]
	g.Scenario.Services = g.Scenario.Services[:1]
	service := g.Scenario.Services[0]
	stage.Driver, stage.DriverConfig = "git@1", map[string]any{"cluster_agent_id": nil}
	g.gitea.Ask("ann", http.MethodPost, "/repos/ann/deploy/contents/staging/api.yaml", map[string]any{
		"branch": "main", "message": "first", "content": base64.StdEncoding.EncodeToString([]byte(untouched)),
	}, nil)
	for _, do := range []func() error{
		func() error { return g.CreateApplication(g.ctx) },
		func() error { return g.CreateEnvironments(g.ctx) },
		func() error {
			_, err := g.API.CreateFlowDefinition(g.ctx, g.Scenario.Application, map[string]any{"steps": []any{map[string]any{
				"type": "deploy", "environment": stage.Environment, "approval": map[string]any{"reason": "a person looks"},
				"config": map[string]any{
					"repository_url": g.gitea.Address + "/ann/deploy.git", "branch": "main", "proposal": "pull_request", "poll_interval": 1,
					"services": []any{map[string]any{"service": service, "file": "staging/api.yaml"}},
				},
			}}})
			return err
		},
		func() error { return g.AwaitPipeline(g.ctx) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	number := g.hooked(client.ForgeHook{Commands: true}, "issue_comment", "pull_request_comment")
	g.link("ann", number)
	set, err := g.Push(g.ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return g, set
}

// link makes a member of a user of Gitea, who links the account by a comment on a pull request of another branch.
func (g *atGitea) link(user string, hook int) {
	g.t.Helper()
	member, err := g.API.CreateMember(g.ctx, user, "USER", "OWNER")
	if err != nil {
		g.t.Fatal(err)
	}
	token, err := g.API.CreateToken(g.ctx, client.TokenInput{Name: user, Member: member.ID, Lifetime: time.Hour})
	if err != nil {
		g.t.Fatal(err)
	}
	code, err := client.New(client.Config{Endpoint: g.stack.Endpoints().GraphQL, Token: token.Token}).MakeForgeCode(g.ctx, hook, user)
	if err != nil {
		g.t.Fatal(err)
	}
	g.gitea.Ask(user, http.MethodPost, "/repos/ann/deploy/contents/notes.txt", map[string]any{
		"branch": "main", "new_branch": "notes", "message": "notes", "content": base64.StdEncoding.EncodeToString([]byte("notes\n")),
	}, nil)
	g.comment(user, g.open(user, "notes"), code.Comment)
	err = g.Await(g.ctx, user+" to be linked", func() (string, bool, error) {
		all, err := g.API.ForgeAccounts(g.ctx)
		return fmt.Sprintf("%+v, %v", all, err), len(all) == 1 && all[0].Name == user, nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// proposes begins a rollout, and answers it and its pull request once its gate is open.
func (g *atGitea) proposes(set client.VersionSet) (client.Rollout, int) {
	g.t.Helper()
	r, err := g.Roll(g.ctx, set.ID, g.t.Name())
	if err != nil {
		g.t.Fatal(err)
	}
	var found []struct {
		Number int
		Title  string
		Body   string
		Head   struct{ Ref string }
	}
	at := -1
	err = g.Await(g.ctx, "the gate and its pull request", func() (string, bool, error) {
		now, err := g.API.Rollout(g.ctx, r.ID)
		if err != nil || len(now.OpenGates) != 1 {
			return fmt.Sprintf("%s, %v", now.State, err), now.Over(), err
		}
		g.gitea.Ask("ann", http.MethodGet, "/repos/ann/deploy/pulls?state=open", nil, &found)
		for i, p := range found {
			if strings.HasPrefix(p.Head.Ref, "lockstep/proposals/") {
				at = i
			}
		}
		return fmt.Sprintf("%+v", found), at >= 0, nil
	})
	if err != nil || at < 0 {
		g.t.Fatalf("%v, found %+v", err, found)
	}
	g.contains("the text of the pull request", found[at].Body, "Rollout ", console+"/rollouts/"+r.ID, "- `staging/api.yaml`\n\n```diff\n", "-image: none\n+image: ",
		"Lockstep-Rollout: ")
	return r, found[at].Number
}

// ends waits for a rollout to end, and answers its journal in words.
func (g *atGitea) ends(r client.Rollout, state string) string {
	g.t.Helper()
	var journal strings.Builder
	err := g.Await(g.ctx, "the rollout to be "+state, func() (string, bool, error) {
		now, err := g.API.Rollout(g.ctx, r.ID)
		if err != nil || !now.Over() {
			return fmt.Sprintf("%s %+v, %v", now.State, now.WaitingOn, err), false, err
		}
		if now.State != state {
			return "", false, fmt.Errorf("it has ended as %s: %+v", now.State, now.Journal)
		}
		for _, row := range now.Journal {
			fmt.Fprintf(&journal, "%+v\n", row)
		}
		return "", true, nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return journal.String()
}

func (g *atGitea) deployed() string {
	g.t.Helper()
	var found struct{ Content string }
	g.gitea.Ask("ann", http.MethodGet, "/repos/ann/deploy/contents/staging/api.yaml?ref=main", nil, &found)
	text, err := base64.StdEncoding.DecodeString(found.Content)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(text)
}

// D55, from the button at a real Gitea to the gate of a rollout in real services: who merges the pull request approves the gate as the
// member who has linked the account, and the rollout continues to its end without anybody else.
func TestAMergeByHandApprovesAGateOnGitea(t *testing.T) {
	t.Parallel()
	g, set := proposingAtGitea(t)
	r, number := g.proposes(set)
	g.gitea.Ask("ann", http.MethodPost, fmt.Sprintf("/repos/ann/deploy/pulls/%d/merge", number), map[string]string{"Do": "merge"}, nil)
	journal := g.ends(r, "COMPLETED")
	g.contains("journal", journal, fmt.Sprintf("pull request #%d was merged on the forge, as ann", number))
	if text := g.deployed(); !strings.Contains(text, set.Entries[0].Version.Digest) {
		t.Errorf("found %s; want %s", text, set.Entries[0].Version.Digest)
	}
}

// D55: who closes the pull request rejects the gate; nothing is deployed.
func TestAClosingRejectsAGateOnGitea(t *testing.T) {
	t.Parallel()
	g, set := proposingAtGitea(t)
	r, number := g.proposes(set)
	g.gitea.Ask("ann", http.MethodPatch, fmt.Sprintf("/repos/ann/deploy/pulls/%d", number), map[string]string{"state": "closed"}, nil)
	journal := g.ends(r, "CANCELLED")
	g.contains("journal", journal, fmt.Sprintf("pull request #%d was closed on the forge", number))
	if text := g.deployed(); text != untouched {
		t.Errorf("found %s; want it as it was", text)
	}
}
