package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// runbooks is a shop with an application whose pipeline is a runbook in the cluster of an environment.
type runbooks struct {
	*shop
	book core.Application
	live core.Environment
	tool core.VersionSet
}

func jobStep(environment, name, namespace string) string {
	return fmt.Sprintf(`{"type":"job","environment":%q,"job":{"name":%q,"namespace":%q,"template":"kind: Job"}}`, environment, name, namespace)
}

func newRunbooks(t *testing.T) *runbooks {
	t.Helper()
	return runbooksOf(guarded(t))
}

// runbooksOf adds the runbook to a shop.
func runbooksOf(s *shop) *runbooks {
	t := s.t
	t.Helper()
	b := &runbooks{shop: s}
	agent, _, err := b.access.RegisterAgent(t.Context(), user(), "live")
	b.ok(err)
	b.live, err = b.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
		Name: "live", Tier: core.TierProduction, DriverRef: "kubernetes@1",
		DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d,"namespaces":["shop","tools"]}`, agent.ID)),
	})
	b.ok(err)
	b.book = b.fixture.application("backfill", "tool")
	b.publish(b.artifact("registry.test/backfill/tool", "1.0", 900, time.Unix(1_700_000_000, 0)))
	sets, err := b.view.VersionSetsByApplication(t.Context(), org, []int64{b.book.ID}, core.Page{})
	b.ok(err)
	b.tool = sets[b.book.ID].Nodes[0]
	return b
}

// write saves the runbook.
func (b *runbooks) write(more string, steps ...string) error {
	b.t.Helper()
	_, err := b.setup.CreateFlowDefinition(b.t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: b.book.ID, Definition: json.RawMessage(`{` + more + `"steps":[` + strings.Join(steps, ",") + `]}`),
	})
	return err
}

func (b *runbooks) begin(inputs string) (core.Rollout, error) {
	b.t.Helper()
	made, err := b.rollouts.CreateRollout(b.t.Context(), user(), rollout.NewRollout{VersionSetID: b.tool.ID, Inputs: json.RawMessage(inputs)})
	if made.Rollout == nil {
		return core.Rollout{}, err
	}
	return *made.Rollout, err
}

// R4-09: a pipeline of jobs is a runbook. It needs no setup, has inputs and approvals, is begun by people as often as they like, deploys
// nothing, and its passage opens nothing but the namespaces of its jobs.
func TestARunbookIsRun(t *testing.T) {
	t.Parallel()
	b := newRunbooks(t)
	b.ok(b.write(regionInputs, `{"type":"approval","name":"sure","requester_may_approve":true}`, jobStep("live", "drain", "shop"), jobStep("live", "backfill", "tools")))
	_, err := b.begin(`{"region":"eu"}`)
	b.refused(err, `environment "live" is not ready`)
	b.report(event.EnvironmentReady{EnvironmentID: b.live.ID})
	b.want(b.countOf(`SELECT count(*) FROM cd_handoffs WHERE workflow_id LIKE 'application-environment-%-setup-%' AND subject_id = (SELECT id FROM cd_application_environments WHERE application_id = 2)`), 0)
	_, err = b.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{
		VersionSetID: b.tool.ID, Inputs: json.RawMessage(`{"region":"eu"}`),
	})
	b.refused(err, "is a runbook: it deploys nothing, and cannot be previewed")
	_, err = b.begin(`{"region":"mars"}`)
	b.refusedAt(err, "/inputs/region", `found "mars"`)
	for range 2 {
		r, err := b.begin(`{"region":"eu"}`)
		b.ok(err)
		b.want(r.Plan.Why, "the pipeline is a runbook, which deploys nothing")
		b.hasInputs(r, `{"count":2,"region":"eu"}`)
		b.want(len(b.stops(r)), 1)
		b.want(len(b.deployments(b.stops(r)[0])), 0)
		var run struct {
			Rollout struct {
				Environments []struct {
					RunsJobs bool `json:"runs_jobs"`
					Services []struct {
						Versions []struct{ Digest string } `json:"versions"`
					} `json:"services"`
					Deployments []any `json:"deployments"`
				} `json:"environments"`
			} `json:"rollout"`
		}
		b.ok(json.Unmarshal(b.inputsOfRun(r), &run))
		if e := run.Rollout.Environments[0]; !e.RunsJobs || e.Deployments == nil || len(e.Deployments) != 0 ||
			e.Services[0].Versions[0].Digest != digestOf(900) {
			t.Errorf("the environment of the program: found %+v", e)
		}
		b.want(b.placesOf(r), []string{"shop", "tools"})
		b.report(event.RolloutStarted{RolloutID: r.ID})
		b.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "sure", EnvironmentID: b.live.ID})
		_, err = b.rollouts.ApproveGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: "sure"})
		b.ok(err)
		b.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "live", EnvironmentID: b.live.ID})
		b.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: b.live.ID})
		b.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: b.live.ID})
		b.report(event.RolloutHealthy{RolloutID: r.ID})
		b.want(b.reload(r).State, core.RolloutCompleted)
		b.verifyJournal(r)
	}
	b.publish(b.artifact("registry.test/backfill/tool", "2.0", 901, time.Unix(1_700_000_001, 0)))
	sets, err := b.view.VersionSetsByApplication(t.Context(), org, []int64{b.book.ID}, core.Page{})
	b.ok(err)
	made, err := b.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: sets[b.book.ID].Nodes[0].ID, Inputs: json.RawMessage(`{"region":"eu"}`),
	})
	b.ok(err)
	_, err = b.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: made.Rollout.ID, VersionSetID: b.tool.ID})
	b.refused(err, "is a runbook: it deploys nothing")
}

// placesOf are the namespaces that the passage of a runbook opens.
func (b *runbooks) placesOf(r core.Rollout) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT p->>'namespace' FROM cd_rollout_places, jsonb_array_elements(places) p WHERE rollout_id = $1 AND p ? 'namespace' ORDER BY 1`, r.ID)
	b.ok(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.ok(err)
	return all
}

