package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// known is a request to enter an environment about which everything is known.
func known() policy.Request {
	r := entering("production", "production")
	r.Labels, r.Owner = map[string]string{"team": "payments", "tier": "critical"}, "payments"
	r.Environment.Labels, r.Environment.Driver = map[string]string{"region": "eu", "trial": ""}, "argo-rollouts@2"
	r.Environment.Agents = []policy.Agent{{Name: "eu-1", Labels: map[string]string{"ring": "2"}}}
	r.Rollout = &policy.Rollout{ID: 12, Automatic: true, MinutesOld: 90}
	r.VersionSet.Artifacts = []string{"sha256:9f86", "0a1b2c"}
	r.Passed = []policy.Environment{{Name: "staging", Tier: "staging"}}
	r.Change = &policy.Change{Services: []string{"api", "web"}}
	r.Previous = &policy.Previous{Environment: policy.Environment{Name: "staging", Tier: "staging"}, Error: "crash loop"}
	return r
}

// D51: policies ask of the labels and owner of the application, of the labels, driver and agents of an environment, of the rollout, of
// versions, of what changes, of where the version set has been, and of the error of the preceding environment.
func TestPoliciesAskOfEveryEntity(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{
		`context.application.labels.contains("team=payments")`, `context.application.owner == "payments"`,
		`resource.labels.contains("region=eu") && resource.labels.contains("trial=")`,
		`resource has driver && resource.driver == Driver::"argo-rollouts@2"`, `resource has driver && resource has driver && resource.driver.name == "argo-rollouts"`,
		`resource.agents.contains(Agent::"eu-1")`, `resource.agents.contains(Agent::"eu-1") && Agent::"eu-1".labels.contains("ring=2")`,
		`context has rollout && context.rollout == Rollout::"12"`,
		`context has rollout && context.rollout.automatic && !context.rollout.rollback && context.rollout.minutesOld > 60`,
		`context.versionSet.artifacts.contains(Version::"sha256:9f86")`,
		`context.passed.contains(Environment::"staging")`,
		`context has change && context.change.count == 2 && context.change.services.contains("api") && !context.change.first`,
		`context has previous && context.previous has error && context.previous.error like "*loop*"`,
	} {
		s := one(t, base+`@id("no") forbid (principal, action == Action::"environment.enter", resource) when { `+condition+` };`)
		if d := s.Decide(known()); d.Verdict != policy.Deny || strings.Contains(d.Sentence(), "cannot be evaluated") {
			t.Errorf("%s: found %s: %s; expected that it matches", condition, d.Verdict, d.Sentence())
		}
		// Of a request of before, or of a plan, nothing of that is known: it matches nothing, and nothing fails.
		if d := s.Decide(entering("production", "production")); d.Verdict != policy.Allow {
			t.Errorf("%s: found %s: %s of a request without it; expected that it is allowed", condition, d.Verdict, d.Sentence())
		}
	}
}

// D51: what an author writes about these entities is validated strictly.
func TestConditionsOnEntitiesAreValidated(t *testing.T) {
	t.Parallel()
	for condition, problem := range map[string]string{
		`resource.driver == Driver::"git@1"`:                           "driver",
		`context.previous.error == "x"`:                                "previous",
		`context.application.label == "x"`:                             "label",
		`resource.labels == "region=eu"`:                               "Set",
		`context.versionSet.artifacts.contains("sha256:9f86")`:         "Version",
		`context has change && context.change.services.contains(1)`:    "",
		`resource.agents.contains(Agent::"eu-1") && Agent::"eu-1".age`: "age",
	} {
		_, problems := policy.Parse(base + `@id("no") forbid (principal, action == Action::"environment.enter", resource) when { ` + condition + ` };`)
		if len(problems) == 0 || !strings.Contains(fmt.Sprint(problems), problem) {
			t.Errorf("%s: found %v; expected it refused", condition, problems)
		}
	}
}

// D51: policies about the end of rollouts, freezes and controls see the same entities.
func TestPoliciesOfTheirOwnSeeEntities(t *testing.T) {
	t.Parallel()
	for action, condition := range map[policy.Action]string{
		policy.CompleteRollout: `resource.labels.contains("tier=critical") && context has rollout && context.rollout.minutesOld > 60`,
		policy.BypassFreeze:    `context has environment && context.environment.labels.contains("region=eu")`,
		policy.ChangeControl:   `context has application && context.application.owner == "payments"`,
	} {
		text := fmt.Sprintf(`@id("base") permit (principal, action == Action::%q, resource);
@id("no") forbid (principal, action == Action::%q, resource) when { %s };`, action, action, condition)
		s, err := policy.CombineFor(action, policy.Level{Name: "the organization", Members: []policy.Member{{Name: "rules", Document: parse(t, text)}}})
		if err != nil {
			t.Fatal(err)
		}
		r := known()
		r.Action, r.Control = action, &policy.Control{Kind: "freeze", ID: 12, Action: "endFreeze"}
		expect(t, s.Decide(r), policy.Deny, "policy rules/no denies it")
		r.Labels, r.Owner, r.Environment.Labels = nil, "", nil
		expect(t, s.Decide(r), policy.Allow, "")
	}
}

// What policies see is bounded: an organization may have many environments with many labels.
func TestRequestsWithManyLabelsAreDecided(t *testing.T) {
	t.Parallel()
	r := entering("production", "production")
	r.Action, r.Environment = policy.CreateRollout, nil
	labels := map[string]string{}
	for i := range 32 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("v", 20)
	}
	for i := range 100 {
		r.Environments = append(r.Environments, policy.Environment{Name: fmt.Sprintf("e%d", i), Tier: "production", Labels: labels})
	}
	expect(t, one(t, base).Decide(r), policy.Allow, "")
}

// A request that is made short decides the same: each environment has its details once, and agents are left out that no policy asks of.
func TestAShortRequestDecidesTheSame(t *testing.T) {
	t.Parallel()
	r := known()
	r.Completed, r.Passed = []policy.Environment{*r.Environment},
		[]policy.Environment{{Name: "production", Tier: "production", Driver: "other@1"}}
	text := base + `@id("no") forbid (principal, action == Action::"environment.enter", resource) when {
  resource.agents.contains(Agent::"eu-1") && resource.labels.contains("region=eu") && resource has driver && resource.driver.name == "argo-rollouts" };`
	short, set := r.Short(text), one(t, text)
	if len(short.Completed[0].Labels) != 0 || len(short.Environment.Agents) != 1 || len(r.Completed[0].Labels) == 0 {
		t.Errorf("found %+v; expected the details once, and the request of before as it was", short)
	}
	for _, asked := range []policy.Request{r, short} {
		if d := set.Decide(asked); d.Verdict != policy.Deny || !strings.Contains(d.Sentence(), "/no denies it") {
			t.Errorf("found %s: %s; expected that it matches", d.Verdict, d.Sentence())
		}
	}
	if short = r.Short(base); len(short.Environment.Agents) != 0 || len(short.Environment.Labels) == 0 {
		t.Errorf("found %+v; expected no agents", short.Environment)
	}
}
