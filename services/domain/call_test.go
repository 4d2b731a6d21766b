package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// asksForCall reports as the engine that a call waits for an approval.
func (w winter) asksForCall(run, call, group string, quorum int, requester int64) core.CallRequest {
	w.t.Helper()
	request, err := json.Marshal(map[string]any{
		"principal": map[string]any{"kind": "User", "id": itoa(requester)}, "function": "http.request", "arguments": map[string]any{"url": "https://x"},
	})
	w.ok(err)
	w.ok(w.ofRun(run, event.CallDecided{
		WorkflowID: run, CallID: call, Function: "http.request", State: "pending", Policy: "calls/payments", Reason: "it requires an approval",
		Group: group, Quorum: quorum, ExpiresAt: w.now.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano),
		Decision: []byte(`{"verdict":"needs_approval"}`), Request: request,
	}))
	return w.callOf(call)
}

// ofRun handles an event of a run.
func (w winter) ofRun(run string, data event.Data) error {
	w.t.Helper()
	e := w.emit(data, "-")
	e.SetExtension(event.ExtensionCorrelation, run)
	return w.on.Domain(w.t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]
}

func (w winter) callOf(call string) core.CallRequest {
	w.t.Helper()
	id := int64(w.countOf(`SELECT id FROM cd_call_requests WHERE call_id = $1`, call)) // also of one that no list has
	all, err := w.policies.CallRequestsByID(w.t.Context(), org, []int64{id})
	w.ok(err)
	return all[id]
}

