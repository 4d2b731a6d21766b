package domain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// checked is everything that checking the journal finds.
func (s *shop) checked() []rollout.JournalDifference {
	s.t.Helper()
	var found []rollout.JournalDifference
	p := core.Page{First: 500}
	for {
		check, err := s.rollouts.CheckJournal(s.t.Context(), user(), p)
		s.ok(err)
		found = append(found, unlike(check)...)
		if check.Next == "" {
			return found
		}
		p.After = check.Next
	}
}

func TestTheJournalCheckFindsWhatWasTamperedWith(t *testing.T) { // R42
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.succeed(r)
	if found := s.checked(); len(found) > 0 {
		t.Fatalf("an honest record: %v", found)
	}
	d := s.deployments(s.stops(r)[0])[0]
	for _, sql := range []string{
		`ALTER TABLE cd_rollouts DISABLE TRIGGER cd_rollouts_ended_is_final`,
		`UPDATE cd_rollouts SET state = 'failed'`,
		`UPDATE cd_rollout_environments SET finished_at = finished_at + interval '1 hour' WHERE position = 1`,
		`ALTER TABLE cd_deployment_transitions DISABLE TRIGGER cd_deployment_transitions_are_append_only`,
		fmt.Sprintf(`DELETE FROM cd_deployment_transitions WHERE deployment_id = %d AND event = 'start'`, d.ID),
		fmt.Sprintf(`UPDATE cd_cells SET latest_state = 'failed' WHERE environment_id = %d`, s.staging.ID),
		fmt.Sprintf(`DELETE FROM cd_cells WHERE environment_id = %d`, s.production.ID),
	} {
		_, err := s.pool.Exec(t.Context(), sql)
		s.ok(err)
	}
	found := s.checked()
	text := make([]string, len(found))
	for i, f := range found {
		text[i] = fmt.Sprintf("%s %s", f.Subject.Kind, f.Problem)
	}
	for _, want := range []string{
		"rollout the state is failed; the journal says completed", "rolloutenvironment it ended at",
		"found it from deploying; expected from pending, where the row before leaves it", "deployment it started at",
		fmt.Sprintf("rolloutenvironment the matrix has for environment %d: stop %d failed", s.staging.ID, s.stops(r)[0].ID),
		fmt.Sprintf(`rolloutenvironment the matrix has for environment %d: nothing; the record says: stop %d completed, shown of "shop", no health seen, version set %d live`,
			s.production.ID, s.stops(r)[1].ID, s.set.ID),
	} {
		if !strings.Contains(strings.Join(text, "\n"), want) {
			t.Errorf("not found: %q in\n%s", want, strings.Join(text, "\n"))
		}
	}
	stranger := person(3)
	stranger.Permissions = core.RoleMaintainer.Permissions()
	if _, err := s.rollouts.CheckJournal(t.Context(), stranger, core.Page{}); !fault.Is(err, fault.Denied) {
		t.Errorf("a member who is not an owner: %v", err)
	}
}

