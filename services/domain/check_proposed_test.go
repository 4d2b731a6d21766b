package domain

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
)

// R3-02, R3-03, R3-06, D48, D55: a status may name the commit that was proposed for an environment. It counts while that is the one that
// would be merged: not for the commit of an edit that was made again, and not in another rollout of the same version set.
func TestAStatusMayNameTheProposedCommit(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	reach := func() core.Rollout {
		r := c.rollout(c.set)
		for _, environment := range []string{"dev", "test"} {
			c.enter(r, environment)
			c.complete(r, environment)
			c.reports(42, environment, c.set, "healthy", core.CheckSuccess)
		}
		return r
	}
	proposes := func(r core.Rollout, head string) {
		c.report(event.DeploymentProposed{
			RolloutID: r.ID, Name: "prod", Repository: proposed, Number: 3, State: "open", Head: head, Branch: "main",
			Paths: []string{"prod/api.yaml"},
		})
	}
	by := func(commit string, phase core.CheckPhase) error {
		_, err := c.checks.ReportCheck(t.Context(), user(), check.Report{
			ApplicationID: c.application.ID, EnvironmentID: c.places["prod"].ID, Commit: commit, Key: "deployment-freeze", Phase: phase,
		})
		c.review()
		return err
	}
	entered := func(want bool) {
		t.Helper()
		if got := slices.Contains(c.granted(), "prod"); got != want {
			t.Errorf("prod is open: %t, expected %t", got, want)
		}
	}
	first, again, other := strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 40)
	r := reach()
	proposes(r, first)
	c.ok(by(first, core.CheckSuccess))
	c.ok(by(strings.ToUpper(first), core.CheckSuccess))
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses WHERE proposed_commit <> ''`), 1)
	proposes(r, again)
	c.enter(r, "prod")
	entered(false)
	if err := by(first, core.CheckSuccess); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "found "+first+", which is not "+again+", which rollout 1 has proposed for \"prod\"") {
		t.Errorf("a status of a commit that was made again: %v", err)
	}
	c.ok(by(again, core.CheckFailure))
	entered(false)
	c.ok(by(again, core.CheckSuccess))
	entered(true)
	_, err := c.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	c.ok(err)
	all, err := c.view.CheckReports(t.Context(), org, []int64{c.set.ID})
	c.ok(err)
	c.want(slices.ContainsFunc(all[c.set.ID], func(one core.CheckReport) bool { // how the check stood is still shown
		return one.ProposedCommit == again && one.Phase == core.CheckSuccess
	}), true)

	before := len(c.granted())
	second := reach()
	c.enter(second, "prod")
	c.want(len(c.granted()), before+2) // dev and test
	proposes(second, other)
	c.review()
	c.want(len(c.granted()), before+2)
	c.ok(by(other, core.CheckSuccess))
	c.want(len(c.granted()), before+3)
}
