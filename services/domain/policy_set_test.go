package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	rules "github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// allowed permits everything that no other policy forbids.
const allowed = `@id("base") permit (principal, action, resource);` + "\n"

// production is a forbid of entering production under a condition.
func noProduction(condition string) string {
	return allowed + `@id("no-production") @message("not now")
forbid (principal, action == Action::"environment.enter", resource == Environment::"production")` + condition + ";\n"
}

func (w winter) put(n policy.NewPolicySet) core.PolicySet {
	w.t.Helper()
	if n.Name == "" {
		n.Name = "rules"
	}
	if n.Mode == "" {
		n.Mode = core.PolicyEnforced
	}
	n.Reason = "a test"
	made, err := w.policies.PutPolicySet(w.t.Context(), user(), n)
	w.ok(err)
	return made
}

// decisions are what policies decided about a rollout, the first first.
func (w winter) decisions(r core.Rollout) []string {
	w.t.Helper()
	all, err := w.policies.PolicyDecisionsByRollout(w.t.Context(), org, []int64{r.ID})
	w.ok(err)
	lines := []string{}
	for _, d := range all[r.ID] {
		lines = append([]string{strings.TrimPrefix(d.GateID+": "+string(d.Verdict), ": ")}, lines...)
	}
	return lines
}

// D51: the policies of what was archived can be switched off, and be changed in no other way.
func TestPoliciesOfWhatIsArchivedAreSwitchedOff(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	ours := policy.NewPolicySet{Name: "ours", ApplicationID: w.application.ID, Text: noProduction("")}
	w.put(ours)
	_, err := w.setup.ArchiveApplication(t.Context(), user(), w.application.ID, "closed")
	w.ok(err)
	if _, err = w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
		Name: "ours", Mode: core.PolicyDryRun, Reason: "a test",
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a dry run: %v, expected that the application does not exist", err)
	}
	off := w.put(policy.NewPolicySet{Name: "ours", Mode: core.PolicyOff})
	w.want([]string{fmt.Sprint(off.Version), string(off.Mode)}, []string{"2", string(core.PolicyOff)})
	if _, err = w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
		Name: "new", ApplicationID: w.application.ID, Text: allowed, Mode: core.PolicyOff, Reason: "a test",
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a new set: %v, expected that the application does not exist", err)
	}
}

// D51, D46: a policy keeps a requested passage closed, says so in the journal once and in what the rollout waits for, and a change of the
// policies of new rollouts does not open it for one that was created with it.
func TestAPolicyKeepsAPassageClosed(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: noProduction("")})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.want(w.granted(), []string{"staging"})
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	w.want(w.waits(r, "policy"), []string{
		`policy: passage "production": policy rules/no-production denies it: not now (policydecision_3)`,
	})
	w.want(w.stopRows(r), []string{"production: policy rules/no-production denies it: not now"})
	w.put(policy.NewPolicySet{Mode: core.PolicyOff}) // an owner weakens it while the rollout is under way
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging"})
	w.now.Advance(5 * time.Minute)
	w.want(w.review(), 1)         // time is evaluated again, and nothing is written about it
	w.want(len(w.stopRows(r)), 2) // the policies that were asked have changed: only the pinned ones are left
	w.want(w.decisions(r), []string{"allow", "staging: allow", "production: deny", "production: deny"})
	w.verifyJournal(r)
}

