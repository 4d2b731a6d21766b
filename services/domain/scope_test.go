package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// guarded replaces the shop's pipeline: staging, an approval step without a name, a pause, then production with an approval of its own.
func (s *shop) guarded() {
	s.t.Helper()
	_, err := s.setup.CreateFlowDefinition(s.t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{"steps":[
		{"type":"deploy","environment":"staging","config":%s},
		{"type":"approval","reason":"is staging good?"},
		{"type":"pause","duration":60},
		{"type":"deploy","environment":"production","approval":{"reason":"release"},"config":%s}]}`, appEnvConfig("staging"),
			appEnvConfig("production")))})
	s.ok(err)
	s.makeReady()
}

// stepsOf are the steps that the program of the newest rollout walks, as "type environment-or-name".
func (s *shop) stepsOf(r core.Rollout) []string {
	s.t.Helper()
	s.handOver()
	w := s.engine.started[len(s.engine.started)-1]
	s.want(w.ID, "rollout-"+itoa(r.ID))
	var in struct {
		Rollout struct {
			Environments []struct{ Name string }
		}
		Pipeline struct {
			Steps []struct{ Type, Environment, Name string }
		}
	}
	s.ok(json.Unmarshal(w.Inputs, &in))
	var all []string
	for _, one := range in.Pipeline.Steps {
		all = append(all, strings.TrimSpace(one.Type+" "+one.Environment+one.Name))
	}
	var environments []string
	for _, e := range in.Rollout.Environments {
		environments = append(environments, e.Name)
	}
	return append(all, "in "+strings.Join(environments, " "))
}

func (s *shop) skips(r core.Rollout) map[int64]core.SkipCause {
	s.t.Helper()
	skips, err := s.view.SkipsByRollout(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	found := map[int64]core.SkipCause{}
	for _, one := range skips[r.ID] {
		found[one.EnvironmentID] = one.Cause
	}
	return found
}

// begin has every deployment of an environment begin.
func (s *shop) begin(r core.Rollout, stop int) {
	s.t.Helper()
	for _, d := range s.deployments(s.stops(r)[stop]) {
		s.report(event.DeploymentStarted{DeploymentID: d.ID})
	}
}

// A rollback neither enters an environment that runs its target, nor waits for anybody's approval of it.
func TestARollbackSkipsWhatRunsItsTargetAndItsApprovals(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.begin(r, 0)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, Reason: "incident 99"})
	s.ok(err)
	s.want(s.stepsOf(back), []string{"deploy staging", "in staging"})
	s.want(s.skips(back), map[int64]core.SkipCause{s.production.ID: core.SkipUnchanged})
	if story := strings.Join(s.story(back), "; "); !strings.Contains(story, "rollout skip pending→pending") {
		t.Errorf("the journal: %s", story)
	}
	s.succeed(back)
	if got := s.reload(back); got.State != core.RolloutCompleted || got.RollbackOf != r.ID || !got.IsRollback {
		t.Errorf("the rollback: %+v", got)
	}
	if got := s.reload(r); got.RolledBackBy != back.ID {
		t.Errorf("what it takes back: %+v", got)
	}
	s.verifyJournal(back)
}

func TestAnAutomaticRollbackWaitsForNobodyWhereNothingChanges(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.begin(r, 0)
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "no"})
	s.close()
	done, worked := s.due()
	if !worked || done.MadeRolloutID == 0 {
		t.Fatalf("rolled back: %+v", done)
	}
	back := s.reload(core.Rollout{ID: done.MadeRolloutID})
	s.want(s.stepsOf(back), []string{"deploy staging", "in staging"})
	s.want(back.RollbackOf, r.ID)
	s.want(s.reload(r).RolledBackBy, back.ID)
}

// An environment is unchanged only while the record excludes that anything has happened there: a deployment that began, or the leave to
// enter it, whose beginning may still be on its way.
func TestWhatMayHaveBeenTouchedIsNotUnchanged(t *testing.T) {
	t.Parallel()
	for name, touch := range map[string]func(*shop, core.Rollout){
		"a deployment has begun": func(s *shop, r core.Rollout) { s.begin(r, 1) },
		"it may be entered": func(s *shop, r core.Rollout) {
			s.pass(r, "production")
		},
		"a failure whose beginning was not heard of": func(s *shop, r core.Rollout) {
			s.report(event.DeploymentFailed{DeploymentID: s.deployments(s.stops(r)[1])[0].ID, Reason: "no"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.guarded()
			s.succeed(s.rollout(s.set))
			r := s.rollout(s.release(2))
			s.begin(r, 0)
			touch(s, r)
			back, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID})
			s.ok(err)
			s.want(s.stepsOf(back), []string{"deploy staging", "approval", "pause", "deploy production", "in staging production"})
		})
	}
}

func TestARollbackGoesWhereItIsAskedTo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.begin(r, 0)
	s.begin(r, 1)
	refused := func(scope rollout.Scope, want string) {
		t.Helper()
		_, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, Scope: scope})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", scope, err, want)
		}
	}
	refused(rollout.Scope{Only: []string{"prod"}},
		`/environments/0: found "prod"; expected an environment of the pipeline: staging, production`)
	refused(rollout.Scope{Except: []string{"production", "staging"}}, `expected at least one to be left`)
	if got := s.reload(r); got.State != core.RolloutInProgress {
		t.Errorf("what was refused has changed something: %+v", got)
	}
	// Staging is broken: leaving it out must not depend on it. The approval before production stays, for it guards production; the pause
	// after staging does not.
	s.ok(s.fail(s.staging.ID))
	back, err := s.rollouts.RollbackRollout(t.Context(), user(),
		rollout.Rollback{RolloutID: r.ID, Scope: rollout.Scope{Only: []string{"production"}}})
	s.ok(err)
	s.want(s.stepsOf(back), []string{"approval step-1", "deploy production", "in production"})
	s.want(s.skips(back), map[int64]core.SkipCause{s.staging.ID: core.SkipExcluded})
	s.report(event.ApprovalRequested{RolloutID: back.ID, GateID: "step-1"})
	s.refused(s.approve(user(), back, "step-1"), "requested rollout_3, so someone else must approve") // it guards production

	// Its retry leaves out the same.
	s.begin(back, 0)
	s.report(event.RolloutFailed{RolloutID: back.ID, Reason: "no"})
	again, err := s.rollouts.RetryRollout(t.Context(), user(), back.ID, "")
	s.ok(err)
	s.want(again.RollbackOf, r.ID)
	s.want(s.skips(again), map[int64]core.SkipCause{s.staging.ID: core.SkipExcluded})
}

// A policy that goes back at once trusts what has run there: a set that has not passes every gate, whichever verb brings it.
func TestARollbackToWhatNeverRanThereStopsAtItsGates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.rollouts.SetRollbackPolicy(t.Context(), user(), core.RollbackPolicy{ApplicationID: s.application.ID, InFull: true})
	s.ok(err)
	s.succeed(s.rollout(s.set))
	never, r := s.release(2), s.rollout(s.release(3))
	for stop := range s.stops(r) {
		s.begin(r, stop)
	}
	back := func(of core.Rollout, to core.VersionSet) (made core.Rollout, full bool) {
		t.Helper()
		made, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: of.ID, VersionSetID: to.ID})
		s.ok(err)
		s.handOver()
		return made, strings.Contains(string(s.engine.started[len(s.engine.started)-1].Inputs), `"promote_full": true`)
	}
	made, full := back(r, never)
	s.want(full, false)
	// In staging alone it has run, and production is not asked of staging.
	s.report(event.RolloutEnvironmentHealthy{RolloutID: made.ID, EnvironmentID: s.staging.ID})
	s.begin(made, 1)
	_, err = s.rollouts.CancelRollout(t.Context(), user(), made.ID, "")
	s.ok(err)
	made, full = back(r, never)
	s.want(full, false)
	s.begin(made, 0)
	_, full = back(made, s.set)
	s.want(full, true)
}

// What a rollback leaves out by request may have left the pipeline when it is retried.
func TestARollbackIsRetriedWithoutWhatIsNoLongerInThePipeline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	s.begin(r, 0)
	s.begin(r, 1)
	back, err := s.rollouts.RollbackRollout(t.Context(), user(),
		rollout.Rollback{RolloutID: r.ID, Scope: rollout.Scope{Except: []string{"staging"}}})
	s.ok(err)
	s.begin(back, 0)
	s.report(event.RolloutFailed{RolloutID: back.ID, Reason: "no"})
	_, err = s.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: pipeline("production")})
	s.ok(err)
	s.makeReady()
	again, err := s.rollouts.RetryRollout(t.Context(), user(), back.ID, "")
	s.ok(err)
	s.want(s.stepsOf(again), []string{"deploy production", "in production"})
}

func TestASetThatIsLiveEverywhereIsRolledOutAgainOnlyOnRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
	s.refused(err, `set-1 is live already in every environment of "shop"`)
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID, Again: true})
	s.ok(err)

	latest, err := s.view.LatestFlowDefinitions(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	was := latest[s.application.ID]
	spaced := json.RawMessage(strings.ReplaceAll(string(was.Definition), ":", " : "))
	made, err := s.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: spaced})
	s.ok(err)
	if made.ID != was.ID || !made.Unchanged {
		t.Errorf("the same pipeline again: %+v, was %+v", made, was)
	}
}

// Break-glass is a person's, with the permission and a reason, and passes what is open and what comes.
func TestBreakGlassPassesTheApprovalsOfOneRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "step-1"})
	try := func(a core.Actor, reason string) error {
		_, err := s.rollouts.BreakGlass(t.Context(), a, r.ID, reason)
		return err
	}
	deployer := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 3, Permissions: core.RoleDeployer.Permissions()}
	machine := core.Actor{Organization: org, Type: core.PrincipalAgent, ID: 4, Name: "ci", Permissions: core.RoleOwner.Permissions()}
	program := core.Actor{Organization: org, Type: core.PrincipalSystem, Permissions: core.RoleOwner.Permissions()}
	for name, err := range map[string]error{
		"a deployer": try(deployer, "down"), "a machine": try(machine, "down"),
		"a program": try(program, "down"),
	} {
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := try(user(), " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	s.want(len(s.gates(r)), 1)

	s.ok(try(user(), "production is down"))
	s.refused(try(user(), "once more"), "passed by break-glass already")
	s.want(len(s.gates(r)), 0)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	s.want(len(s.gates(r)), 0)
	s.want(s.resolved(), []string{"step-1 approved by user", "production approved by user"})
	got := s.reload(r)
	if got.AwaitingApproval || got.Glass == nil || got.Glass.ID != 1 || got.Glass.Reason != "production is down" {
		t.Errorf("the rollout says: %+v", got.Glass)
	}
	times, last, err := s.store.BrokenGlass(t.Context())
	s.ok(err)
	if times != 1 || last.IsZero() {
		t.Errorf("for the metrics: %d, %s", times, last)
	}
	s.verifyJournal(r)

	// Another rollout has its own glass, and a rollback may break it from the beginning.
	s.succeed(r)
	second := s.rollout(s.release(2))
	s.begin(second, 0)
	s.begin(second, 1)
	_, err = s.rollouts.RollbackRollout(t.Context(), deployer, rollout.Rollback{RolloutID: second.ID, Reason: "down", BreakGlass: true})
	if !fault.Is(err, fault.Denied) {
		t.Errorf("a deployer: %v", err)
	}
	back, err := s.rollouts.RollbackRollout(t.Context(), user(),
		rollout.Rollback{RolloutID: second.ID, Reason: "down again", BreakGlass: true})
	s.ok(err)
	s.report(event.ApprovalRequested{RolloutID: back.ID, GateID: "step-1"})
	s.want(len(s.gates(back)), 0)
	s.verifyJournal(back)
}

// The database, too, knows that only a person with a reason breaks the glass.
func TestNoProgramCanWriteThatTheGlassIsBroken(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	for _, by := range []string{"'system', NULL, 'x'", "'agent', 7, 'x'", "'user', NULL, 'x'", "'policy', 1, 'x'", "'user', 1, ''"} {
		_, err := s.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, principal_id, reason)
			VALUES (1, %d, 'pending', 'pending', 'break_glass', %s)`, r.ID, by))
		if err == nil || !strings.Contains(err.Error(), "cd_rollout_transitions_person_breaks_the_glass") {
			t.Errorf("%s: %v", by, err)
		}
	}
}