// R4-09: a runbook runs where the environment lets applications be, and where there is a cluster.
func TestWhereARunbookRuns(t *testing.T) {
	t.Parallel()
	b := newRunbooks(t)
	err := b.write("", jobStep("live", "drain", "kube-system"))
	b.refusedAt(err, "/definition/steps/0/environment", `found "kube-system"; expected one that the environment allows (namespaces: shop, tools)`)
	err = b.write("", jobStep("production", "drain", "shop"))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fmt.Sprint(fault.FieldsOf(err)), "does not support") {
		t.Errorf("a runbook with a driver that runs no jobs: found %v", err)
	}
}

// R4-09: what a runbook completes is not what is live, so no application has both kinds of pipeline once it has had a rollout.
func TestARunbookHasAnApplicationOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newRunbooks(t)
	deploys := func() error {
		return b.write("", `{"type":"deploy","environment":"staging","config":`+appEnvConfig("staging")+`}`)
	}
	runs := jobStep("live", "backfill", "tools")
	b.ok(deploys()) // nothing was rolled out yet
	b.ok(b.write("", runs))
	b.report(event.EnvironmentReady{EnvironmentID: b.live.ID})
	_, err := b.begin("")
	b.ok(err)
	b.refusedAt(deploys(), "/definition/steps", "found a pipeline that deploys, and the application has runs of a runbook; expected an application of its own")
	b.ok(b.write("", runs, jobStep("live", "again", "tools")))

	b.rollout(b.set)
	_, err = b.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: b.application.ID, Definition: json.RawMessage(`{"steps":[` + runs + `]}`),
	})
	b.refusedAt(err, "/definition/steps", "found a runbook, and the application has rollouts that deploy; expected an application of its own")
}

// R4-09, D58: what was run already is run again by a schedule, at each of its times, and by an event.
func TestAScheduledRunbook(t *testing.T) {
	t.Parallel()
	w := clocked(t) // 2027-01-15 08:00 UTC
	w.enforced()
	b := runbooksOf(w.shop)
	b.ok(b.write(regionInputs, jobStep("live", "backfill", "tools")))
	b.report(event.EnvironmentReady{EnvironmentID: b.live.ID})
	for _, n := range []trigger.NewTrigger{
		{Name: "nightly", Kind: core.TriggerSchedule, Config: json.RawMessage(`{"cron":"0 6 * * *","inputs":{"region":"eu"}}`)},
		{Name: "ci", Kind: core.TriggerEvent, Config: json.RawMessage(`{"types":["run"],"inputs":{"region":"us"}}`)},
	} {
		n.ApplicationID, n.Enabled = b.book.ID, true
		_, err := b.triggers.PutTrigger(t.Context(), user(), n)
		b.ok(err)
	}
	runs := func(region, by string) {
		t.Helper()
		d, _, err := b.triggers.DecideDue(t.Context())
		b.ok(err)
		if d.Outcome != core.TriggerBegan {
			t.Fatalf("found %s: %s; want that it began", d.Outcome, d.Reason)
		}
		r := core.Rollout{ID: d.RolloutID}
		b.hasInputs(r, `{"count":2,"region":"`+region+`"}`)
		principal, why := w.created(r)
		b.want([]string{principal, strings.SplitAfter(why, ")")[0]}, strings.Split(by, ": "))
		b.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "live", EnvironmentID: b.live.ID})
		b.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: b.live.ID})
		b.report(event.RolloutHealthy{RolloutID: r.ID})
		b.want(b.reload(r).State, core.RolloutCompleted)
		b.want(w.decide(), []string{})
	}
	for n := range 2 {
		w.now.Advance(24 * time.Hour)
		runs("eu", "schedule: trigger nightly (schedule)")
		_, err := b.triggers.SendEvent(t.Context(), user(), trigger.Event{ID: fmt.Sprint(n), Source: "ci", Type: "run"})
		b.ok(err)
		runs("us", "policy: trigger ci (event)")
	}
}
