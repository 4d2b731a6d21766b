package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
)

// randomCallPolicy is a valid policy about calls. Its condition asks for what differs between calls in every way that there is.
func randomCallPolicy(r *rand.Rand, id int) string {
	name := func(kind string) string { return fmt.Sprintf("%s::%q", kind, pick(r, "a", "b", "c")) }
	principal := pick(r, "principal", "principal", "principal == "+name("User"), "principal in "+name("Group"), "principal is Machine",
		"principal is User in "+name("Group"))
	resource := pick(r, "resource", "resource", "resource == "+name("Function"), "resource is Function")
	condition := func() string {
		return pick(
			r, `context.arguments.contains("x=1")`, `context.arguments.contains("y.z=a")`, `context.arguments.containsAny(["x=1", "x=2", "l=b"])`,
			`context.arguments.containsAll(["x=2", "l=b"])`, `context.arguments.isEmpty()`, `["x=1", "x=2"].containsAll(context.arguments)`,
			`context.arguments == ["x=1"]`, `context.arguments.contains(context.run)`, `context.omitted.contains("body")`,
			`context.argument has url`, `context.argument has url && context.argument.url like "https://a*"`,
			`context.argument has agent_id && context.argument.agent_id > 3`, `context.argument == context.argument`, `context.argument has name`,
			`context.argument has agent_id && context.argument.agent_id * 9223372036854775807 == 0`,
			`context.run like "r*1"`, `context has application && context.application == Application::"a"`,
			`context.environments.contains(Environment::"b")`, `context.time.hour < 12`, `context.time.weekday == 5`,
			`context.time.minute < 30`, `context.time.date like "*-1*"`, `context.time.at < datetime("2026-06-01")`,
			`context.time.at.toDate() == context.time.at`, `resource.name like "a*"`, `principal in Group::"a"`, `resource == Function::"b"`,
		)
	}
	text := ""
	for range r.IntN(3) {
		text += fmt.Sprintf(" %s { %s }", pick(r, "when", "when", "unless"), condition()+pick(r, "", "", " && "+condition(), " || "+condition()))
	}
	return fmt.Sprintf("@id(\"p%d\") %s (%s, action == Action::\"function.call\", %s)%s;\n",
		id, pick(r, "permit", "permit", "forbid"), principal, resource, text)
}

// randomArguments are those of a call, alike for many.
func randomArguments(r *rand.Rand) json.RawMessage {
	values := map[string]any{}
	for range r.IntN(4) {
		switch r.IntN(8) {
		case 0, 1:
			values["x"] = 1 + r.IntN(3)
		case 2:
			values["y"] = map[string]any{"z": pick(r, "a", "b"), "token": "secret"}
		case 3:
			values["l"] = []string{pick(r, "a", "b"), "b"}
		case 4:
			values["url"] = pick(r, "https://a.example", "https://b.example")
		case 5:
			values["agent_id"] = pick[any](r, 2, 7, "7", "none", 7.5)
		case 6:
			values["body"] = strings.Repeat("x", maxArgument)
		case 7:
			values["name"] = pick(r, "", "a")
		}
	}
	encoded, _ := json.Marshal(values) //nolint:errchkjson // of strings and numbers
	return encoded
}

// samePlainly is how a decision differs from what all policies come to without an index and without a memo; empty if it does not.
func samePlainly(t *testing.T, d Decision, all []*policy, c Call, zone *time.Location) string {
	t.Helper()
	common, err := c.world()
	if err != nil {
		t.Fatal(err)
	}
	seen, err := argumentsOf(c.Arguments)
	if err != nil {
		t.Fatal(err)
	}
	w := common.with(c.Function, seen, c.At)
	allowed, why := cedar.Authorize(plain(all), w, w.request(zone))
	var got, want []string
	for _, one := range why.Errors {
		want = append(want, "error "+string(one.PolicyID)+one.Message)
	}
	for _, one := range why.Reasons {
		want = append(want, string(one.PolicyID))
	}
	for _, one := range d.Rulings {
		if one.Failed {
			got = append(got, "error "+one.Policy+one.Message)
		} else if one.Policy != "" {
			got = append(got, one.Policy)
		}
	}
	verdict := Deny
	if allowed == cedar.Allow && len(why.Errors) == 0 {
		verdict = Allow
	}
	if d.Verdict != verdict || !slices.Equal(got, want) {
		return fmt.Sprintf("found %s by %v; expected %s by %v", d.Verdict, got, verdict, want)
	}
	return ""
}

