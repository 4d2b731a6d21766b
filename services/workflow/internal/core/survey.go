package core

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// work is what branches are blocked on after a turn.
type work struct {
	// opened is what the store does not know yet, inProcess what this process carries out.
	opened []Opening
	// inProcess names all of them, also those a former owner had begun: start leaves alone what runs.
	inProcess []Op
	// more says that the turn was ended because it had become long, not because every branch is blocked.
	more bool
}

// maxRefusals is how many operations one turn refuses. A program may ask for the impossible in a loop; its history is
// bounded, and so must the turn be.
const maxRefusals = 100

// survey sorts the blocked operations. Those that cannot be carried out at all are completed on the spot, which may lead
// to further ones.
//
// An error is about what could not be found out now; the turn is worth nothing then.
func (d *driver) survey(ctx context.Context) (work, error) {
	for range maxRefusals {
		w, refused, err := d.sort(ctx)
		if refused == nil || err != nil {
			return w, err
		}
		d.complete(*refused)
	}
	return work{more: true}, nil
}

// intentAfter is how long a Function of this process may take before the store learns of it: until then its result
// alone is recorded. What the store has not been told of does not survive a crash, so a Function that is begun anew has
// at most this much more time than its deadline.
const intentAfter = 2 * time.Second

// intended is when the store is told of an operation that it does not know, if that is not over by then.
func (o openOp) intended() time.Time {
	soon := o.since.Add(intentAfter)
	if o.deadline.Before(soon) {
		return o.deadline
	}
	return soon
}

// sort goes through the blocked operations up to the first that is refused. To complete that one lets its branch run
// on, and what was pending before is out of date.
func (d *driver) sort(ctx context.Context) (w work, refused *Completion, err error) {
	now := d.engine.Clock.Now()
	for _, op := range d.machine.Pending() {
		known, seen := d.open[op.Ref]
		if seen && known.stored && op.Kind != KindRun && op.Kind != KindPoll {
			continue // it keeps the deadline that it was given first
		}
		o, refusal, err := d.opening(ctx, op, seen)
		if err != nil {
			return work{}, nil, err
		}
		if refusal != nil {
			return work{}, &Completion{Op: op.Ref, Error: refusal}, nil //nolint:nilerr // a refusal is a result like another
		}
		if seen {
			o.Due = known.deadline
		} else {
			known = openOp{deadline: o.Due, since: now}
			if op.Kind == KindPoll {
				known.poll = &Polling{Op: op.Ref, Function: op.Name, Round: 1, Calling: true, Deadline: o.Due}
				known.deadline = d.roundUntil(*known.poll)
				o.Due = known.deadline
			}
			d.open[op.Ref] = known
		}
		if known.poll != nil {
			o.Poll, op.Round = known.poll, known.poll.Round
			o.Op = op
		}
		here := o.Location == InProcess && (op.Kind == KindRun || op.Kind == KindPoll && known.poll.Calling)
		if here {
			w.inProcess = append(w.inProcess, op)
		}
		// Of a poll the store knows every phase: what is not in the history is nowhere else.
		if !known.stored && (!here || op.Kind == KindPoll || !known.intended().After(now)) {
			w.opened = append(w.opened, o)
		}
	}
	return w, nil, nil
}

// opening is how the store keeps an operation. A run that was opened before has its agent already: it is not asked again
// whose that is, and a call that is under way is not taken back.
func (d *driver) opening(ctx context.Context, op Op, opened bool) (Opening, *FunctionError, error) {
	o := Opening{Op: op, Due: d.engine.Clock.Now().Add(d.limit(op))}
	if op.Kind != KindRun && op.Kind != KindPoll {
		return o, nil, nil
	}
	f, ok := d.engine.Functions.Lookup(op.Name)
	if !ok {
		return o, d.engine.Functions.unknown(op.Name), nil
	}
	if op.Timeout == NoTime && !opened {
		return o, &FunctionError{Code: CodeTimeout, Message: op.Name + " was not asked: it was to answer within no time"}, nil
	}
	if o.Location = f.Location(); o.Location == InProcess {
		return o, nil, nil
	}
	if err := checkArguments(f, op.Args); err != nil {
		return o, AsFunctionError(err), nil
	}
	var args struct {
		Agent json.Number `json:"agent_id"`
	}
	_ = json.Unmarshal(op.Args, &args) // what is not a number is refused below
	agent, err := args.Agent.Int64()
	if err != nil {
		return o, &FunctionError{Code: CodeInvalid, Message: fmt.Sprintf("%s: agent_id: found %q, expected a number", op.Name, args.Agent)}, nil
	}
	if o.Agent = agent; opened && op.Kind == KindRun {
		return o, nil, nil
	}
	problem, err := d.engine.Agents.Problem(ctx, d.loaded.Organization, agent)
	if err != nil {
		return o, nil, fmt.Errorf("agent %d: %w", agent, err)
	}
	if problem != "" {
		return o, &FunctionError{Code: CodeInvalid, Message: fmt.Sprintf("%s: agent_id: %s", op.Name, problem)}, nil
	}
	return o, nil, nil
}

// checkArguments has a Function that can do so look at its arguments, so that no relay is sent what it would refuse.
func checkArguments(f Function, data json.RawMessage) error {
	checker, ok := f.(Checker)
	if !ok {
		return nil
	}
	args, err := arguments(data)
	if err != nil {
		return err
	}
	return checker.Check(args)
}

// limit is how long an operation may take. 0 is a length for a sleep, and "not given" for everything else (D12).
func (d *driver) limit(op Op) time.Duration {
	switch {
	case op.Timeout > 0 || op.Kind == KindSleep:
		return op.Timeout
	case op.Kind == KindWait || op.Kind == KindReceive || op.Kind == KindPoll:
		return d.engine.Settings.WaitTimeout
	default:
		return d.engine.Settings.CallTimeout
	}
}
