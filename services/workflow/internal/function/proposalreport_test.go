package function

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// D55, D47: the domain service hears of the proposal of a rollout's own from here, whatever the program says, and of no other pull request
// that the program asks about.
func TestWhatIsReportedOfAProposal(t *testing.T) {
	t.Parallel()
	head, merged := strings.Repeat("1", 40), strings.Repeat("2", 40)
	other := strings.Repeat("3", 40)
	files := m{"repo_url": "https://git/x", "branch": "main", "name": "prod", "path": "a", "content": "b", "message": "c"}
	read := m{"repo_url": "https://git/x", "name": "prod", "number": int64(4)}
	alone := m{"repo_url": "https://git/x", "name": "prod", "kind": "branch", "branch": "main", "head": head}
	const own = "lockstep/proposals/o1/rollout-7/prod"
	for name, tt := range map[string]struct {
		function, workflow string
		args               m
		proposal           activity.Proposal
		want               *event.DeploymentProposed
	}{
		"proposed": {
			"git.propose", "rollout-7", files,
			activity.Proposal{Number: 4, State: "open", Branch: own, Head: head},
			&event.DeploymentProposed{
				RolloutID: 7, Name: "prod", Repository: "https://git/x", Branch: "main", Paths: []string{"a"}, Number: 4, State: "open", Head: head,
			},
		},
		"merged by a person": {
			"git.read_proposal", "rollout-7", read,
			activity.Proposal{Number: 4, State: "merged", Branch: own, Into: "main", Head: other, Merged: head, Commit: merged, By: "ann", ByID: 9},
			&event.DeploymentProposed{
				RolloutID: 7, Name: "prod", Repository: "https://git/x", Branch: "main", Number: 4, State: "merged", Head: head, Commit: merged, By: "ann",
				ByID: 9,
			},
		},
		"merged by a person, and nothing shows what": {
			"git.propose", "rollout-7", files,
			activity.Proposal{
				Number: 4, State: "merged", Branch: own, Into: "scratch", Head: head, Commit: merged, By: "ann", ByID: 9,
				Unshown: "no\n\x00answer " + strings.Repeat("ü", 300),
			},
			&event.DeploymentProposed{
				RolloutID: 7, Name: "prod", Repository: "https://git/x", Branch: "scratch", Paths: []string{"a"}, Number: 4, State: "merged", Commit: merged,
				By: "ann", ByID: 9, Unshown: "no answer " + strings.Repeat("ü", 122),
			},
		},
		"merged by no account": {
			"git.read_proposal", "rollout-7", read,
			activity.Proposal{Number: 4, State: "merged", Branch: own, Head: head, Commit: merged, By: "Ghost\x00", ByID: -1},
			&event.DeploymentProposed{RolloutID: 7, Name: "prod", Repository: "https://git/x", Number: 4, State: "merged", Commit: merged},
		},
		"a pull request of others":  {"git.read_proposal", "rollout-7", read, activity.Proposal{Number: 4, State: "closed", Branch: "feature", Head: head}, nil},
		"that of another rollout":   {"git.read_proposal", "rollout-8", read, activity.Proposal{Number: 4, State: "closed", Branch: own, Head: head}, nil},
		"in a run of no rollout":    {"git.propose", "trigger-edit-7-1", files, activity.Proposal{Number: 4, State: "open", Branch: own}, nil},
		"nothing to propose":        {"git.propose", "rollout-7", files, activity.Proposal{State: "unchanged", Head: head, Commit: head}, nil},
		"a branch that was deleted": {"git.read_proposal", "rollout-7", alone, activity.Proposal{State: "closed", Branch: own, Head: head}, nil},
		"what it has withdrawn":     {"git.withdraw", "rollout-7", read, activity.Proposal{Number: 4, State: "closed", Branch: own, Head: head}, nil},
	} {
		f := &forge{proposal: tt.proposal}
		function := named(t, f, tt.function)
		call := activity.Call{Organization: 1, Workflow: tt.workflow, Args: tt.args}
		value, err := proposalAnswer(tt.proposal, nil)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		report, is := function.Report(call, encoded)
		if tt.want == nil {
			if is {
				t.Errorf("%s: reported %s", name, report.Data)
			}
			continue
		}
		var got event.DeploymentProposed
		err = json.Unmarshal(report.Data, &got)
		if err != nil || !is || report.EventType != event.TypeDeploymentProposed || report.About != "prod" {
			t.Errorf("%s: found %+v, %v", name, report, err)
		}
		if diff := cmp.Diff(*tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// D55: what the run itself ends is reported before it does, however that goes.
func TestWhatIsReportedBeforeARunEndsAProposal(t *testing.T) {
	t.Parallel()
	head := strings.Repeat("1", 40)
	pull := m{"repo_url": "https://git/x", "name": "prod", "number": int64(4), "head": head}
	alone := m{"repo_url": "https://git/x", "name": "prod", "kind": "branch", "branch": "main", "head": head}
	with := func(args, more m) m {
		all := maps.Clone(args)
		maps.Copy(all, more)
		return all
	}
	for name, tt := range map[string]struct {
		function, workflow string
		args               m
		want               string
	}{
		"withdrawn":          {"git.withdraw", "rollout-7", pull, "withdrawn 4"},
		"a branch withdrawn": {"git.withdraw", "rollout-7", alone, "withdrawn 0"},
		"a branch merged":    {"git.merge", "rollout-7", with(alone, m{"path": "a", "content": "b", "message": "c"}), "merged 0"},
		"a request merged":   {"git.merge", "rollout-7", with(pull, m{"path": "a", "content": "b", "message": "c", "branch": "main"}), ""},
		// What is refused before it is called ends nothing.
		"withdrawn without a number":      {"git.withdraw", "rollout-7", m{"repo_url": "https://git/x", "name": "prod", "head": head}, ""},
		"withdrawn with an unknown field": {"git.withdraw", "rollout-7", with(pull, m{"force": true}), ""},
		"a branch merged without files":   {"git.merge", "rollout-7", alone, ""},
		"read":                            {"git.read_proposal", "rollout-7", pull, ""},
		"in no rollout's run":             {"git.withdraw", "trigger-edit-7-1", pull, ""},
	} {
		report, is := named(t, &forge{}, tt.function).Intent(activity.Call{Organization: 1, Workflow: tt.workflow, Args: tt.args})
		var got event.DeploymentProposed
		if is {
			if err := json.Unmarshal(report.Data, &got); err != nil || got.Head != head || got.Name != "prod" || got.RolloutID != 7 {
				t.Errorf("%s: found %s, %v", name, report.Data, err)
			}
		}
		if found := fmt.Sprint(got.State, " ", got.Number); is != (tt.want != "") || is && found != tt.want {
			t.Errorf("%s: found %q; want %q", name, found, tt.want)
		}
	}
}
