package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// start carries out an in-process Function, unless that is under way. The turn that asked for it is durable. It has
// to be: before its commit another owner may replay to other arguments, and the world would then see one activity id
// with two meanings (E24).
func (r *run) start(ctx context.Context, op history.Op) {
	if _, underWay := r.running[op.Ref]; underWay {
		return
	}
	if f, known := r.engine.Functions.Lookup(op.Name); known && activity.IsPure(f) && op.Kind == history.KindRun {
		// It answers at once: to have it do so elsewhere takes longer than the answer.
		if c, finished := r.engine.attempt(ctx, op, r.call(op)); finished {
			r.answered = append(r.answered, c)
		}
		return
	}
	if r.running == nil {
		r.running, r.results = map[history.OpRef]context.CancelFunc{}, make(chan history.Completion)
	}
	ctx, cancel := context.WithCancel(ctx)
	r.running[op.Ref] = cancel
	call := r.call(op)
	r.engine.active.Go(func() {
		c, finished := r.engine.carryOut(ctx, op, call)
		if !finished {
			return // given up from outside: another turn, perhaps of another process, does it again
		}
		// A run that has left its execution takes no results. Its ctx has ended then, so this goroutine ends too and
		// the engine's stop does not hang.
		select {
		case r.results <- c:
		case <-ctx.Done():
		}
	})
}

// call is the use of a Function that an operation asks for.
func (r *run) call(op history.Op) activity.Call {
	return activity.Call{
		ID: op.Activity(r.loaded.Ref), Organization: r.loaded.Organization, Workflow: r.loaded.Workflow, Function: op.Name,
		Secrets: r.loaded.Secrets, Trace: r.loaded.Trace, Deadline: r.open[op.Ref].deadline,
	}
}

// carryOut calls a Function until its answer is final, for each attempt when there is a place for it. It is not finished when ctx ended
// first.
func (e *Engine) carryOut(ctx context.Context, op history.Op, call activity.Call) (history.Completion, bool) {
	// The place is taken here and not in start: a turn must not block because all of them are taken. Between two attempts it is given up:
	// whatever is away for hours keeps no place from others meanwhile.
	return e.attempts(ctx, op, call, func(f activity.Function) (leave func(), err error) {
		if err := ctx.Err(); err != nil {
			return nil, err // nothing is begun for a run that this process has given up
		}
		until, cancel := context.WithTimeout(ctx, call.Deadline.Sub(e.Clock.Now()))
		defer cancel()
		e.queued.Add(1)
		defer e.queued.Add(-1)
		return e.enter(until, f, call)
	})
}

// holder is whose calls are counted together, of what they share.
type holder struct {
	organization int64
	share        string
}

// enter takes a place for an attempt, once the organization has not too much in progress of what the Function shares. An error is that of
// ctx.
func (e *Engine) enter(ctx context.Context, f activity.Function, call activity.Call) (leave func(), err error) {
	own, places := func() {}, e.activities
	if id.Delivers(call.Workflow) { // a channel that never answers takes no place that a rollout needs
		places = e.deliveries
	} else if sharing, can := f.(activity.Sharing); can {
		if name, most := sharing.Share(); most > 0 {
			// A call that waits for others of its organization takes no place.
			if own, err = e.shares.Acquire(ctx, holder{call.Organization, name}, most); err != nil {
				return nil, err
			}
		}
	}
	if err := places.Acquire(ctx, call.Organization); err != nil {
		own()
		return nil, err
	}
	return func() {
		places.Release()
		own()
	}, nil
}

// attempt is carryOut for who has a place, or needs none.
func (e *Engine) attempt(ctx context.Context, op history.Op, call activity.Call) (history.Completion, bool) {
	return e.attempts(ctx, op, call, func(activity.Function) (func(), error) { return func() {}, nil })
}

