package function

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// proposedFields are the arguments of a change that is proposed, and of its merge.
func proposedFields(more ...Field) []Field {
	fields := []Field{
		{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
		{Name: "branch", Doc: "The branch to merge into.", Type: Text, Required: true},
		{Name: "name", Doc: "Which of the run's proposals it is, such as the name of an environment; `change` by default.", Type: Text},
		{Name: "path", Doc: "The path of the one file.", Type: Text},
		{Name: "content", Doc: "The text of the one file.", Type: Text},
		{Name: "files", Doc: "Several files.", Type: List, Element: &Field{Type: Object, Fields: []Field{
			{Name: "path", Doc: "The file's path in the repository.", Type: Text, Required: true},
			{Name: "content", Doc: "The file's text.", Type: Text, Required: true, Empty: true},
		}}},
		{
			Name: "message", Type: Text, Required: true,
			Doc: "The commit's message. Its first line is the title. No line begins with `Lockstep-Activity:`, `Lockstep-Proposal:` or `Lockstep-Merged:`.",
		},
		{Name: "trailers", Doc: "Trailers of the message: letters, digits and hyphens as keys.", Type: Texts},
	}
	return append(append(fields, more...), gitCredentialField())
}

func mergeMethods() []string {
	return []string{activity.MergeCommit, activity.MergeSquash, activity.MergeFastForward}
}

// propose is git.propose.
func propose(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.propose", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Proposes, Touches: touchesProposal, Check: checkProposed, Reports: reportProposed,
			Doc: "Proposes a change of files, for branches that nobody may push to: commits it to a branch of its own, and opens a pull request (a merge\n" +
				"request at GitLab), or updates the one that exists. Answers `{number, url, state, branch, head, commit, by, by_id, note,\n" +
				"into, merged_head, unshown}`: `branch` is what is proposed, `into` the branch that it is for, and `merged_head` the commit that a person has\n" +
				"merged, where the commits show it; `unshown` is why they do not show exactly that.\n\n" +
				"The name of the branch is `" + activity.ProposalPrefix + "` and what organization, run and `name` make, so the same call again is the same\n" +
				"pull request. Its one commit is made on top of `branch`, and made anew once one of the files has changed there; with the method\n" +
				"`fast_forward`, once anything has. If the branch has the contents already, nothing is proposed, and the state is `unchanged` with the\n" +
				"present `commit`. A pull request that people have closed or merged is answered as it is. A branch with a commit of another author is\n" +
				"left alone, with the code `conflict`.\n\n" +
				"The text of the pull request is the description, what differs in each file, and the trailers, as of the latest call. The differences have\n" +
				"at most 16 KiB, and nothing that looks like a secret.\n\n" +
				"It changes no environment, so it needs no passage. The repository needs a credential with a `forge`, unless the kind is `branch`. A branch\n" +
				"alone that people have deleted is answered as `closed`, if `head` says that there was one; one that they have merged is `unchanged`.",
			Arguments: proposedFields(
				kindField(),
				Field{Name: "head", Doc: "With the kind `branch`: the head that it had before; leave it out for the first time.", Type: Text},
				Field{Name: "base", Doc: "The commit that the files were made from. If one of them has changed since, the change is refused.", Type: Text},
				Field{Name: "description", Doc: "What the pull request says beside the message and its trailers. Markdown.", Type: Text},
				Field{Name: "method", Type: Text, OneOf: mergeMethods(), Doc: "How it is to be merged, as `git.merge` has it."},
			),
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			c, err := proposedCommit(call)
			if err != nil {
				return nil, err
			}
			branch := proposalBranch(call)
			p, err := forge.Propose(withLogin(ctx, call), activity.ProposalRequest{
				Commit: c, Branch: branch, ID: branch[len(activity.ProposalPrefix):], Description: text(call.Args, "description"),
				Show: showDifference, Method: text(call.Args, "method"), Alone: isBranch(call.Args), Head: text(call.Args, "head"),
			})
			return proposalAnswer(p, err)
		},
	}
}

