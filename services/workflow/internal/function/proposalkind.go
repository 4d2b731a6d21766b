package function

import (
	"cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The kinds of proposals.
const (
	kindPull   = "pull_request"
	kindBranch = "branch"
)

// kindField says which kind of proposal a call is about.
func kindField() Field {
	return Field{
		Name: "kind", Type: Text, OneOf: []string{kindPull, kindBranch},
		Doc: "`pull_request`, the default. `branch`: the branch alone, for servers without pull requests. People reject it by deleting the branch. " +
			"It has no number and no URL, and needs no `forge`.",
	}
}

// isBranch reports whether a call is about a branch alone.
func isBranch(args map[string]any) bool { return text(args, "kind") == kindBranch }

// branchOf is the branch that a call is about, as it was proposed.
func branchOf(call activity.Call) activity.BranchProposal {
	return activity.BranchProposal{
		Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Branch: proposalBranch(call),
		Into: text(call.Args, "branch"), Head: text(call.Args, "head"),
	}
}

// lookFields are those of a proposal that exists.
func lookFields() []Field {
	return []Field{
		{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
		{Name: "name", Doc: "The `name` that it was proposed with, by which people's answers at the forge count for its environment.", Type: Text},
		{Name: "number", Doc: "The number of the pull request.", Type: Number, Least: 1},
		kindField(),
		{Name: "branch", Doc: "With the kind `branch`: the branch to merge into.", Type: Text},
		{Name: "head", Doc: "With the kind `branch`: the commit that was proposed.", Type: Text},
		gitCredentialField(),
	}
}

// checkLook finds what says which proposal a call is about, where it is missing.
func checkLook(args map[string]any) []fault.Field {
	wanted := []string{"number"}
	if isBranch(args) {
		wanted = []string{"branch", "head"}
	}
	var wrong []fault.Field
	for _, name := range wanted {
		if args[name] == nil || args[name] == "" {
			wrong = append(wrong, fault.Field{Name: name, Problem: "missing for a proposal of the kind " + cmp.Or(text(args, "kind"), kindPull)})
		}
	}
	return wrong
}
