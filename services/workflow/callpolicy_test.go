package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// asking counts how often policies are asked, and lets a test take their store away.
type asking struct {
	*callpolicy.Registry
	asked atomic.Int64
	away  atomic.Bool
}

func (a *asking) Decide(
	ctx context.Context, r callpolicy.Run, function string, args json.RawMessage, given []string,
) (policy.Decision, callpolicy.Asked, error) {
	if a.away.Load() {
		return policy.Decision{}, callpolicy.Asked{}, errors.New("the policies are away")
	}
	a.asked.Add(1)
	return a.Registry.Decide(ctx, r, function, args, given)
}

const (
	permitAll = `@id("all") permit (principal, action == Action::"function.call", resource);`
	forbidAct = permitAll + `
@id("no-act") @message("never in production")
forbid (principal, action == Action::"function.call", resource == Function::"act") when { context.arguments.contains("at=production") };`
	requireAct = `@id("careful") @require("approval") @group("ops")
permit (principal, action == Action::"function.call", resource == Function::"act");
@id("others") permit (principal, action == Action::"function.call", resource) unless { resource == Function::"act" };`
)

// policed are engines whose calls are decided by policies.
type policed struct {
	*engines
	*asking
	versions int
	calls    atomic.Int64
}

func newPoliced(t *testing.T) *policed {
	t.Helper()
	p := &policed{engines: newEngines(t)}
	p.asking = &asking{Registry: callpolicy.NewRegistry(p.store, clock.System(), bustest.Log(t))}
	p.policies = p.asking
	return p
}

// put reports the next version of the organization's policies, and has it read.
func (p *policed) put(text string) {
	p.t.Helper()
	p.putAs("enforce", text)
}

