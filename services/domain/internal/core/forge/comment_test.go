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
