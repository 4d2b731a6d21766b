package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// The types of the events that the engine sends about executions.
const (
	TypeCompleted = "com.gitlab.cd.workflow.completed"
	TypeFailed    = "com.gitlab.cd.workflow.failed"
	TypeCancelled = "com.gitlab.cd.workflow.cancelled"
)

// The pause between attempts of an in-process Function grows from the first to the second. It lives in memory only:
// after a crash the next owner begins with the first again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// start carries out an in-process Function, unless that is under way. The turn that asked for it is durable. It has
// to be: before its commit another owner may replay to other arguments, and the world would then see one activity id
// with two meanings (E24).
func (d *driver) start(ctx context.Context, op Op) {
	if _, underWay := d.running[op.Ref]; underWay {
		return
	}
	if f, known := d.engine.Functions.Lookup(op.Name); known && pure(f) && op.Kind == KindRun {
		// It answers at once: to have it do so elsewhere takes longer than the answer.
		if c, finished := d.engine.attempt(ctx, op, d.call(op)); finished {
			d.answered = append(d.answered, c)
		}
		return
	}
	if d.running == nil {
		d.running, d.results = map[OpRef]context.CancelFunc{}, make(chan Completion)
	}
	ctx, cancel := context.WithCancel(ctx)
	d.running[op.Ref] = cancel
	call := d.call(op)
	d.engine.active.Go(func() {
		c, finished := d.engine.carryOut(ctx, op, call)
		if !finished {
			return // given up from outside: another turn, perhaps of another process, does it again
		}
		// A driver that has left its execution takes no results. Its ctx has ended then, so this goroutine ends too and
		// the engine's stop does not hang.
		select {
		case d.results <- c:
		case <-ctx.Done():
		}
	})
}

// call is the use of a Function that an operation asks for.
func (d *driver) call(op Op) Call {
	return Call{
		ID: op.Activity(d.loaded.Ref), Organization: d.loaded.Organization, Workflow: d.loaded.Workflow, Function: op.Name,
		Secrets: d.loaded.Secrets, Trace: d.loaded.Trace, Deadline: d.open[op.Ref].deadline,
	}
}

// carryOut calls a Function until it answers for good, when there is a place for it. It is not finished when ctx ended first.
func (e *Engine) carryOut(ctx context.Context, op Op, call Call) (Completion, bool) {
	if ctx.Err() != nil {
		return Completion{}, false // nothing is begun for a run that this process has given up
	}
	// The place is taken here and not in start: a turn must not block because all of them are taken.
	if e.activities.Acquire(ctx, call.Organization) != nil {
		return Completion{}, false
	}
	defer e.activities.Release()
	return e.attempt(ctx, op, call)
}

// attempt is carryOut for who has a place, or needs none.
func (e *Engine) attempt(ctx context.Context, op Op, call Call) (Completion, bool) {
	f, ok := e.Functions.Lookup(op.Name)
	if !ok {
		return Completion{}, false // opening refuses unknown Functions
	}
	answered := Completion{Op: op.Ref, Round: op.Round}
	for {
		call.Attempt++
		args, err := arguments(op.Args) // anew for each attempt: a Function may change what it is given
		if err != nil {
			answered.Error = AsFunctionError(err)
			return answered, true
		}
		call.Args = args
		observed, end := ctx, func(string) {}
		if e.Observe != nil {
			observed, end = e.Observe(ctx, call)
		}
		value, secrets, err := e.call(observed, f, call)
		// What fails because ctx ended says nothing about the Function. Recording it would fail a run because its
		// process was stopped.
		if ctx.Err() != nil {
			end("interrupted")
			return Completion{}, false
		}
		if err == nil {
			end("")
			answered.Value = value
			return answered, true
		}
		refusal := AsFunctionError(err)
		refusal.Message = secrets.redact(refusal.Message)
		end(refusal.Error())
		e.Log.InfoContext(ctx, "function refused", "function", op.Name, "workflow", call.Workflow, "attempt", call.Attempt, "code", refusal.Code, "error", secrets.redact(err.Error()))
		// An attempt that could begin only after the deadline is not waited for: the refusal says more than "timeout".
		pause, again := op.Retry.Pause(call.Attempt, refusal.Code)
		if !again || !refusal.Retryable || op.NoRetry || op.Round > 0 || e.Clock.Now().Add(pause).After(call.Deadline) {
			answered.Error = refusal
			return answered, true
		}
		if clock.Sleep(ctx, e.Clock, pause) != nil {
			return Completion{}, false
		}
	}
}

// call is one attempt. A panic is that Function's failure and nobody else's. Whoever shows the error takes the secrets out of it.
func (e *Engine) call(ctx context.Context, f Function, c Call) (value json.RawMessage, secrets *concealed, err error) {
	ctx, secrets = withConcealed(ctx)
	// The deadline is the one stored when the operation was opened: a restart gives no Function more time (D12).
	ctx, cancel := context.WithTimeoutCause(ctx, c.Deadline.Sub(e.Clock.Now()), context.DeadlineExceeded)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			e.Log.ErrorContext(ctx, "function panicked", "function", c.Function, "workflow", c.Workflow, "panic", secrets.redact(fmt.Sprint(r)), "stack", secrets.redact(string(debug.Stack())))
			err = &FunctionError{Code: CodeInternal, Message: "the function panicked; the service's log says where"}
		}
	}()
	answer, err := f.Call(ctx, c)
	if err != nil {
		if _, worded := errors.AsType[*FunctionError](err); !worded && errors.Is(err, context.DeadlineExceeded) {
			return nil, secrets, &FunctionError{Code: CodeTimeout, Message: c.Function + " did not finish before its deadline"}
		}
		return nil, secrets, err
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		return nil, secrets, fmt.Errorf("encode the value of %s: %w", c.Function, err)
	}
	if refusal := AnswerDoor.Refuse(c.Function, encoded); refusal != nil {
		return nil, secrets, refusal
	}
	return encoded, secrets, nil
}