// merge is git.merge.
func merge(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.merge", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Changes, Touches: touchesFiles, Check: checkLook, Entered: isBranch, Intends: intendMerge,
			Doc: "Merges the pull request of `git.propose`, and answers as it does; `commit` is the commit of `branch` that has the change. The other\n" +
				"arguments are those of `git.propose`: the pull request has to consist of exactly these files, in one commit, `head`.\n\n" +
				"The code is `conflict` if the head is another one, or if one of the files has changed on the branch since the commit was made: propose\n" +
				"the change again, and merge that. It is `refused` if the forge does not allow it, such as for as long as a required check or review is\n" +
				"missing; if the pull request was closed; and if it has other changes. One that was merged already is answered, with who did it, once its\n" +
				"contents were compared.\n\n" +
				"With the kind `branch`, nothing but Git's protocol merges: the branch is moved, and the branch of the proposal deleted with it. Files that\n" +
				"another commit has changed are a `conflict`, as above. Only the run of a rollout does this, and never without a passage. `note` says what was\n" +
				"not heard in time: that others deleted or moved the branch in the moment of the merge, on a server that changes one branch at a time.",
			Arguments: proposedFields(
				kindField(),
				Field{Name: "number", Doc: "The number of the pull request.", Type: Number, Least: 1},
				Field{Name: "head", Doc: "The commit to merge, as `git.propose` answers it.", Type: Text, Required: true},
				Field{
					Name: "method", Type: Text, OneOf: mergeMethods(),
					Doc: "`merge`, the default: the forge merges, with a merge commit or as the project is configured. `squash`: it makes one commit of it. " +
						"Lockstep makes these commits with the kind `branch`. " +
						"`fast_forward`: the branch is moved to `head`, which the forge has to allow for the credential.",
				},
			),
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			c, err := proposedCommit(call)
			if err != nil {
				return nil, err
			}
			number, _ := whole(call.Args["number"])
			p, err := forge.Merge(withLogin(ctx, call), activity.MergeRequest{
				Commit: c, Branch: proposalBranch(call), Number: number, Head: text(call.Args, "head"),
				Method: cmp.Or(text(call.Args, "method"), activity.MergeCommit), Alone: isBranch(call.Args),
			})
			return proposalAnswer(p, err)
		},
	}
}

// readProposal is git.read_proposal.
func readProposal(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.read_proposal", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Reads a pull request. Answers as `git.propose` does: `state` is `open`, `merged` or `closed`, `by` who has merged or closed it, where the\n" +
				"forge says so, and `commit` the commit that has the change. With the kind `branch`, `head` is where the branch is now, `by` is empty, and one\n" +
				"that people have squashed and deleted is `closed`: `git.propose` answers `unchanged` then.",
			Arguments: lookFields(), Check: checkLook, Reports: reportRead,
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			if isBranch(call.Args) {
				return proposalAnswer(forge.ReadBranch(withLogin(ctx, call), branchOf(call)))
			}
			number, _ := whole(call.Args["number"])
			return proposalAnswer(forge.ReadProposal(withLogin(ctx, call), call.Organization, text(call.Args, "repo_url"), number))
		},
	}
}

// withdraw is git.withdraw.
func withdraw(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.withdraw", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Proposes, Touches: touchesProposal, Ends: proposalName,
			Doc: "Closes a pull request of `git.propose` without a merge, and answers as that does. One that is not open is answered as it is.\n" +
				"With the kind `branch`, the branch is deleted, also one that was merged; one with a commit of others stays, with the code `conflict`.",
			Arguments: lookFields(), Check: checkLook, Intends: intendWithdrawal,
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			if isBranch(call.Args) {
				return proposalAnswer(forge.WithdrawBranch(withLogin(ctx, call), branchOf(call)))
			}
			number, _ := whole(call.Args["number"])
			return proposalAnswer(forge.Withdraw(withLogin(ctx, call), call.Organization, text(call.Args, "repo_url"), proposalBranch(call), number))
		},
	}
}

// readStatus is git.read_status.
func readStatus(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.read_status", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Reads what was reported to the forge about a commit: commit statuses, and GitHub's check runs. Answers `{state, statuses}`: each status\n" +
				"has `name`, `state` and `url`. A state is `pending`, `success` or `failure`; that of the answer is `none` without any status, `failure` if\n" +
				"one has failed, and `pending` if one is.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
				{Name: "commit", Doc: "The commit.", Type: Text, Required: true},
				{Name: "names", Doc: "Only the statuses of these names. One that is missing is `pending`.", Type: List, Element: &Field{Type: Text, Required: true}},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			all, err := forge.ReadStatus(withLogin(ctx, call), call.Organization, text(call.Args, "repo_url"), text(call.Args, "commit"))
			if err != nil {
				return nil, err
			}
			return statusAnswer(all, call.Args), nil
		},
	}
}

// setStatus is git.set_status.
func setStatus(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.set_status", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Publishes, Touches: touchesRepository,
			Doc: "Reports a status of a commit to its forge. Answers `{result, why, wait, quota, shared}`: `result` is `set`, `unchanged` if the forge has the status\n" +
				"already, or `limited` if it accepts no more requests for now, with the reason in `why`, and for how many seconds in `wait`, 0 if it does not\n" +
				"say. `quota` is `{limit, remaining, resets_at}` where the forge says how many requests it still accepts, and null elsewhere.\n" +
				"`shared` is whether the credential is the operator's, which other organizations may use as well.\n\n" +
				"The repository needs a credential with a `forge`.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
				{Name: "commit", Doc: "The commit.", Type: Text, Required: true},
				{Name: "name", Doc: "The name of the status. The latest of a name counts.", Type: Text, Required: true},
				{
					Name: "state", Doc: "The state.", Type: Text, Required: true,
					OneOf: []string{activity.StatusPending, activity.StatusSuccess, activity.StatusFailure},
				},
				{Name: "description", Doc: "What it says, of which forges get 140 characters.", Type: Text, Empty: true},
				{Name: "url", Doc: "Where there is more about it.", Type: Text, Empty: true},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			r, err := forge.SetStatus(withLogin(ctx, call), activity.StatusRequest{
				Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Commit: text(call.Args, "commit"),
				Status: activity.CommitStatus{
					Name: text(call.Args, "name"), State: text(call.Args, "state"), URL: text(call.Args, "url"), Description: text(call.Args, "description"),
				},
			})
			if err != nil {
				return nil, withoutForge(err)
			}
			return setAnswer(r), nil
		},
	}
}

