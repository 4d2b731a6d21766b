package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Policies decide about a call before its first attempt (D51). A call that is permitted at once is made as if there were none. One that is
// denied fails. One that needs an approval is held: its operation is opened as a call that nobody carries out, so that the run can park,
// and the answer of the domain service arrives as that of a Function would. Then the policies are asked again, and the operation is
// closed and opened anew, as a poll's is between two rounds. The program sees one call that takes longer.
//
// What is decided, other than a permission at once, is an entry of KindDecision in the turn that decides. The entry brings a held call back
// after a crash, and keeps one that was approved from being decided again. The machine does not see it. A permission at once that the
// policies which are tried out would not have given is reported and not an entry: trying policies out makes no history longer. Of the other
// permissions at once, few are reported as a sample, so that simulations of policies have some.

// CallPolicies decides about calls.
type CallPolicies interface {
	// Concerned reports whether the calls of an organization are decided at all; it is asked before every call.
	Concerned(organization int64) bool
	// Find is what policies may ask of a run.
	Find(ctx context.Context, organization int64, workflow string) (callpolicy.Run, error)
	// Decide decides by the latest policies. Given are the approvals that the call has. An error means that nothing could be found out now.
	Decide(
		ctx context.Context, about callpolicy.Run, function string, args json.RawMessage, given []string,
	) (policy.Decision, callpolicy.Asked, error)
	// Sample reports whether a call of an organization is to be reported although policies permit it at once, and counts it.
	Sample(organization int64) bool
}

const (
	// heldMost is how long a call waits for an approval whose policy does not say.
	heldMost = policy.MaxExpiry
	// reportedDenials is how many denials of a generation are reported to the domain service, since a program may repeat them without end.
	// All of them are in the history, which is where a run that is loaded again counts them.
	reportedDenials = 100
	// reportedTries is how many calls are reported that policies permit, and would not if those that are tried out counted. They are not in
	// the history, so a run that is loaded again begins to count anew; the domain service keeps only so many of a run.
	reportedTries = 100
	// sampledFunctions is how many Functions of a run have a call sampled, of each the first.
	sampledFunctions = 5
)

// hold is a call that waits for an approval.
type hold struct {
	history.CallDecision
	answer  *history.CallAnswer
	expired bool
}

// needing notes what is known of a run whose calls are decided, as far as its inputs say so.
func (r *run) needing() {
	if about, needs := callpolicy.Needing(r.loaded.Organization, r.loaded.Workflow, r.loaded.Inputs); needs {
		r.about = &about
	}
}

// decisions takes what the history says of calls that are not answered yet.
func (r *run) decisions() {
	for _, e := range r.loaded.History {
		made, is := e.Decision()
		if is && made.State == history.CallDenied {
			r.denials++
		}
		if !is || made.Activity != history.ActivityID(r.loaded.Ref, e.Op) {
			continue
		}
		known, open := r.open[e.Op]
		switch {
		case made.State == history.CallPermitted:
			if known.hold = nil; open {
				r.open[e.Op] = known
			}
			r.permit(e.Op, made.Given)
		case made.State == history.CallPending && open:
			known.hold = &hold{CallDecision: made}
			r.open[e.Op] = known
		}
	}
}

// permit notes that a call was permitted after an approval.
func (r *run) permit(op history.OpRef, given []string) {
	if r.permitted == nil {
		r.permitted = map[history.OpRef][]string{}
	}
	r.permitted[op] = given
}

// permission is what policies say of an operation that is about to be opened, or is held.
type permission struct {
	// opening is that of a held call that the store does not know yet.
	opening *Opening
	// held reports whether the call is not to be made now, refusal why it never is.
	held    bool
	refusal *history.FunctionError
	// permitted is what policies have permitted at once, and may be sampled when the call is opened; nil for anything else.
	permitted *decidedCall
}

// decidedCall is a call with what policies decided about it.
type decidedCall struct {
	decision policy.Decision
	asked    callpolicy.Asked
}

