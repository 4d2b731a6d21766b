package domain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	rules "github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// noControl denies every change of a control.
const noControl = `@id("nobody") @message("ask the operator") forbid (principal, action == Action::"control.change", resource);`

// D51: policies decide about changes of controls; a denial changes nothing, is recorded, and is named by the error. A decision about a
// rollout is no change of a control.
func TestPoliciesDecideAboutChangesOfControls(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: `@id("base") permit (principal, action == Action::"control.change", resource);
@id("no-ends") @message("freezes end by themselves")
forbid (principal, action == Action::"control.change", resource) when { resource.kind == "freeze" && context.action == "endFreeze" };`})
	f := w.freeze(freeze.NewFreeze{Reason: "holidays"})
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'startFreeze' AND detail LIKE '%allowed by policydecision_1'`), 1)
	_, err := w.freezes.EndFreeze(t.Context(), user(), f.ID, "enough")
	w.refused(err, "policy rules/no-ends denies it: freezes end by themselves (policydecision_2)")
	w.want(w.countOf(`SELECT count(*) FROM cd_freezes WHERE ended_at IS NOT NULL`), 0)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'endFreeze'`), 0)
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions WHERE rollout_id IS NULL AND gate_id = 'control.change' AND verdict = 'deny'
		AND request -> 'control' ->> 'action' = 'endFreeze' AND request ->> 'reason' = 'enough'`), 1)
	known, err := w.policies.ControlDecisions(t.Context(), user())
	w.ok(err)
	w.want([]int{len(known), int(known[0].ID)}, []int{2, 2})

	r := w.rollout(w.set) // the set is not about rollouts
	w.enter(r, "staging")
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	w.ok(err)
	w.want(w.granted(), []string{"staging"})
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions`), 2)
	w.verifyJournal(r)
}

// D51: a policy that denies every change of a control denies its own change, too. The operator switches it off, with a row of the journal.
func TestTheOperatorReplacesAPolicyThatDeniesItsOwnChange(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "locked", Text: noControl})
	for _, n := range []policy.NewPolicySet{
		{Name: "locked", Mode: core.PolicyOff, Reason: "let me out"},
		{Name: "other", Text: allowed, Reason: "another one"},
	} {
		_, err := w.policies.PutPolicySet(t.Context(), user(), n)
		w.refused(err, "policy locked/nobody denies it: ask the operator")
	}
	if err := policyOff(t.Context(), w.policies, org, "missing", "why"); err == nil {
		t.Error("a set that does not exist was switched off")
	}
	w.ok(policyOff(t.Context(), w.policies, org, "locked", "nobody could change it"))
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'putPolicySet' AND principal_type = 'system'
		AND principal_name = 'operator' AND reason = 'nobody could change it'`), 1)
	w.put(policy.NewPolicySet{Name: "other", Text: allowed})
}

// D51: sets of an application and of an environment decide about changes that concern these, and about no others; one that cannot be
// evaluated denies.
func TestPoliciesAboutControlsConcernTheirScope(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "there", EnvironmentID: w.production.ID, Text: noControl})
	w.freeze(freeze.NewFreeze{}) // of everything: it names no environment
	_, err := w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{
		Reason: "x", EndsAt: w.now.Now().Add(3600e9), EnvironmentIDs: []int64{w.production.ID},
	})
	w.refused(err, "policy there/nobody denies it")
	w.put(policy.NewPolicySet{Name: "broken", Text: `@id("base") permit (principal, action == Action::"control.change", resource);