// setAnswer is the answer of git.set_status.
func setAnswer(r activity.StatusReport) any {
	answer := map[string]any{"result": "set", "why": r.Limited, "wait": int64(math.Ceil(r.Wait.Seconds())), "quota": nil, "shared": r.Shared}
	switch {
	case r.Limited != "":
		answer["result"] = "limited"
	case r.Unchanged:
		answer["result"] = "unchanged"
	}
	if q := r.Quota; q != nil {
		answer["quota"] = map[string]any{"limit": q.Limit, "remaining": q.Remaining, "resets_at": q.ResetsAt.Format(time.RFC3339)}
	}
	return answer
}

// touchesRepository is the repository of a call.
func touchesRepository(args map[string]any) []activity.Place {
	if text(args, "repo_url") == "" {
		return nil
	}
	return []activity.Place{{Repository: text(args, "repo_url"), Path: "."}}
}

// statusAnswer is the answer of git.read_status.
func statusAnswer(all []activity.CommitStatus, args map[string]any) any {
	if names, given := args["names"].([]any); given {
		wanted := map[string]bool{}
		for _, n := range names {
			name, _ := n.(string)
			wanted[name] = true
		}
		all = slices.DeleteFunc(all, func(s activity.CommitStatus) bool { return !wanted[s.Name] })
		for _, s := range all {
			delete(wanted, s.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			all = append(all, activity.CommitStatus{Name: name, State: activity.StatusPending})
		}
	}
	state, list := "none", make([]any, len(all))
	for i, s := range all {
		list[i] = map[string]any{"name": s.Name, "state": s.State, "url": s.URL}
		switch {
		case state == activity.StatusFailure, state == activity.StatusPending && s.State == activity.StatusSuccess:
		default:
			state = s.State
		}
	}
	return map[string]any{"state": state, "statuses": list}
}

// proposedCommit is the change that a call is about.
func proposedCommit(call activity.Call) (activity.CommitRequest, error) {
	files, err := filesOf(call.Args)
	if err != nil {
		return activity.CommitRequest{}, err
	}
	// No activity: what makes two calls the same is the branch, so that another call of the run finds the same commit.
	return activity.CommitRequest{
		Organization: call.Organization,
		RepoURL:      text(call.Args, "repo_url"), Branch: text(call.Args, "branch"), Base: text(call.Args, "base"),
		Files: files, Message: text(call.Args, "message"), Trailers: texts(call.Args, "trailers"),
	}, nil
}

func proposalAnswer(p activity.Proposal, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"number": p.Number, "url": p.URL, "state": p.State, "branch": p.Branch, "head": p.Head, "commit": p.Commit, "by": p.By,
		"by_id": p.ByID, "note": p.Note, "into": p.Into, "merged_head": p.Merged, "unshown": p.Unshown,
	}, nil
}

// proposalBranch is the branch of a run's proposal. No program chooses it: it is in a place where nothing else is committed to, and below
// the run's own name.
//
// The attempts of an edit that an event makes are one run to it: the pull request of one whose answer was lost is found again by the next.
func proposalBranch(call activity.Call) string {
	run := call.Workflow
	if signal, attempt := id.TriggerEdit(run); attempt > 0 {
		run = id.TriggerEditRun(signal, 1)
	}
	return fmt.Sprintf("%so%d/%s/%s", activity.ProposalPrefix, call.Organization, branchPart(run), branchPart(proposalName(call.Args)))
}

// proposalName is which of the run's proposals a call is about.
func proposalName(args map[string]any) string { return cmp.Or(text(args, "name"), "change") }

// plainPart is what may be a part of the name of a branch as it is.
var plainPart = regexp.MustCompile(`^[A-Za-z0-9](-?[A-Za-z0-9_])*$`)

// branchPart is a text as a part of the name of a branch, a different one for each text.
func branchPart(s string) string {
	const most = 60
	if len(s) <= most && plainPart.MatchString(s) && !strings.HasPrefix(s, "x-") {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "x-" + hex.EncodeToString(sum[:12])
}

// touchesProposal is the branch of a proposal. The guard refuses it where an environment is deployed from such a branch.
func touchesProposal(args map[string]any) []activity.Place {
	if text(args, "repo_url") == "" {
		return nil
	}
	return []activity.Place{{Repository: text(args, "repo_url"), Branch: activity.ProposalPrefix, Path: "."}}
}

// mostProposed is how many files a proposal has at most.
const mostProposed = 200

// checkProposed refuses proposals that are too large.
func checkProposed(args map[string]any) []fault.Field {
	if files, _ := args["files"].([]any); len(files) > mostProposed {
		return []fault.Field{{Name: "files", Problem: fmt.Sprintf("found %d files, expected at most %d", len(files), mostProposed)}}
	}
	return nil
}