// decide has policies decide about an operation, unless they have. An error is about what could not be found out now.
func (r *run) decide(ctx context.Context, op history.Op) (p permission, err error) {
	known, seen := r.open[op.Ref]
	if r.engine.Policies == nil || op.Kind != history.KindRun && op.Kind != history.KindPoll || seen && known.hold == nil {
		return permission{}, nil
	}
	if known.hold == nil {
		if _, is := r.permitted[op.Ref]; is {
			return permission{}, nil
		}
		if r.about == nil && !r.engine.Policies.Concerned(r.loaded.Organization) {
			return permission{}, nil
		}
		return r.ask(ctx, op, history.CallDecision{}, nil)
	}
	h := known.hold
	switch {
	case h.expired:
		until := h.ExpiresAt.UTC().Format(time.RFC3339)
		return r.refuse(op, h, history.CallExpired, fmt.Sprintf("%s: nobody approved it until %s", h.Reason, until))
	case h.answer == nil:
		return permission{held: true, opening: r.holding(op, known)}, nil
	case !h.answer.Approved:
		why := h.Reason + ": refused"
		if h.answer.Reason != "" {
			why += ": " + h.answer.Reason
		}
		return r.refuse(op, h, history.CallRefused, why)
	default:
		return r.ask(ctx, op, h.CallDecision, append(h.Given[:len(h.Given):len(h.Given)], h.Approval))
	}
}

// holding opens a held call, unless the store knows it.
func (r *run) holding(op history.Op, known openOp) *Opening {
	if known.stored {
		return nil
	}
	op.Round = 0
	return &Opening{Op: op, Due: known.deadline, Location: activity.Held, Request: known.hold.Request}
}

// ask asks the policies about a call with the approvals that it has.
func (r *run) ask(ctx context.Context, op history.Op, before history.CallDecision, given []string) (p permission, err error) {
	if r.about == nil {
		about, err := r.engine.Policies.Find(ctx, r.loaded.Organization, r.loaded.Workflow)
		if err != nil {
			return permission{}, err
		}
		r.about = &about
	}
	decision, asked, err := r.engine.Policies.Decide(ctx, *r.about, op.Name, op.Args, given)
	if err != nil {
		return permission{}, fmt.Errorf("decide about a call of %s: %w", op.Name, err)
	}
	if decision.Verdict == policy.Allow && before.Request == "" {
		return r.permittedAtOnce(op, decidedCall{decision, asked})
	}
	report, deciding := r.reportOf(op, before, given, decidedCall{decision, asked})
	made := report.CallDecision
	switch decision.Verdict {
	case policy.Allow:
		made.Request, made.Asked, made.State = before.Request, before.Asked, history.CallPermitted
		report.CallDecision = made
		r.release(op.Ref)
		r.permit(op.Ref, given)
		return permission{}, r.record(op, report)
	case policy.NeedsApproval:
		if deciding.Requires == nil { // pkg/policy answers one
			return permission{}, fmt.Errorf("decide about a call of %s: found no approval that %s requires", op.Name, deciding.Name())
		}
		now := r.engine.Clock.Now()
		made.State, made.Approval, made.ExpiresAt = history.CallPending, deciding.Approval(), now.Add(heldMost)
		if seconds := deciding.Requires.ExpiresSeconds; seconds > 0 {
			made.ExpiresAt = now.Add(time.Duration(seconds) * time.Second)
		}
		report.CallDecision, report.requires = made, deciding.Requires
		r.release(op.Ref)
		known := openOp{since: now, deadline: made.ExpiresAt, hold: &hold{CallDecision: made}}
		r.open[op.Ref] = known
		return permission{held: true, opening: r.holding(op, known)}, r.record(op, report)
	default:
		if made.State = history.CallDenied; before.Request != "" {
			made.Request, made.Asked = before.Request, before.Asked
		}
		report.CallDecision = made
		if err := r.record(op, report); err != nil {
			return permission{}, err
		}
		return permission{refusal: &history.FunctionError{Code: history.CodeForbidden, Message: op.Name + ": " + made.Reason}}, nil
	}
}

// reportOf is the report of a decision, and the ruling that decided; the zero Ruling for none.
func (r *run) reportOf(op history.Op, before history.CallDecision, given []string, c decidedCall) (callReport, policy.Ruling) {
	made := history.CallDecision{
		Activity: history.ActivityID(r.loaded.Ref, op.Ref), Asked: before.Asked + 1, Digest: c.decision.Digest, Given: given,
		Reason: history.Storable(c.decision.Sentence()),
	}
	made.Request = fmt.Sprintf("%s!%d", made.Activity, made.Asked)
	var deciding policy.Ruling
	if all := c.decision.Deciding(); len(all) > 0 {
		deciding = all[0]
		made.Policy = deciding.Name()
	}
	return callReport{CallDecision: made, Function: op.Name, decision: c.decision, asked: c.asked}, deciding
}

