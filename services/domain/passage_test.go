package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// stored makes a pipeline the shop's without the checks of those that are written now.
func (s *shop) stored(definition string) {
	s.t.Helper()
	s.ok(s.store.ForSetup().In(s.t.Context(), org, func(ctx context.Context, tx setup.Tx) error {
		_, err := tx.AddFlowDefinition(ctx, core.FlowDefinition{
			ApplicationID: s.application.ID, Version: 7,
			Definition: json.RawMessage(definition),
		})
		return err
	}))
}

// requires gives an environment an approval of its own.
func (s *shop) requires(e core.Environment, own core.EnvironmentApproval) {
	s.t.Helper()
	_, err := s.setup.SetEnvironmentApproval(s.t.Context(), user(), e.ID, &own)
	s.ok(err)
}

// report emits events of the rollout's workflow and delivers them one by one.
func (s *shop) report(all ...event.Data) {
	s.t.Helper()
	for _, data := range all {
		s.deliver(s.emit(data, ""))
	}
}

// D46: an approval step that has the name of an environment replaced the rule of the environment.
func TestNothingThatHasTheNameOfAnEnvironmentReplacesWhatItAsks(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("platform", 3)
	own := core.EnvironmentApproval{GateRule: core.GateRule{Quorum: 2, Group: "platform", OnExpiry: core.ExpiryRejects}}
	_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.production.ID, &own)
	s.ok(err)
	definition := fmt.Sprintf(`{"steps":[
		{"type":"deploy","environment":"staging","config":%s},
		{"type":"approval","name":"production","requester_may_approve":true,"expires_after":60,"on_expiry":"approve"},
		{"type":"deploy","environment":"production","config":%s}]}`, appEnvConfig("staging"), appEnvConfig("production"))
	_, err = s.setup.CreateFlowDefinition(
		t.Context(), user(), setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: json.RawMessage(definition)},
	)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a step with the name of an environment: %v", err)
	}

	s.stored(definition)
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	s.want(s.gates(r)["production"].GateRule, core.GateRule{
		Quorum: 2, Group: "platform", ExpiresAfter: time.Minute,
		OnExpiry: core.ExpiryRejects, Also: []core.Requirement{{Quorum: 1}},
	})
	s.refused(s.approve(user(), r, "production"), `is for the group "platform" to answer`)
	requester := user()
	requester.Groups = []string{"platform"}
	s.refused(s.approve(requester, r, "production"), "someone else must approve")
}

