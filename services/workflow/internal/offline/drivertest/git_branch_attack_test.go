package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// revert puts a tree onto main, as another person.
func (g *plainGit) revert(tree string) {
	g.t.Helper()
	g.git("", "update-ref", "refs/heads/main",
		g.git("revert", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit-tree", tree, "-p", "main", "-F", "-"))
}

// D55: a commit that only says that it is the merge does not keep the change from being merged.
func TestABranchIsMergedDespiteForgedTrailers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"merge", "squash", "fast_forward"} {
		w, g, in := branchShop(t, func(c, _ object) { c["merge_method"] = method })
		g.people[2] = func() {
			head := g.git("", "rev-parse", branchOfRollout)
			g.push("Ann", "main", "other.txt", "x\n")
			forged := g.git("innocent\n\nLockstep-Proposal: o1/rollout-7/staging\nLockstep-Merged: "+head+"\n", "-c", "user.name=Lockstep", "-c",
				"user.email=lockstep@example.com", "commit-tree", g.git("", "rev-parse", "main^{tree}"), "-p", "main", "-F", "-")
			g.git("", "update-ref", "refs/heads/main", forged)
		}
		if failure := w.run(driver.Deploy, in); failure != "" || !g.has() || g.proposes() {
			t.Errorf("%s: failure %q, merged %t, proposed %t, reported %v", method, failure, g.has(), g.proposes(), w.branchStatuses())
		}
	}
}

// D55: a merge by hand that was seen, and taken back, is proposed again and merged: also if the branch was deleted, and the merge is not
// among the last commits any more.
func TestABranchIsMergedByHandAndTakenBack(t *testing.T) {
	t.Parallel()
	for name, merge := range map[string]func(g *plainGit){
		"a fast-forward": func(g *plainGit) { g.git("", "update-ref", "refs/heads/main", branchOfRollout) },
		"a squash":       func(g *plainGit) { g.revert(g.git("", "rev-parse", branchOfRollout+"^{tree}")) },
	} {
		for _, later := range []int{0, 60} {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprint(name, later, waits), func(t *testing.T) {
					t.Parallel()
					w, g, in := branchShop(t, nil)
					old := g.git("", "rev-parse", "main^{tree}")
					g.people[2] = func() { merge(g); g.git("", "branch", "-D", branchOfRollout) }
					back := func() {
						g.revert(old)
						for i := range later {
							g.push("Ann", "main", "other.txt", fmt.Sprint(i, "\n"))
						}
					}
					g.people[3] = back
					if left := 1; !waits { // the passage comes before the next look
						delete(g.people, 3)
						w.held["staging"] = 70 * time.Second
						if name == "a squash" {
							left = 2 // by the first one, the driver knows of the squash
						}
						g.before = func(called string) {
							if called == "git.propose" && g.looks == 2 {
								if left--; left == 0 {
									back()
								}
							}
						}
					}
					failure := w.run(driver.Deploy, in)
					if reported := w.branchStatuses(); failure != "" || !g.has() || g.proposes() || len(reported) < 2 ||
						reported[1] != branchOfRollout+" merged before the passage was granted" {
						t.Errorf("failure %q, merged %t, proposed %t, reported %v", failure, g.has(), g.proposes(), reported)
					}
				})
			}
		}
	}
}

// D55: once it was proposed again, its deletion counts as any other.
func TestABranchIsTakenBackAndThenDeleted(t *testing.T) {
	t.Parallel()
	w, g, in := branchShop(t, nil)
	w.held["staging"] = 5 * time.Minute
	old := g.git("", "rev-parse", "main^{tree}")
	g.people[2] = func() {
		g.git("", "update-ref", "refs/heads/main", branchOfRollout)
		g.git("", "branch", "-D", branchOfRollout)
	}
	g.people[3] = func() {
		g.revert(old)
		for i := range 60 {
			g.push("Ann", "main", "other.txt", fmt.Sprint(i, "\n"))
		}
	}
	g.people[4] = func() { g.git("", "branch", "-D", branchOfRollout) }
	if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "branch "+branchOfRollout+" was deleted") || g.has() || g.proposes() {
		t.Errorf("failure %q, merged %t, proposed %t, reported %v", failure, g.has(), g.proposes(), w.branchStatuses())
	}
}

// D55: a deletion that a server without atomic pushes does not let Lockstep hear is reported with the merge.
func TestADeletionThatWasNotHeardIsReported(t *testing.T) {
	t.Parallel()
	w, g, in := branchShop(t, nil)
	g.git("", "config", "receive.advertiseAtomic", "false")
	// The hook stands for a person: it deletes the branch while main is pushed.
	g.hook("post-receive", "while read old new name; do [ $name != refs/heads/main ] || git update-ref -d refs/heads/"+branchOfRollout+"; done")
	failure := w.run(driver.Deploy, in)
	last := w.branchStatuses()
	if failure != "" || !g.has() || !strings.Contains(last[len(last)-1], " merged; its branch was deleted by others in the moment of the merge") {
		t.Errorf("failure %q, merged %t, reported %v", failure, g.has(), last)
	}
}

func (g *plainGit) hook(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "hooks", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

// D55: a server that refuses the push is named as what it is, while the rollout waits for it up to its deadline.
func TestABranchThatMayNotBePushed(t *testing.T) {
	t.Parallel()
	w, g, in := branchShop(t, nil)
	g.hook("update", "[ $1 != refs/heads/main ] || { echo only Ann may push; exit 1; }")
	failure := w.run(driver.Deploy, in)
	if !strings.Contains(failure, `the server refuses the push to "main"`) || !strings.Contains(failure, "only Ann may push") ||
		!strings.Contains(failure, "the account has to be allowed to push there") || strings.Contains(failure, "the forge") || g.has() {
		t.Errorf("failure %q", failure)
	}
}

// D55: if the branch that is deployed is renamed while the rollout waits, this is reported, and the proposal is deleted in the end.
func TestABranchWhoseTargetIsRenamed(t *testing.T) {
	t.Parallel()
	w, g, in := branchShop(t, nil)
	g.people[2] = func() { g.git("", "branch", "-m", "main", "trunk") }
	failure := w.run(driver.Deploy, in)
	shown := slices.ContainsFunc(w.branchStatuses(), func(s string) bool {
		return strings.Contains(s, branchOfRollout+" cannot be read: ") && strings.Contains(s, `branch "main" does not exist`)
	})
	if failure == "" || !shown || g.proposes() {
		t.Errorf("failure %q, proposed %t, reported %v", failure, g.proposes(), w.branchStatuses())
	}
}

// D55: a fast-forward that loses against other commits again and again is tried until the deadline.
func TestAFastForwardThatLosesOften(t *testing.T) {
	t.Parallel()
	for _, times := range []int{9, 100_000} {
		w, g, in := branchShop(t, func(c, _ object) { c["merge_method"] = "fast_forward"; c["deadline"] = 300 })
		n := 0
		var lose func()
		lose = func() {
			g.push("Ann", "main", "other.txt", fmt.Sprint(n, "\n"))
			if n++; n < times {
				g.atLast = lose
			}
		}
		g.atLast = lose
		failure := w.run(driver.Deploy, in)
		if won := times < 100; (failure == "") != won || g.has() != won || n < 9 || n > 60 {
			t.Errorf("%d times: failure %q, merged %t, lost %d times", times, failure, g.has(), n)
		}
	}
}