// What a policy is about to do is shown, with its reason, and can be stopped.
func TestAnAutomaticRollbackIsAnnouncedAndCanBeStopped(t *testing.T) {
	t.Parallel()
	w, r := live(t)
	outlook := func() core.RollbackOutlook {
		t.Helper()
		all, err := w.view.RollbackOutlooks(t.Context(), org, []int64{r.ID})
		w.ok(err)
		return all[r.ID]
	}
	_, err := w.rollouts.StopAutomaticRollback(t.Context(), user(), r.ID, "")
	w.refused(err, "no automatic rollback of rollout_2 is due")
	w.sees(0, 5, "degraded")
	got := outlook()
	if got.DueAt == nil || !got.DueAt.Equal(instant(35)) || !strings.Contains(got.Why, "rolls back after 30 min") ||
		got.State() != core.RollbackDue {
		t.Errorf("what is due: %+v", got)
	}
	viewer := core.Actor{Organization: org, Type: core.PrincipalUser, ID: 5, Permissions: core.RoleViewer.Permissions()}
	if _, err := w.rollouts.StopAutomaticRollback(t.Context(), viewer, r.ID, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("a viewer: %v", err)
	}
	_, err = w.rollouts.StopAutomaticRollback(t.Context(), user(), r.ID, "we are looking")
	w.ok(err)
	w.sees(0, 6, "healthy")
	w.sees(0, 7, "degraded")
	w.until(500)
	w.nothingDue("stopped, and degraded again")
	if got := outlook(); got.State() != core.RollbackDropped || got.Outcome != "stopped by user 1: we are looking" || got.DueAt != nil {
		t.Errorf("after it was stopped: %+v", got)
	}
	_, err = w.rollouts.StopAutomaticRollback(t.Context(), user(), r.ID, "")
	w.refused(err, "no automatic rollback of rollout_2 is due any more: stopped by user 1")
	if story := strings.Join(w.story(r), "; "); !strings.Contains(story, "rollout stop_rollback completed→completed") {
		t.Errorf("the journal: %s", story)
	}
	w.verifyJournal(r)
}