// D46: where the environment and the pipeline name different groups, both have to agree; neither stands in for the other.
func TestTwoGroupsBothHaveToAgree(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("platform", 3)
	s.group("managers", 3)
	own := core.EnvironmentApproval{GateRule: core.GateRule{Quorum: 2, Group: "platform", OnExpiry: core.ExpiryRejects}}
	_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.production.ID, &own)
	s.ok(err)
	_, err = s.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{"steps":[{"type":"deploy","environment":"staging","config":%s},
			{"type":"deploy","environment":"production","config":%s,"approval":{"group":"managers"}}]}`,
			appEnvConfig("staging"), appEnvConfig("production"))),
	})
	s.ok(err)
	s.makeReady()
	r := s.rollout(s.set)
	s.enter(r, "staging", "production")
	waits := func(want string) {
		t.Helper()
		all, err := s.view.Waits(t.Context(), org, []int64{r.ID})
		s.ok(err)
		var found []string
		for _, w := range all[r.ID] {
			if w.GateID == "production" {
				found = append(found, w.Detail+" | "+w.Resolver)
			}
		}
		if text := strings.Join(found, "\n"); !strings.Contains(text, want) {
			t.Errorf("found %q, expected %q in it", text, want)
		}
	}
	s.refused(s.approve(person(59), r, "production"), "is in none of them")
	waits(`has 0 of 1 of the group "managers", 0 of 2 of the group "platform"`)
	machine := person(58, "managers")
	machine.Type = core.PrincipalAgent // a rule that names its group counts it
	s.ok(s.approve(person(50, "platform", "others"), r, "production"))
	s.ok(s.approve(person(51, "platform"), r, "production"))
	waits(`| members with the permission approve in the group "managers", but`)
	s.refused(s.approve(person(51, "platform", "managers"), r, "production"), "already")
	s.ok(s.approve(person(52, "platform"), r, "production")) // a third of the one group is none of the other
	s.want(len(s.gates(r)), 1)
	s.ok(s.approve(machine, r, "production"))
	s.want(len(s.gates(r)), 0)
	s.want(s.passed(r)[1],
		`production (production: approved by user 50 (platform), user 51 (platform), user 52 (platform), agent 58 (managers))`)
	s.verifyJournal(r)
}

// enter is the request of a passage.
func (s *shop) enter(r core.Rollout, gates ...string) {
	s.t.Helper()
	for _, gate := range gates {
		s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate})
	}
}

// passed are the passages in the journal, each with what satisfied it.
func (s *shop) passed(r core.Rollout) []string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	lines := []string{}
	for _, row := range j.Nodes {
		if row.Verb == core.VerbPassGate && row.Subject.Kind == core.SubjectRollout {
			lines = append(lines, row.GateID+" ("+row.Reason+")")
		}
	}
	return lines
}

// D46: a passage was granted although nobody had approved it.
func TestAPassageWaitsForTheQuorumOfItsApproval(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("release-managers", 2)
	s.asking("", `"quorum":2,"group":"release-managers","reason":"to the customers"`, "")
	r := s.rollout(s.set)
	s.enter(r, "staging", "release")
	gate := s.gates(r)["release"]
	if gate.Quorum != 1 {
		t.Errorf("the step between the environments was not requested: %+v", s.gates(r))
	}
	s.ok(s.approve(person(2), r, "release"))
	s.enter(r, "production", "production") // idempotent
	s.want(s.granted(), []string{"staging", "release"})
	if got := s.gates(r); len(got) != 2 || got["production"].Reason != "to the customers" || got["production"].Quorum != 2 {
		t.Errorf("open: %+v, expected the entrance and the weight that a first deploy skips", got)
	}
	ann, bob := person(7, "release-managers"), person(8, "release-managers")
	s.ok(s.approve(ann, r, "production"))
	s.ok(s.approve(person(2), r, "production/50"))
	s.want(s.granted(), []string{"staging", "release"})
	s.ok(s.approve(bob, r, "production"))
	s.want(s.granted(), []string{"staging", "release", "production"})
	s.enter(r, "production", "production/50") // answered again, and what was given at the entrance is not asked again
	s.want(s.granted(), []string{"staging", "release", "production", "production", "production/50"})
	s.want(len(s.gates(r)), 0)
	s.want(s.passed(r), []string{
		"staging (no approval required)", "release (release: approved by user 2)",
		"production (production: approved by user 7, user 8; production/50: approved by user 2; will not stop at 50 %: nothing is live there yet)",
		"production/50 (production/50: approved by user 2)",
	})
	s.verifyJournal(r)
}

// D46: a program that leaves out a step between environments comes to its approval at the next entrance.
func TestAStepThatAProgramLeavesOutIsRequestedAtTheEntrance(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	s.enter(r, "staging", "production")
	s.want(len(s.gates(r)), 3)
	s.ok(s.approve(person(2), r, "production"))
	s.ok(s.approve(person(2), r, "production/50"))
	s.want(s.granted(), []string{"staging"})
	s.ok(s.approve(person(2), r, "release"))
	s.want(s.granted(), []string{"staging", "production"})
}

// D46: approvals of weights at which a rollout does not stop were never requested.
func TestWeightsThatARolloutSkipsAreAskedAtTheEntrance(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	first := s.rollout(s.set)
	s.pass(first, "staging", "release", "production")
	s.succeed(first)
	second := s.rollout(s.release(2))
	s.enter(second, "staging", "release")
	s.ok(s.approve(person(2), second, "release"))
	s.enter(second, "production")
	s.want(len(s.gates(second)), 1) // something is live now: people are asked at the weight
	s.ok(s.approve(person(2), second, "production"))
	s.enter(second, "production/50")
	if _, open := s.gates(second)["production/50"]; !open {
		t.Errorf("open at the weight: %+v", s.gates(second))
	}
	s.ok(s.approve(person(2), second, "production/50"))
	s.succeed(second)

	again := s.rollout(s.sets()[0]) // the same versions are live
	s.enter(again, "staging", "release")
	s.ok(s.approve(person(2), again, "release"))
	s.enter(again, "production")
	s.want(len(s.gates(again)), 2)
	_, err := s.rollouts.CancelRollout(t.Context(), user(), again.ID, "")
	s.ok(err)

	third := s.rollout(s.release(3))
	s.enter(third, "staging", "release")
	s.ok(s.approve(person(2), third, "release"))
	s.report(event.RolloutPassageRequested{RolloutID: third.ID, GateID: "production", SkipsWeights: []int{50, 60}}) // the program says so
	s.want(len(s.gates(third)), 2)
	s.ok(s.approve(person(2), third, "production"))
	s.ok(s.approve(person(2), third, "production/50"))
	s.want(s.passed(third)[2], "production (production: approved by user 2; production/50: approved by user 2; "+
		"will not stop at 50 %: the driver skips them this time)")
	s.report(event.RolloutPassageRequested{RolloutID: third.ID, GateID: "production", SkipsWeights: []int{50, 60}}) // and once more
	var announced [][]int
	rows, err := s.pool.Query(t.Context(), `SELECT event->'data' FROM outbox WHERE event->>'type' = $1 ORDER BY id`, event.TypeRolloutPassageGranted)
	s.ok(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[event.RolloutPassageGranted])
	s.ok(err)
	for _, g := range all {
		if g.RolloutID == third.ID && g.GateID == "production" {
			announced = append(announced, g.PinnedWeights)
		}
	}
	if len(announced) != 2 || len(announced[0]) > 0 || len(announced[1]) > 0 {
		t.Errorf("announced with the weights %v, expected twice, and none that was skipped", announced)
	}
}

// D46: a hold and an approval are both needed, whichever ends last; the passage is opened once, by what came last.
func TestAPassageIsOpenedByWhateverComesLast(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	s.enter(r, "staging")
	_, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "lunch")
	s.ok(err)
	s.enter(r, "release")
	if got := s.reload(r); got.State != core.RolloutPaused || !got.AwaitingApproval {
		t.Errorf("on hold, and people are asked: %+v", got)
	}
	s.ok(s.approve(person(2), r, "release"))
	s.want(s.granted(), []string{"staging"})
	_, err = s.rollouts.ResumeRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.granted(), []string{"staging", "release"})

	s.enter(r, "production")
	_, err = s.rollouts.BreakGlass(t.Context(), person(3), r.ID, "the shop is down")
	s.ok(err)
	s.want(s.granted(), []string{"staging", "release", "production"})
	s.want(s.passed(r)[2], "production (production: passed by break-glass by user 3; production/50: passed by break-glass by user 3; "+
		"will not stop at 50 %: nothing is live there yet)")
	s.verifyJournal(r)
}

// D46: an expiry that approves opens a passage, one that rejects ends the rollout.
func TestAnExpiryAnswersAPassage(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking(`,"expires_after":60,"on_expiry":"approve"`, `"expires_after":120`, "")
	r := s.rollout(s.set)
	s.enter(r, "staging", "release")
	s.elapse()
	s.expire()
	s.want(s.passed(r), []string{"staging (no approval required)", "release (release: approved by expiry)"})
	s.enter(r, "production")
	s.elapse()
	s.expire()
	if got := s.reload(r); got.State != core.RolloutCancelled {
		t.Errorf("after the rejection: %+v", got)
	}
	s.enter(r, "production") // after the end nothing is granted
	s.want(s.granted(), []string{"staging", "release"})
	s.verifyJournal(r)
}

// E75, D46: what a program requests on its own account is one more condition, and replaces none.
func TestAnApprovalOfTheProgramIsOneMoreCondition(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("release-managers", 2)
	s.asking("", `"quorum":2,"group":"release-managers"`, "")
	r := s.rollout(s.set)
	s.enter(r, "staging")
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "smoke test", EnvironmentID: s.production.ID})
	s.enter(r, "release")
	s.ok(s.approve(person(2), r, "release"))
	s.want(s.granted(), []string{"staging"})
	s.ok(s.approve(person(2), r, "smoke test"))
	s.want(s.granted(), []string{"staging", "release"})

	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID}) // early, under the pinned rule
	s.refused(s.approve(person(2), r, "production"), `is for the group "release-managers" to answer`)
	s.ok(s.approve(person(7, "release-managers"), r, "production"))
	s.enter(r, "production")
	s.ok(s.approve(person(2), r, "production/50"))
	s.want(s.granted(), []string{"staging", "release"})
	s.ok(s.approve(person(8, "release-managers"), r, "production"))
	s.want(s.granted(), []string{"staging", "release", "production"})
}

// A program of an earlier release requests its approvals itself, waits for the answers, and then requests the passage.
func TestAProgramOfAnEarlierReleaseComesToItsEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	s.enter(r, "staging")
	for _, gate := range []string{"release", "production"} {
		s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: gate})
		s.ok(s.approve(person(2), r, gate))
	}
	s.enter(r, "production")
	s.want(s.granted(), []string{"staging", "production"})
	s.report(event.RolloutHealthy{RolloutID: r.ID})
	if got := s.reload(r); got.State != core.RolloutCompleted {
		t.Errorf("found %s", got.State)
	}
	s.verifyJournal(r)
}

// D46: what a program reports from beyond a passage that was never granted advances nothing, and fails the rollout.
func TestAReportFromBeyondAPassageFailsTheRollout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// pass are the passages that were granted before.
		pass   []string
		report func(s *shop, r core.Rollout) event.Data
		want   string
	}{
		{"a deployment starts", nil, func(s *shop, r core.Rollout) event.Data {
			return event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID}
		}, `breach: its program reported a deployment, but the passage "staging" was never granted`},
		{"a deployment is healthy", []string{"staging", "release"}, func(s *shop, r core.Rollout) event.Data {
			return event.DeploymentHealthy{DeploymentID: s.deployments(s.stops(r)[1])[0].ID}
		}, `breach: its program reported a deployment, but the passage "production" was never granted`},
		{"a commit", nil, func(s *shop, r core.Rollout) event.Data {
			return event.DeploymentCommitted{
				DeploymentID: s.deployments(s.stops(r)[0])[0].ID, CommitSHA: strings.Repeat("a", 40),
				ManifestDigest: digestOf(1),
			}
		}, `breach: its program reported a commit, but the passage "staging" was never granted`},
		{"a job runs", nil, func(s *shop, r core.Rollout) event.Data {
			started, _ := s.jobEvents(r, 1, "")
			return started
		}, `breach: its program reported that a job runs there, but the passage "staging" was never granted`},
		{"a weight is reached", nil, func(s *shop, r core.Rollout) event.Data {
			return event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: s.production.ID, Weight: 50}
		}, `breach: its program reported that it waits at 50 %, but the passage "production" was never granted`},
		{"a weight is left", []string{"staging", "release", "production"}, func(s *shop, r core.Rollout) event.Data {
			return event.DeploymentAdvance{DeploymentID: s.deployments(s.stops(r)[1])[0].ID, Weight: 50}
		}, `breach: its program reported a deployment at 50 %, but the passage "production/50" was never granted`},
		{"an environment is healthy", []string{"staging", "release", "production"}, func(s *shop, r core.Rollout) event.Data {
			return event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: s.production.ID}
		}, `breach: its program reported a healthy environment, but the passage "production/50" was never granted`},
		{"the rollout is healthy", []string{"staging", "release"}, func(_ *shop, r core.Rollout) event.Data {
			return event.RolloutHealthy{RolloutID: r.ID}
		}, `breach: its program reported its end, but the passage "production" was never granted`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := guarded(t)
			s.asking("", "", "")
			first := s.rollout(s.set) // so that the next one stops at its weights
			s.pass(first, "staging", "release", "production")
			s.succeed(first)
			r := s.rollout(s.release(2))
			s.handOver()
			s.pass(r, tt.pass...)
			s.report(tt.report(s, r))
			if got := s.reload(r); got.State != core.RolloutFailed {
				t.Errorf("found %s, expected it to fail", got.State)
			}
			j, err := s.view.Journal(t.Context(), org, r.ID, core.Page{First: 500})
			s.ok(err)
			found, beyond := "", ""
			for _, row := range j.Nodes {
				if row.Breach && len(row.Conditions) == 1 && row.Conditions[0].Kind == core.ConditionPassage {
					found, beyond = row.Reason, row.Conditions[0].GateID
				}
			}
			s.want(found, tt.want)
			s.want(strings.Contains(tt.want, fmt.Sprintf("the passage %q", beyond)), true)
			s.handOver()
			s.want(s.engine.cancels, []string{fmt.Sprintf("rollout-%d", r.ID)})
			if n, err := s.store.Breaches(t.Context()); err != nil || n != 1 {
				t.Errorf("counted %d breaches, %v", n, err)
			}
			check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 50})
			s.ok(err)
			if len(check.Differences) != 1 || !strings.Contains(check.Differences[0].Problem, tt.want) {
				t.Errorf("the check found %+v", check.Differences)
			}
		})
	}
}

// D46: a driver of an earlier release reports that an environment has started before it requests the passage; a failure claims nothing.
func TestAnEarlyStartAndAFailureAreNoBreach(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	r := s.rollout(s.set)
	s.report(event.RolloutStarted{RolloutID: r.ID}, event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	if e := s.stops(r)[0]; e.State != core.RolloutPending {
		t.Errorf("an environment that was not entered is %s", e.State)
	}
	s.pass(r, "staging")
	s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
	if e := s.stops(r)[0]; e.State != core.RolloutInProgress {
		t.Errorf("an environment with a deployment is %s", e.State)
	}
	dep := s.deployments(s.stops(r)[1])[0]
	s.report(event.DeploymentFailed{DeploymentID: dep.ID, Reason: "no such cluster"})
	if got := s.reload(r); got.State != core.RolloutInProgress || s.stops(r)[1].State != core.RolloutPending {
		t.Errorf("after a failure where nothing was entered: %s", got.State)
	}
	s.report(
		event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: s.production.ID, Reason: "no"},
		event.RolloutFailed{RolloutID: r.ID, Reason: "no"},
	)
	s.verifyJournal(r)
	if n, err := s.store.Breaches(t.Context()); err != nil || n != 0 {
		t.Errorf("counted %d breaches, %v", n, err)
	}
}

// D46: the check of the journal finds passages of earlier releases that were granted, or passed by, without their approval.
func TestTheJournalCheckFindsBreachesInOldJournals(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	s.succeed(r) // without any passage, as was once allowed
	check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 50})
	s.ok(err)
	problems := map[string]int{}
	for _, d := range check.Differences {
		_, problem, _ := strings.Cut(d.Problem, ": ")
		problems[problem]++
	}
	// Two deployments start and end in each environment, and the environment ends.
	s.want(problems, map[string]int{
		`found it beyond passage "staging", which had not been granted`: 5, `found it beyond passage "production", which had not been granted`: 5,
	})
}

// D46: the honest events of a whole rollout, in any order that its program can cause, end in the same states and breach nothing.
func TestWhatAnHonestProgramReportsIsNoBreachInAnyOrder(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	for round := range 6 {
		r := s.rollout(s.release(round + 1))
		var late []event.Event // of environments that were granted before, delivered later and twice
		for i, e := range s.stops(r) {
			if i == 1 {
				s.pass(r, "release")
			}
			name := []string{"staging", "production"}[i]
			s.pass(r, name)
			reports := []event.Data{event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID}}
			for _, d := range s.deployments(e) {
				reports = append(reports, event.DeploymentStarted{DeploymentID: d.ID}, event.DeploymentHealthy{DeploymentID: d.ID})
			}
			for _, w := range e.Weights {
				s.pass(r, fmt.Sprintf("%s/%d", name, w.Weight))
			}
			for n := range reports {
				late = append(late, s.emit(reports[(n*3+round)%len(reports)], ""))
			}
		}
		late = append(late, late...)
		//nolint:gosec // seeded on purpose
		rand.New(rand.NewPCG(uint64(round), 46)).Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
		s.deliver(late...)
		s.report(event.RolloutHealthy{RolloutID: r.ID})
		if got := s.reload(r); got.State != core.RolloutCompleted {
			t.Fatalf("round %d: found %s: %v", round, got.State, s.story(r))
		}
	}
	check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 50})
	s.ok(err)
	s.want(len(check.Differences), 0)
}

// One row for each condition of a requested passage, with who can end it.
func TestWhatAPassageWaitsForHasARowForEachCondition(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.group("release-managers", 2)
	s.asking("", `"quorum":2,"group":"release-managers"`, "")
	r := s.rollout(s.set)
	s.pass(r, "staging", "release")
	_, err := s.rollouts.PauseRollout(t.Context(), user(), r.ID, "lunch")
	s.ok(err)
	s.enter(r, "production")
	s.ok(s.approve(person(7, "release-managers"), r, "production"))
	waits, err := s.view.Waits(t.Context(), org, []int64{r.ID})
	s.ok(err)
	lines, structure := []string{}, []string{}
	for _, w := range waits[r.ID] {
		if w.Since == nil {
			t.Errorf("found no beginning of %q", w.Detail)
		}
		lines = append(lines, string(w.Kind)+": "+w.Detail+" | "+w.Resolver)
		structure = append(structure, fmt.Sprint(w.Status, " ", w.Subject, " ", w.Passage, " ", w.Requirements, " ", len(w.Approvers)))
	}
	// The same as structure: what a client would otherwise have to read from the sentences. The first approver is the requester.
	s.want(structure, []string{
		"stopped   [] 0",
		"pending production production [{{release-managers 2} 1}] 1",
		"pending production/50 production [{{ 1} 0}] 1",
	})
	s.want(lines, []string{
		"pause: paused by release-managers-0: lunch | members with the permission deploy",
		`approval: gate "production" asks for approval, and has 1 of 2 | members with the permission approve in the group "release-managers", ` +
			"but not who has asked for the rollout",
		`approval: gate "production/50" asks for approval, and has 0 of 1; passage "production" needs it | members with the permission approve, ` +
			"but not who has asked for the rollout",
	})
}
