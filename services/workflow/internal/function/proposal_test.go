package function

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D55: a program chooses no branch to propose on. The same run and name have the same one, and no two have one.
func TestTheBranchOfAProposal(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, tt := range []struct{ workflow, name, want string }{
		{"rollout-7", "production", "lockstep/proposals/o1/rollout-7/production"},
		{"rollout-7", "", "lockstep/proposals/o1/rollout-7/change"},
		{"rollout-7", "../../main", ""},
		{"rollout-7", "a.lock", ""},
		{"rollout-7", "main\nLockstep-Proposal: o1/rollout-8/main", ""},
		{"rollout-7", strings.Repeat("a", 100), ""},
		{"rollout-7/production", "", ""},
		{"child:1:rollout-7/0123456789abcdef01234567", "production", ""},
		{"", "x", ""},
	} {
		f := &forge{}
		args := m{"repo_url": "https://git/x", "branch": "main", "path": "a", "content": "b", "message": "c"}
		if tt.name != "" {
			args["name"] = tt.name
		}
		if _, err := named(t, f, "git.propose").Call(t.Context(), activity.Call{Organization: 1, Workflow: tt.workflow, Args: args}); err != nil {
			t.Fatal(err)
		}
		branch := f.proposed.Branch
		if tt.want != "" && branch != tt.want || !strings.HasPrefix(branch, activity.ProposalPrefix) || strings.Count(branch, "/") != 4 ||
			strings.ContainsAny(branch, " \n:.") || activity.ProposalPrefix+f.proposed.ID != branch {
			t.Errorf("%q of %q: branch %q with id %q, expected %q", tt.name, tt.workflow, branch, f.proposed.ID, tt.want)
		}
		if of, twice := seen[branch]; twice {
			t.Errorf("%q of %q has the branch of %s", tt.name, tt.workflow, of)
		}
		seen[branch] = tt.workflow + " " + tt.name
	}
}

// R4-28: an attempt of a trigger's edit whose answer was lost has opened a pull request, which the next attempt finds by its branch.
// Another event, and a run that only looks like an attempt, have branches of their own.
func TestTheAttemptsOfAnEditAreOneProposal(t *testing.T) {
	t.Parallel()
	branch := func(workflow string) string {
		f := &forge{}
		args := m{"repo_url": "https://git/x", "branch": "main", "path": "a", "content": "b", "message": "c"}
		if _, err := named(t, f, "git.propose").Call(t.Context(), activity.Call{Organization: 1, Workflow: workflow, Args: args}); err != nil {
			t.Fatal(err)
		}
		return f.proposed.Branch
	}
	first := branch("trigger-edit-9-1")
	if again := branch("trigger-edit-9-2"); first != "lockstep/proposals/o1/trigger-edit-9-1/change" || again != first {
		t.Errorf("attempts of one edit: branches %q and %q, expected the same one", first, again)
	}
	for _, other := range []string{"trigger-edit-90-1", "trigger-edit-9-", "trigger-edit-9-01", "trigger-edit-9", "rollout-9"} {
		if got := branch(other); got == first {
			t.Errorf("run %q has the branch %q of another edit", other, got)
		}
	}
}

// D55, D46: the merge of a branch alone is the only call of these that is behind a passage in whatever run.
func TestOnlyRolloutsMergeABranchAlone(t *testing.T) {
	t.Parallel()
	for _, f := range All(&forge{}, nil, nil) {
		e, _ := f.(activity.Entering)
		if got := e.Entered(m{"kind": "branch"}); got != (f.Name() == "git.merge") || e.Entered(m{"kind": "pull_request"}) || e.Entered(m{}) {
			t.Errorf("%s: %t", f.Name(), got)
		}
	}
}

