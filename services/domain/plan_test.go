package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// planned is the row of the journal that has the plan of a rollout.
func (s *shop) planned(r core.Rollout) string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	var rows []string
	for _, row := range j.Nodes {
		if row.Verb == core.VerbPlan {
			rows = append(rows, row.Reason)
		}
	}
	return strings.Join(rows, "\n")
}

// plans checks that a rollout is planned so, everywhere that says it.
func (s *shop) plans(r core.Rollout, want planner.Strategy, why string) {
	s.t.Helper()
	if got := s.reload(r).Plan; got != (planner.Decision{Strategy: want, Why: why}) {
		s.t.Errorf("rollout_%d: found %+v; want %s: %s", r.ID, got, want, why)
	}
	s.want(s.planned(r), want.Words()+": "+why)
}

// weighted makes the shop's pipeline one with a weight of staging and one of production that needs an approval; more is what comes before
// its steps.
func (s *shop) weighted(more string) {
	s.t.Helper()
	_, err := s.setup.CreateFlowDefinition(s.t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{%s"steps":[
			{"type":"deploy","environment":"staging","gates":[{"weight":20,"soak_duration":60}],"config":%s},
			{"type":"deploy","environment":"production","gates":[{"weight":50,"soak_duration":600,"approval":{"reason":"half","expires_after":900}}],"config":%s}]}`,
			more, appEnvConfig("staging"), appEnvConfig("production"))),
	})
	s.ok(err)
	s.makeReady()
}

// refusedAt checks that an error is at one place of the input.
func (s *shop) refusedAt(err error, at, text string) {
	s.t.Helper()
	fields := fault.FieldsOf(err)
	if !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != at || !strings.Contains(fields[0].Problem, text) {
		s.t.Errorf("got %v %+v, want %s: %s", err, fields, at, text)
	}
}

// R4-15 to R4-17, D59: what decides about a rollout, and that everything says so.
func TestARolloutIsPlanned(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted("")
	create := func(n rollout.NewRollout) core.Rollout {
		t.Helper()
		n.Again = true
		made, err := s.rollouts.CreateRollout(t.Context(), user(), n)
		s.ok(err)
		s.plans(*made.Rollout, made.Rollout.Plan.Strategy, made.Rollout.Plan.Why)
		return *made.Rollout
	}
	first := create(rollout.NewRollout{VersionSetID: s.set.ID})
	s.plans(first, planner.Quick, "nothing of the application has been deployed successfully yet")
	s.want(s.stops(first)[0].SkipsWeights, core.SkipsFirstDeploy)
	s.succeed(first)
	next := s.release(2)
	second := create(rollout.NewRollout{VersionSetID: next.ID})
	s.plans(second, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped")
	s.want(s.stops(second)[1].SkipsWeights, core.WeightSkip(""))
	// A failed one is repeated as it was, unless the pipeline has changed since.
	s.report(event.RolloutFailed{RolloutID: second.ID, Reason: "x"})
	again, err := s.rollouts.RetryRollout(t.Context(), user(), second.ID, "mended")
	s.ok(err)
	s.plans(again, planner.Pipeline, fmt.Sprintf("rollout_%d, which it repeats, had the strategy pipeline", second.ID))
	s.report(event.RolloutFailed{RolloutID: again.ID, Reason: "x"})
	s.weighted(`"alwaysUsePipeline":false,`)
	anew, err := s.rollouts.RetryRollout(t.Context(), user(), again.ID, "mended")
	s.ok(err)
	s.plans(anew, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped")
	s.report(event.RolloutFailed{RolloutID: anew.ID, Reason: "x"})
	quick := create(rollout.NewRollout{VersionSetID: next.ID, Strategy: planner.ChooseQuick})
	s.plans(quick, planner.Quick, "the requester chose a quick sync")
	s.want(s.stops(quick)[1].SkipsWeights, core.SkipsQuickSync)
	s.report(event.RolloutFailed{RolloutID: quick.ID, Reason: "x"})
	again, err = s.rollouts.RetryRollout(t.Context(), user(), quick.ID, "mended")
	s.ok(err)
	s.plans(again, planner.Quick, fmt.Sprintf("rollout_%d, which it repeats, had the strategy quick sync", quick.ID))
	s.succeed(again)
	chosen := create(rollout.NewRollout{VersionSetID: s.release(3).ID, Strategy: planner.ChoosePipeline})
	s.plans(chosen, planner.Pipeline, "the requester chose the pipeline")
	// Pinned is pinned.
	_, err = s.pool.Exec(t.Context(), `UPDATE cd_rollouts SET strategy = 'quick' WHERE id = $1`, chosen.ID)
	if err == nil || !strings.Contains(err.Error(), "strategy") {
		t.Errorf("the strategy of a rollout was changed: %v", err)
	}
	// What is rolled back is planned by the rollback policy, not by messages and not by the one before it.
	s.begin(chosen, 0)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: chosen.ID})
	s.ok(err)
	s.plans(back, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped")
	s.verifyJournal(quick)
}

// R4-18, and what else cannot be chosen; nothing is begun or queued.
func TestAStrategyThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID, Strategy: "slow"})
	s.refusedAt(err, "/strategy", `found "slow"; expected auto, quick or pipeline`)
	_, err = s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID,
		Definition:    json.RawMessage(`{"steps":[{"type":"deploy","environment":"staging","config":` + appEnvConfig("staging") + `}]}`),
	})
	s.ok(err)
	s.makeReady()
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID, Strategy: planner.ChoosePipeline})
	s.refusedAt(err, "/strategy", "has no weights where the rollout goes; expected auto or quick")
	s.want(s.countOf(`SELECT count(*) FROM cd_rollouts`), 0)
	r := s.rollout(s.set)
	s.plans(r, planner.Quick, "the pipeline has no weights where the rollout goes")
}

// D59, R4-13, R4-14: a quick sync stops at no weight, whatever its program does: it sees none. What the weights require is required before
// it enters their environment, and a program that asks for the passage of a weight all the same is answered at once.
func TestAQuickSyncKeepsEveryCondition(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.weighted("")
	first := s.rollout(s.set)
	s.pass(first, "staging", "production")
	s.succeed(first)
	made, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: s.release(2).ID,
		Strategy:     planner.ChooseQuick,
	})
	s.ok(err)
	r := *made.Rollout
	s.handOver()
	var in struct {
		Rollout struct {
			Strategy     string
			Environments []struct {
				Gates        []core.FlowGate
				SkippedGates []core.FlowGate `json:"skipped_gates"`
			}
		}
		Pipeline struct{ Steps []map[string]any }
	}
	inputs := s.engine.started[len(s.engine.started)-1].Inputs
	s.ok(json.Unmarshal(inputs, &in))
	s.want(in.Rollout.Strategy, "quick")
	for i, e := range in.Rollout.Environments {
		if e.Gates == nil || len(e.Gates) != 0 || len(e.SkippedGates) != 1 || in.Pipeline.Steps[i]["gates"] != nil {
			t.Errorf("the program sees weights: %s", inputs)
		}
	}
	s.want(in.Rollout.Environments[1].SkippedGates[0].Approval.ExpiresAfter, 900)
	s.enter(r, "staging", "production")
	s.want(s.passed(r), []string{
		"staging (no approval required; will not stop at 20 %: the rollout is a quick sync; soak times of 60 seconds in all are omitted)",
	})
	if gates := s.gates(r); len(gates) != 1 || gates["production/50"].Reason != "half" {
		t.Errorf("found %+v; want the approval of the weight at the entrance", gates)
	}
	s.ok(s.approve(person(7), r, "production/50"))
	s.want(len(s.passed(r)), 2)
	s.want(strings.Contains(s.passed(r)[1], "will not stop at 50 %: the rollout is a quick sync"), true)
	s.enter(r, "production/50")
	s.want(len(s.passed(r)), 3)
	s.succeed(r)
	s.want(s.reload(r).State, core.RolloutCompleted)
	s.verifyJournal(r)
}

// D51: a policy decides about a quick sync before it begins, and where it would enter.
func TestAPolicyForbidsQuickSyncs(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.weighted(`"alwaysUsePipeline":true,`)
	create := func(choice planner.Choice) error {
		_, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID, Strategy: choice})
		return err
	}
	w.put(policy.NewPolicySet{Text: allowed + `@id("stop") @message("weights are stopped at") forbid (principal, action == Action::"rollout.create", resource)
		when { context has strategy && context.strategy == "quick" };`})
	w.refused(create(planner.ChooseQuick), "weights are stopped at")
	w.put(policy.NewPolicySet{Text: allowed + `@id("stop") @message("not here") forbid (principal, action == Action::"environment.enter", resource)
		when { resource.tier == "production" && context has strategy && context.strategy == "quick" };`})
	w.ok(create(planner.ChooseQuick))
	r := w.active()
	w.pass(r, "staging", "production")
	w.want(len(w.passed(r)), 1)
	w.want(strings.Contains(strings.Join(w.waits(r, "policy"), "\n"), "not here"), true)
}

// described is a commit with a message, as the registry service reports it.
func (w winter) described(n int, message string) core.VersionSet {
	w.t.Helper()
	at := time.Unix(1_700_000_000+int64(n), 0)
	changed, err := event.New(event.Header{ID: fmt.Sprintf("%s/described/%d", w.t.Name(), n), Source: event.SourceRegistry, Time: at, Organization: org}, event.ArtifactPublished{
		Image: "git:git.test/shop/config#main", Digest: shaOf(n), PublishedAt: at.UTC().Format(time.RFC3339), CommitMessage: message,
	})
	w.ok(err)
	w.publish(changed)
	return w.sets()[0]
}

// R4-15 [C], R4-16 [C], R4-22: messages of commits decide about what triggers begin, and about nothing else.
func TestTheMessageOfACommitDecides(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	w.described(901, "feat: all")
	w.weighted(`"commitMatcher":{"quickSync":"^(docs|fix)","pipeline":"(?i)risky"},"alwaysUsePipeline":true,`)
	begun := w.rollout(w.sets()[0])
	w.plans(begun, planner.Pipeline, "the pipeline has alwaysUsePipeline")
	w.succeed(begun)
	w.trigger(core.TriggerGit, `{}`)
	for i, c := range []struct {
		message string
		want    planner.Strategy
		why     string
	}{
		{"docs: typo\n\nlong", planner.Quick, "the message of commit 000000000000 (docs: typo) matches commitMatcher.quickSync"},
		{"fix: very RISKY", planner.Pipeline, "the message of commit 000000000000 (fix: very RISKY) matches commitMatcher.pipeline"},
		{"", planner.Pipeline, "the pipeline has alwaysUsePipeline"},
	} {
		w.described(910+i, c.message)
		w.want(len(w.decide()), 1)
		w.plans(w.active(), c.want, c.why)
		w.succeed(w.active())
	}
	// A member asks: the message does not count. And what is queued by a trigger is planned as what it begins.
	w.described(920, "docs: more")
	w.decide()
	busy := w.active()
	w.plans(busy, planner.Quick, "the message of commit 000000000000 (docs: more) matches commitMatcher.quickSync")
	set := w.described(921, "docs: queued")
	w.decide()
	w.succeed(busy)
	_, worked, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want(worked, true)
	w.plans(w.active(), planner.Quick, "the message of commit 000000000000 (docs: queued) matches commitMatcher.quickSync")
	w.succeed(w.active())
	again := w.rollout(set)
	w.plans(again, planner.Pipeline, "the pipeline has alwaysUsePipeline")
	w.verifyJournal(again)
}

// What was chosen waits in the queue with the request.
func TestAChosenStrategyIsQueued(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted("")
	s.people(5)
	s.succeed(s.rollout(s.set))
	_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(), core.RolloutPolicy{
		ApplicationID: s.application.ID, OnFailure: core.FailureStops, OnNewer: core.NewerQueued,
	})
	s.ok(err)
	busy := s.rollout(s.release(2))
	made, err := s.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{
		VersionSetID: s.release(3).ID,
		Strategy:     planner.ChooseQuick,
	})
	s.ok(err)
	if made.Queued == nil || made.Queued.Strategy != planner.ChooseQuick {
		t.Fatalf("found %+v", made)
	}
	s.succeed(busy)
	q, _, err := s.rollouts.BeginQueued(t.Context())
	s.ok(err)
	s.want(q.Outcome, "")
	s.plans(core.Rollout{ID: q.MadeRolloutID}, planner.Quick, "the requester chose a quick sync")
}

// D59: a process that is killed at any statement leaves a rollout with its plan, or none.
func TestAPlanSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := clocked(t)
	w.weighted("")
	mortal, died := w.mortal(w.now)
	create := func(ctx context.Context) error {
		_, err := mortal.rollouts.CreateRollout(ctx, user(), rollout.NewRollout{VersionSetID: w.set.ID, Strategy: planner.ChooseQuick})
		return err
	}
	kills := 0
	for n := int64(2); n < 400; n++ {
		died.left.Store(n)
		err := create(t.Context())
		through := died.left.Load() > 1
		died.left.Store(0)
		if err == nil && through {
			break
		}
		if kills++; err != nil {
			w.want(w.countOf(`SELECT count(*) FROM cd_rollouts r WHERE NOT EXISTS
				(SELECT FROM cd_rollout_transitions t WHERE t.rollout_id = r.id AND t.event = 'plan')`), 0)
		}
		if w.rolloutCount() == 1 {
			break // it died after the commit
		}
	}
	if kills < 10 {
		t.Errorf("died %d times; want at many statements", kills)
	}
	w.want(w.rolloutCount(), 1)
	w.plans(w.active(), planner.Quick, "the requester chose a quick sync")
}

// unplanned has the service write as a release that did not plan, until the returned function is called.
func (f *fixture) unplanned() (end func()) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
		CREATE FUNCTION unplanned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.strategy := ''; NEW.strategy_reason := ''; RETURN NEW; END
			$$;
		CREATE TRIGGER unplanned BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION unplanned();
		CREATE FUNCTION unplanned_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER a_unplanned BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW WHEN (NEW.event = 'plan') EXECUTE FUNCTION
			unplanned_row()`)
	f.ok(err)
	return func() {
		f.t.Helper()
		_, err := f.pool.Exec(f.t.Context(), `DROP FUNCTION unplanned() CASCADE; DROP FUNCTION unplanned_row() CASCADE`)
		f.ok(err)
	}
}

// A rollout of a release that did not plan has no strategy, is as whole as before, and is planned when it is repeated.
func TestARolloutOfAReleaseThatDidNotPlan(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.weighted("")
	end := s.unplanned()
	r := s.rollout(s.set)
	end()
	s.want(s.planned(r), "")
	s.want(s.reload(r).Plan, planner.Decision{})
	s.verifyJournal(r)
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "x"})
	again, err := s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.plans(again, planner.Quick, "nothing of the application has been deployed successfully yet")
}
