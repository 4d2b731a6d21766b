package execution

import (
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

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
	Stack []history.Frame
	// Labels are the caller's.
	Labels map[string]string
	// Status is what the program reports of itself, key → value as JSON, where an execution is looked at.
	Status map[string]string
	// Program is the SHA-256 of the main source, hexadecimal.
	Program string
	// CreatedAt and EndedAt bound its life; EndedAt is zero while it lives.
	CreatedAt, EndedAt time.Time
	// LastSeq is the end of its history, and UpdatedAt when that was written; CreatedAt where there is none.
	LastSeq   int64
	UpdatedAt time.Time
	// Attempt counts the retries, from 1.
	Attempt int
	// Generation counts how often the run continued with an empty history, from 1; Base is the last entry of the generation
	// before, 0 in the first.
	Generation int
	Base       int64
	// Trace is where what it does is recorded, in W3C form; empty where nothing is.
	Trace string
}
