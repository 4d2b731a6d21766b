package core

import (
	"time"
)

// State says where an execution stands. The numbers are stored and compared in SQL (execution.state): they are never
// given anew.
type State int

const (
	// Running executions have an owner, or want one: something can be done now, by whoever owns or claims them.
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

// Execution is one run of a program.
type Execution struct {
	// ID numbers the execution inside this service.
	ID int64
	// Ref is the opaque handle of the run (D8), a UUID; idempotency keys of activities begin with it, because they
	// outlive this service's database in other systems (trailers of commits).
	Ref string
	// Organization owns the execution.
	Organization int64
	// Workflow is the id that the caller chose: the idempotency key of StartWorkflow.
	Workflow string
	// State is where it stands.
	State State
	// Error says why, for Failed, Cancelled, Quarantined and Terminated.
	Error string
	// Stack is where in the program, the innermost call first, for a Failed execution that is looked at by itself.
	Stack []Frame
	// Labels are the caller's.
	Labels map[string]string
	// Program is the SHA-256 of the main source, hexadecimal.
	Program string
	// CreatedAt and EndedAt bound its life; EndedAt is zero while it lives.
	CreatedAt, EndedAt time.Time
	// LastSeq is the end of its history, and UpdatedAt when that was written; CreatedAt where there is none.
	LastSeq   int64
	UpdatedAt time.Time
	// Attempt counts the retries, from 1.
	Attempt int
	// Generation counts how often the run went on with an empty history, from 1; Base is the last entry of the generation
	// before, 0 in the first.
	Generation int
	Base       int64
	// Trace is where what it does is recorded, in W3C form; empty where nothing is.
	Trace string
}

// Start is everything a program is started with.
type Start struct {
	Organization int64
	Workflow     string
	Program      Program
	// Inputs is a JSON object; each member becomes a global of the program.
	Inputs []byte
	// Secrets are references by name, never values (D27).
	Secrets map[string]string
	Labels  map[string]string
	// Trace is that of whoever asks, in W3C form, if it is recorded. It is no part of what is started: the same workflow
	// asked for in another trace is the same.
	Trace string
}

// Program is source code: the main file and what it may load.
type Program struct {
	Source []byte
	// Modules are the files that load() finds, by name.
	Modules map[string][]byte
}

// Started is the receipt for a Start.
type Started struct {
	Workflow, Ref string
	// Created is false when the run existed already.
	Created bool
}

// Digests identify what an execution was started with, so that a second Start can be compared with the first, and what
// differs be named (D5). Labels are not among them: they are the caller's notes and change nothing that runs.
type Digests struct {
	Program, Modules, Inputs, Secrets [32]byte
}

// Differences names the parts in which two starts differ. The names are those of StartWorkflowRequest's fields, which
// is where the caller looks.
func (d Digests) Differences(other Digests) []string {
	var names []string
	for _, part := range []struct {
		name  string
		equal bool
	}{
		{"starlark", d.Program == other.Program},
		{"modules", d.Modules == other.Modules},
		{"inputs", d.Inputs == other.Inputs},
		{"secrets", d.Secrets == other.Secrets},
	} {
		if !part.equal {
			names = append(names, part.name)
		}
	}
	return names
}
