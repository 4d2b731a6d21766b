package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// work is what branches are blocked on after a turn.
type work struct {
	// opened is what the store does not know yet, inProcess what this process carries out.
	opened []Opening
	// inProcess names all of them, also those a former owner had begun: start leaves alone what runs.
	inProcess []history.Op
	// more is set if the turn was ended because it had become long, not because every branch is blocked.
	more bool
}

// maxRefusals is how many operations one turn refuses. A program may ask for the impossible in a loop; its history is
// bounded, and so must the turn be.
const maxRefusals = 100

// survey sorts the blocked operations. Those that cannot be carried out at all are completed on the spot, which may lead
// to further ones.
//
// An error is about what could not be found out now; the turn is worth nothing then.
func (r *run) survey(ctx context.Context) (work, error) {
	for range maxRefusals {
		r.withdraw()
		w, refused, err := r.sort(ctx)
		if refused == nil || err != nil {
			return w, err
		}
		r.complete(*refused)
	}
	return work{more: true}, nil
}

// intentAfter is how long a Function of this process may take before its call is stored: until then only its result is recorded. A call
// that was not stored does not survive a crash, so a Function that is called again has at most this much more time than its deadline.
const intentAfter = 2 * time.Second

// intended is when an operation that is not stored yet will be stored, unless it has completed by then.
func (o openOp) intended() time.Time {
	soon := o.since.Add(intentAfter)
	if o.deadline.Before(soon) {
		return o.deadline
	}
	return soon
}

// sort goes through the blocked operations up to the first that is refused. To complete that one lets its branch run
// on, and what was pending before is out of date.
func (r *run) sort(ctx context.Context) (w work, refused *history.Completion, err error) {
	now := r.engine.Clock.Now()
	pending := r.machine.Pending()
	for _, op := range pending {
		known, seen := r.open[op.Ref]
		if seen && known.stored && op.Kind != history.KindRun && op.Kind != history.KindPoll {
			continue // it keeps the deadline that it was given first
		}
		allowed, err := r.decide(ctx, op)
		if err != nil {
			return work{}, nil, err
		}
		if allowed.refusal != nil {
			return work{}, &history.Completion{Op: op.Ref, Error: allowed.refusal}, nil //nolint:nilerr // the call's, and no error of this
		}
		if allowed.opening != nil {
			w.opened = append(w.opened, *allowed.opening)
		}
		if allowed.held {
			continue
		}
		known, seen = r.open[op.Ref]
		if op.EndOf != "" && !seen {
			ended, err := r.ended(ctx, op)
			if err != nil || ended != nil {
				return work{}, ended, err
			}
		}
		o, refusal, err := r.opening(ctx, op, seen, len(pending) == 1)
		if err != nil {
			return work{}, nil, err
		}
		if refusal != nil {
			return work{}, &history.Completion{Op: op.Ref, Error: refusal}, nil //nolint:nilerr // a refusal is a result like another
		}
		if err := r.sample(op, allowed.permitted); err != nil {
			return work{}, nil, err
		}
		if seen {
			o.Due = known.deadline
		} else {
			known = openOp{deadline: o.Due, since: now}
			if op.Kind == history.KindPoll {
				known.poll = &Polling{Op: op.Ref, Function: op.Name, Round: 1, Calling: true, Deadline: o.Due}
				known.deadline = r.roundUntil(*known.poll)
				o.Due = known.deadline
			}
			r.open[op.Ref] = known
		}
		if known.poll != nil {
			o.Poll, op.Round = known.poll, known.poll.Round
			o.Op = op
		}
		here := o.Location == activity.InProcess && (op.Kind == history.KindRun || op.Kind == history.KindPoll && known.poll.Calling)
		if here {
			w.inProcess = append(w.inProcess, op)
		}
		// Of a poll the store knows every phase: what is not in the history is nowhere else.
		intends := here && !known.stored && r.intends(op, !seen)
		if !known.stored && (!here || op.Kind == history.KindPoll || intends || !known.intended().After(now)) {
			w.opened = append(w.opened, o)
		}
	}
	return w, nil, nil
}