// answered are the answers that the engine is sent, in order.
func (w winter) answered() []string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT (event->'data'->>'call_id') || ' ' || (event->'data'->>'approved') || ' ' || (event->>'correlationid')
		FROM outbox WHERE event->>'type' = $1 ORDER BY id`, event.TypeCallAnswered)
	w.ok(err)
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		all = append(all, line)
	}
	w.ok(rows.Err())
	return all
}

// D51: a call waits for members as a gate does: the group, different people, not the requester, no machines, within the time; each answer
// leaves its row and one of the journal of changes, and the engine is sent one answer that names the request.
func TestPeopleAnswerCalls(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.people(2, 3, 4)
	r := w.rollout(w.set)
	run := "rollout-" + itoa(r.ID)
	person := func(id int64, groups ...string) core.Actor {
		a := user()
		a.ID, a.Groups = id, groups
		return a
	}
	answer := func(a core.Actor, c core.CallRequest, approve bool) error {
		_, err := w.policies.AnswerCall(t.Context(), a, c.ID, approve, "as agreed")
		return err
	}
	two := w.asksForCall(run, "x/0.0!1", "", 2, 1)
	w.want([]any{two.RolloutID, two.State, two.Quorum}, []any{r.ID, core.CallPending, 2})
	w.ok(w.ofRun(run, event.CallDecided{ // a repetition
		WorkflowID: run, CallID: "x/0.0!1", Function: "http.request", State: "pending", Quorum: 1, ExpiresAt: wire(1),
	}))
	machine := person(4)
	machine.Type = core.PrincipalAgent
	viewer := person(4)
	viewer.Permissions = core.RoleViewer.Permissions()
	w.refused(answer(person(1), two, true), "requested the rollout that calls http.request, so someone else must approve callrequest_1")
	w.refused(answer(machine, two, true), "is for people to approve")
	if err := answer(viewer, two, true); !fault.Is(err, fault.Denied) {
		t.Errorf("a viewer: %v", err)
	}
	if _, err := w.policies.AnswerCall(t.Context(), person(2), two.ID, true, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("no reason: %v", err)
	}
	stranger := person(2)
	stranger.Organization = 2
	if err := answer(stranger, two, true); !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		t.Errorf("of another organization: %v", err)
	}
	w.ok(answer(person(2), two, true))
	w.refused(answer(person(2), two, true), "has approved callrequest_1 already; 1 of 2 have")
	w.want(w.answered(), []string{})
	w.ok(answer(person(3), two, true))
	w.want(w.answered(), []string{"x/0.0!1 true " + run})
	w.refused(answer(person(4), two, false), "is approved; only one that is pending can be answered")
	w.ok(w.ofRun(run, event.CallDecided{WorkflowID: run, CallID: "x/0.0!1", Function: "http.request", State: "permitted"}))
	w.want(w.callOf("x/0.0!1").State, core.CallPermitted)
	w.want(string(w.callOf("x/0.0!1").Decision.Verdict), "needs_approval")
	w.ok(w.ofRun(run, event.CallDecided{WorkflowID: run, CallID: "x/0.0!1", Function: "http.request", State: "denied"}))
	w.want(w.callOf("x/0.0!1").State, core.CallPermitted) // what is final stays

	one := w.asksForCall("nightly", "y/0.0!1", "finance", 1, 9)
	w.want(one.RolloutID, int64(0))
	w.refused(answer(person(2), one, true), `is for the group "finance" to answer`)
	w.ok(answer(person(2, "finance"), one, false))
	w.want(w.answered()[1:], []string{"y/0.0!1 false nightly"})

	late := w.asksForCall("nightly", "y/0.1!1", "", 1, 9)
	w.now.Advance(2 * time.Hour)
	w.refused(answer(person(2), late, true), "is expired")
	gone := w.asksForCall("nightly", "y/0.2!1", "", 1, 9)
	w.ok(w.ofRun("nightly", event.WorkflowFailed{WorkflowID: "nightly", Error: "no"}))
	w.refused(answer(person(2), gone, true), "is withdrawn")
	if err := w.ofRun("nightly", event.CallDecided{WorkflowID: run, CallID: "z", Function: "f", State: "denied"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("of another run: %v", err)
	}

	var changes []string
	rows, err := w.pool.Query(t.Context(), `SELECT principal_id || ' ' || subject_name || ' ' || reason || ' ' || (before->>'state') || ' ' ||
		(after->>'state') FROM cd_changes WHERE action = 'answerCall' ORDER BY id`)
	w.ok(err)
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		changes = append(changes, line)
	}
	w.ok(rows.Err())
	w.want(changes, []string{
		"2 http.request as agreed pending pending", "3 http.request as agreed pending approved", "2 http.request as agreed pending refused",
	})
}

// D51: the engine is sent the sets that are about calls, with each version, and a rollout's run says which of them it needs and who
// requested it. Sets that are only about rollouts are not sent, and sets that are only about calls do not concern rollouts.
func TestTheEngineIsSentPoliciesAboutCalls(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	const calls = `@id("all") permit (principal, action == Action::"function.call", resource);`
	w.put(policy.NewPolicySet{Name: "rollouts", Text: allowed})
	w.put(policy.NewPolicySet{Name: "calls", Text: calls})
	w.put(policy.NewPolicySet{Name: "shop", ApplicationID: w.application.ID, Text: calls, Mode: core.PolicyDryRun})
	r := w.rollout(w.set)
	inputs := w.inputsOf("rollout-" + itoa(r.ID))
	for _, want := range []string{`"calls": 1`, `"shop": 1`, `"requester": {"id": "1", "kind": "User"`} {
		if !strings.Contains(inputs, want) {
			t.Errorf("the inputs have no %s: %s", want, inputs)
		}
	}
	w.put(policy.NewPolicySet{Name: "calls", Text: allowed})
	w.put(policy.NewPolicySet{Name: "calls", Text: allowed, TimeZone: "Europe/Berlin"}) // said already
	w.put(policy.NewPolicySet{Name: "shop", Mode: core.PolicyOff})
	rows, err := w.pool.Query(t.Context(), `SELECT (event->'data'->>'name') || ' ' || (event->'data'->>'version') || ' ' || (event->'data'->>'mode') || ' ' ||
		(event->'data'->>'text' <> '') FROM outbox WHERE event->>'type' = $1 ORDER BY id`, event.TypePolicySetChanged)
	w.ok(err)
	var sent []string
	for rows.Next() {
		var line string
		w.ok(rows.Scan(&line))
		sent = append(sent, line)
	}
	w.ok(rows.Err())
	w.want(sent, []string{"calls 1 enforce true", "shop 1 dry_run true", "calls 2 enforce false", "shop 2 off true"})
	w.enter(r, "staging")
	w.want(w.granted(), []string{"staging"})
	_, err = w.rollouts.CancelRollout(t.Context(), user(), r.ID, "the next one")
	w.ok(err)
	// What is off, or not about calls any more, has to be known as well, or the version before would decide.
	inputs = w.inputsOf("rollout-" + itoa(w.rollout(w.set).ID))
	if want := `"call_policies": {"shop": 2, "calls": 2}`; !strings.Contains(inputs, want) {
		t.Errorf("the inputs have no %s: %s", want, inputs)
	}
}

// D51: a run that crashed between a decision and its call has it decided again under the same name. Where the policies that were tried out
// are enforced by then, its request waits for people, or is denied, and a late word of the first decision takes nothing back.
func TestACallThatWasTriedIsDecidedAgain(t *testing.T) {
	t.Parallel()
	for _, state := range []core.CallState{core.CallPending, core.CallDenied} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			w := frozen(t)
			w.people(2)
			tried := event.CallDecided{
				WorkflowID: "nightly", CallID: "x/0.0!1", Function: "http.request", State: "permitted", Policy: "calls/no", Reason: "tried",
				Decision: []byte(`{"verdict":"allow","would_be":"needs_approval"}`), Request: []byte(`{"function":"http.request"}`),
			}
			w.ok(w.ofRun("nightly", tried))
			if state == core.CallPending {
				w.want(w.asksForCall("nightly", "x/0.0!1", "", 1, 9).State, state)
			} else {
				w.ok(w.ofRun("nightly", event.CallDecided{
					WorkflowID: "nightly", CallID: "x/0.0!1", Function: "http.request", State: "denied", Policy: "calls/no", Reason: "no",
					Decision: []byte(`{"verdict":"deny"}`),
				}))
			}
			w.ok(w.ofRun("nightly", tried))
			r := w.callOf("x/0.0!1")
			w.want(r.State, state)
			if state != core.CallPending {
				return
			}
			w.want([]any{r.Quorum, r.Policy, r.ExpiresAt != nil}, []any{1, "calls/payments", true})
			person := user()
			person.ID = 2
			_, err := w.policies.AnswerCall(t.Context(), person, r.ID, true, "as agreed")
			w.ok(err)
			w.want(w.answered(), []string{"x/0.0!1 true nightly"})
		})
	}
}

// More calls than an organization may have waiting are refused by an answer like another.
func TestCallsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason, approver_group,
		quorum, requester_may, expires_at, decision, request)
		SELECT $1, 'nightly', 'n' || i, 'f', 'pending', '', '', '', 1, false, now(), '{}', '{}' FROM generate_series(1, $2::int) i`,
		org, core.MaxPendingCalls)
	w.ok(err)
	w.want(w.asksForCall("nightly", "more", "", 1, 9).State, core.CallRefused)
	w.want(w.answered(), []string{"more false nightly"})
}

