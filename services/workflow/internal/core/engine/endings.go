package engine

import (
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// endings notifies callers that wait for the end of an execution of how it ended. It knows only what ends in this process, so the
// callers also poll the store.
//
// It is safe for concurrent use.
type endings struct {
	mu      sync.Mutex
	waiting map[workflowName]map[chan execution.Execution]struct{}
	// here are the executions that were started in this process and have stayed in it since: their waiters will be notified, so the
	// store need not be queried for each of them first.
	here map[workflowName]struct{}
	// recent are the last ones of those that have completed, which is final, without ever having waited or reported a status: the store
	// has nothing more about them. order has them as they came, of which next is the oldest.
	recent map[workflowName]*execution.Execution
	order  []*execution.Execution
	next   int
}

const (
	// recentMost bounds recent: about 1 KiB each.
	recentMost = 4096
	// recentFor is how long one is recalled. No rule deletes a run as soon (retention), so its id is not another's by then.
	recentFor = 30 * time.Second
)

// workflowName is what callers know an execution by.
type workflowName struct {
	organization int64
	workflow     string
}

// begin records that an execution runs in this process from its start on; leave, that it does so no longer.
func (e *endings) begin(begun execution.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.here == nil {
		e.here = map[workflowName]struct{}{}
	}
	name := workflowName{begun.Organization, begun.Workflow}
	e.here[name] = struct{}{}
	delete(e.recent, name) // the id is this one's now
}

func (e *endings) leave(begun execution.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.here, workflowName{begun.Organization, begun.Workflow})
}

// runs reports whether an execution runs here.
func (e *endings) runs(organization int64, workflow string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, here := e.here[workflowName{organization, workflow}]
	return here
}

// recall answers an execution that has completed here lately.
func (e *endings) recall(organization int64, workflow string, now time.Time) (execution.Execution, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended, known := e.recent[workflowName{organization, workflow}]
	if !known || now.Sub(ended.EndedAt) > recentFor {
		return execution.Execution{}, false
	}
	return *ended, true
}

// remember keeps a completed execution in the place of the oldest. e.mu is held.
func (e *endings) remember(name workflowName, ended *execution.Execution) {
	if e.recent == nil {
		e.recent = map[workflowName]*execution.Execution{}
	}
	if len(e.order) < recentMost {
		e.order = append(e.order, ended)
	} else {
		oldest := e.order[e.next]
		if of := (workflowName{oldest.Organization, oldest.Workflow}); e.recent[of] == oldest { // else the id is another's
			delete(e.recent, of)
		}
		e.order[e.next] = ended
		e.next = (e.next + 1) % recentMost
	}
	e.recent[name] = ended
}

// notify hands an execution that has ended to all callers that wait for it. reports is set if its program has reported a status.
func (e *endings) notify(ended execution.Execution, reports bool) {
	name := workflowName{ended.Organization, ended.Workflow}
	e.mu.Lock()
	defer e.mu.Unlock()
	// One that was loaded from the store knows neither its labels nor its attempt.
	if _, here := e.here[name]; here && ended.State == execution.Completed && ended.Attempt == 1 && !reports {
		e.remember(name, &ended)
	}
	for waiter := range e.waiting[name] {
		waiter <- ended // never blocks: each channel has room for one value, and gets one
	}
	delete(e.waiting, name)
}

func (e *endings) watch(organization int64, workflow string) (ended <-chan execution.Execution, forget func()) {
	name, mine := workflowName{organization, workflow}, make(chan execution.Execution, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[workflowName]map[chan execution.Execution]struct{}{}
	}
	if e.waiting[name] == nil {
		e.waiting[name] = map[chan execution.Execution]struct{}{}
	}
	e.waiting[name][mine] = struct{}{}
	return mine, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting[name], mine)
		if len(e.waiting[name]) == 0 {
			delete(e.waiting, name)
		}
	}
}
