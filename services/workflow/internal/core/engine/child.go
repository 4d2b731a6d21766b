package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Children. A program starts one on the spot: the entry that says so and the row of the child are stored by one commit, so whatever dies,
// the child is started once or not at all. Its end is an event that the parent waits for like any other; a wait for a child that ended
// before the events that are kept finds the end in the store (EndOf). When a run ends, those of its children that are not detached are
// noted as orphans by the same commit, and cancelled afterwards.
//
// Who started a child is stored beside it, and a child changes only what the run may change that all of it began with (guard).

// The rate at which the programs of one organization may start children, in this process: so many at once, and then one in each interval.
const (
	childrenAtOnce = 10_000
	childrenEvery  = time.Second / 2000
)

// orphansMost is how many orphans are cancelled before the loop looks at its context again.
const orphansMost = 50

// startsChildren reports whether a program may start some: then its source is needed for as long as it runs.
func startsChildren(p program.Program) bool {
	name := []byte("start_workflow")
	if bytes.Contains(p.Source, name) {
		return true
	}
	for _, source := range p.Modules {
		if bytes.Contains(source, name) {
			return true
		}
	}
	return false
}

// takeChild puts a child that the machine has recorded into the turn.
func (r *run) takeChild(entry history.Entry) {
	var child history.Child
	if err := json.Unmarshal(entry.Value, &child); err != nil {
		r.broken = fmt.Errorf("the child of %s: %w", entry.Op, err)
		return
	}
	r.family = r.family || !child.Detached
	source := program.Program{Source: []byte(child.Program), Modules: r.source.Modules}
	if module, is := r.source.Modules[child.Module]; is {
		source.Source = module
	} else if child.Module != "" {
		source.Source = r.source.Source
	}
	r.starts = append(r.starts, ChildStart{
		NewExecution: NewExecution{
			Start: execution.Start{
				Organization: r.loaded.Organization, Workflow: child.Workflow, Program: source, Inputs: child.Inputs, Secrets: r.loaded.Secrets,
				Labels: map[string]string{history.LabelParent: parentLabel(r.loaded.Workflow)}, Trace: r.loaded.Trace,
			},
			Ref: r.engine.newRef(), Digest: program.Digest(source.Source), At: entry.At,
		},
		Detached: child.Detached,
	})
}

// parentLabel is the id of a parent, cut to what a label may have.
func parentLabel(workflow string) string {
	const most = 255
	if len(workflow) <= most {
		return workflow
	}
	return string(bytes.ToValidUTF8([]byte(workflow[:most]), nil))
}

// isParent reports whether the run had started children that end with it before what is replayed now.
func isParent(continuation json.RawMessage) bool {
	var call struct{ Children bool }
	return len(continuation) > 0 && json.Unmarshal(continuation, &call) == nil && call.Children
}

// ended completes a wait for the end of a child that has ended; nil if it has not.
func (r *run) ended(ctx context.Context, op history.Op) (*history.Completion, error) {
	value, err := r.engine.Store.EndOf(ctx, r.loaded.Organization, op.EndOf)
	if err != nil || value == nil {
		return nil, err
	}
	return &history.Completion{Op: op.Ref, Value: value}, nil
}

// allowances are the rates of the organizations that have started children.
//
// It is safe for concurrent use.
type allowances struct {
	mu sync.Mutex
	// until is when an organization has used up what it was allowed; in the past for one that may start some at once.
	until map[int64]time.Time
}

// take is how long an organization has to wait before it starts so many children.
func (a *allowances) take(organization int64, children int, now time.Time) time.Duration {
	if children == 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[int64]time.Time{}
	}
	for other, until := range a.until { // those who have not started any for a while need no entry
		if until.Before(now) {
			delete(a.until, other)
		}
	}
	full := now.Add(childrenAtOnce * childrenEvery)
	until := a.until[organization]
	if until.Before(now) {
		until = now
	}
	until = until.Add(time.Duration(children) * childrenEvery)
	a.until[organization] = until
	return until.Sub(full)
}

// free is from when on an organization has not started more than it may.
func (a *allowances) free(organization int64) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, some := a.until[organization]; some {
		return until.Add(-childrenAtOnce * childrenEvery)
	}
	return time.Time{}
}

// orphanLoop cancels the children of runs that have ended. It is woken by an end, and by what the lookout finds.
func (e *Engine) orphanLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.orphans:
		}
		for ctx.Err() == nil {
			n, err := e.Store.CancelOrphans(ctx, e.Clock.Now(), orphansMost)
			e.report(ctx, "cancel orphans", err)
			if err != nil || n == 0 {
				break
			}
		}
	}
}