// D51: what policies about calls that are tried out would have decided is kept, at most 100 times for a run, and a simulation decides
// recorded calls again: by the scope of the set, and without those about which only people have decided.
func TestRecordedCallsAreSimulated(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	run := "rollout-" + itoa(r.ID)
	reported := func(run, call, verdict, would, application string, state core.CallState) {
		w.ok(w.ofRun(run, event.CallDecided{
			WorkflowID: run, CallID: call, Function: "http.request", State: string(state), Policy: "calls/no", Reason: "tried",
			Decision: []byte(`{"verdict":"` + verdict + `","would_be":"` + would + `"}`),
			Request: []byte(`{"principal":{"kind":"System","id":"run"},"function":"http.request","run":"` + run + `","application":"` + application +
				`","arguments":{"url":"https://x"},"at":"2026-11-25T10:00:00Z"}`),
		}))
	}
	reported(run, "x/0.0!1", "allow", "deny", "shop", core.CallPermitted)
	reported(run, "x/0.0!1", "allow", "deny", "shop", core.CallPermitted) // a repetition
	reported("nightly", "y/0.0!1", "deny", "deny", "", core.CallDenied)
	for i := range core.MaxTriedCalls + 5 {
		reported("loop", "z/0."+itoa(int64(i))+"!1", "allow", "deny", "", core.CallPermitted)
	}
	one := w.callOf("x/0.0!1")
	w.want([]any{one.State, string(one.Decision.WouldBe), one.RolloutID}, []any{core.CallPermitted, "deny", r.ID})
	w.want(w.countOf(`SELECT count(*) FROM cd_call_requests WHERE workflow_id = 'loop'`), core.MaxTriedCalls)
	_, err := w.policies.AnswerCall(t.Context(), user(), one.ID, true, "why not")
	w.refused(err, "asks nobody: policies permitted the call of http.request")

	const permits = `@id("all") permit (principal, action == Action::"function.call", resource);`
	const forbids = permits + `@id("no") forbid (principal, action == Action::"function.call", resource == Function::"http.request");`
	since := w.now.Now().Add(-time.Hour)
	simulate := func(n policy.NewPolicySet) policy.Simulated {
		found, err := w.policies.Simulate(t.Context(), user(), n, since)
		w.ok(err)
		return found
	}
	found := simulate(policy.NewPolicySet{Name: "calls", Text: forbids})
	w.want([]int{found.EvaluatedCalls, len(found.DifferentCalls)}, []int{core.MaxTriedCalls + 2, core.MaxTriedCalls + 1})
	w.want(string(found.DifferentCalls[0].Would.Verdict), "deny")
	found = simulate(policy.NewPolicySet{Name: "calls", Text: forbids, ApplicationID: r.ApplicationID})
	var ids []string
	for _, d := range found.DifferentCalls { // the rollout's is denied, and the one that was denied is not about the application
		ids = append(ids, d.CallID+" "+string(d.Would.Verdict))
	}
	w.want(ids, []string{"y/0.0!1 allow", "x/0.0!1 deny"})
	found = simulate(policy.NewPolicySet{Name: "calls", Text: permits})
	w.want(len(found.DifferentCalls), 1)
	since = w.now.Now().Add(time.Hour)
	w.want(simulate(policy.NewPolicySet{Name: "calls", Text: forbids}).EvaluatedCalls, 0)
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	_, err = w.policies.Simulate(t.Context(), viewer, policy.NewPolicySet{Name: "calls", Text: forbids}, since)
	if !fault.Is(err, fault.Denied) {
		t.Errorf("a viewer: %v", err)
	}
	since = w.now.Now().Add(-time.Hour)
	_, err = w.pool.Exec(t.Context(), `INSERT INTO cd_call_requests (organization_id, workflow_id, call_id, function, state, policy, reason,
		approver_group, quorum, requester_may, decision, request, created_at)
		SELECT $1, 'many', 'm' || i, 'http.request', 'permitted', '', '', '', 0, false, '{"verdict":"allow"}', $3, $4
		FROM generate_series(1, $2::int) i`, org, policy.MaxDifferent+50, one.Request, w.now.Now())
	w.ok(err)
	found = simulate(policy.NewPolicySet{Name: "calls", Text: forbids}) // in pages
	w.want([]int{found.EvaluatedCalls, found.DifferentCallCount, len(found.DifferentCalls)},
		[]int{core.MaxTriedCalls + 2 + policy.MaxDifferent + 50, core.MaxTriedCalls + 1 + policy.MaxDifferent + 50, policy.MaxDifferent})
	w.want(found.Truncated, false)
	stranger := user()
	stranger.Organization = 2
	other, err := w.policies.Simulate(t.Context(), stranger, policy.NewPolicySet{Name: "calls", Text: forbids}, w.now.Now().Add(-time.Hour))
	w.ok(err)
	w.want(other.EvaluatedCalls, 0)
}