// opening is how the store keeps an operation. A run that was opened before has its agent already: it is not asked again
// whose that is, and a call that is under way is not taken back. alone is that nothing else of the run is open.
func (r *run) opening(ctx context.Context, op history.Op, opened, alone bool) (Opening, *history.FunctionError, error) {
	now, limit := r.engine.Clock.Now(), r.limit(op)
	o := Opening{Op: op, Due: now.Add(limit)}
	if op.Kind != history.KindRun && op.Kind != history.KindPoll {
		if alone { // of two timers of a run the one that was to be the first is the first
			o.Due = together(o.Due, limit)
		}
		return o, nil, nil
	}
	f, ok, err := r.engine.Functions.Of(ctx, r.loaded.Organization, op.Name)
	if err != nil {
		return o, nil, fmt.Errorf("function %s: %w", op.Name, err)
	}
	if !ok {
		return o, r.engine.Functions.Unknown(op.Name), nil
	}
	if op.Timeout == history.NoTime && !opened {
		return o, &history.FunctionError{Code: history.CodeTimeout, Message: op.Name + " was not asked: it was to answer within no time"}, nil
	}
	if o.Location = activity.LocationOf(f, op.Args); o.Location == activity.InProcess {
		return o, nil, nil
	}
	if err := checkArguments(f, op.Args); err != nil {
		return o, history.AsFunctionError(err), nil
	}
	if o.Location == activity.Worker {
		return o, nil, nil
	}
	var args struct {
		Agent json.Number `json:"agent_id"`
	}
	_ = json.Unmarshal(op.Args, &args) // what is not a number is refused below
	agent, err := args.Agent.Int64()
	if err != nil {
		return o, &history.FunctionError{
			Code:    history.CodeInvalid,
			Message: fmt.Sprintf("%s: agent_id: found %q, expected a number", op.Name, args.Agent),
		}, nil
	}
	if o.Agent = agent; opened && op.Kind == history.KindRun {
		return o, nil, nil
	}
	problem, err := r.engine.Agents.Problem(ctx, r.loaded.Organization, agent)
	if err != nil {
		return o, nil, fmt.Errorf("agent %d: %w", agent, err)
	}
	if problem != "" {
		return o, &history.FunctionError{Code: history.CodeInvalid, Message: fmt.Sprintf("%s: agent_id: %s", op.Name, problem)}, nil
	}
	return o, nil, nil
}

// checkArguments has a Function that can do so look at its arguments, so that no relay is sent what it would refuse.
func checkArguments(f activity.Function, data json.RawMessage) error {
	checker, ok := f.(activity.Checker)
	if !ok {
		return nil
	}
	args, err := history.Arguments(data)
	if err != nil {
		return err
	}
	return checker.Check(args)
}

// mostSlack bounds how much later than asked a timer fires. Less than leastSlack brings nothing.
const (
	mostSlack  = 250 * time.Millisecond
	leastSlack = mostSlack / 16
)

// together returns when a timer is to fire that is asked for at an instant, after some time: at the instant or later, by at most a 240th of
// the time, and by mostSlack at most. Timers that are as long fire at the same instants, some together: a thousand runs that wake up once
// a minute take less than half of what they take one after another.
func together(at time.Time, after time.Duration) time.Time {
	slack := mostSlack
	for slack > max(after, 0)/240 {
		if slack /= 2; slack < leastSlack { // halves, so that the instants of longer timers are also those of shorter ones
			return at
		}
	}
	if whole := at.Truncate(slack); whole.Before(at) {
		return whole.Add(slack)
	}
	return at
}

// limit is how long an operation may take. 0 is a length for a sleep, and "not given" for everything else (D12).
func (r *run) limit(op history.Op) time.Duration {
	switch {
	case op.Timeout > 0 || op.Kind == history.KindSleep:
		return op.Timeout
	case op.Kind == history.KindWait || op.Kind == history.KindReceive || op.Kind == history.KindPoll:
		return r.engine.Settings.WaitTimeout
	default:
		return r.engine.Settings.CallTimeout
	}
}