// putAs reports the next version in a mode.
func (p *policed) putAs(mode, text string) {
	p.t.Helper()
	p.versions++
	err := p.store.ReceivePolicySet(p.t.Context(), event.Event{}, callpolicy.Set{
		Organization: 1, Name: "calls", Version: p.versions, Mode: mode, TimeZone: "UTC", Text: text,
	})
	if err == nil {
		err = p.Read(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// act is a Function that counts its calls.
func (p *policed) act(context.Context, activity.Call) (any, error) { return p.calls.Add(1), nil }

// decisions are those of the run's history.
func (p *policed) decisions() []history.CallDecision {
	p.t.Helper()
	entries, err := p.service.History(p.t.Context(), 1, "w", 0, 1000)
	if err != nil {
		p.t.Fatal(err)
	}
	var all []history.CallDecision
	for _, e := range entries {
		if d, is := e.Decision(); is {
			all = append(all, d)
		}
	}
	return all
}

// states are the states of the decisions, in their order.
func (p *policed) states() string {
	var all []string
	for _, d := range p.decisions() {
		all = append(all, d.State)
	}
	return strings.Join(all, " ")
}

// answer answers a request as the domain service does, for an organization.
func (p *policed) answer(organization int64, request string, approved bool) {
	p.t.Helper()
	err := p.store.ReceiveCallAnswer(p.t.Context(), event.Event{}, organization, history.CallAnswer{
		Request: request, Approved: approved, Reason: "because",
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// pending waits until the run waits for an approval, and answers the request. Asked is how many there were, this one included.
func (p *policed) pending(asked int) history.CallDecision {
	p.t.Helper()
	wall := clock.System()
	for deadline := wall.Now().Add(within); wall.Now().Before(deadline); _ = clock.Sleep(p.t.Context(), wall, 5*time.Millisecond) {
		w, err := p.store.Get(p.t.Context(), 1, "w")
		if err != nil {
			p.t.Fatal(err)
		}
		all := p.decisions()
		if n := len(all); n > 0 && all[n-1].State == history.CallPending && all[n-1].Asked == asked && w.State == execution.Parked {
			return all[n-1]
		}
		if w.State.Ended() {
			p.t.Fatalf("the run ended as %d: %s", w.State, w.Error)
		}
	}
	p.t.Fatalf("the run does not wait for an approval: %v", p.decisions())
	return history.CallDecision{}
}

// D51: a call that a policy denies fails with forbidden and the policy's name, is recorded, and is never made; others are, whatever the
// program does about it. What fails is only what the policy is about.
func TestAPolicyDeniesACall(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.put(forbidAct)
	p.run("one", p.store, p.act)
	p.start(`
a = run("act", {"at": "production"}, on_error = "return")
print(a.code, a.error)
def again():
    return run("act", {"at": "production"}, on_error = "return").code
print(gather(spawn(again)))
print(poll("act", {"at": "production"}, until = lambda v: True, interval = 1, on_error = "return").code)
run("act", {"at": "staging"})
`)
	p.await(execution.Completed)
	lines := strings.Join(p.history(), "\n")
	if p.calls.Load() != 1 || strings.Count(lines, "never in production") < 3 || !strings.Contains(lines, "calls/no-act") {
		t.Errorf("called %d times, expected once; history:\n%s", p.calls.Load(), lines)
	}
	if got := p.states(); got != "denied denied denied" {
		t.Errorf("decisions %q", got)
	}
	if _, _, denied := p.Counts(); denied != 3 {
		t.Errorf("counted %d denials", denied)
	}
}

// D51: policies that are tried out change no call and add nothing to the history. What they would have decided is reported once for each
// call, and at most 100 times by a run that repeats itself.
func TestPoliciesAboutCallsAreTriedOut(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.putAs("dry_run", forbidAct)
	p.runWith("one", p.store, p.act, 1000)
	p.start(`
for i in range(130):
    run("act", {"at": "production"})
run("act", {"at": "staging"})
`)
	p.await(execution.Completed)
	if n := len(p.decisions()); p.calls.Load() != 131 || n != 0 {
		t.Fatalf("called %d times with %d entries of decisions; expected 131 and none", p.calls.Load(), n)
	}
	rows, err := p.store.Pool.Query(t.Context(), `SELECT DISTINCT event->'data'->>'call_id' || ' ' || (event->'data'->>'state') || ' ' ||
		(event->'data'->>'policy') || ' ' || (event->'data'->'decision'->>'verdict') || ' ' || (event->'data'->'decision'->>'would_be')
		FROM outbox WHERE event->>'type' = $1`, event.TypeCallDecided)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	count := 0
	for ; rows.Next(); count++ {
		var line string
		if err := rows.Scan(&line); err != nil || !strings.HasSuffix(line, "!1 permitted calls/no-act allow deny") {
			t.Errorf("reported %q, %v; expected a permission that calls/no-act would have denied", line, err)
		}
	}
	if err := rows.Err(); err != nil || count != 100 {
		t.Errorf("%d calls were reported, %v; expected 100", count, err)
	}
}

// D51: of the calls that all policies permit at once, the first of a Function is reported as a sample, at most once by each process, and
// adds nothing to the history. Where no sample is asked for, there is none.
func TestASampleOfPermittedCallsIsReported(t *testing.T) {
	t.Parallel()
	for _, sampled := range []bool{true, false} {
		for after := range 3 {
			t.Run(fmt.Sprintf("sampled %t, the process dies after %d commits", sampled, after), func(t *testing.T) {
				t.Parallel()
				p := newPoliced(t)
				if sampled {
					p.SampleCalls(10)
				}
				p.put(forbidAct)
				dying := &fragile{Store: p.store}
				dying.left.Store(int64(after))
				p.runWith("lost", dying, p.act, 1000)
				p.start(`
for i in range(30):
    run("act", {"at": "staging", "token": "abc", "i": i})
`)
				p.runWith("heir", p.store, p.act, 1000)
				p.await(execution.Completed)
				rows, err := p.store.Pool.Query(t.Context(), `SELECT DISTINCT ON (event->'data'->>'call_id') event->'data' FROM outbox
					WHERE event->>'type' = $1`, event.TypeCallDecided)
				if err != nil {
					t.Fatal(err)
				}
				reports, err := pgx.CollectRows(rows, pgx.RowTo[event.CallDecided])
				if err != nil || len(reports) > 2 || sampled != (len(reports) > 0) || len(p.decisions()) != 0 {
					t.Fatalf("%d reports, %v, %d entries of decisions; expected at most one of a process", len(reports), err, len(p.decisions()))
				}
				for _, one := range reports {
					clean := strings.Contains(string(one.Request), `"token":"(removed)"`)
					if !one.Sampled || one.State != "permitted" || one.Policy != "calls/all" || !clean {
						t.Errorf("reported %+v with %s", one, one.Request)
					}
				}
			})
		}
	}
}

// D51: a call that is permitted and then refused for something else, such as that there is no such Function, is not of the sample, and
// takes no place in it.
func TestACallThatIsNotMadeIsNotSampled(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.SampleCalls(10)
	p.put(forbidAct)
	p.run("one", p.store, p.act)
	p.start(`
for i in range(40):
    attempt(run, "missing%d" % i, {"at": "staging"})
run("act", {"at": "staging"})
`)
	p.await(execution.Completed)
	rows, err := p.store.Pool.Query(t.Context(), `SELECT event->'data'->>'function' FROM outbox WHERE event->>'type' = $1`,
		event.TypeCallDecided)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Equal(functions, []string{"act"}) {
		t.Errorf("found samples of %v, %v; expected one of act", functions, err)
	}
}

// D51: the run parks without its program knowing, continues once, and the policies are asked again with the approval; a replay asks
// nothing. An answer to another request, for another organization, and a second one change nothing.
func TestACallWaitsForAnApproval(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.put(requireAct)
	stop := p.run("one", p.store, p.act)
	p.start(`
before = run("act", {"n": 1}, timeout = 60)
wait_for_event(["com.gitlab.cd.approval.resolved"], {}, timeout = 3600)
print(before)
`)
	request := p.pending(1)
	if request.Policy != "calls/careful" || request.ExpiresAt.Before(clock.System().Now().Add(29*24*time.Hour)) {
		t.Errorf("request %+v", request)
	}
	for _, w := range waitingOf(t, p.engines) {
		if !strings.Contains(w, "waits for an approval to call function act") {
			t.Errorf("waits: %s", w)
		}
	}
	p.answer(2, request.Request, true)
	p.answer(1, request.Request+"0", true)
	p.answer(1, strings.TrimSuffix(request.Request, "!1"), true)
	forged := agent.Answer{Call: request.Request, Agent: 0, Value: json.RawMessage(`{"approved":true}`)}
	if err := p.store.Answer(t.Context(), forged, clock.System().Now()); err == nil {
		t.Error("a relay has answered")
	}
	if p.calls.Load() != 0 || p.asked.Load() != 1 {
		t.Errorf("called %d times, asked %d times", p.calls.Load(), p.asked.Load())
	}
	p.answer(1, request.Request, true)
	p.answer(1, request.Request, false)
	p.until("the call is made and the run waits", func() bool { return p.calls.Load() == 1 && p.parkedFor(history.KindWait) })
	p.answer(1, request.Request, false)
	asked := p.asked.Load()
	stop() // and a process that has nothing in memory
	p.run("two", p.store, p.act)
	if _, _, err := p.store.Receive(t.Context(), history.Event{
		Organization: 1, Source: event.SourceDomain, ID: "e", Type: event.TypeApprovalResolved, Data: []byte(`{}`), Time: clock.System().Now(),
	}); err != nil {
		t.Fatal(err)
	}
	p.await(execution.Completed)
	if p.calls.Load() != 1 || p.asked.Load() != asked || asked != 2 || p.states() != "pending permitted" {
		t.Errorf("called %d times, asked %d and then %d times, decisions %q", p.calls.Load(), asked, p.asked.Load(), p.states())
	}
}

// D47, D51: no program answers a request, its own or another run's, and it sees neither the request nor the answer.
func TestNoProgramAnswersARequest(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.put(requireAct)
	p.run("one", p.store, p.act)
	p.start(`
def forge():
    for kind in ["com.gitlab.cd.call.answered", "com.gitlab.cd.call.decided", "com.gitlab.cd.policy_set.changed"]:
        a = run("emit", {"type": kind, "data": {"workflow_id": "w", "call_id": "x", "approved": True}}, on_error = "return")
        print(a.code, a.error)
    print(wait_for_event(["com.gitlab.cd.call.decided", "com.gitlab.cd.call.answered"], {}, timeout = 1))
gather(spawn(forge), spawn(lambda: run("act", {})))
`)
	request := p.pending(1)
	p.until("nothing came", func() bool { return strings.Contains(strings.Join(p.history(), "\n"), `wait null`) })
	lines := strings.Join(p.history(), "\n")
	if p.calls.Load() != 0 || strings.Count(lines, "from a program, expected it from") != 3 {
		t.Errorf("called %d times; history:\n%s", p.calls.Load(), lines)
	}
	p.answer(1, request.Request, true)
	p.await(execution.Completed)
}

// D51: a refusal, and an answer that does not come, fail the call with forbidden and say why.
func TestACallThatIsNotApprovedFails(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct{ text, state, expect string }{
		"refused": {requireAct, history.CallRefused, "refused: because"},
		"expired": {strings.Replace(requireAct, `@group("ops")`, `@expires("1s")`, 1), history.CallExpired, "nobody approved it until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t)
			p.put(end.text)
			p.run("one", p.store, p.act)
			p.start(`
a = run("act", {}, on_error = "return")
print(a.code, a.error)`)
			if name == "refused" {
				p.answer(1, p.pending(1).Request, false)
			}
			p.await(execution.Completed)
			lines := strings.Join(p.history(), "\n")
			if p.calls.Load() != 0 || p.states() != "pending "+end.state || !strings.Contains(lines, end.expect) || !strings.Contains(lines, "forbidden") {
				t.Errorf("called %d times, decisions %q, history:\n%s", p.calls.Load(), p.states(), lines)
			}
		})
	}
}

// D51: the process dies after the run has parked, and after the answer; another one continues it, and nothing is asked or called twice.
// Every commit on the way may be the last of a process.
func TestAProcessDiesBetweenRequestAndAnswer(t *testing.T) {
	t.Parallel()
	for after := range 5 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t)
			p.put(requireAct)
			dying := &fragile{Store: p.store}
			dying.left.Store(int64(after))
			p.run("lost", dying, p.act)
			p.start(`print(run("act", {}), poll("act", {}, until = lambda v: True, interval = 1))`)
			if after > 0 {
				p.pending(1)
			}
			p.run("heir", p.store, p.act)
			p.answer(1, p.pending(1).Request, true)
			var second history.CallDecision
			p.until("the poll asks", func() bool {
				all := p.decisions()
				second = all[len(all)-1]
				return len(all) == 3 && second.State == history.CallPending
			})
			p.answer(1, second.Request, true)
			p.await(execution.Completed)
			if p.states() != "pending permitted pending permitted" {
				t.Errorf("decisions %q", p.states())
			}
		})
	}
}

// fragile stops committing after some commits, as a process that has died.
type fragile struct {
	Store
	left atomic.Int64
}

func (f *fragile) Commit(ctx context.Context, c engine.Commit) (engine.Committed, error) {
	if f.left.Add(-1) < 0 {
		return engine.Committed{}, engine.ErrFenced
	}
	return f.Store.Commit(ctx, c)
}

func (f *fragile) Due(ctx context.Context, r engine.Round) (engine.Due, error) {
	if f.left.Load() < 0 {
		return engine.Due{}, errors.New("no route to host")
	}
	return f.Store.Due(ctx, r)
}

func (f *fragile) Claim(ctx context.Context, c engine.Claim) ([]engine.Claimed, error) {
	if f.left.Load() < 0 {
		return nil, errors.New("no route to host")
	}
	return f.Store.Claim(ctx, c)
}

// D51: what decides after the answer are the policies of then: one that denies by now, that requires another approval, or none.
func TestTheNewestPoliciesDecideAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]struct {
		text, want string
		calls      int64
	}{
		"denies":           {forbidAct + "\n" + `@id("stop") forbid (principal, action == Action::"function.call", resource == Function::"act");`, "pending denied", 0},
		"another approval": {strings.Replace(requireAct, `"ops"`, `"dba"`, 1), "pending pending permitted", 1},
		"none":             {"", "pending permitted", 1},
		"cannot be read":   {`permit (principal, action == Action::"function.call", resource == Widget::"x");`, "pending denied", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t)
			p.put(requireAct)
			p.run("one", p.store, p.act)
			p.start(`run("act", {}, on_error = "return")`)
			first := p.pending(1)
			p.put(now.text)
			p.answer(1, first.Request, true)
			if strings.Count(now.want, "pending") > 1 {
				second := p.pending(2)
				p.answer(1, first.Request, true) // to the former request
				if second.Request == first.Request || p.calls.Load() != 0 {
					t.Fatalf("the former answer counts: %+v", second)
				}
				p.answer(1, second.Request, true)
			}
			p.await(execution.Completed)
			if p.states() != now.want || p.calls.Load() != now.calls {
				t.Errorf("decisions %q, called %d times", p.states(), p.calls.Load())
			}
		})
	}
}