// An aborted rollout has a status of its own, and what the server refuses is not offered.
func TestAbortedIsAStatusOfItsOwnAndAbortIsOfferedOnlyWhereItIsTaken(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	may := func() error {
		t.Helper()
		all, err := s.view.Standings(t.Context(), org, []int64{r.ID})
		s.ok(err)
		return all[r.ID].May(user(), core.ActionAbortRollout)
	}
	_, err := s.rollouts.AbortRollout(t.Context(), user(), r.ID, "")
	s.refused(err, "rollout_1 is pending, and nothing is being deployed; cancel it instead")
	s.refused(may(), "nothing is being deployed")
	s.begin(r, 0)
	s.ok(may())
	_, err = s.rollouts.AbortRollout(t.Context(), user(), r.ID, "slow")
	s.ok(err)
	s.want(s.reload(r).Status(), core.StatusAborting)
	s.report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "taken back"})
	got := s.reload(r)
	s.want(got.Status(), core.StatusAborted)
	s.want(got.StatusWithin(s.stops(r)[0].State), core.StatusAborted)
	s.want(got.StatusWithin(s.stops(r)[1].State), core.RolloutStatus("pending"))
	s.want(got.StatusOf(s.deployments(s.stops(r)[0])[0].State), core.StatusAborted)
	waits, err := s.view.Waits(t.Context(), org, []int64{r.ID})
	s.ok(err)
	if all := waits[r.ID]; len(all) != 1 || !strings.HasPrefix(all[0].Detail, "aborted by ") ||
		!strings.Contains(all[0].Resolver, "retry it, roll it back or cancel it") {
		t.Errorf("it waits for: %+v", all)
	}
	_, err = s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.reload(r).Status(), core.RolloutStatus("in_progress"))
	_, err = s.rollouts.CancelRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.reload(r).Status(), core.RolloutStatus("cancelled"))
}

