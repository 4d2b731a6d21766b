package workflow_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server is a CGI program
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-cd/lockstep/pkg/event"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// proposed is a forge with a pull request of a repository that has an overlay and a chart.
type proposed struct {
	t          *testing.T
	dir, url   string
	base, head string
	// fork is whether the pull request comes from one; loose whether it was pushed to refs/for/main, and has no branch.
	fork, loose bool
}

func (p *proposed) git(args ...string) string {
	p.t.Helper()
	c := exec.CommandContext(p.t.Context(), "git", args...)
	c.Dir = p.dir
	c.Env = append(p.environment(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x")
	out, err := c.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// environment has nothing of who runs the test.
func (p *proposed) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
}

// commit writes files and commits them.
func (p *proposed) commit(files map[string]string) string {
	p.t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(p.dir, filepath.Dir(name)), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.git("add", "-A")
	p.git("commit", "-qm", "change")
	return p.git("rev-parse", "HEAD")
}

func proposing(t *testing.T) *proposed {
	t.Helper()
	root := t.TempDir()
	p := &proposed{t: t, dir: filepath.Join(root, "team", "shop")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.git("init", "-q", "--initial-branch=main")
	p.git("config", "uploadpack.allowReachableSHA1InWant", "true")
	p.git("config", "uploadpack.allowFilter", "true")
	overlay := func(namespace string) string { return "resources: [../../base]\nnamespace: " + namespace + "\n" }
	p.base = p.commit(map[string]string{
		"base/kustomization.yaml":                "resources: [api.yaml]\n",
		"base/api.yaml":                          "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 1}\n",
		"overlays/staging/kustomization.yaml":    overlay("staging"),
		"overlays/production/kustomization.yaml": overlay("production"),
		"chart/Chart.yaml":                       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/a.yaml":                 "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {replicas: \"{{ .Values.replicas }}\"}\n",
		"chart/values.yaml":                      "replicas: 1\n",
		"lonely/kustomization.yaml":              "resources: []\n",
	})
	p.git("checkout", "-qb", "change")
	p.head = p.commit(map[string]string{
		"base/api.yaml":     "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 2}\n",
		"chart/values.yaml": "replicas: 3\n",
	})
	backend := &cgi.Handler{
		Path: filepath.Join(p.git("--exec-path"), "git-http-backend"),
		Env:  append(p.environment(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rest, api := strings.CutPrefix(r.URL.Path, "/api/v1/repos/team/shop/"); {
		case !api:
			backend.ServeHTTP(w, r)
		case rest == "pulls/3":
			from := 1
			if p.fork {
				from = 2
			}
			ref, label := "change", "change"
			if p.loose {
				ref, label = "refs/pull/3/head", ""
			}
			_, _ = fmt.Fprintf(w, `{"number": 3, "state": "open", "html_url": "https://forge/3", "merge_base": "%s", "head": {"sha": "%s", "ref": %q, "label": %q,
				"repo": {"id": %d}}, "base": {"ref": "main", "sha": "%s", "repo": {"id": 1}}}`, p.base, p.head, ref, label, from, p.base)
		case rest == "pulls/3/commits":
			_, _ = io.WriteString(w, `[{"sha": "c", "commit": {"message": "Two replicas"}}]`)
		case rest == "pulls/3/files" && r.URL.Query().Get("page") != "1":
			_, _ = io.WriteString(w, `[]`)
		case rest == "pulls/3/files":
			_, _ = io.WriteString(w, `[{"filename": "base/api.yaml"}, {"filename": "chart/values.yaml"}]`)
		case rest == "collaborators/ann/permission":
			_, _ = io.WriteString(w, `{"permission": "write"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	p.url = server.URL + "/team/shop"
	return p
}

// R4-27, D60: the program that reads a pull request has the overlays and charts that it changes rendered at both of its commits, by
// environment, in a run of its own that knows which, and reports what differs with what was read before, also if only a base or values have
// changed. Of a pull request from a fork, or of no branch, there is no commit to compare with.
func TestTheProgramOfPullRequestsRenders(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "forge", "pull.star"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("S3CR3T"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := proposing(t)
	s := startWith(t, func(c *workflow.Config) {
		c.GitAllowNetworks = []string{"127.0.0.1"}
		c.GitCredentials = []workflow.GitCredential{
			{URLPrefix: p.url, Username: "u", PasswordRef: "file:" + file, Forge: "gitea", Organizations: []int64{organization}},
		}
	})
	read, err := s.bus.JetStream(t, elsewhere).Conn().SubscribeSync("cd.domain.*.pull_request.read")
	if err != nil {
		t.Fatal(err)
	}
	kustomize := func(environment, path string) string {
		const target = `{"application_id": 7, "environment": %q, "branch": "main", "near": [], "under": [], "kustomize": {"path": %q}}`
		return fmt.Sprintf(target, environment, path)
	}
	helm := `{"application_id": 7, "environment": "eu", "branch": "main", "near": ["chart"], "under": ["chart"],
		"helm": {"path": "chart", "release": "shop", "namespace": "eu"}}`
	run := 0
	runs := func(inputs string) event.PullRequestRead {
		t.Helper()
		run++
		id := fmt.Sprintf("forge-pull-7-%d", run)
		_, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: program, Inputs: fmt.Appendf(nil, `{"pull": {"id": 7, "run": %d}, %s}`, run,
				inputs),
		})
		if err != nil {
			t.Fatal(err)
		}
		if status := s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus(); status["outcome"] != `"read"` {
			t.Fatalf("found %v; want it read", status)
		}
		var data event.PullRequestRead
		for data.Run != run { // events arrive at least once
			message, err := read.NextMsg(30 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var e event.Event
			if err := json.Unmarshal(message.Data, &e); err != nil {
				t.Fatal(err)
			}
			if data, err = event.Decode[event.PullRequestRead](e); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	reads := func(asked string) event.PullRequestRead {
		t.Helper()
		return runs(fmt.Sprintf(`"change": {"repo_url": %q, "number": 3, "asked_by": [%s]}`, p.url, asked))
	}
	before := reads("")
	if before.Base != p.base || before.Head != p.head || len(before.Paths) != 2 || before.Rendered != nil {
		t.Fatalf("found %+v; want both commits and the files", before)
	}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	got := runs(fmt.Sprintf(`"render": {"repo_url": %q, "targets": [%s]}, "reading": %s`, p.url,
		strings.Join([]string{kustomize("staging", "overlays/staging"), kustomize("gone", "overlays/gone"), helm}, ", "), text))
	found := map[string]string{}
	for _, one := range got.Rendered {
		found[one.Environment] = fmt.Sprint(one.ApplicationID, one.Resources, one.Diffs, one.Before, one.Why)
	}
	for environment, want := range map[string]string{
		"staging": "7 [changed Deployment staging/api] [{changed Deployment staging/api @@ ", "eu": "7 [changed ConfigMap shop] [{changed ConfigMap shop @@ ",
		"gone": "7 [] []the folder \"overlays/gone\" does not exist",
	} {
		if !strings.HasPrefix(found[environment], want) {
			t.Errorf("%s: found %s; want %s", environment, found[environment], want)
		}
	}
	if !strings.Contains(found["staging"], "-  replicas: 1\n+  replicas: 2\n") || !strings.Contains(found["eu"], "-  replicas: \"1\"\n+  replicas: \"3\"\n") ||
		len(got.Rendered) != 3 {
		t.Errorf("found %v; want what differs in three", found)
	}
	got.Run, got.Rendered = before.Run, nil
	if diff := cmp.Diff(before, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was read before is not reported again (-want +got):\n%s", diff)
	}
	for _, loose := range []bool{false, true} {
		p.fork, p.loose = !loose, loose
		if got = reads(""); got.Refused == "" || len(got.Paths) != 0 {
			t.Errorf("found %+v; want nothing read unless a user asks who may write", got)
		}
		if got = reads(`"ann"`); got.Refused != "" || got.Base != "" {
			t.Errorf("found %+v; want no commit to compare with of a fork, or of no branch", got)
		}
	}
}