// D51: policies that cannot be evaluated deny; while it is unknown whether there are any, or the set of a rollout's creation has not come,
// the run waits and its call is not made. An organization without policies is not asked at all.
func TestPoliciesAboutCallsFailClosed(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	p.run("one", p.store, p.act)
	submit := func(workflow string, inputs any) {
		encoded, err := json.Marshal(inputs)
		if err == nil {
			_, err = p.service.Start(t.Context(), execution.Start{
				Organization: 1, Workflow: workflow, Program: program.Program{Source: []byte(`run("act", {})`)}, Inputs: encoded,
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rollout := map[string]any{"rollout": map[string]any{
		"application": map[string]any{"id": 3, "name": "shop"}, "requester": map[string]any{"kind": "User", "id": "12", "name": "ann"},
		"environments": []any{map[string]any{"id": 5, "name": "prod", "tier": "production"}}, "call_policies": map[string]int{"calls": 1},
	}}
	submit("rollout-1", rollout)
	p.until("it is asked for what is not here", func() bool { return p.asked.Load() > 1 })
	if p.calls.Load() != 0 {
		t.Error("called before the policies came")
	}
	p.put(`@id("ann") permit (principal == User::"12", action == Action::"function.call", resource)
when { context has application && context.application == Application::"shop" && context.environments.contains(Environment::"prod") && context.run == "rollout-1" };`)
	if w := p.ended("rollout-1"); w.State != execution.Completed || p.calls.Load() != 1 {
		t.Errorf("ended as %d: %s; called %d times", w.State, w.Error, p.calls.Load())
	}
	submit("nightly", rollout) // whatever it claims, it is no rollout's run
	if w := p.ended("nightly"); w.State != execution.Failed || !strings.Contains(w.Error, "no policy of the organization permits it") {
		t.Errorf("ended as %d: %s", w.State, w.Error)
	}
	p.put(`permit (principal, action == Action::"function.call", resource == Widget::"x");`)
	submit("broken", map[string]any{})
	if w := p.ended("broken"); w.State != execution.Failed || !strings.Contains(w.Error, "the set cannot be read") {
		t.Errorf("ended as %d: %s", w.State, w.Error)
	}
	p.away.Store(true)
	p.put("")
	submit("free", map[string]any{})
	if w := p.ended("free"); w.State != execution.Completed {
		t.Errorf("ended as %d: %s", w.State, w.Error)
	}
}

// until waits for something.
func (p *policed) until(what string, is func() bool) {
	p.t.Helper()
	wall := clock.System()
	for deadline := wall.Now().Add(within); wall.Now().Before(deadline); _ = clock.Sleep(p.t.Context(), wall, 5*time.Millisecond) {
		if is() {
			return
		}
	}
	p.t.Fatalf("%s: did not happen; history:\n%s", what, strings.Join(p.history(), "\n"))
}

// parkedFor reports whether the run is parked and waits for something of a kind.
func (p *policed) parkedFor(kind history.Kind) bool {
	w, err := p.store.Get(p.t.Context(), 1, "w")
	if err != nil || w.State != execution.Parked {
		return false
	}
	waits, err := p.store.Waiting(p.t.Context(), w.ID)
	return err == nil && len(waits) == 1 && waits[0].Kind == kind
}

// waitingOf are the sentences about what the run waits for.
func waitingOf(t *testing.T, e *engines) (all []string) {
	t.Helper()
	w, err := e.store.Get(t.Context(), 1, "w")
	if err != nil {
		t.Fatal(err)
	}
	waits, err := e.store.Waiting(t.Context(), w.ID)
	if err != nil || len(waits) == 0 {
		t.Fatalf("waits for %v, error %v", waits, err)
	}
	for _, one := range waits {
		all = append(all, one.Sentence())
	}
	return all
}

// D51: a set of a group that a replica of an earlier release has stored without its labels, as one of the organization, gets them when it
// is announced again in the same version, and a process that has read it before decides by them. A version that was missed arrives the
// same way.
func TestARowOfAGroupIsRepaired(t *testing.T) {
	t.Parallel()
	p := newPoliced(t)
	report := func(version int, labels map[string]string) {
		t.Helper()
		err := p.store.ReceivePolicySet(t.Context(), event.Event{}, callpolicy.Set{
			Organization: 1, Name: "critical", Version: version, Mode: "enforce", TimeZone: "UTC", Text: forbidAct, Labels: labels,
		})
		if err == nil {
			err = p.Read(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	verdict := func() policy.Verdict {
		t.Helper()
		run, err := p.Find(t.Context(), 1, "nightly") // of no application
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := p.Registry.Decide(t.Context(), run, "act", json.RawMessage(`{"at": "production"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.Verdict
	}
	report(1, nil)
	if got := verdict(); got != policy.Deny {
		t.Fatalf("without labels it concerns every run: %s", got)
	}
	report(1, map[string]string{"tier": "critical"})
	if got := verdict(); got != policy.Allow {
		t.Errorf("with labels it concerns no run of no application: %s", got)
	}
	report(1, nil) // a late report of the earlier release
	if got := verdict(); got != policy.Allow {
		t.Errorf("labels were lost again: %s", got)
	}
	report(3, map[string]string{"tier": "critical"}) // the second was missed
	stored, err := p.store.PolicyVersions(t.Context())
	if err != nil || len(stored) != 1 || stored[0].Version != 3 || !stored[0].OfGroup {
		t.Errorf("found %v, %v; expected version 3 of a group", stored, err)
	}
}
