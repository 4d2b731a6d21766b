package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

func changing(kind, action string) policy.Request {
	return policy.Request{
		Action: policy.ChangeControl, Principal: policy.Principal{Kind: policy.User, ID: "7", Name: "ann", Groups: []string{"security"}},
		Control: &policy.Control{Kind: kind, ID: 3, Name: "release", Action: action}, At: time.Unix(1_800_000_000, 0),
	}
}

// D51: a set decides about changes of controls, bypasses and ends only if a policy of it names them, so that sets which were stored before
// mean what they meant; a set about these is not about rollouts.
func TestActionsOfTheirOwnAreDecidedWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	decide := func(text string, r policy.Request) policy.Decision {
		t.Helper()
		s, err := policy.CombineFor(r.Action, policy.Level{Name: "o", Members: []policy.Member{{Name: "rules", Document: parse(t, text)}}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Decide(r)
	}
	end := policy.Request{
		Action: policy.CompleteRollout, Principal: policy.Principal{Kind: policy.System, ID: "schedule"}, Application: "shop",
	}
	bypass := changing("", "")
	bypass.Action, bypass.Application, bypass.Freezes = policy.BypassFreeze, "shop", []string{"freeze_1"}
	for _, r := range []policy.Request{changing("freeze", "endFreeze"), end, bypass} {
		expect(t, decide(`@id("f") forbid (principal, action, resource);`, r), policy.Allow, "no policy concerns it")
		named := `@id("f") @message("no") forbid (principal, action == Action::"` + string(r.Action) + `", resource);`
		expect(t, decide(named, r), policy.Deny, "rules/f denies it: no")
		expect(t, decide(named, entering("production", "production")), policy.Allow, "no policy concerns it")
		only := `@id("p") permit (principal, action == Action::"` + string(r.Action) + `", resource) when { 1 == 2 };`
		expect(t, decide(only, r), policy.Deny, "no policy of o permits it")
	}
	security := `@id("p") permit (principal, action == Action::"control.change", resource)
when { resource.kind == "policyset" && principal in Group::"security" && context.action == "putPolicySet" && !context.confirmed };`
	expect(t, decide(security, changing("policyset", "putPolicySet")), policy.Allow, "rules/p allows it")
	expect(t, decide(security, changing("freeze", "endFreeze")), policy.Deny, "no policy of o permits it")
	nothing := changing("freeze", "endFreeze")
	nothing.Control = nil
	expect(t, decide(security, nothing), policy.Deny, "found no control")
}

// D51: such a policy names one action, has its context only, and cannot wait for an approval. Escapes do not hide what it is about.
func TestPoliciesAboutControlsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, problem string }{
		{`@id("x") permit (principal, action in [Action::"control.change", Action::"freeze.bypass"], resource);`, "expected a policy of its own"},
		{`@id("x") permit (principal, action in [Action::"rollout.complete", Action::"gate.pass"], resource);`, "expected a policy of its own"},
		{`@id("x") permit (principal, action == Action::"control.change", resource) when { context.versionSet.name == "a" };`, "versionSet"},
		{`@id("x") permit (principal, action == Action::"freeze.bypass", resource) when { context.environment.tier == "qa" };`, "environment"},
		{`@id("x") @require("approval") permit (principal, action == Action::"control.change", resource);`, "cannot wait"},
	} {
		if _, problems := policy.Parse(c.text); len(problems) == 0 || !strings.Contains(problems[0].String(), c.problem) {
			t.Errorf("found %v for %s; expected %q", problems, c.text, c.problem)
		}
	}
	hidden := `@id("x") forbid (principal, action == Action::"control\u{2e}change", resource);`
	if d := parse(t, hidden); !d.Concerns(policy.ChangeControl) || !policy.Mentions(hidden, policy.ChangeControl) {
		t.Error("an escape hides the action")
	}
}
