package function

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// commitID is the id of a commit, as forges write it.
var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// The bounds of what is reported of a proposal, in bytes; what is longer is not reported, or a name cut off.
const (
	longestName = 255
	longestURL  = 2048
)

// reportProposed is what the domain service hears of git.propose in the run of a rollout: the proposal of the run's own, as its forge has
// it.
func reportProposed(call activity.Call, value json.RawMessage) (activity.Report, bool) {
	files, err := filesOf(call.Args)
	if err != nil {
		return activity.Report{}, false
	}
	paths := make([]string, 0, len(files))
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return reportOf(call, value, paths)
}

// reportRead is the same for git.read_proposal. A branch alone that was deleted may have been merged before: git.propose finds that out.
func reportRead(call activity.Call, value json.RawMessage) (activity.Report, bool) {
	if isBranch(call.Args) {
		return activity.Report{}, false
	}
	return reportOf(call, value, nil)
}

func reportOf(call activity.Call, value json.RawMessage, paths []string) (activity.Report, bool) {
	var p struct {
		Number       int64
		State        string
		Branch, Head string
		Commit, By   string
		ByID         int64 `json:"by_id"`
		Into         string
		MergedHead   string `json:"merged_head"`
		Unshown      string
	}
	// Another proposal than that of this run and name says nothing of it: the program chooses the number.
	if json.Unmarshal(value, &p) != nil || p.Branch != proposalBranch(call) || p.State == activity.ProposalUnchanged {
		return activity.Report{}, false
	}
	into := text(call.Args, "branch")
	if p.State == activity.ProposalMerged {
		into, p.Head = p.Into, p.MergedHead
	} else {
		p.Unshown = ""
	}
	if len(into) > longestName {
		return activity.Report{}, false
	}
	return reported(call, map[string]any{
		"branch": into, "paths": paths, "number": p.Number, "state": p.State, "head": p.Head, "commit": p.Commit, "by": p.By, "by_id": p.ByID,
		"unshown": oneLine(p.Unshown),
	})
}

// intendWithdrawal is what the domain service hears of git.withdraw before it is called: what the run itself withdraws is no answer of
// people, whether or not it comes to that.
func intendWithdrawal(call activity.Call) (activity.Report, bool) {
	return intend(call, stateWithdrawn)
}

// intendMerge is the same for git.merge of a branch alone, which the run deletes with the merge.
func intendMerge(call activity.Call) (activity.Report, bool) {
	if !isBranch(call.Args) {
		return activity.Report{}, false
	}
	return intend(call, activity.ProposalMerged)
}

// stateWithdrawn is that of a proposal that its run withdraws.
const stateWithdrawn = "withdrawn"

func intend(call activity.Call, state string) (activity.Report, bool) {
	number, _ := whole(call.Args["number"])
	if isBranch(call.Args) {
		number = 0
	}
	return reported(call, map[string]any{"number": number, "state": state, "head": text(call.Args, "head")})
}

// reported is a report about the proposal of a call. What a forge answers that no report can have is left out.
func reported(call activity.Call, about map[string]any) (activity.Report, bool) {
	rollout, name, repository := id.Rollout(call.Workflow), proposalName(call.Args), text(call.Args, "repo_url")
	if rollout == 0 || len(name) > longestName || repository == "" || len(repository) > longestURL {
		return activity.Report{}, false
	}
	about["rollout_id"], about["name"], about["repository"] = rollout, name, repository
	maps.DeleteFunc(about, func(key string, value any) bool {
		switch v := value.(type) {
		case string:
			return v == "" || (key == "head" || key == "commit") && !commitID.MatchString(v) || key == "by" && !printable(v)
		case int64:
			return key != "rollout_id" && v < 1 // Gitea and Forgejo have negative numbers for what is no account
		case []string:
			return len(v) == 0
		default:
			return false
		}
	})
	data, err := json.Marshal(about)
	return activity.Report{About: name, EventType: history.TypeProposed, Data: data}, err == nil
}

// printable reports whether a name that a forge says is one line of text.
func printable(name string) bool {
	return len(name) <= longestName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// oneLine is a text as one line, as far as a report has it.
func oneLine(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "")
	s = strings.ToValidUTF8(s[:min(len(s), longestName)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}
