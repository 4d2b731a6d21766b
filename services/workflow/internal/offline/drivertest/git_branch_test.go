package drivertest

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server is a CGI program
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	functions "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/git"
)

// plainGit is a bare repository behind Git's own server, without any interface of a forge, and the Functions git.* as they are.
type plainGit struct {
	t         *testing.T
	dir, url  string
	functions map[string]activity.Function
	// people is what is done with Git before a look at the proposal, by the number of the look from 1, and atLast before the first merge.
	people map[int]func()
	atLast func()
	looks  int
	// before is called before each Function.
	before func(name string)
}

// branchOfRollout is where the change of the rollout for staging is proposed.
const branchOfRollout = "lockstep/proposals/o1/rollout-7/staging"

func newPlainGit(t *testing.T) *plainGit {
	t.Helper()
	root := t.TempDir()
	g := &plainGit{t: t, dir: filepath.Join(root, "shop.git"), functions: map[string]activity.Function{}, people: map[int]func(){}}
	g.git("", "init", "--quiet", "--bare", "--initial-branch=main", g.dir)
	g.git("", "config", "http.receivepack", "true")
	web := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(g.git("", "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})
	t.Cleanup(web.Close)
	g.url = web.URL + "/shop.git"
	forge, err := git.New(git.Deps{
		HTTP: http.DefaultTransport, Budget: gitfetch.NewBudget(gitfetch.Limits{}), AuthorName: "Lockstep", AuthorEmail: "lockstep@example.com",
		Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions.All(forge, nil, nil) {
		g.functions[f.Name()] = f
	}
	return g
}

func (g *plainGit) git(stdin string, args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), "git", args...)
	if _, err := os.Stat(g.dir); err == nil {
		cmd.Dir = g.dir
	}
	cmd.Env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// push commits a file to a branch, as another person.
func (g *plainGit) push(name, branch, path, content string) {
	g.t.Helper()
	from := ""
	if g.git("", "for-each-ref", "refs/heads/"+branch) != "" {
		from = "from refs/heads/" + branch + "^0\n"
	}
	g.git("commit refs/heads/"+branch+"\ncommitter "+name+" <lockstep@example.com> now\ndata 6\ntheirs\n"+from+"M 100644 inline "+path+
		"\ndata <<END\n"+content+"END\n\n", "fast-import", "--quiet", "--date-format=now")
}

func (g *plainGit) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	f, known := g.functions[name]
	if !strings.HasPrefix(name, "git.") || !known {
		return nil, nil, false
	}
	if g.before != nil {
		g.before(name)
	}
	if name == "git.read_proposal" {
		g.looks++
		if act := g.people[g.looks]; act != nil {
			act()
		}
	}
	if name == "git.merge" && g.atLast != nil {
		act := g.atLast
		g.atLast = nil
		act()
	}
	value, err := f.Call(g.t.Context(), activity.Call{Organization: 1, Workflow: "rollout-7", Args: args})
	if failed, ok := errors.AsType[*history.FunctionError](err); ok {
		return nil, failed, true
	}
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return value, nil, true
}

// branchShop is gitShop with a plain server, and the configuration of branches alone, with an approval.
func branchShop(t *testing.T, edit func(config, environment object)) (*world, *plainGit, object) {
	t.Helper()
	w, g := gitShop(t), newPlainGit(t)
	w.forge, w.git = nil, g
	g.push("Ann", "main", "staging/api.yaml", w.files["staging/api.yaml"])
	g.push("Ann", "main", "staging/worker.yaml", w.files["staging/worker.yaml"])
	w.answers["staging"], w.held["staging"] = "approved", 2*time.Minute
	return w, g, gitInputs(func(config, environment object) {
		proposing(config, environment)
		config["repository_url"], config["proposal"] = g.url, "branch"
		if edit != nil {
			edit(config, environment)
		}
	})
}

// has reports whether the branch that is deployed has both images of the rollout.
func (g *plainGit) has() bool {
	return strings.Contains(g.git("", "show", "main:staging/api.yaml"), image("api", 2)) &&
		strings.Contains(g.git("", "show", "main:staging/worker.yaml"), image("worker", 2))
}

func (g *plainGit) proposes() bool { return g.git("", "for-each-ref", "refs/heads/lockstep") != "" }

func (w *world) branchStatuses() (all []string) {
	for _, s := range w.submitted {
		if s.DeploymentID == 11 {
			all = append(all, s.Name+" "+s.Status)
		}
	}
	return all
}

// D55: the setup needs no forge for a branch alone; for pull requests and statuses it says what is missing.
func TestTheSetupOfABranchAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(c, _ object)
		want string
	}{
		"a branch alone": {nil, ""},
		"a pull request": {func(c, _ object) { c["proposal"] = "pull_request" }, "the forge cannot be asked: no forge is configured"},
		"with statuses":  {func(c, _ object) { c["statuses"] = []any{"smoke"} }, "the forge cannot be asked: no forge is configured"},
	} {
		w, _, in := branchShop(t, tt.edit)
		environment := in["rollout"].(object)["environments"].([]any)[0].(object)
		ae := environment["application_environment"].(object)
		ae["services"] = []any{object{"id": 1, "name": "api"}, object{"id": 2, "name": "worker"}}
		failure := w.run(driver.Setup, object{"application_environment": ae, "environment": environment})
		if (failure == "") != (tt.want == "") || !strings.Contains(failure, tt.want) {
			t.Errorf("%s: failure %q, want %q", name, failure, tt.want)
		}
	}
}