// D51: a policy that becomes stricter counts for rollouts under way, and what time decides is evaluated again by itself.
func TestAStricterPolicyCountsForRolloutsUnderWay(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	w.enter(r, "staging")
	minute := w.now.Now().UTC().Minute()
	w.put(policy.NewPolicySet{Text: noProduction(fmt.Sprintf(" when { context.time.minute < %d }", minute+7))})
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	for range 2 {
		w.now.Advance(5 * time.Minute)
		w.want(w.review(), 1)
	}
	w.want(w.granted(), []string{"staging", "production"})
	w.want(w.countOf(`SELECT count(*) FROM cd_passage_stops`), 0)
	w.want(w.decisions(r), []string{"production: deny", "production: allow"})
	w.verifyJournal(r)
	row := w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'pass_gate' AND gate_id = 'production'
		AND conditions @> '[{"kind": "policy", "outcome": "allow"}]' AND conditions::text LIKE '%"digest": "sha256:%'`)
	w.want(row, 1) // D22: the digest of the policies is in the journal
}

// D51, D22: a policy requires an approval; the passage opens when it was given, and a stricter requirement asks again.
func TestAPolicyRequiresAnApprovalOfAPassage(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	requires := func(quorum int) string {
		return allowed + fmt.Sprintf(`@id("two-eyes") @message("a second look") @require("approval") @quorum("%d") @requester("may")
permit (principal, action == Action::"environment.enter", resource == Environment::"production");`, quorum)
	}
	w.put(policy.NewPolicySet{Text: requires(1)})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	approve := func(gate string) {
		t.Helper()
		_, err := w.rollouts.ApproveGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: gate})
		w.ok(err)
	}
	gates, err := w.view.OpenGates(t.Context(), org, []int64{r.ID})
	w.ok(err)
	w.want(len(gates[r.ID]), 1)
	w.want(gates[r.ID][0].GateID, "production/policy/rules/two-eyes")
	w.put(policy.NewPolicySet{Text: requires(2)})
	approve("production/policy/rules/two-eyes")
	w.want(w.granted(), []string{"staging"}) // the present policy wants two
	gates, err = w.view.OpenGates(t.Context(), org, []int64{r.ID})
	w.ok(err)
	w.want(gates[r.ID][0].GateID, "production/policy/rules/two-eyes/2")
	w.put(policy.NewPolicySet{Text: requires(1)})
	w.review()
	w.now.Advance(5 * time.Minute)
	w.review()
	w.want(w.granted(), []string{"staging", "production"})
	w.verifyJournal(r)
}

// D51: what policies forbid is not even created; a rollback is where a policy lets rollbacks pass.
func TestPoliciesDecideAboutNewRollouts(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: `@id("back") permit (principal, action == Action::"rollout.rollback", resource);
@id("enter") permit (principal, action in [Action::"environment.enter", Action::"gate.pass"], resource);
@id("few") @message("one a day") permit (principal, action == Action::"rollout.create", resource) when { context.rolloutsLastDay <= 1 };`})
	first := w.rollout(w.set)
	w.succeed(first)
	// The database's own time is another one than the test's.
	_, err := w.pool.Exec(t.Context(), `ALTER TABLE cd_rollouts DISABLE TRIGGER USER; UPDATE cd_rollouts SET created_at = '2027-01-15 07:00Z'`)
	w.ok(err)
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.release(2).ID})
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "no policy of the organization permits it") {
		t.Fatalf("found %v; expected a refusal by the policies", err)
	}
	// One to a part of the pipeline is no rollback.
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: w.release(3).ID, Scope: rollout.Scope{Only: []string{"staging"}},
	})
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "no policy of the organization permits it") {
		t.Fatalf("found %v; expected a refusal of a rollout to one environment by the policies", err)
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts`), 1)
}

// D51: a set that is tried out records what it would have decided, and stops nothing; a simulation finds the same afterwards.
func TestPoliciesAreTriedOut(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: noProduction(""), Mode: core.PolicyDryRun})
	since := w.now.Now()
	r := w.rollout(w.set)
	w.enter(r, "staging", "production")
	w.want(w.granted(), []string{"staging", "production"})
	all, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, []int64{r.ID})
	w.ok(err)
	w.want(all[r.ID][0].WouldBe, rules.Deny)
	found, err := w.policies.Simulate(t.Context(), user(), policy.NewPolicySet{Name: "rules", Text: noProduction("")}, since)
	w.ok(err)
	w.want(found.Evaluated, 3)
	w.want(len(found.Different), 1)
	w.want(found.Different[0].GateID, "production")
	w.want(found.Different[0].Would.Sentence(), "policy rules/no-production denies it: not now")
}

