package gitfetch_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// R4-07, R4-28: commits of rollouts, and those that an event has made, are Lockstep's own; what people write is not, nor a proposal
// that no rollout has made.
func TestOwnCommits(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"":                                   false,
		"Say Lockstep-Rollout: 7\n\nNothing": false,
		"Deploy\n\nLockstep-Rollout: 7":      true,
		"Deploy (#3)\r\n\r\nLockstep-Proposal: o1/rollout-7/x\r\nLockstep-Rollout: 7\r\n": true,
		"Update\n\nLockstep-Activity: edit-1/0.1\nLockstep-Trigger: builds":               true,
		"Update\n\nLockstep-Proposal: o1/edit-1/change\nLockstep-Trigger: builds":         false,
		"Update\n\nLockstep-Proposal: o1/run-1/change":                                    false,
	} {
		if got := gitfetch.Own(message); got != want {
			t.Errorf("%q: found %v, want %v", message, got, want)
		}
	}
}
