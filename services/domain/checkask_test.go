package domain

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// asks reports as the run of a check's program that a person has to decide.
func (c checked) asks(run int64, why string) {
	c.t.Helper()
	c.ok(c.reportOf(id.CheckRun(run), event.CheckReported{CheckRunID: run, Phase: "pending", Description: why, Asks: true}))
	c.review()
}

// D48: what is inconclusive asks a person and never passes: only the answer of a person who may approve opens the passage, with a
// reason; no machine answers, and an answer no longer counts once the program has asked again.
func TestAPersonDecidesWhatACheckCannot(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	c.enter(r, "dev")
	c.enter(r, "prod")
	named := rollout.CheckNamed{RolloutID: r.ID, EnvironmentID: c.places["prod"].ID, Key: "ticket"}
	decide := func(a core.Actor, phase core.CheckPhase, reason string) error {
		_, err := c.rollouts.DecideCheck(t.Context(), a, named, phase, reason)
		c.review()
		return err
	}
	if err := decide(user(), core.CheckSuccess, "early"); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "asks a person") {
		t.Errorf("before it asks: %v", err)
	}
	c.asks(1, "metric errors is inconclusive")
	waits := func() string { return strings.Join(c.waits(r, "check"), "\n") }
	if got := waits(); !strings.Contains(got, "a person has to decide: metric errors is inconclusive") {
		t.Errorf("waits %q", got)
	}
	machine := user()
	machine.Type = core.PrincipalAgent
	reporter := user()
	reporter.Permissions = core.PermissionsOf(core.MayRead, core.MayReport)
	for _, one := range []struct {
		name   string
		err    error
		class  fault.Class
		expect string
	}{
		{"a machine", decide(machine, core.CheckSuccess, "fine"), fault.Denied, "is for people"},
		{"a member who may only report", decide(reporter, core.CheckSuccess, "fine"), fault.Denied, "approve"},
		{"no reason", decide(user(), core.CheckSuccess, " "), fault.Invalid, "/reason"},
		{"no decision", decide(user(), core.CheckPending, "later"), fault.Invalid, "/phase"},
	} {
		if !fault.Is(one.err, one.class) || !strings.Contains(one.err.Error(), one.expect) {
			t.Errorf("%s: %v", one.name, one.err)
		}
	}
	// As with approvals: who requested the rollout does not let it pass; anybody may fail the check.
	c.people(2)
	second := user()
	second.ID = 2
	_, err := c.pool.Exec(t.Context(), `UPDATE cd_environments SET tier = 'production' WHERE id = $1`, c.places["prod"].ID)
	c.ok(err)
	c.refused(decide(user(), core.CheckSuccess, "fine"), `so someone else must decide its check "ticket"`)
	c.ok(decide(user(), core.CheckFailure, "too many errors"))
	if got := waits(); !strings.Contains(got, "too many errors") || !strings.Contains(got, "which is failure") {
		t.Errorf("waits %q", got)
	}
	c.program(1, core.CheckPending, "it is measured again")
	c.asks(1, "metric errors has no data")
	if got := waits(); !strings.Contains(got, "a person has to decide: metric errors has no data") {
		t.Errorf("an answer to an earlier question decides: %q", got)
	}
	c.refused(decide(user(), core.CheckSuccess, "fine"), `requested rollout_1, so someone else must decide`)
	c.ok(decide(second, core.CheckSuccess, "no traffic at night"))
	rows, err := c.pool.Query(t.Context(), `SELECT principal_id || ' ' || subject_kind || '_' || subject_number || ' ' || detail || ' ' || reason || ' ' ||
		(before->>'phase') || ' ' || (after->>'phase') FROM cd_changes WHERE action = 'decideCheck' ORDER BY id`)
	c.ok(err)
	recorded := []string{}
	for rows.Next() {
		var line string
		c.ok(rows.Scan(&line))
		recorded = append(recorded, line)
	}
	c.ok(rows.Err())
	c.want(recorded, []string{
		`1 rollout_1 check ticket at passage "prod": failure too many errors pending failure`,
		`2 rollout_1 check ticket at passage "prod": success no traffic at night pending success`,
	})
	c.complete(r, "dev")
	c.review()
	c.programs()
	c.program(2, core.CheckSuccess, "")
	c.want(c.granted(), []string{"dev", "prod"})
	c.want(c.passed(r)[1], "prod (no approval required; check gauge: success; check ticket: success)")
	c.verifyJournal(r)
	c.handOver()
	slices.Sort(c.engine.cancels)
	c.want(c.engine.cancels, []string{"check-1", "check-2"})
}

// D48: a metric that becomes bad while what is active is soaking fails the check at once: the passage behind it stays closed although the
// timer beside it has passed, and a later success of the same run does not happen by itself.
func TestABadMetricDuringTheSoakKeepsThePassageClosed(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	c.enter(r, "dev")
	c.complete(r, "dev")
	c.enter(r, "prod")
	c.program(1, core.CheckPending, "checks/a measures: errors [0.01]")
	c.program(2, core.CheckSuccess, "")
	run := int64(1)
	c.program(run, core.CheckFailure, "metric errors is bad, latest [0.5]")
	got := strings.Join(c.waits(r, "check"), "\n")
	if !strings.Contains(got, "metric errors is bad, latest [0.5]") || slices.Contains(c.granted(), "prod") {
		t.Errorf("waits %q, granted %v", got, c.granted())
	}
	c.ok(c.reportOf(id.CheckRun(run), event.WorkflowCompleted{WorkflowID: id.CheckRun(run)}))
	c.review()
	c.want(c.granted(), []string{"dev"})
}
