package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones, also on a machine without them

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// base permits everything, as the template for the first policy set of an organization does.
const base = `@id("base") permit (principal, action, resource);` + "\n"

func parse(tb testing.TB, text string) *policy.Document {
	tb.Helper()
	d, problems := policy.Parse(text)
	if len(problems) > 0 {
		tb.Fatalf("found %v in %s", problems, text)
	}
	return d
}

// one is a set of one level with one document.
func one(tb testing.TB, text string) *policy.Set {
	tb.Helper()
	return combine(tb, policy.Level{Name: "the organization", Members: []policy.Member{{Name: "rules", Document: parse(tb, text)}}})
}

func combine(tb testing.TB, levels ...policy.Level) *policy.Set {
	tb.Helper()
	s, err := policy.Combine(levels...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// friday is a Friday at 19:30 in Berlin, and 18:30 in UTC.
var friday = time.Date(2026, 11, 27, 18, 30, 0, 0, time.UTC)

func entering(environment, tier string) policy.Request {
	return policy.Request{
		Action: policy.EnterEnvironment, Principal: policy.Principal{Kind: policy.User, ID: "12", Name: "Ada", Groups: []string{"developers"}},
		Application: "shop", Environment: &policy.Environment{Name: environment, Tier: tier}, Gate: environment,
		VersionSet: policy.VersionSet{Name: "shop-7", Services: []string{"api"}, Repositories: []string{"registry.example.com/shop/api"}},
		At:         friday,
	}
}

func expect(t *testing.T, d policy.Decision, verdict policy.Verdict, sentence string) {
	t.Helper()
	if d.Verdict != verdict || !strings.Contains(d.Sentence(), sentence) {
		t.Errorf("found %s: %s; expected %s: %s", d.Verdict, d.Sentence(), verdict, sentence)
	}
}

// D51: without any policy everything is as before; with one, what no policy permits is denied.
func TestWhatNoPolicyPermitsIsDenied(t *testing.T) {
	t.Parallel()
	expect(t, combine(t).Decide(entering("production", "production")), policy.Allow, "no policy concerns it")
	s := one(t, `@id("staging") permit (principal, action == Action::"environment.enter", resource == Environment::"staging");`)
	expect(t, s.Decide(entering("staging", "staging")), policy.Allow, "policy rules/staging allows it")
	expect(t, s.Decide(entering("production", "production")), policy.Deny, "no policy of the organization permits it")
}

// D51, D22: three verdicts; an approval that a policy requires is not made unnecessary by another permit.
func TestAPolicyRequiresAnApproval(t *testing.T) {
	t.Parallel()
	s := one(t, base+`
@id("dba") @message("the database changes") @require("approval") @group("dba") @quorum("2") @expires("4h")
permit (principal, action == Action::"environment.enter", resource == Environment::"production")
when { context.versionSet.services.contains("api") };`)
	r := entering("production", "production")
	d := s.Decide(r)
	expect(t, d, policy.NeedsApproval, `policy rules/dba requires 2 of the group "dba" to approve: the database changes`)
	want := policy.Requirement{Group: "dba", Quorum: 2, ExpiresSeconds: 4 * 60 * 60}
	if ruling := d.Deciding()[0]; ruling.Requires == nil || *ruling.Requires != want || ruling.Line != 3 {
		t.Errorf("found %+v in line %d; expected %+v in line 3", ruling.Requires, ruling.Line, want)
	}
	r.Given = []string{d.Deciding()[0].Approval()}
	expect(t, s.Decide(r), policy.Allow, "rules/base allows it")
	r.Given = []string{strings.Replace(r.Given[0], "quorum=2", "quorum=1", 1)}
	expect(t, s.Decide(r), policy.NeedsApproval, "rules/dba")
	expect(t, s.Decide(entering("staging", "staging")), policy.Allow, "")
}

// D51: where a policy requires another approval than when the rollout was created, both are asked for, and the passage opens with both.
func TestAnApprovalThatHasChangedIsRequiredAsItWasAndAsItIs(t *testing.T) {
	t.Parallel()
	requires := func(quorum string) *policy.Set {
		return one(t, base+`
@id("dba") @require("approval") @quorum("`+quorum+`")
permit (principal, action == Action::"environment.enter", resource == Environment::"production");`)
	}
	pinned, present := requires("2"), requires("1")
	r := entering("production", "production")
	for range 2 {
		d := present.Decide(r).With(pinned.Decide(r))
		expect(t, d, policy.NeedsApproval, "")
		for _, ruling := range d.Rulings {
			if ruling.Requires != nil && !slices.Contains(r.Given, ruling.Approval()) {
				r.Given = append(r.Given, ruling.Approval())
				break
			}
		}
	}
	if len(r.Given) != 2 {
		t.Fatalf("required are %q; expected one approval of one and one of two", r.Given)
	}
	expect(t, present.Decide(r).With(pinned.Decide(r)), policy.Allow, "")
}

// D59: policies may keep quick syncs from places, or from beginning; rollouts that were not planned are none.
func TestPoliciesMayForbidQuickSyncs(t *testing.T) {
	t.Parallel()
	s := one(t, base+`@id("stop") forbid (principal, action in [Action::"rollout.create", Action::"environment.enter"], resource)
when { context has strategy && context.strategy == "quick" };`)
	for _, r := range []policy.Request{entering("production", "production"), {
		Action: policy.CreateRollout, Application: "shop", Principal: entering("production", "production").Principal, At: time.Unix(1, 0),
	}} {
		for strategy, want := range map[string]policy.Verdict{"quick": policy.Deny, "pipeline": policy.Allow, "": policy.Allow} {
			r.Strategy = strategy
			if d := s.Decide(r); d.Verdict != want {
				t.Errorf("%s, %q: found %s (%s); expected %s", r.Action, strategy, d.Verdict, d.Sentence(), want)
			}
		}
	}
}

// D51: Cedar skips a policy that cannot be evaluated, so that a broken forbid would fail open. Here it denies, and is named.
func TestAPolicyThatCannotBeEvaluatedDenies(t *testing.T) {
	t.Parallel()
	s := one(t, base+`@id("broken") forbid (principal, action, resource)
when { context.rolloutsLastDay * 9223372036854775807 == 5 };`)
	r := entering("production", "production")
	r.RolloutsLastDay = 2
	d := s.Decide(r)
	expect(t, d, policy.Deny, "policy rules/broken cannot be evaluated, which denies it")
	if deciding := d.Deciding(); len(deciding) != 1 || !deciding[0].Failed {
		t.Errorf("found %+v; expected one policy that failed", deciding)
	}
}

// E75: every level decides by itself, so that a lower level only makes stricter what it inherits.
func TestALowerLevelOnlyMakesStricter(t *testing.T) {
	t.Parallel()
	level := func(name, text string) policy.Level {
		return policy.Level{Name: name, Members: []policy.Member{{Name: "own", Document: parse(t, text)}}}
	}
	r := entering("production", "production")
	forbidden := `@id("never") @message("not now") forbid (principal, action, resource);`
	approval := `@id("ask") @require("approval") permit (principal, action == Action::"environment.enter", resource);`
	for _, c := range []struct {
		name                string
		organization, lower string
		verdict             policy.Verdict
		sentence            string
	}{
		{"a permit below does not undo a forbid", base + forbidden, base, policy.Deny, "own/never denies it: not now"},
		{"a permit below is not enough", `@id("other") permit (principal == User::"1", action, resource);`, base, policy.Deny, "no policy of the organization"},
		{"a level below may forbid", base, base + forbidden, policy.Deny, "own/never"},
		{"a level below has to permit, too", base, forbidden, policy.Deny, "own/never"},
		{"a level below may require an approval", base, approval, policy.NeedsApproval, "own/ask"},
		{"a permit below does not replace an approval", approval, base, policy.NeedsApproval, "own/ask"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expect(t, combine(t, level("the organization", c.organization), level("application shop", c.lower)).Decide(r), c.verdict, c.sentence)
		})
	}
}

// D51: a set that is tried out records what it would have decided, and decides nothing.
func TestASetThatIsTriedOutDoesNotCount(t *testing.T) {
	t.Parallel()
	s := combine(t, policy.Level{Name: "the organization", Members: []policy.Member{
		{Name: "strict", Document: parse(t, `@id("never") forbid (principal, action, resource);`), DryRun: true},
	}})
	d := s.Decide(entering("production", "production"))
	if d.Verdict != policy.Allow || d.WouldBe != policy.Deny || len(d.Rulings) != 1 || !d.Rulings[0].DryRun {
		t.Errorf("found %+v; expected allow that would be deny, by strict/never", d)
	}
}

// D51: day and hour are those of the set's time zone.
func TestTimeIsThatOfTheZoneOfTheSet(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, base+`@id("evening") forbid (principal, action, resource) when { context.time.weekday == 5 && context.time.hour >= 19 };`)
	for zone, verdict := range map[*time.Location]policy.Verdict{berlin: policy.Deny, nil: policy.Allow} {
		s := combine(t, policy.Level{Name: "o", Members: []policy.Member{{Name: "rules", Document: d, Zone: zone}}})
		expect(t, s.Decide(entering("production", "production")), verdict, "")
	}
}