// What triggers keep beside the states is compared as well, once for each application, however many pages its rollouts take,
// and before the first rollout.
func TestTheJournalCheckFindsCellsThatTriggersShouldHaveKept(t *testing.T) { // R42
	t.Parallel()
	s := newShop(t)
	for range 3 {
		s.succeed(s.rollout(s.set))
	}
	idle := s.fixture.application("idle", "daemon")
	_, err := s.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: idle.ID, Definition: pipeline("staging")})
	s.ok(err)
	services, err := s.view.ServicesByApplication(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	s.report(event.ServiceHealthObserved{
		ServiceID: services[s.application.ID][0].ID, EnvironmentID: s.staging.ID, Health: "degraded",
		ObservedAt: wire(1),
	})
	problems := func() []string {
		t.Helper()
		var found []string
		for p := (core.Page{First: 1}); ; {
			check, err := s.rollouts.CheckJournal(t.Context(), user(), p)
			s.ok(err)
			for _, d := range unlike(check) {
				found = append(found, fmt.Sprintf("%s_%d: %s", d.Subject.Kind, d.Subject.ID, d.Problem))
			}
			if p.After = check.Next; p.After == "" {
				return found
			}
		}
	}
	if found := problems(); len(found) > 0 {
		t.Fatalf("an honest record: %q", found)
	}
	shopInStaging := fmt.Sprintf(` WHERE application_id = %d AND environment_id = %d`, s.application.ID, s.staging.ID)
	idleAnywhere := fmt.Sprintf(` WHERE application_id = %d`, idle.ID)
	set := func(what string) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), `UPDATE cd_cells SET `+what)
		s.ok(err)
	}
	for _, c := range []struct{ damage, mend, where, subject, kept, rebuilt string }{
		{`worst = 'healthy'`, `worst = 'degraded'`, shopInStaging, "rolloutenvironment_", ", healthy", ", degraded"},
		{`shown = false`, `shown = true`, shopInStaging, "rolloutenvironment_", ", not shown", ", shown"},
		{`application_name = 'pohs'`, `application_name = 'shop'`, shopInStaging, "rolloutenvironment_", `"pohs"`, `"shop"`},
		{`worst = 'degraded'`, `worst = ''`, idleAnywhere, "application_", ", degraded", ", no health seen"},
		{`shown = false`, `shown = true`, idleAnywhere, "application_", ", not shown", ", shown"},
	} {
		set(c.damage + c.where)
		found := problems()
		if len(found) != 1 || !strings.HasPrefix(found[0], c.subject) {
			t.Errorf("%s%s: found %q; want one of a %s", c.damage, c.where, found, c.subject)
		} else if kept, rebuilt, _ := strings.Cut(found[0], "; the record says:"); !strings.Contains(kept, c.kept) ||
			!strings.Contains(rebuilt, c.rebuilt) {
			t.Errorf("%s%s: found %q; want %q, and that it should be %q", c.damage, c.where, found[0], c.kept, c.rebuilt)
		}
		set(c.mend + c.where)
	}
}

// events are those of a small rollout: to its end, or to the failure of its first environment.
func (s *shop) events(r core.Rollout, healthy bool) []event.Data {
	s.t.Helper()
	first := s.stops(r)[0]
	d := s.deployments(first)[0]
	if healthy {
		return []event.Data{
			event.RolloutStarted{RolloutID: r.ID},
			event.DeploymentStarted{DeploymentID: d.ID},
			event.DeploymentHealthy{DeploymentID: d.ID},
			event.RolloutHealthy{RolloutID: r.ID},
			event.WorkflowCompleted{WorkflowID: "rollout-" + itoa(r.ID)},
		}
	}
	return []event.Data{
		event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25},
		event.DeploymentDegraded{DeploymentID: d.ID, Reason: "crash loop"},
		event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: first.EnvironmentID, Reason: "degraded"},
		event.RolloutFailed{RolloutID: r.ID, Reason: "degraded"},
		event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "degraded"},
	}
}

// table lists everything that is stored of a rollout, without times, numbers and reasons, which depend on the order.
func (s *shop) table(r core.Rollout) []string {
	s.t.Helper()
	lines := []string{"rollout " + string(s.reload(r).State)}
	for _, e := range s.stops(r) {
		lines = append(lines, fmt.Sprintf("environment %d %s", e.Position, e.State))
		for i, d := range s.deployments(e) {
			lines = append(lines, fmt.Sprintf("deployment %d.%d %s", e.Position, i, d.State))
		}
	}
	return lines
}

// permutations calls fn with every order of n things.
func permutations(n int, fn func([]int)) {
	order := make([]int, 0, n)
	var next func()
	next = func() {
		if len(order) == n {
			fn(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				next()
				order = order[:len(order)-1]
			}
		}
	}
	next()
}

// TestEveryOrderOfARolloutsEventsEndsInTheSameTables delivers the events of a small rollout in every order, each of them twice (D16).
func TestEveryOrderOfARolloutsEventsEndsInTheSameTables(t *testing.T) {
	t.Parallel()
	for _, healthy := range []bool{true, false} {
		t.Run(fmt.Sprintf("healthy %v", healthy), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var want []string
			permutations(5, func(order []int) {
				if t.Failed() {
					return
				}
				r := s.rollout(s.set)
				data := s.events(r, healthy)
				for _, i := range order {
					e := s.emit(data[i], "")
					s.deliver(e, e)
				}
				s.close()
				got := s.table(r)
				if want == nil {
					want = got
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("delivered in the order %v (-first +this):\n%s", order, diff)
				}
			})
			s.want(want[0], map[bool]string{true: "rollout completed", false: "rollout failed"}[healthy])
			if found := s.checked(); len(found) > 0 {
				t.Errorf("the journal differs: %v", found)
			}
		})
	}
}