// D55: a branch exists while the rollout waits, and is merged with the passage; by each method, also if others have pushed other files
// meanwhile, or the same ones, which the edit is made again for.
func TestABranchIsProposed(t *testing.T) {
	t.Parallel()
	const hers = "# hers\nimage: example.com/api@sha256:0000000000000000000000000000000000000000000000000000000000000000\n"
	for _, method := range []string{"merge", "squash", "fast_forward"} {
		for name, push := range map[string]func(g *plainGit){
			"nothing":       func(*plainGit) {},
			"another file":  func(g *plainGit) { g.push("Ann", "main", "README.md", "hers\n") },
			"the same file": func(g *plainGit) { g.push("Ann", "main", "staging/api.yaml", hers) },
		} {
			for _, late := range []bool{false, true} {
				if late && method != "merge" {
					continue
				}
				t.Run(method+" "+name, func(t *testing.T) {
					t.Parallel()
					w, g, in := branchShop(t, func(c, _ object) { c["merge_method"] = method })
					act := func() {
						if !g.proposes() || g.has() {
							t.Error("not proposed, or merged before the passage")
						}
						push(g)
					}
					if g.atLast = act; !late {
						g.people[2], g.atLast = act, nil
					}
					first := ""
					g.people[1] = func() { first = g.git("", "rev-parse", branchOfRollout) }
					if failure := w.run(driver.Deploy, in); failure != "" {
						t.Fatal(failure)
					}
					reported := w.branchStatuses()
					if !g.has() || g.proposes() || w.committed[0].CommitSHA != g.git("", "rev-parse", "main") || reported[0] != branchOfRollout+" open at "+first[:12] ||
						reported[len(reported)-1] != branchOfRollout+" merged" {
						t.Errorf("the branch has the images: %t, the proposal exists: %t, reported %v, snapshot %+v", g.has(), g.proposes(), reported, w.committed[0])
					}
					if name == "the same file" && !strings.HasPrefix(g.git("", "show", "main:staging/api.yaml"), "# hers") {
						t.Error("what others have pushed is gone")
					}
					anew := name == "the same file" || name == "another file" && method == "fast_forward"
					if (len(reported) == 3) != anew {
						t.Errorf("reported %v; made anew should be %t", reported, anew)
					}
				})
			}
		}
	}
}

// D55: who deletes the branch ends the rollout: while it waits, and in the last moment.
func TestABranchIsDeletedByHand(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		w, g, in := branchShop(t, nil)
		act := func() { g.git("", "branch", "-D", branchOfRollout) }
		want := "branch " + branchOfRollout + " was deleted"
		if g.people[2] = act; late {
			delete(g.people, 2)
			g.atLast, want = act, "was deleted without a merge"
		}
		if failure := w.run(driver.Deploy, in); !strings.Contains(failure, want) || g.has() || g.proposes() {
			t.Errorf("late %t: failure %q, merged %t, proposed %t", late, failure, g.has(), g.proposes())
		}
	}
}