// D51: a decision that is kept for calls which policies cannot distinguish is the one that each of them would have had, by plain evaluation
// of all policies. LOCKSTEP_POLICY_REQUESTS is how many calls are compared.
func TestWhatIsRememberedIsWhatWouldBeDecided(t *testing.T) {
	t.Parallel()
	calls := requested(t, 20_000)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 52)) //nolint:gosec // random policies, repeatable by their seed
	zones := []*time.Location{nil, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	verdicts, hits := map[Verdict]int{}, 0
	for done := 0; done < calls; {
		var text strings.Builder
		for i := range 1 + r.IntN(8) {
			text.WriteString(randomCallPolicy(r, i))
		}
		d, problems := Parse(text.String())
		if len(problems) > 0 {
			t.Fatalf("seed %d: found %v in\n%s", seed, problems, text.String())
		}
		zone := pick(r, zones...)
		s, err := CombineCalls(Level{Name: "the organization", Members: []Member{{Name: "calls", Document: d, Zone: zone}}})
		if err != nil {
			t.Fatal(err)
		}
		memo := NewMemo(40_000)
		s = s.Remember(memo)
		began := time.Date(2026, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), 0, 0, time.UTC)
		for range 4 {
			name := func() string { return pick(r, "a", "b", "c") }
			caller := NewCaller(Call{
				Principal: Principal{Kind: pick(r, User, Machine, System), ID: name(), Name: "n", Groups: []string{name()}}, Run: "r" + pick(r, "1", "2"),
				Application: pick(r, "", "a", "b"), Environments: []Environment{{Name: name(), Tier: "qa"}},
			})
			for range 50 {
				function, args, at := name(), randomArguments(r), began.Add(time.Duration(r.IntN(3600*30))*time.Second)
				before := len(memo.known)
				got := s.DecideFor(caller, function, args, at, nil)
				if differs := samePlainly(t, got, d.policies, caller.Call(function, args, at, nil), zone); differs != "" {
					t.Fatalf("seed %d: %s for %s%s at %s of\n%s", seed, differs, function, args, at, text.String())
				}
				if len(memo.known) == before && len(memo.known) > 0 && !got.failed() {
					hits++
				}
				verdicts[got.Verdict]++
				done++
			}
		}
	}
	if verdicts[Allow] == 0 || verdicts[Deny] == 0 || hits < calls/20 {
		t.Errorf("found %v and %d decisions that were remembered; expected both verdicts and many, or the test shows nothing", verdicts, hits)
	}
}

// What may be a secret is removed before policies see it, and neither a call with an approval nor one that cannot be read is remembered.
func TestWhatIsNotRemembered(t *testing.T) {
	t.Parallel()
	memo := NewMemo(1 << 20)
	s := callSet(t, base+`@id("no") forbid (principal, action == Action::"function.call", resource) when { context.arguments.contains("token=abc") };
@id("removed") forbid (principal, action == Action::"function.call", resource) when { context.arguments.contains("token=(removed)") };`).Remember(memo)
	caller := NewCaller(exampleCall(`{}`))
	at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	if d := s.DecideFor(caller, "act", json.RawMessage(`{"token": "abc"}`), at, nil); d.Verdict != Deny || d.Deciding()[0].Policy != "removed" {
		t.Errorf("a secret: %s", d.Sentence())
	}
	remembered := len(memo.known)
	s.DecideFor(caller, "act", json.RawMessage(`{"n": 1}`), at, []string{"calls/x?group="})
	for _, args := range []string{`{`, `[1]`, fmt.Sprintf(`{"url": %q}`, strings.Repeat("x", 5000)), `{"a": [` + strings.Repeat("1,", 2000) + `1]}`} {
		for range 2 {
			if d := s.DecideFor(caller, "act", json.RawMessage(args), at, nil); d.Verdict != Deny || !d.failed() {
				t.Errorf("%.20s: %s", args, d.Sentence())
			}
		}
	}
	if len(memo.known) != remembered || remembered != 1 {
		t.Errorf("found %d decisions that are remembered; expected 1", len(memo.known))
	}
	bad := exampleCall(`{}`)
	bad.Principal.Name = "a\xff"
	if s.DecideFor(NewCaller(bad), "act", nil, at, nil); len(memo.known) != remembered {
		t.Error("a name that is not UTF-8 is remembered, and is encoded as another one is")
	}
	bad.Principal.Kind = "Ghost"
	if d := s.DecideFor(NewCaller(bad), "act", nil, at, nil); d.Verdict != Deny || !d.failed() {
		t.Errorf("a principal of an unknown kind: %s", d.Sentence())
	}
}

// manyLiterals is a policy that looks for so many arguments.
func manyLiterals(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("%q", fmt.Sprint("x=", i))
	}
	return `@id("many") forbid (principal, action == Action::"function.call", resource) when { context.arguments.containsAny([` +
		strings.Join(texts, ",") + `]) };`
}

// manyPermits are so many policies that permit every call.
func manyPermits(n int) string {
	var text strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action == Action::\"function.call\", resource);\n", i)
	}
	return text.String()
}