// TestRandomOrdersOfALargeRolloutsEventsEndInTheSameTables delivers the events of a rollout through two environments and every
// gate, each of them twice, in any order and in batches of any size (D16).
func TestRandomOrdersOfALargeRolloutsEventsEndInTheSameTables(t *testing.T) {
	t.Parallel()
	for _, healthy := range []bool{true, false} {
		t.Run(fmt.Sprintf("healthy %v", healthy), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same orders at every run
			var want []string
			for round := range 12 {
				r := s.rollout(s.set)
				var all []event.Event
				for _, data := range s.script(r, healthy) {
					all = append(all, s.emit(data, ""))
				}
				all = slices.Concat(all, all)
				if round > 0 { // the first one in its order
					random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				}
				for len(all) > 0 {
					n := min(len(all), 1+random.IntN(20))
					s.deliver(all[:n]...)
					all = all[n:]
				}
				s.close()
				got := s.table(r)
				if want == nil {
					want = got
					s.want(want[0], map[bool]string{true: "rollout completed", false: "rollout failed"}[healthy])
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("in order %d (-first +this):\n%s", round, diff)
				}
			}
			if found := s.checked(); len(found) > 0 {
				t.Errorf("the record differs: %v", found)
			}
		})
	}
}

// script lists the events of a rollout in their order: to its end, or to the failure of its last environment.
func (s *shop) script(r core.Rollout, healthy bool) []event.Data {
	s.t.Helper()
	all := []event.Data{event.RolloutStarted{RolloutID: r.ID}}
	stops := s.stops(r)
	for n, e := range stops {
		fails := !healthy && n == len(stops)-1
		all = append(all, event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for i, d := range s.deployments(e) {
			all = append(all,
				event.DeploymentStarted{DeploymentID: d.ID},
				event.DeploymentCommitted{DeploymentID: d.ID, CommitSHA: fmt.Sprintf("%040x", d.ID), ManifestDigest: digestOf(int(d.ID))},
				event.DeploymentSubmitted{DeploymentID: d.ID, Name: "#" + itoa(d.ID), URL: "https://git.example.com/pulls", Status: "merged"},
				event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25},
				event.DeploymentAdvance{DeploymentID: d.ID, Weight: 25})
			if fails && i == 0 {
				all = append(all, event.DeploymentDegraded{DeploymentID: d.ID, Reason: "crash loop"})
			} else {
				all = append(all, event.DeploymentHealthy{DeploymentID: d.ID})
			}
		}
		if fails {
			return append(all,
				event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: e.EnvironmentID, Reason: "degraded"},
				event.RolloutFailed{RolloutID: r.ID, Reason: "degraded"},
				event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "degraded"})
		}
		all = append(all, event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	}
	return append(all, event.RolloutHealthy{RolloutID: r.ID}, event.WorkflowCompleted{WorkflowID: "rollout-" + itoa(r.ID)})
}

// TestWhateverPeopleAndWorkflowsDoTheJournalIsTheTruth drives a rollout with random verbs and random words of its workflow,
// some of them twice, and rebuilds every state, and the cells of the matrix, after each run (R42).
func TestWhateverPeopleAndWorkflowsDoTheJournalIsTheTruth(t *testing.T) {
	long(t)
	t.Parallel()
	s := newShop(t)
	sets := []core.VersionSet{s.set, s.release(2)}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 1).Draw(rt, "set")
		active, err := s.view.ActiveRollouts(t.Context(), org, []int64{s.application.ID})
		s.ok(err)
		r, ok := active[s.application.ID]
		if !ok {
			r = s.rollout(sets[n])
		}
		moves := s.moves(r)
		for range rapid.IntRange(4, 14).Draw(rt, "length") {
			move := rapid.IntRange(0, len(moves)-1).Draw(rt, "move")
			if err := moves[move](); err != nil && !fault.Is(err, fault.Refused) {
				rt.Fatalf("move %d: %v (%v)", move, err, fault.ClassOf(err))
			}
		}
		if rapid.Bool().Draw(rt, "close") {
			s.close()
		}
		s.verifyJournal(r)
		check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 1})
		s.ok(err)
		if found := unlike(check); len(found) > 0 {
			rt.Fatalf("differences: %v", found)
		}
		s.sameStopsAsk(r)
	})
}

