package core

// syncCase is what the next action on an Application depends on.
type syncCase struct {
	want     SyncRequest
	observed Object
	// pending is .operation, which stays until Argo CD has finished it; state is status.operationState, that of the last operation started.
	pending, state Object
	// finished means that state is that of an operation that has ended; ours, that it is the requested one.
	finished, ours bool
}

func caseOf(want SyncRequest, observed Object) syncCase {
	state := observed.object("status", "operationState")
	return syncCase{
		want: want, observed: observed, pending: observed.object("operation"), state: state,
		finished: isFinished(state.text("phase")), ours: isOurs(state.object("operation"), want),
	}
}

// syncRule is one rule of nextSync.
type syncRule struct {
	name    string
	applies func(syncCase) bool
	decide  func(syncCase) (Decision, error)
}

// syncRules lists the rules in their order: the first that applies decides. If none does, the sync is started.
//
// Ours is judged before waiting for another actor's: the next operation to start replaces status.operationState.
func syncRules() []syncRule {
	return []syncRule{
		{"a check only answers", func(c syncCase) bool { return c.want.Check }, syncCase.describe},
		{"ours is queued or running", syncCase.oursIsUnfinished, syncCase.awaitOurs},
		{"ours has ended", syncCase.oursIsFinal, func(c syncCase) (Decision, error) { return ended(c.want, c.state) }},
		// Unless another actor has started one meanwhile.
		{"ours has to be repeated", func(c syncCase) bool { return c.ours && c.pending == nil }, func(c syncCase) (Decision, error) {
			return again(c.want, c.observed, c.state), nil
		}},
		{"an earlier one of Lockstep's is replaced", syncCase.mayReplace, func(c syncCase) (Decision, error) {
			return supersede(c.want, c.observed, c.pending, c.state), nil
		}},
		{"another actor's is queued or running", syncCase.isBusy, func(c syncCase) (Decision, error) {
			return wait("another sync of it, started by %s, to end", initiator(c.pending, c.state)), nil
		}},
		// A call that is repeated after a crash reaches this rule, and must not sync a second time (E24).
		{"the revision is deployed", syncCase.isDeployed, func(c syncCase) (Decision, error) { return synced(c.want.Revision), nil }},
	}
}

func (c syncCase) describe() (Decision, error) {
	return Decision{Action: Done, Value: map[string]any{"found": true, "managed": isManaged(c.observed)}}, nil
}

func (c syncCase) oursIsUnfinished() bool {
	return c.pending != nil && isOurs(c.pending, c.want) || c.ours && !c.finished
}

func (c syncCase) awaitOurs() (Decision, error) { return waitForOperation(c.want, c.state), nil }

// oursIsFinal reports whether ours has ended with a result: neither for a passing reason nor at another revision.
func (c syncCase) oursIsFinal() bool {
	return c.ours && !isPassing(c.state) && !isStray(c.want, c.state)
}

func (c syncCase) mayReplace() bool {
	return c.want.Supersede && isLockstep(c.pending, c.state, c.finished)
}

func (c syncCase) isBusy() bool { return c.pending != nil || c.state != nil && !c.finished }

func (c syncCase) isDeployed() bool {
	return deployedBefore(c.want, c.observed) || isAt(c.want, c.observed, c.state)
}