// What a memo keeps is bounded whatever policies say and programs call: Functions that do not exist, many literals, many policies that
// match.
//
//nolint:paralleltest // it measures memory, so nothing runs beside it
func TestAMemoIsBounded(t *testing.T) {
	const most = 1 << 20
	named := ""
	for i := range 150 {
		named += fmt.Sprintf(`@id("n%d") permit (principal, action == Action::"function.call", resource == Function::"f%d");`+"\n", i, i)
	}
	for name, text := range map[string]string{
		"many literals": base + manyLiterals(5000), "literals that are remembered": base + manyLiterals(maxLiterals),
		"matching permits": manyPermits(MaxPolicies), "few matching permits": manyPermits(maxRulings),
		"Functions that policies name": manyPermits(40) + named, "whole arguments": base + `@id("no")
			forbid (principal, action == Action::"function.call", resource) when { context.arguments == ["x=1"] };`,
	} {
		memo := NewMemo(most)
		s := callSet(t, text).Remember(memo)
		at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
		before := heap()
		for i := 0; i < 4000 && memo.used < most*9/10; i++ {
			called := exampleCall(`{}`)
			called.Principal.ID = fmt.Sprint(i % 20)
			s.DecideFor(NewCaller(called), fmt.Sprint("f", i), fmt.Appendf(nil, `{"i": %d, "x": %d}`, i, i%maxLiterals), at, nil)
		}
		kept := int64(heap()) - int64(before)
		t.Logf("%s: %d plans, %d decisions, %d bytes, %d of memory", name, len(memo.plans), len(memo.known), memo.used, kept)
		if kept > int64(memo.used)+64<<10 {
			t.Errorf("%s: found %d bytes of memory; expected about %d at most", name, kept, memo.used)
		}
		for i := range 2000 {
			if memo.room(1000); memo.used > most || i > 1100 && len(memo.plans)+len(memo.known) > 0 {
				t.Fatalf("%s: found %d bytes and %d plans; expected at most %d, and none after it was full", name, memo.used, len(memo.plans), most)
			}
		}
		runtime.KeepAlive(s)
	}
}

// heap is how much memory is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Functions and principals that no policy names have one plan, and neither a large decision nor one with a long key is kept.
func TestWhatNoPolicyNamesHasOnePlan(t *testing.T) {
	t.Parallel()
	memo, at := NewMemo(1<<20), time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	s := callSet(t, base+`@id("own") forbid (principal, action == Action::"function.call", resource == Function::"own")
when { context.arguments == ["x=1"] };
@id("guest") forbid (principal == User::"9", action == Action::"function.call", resource);`).Remember(memo)
	for i := range 500 {
		call := exampleCall(`{}`)
		call.Principal.ID = fmt.Sprint(i % 10)
		d := s.DecideFor(NewCaller(call), []string{fmt.Sprint("f", i), "own"}[i/250], json.RawMessage(`{"x": 1}`), at, nil)
		if denied := i >= 250 || i%10 == 9; (d.Verdict == Deny) != denied {
			t.Fatalf("call %d: %s", i, d.Sentence())
		}
	}
	if len(memo.plans) != 4 {
		t.Errorf("found %d plans; expected one for each of the User and the Function that are named, and of the others", len(memo.plans))
	}
	before := len(memo.known)
	caller := NewCaller(exampleCall(`{}`))
	s.DecideFor(caller, "own", fmt.Appendf(nil, `{"x": %q}`, strings.Repeat("x", maxKey)), at, nil)
	s.DecideFor(caller, strings.Repeat("f", maxKey), json.RawMessage(`{}`), at, nil)
	if len(memo.known) != before {
		t.Error("a long key is kept")
	}
	memo = NewMemo(1 << 20)
	d := callSet(t, manyPermits(maxRulings+1)).Remember(memo).DecideFor(caller, "f", nil, at, nil)
	if d.Verdict != Allow || len(memo.known) != 0 {
		t.Errorf("found %s, and %d decisions kept; expected it to be too large", d.Verdict, len(memo.known))
	}
}

// Without a memo, nothing is made ready for one, and the decision is the same.
func TestDecisionsWithoutAMemo(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	s := callSet(t, base+manyLiterals(100))
	p := s.set.plan(FunctionCall, NewCaller(exampleCall(`{}`)).principal(), function("f"))
	if p.reads.found != nil || len(p.reads.literals) != 0 {
		t.Errorf("found %+v; expected nothing for keys", p.reads)
	}
	for args, want := range map[string]Verdict{`{"x": 7}`: Deny, `{"x": 700}`: Allow} {
		if d := s.DecideFor(NewCaller(exampleCall(`{}`)), "f", json.RawMessage(args), at, nil); d.Verdict != want {
			t.Errorf("%s: %s", args, d.Sentence())
		}
	}
}