// sameStopsAsk checks that the statement which finds every stop at which a gate is open agrees with the gates of each.
func (s *shop) sameStopsAsk(r core.Rollout) {
	s.t.Helper()
	var under []int64
	for _, stop := range s.stops(r) {
		if !stop.State.Terminal() {
			under = append(under, stop.ID)
		}
	}
	gates, err := s.view.GatesOfStops(s.t.Context(), org, under)
	s.ok(err)
	asking, err := s.view.StopsAsking(s.t.Context(), org)
	s.ok(err)
	for _, stop := range under {
		if open, asks := len(gates[stop]) > 0, slices.Contains(asking, stop); open != asks {
			s.t.Fatalf("stop %d: %d gates open, and found among those that ask: %t", stop, len(gates[stop]), asks)
		}
	}
}

// moves is everything that may happen to a rollout.
func (s *shop) moves(r core.Rollout) []func() error {
	s.t.Helper()
	var moves []func() error
	add := func(do func() error) { moves = append(moves, do) }
	verb := func(do func(a core.Actor) error) { add(func() error { return do(person(2)) }) }
	ctx := s.t.Context()
	verb(func(a core.Actor) error { _, err := s.rollouts.PauseRollout(ctx, a, r.ID, "pause"); return err })
	verb(func(a core.Actor) error { _, err := s.rollouts.ResumeRollout(ctx, a, r.ID, "resume"); return err })
	verb(func(a core.Actor) error { _, err := s.rollouts.AbortRollout(ctx, a, r.ID, "abort"); return err })
	verb(func(a core.Actor) error { _, err := s.rollouts.RetryRollout(ctx, a, r.ID, "retry"); return err })
	verb(func(a core.Actor) error { return s.approve(a, r, "staging/25") })
	verb(func(a core.Actor) error { _, err := s.rollouts.BreakGlass(ctx, a, r.ID, "down"); return err })
	verb(func(a core.Actor) error {
		_, err := s.rollouts.StopAutomaticRollback(ctx, a, r.ID, "it stays")
		return err
	})
	verb(func(a core.Actor) error {
		_, err := s.rollouts.RejectGate(ctx, a, rollout.Resolution{RolloutID: r.ID, GateID: "production"})
		return err
	})
	report := func(data event.Data) {
		add(func() error {
			e := s.emit(data, "")
			s.deliver(e, e)
			return nil
		})
	}
	report(event.RolloutStarted{RolloutID: r.ID})
	report(event.RolloutHealthy{RolloutID: r.ID})
	report(event.RolloutFailed{RolloutID: r.ID, Reason: "no"})
	report(event.WorkflowCompleted{WorkflowID: "rollout-" + itoa(r.ID)})
	report(event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "no"})
	for _, e := range s.stops(r) {
		report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: e.EnvironmentID, Reason: "no"})
		report(event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: e.EnvironmentID, Weight: 25})
		report(event.RolloutAborted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for _, d := range s.deployments(e) {
			report(event.DeploymentStarted{DeploymentID: d.ID})
			report(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25})
			report(event.DeploymentAdvance{DeploymentID: d.ID, Weight: 25})
			report(event.DeploymentHealthy{DeploymentID: d.ID})
			report(event.DeploymentDegraded{DeploymentID: d.ID, Reason: "no"})
			report(event.DeploymentFailed{DeploymentID: d.ID, Reason: "no"})
		}
	}
	for _, gate := range []string{"staging", "staging/25", "production"} {
		report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate})
		report(event.ApprovalRequested{RolloutID: r.ID, GateID: gate})
	}
	return moves
}