// D55: nobody gets anything else merged by moving the branch, before or after the approval: it is reported, and refused, or made anew where
// it only looks like ours.
func TestABranchIsForcePushed(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		w, g, in := branchShop(t, nil)
		act := func() { g.push("Eve", branchOfRollout, "staging/evil.yaml", "x\n") }
		if g.people[2] = act; late {
			delete(g.people, 2)
			g.atLast = act
		}
		failure := w.run(driver.Deploy, in)
		shown := strings.Contains(strings.Join(w.branchStatuses(), "\n"), "moved by others to "+g.git("", "rev-parse", branchOfRollout)[:12]+", which is not merged")
		if !strings.Contains(failure, "the branch was changed by others") || g.has() || g.git("", "ls-tree", "main", "staging/evil.yaml") != "" || shown == late {
			t.Errorf("late %t: failure %q, merged %t, reported %v", late, failure, g.has(), w.branchStatuses())
		}
	}
	w, g, in := branchShop(t, nil)
	forged := ""
	g.people[2] = func() {
		tree, message := g.git("", "rev-parse", "main^{tree}"), g.git("", "log", "-1", "--format=%B", branchOfRollout)
		forged = g.git(message, "-c", "user.name=Lockstep", "-c", "user.email=lockstep@example.com", "commit-tree", tree, "-p", "main", "-F", "-")
		g.git("", "update-ref", "refs/heads/"+branchOfRollout, forged)
	}
	failure := w.run(driver.Deploy, in)
	if reported := w.branchStatuses(); failure != "" || !g.has() || len(reported) != 4 || !strings.Contains(reported[1], "moved by others to "+forged[:12]) ||
		!strings.Contains(reported[2], " open at ") || strings.Contains(g.git("", "log", "--format=%H", "main"), forged) {
		t.Errorf("a forged one: failure %q, reported %v", failure, reported)
	}
}

// D55: a server does not say who has merged by hand, so it counts as no approval, however it was done: the rollout says so, and waits for
// its passage. Nothing is committed again behind it.
func TestABranchIsMergedByHand(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(g *plainGit){
		"a fast-forward": func(g *plainGit) { g.git("", "update-ref", "refs/heads/main", branchOfRollout) },
		"a fast-forward, deleted": func(g *plainGit) {
			g.git("", "update-ref", "refs/heads/main", branchOfRollout)
			g.git("", "branch", "-D", branchOfRollout)
		},
		"a squash, deleted": func(g *plainGit) {
			tree := g.git("", "rev-parse", branchOfRollout+"^{tree}")
			g.git("", "update-ref", "refs/heads/main",
				g.git("squashed", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit-tree", tree, "-p", "main", "-F", "-"))
			g.git("", "branch", "-D", branchOfRollout)
		},
	} {
		for _, answer := range []string{"approved", ""} {
			t.Run(name+" "+answer, func(t *testing.T) {
				t.Parallel()
				w, g, in := branchShop(t, nil)
				if w.answers["staging"] = answer; answer == "" { // the other way to end it
					w.asks = map[string]map[string]time.Duration{"rollout.started": {event.TypeRolloutAbortRequested: 100 * time.Second}}
				}
				by := ""
				g.people[2] = func() { act(g); by = g.git("", "rev-parse", "main") }
				failure := w.run(driver.Deploy, in)
				if answer != "" && failure != "" || answer == "" && !strings.Contains(failure, "aborted") {
					t.Errorf("failure %q", failure)
				}
				entered := strings.Contains(strings.Join(w.story, "\n"), "rollout_environment.started")
				if reported := w.branchStatuses(); reported[1] != branchOfRollout+" merged before the passage was granted" || g.git("", "rev-parse", "main") != by ||
					g.proposes() || entered != (answer != "") || entered && w.committed[0].CommitSHA != by {
					t.Errorf("reported %v, proposed %t, entered %t, snapshots %+v", reported, g.proposes(), entered, w.committed)
				}
			})
		}
	}
}

// D55: a rollout that is rejected deletes its branch.
func TestABranchIsRejected(t *testing.T) {
	t.Parallel()
	w, g, in := branchShop(t, nil)
	w.answers["staging"] = "rejected"
	if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "rejected") || g.proposes() || g.has() {
		t.Errorf("failure %q, proposed %t, merged %t", failure, g.proposes(), g.has())
	}
}