func TestAProposalAndItsMerge(t *testing.T) {
	t.Parallel()
	f := &forge{proposal: activity.Proposal{Number: 4, URL: "u", State: "merged", Branch: "b", Into: "main", Head: "h", Commit: "c", Merged: "h", By: "ann"}}
	change := m{
		"repo_url": "https://git/x", "branch": "main", "name": "prod", "files": []any{m{"path": "a", "content": "b"}}, "message": "c",
		"trailers": m{"Lockstep-Rollout": "7"}, "number": int64(4), "head": "h",
	}
	value, err := named(t, f, "git.merge").Call(t.Context(), activity.Call{Organization: 1, Workflow: "rollout-7", Args: change})
	want := m{
		"number": int64(4), "url": "u", "state": "merged", "branch": "b", "head": "h", "commit": "c", "by": "ann", "by_id": int64(0), "note": "",
		"into": "main", "merged_head": "h", "unshown": "",
	}
	if diff := cmp.Diff(any(want), value); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	r := f.merged
	if r.Number != 4 || r.Head != "h" || r.Method != "merge" || r.Branch != "lockstep/proposals/o1/rollout-7/prod" || r.Commit.Branch != "main" ||
		string(r.Commit.Files["a"]) != "b" || r.Commit.Trailers["Lockstep-Rollout"] != "7" {
		t.Errorf("merged %+v", r)
	}
	many := slices.Repeat([]any{m{"path": "a", "content": ""}}, mostProposed+1)
	delete(change, "number")
	delete(change, "head")
	change["files"] = many
	if err := named(t, f, "git.propose").Check(change); err == nil || !strings.Contains(err.Error(), "found 201 files, expected at most 200") {
		t.Errorf("too many files: %v", err)
	}
}

func TestStatusesAreSummedUp(t *testing.T) {
	t.Parallel()
	status := func(name, state string) activity.CommitStatus { return activity.CommitStatus{Name: name, State: state} }
	for name, tt := range map[string]struct {
		all   []activity.CommitStatus
		names []any
		want  string
	}{
		"none":                   {nil, nil, "none"},
		"a missing one":          {nil, []any{"build"}, "pending"},
		"another one has failed": {[]activity.CommitStatus{status("build", "success"), status("lint", "failure")}, []any{"build"}, "success"},
		"one has failed":         {[]activity.CommitStatus{status("a", "failure"), status("b", "pending"), status("c", "success")}, nil, "failure"},
		"one is pending":         {[]activity.CommitStatus{status("a", "success"), status("b", "pending"), status("c", "success")}, nil, "pending"},
		"success":                {[]activity.CommitStatus{status("a", "success"), status("b", "success")}, nil, "success"},
	} {
		args := m{"repo_url": "https://git/x", "commit": "c"}
		if tt.names != nil {
			args["names"] = tt.names
		}
		value, err := named(t, &forge{statuses: tt.all}, "git.read_status").Call(t.Context(), activity.Call{Args: args})
		if err != nil || value.(m)["state"] != tt.want {
			t.Errorf("%s: %v, %v, want %s", name, value, err, tt.want)
		}
	}
}

