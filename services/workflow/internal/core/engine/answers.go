package engine

import "sync"

// answers tells those who wait for the answer to a call that it is stored. It knows only of answers from this process: whoever waits looks
// at the store now and then as well.
//
// It is safe for concurrent use.
type answers struct {
	mu      sync.Mutex
	waiting map[callName]map[chan struct{}]struct{}
}

// callName is what a call is known by.
type callName struct {
	organization int64
	token, id    string
}

// WatchAnswer answers a channel that is told, once, when a run of this process has answered the call. forget has to be called.
func (e *Engine) WatchAnswer(organization int64, token, id string) (answered <-chan struct{}, forget func()) {
	return e.answers.watch(callName{organization, token, id})
}

func (a *answers) watch(name callName) (answered <-chan struct{}, forget func()) {
	told := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[callName]map[chan struct{}]struct{}{}
	}
	if a.waiting[name] == nil {
		a.waiting[name] = map[chan struct{}]struct{}{}
	}
	a.waiting[name][told] = struct{}{}
	return told, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waiting[name], told); len(a.waiting[name]) == 0 {
			delete(a.waiting, name)
		}
	}
}

// tell is told of each answer that is stored.
func (a *answers) tell(name callName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for told := range a.waiting[name] {
		select {
		case told <- struct{}{}:
		default:
		}
	}
}
