package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func callSet(tb testing.TB, text string) *CallSet {
	tb.Helper()
	d, problems := Parse(text)
	if len(problems) > 0 {
		tb.Fatal(problems)
	}
	s, err := CombineCalls(Level{Name: "the organization", Members: []Member{{Name: "calls", Document: d}}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func exampleCall(arguments string) Call {
	return Call{
		Principal: Principal{Kind: User, ID: "12", Name: "ann", Groups: []string{"ops"}}, Function: "http.request", Run: "rollout-7",
		Application: "shop", Environments: []Environment{{Name: "prod", Tier: "production"}}, Arguments: json.RawMessage(arguments),
		At: time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC),
	}
}

const base = `@id("base") permit (principal, action == Action::"function.call", resource);` + "\n"

// D51: what a policy about calls may ask of, and that what cannot be seen is denied.
func TestPoliciesDecideAboutCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, condition, arguments string
		matches                    bool
	}{
		{"an argument", `context.arguments.contains("namespace=prod")`, `{"namespace": "prod"}`, true},
		{"an argument within another", `context.arguments.contains("headers.x=1")`, `{"headers": {"x": 1}}`, true},
		{"an item of a list", `context.arguments.contains("paths=b")`, `{"paths": ["a", "b"]}`, true},
		{"a pattern", `context.argument has url && context.argument.url like "https://api.*"`, `{"url": "https://api.example.com"}`, true},
		{"a number in quotes", `context.argument has agent_id && context.argument.agent_id == 7`, `{"agent_id": "7"}`, true},
		{"an absent argument", `context.argument has url`, `{}`, false},
		{"a long argument", `context.omitted.contains("body")`, fmt.Sprintf(`{"body": %q}`, strings.Repeat("x", 5000)), true},
		{"the function", `resource.name like "http.*"`, `{}`, true},
		{"the group", `principal in Group::"ops"`, `{}`, true},
		{"the environment", `context.environments.contains(Environment::"prod")`, `{}`, true},
		{"the application", `context has application && context.application == Application::"shop"`, `{}`, true},
		{"the run", `context.run == "rollout-7"`, `{}`, true},
		{"the time", `context.time.weekday == 2 && context.time.hour == 10`, `{}`, true},
	} {
		s := callSet(t, base+`@id("no") forbid (principal, action == Action::"function.call", resource) when { `+tt.condition+` };`)
		if d := s.Decide(exampleCall(tt.arguments)); (d.Verdict == Deny) != tt.matches {
			t.Errorf("%s: %s: %s", tt.name, d.Verdict, d.Sentence())
		}
	}
	s := callSet(t, base)
	for name, arguments := range map[string]string{
		"a name that is too long": fmt.Sprintf(`{"url": %q}`, strings.Repeat("x", 5000)), "no object": `[1]`, "no JSON": `{`,
		"too many": `{"a": [` + strings.Repeat("1,", 2000) + `1]}`,
	} {
		if d := s.Decide(exampleCall(arguments)); d.Verdict != Deny || !d.Rulings[0].Failed {
			t.Errorf("%s: %s: %s", name, d.Verdict, d.Sentence())
		}
	}
}