// D51: authoring refuses what cannot be parsed, names what does not exist, or compares types that never match, and says where.
func TestAuthoringRefusesWithAPosition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, problem string }{
		{"@id(\"a\")\npermit (principal, action, resource) when { 1 + };", "line 2, column"},
		{`permit (principal, action, resource);`, `line 1, column 1: found @id("")`},
		{`@id("x") permit (principal, action, resource)`, `found the end; expected ;`},
		{`@id("x") permit (principal, action, resource];`, `found ]; expected )`},
		{base + `@id("base") permit (principal, action, resource);`, `line 2, column 1: policy "base": the policy in line 1 has the same @id`},
		{base + `@id("x") forbid (principal, action, resource) when { context.frozen };`, `line 2, column 1: policy "x": attribute`},
		{`@id("x") permit (principal, action, resource) when { context.rolloutsLastDay == "3" };`, `policy "x":`},
		{`@id("x") permit (principal, action == Action::"deploy", resource);`, `deploy`},
		{`@id("x") permit (principal is Robot, action, resource);`, `Robot`},
		{
			`@id("x") permit (principal, action == Action::"environment.enter", resource) when { context.previous.degraded };`,
			`previous`, // it is absent in the first environment
		},
		{`@id("x") @require("approval") permit (principal, action, resource);`, `for an action that cannot wait`},
		{`@id("x") @require("approval") forbid (principal, action == Action::"gate.pass", resource);`, `on a forbid`},
		{`@id("x") @quorum("2") permit (principal, action, resource);`, `found @quorum without @require("approval")`},
		{`@id("x") @require("approval") @quorum("0") permit (principal, action == Action::"gate.pass", resource);`, `expected a number from 1 to 20`},
		{`@id("x") @colour("red") permit (principal, action, resource);`, `found @colour`},
		{"\xff", "not UTF-8"},
	} {
		d, problems := policy.Parse(c.text)
		if d != nil || len(problems) == 0 || !strings.Contains(fmt.Sprint(problems), c.problem) {
			t.Errorf("found %v for %s; expected %s", problems, c.text, c.problem)
		}
	}
}