@id("large") forbid (principal, action == Action::"control.change", resource)
when { 9223372036854775807 + context.time.weekday > 0 };`})
	_, err = w.freezes.StartFreeze(t.Context(), user(), freeze.NewFreeze{Reason: "x", EndsAt: w.now.Now().Add(3600e9)})
	w.refused(err, "broken/large cannot be evaluated, which denies it")
}

// D51, D49: policies decide about bypasses of freezes: by whom, and past what. A denial opens nothing, and is recorded.
func TestADeniedBypassIsRecorded(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: `@id("base") permit (principal, action == Action::"freeze.bypass", resource);
@id("not-ones-own") @message("another person has to")
forbid (principal, action == Action::"freeze.bypass", resource)
when { context.ownRollout && context.freezes.contains("freeze_1") && context has environment &&
  context.environment.tier == "production" };`})
	r := w.rollout(w.set)
	w.freeze(freeze.NewFreeze{})
	w.enter(r, "staging")
	_, err := w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	w.ok(err)
	w.want(w.granted(), []string{"staging"})
	w.freeze(freeze.NewFreeze{})
	w.enter(r, "production")
	w.want(w.granted(), []string{"staging"})
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), r.ID, "incident 7")
	w.ok(err) // freeze_1 does not stop it any more, so it is another one
	w.want(w.granted(), []string{"staging", "production"})
	w.succeed(r)
	_, err = w.freezes.EndFreeze(t.Context(), user(), 2, "")
	w.ok(err)
	second := w.rollout(w.release(2))
	for _, e := range []string{"staging", "production"} {
		w.enter(second, e)
	}
	_, err = w.rollouts.BypassFreeze(t.Context(), user(), second.ID, "incident 8")
	w.refused(err, "not-ones-own denies it: another person has to (policydecision_")
	w.want(w.decisions(second), []string{"production/freeze.bypass: deny"})
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'bypassFreeze'`), 2)
}

// D51: a rollout whose end policies deny fails, with the policy in its reason and the decision on record; a repeated report changes
// nothing.
func TestPoliciesDecideAboutTheEndOfARollout(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: `@id("base") permit (principal, action == Action::"rollout.complete", resource);
@id("only-people") @message("not by hand") forbid (principal is User, action == Action::"rollout.complete", resource)
when { context.completed.containsAll(context.environments) };`})
	r := w.rollout(w.set)
	w.want(w.decisions(r), []string{}) // nothing about its creation
	for _, e := range []string{"staging", "production"} {
		w.enter(r, e)
	}
	reports := w.finishes(r)
	w.report(reports...)
	w.report(event.RolloutHealthy{RolloutID: r.ID})
	w.want(w.reload(r).State, core.RolloutFailed)
	w.want(w.decisions(r), []string{"rollout.complete: deny"})
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'fail'
		AND reason LIKE '%policy rules/only-people denies it: not by hand%'`), 1)
	w.put(policy.NewPolicySet{Mode: core.PolicyOff})
	later := w.rollout(w.release(2))
	for _, e := range []string{"staging", "production"} {
		w.enter(later, e)
	}
	w.report(w.finishes(later)...)
	w.want(w.reload(later).State, core.RolloutCompleted)
	w.verifyJournal(later)
}

// D51: members that a policy names by number and that do not exist are warned of; the policy is stored, since members come and go.
func TestMembersThatDoNotExistAreWarnedOf(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_members (organization_id, id, name, kind, role) OVERRIDING SYSTEM VALUE
		VALUES (1, 501, 'ann', 'user', 'owner'), (1, 502, 'ci', 'agent', 'owner'), (2, 503, 'eve', 'user', 'owner')`)
	w.ok(err)
	text := allowed
	for i, named := range []string{`User::"501"`, `Machine::"502"`, `User::"503"`, `User::"502"`, `Machine::"0502"`, `User::"ann"`} {
		text += fmt.Sprintf("@id(\"p%d\") forbid (principal == %s, action == Action::\"rollout.create\", resource);\n", i, named)
	}
	found, err := w.policies.CheckPolicies(t.Context(), user(), text)
	w.ok(err)
	var lines []string
	for _, p := range found.Warnings {
		lines = append(lines, p.Policy+": "+p.Message)
	}
	w.want(len(found.Problems), 0)
	w.want(lines, []string{
		`p2: the organization has no member 503: User "503" is nobody`, `p3: member 502 is no User: User "502" is nobody`,
		`p4: found Machine "0502"; expected the number of a member, as in Machine::"12": it is nobody`,
		`p5: found User "ann"; expected the number of a member, as in User::"12": it is nobody`,
	})
	w.put(policy.NewPolicySet{Text: text})
}