// attempts calls a Function until its answer is final; enter is called before each attempt, and what it returns after it. A call that
// still waits to enter at its deadline is not made.
func (e *Engine) attempts(
	ctx context.Context, op history.Op, call activity.Call, enter func(activity.Function) (leave func(), err error),
) (history.Completion, bool) {
	f, ok := e.Functions.Lookup(op.Name)
	if !ok {
		return history.Completion{}, false // opening refuses unknown Functions
	}
	answered := history.Completion{Op: op.Ref, Round: op.Round}
	failed := func(began time.Time, refusal *history.FunctionError, pause time.Duration) {
		now := e.Clock.Now()
		answered.Tries = answered.Tries.With(history.NewTry(call.Attempt, began, now, now.Add(pause), refusal))
		e.tries.note(call.ID, answered.Tries)
	}
	defer func() {
		if answered.Tries != nil {
			e.tries.drop(call.ID)
		}
	}()
	var refusal *history.FunctionError
	for {
		leave, err := enter(f)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				leave()
			}
			return history.Completion{}, false
		case err != nil:
			if refusal == nil {
				refusal = &history.FunctionError{Code: history.CodeTimeout, Message: op.Name +
					" was not called before its deadline: others had all the places, or as many as an organization may have at a time"}
			}
			answered.Error = refusal
			return answered, true
		}
		call.Attempt++
		began := e.Clock.Now()
		var value json.RawMessage
		value, refusal = e.try(ctx, f, op, call, leave)
		// What fails because ctx ended says nothing about the Function. Recording it would fail a run because its
		// process was stopped.
		if ctx.Err() != nil {
			return history.Completion{}, false
		}
		if refusal == nil {
			answered.Value = value
			return answered, true
		}
		pause, again := e.again(op, call, refusal)
		if !again {
			answered.Error = refusal
			return answered, true
		}
		failed(began, refusal, pause)
		if clock.Sleep(ctx, e.Clock, pause) != nil {
			return history.Completion{}, false
		}
	}
}

// try is one attempt at a call; leave is called at its end. What it returns after the end of ctx says nothing.
func (e *Engine) try(
	ctx context.Context, f activity.Function, op history.Op, call activity.Call, leave func(),
) (value json.RawMessage, refusal *history.FunctionError) {
	defer leave()
	args, err := history.Arguments(op.Args) // anew for each attempt: a Function may change what it is given
	if err != nil {
		return nil, history.AsFunctionError(err)
	}
	call.Args = args
	if err := e.admit(ctx, f, call); err != nil {
		return nil, history.AsFunctionError(err)
	}
	observed, end := ctx, func(string) {}
	if e.Observe != nil {
		observed, end = e.Observe(ctx, call)
	}
	value, secrets, err := e.call(observed, f, call)
	switch {
	case ctx.Err() != nil:
		end("interrupted")
		return nil, nil
	case err == nil:
		end("")
		return value, nil
	}
	refusal = history.AsFunctionError(err)
	refusal.Message = secrets.Redact(refusal.Message)
	end(refusal.Error())
	e.Log.InfoContext(ctx, "function refused", "function", op.Name, "workflow", call.Workflow, "attempt", call.Attempt, "code", refusal.Code,
		"error", secrets.Redact(err.Error()))
	return nil, refusal
}

// again returns how long to wait before the next attempt, if there is one. An attempt that could begin only after the deadline is not
// waited for: the refusal says more than "timeout".
func (e *Engine) again(op history.Op, call activity.Call, refusal *history.FunctionError) (pause time.Duration, more bool) {
	pause, more = op.Retry.Pause(call.Attempt, refusal.Code)
	pause = max(pause, refusal.After)
	return pause, more && refusal.Retryable && !op.NoRetry && op.Round == 0 && !e.Clock.Now().Add(pause).After(call.Deadline)
}

// CallGuard decides whether an attempt at a call is executed.
type CallGuard interface {
	// Check returns a *history.FunctionError if the call is refused; any other error means that nothing could be found out now.
	Check(ctx context.Context, f activity.Function, call activity.Call) error
}

// admit asks the guard. What cannot be found out now may be later, so such a call is attempted again.
func (e *Engine) admit(ctx context.Context, f activity.Function, call activity.Call) error {
	if e.Guard == nil {
		return nil
	}
	err := e.Guard.Check(ctx, f, call)
	if _, refused := errors.AsType[*history.FunctionError](err); err == nil || refused {
		return err
	}
	e.Log.WarnContext(ctx, "checking the passage of a call failed; will retry", "function", call.Function, "workflow",
		call.Workflow, "error", err)
	return &history.FunctionError{Code: history.CodeUnreachable, Message: "what the run may change could not be read", Retryable: true}
}

// call is one attempt. A panic fails that Function alone. What shows the error has to remove the secrets from it.
func (e *Engine) call(
	ctx context.Context, f activity.Function, c activity.Call,
) (value json.RawMessage, secrets *activity.Concealed, err error) {
	ctx, secrets = activity.WithConcealed(ctx)
	// The deadline is the one stored when the operation was opened: a restart gives no Function more time (D12).
	ctx, cancel := context.WithTimeoutCause(ctx, c.Deadline.Sub(e.Clock.Now()), context.DeadlineExceeded)
	defer cancel()
	defer func() {
		if thrown := recover(); thrown != nil {
			e.Log.ErrorContext(ctx, "function panicked", "function", c.Function, "workflow", c.Workflow, "panic", secrets.Redact(fmt.Sprint(thrown)),
				"stack", secrets.Redact(string(debug.Stack())))
			err = &history.FunctionError{Code: history.CodeInternal, Message: "the function panicked; the service's log says where"}
		}
	}()
	answer, err := f.Call(ctx, c)
	if err != nil {
		if _, worded := errors.AsType[*history.FunctionError](err); !worded && errors.Is(err, context.DeadlineExceeded) {
			return nil, secrets, &history.FunctionError{Code: history.CodeTimeout, Message: c.Function + " did not finish before its deadline"}
		}
		return nil, secrets, err
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		return nil, secrets, fmt.Errorf("encode the value of %s: %w", c.Function, err)
	}
	if refusal := history.AnswerDoor.Refuse(c.Function, encoded); refusal != nil {
		return nil, secrets, refusal
	}
	return encoded, secrets, nil
}