// D51: policies of an environment, of an application and of another organization concern no others; a broken forbid denies.
func TestPoliciesConcernTheirScopeOnly(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	never := `@id("never") forbid (principal, action, resource);`
	other := w.fixture.application("other", "web")
	w.put(policy.NewPolicySet{Name: "elsewhere", ApplicationID: other.ID, Text: never})
	w.put(policy.NewPolicySet{Name: "here", EnvironmentID: w.production.ID, Text: allowed +
		`@id("broken") forbid (principal, action, resource) when { context.versionSet.minutesOld * 9223372036854775807 > 0 };`})
	r := w.rollout(w.set)
	w.enter(r, "staging")
	w.enter(r, "production")
	w.want(w.granted(), []string{"staging"})
	waits := w.waits(r, "policy")
	if len(waits) != 1 || !strings.Contains(waits[0], "policy here/broken cannot be evaluated, which denies it") {
		t.Errorf("found %v; expected the policy that cannot be evaluated", waits)
	}
}

// D51: authors are refused with the line, and only those who may configure everywhere write the organization's policies.
func TestAuthorsOfPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	ctx := t.Context()
	refused := func(a core.Actor, n policy.NewPolicySet, class fault.Class, words string) {
		t.Helper()
		if n.Name == "" {
			n.Name = "rules"
		}
		_, err := w.policies.PutPolicySet(ctx, a, n)
		if !fault.Is(err, class) || !strings.Contains(fmt.Sprint(err, fault.FieldsOf(err)), words) {
			t.Errorf("found %v %v; expected %v with %q", err, fault.FieldsOf(err), class, words)
		}
	}
	viewer := user()
	viewer.Permissions = core.RoleDeployer.Permissions()
	refused(viewer, policy.NewPolicySet{Text: allowed, Reason: "x"}, fault.Denied, "configure")
	limited := viewer
	limited.Grants = []core.Grant{{Permissions: core.PermissionsOf(core.MayConfigure), Environments: []int64{w.production.ID}}}
	refused(limited, policy.NewPolicySet{Text: allowed, Reason: "x"}, fault.Denied, "all environments")
	refused(user(), policy.NewPolicySet{Text: allowed}, fault.Invalid, "/reason")
	refused(user(), policy.NewPolicySet{Reason: "x"}, fault.Invalid, "/text")
	refused(user(), policy.NewPolicySet{Name: "A", Text: allowed, Reason: "x"}, fault.Invalid, "/name")
	refused(user(), policy.NewPolicySet{Text: allowed, Reason: "x", TimeZone: "Berlin"}, fault.Invalid, "/timeZone")
	refused(user(), policy.NewPolicySet{Text: allowed + "permit (", Reason: "x"}, fault.Invalid, "line 2")
	refused(user(), policy.NewPolicySet{
		Text: `@id("x") permit (principal in Group::"dba", action, resource);`, Reason: "x",
	}, fault.Invalid, `found the group "dba", which the organization does not have`)
	refused(user(), policy.NewPolicySet{Text: allowed, Reason: "x", EnvironmentID: w.production.ID + 100}, fault.NotFound, "does not exist")
	_, err := w.policies.PutPolicySet(ctx, limited, policy.NewPolicySet{Name: "own", EnvironmentID: w.production.ID, Text: allowed, Reason: "x"})
	w.ok(err)
	refused(user(), policy.NewPolicySet{Name: "own", EnvironmentID: w.staging.ID, Reason: "x"}, fault.Refused, "another scope")
	versions, err := w.policies.PolicySetVersions(ctx, user(), "own")
	w.ok(err)
	w.want(len(versions), 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putPolicySet' AND subject_kind = 'policyset'`), 1)
}