// D51: agents, drivers and services that a policy names and that do not exist are warned of, as they come and go, too.
func TestWhatAPolicyNamesAndNobodyHasIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_agents (organization_id, name, revoked_at) VALUES (1, 'eu-1', NULL), (1, 'eu-2', now()), (2, 'us-1', NULL)`)
	w.ok(err)
	driver := w.driverRefs()[0]
	text := allowed
	for i, condition := range []string{
		`resource.agents.contains(Agent::"eu-1")`, `resource.agents.contains(Agent::"eu-2")`, `resource.agents.contains(Agent::"us-1")`,
		fmt.Sprintf(`resource has driver && resource.driver == Driver::%q`, driver), `resource has driver && resource.driver == Driver::"kubernets@1"`,
		`context.versionSet.services.contains("api")`, `context.versionSet.services.containsAny(["api", "apy"])`,
		`context has change && context.change.services.contains("apj")`, `context.versionSet.versions.contains("apk")`,
	} {
		text += fmt.Sprintf("@id(\"p%d\") forbid (principal, action == Action::\"environment.enter\", resource) when { %s };\n", i, condition)
	}
	found, err := w.policies.CheckPolicies(t.Context(), user(), text)
	w.ok(err)
	w.want(found.Problems, []rules.Problem(nil))
	var lines []string
	for _, p := range found.Warnings {
		lines = append(lines, p.Policy+": "+p.Message)
	}
	w.want(lines, []string{
		`p1: the organization has no agent "eu-2"`, `p2: the organization has no agent "us-1"`,
		`p4: no driver "kubernets@1" is installed; expected one of ` + strings.Join(w.driverRefs(), ", "),
		`p6: the organization has no service "apy"`, `p7: the organization has no service "apj"`,
	})
	w.put(policy.NewPolicySet{Text: text})
}

// D51: a set of an environment decides about applications that go there, also without change control, and about permissions that hold
// there; taking access away is never asked, and a denial that is repeated is one row.
func TestPoliciesOfAnEnvironmentDecideAboutWhatConcernsIt(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "there", EnvironmentID: w.production.ID, Text: noControl})
	for range 3 {
		_, err := w.rollouts.SetRollbackPolicy(t.Context(), user(), core.RollbackPolicy{ApplicationID: w.application.ID, OnFailed: true})
		w.refused(err, "policy there/nobody denies it")
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions WHERE gate_id = 'control.change' AND verdict = 'deny'`), 1)
	var helper int64
	w.ok(w.pool.QueryRow(t.Context(), `INSERT INTO cd_members (organization_id, kind, name, role) VALUES ($1, 'user', 'helper', 'viewer')
		RETURNING id`, org).Scan(&helper))
	grant := func(environment int64) error {
		_, err := w.access.GrantPermissions(t.Context(), user(), access.NewGrant{
			MemberID: helper, Permissions: core.PermissionsOf(core.MayConfigure), Environments: []int64{environment}, Reason: "help",
		})
		return err
	}
	w.refused(grant(w.production.ID), "policy there/nobody denies it")
	w.ok(grant(w.staging.ID))
	_, err := w.retention.Set(t.Context(), user(), "requests", 90, "short")
	w.ok(err) // it is of no environment
	w.put(policy.NewPolicySet{Name: "all", Text: noControl})
	_, err = w.retention.Set(t.Context(), user(), "requests", 60, "shorter")
	w.refused(err, "policy all/nobody denies it")
	w.want(w.countOf(`SELECT count(*) FROM cd_policy_decisions WHERE gate_id = 'control.change' AND request -> 'control' ->> 'action' =
		'setRetention'`), 1)
}
