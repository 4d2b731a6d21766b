package execution

// State says where an execution stands. The numbers are stored and compared in SQL (execution.state): they are never
// given anew.
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

// String is the state as messages have it.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Parked:
		return "parked"
	case Completed:
		return "completed"
	case Failed:
		return "failed"
	case Cancelled:
		return "cancelled"
	case Quarantined:
		return "quarantined"
	case Terminated:
		return "terminated"
	default:
		return "of an unknown state"
	}
}

// Ended reports whether the state is final.
func (s State) Ended() bool { return s >= Completed }
