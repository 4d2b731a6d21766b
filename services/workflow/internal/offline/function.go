package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// onCluster reports whether a relay carries the Function out.
func onCluster(name string) bool {
	return strings.HasPrefix(name, "k8s.") || strings.HasPrefix(name, "argo.")
}

// call is an attempt at a Function. It is not answered where no relay answers, and where it is to be attempted again later.
func (w *world) call(r *run, op history.Op, o *opened) (c history.Completion, answered bool) {
	c.Op = op.Ref
	if o.next.After(w.now) || !o.due.After(w.now) {
		return c, false
	}
	if !w.knows(op.Name) {
		if onCluster(op.Name) {
			return c, false
		}
		if op.Name == "checkpoint" { // it has no effect, and answers what it is given
			c.Value = stateOf(op.Args)
			return c, true
		}
		w.lacks("functions: found no answer for %s, which the program calls at %s", op.Name, op.Position)
		c.Error = &history.FunctionError{Code: history.CodeUnknownFunction, Message: fmt.Sprintf("there is no function %q", op.Name)}
		return c, true
	}
	if op.Timeout == history.NoTime {
		c.Error = &history.FunctionError{Code: history.CodeTimeout, Message: op.Name + " was not asked: it was to answer within no time"}
		return c, true
	}
	for {
		o.attempts++
		value, refusal := w.carryOut(op, op.Activity(history.Handle(r.ref, 1, r.generation)))
		c.Value, c.Error = value, refusal
		if refusal == nil || !refusal.Retryable || op.NoRetry {
			return c, true
		}
		pause, again := op.Retry.Pause(o.attempts, refusal.Code)
		if onCluster(op.Name) && op.Retry == nil {
			pause, again = retryAnswer, true
		}
		if !again || w.now.Add(pause).After(o.due) {
			return c, true
		}
		if w.c.Patient || onCluster(op.Name) {
			o.next = w.now.Add(pause)
			return history.Completion{}, false
		}
		if w.turns++; w.turns > maxTurns {
			return c, true
		}
	}
}

// stateOf is what a checkpoint answers.
func stateOf(args json.RawMessage) json.RawMessage {
	var given struct {
		State json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(args, &given); err != nil || given.State == nil {
		return json.RawMessage("null")
	}
	return given.State
}

// carryOut has the effect of a call once for each key, and answers the same again for the same key.
func (w *world) carryOut(op history.Op, key string) (json.RawMessage, *history.FunctionError) {
	if compute, only := w.computes(op.Name); only {
		return compute(key, op.Args)
	}
	answer, known := w.done[key]
	if !known {
		var is bool
		if w.c.Outside != nil {
			answer.Result, answer.Error = w.c.Outside.Call(w.now, op.Name, key, op.Args)
			if answer.Error != nil && answer.Error.Retryable {
				return nil, answer.Error
			}
		} else if carrier, outside := w.carriers[op.Name]; outside && len(w.answers[op.Name]) == 0 {
			answer.Result, answer.Error = carrier(key, op.Args)
		} else if answer, is = w.next(op); !is {
			w.lacks("functions: found no answer for %s with %s, which the program calls at %s", op.Name, op.Args, op.Position)
			return nil, &history.FunctionError{Code: history.CodeUnknownFunction, Message: fmt.Sprintf("there is no function %q", op.Name)}
		}
		w.done[key] = answer
		w.effects = append(w.effects, effectOf(op.Name, key))
		w.calls = append(w.calls, madeCall{op.Name, op.Args})
	}
	if answer.Error != nil {
		if w.failures[key]++; answer.Times == 0 || w.failures[key] <= answer.Times {
			return nil, answer.Error
		}
	}
	value := answer.Result
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	var compact bytes.Buffer
	if !onCluster(op.Name) && json.Compact(&compact, value) == nil {
		return compact.Bytes(), nil
	}
	return value, nil
}

// knows reports whether anything answers calls of a Function.
func (w *world) knows(name string) bool {
	_, answers := w.answers[name]
	_, carries := w.carriers[name]
	_, computes := w.computes(name)
	return answers || carries || computes || w.c.Outside != nil && name != "checkpoint"
}

// computes is a Function that only computes, and that the case does not answer for.
func (w *world) computes(name string) (Carrier, bool) {
	c, computes := w.c.Compute[name]
	return c, computes && len(w.answers[name]) == 0
}

// next is the answer to a new call: the first that is for such arguments, else the next of the others, of which the last one repeats.
func (w *world) next(op history.Op) (Answer, bool) {
	list, at := w.answers[op.Name], -1
	others := 0
	for i, answer := range list {
		if answer.When != nil && holds(answer.When, op.Args) {
			return answer, true
		}
		if answer.When == nil {
			if others++; at < 0 {
				at = i
			}
		}
	}
	if at < 0 {
		return Answer{}, false
	}
	answer := list[at]
	if others > 1 {
		w.answers[op.Name] = slices.Delete(slices.Clone(list), at, at+1)
	}
	return answer, true
}

func (w *world) lacks(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); len(w.trouble) == 0 || w.trouble[len(w.trouble)-1] != text {
		w.trouble = append(w.trouble, text)
	}
}