// D51: of the calls that all policies permit at once, the engine reports a sample. It is in no list. Simulations evaluate it and say how
// much of it there was. There is at most so much of it a day, whatever is reported. What is known of a call already, or becomes known
// later, says more.
func TestASampleOfPermittedCallsIsSimulated(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	r := w.rollout(w.set)
	run := "rollout-" + itoa(r.ID)
	sampled := func(run, call string) error {
		return w.ofRun(run, event.CallDecided{
			WorkflowID: run, CallID: call, Function: "http.request", State: string(core.CallPermitted), Sampled: true, Policy: "calls/all",
			Decision: []byte(`{"verdict":"allow"}`),
			Request: []byte(`{"principal":{"kind":"System","id":"run"},"function":"http.request","run":"` + run +
				`","arguments":{"url":"https://x"},"at":"2026-11-25T10:00:00Z"}`),
		})
	}
	w.ok(sampled(run, "s/0.0!1"))
	w.ok(sampled(run, "s/0.0!1")) // a repetition
	one := w.callOf("s/0.0!1")
	w.want([]any{one.Sampled, one.Tried(), one.State}, []any{true, false, core.CallPermitted})
	all, err := w.policies.CallRequests(t.Context(), user(), false)
	w.ok(err)
	of, err := w.policies.CallRequestsByRollout(t.Context(), org, []int64{r.ID})
	w.ok(err)
	w.want([]int{len(all), len(of[r.ID])}, []int{0, 0})
	_, err = w.policies.AnswerCall(t.Context(), user(), one.ID, true, "why not")
	w.refused(err, "asks nobody: policies permitted the call of http.request")

	simulate := func() policy.Simulated {
		found, err := w.policies.Simulate(t.Context(), user(), policy.NewPolicySet{Name: "calls", Text: `@id("all") permit (principal,
			action == Action::"function.call", resource);
			@id("no") forbid (principal, action == Action::"function.call", resource == Function::"http.request");`}, w.now.Now().Add(-time.Hour))
		w.ok(err)
		return found
	}
	found := simulate()
	w.want([]int{found.EvaluatedCalls, found.SampledCalls, found.DifferentCallCount}, []int{1, 1, 1})
	w.want([]string{found.DifferentCalls[0].CallID, string(found.DifferentCalls[0].Would.Verdict)}, []string{"s/0.0!1", "deny"})

	for i := range core.MaxSampledCalls + 5 {
		w.ok(sampled("loop", "l/0."+itoa(int64(i))+"!1"))
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_call_requests WHERE sampled`), core.MaxSampledCalls)
	w.now.Advance(25 * time.Hour)
	w.ok(sampled("next", "n/0.0!1"))
	w.want(w.countOf(`SELECT count(*) FROM cd_call_requests WHERE sampled`), core.MaxSampledCalls+1)

	// The run ended before the call was made, and the policies were changed before it was decided again.
	w.want(w.asksForCall("next", "n/0.0!1", "", 1, 9).State, core.CallPending)
	w.ok(sampled("next", "n/0.0!1")) // a late word
	asked := w.callOf("n/0.0!1")
	w.want([]any{asked.State, asked.Sampled}, []any{core.CallPending, false})
	w.now.Advance(25 * time.Hour)
	w.ok(sampled("tries", "t/0.0!1"))
	w.ok(w.ofRun("tries", event.CallDecided{
		WorkflowID: "tries", CallID: "t/0.0!1", Function: "http.request", State: string(core.CallPermitted), Policy: "calls/no",
		Decision: []byte(`{"verdict":"allow","would_be":"deny"}`), Request: one.Request,
	}))
	w.ok(sampled("tries", "t/0.0!1")) // a late word
	tried := w.callOf("t/0.0!1")
	w.want([]any{tried.Tried(), tried.Sampled, tried.Policy}, []any{true, false, "calls/no"})
	err = w.ofRun("next", event.CallDecided{
		WorkflowID: "next", CallID: "odd", Function: "http.request", State: string(core.CallDenied), Sampled: true,
	})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a denied call that is sampled: %v", err)
	}
}
