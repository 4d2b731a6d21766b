package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Damaged is an execution whose stored data cannot be continued from: entries or the program are missing, or something cannot be decoded.
// Trying again does not help.
type Damaged struct {
	Organization int64
	Workflow     string
	// What says what is missing.
	What string
}

// Error says what is missing.
func (d *Damaged) Error() string {
	return fmt.Sprintf("what is stored of workflow %q of organization %d is damaged: %s", d.Workflow, d.Organization, d.What)
}

// damagedTries is how often an execution is loaded that is damaged, before it is quarantined: what another process was writing, or a
// database that was being restored, is whole the next time. The pauses between double.
const damagedTries = 4

// fencedTries is how often in a row an execution may be refused to this process before it pauses: a refusal means that another process
// owns it, unless what is stored contradicts itself.
const fencedTries = 5

// setbacks counts how often in a row executions have failed here to get anywhere for a reason of their own.
type setbacks map[int64]int

// setback is behind a drive with an error, and pauses where the next one would end the same way. It holds the place of the execution
// meanwhile, or that would be claimed at once.
func (e *Engine) setback(ctx context.Context, j job, err error) {
	damaged, isDamaged := errors.AsType[*Damaged](err)
	interrupted, isInterrupted := errors.AsType[*program.Interrupted](err)
	times := e.count(j.id, isDamaged || errors.Is(err, ErrFenced))
	pause := e.Settings.Poll
	switch {
	case err == nil || ctx.Err() != nil, isInterrupted && interrupted.Moved:
		return
	case isDamaged && times >= damagedTries:
		if e.setAside(ctx, damaged) {
			e.count(j.id, false)
		}
	case isDamaged:
		pause <<= times - 1
	case errors.Is(err, ErrFenced) && times < fencedTries:
		return
	}
	if times, log := e.troubles.add(err.Error(), e.Clock.Now()); log {
		e.Log.ErrorContext(ctx, "turn did not finish", "execution", j.id, "error", err, "times", times)
	}
	_ = clock.Sleep(ctx, e.Clock, pause) // only ends early when everything does
}

// count notes a setback, or that there was none.
func (e *Engine) count(execution int64, another bool) (times int) {
	e.setbackLock.Lock()
	defer e.setbackLock.Unlock()
	if !another {
		delete(e.setbacks, execution)
		return 0
	}
	if e.setbacks == nil || len(e.setbacks) >= troubleMost {
		e.setbacks = setbacks{}
	}
	e.setbacks[execution]++
	return e.setbacks[execution]
}

// setAside quarantines an execution that is damaged.
func (e *Engine) setAside(ctx context.Context, d *Damaged) bool {
	reason := "quarantined: what is stored of it is damaged: " + d.What +
		"; restore that and RetryWorkflow, or RetryWorkflow from an entry before it"
	ended, err := e.Store.Quarantine(ctx, d.Organization, d.Workflow, reason, e.Clock.Now())
	e.report(ctx, "quarantine what is damaged", err)
	if ended {
		e.quarantined.Add(1)
		e.Log.ErrorContext(ctx, "workflow quarantined", "workflow", d.Workflow, "organization", d.Organization, "damage", d.What)
	}
	return err == nil
}
