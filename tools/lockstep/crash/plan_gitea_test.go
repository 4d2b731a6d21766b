package crash

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/giteatest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// atGitea is a stack whose application follows a repository of a real Gitea, which reports its pull requests. ann owns it, bot is the
// account of Lockstep, and eve may read.
type atGitea struct {
	*world
	t     *testing.T
	ctx   context.Context //nolint:containedctx // that of the stack
	gitea *giteatest.Server
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  replicas: %d
`

// startAtGitea is a stack and a Gitea with the repository ann/deploy, in which bot, as whom the stack comes, may do everything.
func startAtGitea(t *testing.T) *atGitea {
	t.Helper()
	gitea := giteatest.StartTLS(t, "ann", "bot", "eve")
	ctx, w := start(t, oneStage(), "SSL_CERT_FILE="+gitea.CA)
	w.Patience = 2 * time.Minute
	g := &atGitea{world: w, t: t, ctx: ctx, gitea: gitea}
	gitea.Ask("ann", http.MethodPost, "/user/repos", map[string]any{"name": "deploy", "auto_init": true, "default_branch": "main"}, nil)
	gitea.Ask("ann", http.MethodPut, "/repos/ann/deploy/collaborators/bot", map[string]string{"permission": "admin"}, nil)

	token, root := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "root")
	for file, text := range map[string]string{token: gitea.Tokens["bot"], root: strings.Repeat("r", 32)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, _ := w.configuration(t, "workflow")["git_credentials"].([]any)
	networks, _ := w.configuration(t, "registry")["allow_networks"].([]any)
	w.configure(ctx, t, map[string]map[string]any{
		"workflow": {"git_credentials": append(own, map[string]any{
			"url_prefix": gitea.Address + "/", "username": "bot", "password_ref": "file:" + token, "forge": "gitea", "organizations": []int{1},
		})},
		"registry": {"allow_networks": append(networks, g.host()), "forge_hooks": map[string]any{"secrets": []string{"file:" + root}}},
		"domain":   {"public_url": console},
	})
	return g
}

// console is where the stack says that its console is.
const console = "https://cd.example.com"

func (g *atGitea) host() string { return strings.TrimPrefix(g.gitea.Address, "https://") }

// hooked has Gitea report what happens in the repository to a hook, and answers its number.
func (g *atGitea) hooked(h client.ForgeHook, events ...string) int {
	g.t.Helper()
	h.Forge, h.Repositories = "GITEA", []string{g.host() + "/ann/*"}
	made, err := g.API.AddForgeHook(g.ctx, h, "test")
	if err != nil {
		g.t.Fatal(err)
	}
	g.gitea.Ask("ann", http.MethodPost, "/repos/ann/deploy/hooks", map[string]any{
		"type": "gitea", "active": true, "events": events,
		"config": map[string]string{"url": g.stack.Endpoints().Registry + made.Path, "content_type": "json", "secret": made.Secret},
	}, nil)
	return made.Hook.Number
}

func planningAtGitea(t *testing.T) *atGitea {
	t.Helper()
	g := startAtGitea(t)
	g.commit("ann", "main", "", 1)
	if err := g.Create(g.ctx); err != nil {
		t.Fatal(err)
	}
	all, err := g.API.Sources(g.ctx, g.Scenario.Application)
	if err != nil || len(all) == 0 {
		t.Fatalf("sources %v, %v", all, err)
	}
	_, err = g.API.CreateSource(g.ctx, all[0].Service.ID, source.Git, fmt.Appendf(nil,
		`{"repository":"%s/ann/deploy.git","branch":"main","paths":"deploy/**"}`, g.gitea.Address))
	if err != nil {
		t.Fatal(err)
	}
	// It is on from the first source of commits.
	off := client.Trigger{Name: "git", Kind: "GIT"}
	if _, err := g.API.PutTrigger(g.ctx, g.Scenario.Application, off, "plans are of requests"); err != nil {
		t.Fatal(err)
	}
	g.hooked(client.ForgeHook{Plans: true}, "pull_request", "pull_request_sync", "pull_request_comment")
	return g
}

// commit has a user write the manifest on a branch of their repository, which is made of main if from is that, and answers the commit.
func (g *atGitea) commit(user, branch, from string, replicas int) string {
	g.t.Helper()
	path := "/repos/" + user + "/deploy/contents/deploy/api.yaml"
	in := map[string]any{
		"branch": branch, "message": fmt.Sprintf("%d replicas", replicas), "content": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, deployment, replicas)),
	}
	method := http.MethodPost
	if replicas > 1 {
		on := branch
		if from != "" {
			on, in["branch"], in["new_branch"] = from, from, branch
		}
		var found struct{ SHA string }
		g.gitea.Ask(user, http.MethodGet, path+"?ref="+on, nil, &found)
		method, in["sha"] = http.MethodPut, found.SHA
	}
	var made struct{ Commit struct{ SHA string } }
	g.gitea.Ask(user, method, path, in, &made)
	return made.Commit.SHA
}

func (g *atGitea) open(user, head string) (number int) {
	g.t.Helper()
	var made struct{ Number int }
	g.gitea.Ask(user, http.MethodPost, "/repos/ann/deploy/pulls", map[string]string{"title": head, "head": head, "base": "main"}, &made)
	return made.Number
}

func (g *atGitea) comment(user string, number int, text string) {
	g.t.Helper()
	g.gitea.Ask(user, http.MethodPost, fmt.Sprintf("/repos/ann/deploy/issues/%d/comments", number), map[string]string{"body": text}, nil)
}

// planComment is a comment of Lockstep.
type planComment struct {
	ID   int
	Body string
	URL  string `json:"html_url"`
	User struct{ Login string }
}

// comments are those of Lockstep on a pull request.
func (g *atGitea) comments(number int) (ours []planComment) {
	g.t.Helper()
	var all []planComment
	g.gitea.Ask("ann", http.MethodGet, fmt.Sprintf("/repos/ann/deploy/issues/%d/comments", number), nil, &all)
	for _, c := range all {
		if strings.Contains(c.Body, "<!-- lockstep plan") {
			ours = append(ours, c)
		}
	}
	return ours
}

// awaits waits until a pull request has been dealt with as is to be, and answers the one comment that it has. A pull request is left alone
// for a minute after each plan; here that minute has passed.
func (g *atGitea) awaits(number int, what string, met func(client.ForgePull) bool) planComment {
	g.t.Helper()
	conn, err := pgx.Connect(g.ctx, pgtest.URL(g.t))
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(g.ctx)) }()
	passed := fmt.Sprintf(`UPDATE %s.cd_forge_pulls SET due_at = now() WHERE state = 'pending' AND due_at > now()`,
		pgx.Identifier{g.stack.Schema("domain")}.Sanitize())
	err = g.Await(g.ctx, what, func() (string, bool, error) {
		if _, err := conn.Exec(g.ctx, passed); err != nil {
			return "", false, err
		}
		all, err := g.API.ForgePulls(g.ctx, 10)
		for _, p := range all {
			if p.PullRequest == number {
				return fmt.Sprintf("%+v", p), p.State == "SENT" && met(p), nil
			}
		}
		return fmt.Sprintf("%+v, %v", all, err), false, nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ours := g.comments(number)
	if len(ours) > 1 {
		g.t.Fatalf("%s: found %d comments; want one: %+v", what, len(ours), ours)
	}
	return append(ours, planComment{})[0]
}

// status is that of a commit, in words.
func (g *atGitea) status(commit string) (all []string) {
	g.t.Helper()
	var found []struct {
		Context, Status, Description string
		TargetURL                    string `json:"target_url"`
	}
	g.gitea.Ask("ann", http.MethodGet, "/repos/ann/deploy/statuses/"+commit, nil, &found)
	for _, s := range found {
		all = append(all, strings.Join([]string{s.Context, s.Status, s.TargetURL, s.Description}, " "))
	}
	return all
}

func (g *atGitea) contains(what, text string, wanted ...string) {
	g.t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			g.t.Errorf("%s: found %s; want %q", what, text, want)
		}
	}
}

// R4-27, D60, on a real forge, which delivers its webhooks to real services: a pull request gets one comment and the status of its commit;
// a push changes that comment, also when the services die meanwhile, and so does a comment that asks for it. One from a fork is planned
// once a user asks who may write.
func TestPlansOfPullRequestsOnGitea(t *testing.T) {
	t.Parallel()
	g := planningAtGitea(t)
	head := g.commit("ann", "two", "main", 2)
	number := g.open("ann", "two")
	at := func(commit string) func(client.ForgePull) bool {
		return func(p client.ForgePull) bool { return p.Commit == commit && p.Link != "" }
	}
	first := g.awaits(number, "the plan of a pull request", at(head))
	g.contains("opened", first.Body, g.Scenario.Application+": ", "changed: deploy/api.yaml", "changed Deployment shop/api", "+  replicas: 2", head[:12])
	if first.User.Login != "bot" {
		t.Errorf("found a comment by %s; want bot", first.User.Login)
	}
	statuses := g.status(head)
	if want := "lockstep/plan success " + first.URL + " " + g.Scenario.Application + " ("; len(statuses) != 1 || !strings.HasPrefix(statuses[0], want) {
		t.Errorf("found the statuses %q; want one with %q", statuses, want)
	}

	head = g.commit("ann", "two", "", 3)
	for _, part := range []string{"workflow", "domain", "registry"} {
		n, err := g.stack.Kill(part)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.stack.AwaitRestart(g.ctx, part, n); err != nil {
			t.Fatal(err)
		}
	}
	// What Gitea could not deliver meanwhile it does not deliver again; a comment is the way to ask.
	g.comment("ann", number, "/lockstep plan")
	pushed := g.awaits(number, "the plan of what was pushed", at(head))
	g.contains("pushed", pushed.Body, "+  replicas: 3", head[:12])
	head = g.commit("ann", "two", "", 4)
	again := g.awaits(number, "the plan of another push", at(head))
	g.contains("pushed again", again.Body, "+  replicas: 4", head[:12])
	// What is asked for is planned as of now: a trigger begins a rollout by now.
	on := client.Trigger{Name: "git", Kind: "GIT", Enabled: true}
	if _, err := g.API.PutTrigger(g.ctx, g.Scenario.Application, on, "commits"); err != nil {
		t.Fatal(err)
	}
	g.comment("ann", number, "/lockstep plan\nthere is a trigger")
	const begins = "trigger git (git) begins a rollout"
	asked := g.awaits(number, "the plan that was asked for", func(client.ForgePull) bool {
		return strings.Contains(g.comments(number)[0].Body, begins)
	})
	for what, c := range map[string]planComment{"pushed": pushed, "pushed again": again, "asked for": asked} {
		if c.ID != first.ID {
			t.Errorf("%s: found comment %d; want %d", what, c.ID, first.ID)
		}
	}
	if n := len(g.status(head)); n != 1 {
		t.Errorf("found %d statuses; want one", n)
	}

	g.gitea.Ask("eve", http.MethodPost, "/repos/ann/deploy/forks", map[string]string{}, nil)
	head = g.commit("eve", "mine", "main", 6)
	number = g.open("eve", "eve:mine")
	g.comment("eve", number, "/lockstep plan")
	none := g.awaits(number, "the refusal of who may not write", func(p client.ForgePull) bool { return strings.Contains(p.Outcome, "eve") })
	if none.Body != "" {
		t.Errorf("found the comment %s; want none", none.Body)
	}
	g.comment("ann", number, "/lockstep plan")
	c := g.awaits(number, "the plan of a fork", at(head))
	g.contains("fork", c.Body, g.Scenario.Application+": ", "changed: deploy/api.yaml", head[:12])
	if strings.Contains(c.Body, "replicas:") {
		t.Errorf("found %s; want no differences of objects", c.Body)
	}
}