// tries are those of in-process Functions that are under way, by activity id. They are in memory only: with the result of the call they
// are stored in its entry, and after a crash the attempts are counted anew.
//
// It is safe for concurrent use.
type tries struct {
	mu sync.Mutex
	of map[string]*history.Tries
}

// note keeps the tries of a call so far.
func (t *tries) note(call string, so *history.Tries) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*history.Tries{}
	}
	t.of[call] = so
}

// drop forgets those of a call that has ended, or was given up.
func (t *tries) drop(call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, call)
}

// Tries returns the failed attempts so far at a call that is under way in this process; nil if there are none.
func (e *Engine) Tries(call string) *history.Tries {
	e.tries.mu.Lock()
	defer e.tries.mu.Unlock()
	return e.tries.of[call]
}

// failures notes what failed before the result of a call, for its entry.
func (r *run) failures(op history.OpRef, t *history.Tries) {
	if t == nil {
		return
	}
	if r.refused == nil {
		r.refused = map[history.OpRef]*history.Tries{}
	}
	r.refused[op] = t
}

// triesOf returns what failures has noted for an entry.
func (r *run) triesOf(e history.Entry) *history.Tries {
	if len(r.refused) == 0 || e.Kind != history.KindRun {
		return nil
	}
	t := r.refused[e.Op]
	delete(r.refused, e.Op)
	return t
}

// reportedMost bounds what a run remembers of its reports; beyond it, and after a restart, some are sent again, which is a no-op.
const reportedMost = 100

// reporter returns the Function of a call that may report to the domain service: only in the run of a rollout.
func (r *run) reporter(op history.Op) (activity.Reporting, activity.Call, bool) {
	if id.Rollout(r.loaded.Workflow) == 0 || op.Kind != history.KindRun {
		return nil, activity.Call{}, false
	}
	f, known := r.engine.Functions.Lookup(op.Name)
	reporting, can := f.(activity.Reporting)
	if !known || !can || f.Location() != activity.InProcess {
		return nil, activity.Call{}, false
	}
	args, err := history.Arguments(op.Args)
	if err != nil {
		return nil, activity.Call{}, false
	}
	call := r.call(op)
	call.Args = args
	return reporting, call, true
}

// reporting returns what the domain service is to hear of an answer: nothing of most Functions.
func (r *run) reporting(c history.Completion) (activity.Report, string, bool) {
	if c.Error != nil || id.Rollout(r.loaded.Workflow) == 0 {
		return activity.Report{}, "", false
	}
	op, pending := r.pending(c.Op)
	if !pending {
		return activity.Report{}, "", false
	}
	reporting, call, can := r.reporter(op)
	if !can {
		return activity.Report{}, "", false
	}
	report, is := reporting.Report(call, c.Value)
	return report, call.ID + "/report", is
}

// intends has the commit that opens a call report it, where the domain service has to hear of it before it is made. Such a call is stored
// before it is made.
func (r *run) intends(op history.Op, first bool) bool {
	reporting, call, can := r.reporter(op)
	if !can {
		return false
	}
	report, is := reporting.Intent(call)
	if is && first {
		r.reportAnswer(report, call.ID+"/intent")
	}
	return is
}

// reportAnswer has the next commit report an answer, unless the last report about the same thing was no other. It is committed with the
// answer, and before what the program does next.
//
// What the answer of a forge makes of a report that cannot be stored is no reason for the run to fail: such a report is left out.
func (r *run) reportAnswer(report activity.Report, id string) {
	if bytes.Equal(r.reports[report.About], report.Data) {
		return
	}
	if r.reports == nil || len(r.reports) >= reportedMost {
		r.reports = map[string]json.RawMessage{}
	}
	r.reports[report.About] = report.Data
	emit := r.emit(history.Emit{ID: id, Type: report.EventType, Data: report.Data, Engine: true})
	if r.engine.CheckReport != nil {
		if err := r.engine.CheckReport(emit); err != nil {
			r.engine.Log.Warn("a report cannot be stored and is left out", "workflow", r.loaded.Workflow, "type", report.EventType, "error", err)
			return
		}
	}
	r.emits = append(r.emits, emit)
}