// R3-09: the outcome of a status, and how many requests the forge still accepts.
func TestAStatusIsReported(t *testing.T) {
	t.Parallel()
	args := m{"repo_url": "https://git/x", "commit": "c", "name": "lockstep/staging/e2e", "state": "success", "description": "", "url": ""}
	quota := &activity.Quota{Limit: 60, Remaining: 7, ResetsAt: time.Unix(1_800_000_000, 0).UTC()}
	ofQuota := map[string]any{"limit": int64(60), "remaining": int64(7), "resets_at": "2027-01-15T08:00:00Z"}
	for name, tt := range map[string]struct {
		report activity.StatusReport
		want   map[string]any
	}{
		"set":       {activity.StatusReport{Quota: quota}, map[string]any{"result": "set", "why": "", "wait": int64(0), "quota": any(ofQuota), "shared": false}},
		"unchanged": {activity.StatusReport{Unchanged: true, Shared: true}, map[string]any{"result": "unchanged", "why": "", "wait": int64(0), "quota": nil, "shared": true}},
		"limited": {
			activity.StatusReport{Limited: "busy", Wait: 1500 * time.Millisecond, Quota: quota},
			map[string]any{"result": "limited", "why": "busy", "wait": int64(2), "quota": any(ofQuota), "shared": false},
		},
	} {
		f := &forge{report: tt.report}
		got, err := named(t, f, "git.set_status").Call(t.Context(), activity.Call{Organization: 1, Args: args})
		if diff := cmp.Diff(any(tt.want), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		want := activity.StatusRequest{
			Organization: 1, RepoURL: "https://git/x", Commit: "c", Status: activity.CommitStatus{Name: "lockstep/staging/e2e", State: "success"},
		}
		if diff := cmp.Diff(want, f.set); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	args["state"] = "green"
	if err := named(t, &forge{}, "git.set_status").Check(args); err == nil || !strings.Contains(err.Error(), "expected one of pending, success, failure") {
		t.Errorf("found %v; want the state refused", err)
	}
}

// D64: what a forge shows of a deployment, and that the second call is what ends it.
func TestADeploymentIsReported(t *testing.T) {
	t.Parallel()
	args := m{
		"repo_url": "https://git/x", "commit": "c", "environment": "shop/production", "key": "o1/rollout_7", "number": int64(3), "state": "success",
		"description": "done", "url": "https://cd", "production": true, "taken": []any{int64(41)},
	}
	for name, tt := range map[string]struct {
		report activity.DeploymentReport
		want   map[string]any
	}{
		"set":       {activity.DeploymentReport{Number: 3}, m{"result": "set", "why": "", "number": int64(3)}},
		"unchanged": {activity.DeploymentReport{Number: 3, Unchanged: true}, m{"result": "unchanged", "why": "", "number": int64(3)}},
		"open":      {activity.DeploymentReport{Number: 4, Open: true}, m{"result": "open", "why": "", "number": int64(4)}},
		"limited": {
			activity.DeploymentReport{Number: 4, Limit: activity.Limit{Limited: "busy"}}, m{"result": "limited", "why": "busy", "number": int64(4)},
		},
		"unsupported": {
			activity.DeploymentReport{Unsupported: "it is a Gitea"}, m{"result": "unsupported", "why": "it is a Gitea", "number": int64(0)},
		},
	} {
		f := &forge{deployment: tt.report}
		got, err := named(t, f, "git.set_deployment").Call(t.Context(), activity.Call{Organization: 1, Args: args})
		tt.want["wait"], tt.want["quota"], tt.want["shared"] = int64(0), nil, false
		if diff := cmp.Diff(any(tt.want), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		want := activity.DeploymentRequest{
			Organization: 1, RepoURL: "https://git/x", Commit: "c", Environment: "shop/production", Key: "o1/rollout_7", Number: 3, State: "success",
			Description: "done", URL: "https://cd", Production: true, Taken: []int64{41},
		}
		if diff := cmp.Diff(want, f.deployed); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	args["state"] = "green"
	if err := named(t, &forge{}, "git.set_deployment").Check(args); err == nil || !strings.Contains(err.Error(), "expected one of queued, in_progress") {
		t.Errorf("found %v; want the state refused", err)
	}
}

// D55: a branch alone is of the same run and name as a pull request would be, and is found by its head.
func TestABranchAloneIsNamedByItsHead(t *testing.T) {
	t.Parallel()
	const head = "0123456789abcdef0123456789abcdef01234567"
	with := func(more m) m {
		args := m{"repo_url": "https://git/x", "branch": "main", "kind": "branch", "head": head}
		for key, value := range more {
			args[key] = value
		}
		return args
	}
	edit := m{"path": "a", "content": "b", "message": "c"}
	f := &forge{}
	for _, tt := range []struct {
		name  string
		args  m
		wrong string
	}{
		{"git.propose", with(edit), ""},
		{"git.merge", with(edit), ""},
		{"git.merge", with(m{"path": "a", "content": "b", "message": "c", "kind": "pull_request"}), "number"},
		{"git.read_proposal", with(nil), ""},
		{"git.withdraw", with(nil), ""},
		{"git.withdraw", with(m{"head": ""}), "head"},
		{"git.withdraw", with(m{"kind": "pull_request"}), "number"},
		{"git.read_proposal", m{"repo_url": "https://git/x"}, "number"},
	} {
		_, err := named(t, f, tt.name).Call(t.Context(), activity.Call{Organization: 1, Workflow: "rollout-7", Args: tt.args})
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s %v: %v; want %q", tt.name, tt.args, err, tt.wrong)
		}
	}
	const branch = "lockstep/proposals/o1/rollout-7/change"
	if !f.proposed.Alone || f.proposed.Head != head || f.proposed.Branch != branch ||
		!f.merged.Alone || f.merged.Branch != branch || f.merged.Method != activity.MergeCommit {
		t.Errorf("found %+v and %+v", f.proposed, f.merged)
	}
}
