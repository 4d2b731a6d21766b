package engine

import "sync"

// answers notifies those who wait for the answer to a call when it is stored. It knows only of answers from this process: the waiting
// caller looks at the store now and then as well.
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

// WatchAnswer returns a channel that is notified, once, when a run of this process has answered the call. forget has to be called.
func (e *Engine) WatchAnswer(organization int64, token, id string) (answered <-chan struct{}, forget func()) {
	return e.answers.watch(callName{organization, token, id})
}

func (a *answers) watch(name callName) (answered <-chan struct{}, forget func()) {
	notified := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[callName]map[chan struct{}]struct{}{}
	}
	if a.waiting[name] == nil {
		a.waiting[name] = map[chan struct{}]struct{}{}
	}
	a.waiting[name][notified] = struct{}{}
	return notified, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waiting[name], notified); len(a.waiting[name]) == 0 {
			delete(a.waiting, name)
		}
	}
}

// notify is called with each answer that is stored.
func (a *answers) notify(name callName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for notified := range a.waiting[name] {
		select {
		case notified <- struct{}{}:
		default:
		}
	}
}