// D57: a rollout goes to the first environments of the pipeline only. It asks and waits for nothing behind them, leaves what runs
// there as it is, and a retry goes where it went.
func TestARolloutToAPartOfThePipeline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	s.succeed(s.rollout(s.set))
	next := s.release(2)
	create := func(scope rollout.Scope) (core.Rollout, error) {
		made, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: next.ID, Scope: scope})
		if made.Rollout == nil {
			return core.Rollout{}, err
		}
		return *made.Rollout, err
	}
	// Controls of an environment guard what comes after it: they cannot be left out with it.
	for want, scope := range map[string]rollout.Scope{
		"found production without staging":    {Only: []string{"production"}},
		"production without staging, which":   {Except: []string{"staging"}},
		`found "qa"; expected an environment`: {Only: []string{"qa"}},
		"found every environment":             {Except: []string{"production", "staging"}},
	} {
		if _, err := create(scope); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.Public(err), want) {
			t.Errorf("%+v: found %v, want %q", scope, err, want)
		}
	}
	r, err := create(rollout.Scope{Only: []string{"staging"}})
	s.ok(err)
	s.want(s.stepsOf(r), []string{"deploy staging", "in staging"})
	s.want(s.skips(r), map[int64]core.SkipCause{s.production.ID: core.SkipExcluded})
	s.begin(r, 0)
	_, err = s.rollouts.CancelRollout(t.Context(), user(), r.ID, "a typing mistake")
	s.ok(err)
	again, err := s.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	s.ok(err)
	s.want(s.stepsOf(again), []string{"deploy staging", "in staging"})
	s.want(s.skips(again), map[int64]core.SkipCause{s.production.ID: core.SkipExcluded})
	s.succeed(again)
	if got := s.reload(again); got.State != core.RolloutCompleted || got.RollbackOf != 0 || got.IsRollback {
		t.Errorf("the rollout: %+v", got)
	}
	s.verifyJournal(again)
	// The whole pipeline is left to do, with its approvals.
	s.want(s.stepsOf(s.rollout(next)), []string{"deploy staging", "approval", "pause", "deploy production", "in staging production"})
}

// A rollout to a part is not queued: the queue has whole rollouts.
func TestARolloutToAPartIsNotQueued(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.guarded()
	_, err := s.rollouts.SetRolloutPolicy(t.Context(), user(), core.RolloutPolicy{
		ApplicationID: s.application.ID, OnFailure: core.DefaultRolloutPolicy(0).OnFailure, OnNewer: core.NewerQueued,
	})
	s.ok(err)
	s.rollout(s.set)
	next := s.release(2)
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: next.ID, Scope: rollout.Scope{Only: []string{"staging"}},
	})
	if !fault.Is(err, fault.Refused) || !strings.Contains(fault.Public(err), "a rollout to some environments is not queued") {
		t.Errorf("found %v", err)
	}
}