// D51: a hostile author gets an answer within a bounded time, whatever the text.
func TestHostileTextsAreBounded(t *testing.T) {
	t.Parallel()
	repeat := func(s string, n int) string { return strings.Repeat(s, n) }
	in := func(expression string) string {
		return `@id("x") permit (principal, action, resource) when { ` + expression + ` };`
	}
	for name, c := range map[string]struct {
		text    string
		refused bool
	}{
		"huge":           {repeat(" ", policy.MaxText+1), true},
		"deep brackets":  {in(repeat("(", 30000) + "true" + repeat(")", 30000)), true},
		"deep records":   {in(repeat(`{"a":`, 10000) + "true" + repeat("}", 10000) + ` == 1`), true},
		"many signs":     {in(repeat("! ", 20000) + "true"), true},
		"many ifs":       {in(repeat("if true then true else ", 2500) + "true"), true},
		"long chain":     {in("true" + repeat(" && true", 7000)), false},
		"long or":        {in("context.automatic" + repeat(" || context.automatic", 2500)), false},
		"long sum":       {in("1" + repeat(" + 1", 15000) + " == 2"), false},
		"large set":      {in("[" + repeat(`"a", `, 12000) + `"b"].contains(principal.name)`), true}, // a System has no name
		"many policies":  {repeat(`@id("x") permit (principal, action, resource);`, policy.MaxPolicies+1), true},
		"unclosed text":  {`@id("` + repeat("x", 60000), true},
		"many wildcards": {in(`context.versionSet.name like "` + repeat("*a", 20000) + `"`), false},
	} {
		began := time.Now()
		d, problems := policy.Parse(c.text)
		if (len(problems) > 0) != c.refused {
			t.Errorf("%s: found %d problems (%.200v); expected refused: %v", name, len(problems), problems, c.refused)
		}
		if len(problems) > 51 {
			t.Errorf("%s: found %d problems; expected at most 51", name, len(problems))
		}
		if d != nil {
			r := entering("production", "production")
			r.VersionSet.Name = repeat("a", 30000)
			combine(t, policy.Level{Name: "o", Members: []policy.Member{{Name: "rules", Document: d}}}).Decide(r)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

// D51: an oversized or impossible request is denied, and the decision says why.
func TestRequestsThatCannotBeEvaluatedAreDenied(t *testing.T) {
	t.Parallel()
	s := one(t, base)
	large := entering("production", "production")
	large.VersionSet.Name = strings.Repeat("x", policy.MaxRequest)
	expect(t, s.Decide(large), policy.Deny, "bytes; expected at most")
	nowhere := entering("production", "production")
	nowhere.Environment = nil
	expect(t, s.Decide(nowhere), policy.Deny, "found no environment")
	unknown := entering("production", "production")
	unknown.Action = "function.call"
	expect(t, s.Decide(unknown), policy.Deny, "found the action")
	robot := entering("production", "production")
	robot.Principal.Kind = "Robot"
	expect(t, s.Decide(robot), policy.Deny, "found a principal of kind")
}

// D51: too many policies for one request are refused when they are combined, not evaluated slowly.
func TestTooManyPoliciesAreNotCombined(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range policy.MaxPolicies {
		_, _ = fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action, resource);\n", i)
	}
	d := parse(t, text.String())
	l := policy.Level{Name: "o"}
	for i := range policy.MaxCombined/policy.MaxPolicies + 1 {
		l.Members = append(l.Members, policy.Member{Name: fmt.Sprint("set", i), Document: d})
	}
	if _, err := policy.Combine(l); err == nil || !strings.Contains(err.Error(), "found 1200 policies") {
		t.Errorf("found %v; expected a refusal of 1200 policies", err)
	}
}

// D22: the digest follows everything that a decision depends on.
func TestTheDigestFollowsTheDecisions(t *testing.T) {
	t.Parallel()
	d, other := parse(t, base), parse(t, base+base[:0]+"// comment\n")
	member := policy.Member{Name: "rules", Document: d}
	renamed, tried, changed := member, member, member
	renamed.Name, tried.DryRun, changed.Document = "rule", true, other
	seen := map[string]string{}
	for name, l := range map[string][]policy.Level{
		"first":    {{Name: "o", Members: []policy.Member{member}}},
		"renamed":  {{Name: "o", Members: []policy.Member{renamed}}},
		"dry run":  {{Name: "o", Members: []policy.Member{tried}}},
		"changed":  {{Name: "o", Members: []policy.Member{changed}}},
		"elevated": {{Name: "application", Members: []policy.Member{member}}},
		"twice":    {{Name: "o", Members: []policy.Member{member, member}}},
		"none":     {{Name: "o"}},
	} {
		digest := combine(t, l...).Digest()
		if twin, taken := seen[digest]; taken {
			t.Errorf("%s and %s have the same digest", name, twin)
		}
		seen[digest] = name
	}
	if seen[""] != "none" {
		t.Errorf("found the empty digest for %q; expected it where there are no policies", seen[""])
	}
}

// What a policy names is reported, so that it can be compared with what the organization has.
func TestReferencesAreReported(t *testing.T) {
	t.Parallel()
	d := parse(t, `@id("a") @require("approval") @group("dba")
permit (principal in Group::"developers", action == Action::"environment.enter", resource == Environment::"production")
when { context.application == Application::"shop" };`)
	var found []string
	for _, r := range d.References() {
		found = append(found, fmt.Sprintf("%s %s %d", r.Kind, r.Name, r.Line))
	}
	want := "Group developers 1, Environment production 1, Application shop 1, Group dba 1"
	if got := strings.Join(found, ", "); got != want {
		t.Errorf("found %s; expected %s", got, want)
	}
	if found := fmt.Sprint(d.Unpermitted()); found != "[gate.pass rollout.create rollout.rollback]" {
		t.Errorf("found %s; expected the actions that nothing permits", found)
	}
}
