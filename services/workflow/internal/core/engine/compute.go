package engine

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

const (
	// computedMost is how many calls of computing Functions one turn waits for.
	computedMost = 8
	// computedAtOnce is how many of them a turn makes that are blocked together. More of them are started, since they then run in parallel.
	computedAtOnce = 4
	// computedFor is how long a turn makes such calls. One that has begun is waited for.
	computedFor = 100 * time.Millisecond
	// computedBytes is how many bytes the turn may have recorded before the next call.
	computedBytes = 1 << 20
)

// computed is what a turn has spent on computing Functions.
type computed struct {
	since time.Time
	calls int
}

// compute calls the Functions that a turn has come to, if all of them only compute and there is a place for them now, and reports whether
// the turn continues with their answers. So they are recorded with what comes after them: a commit less for each. A process that dies
// before has done nothing, and the answers are computed again.
//
// What the turn may record this way is bounded: a commit measures the history before the program continues, and compute does so too.
func (r *run) compute(ctx context.Context, todo work, done *computed) bool {
	calls := len(todo.inProcess)
	if calls == 0 || calls > computedAtOnce || done.calls+calls > computedMost || len(todo.opened) > 0 || todo.more {
		return false
	}
	for _, op := range todo.inProcess {
		f, known := r.engine.Functions.Lookup(op.Name)
		if _, underWay := r.running[op.Ref]; !known || underWay || op.Kind != history.KindRun || !activity.IsComputing(f) {
			return false
		}
	}
	if !r.roomFor(calls) || r.recorded() >= computedBytes || !r.engine.activities.TryAcquire() {
		return false
	}
	defer r.engine.activities.Release()
	some := false
	for _, op := range todo.inProcess {
		if r.engine.Clock.Now().Sub(done.since) >= computedFor {
			return some
		}
		c, finished := r.engine.attempt(ctx, op, r.call(op))
		if !finished {
			return some
		}
		r.complete(c)
		done.calls++
		some = true
	}
	return some
}

// roomFor takes what the machine has recorded, and reports whether the history has room for so many answers more.
func (r *run) roomFor(answers int) bool {
	r.take()
	return int(r.seq-r.loaded.Base)+answers <= r.longest()
}

// recorded is how many bytes the turn has recorded.
func (r *run) recorded() (bytes int) {
	for _, e := range r.entries {
		bytes += len(e.Value)
	}
	for _, e := range r.emits {
		bytes += len(e.Data)
	}
	return bytes
}