// D51: policies about calls and about rollouts do not concern each other, so that a policy that names no action means what it always did,
// and a set that is only about calls denies no rollout.
func TestPoliciesAboutCallsAreApart(t *testing.T) {
	t.Parallel()
	if s := callSet(t, `@id("rollouts") permit (principal, action, resource) when { context.rolloutsLastDay < 5 };`); !s.Empty() {
		t.Error("a set about rollouts concerns calls")
	}
	d, problems := Parse(base)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	all, err := Combine(Level{Name: "the organization", Members: []Member{{Name: "calls", Document: d}}})
	if err != nil || !all.Empty() {
		t.Errorf("a set about calls concerns rollouts: %v", err)
	}
	if got := d.Unpermitted(); len(got) != 0 {
		t.Errorf("unpermitted %v", got)
	}
	for text, expect := range map[string]string{
		`@id("a") permit (principal, action in [Action::"function.call", Action::"gate.pass"], resource);`:                                "expected a policy of its own for calls",
		`@id("a") permit (principal, action == Action::"function.call", resource == Environment::"prod");`:                                "",
		`@id("a") permit (principal, action == Action::"function.call", resource) when { context.weight == 1 };`:                          "weight",
		`@id("a") permit (principal, action == Action::"function.call", resource) when { context.argument.url == "x" };`:                  "url",
		`@id("a") @require("approval") forbid (principal, action == Action::"function.call", resource);`:                                  "on a forbid",
		`@id("a") permit (principal, action == Action::"gate.pass", resource) when { context.arguments.contains("x") };`:                  "arguments",
		`@id("a") permit (principal, action == Action::"function.call", resource == Function::"http.request") when { context.run == 1 };`: "",
	} {
		if _, problems := Parse(text); len(problems) == 0 || !strings.Contains(problems[0].Message, expect) {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

// A call that has an approval is permitted by the policy that requires it, and by no other one.
func TestAnApprovalOfACallIsThatOfItsPolicy(t *testing.T) {
	t.Parallel()
	s := callSet(t, `@id("careful") @require("approval") @group("ops") permit (principal, action == Action::"function.call", resource);`)
	c := exampleCall(`{}`)
	d := s.Decide(c)
	if d.Verdict != NeedsApproval {
		t.Fatalf("%s: %s", d.Verdict, d.Sentence())
	}
	c.Given = []string{strings.Replace(d.Rulings[0].Approval(), "ops", "dba", 1)}
	if d := s.Decide(c); d.Verdict != NeedsApproval {
		t.Errorf("another approval counts: %s", d.Sentence())
	}
	c.Given = append(c.Given, d.Rulings[0].Approval())
	if d := s.Decide(c); d.Verdict != Allow {
		t.Errorf("%s: %s", d.Verdict, d.Sentence())
	}
}

// Cases decide calls as well.
func TestCasesAboutCalls(t *testing.T) {
	t.Parallel()
	cases, err := ReadCases([]byte(`{"policies": "a", "cases": [
		{"name": "outside", "verdict": "deny", "by": "no", "call": {"function": "http.request", "arguments": {"url": "https://x"}}},
		{"name": "another", "verdict": "allow", "call": {"function": "git.commit", "arguments": {"branch": "main"}, "run": "rollout-7"}}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	outcomes, problems := cases.Run(base + `@id("no") forbid (principal, action == Action::"function.call", resource == Function::"http.request");`)
	if len(problems) > 0 || len(outcomes) != 2 || !outcomes[0].Passed || !outcomes[1].Passed {
		t.Errorf("%+v %v", outcomes, problems)
	}
}

// What is shown of a call has no secret, and is bounded.
func TestCallsAreShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	clean := string(WithoutSecrets(json.RawMessage(`{"headers": {"Authorization": "Bearer abc", "x-api-key": "abc"}, "list": [{"password": "abc"}], "n": 1}`)))
	if strings.Contains(clean, "abc") || !strings.Contains(clean, `"n":1`) {
		t.Errorf("found %s", clean)
	}
	long := exampleCall(fmt.Sprintf(`{"body": %q}`, strings.Repeat("x", 5000))).Shown()
	if len(long.Arguments) > 700 || !strings.Contains(string(long.Arguments), "5000 bytes") {
		t.Errorf("found %s", long.Arguments)
	}
}

// BenchmarkDecideCall is a decision by 200 policies, of which a few name the Function.
func BenchmarkDecideCall(b *testing.B) {
	var text strings.Builder
	text.WriteString(base)
	for i := range 199 {
		fmt.Fprintf(&text, `@id("p%d") forbid (principal, action == Action::"function.call", resource == Function::"function.%d") `+
			`when { context.arguments.contains("namespace=prod-%d") && context.time.hour > 20 };`+"\n", i, i%60, i)
	}
	s := callSet(b, text.String())
	c := exampleCall(`{"url": "https://api.example.com", "method": "POST", "json": {"a": 1, "b": [1, 2, 3]}}`)
	c.Function = "function.7"
	b.ReportAllocs()
	for b.Loop() {
		if d := s.Decide(c); d.Verdict != Allow {
			b.Fatal(d.Sentence())
		}
	}
}
