package forge

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// R4-27: a comment has neither the subject nor the identifier of a commit that is not the head of the pull request.
func TestACommentNamesNoOtherCommit(t *testing.T) {
	t.Parallel()
	rules := planner.Rules{Pipeline: "secret", Quick: "typo"}
	for _, c := range []struct{ sha, message, want string }{
		{"aaaa", "a typo", "quick sync: the message of commit aaaa (a typo) matches commitMatcher.quickSync\n"},
		{"bbbb", "a typo", "quick sync: the message of another new commit matches commitMatcher.quickSync\n"},
		{"bbbb", "the secret", "pipeline: the message of another new commit matches commitMatcher.pipeline\n"},
		{"bbbb", "other", "quick sync: nothing of the application has been deployed successfully yet\n"},
	} {
		d, err := planner.Decide(planner.Facts{Weights: true, Rules: rules, Commits: []planner.Commit{{SHA: c.sha, Message: c.message}}})
		if err != nil {
			t.Fatal(err)
		}
		got := comment(reading{Head: "aaaa"}, []trigger.Touched{{Foreseen: rollout.Foreseen{Plan: d}}}, false)
		if !strings.Contains(got, c.want) || strings.Contains(got, "bbbb") || strings.Contains(got, "secret)") {
			t.Errorf("found %s; want %q", got, c.want)
		}
	}
}

// D63: only a line that is the address of a rollout in the console, and nothing else, is a link below an answer.
func TestOnlyPagesOfTheConsoleAreLinks(t *testing.T) {
	t.Parallel()
	const console = "https://cd.example.com/"
	for text, want := range map[string]bool{
		"https://cd.example.com/rollouts/rollout_7": true, "https://cd.example.com/rollouts/rollout_7 x": false,
		"https://cd.example.com/rollouts/rollout_7)[x](https://evil.example.com": false, "see https://cd.example.com/rollouts/rollout_7": false,
		"https://evil.example.com/rollouts/rollout_7": false, "https://cd.example.com/rollouts/rollout_": false, "/rollouts/rollout_7": false,
	} {
		if isPage(text, console) != want || isPage(text, "") {
			t.Errorf("%q: found %t", text, isPage(text, console))
		}
		all := answers([]Answered{{Author: "ann", Command: "/lockstep why", Answer: "It waits.\n" + text}}, console)
		if strings.HasSuffix(all, fence+"\n\n"+text+"\n") != want {
			t.Errorf("%q: found %s", text, all)
		}
	}
}
