package execution

import "slices"

// State says where an execution stands. Its name is stored, and compared in SQL (execution.state).
type State int

const (
	// Running executions have an owner, or want one: something can be done now, by the process that owns or claims them.
	Running State = iota
	// Parked executions wait in every branch for a timer, an event or an answer. They live in the store only.
	Parked
	// Completed executions ran to the end of their program.
	Completed
	// Failed executions did not; their Error says why.
	Failed
	// Cancelled executions were stopped by a request.
	Cancelled
	// Quarantined executions have killed the processes that ran them, again and again, and were set aside. RetryWorkflow releases
	// them.
	Quarantined
	// Terminated executions were ended by an operator, without being asked.
	Terminated
)

// names are the states as tables and messages have them.
func names() [7]string {
	return [...]string{
		Running: "running", Parked: "parked", Completed: "completed", Failed: "failed", Cancelled: "cancelled", Quarantined: "quarantined",
		Terminated: "terminated",
	}
}

// String is its name.
func (s State) String() string {
	if all := names(); s >= 0 && int(s) < len(all) {
		return all[s]
	}
	return "of an unknown state"
}

// Named is the state of a name. For an unknown name, which the tables do not accept, it is a state that has no name.
func Named(name string) State {
	all := names()
	return State(slices.Index(all[:], name))
}

// Ended reports whether the state is final.
func (s State) Ended() bool { return s >= Completed }