// D51, D46: what policies decide about a weight counts at the entrance where the program does not stop at the weight.
func TestNoProgramLeavesOutThePolicyOfAWeight(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	first := s.rollout(s.set)
	s.pass(first, "staging", "release", "production")
	s.succeed(first)
	_, err := s.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
		Name: "rules", Mode: core.PolicyEnforced, Reason: "a test", Text: allowed + `@id("half") @message("half is too much")
forbid (principal, action == Action::"gate.pass", resource) when { context has weight && context.weight == 50 };`,
	})
	s.ok(err)
	second := s.rollout(s.release(2))
	s.enter(second, "staging", "release")
	s.ok(s.approve(person(2), second, "release"))
	s.report(event.RolloutPassageRequested{RolloutID: second.ID, GateID: "production", SkipsWeights: []int{50}})
	s.ok(s.approve(person(2), second, "production"))
	s.ok(s.approve(person(2), second, "production/50"))
	if passed := s.passed(second); len(passed) != 2 {
		t.Errorf("passed %q; expected staging and the step alone", passed)
	}
	s.verifyJournal(second)
}

// D51: policies about labels, the owner, the driver, agents, the change, versions and environments that were passed decide about a passage,
// and a passage that labels keep closed opens once they have changed.
func TestPoliciesSeeWhatTheRecordHas(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: noProduction(` when {
		context.application.labels.contains("tier=critical") && resource.labels.contains("region=eu") && context.application.owner == "payments" &&
		resource has driver && context.passed.contains(Environment::"staging") && !context.passed.contains(resource) &&
		context has change && context.change.first && context.change.count == 2 && context has rollout && !context.rollout.automatic &&
		context has previous && !(context.previous has error) }`)})
	shop := core.Detailed{Kind: core.ChangedApplication, ID: w.application.ID}
	production := core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}
	w.ok(w.label(shop, map[string]string{"tier": "critical"}))
	w.ok(w.label(production, map[string]string{"region": "eu"}))
	owner := "payments"
	w.ok(w.setup.SetDetails(t.Context(), user(), setup.ChangedDetails{Of: shop, Owner: &owner}))
	r := w.rollout(w.set)
	w.enter(r, "staging")
	staging := w.stops(r)[0]
	w.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: staging.EnvironmentID})
	for _, d := range w.deployments(staging) {
		w.report(event.DeploymentStarted{DeploymentID: d.ID})
		w.report(event.DeploymentHealthy{DeploymentID: d.ID})
	}
	w.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: staging.EnvironmentID})
	w.enter(r, "production", "production")
	w.want(w.granted(), []string{"staging"})
	w.ok(w.label(production, map[string]string{"region": "us"}))
	w.want(w.review(), 1)
	w.want(w.granted(), []string{"staging", "production"})
	all, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, []int64{r.ID})
	w.ok(err)
	if len(all[r.ID]) == 0 {
		t.Fatal("found no decision")
	}
	asked := all[r.ID][0].Request
	w.want(asked.Environment.Labels, map[string]string{"region": "us"})
	w.want([]string{asked.Passed[0].Name, fmt.Sprint(len(asked.VersionSet.Artifacts))}, []string{"staging", "2"})
}

// D51: who takes a label away by which a policy protects a control is judged by the label.
func TestAChangeOfLabelsIsJudgedByThemselves(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	of := core.Detailed{Kind: core.ChangedEnvironment, ID: w.production.ID}
	w.ok(w.label(of, map[string]string{"scope": "pci"}))
	w.put(policy.NewPolicySet{Text: `@id("base") permit (principal, action == Action::"control.change", resource);
@id("pci") forbid (principal, action == Action::"control.change", resource) when { context.environments.contains(Environment::"production") &&
	Environment::"production".labels.contains("scope=pci") };`})
	if err := w.label(of, nil, "scope"); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "rules/pci denies it") {
		t.Errorf("the label is taken away: found %v; want that policies do not allow it", err)
	}
	w.want(w.detailsOf(of).Labels, map[string]string{"scope": "pci"})
}
