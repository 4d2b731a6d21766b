package core

import "sync"

// endings tells those who wait for the end of an execution how it ended. It knows only what ends in this process:
// whoever waits looks at the store now and then as well.
//
// It is safe for concurrent use.
type endings struct {
	mu      sync.Mutex
	waiting map[workflowName]map[chan Execution]struct{}
}

// workflowName is what callers know an execution by.
type workflowName struct {
	organization int64
	workflow     string
}

// tell hands an execution that has ended to everybody who waits for it.
func (e *endings) tell(ended Execution) {
	name := workflowName{ended.Organization, ended.Workflow}
	e.mu.Lock()
	defer e.mu.Unlock()
	for told := range e.waiting[name] {
		told <- ended // there is room: it is told once
	}
	delete(e.waiting, name)
}

func (e *endings) watch(organization int64, workflow string) (ended <-chan Execution, forget func()) {
	name, mine := workflowName{organization, workflow}, make(chan Execution, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[workflowName]map[chan Execution]struct{}{}
	}
	if e.waiting[name] == nil {
		e.waiting[name] = map[chan Execution]struct{}{}
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