// poll is what can happen to a poll now: a round, or the end of a pause or of its time.
func (w *world) poll(r *run, op history.Op, o *opened) func(program.Machine) {
	if o.calling && o.due.After(w.now) {
		op.Round = o.round
		if _, known := w.answers[op.Name]; !known && onCluster(op.Name) {
			return nil
		}
		value, refusal := w.carryOut(op, op.Activity(history.Handle(r.ref, 1, r.generation)))
		return w.observe(op, o, history.Completion{Op: op.Ref, Value: value, Error: refusal, Round: o.round})
	}
	if o.due.After(w.now) {
		return nil
	}
	switch {
	case !o.due.Before(o.deadline):
		c := history.Completion{Op: op.Ref, Value: o.value, Error: o.expired(op, w.c.limit(op))}
		return func(m program.Machine) { m.Complete(c) }
	case o.calling:
		return w.observe(op, o, history.Completion{
			Op: op.Ref, Round: o.round,
			Error: &history.FunctionError{Code: history.CodeTimeout, Message: op.Name + " was not answered in time"},
		})
	default:
		return func(program.Machine) {
			o.calling, o.due = true, earlier(w.now.Add(w.c.CallTimeout), o.deadline)
		}
	}
}

// observe hands a round to the program, which ends the poll if it is content.
func (w *world) observe(op history.Op, o *opened, c history.Completion) func(program.Machine) {
	return func(m program.Machine) {
		if c.Error != nil && (c.Error.Retryable || c.Error.Code == history.CodeTimeout) && !op.NoRetry {
			o.err = c.Error
		} else {
			m.Complete(c)
			pending := false
			for _, again := range m.Pending() {
				pending = pending || again.Ref == op.Ref && again.Kind == history.KindPoll
			}
			if !pending {
				return
			}
			o.value, o.err = c.Value, nil
		}
		o.round, o.calling = o.round+1, false
		o.due = earlier(w.now.Add(op.Interval), o.deadline)
	}
}

// expired says what a poll waited for, and what there was instead.
func (o *opened) expired(op history.Op, limit fmt.Stringer) *history.FunctionError {
	message := fmt.Sprintf("%s was not as expected within %s, asked %d times", op.Name, limit, o.round-1)
	switch {
	case o.err != nil:
		message += fmt.Sprintf("; the last error was %s", o.err)
	case o.value != nil:
		const shown = 300
		message += "; the last answer was " + history.Storable(history.Truncate(string(o.value), shown))
	}
	return &history.FunctionError{Code: history.CodeTimeout, Message: message}
}

// expired is what the end of its time means to an operation.
func expired(op history.Op, limit fmt.Stringer) history.Completion {
	c := history.Completion{Op: op.Ref, Value: json.RawMessage("null")}
	timeout := func(format string, args ...any) {
		c.Value, c.Error = nil, &history.FunctionError{Code: history.CodeTimeout, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case op.Kind == history.KindRun:
		timeout("%s was not answered within %s", op.Name, limit)
	case op.Kind == history.KindReceive && op.Timeout == 0:
		timeout("no message came to the channel within %s", limit)
	case op.Kind == history.KindWait && op.Timeout == 0:
		timeout("%s did not come within %s", history.Describe(op.Types, op.Filter), limit)
	}
	return c
}