// permittedAtOnce reports a call that policies permit and those that are tried out would not have permitted. The report is committed with
// the opening of the call, which is not decided again.
func (r *run) permittedAtOnce(op history.Op, c decidedCall) (permission, error) {
	if c.decision.WouldBe == "" || c.decision.WouldBe == policy.Allow {
		if len(r.sampled) >= sampledFunctions || r.sampled[op.Name] {
			return permission{}, nil // which is what most calls are, and what costs them little
		}
		return permission{permitted: &c}, nil
	}
	if r.tries >= reportedTries {
		return permission{}, nil
	}
	r.tries++
	report, _ := r.reportOf(op, history.CallDecision{}, nil, c)
	report.State, report.Policy = history.CallPermitted, ""
	for _, ruling := range c.decision.Rulings {
		if ruling.DryRun && ruling.Verdict == c.decision.WouldBe {
			report.Policy = ruling.Name()
			break
		}
	}
	r.permit(op.Ref, nil)
	return permission{}, r.report(report)
}

// sample reports a call that all policies permit at once, if it is one of the few. It is asked when nothing else refuses the call, and the
// report is committed with its opening.
func (r *run) sample(op history.Op, c *decidedCall) error {
	if c == nil || !r.engine.Policies.Sample(r.loaded.Organization) {
		return nil
	}
	if r.sampled == nil {
		r.sampled = map[string]bool{}
	}
	r.sampled[op.Name] = true
	report, _ := r.reportOf(op, history.CallDecision{}, nil, *c)
	report.State, report.sampled = history.CallPermitted, true
	r.permit(op.Ref, nil)
	return r.report(report)
}

// refuse ends a held call for what people have decided, or have not.
func (r *run) refuse(op history.Op, h *hold, state, why string) (permission, error) {
	made := h.CallDecision
	made.State, made.Reason = state, history.Storable(why)
	refusal := &history.FunctionError{Code: history.CodeForbidden, Message: op.Name + ": " + made.Reason}
	return permission{refusal: refusal}, r.record(op, callReport{CallDecision: made, Function: op.Name})
}

// release has the next commit close a held call.
func (r *run) release(ref history.OpRef) {
	if r.open[ref].stored {
		r.closed = append(r.closed, ref)
	}
	delete(r.open, ref)
}

// callReport is a decision as the domain service hears of it.
type callReport struct {
	history.CallDecision
	Function string
	decision policy.Decision
	asked    callpolicy.Asked
	requires *policy.Requirement
	// sampled reports whether all policies permit the call, and it is one of the few that are reported nevertheless.
	sampled bool
}

// record puts a decision into the history, and reports it.
func (r *run) record(op history.Op, report callReport) error {
	encoded, err := json.Marshal(report.CallDecision)
	if err != nil {
		return fmt.Errorf("encode a decision about a call of %s: %w", op.Name, err)
	}
	r.seq++
	r.entries = append(r.entries, history.Entry{
		Seq: r.seq, Op: op.Ref, Kind: history.KindDecision, Name: op.Name, Value: encoded, At: r.engine.Clock.Now(),
	})
	r.weight += int64(len(encoded))
	if report.State == history.CallDenied {
		if r.denials++; r.denials > reportedDenials {
			return nil
		}
	}
	return r.report(report)
}

// report has the next commit report a decision to the domain service.
func (r *run) report(report callReport) error {
	data, err := report.event(r.loaded.Workflow)
	if err != nil {
		return err
	}
	r.emits = append(r.emits, r.emit(history.Emit{ID: report.Request + "/" + report.State, Type: history.TypeCallDecided, Data: data}))
	return nil
}

// event is the data of the event about a decision.
func (report callReport) event(workflow string) (json.RawMessage, error) {
	fields := map[string]any{"workflow_id": workflow, "call_id": report.Request, "function": report.Function, "state": report.State}
	if report.Policy != "" {
		fields["policy"] = report.Policy
	}
	if report.sampled {
		fields["sampled"] = true
	}
	if report.Reason != "" {
		fields["reason"] = history.Truncate(report.Reason, history.MaxError)
	}
	if report.requires != nil {
		fields["quorum"], fields["requester_may"] = report.requires.Quorum, report.requires.RequesterMay
		if report.requires.Group != "" {
			fields["group"] = report.requires.Group
		}
		fields["expires_at"] = report.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	if report.decision.Verdict != "" {
		fields["decision"], fields["request"] = report.decision, report.asked.Call().Shown()
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode a decision about a call of %s: %w", report.Function, err)
	}
	return encoded, nil
}

// held takes what has arrived for a held call; the next survey decides.
func (r *run) held(a Arrival, known openOp) {
	if known.hold.answer != nil || known.hold.expired {
		return
	}
	if a.Kind == TimerArrived {
		known.hold.expired = true
		return
	}
	var answer history.CallAnswer
	if json.Unmarshal(a.Value, &answer) == nil && answer.Request == known.hold.Request {
		known.hold.answer = &answer
	}
}
