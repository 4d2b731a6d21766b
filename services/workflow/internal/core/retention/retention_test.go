package retention

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
)

// R4-27: runs about pull requests are deleted as those that publish statuses are; those that the domain service reads later stay.
func TestReservedRunsThatAreKept(t *testing.T) {
	t.Parallel()
	rules := []Rule{{Keep: time.Hour}}
	for run, want := range map[string]bool{
		id.ForgePullRun(4, 1): true, id.ForgeStatusRun(4, 1): true, id.NotificationRun(4, 1): true, "nightly": true,
		"rollout-4": false,
	} {
		if keep, ok := keepFor(rules, Run{Workflow: run}); ok != want || ok && keep != time.Hour {
			t.Errorf("%s: found %s, %t; want that a rule deletes it: %t", run, keep, ok, want)
		}
	}
}
