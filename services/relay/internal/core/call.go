package core

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Call is one Function that the workflow service wants carried out.
type Call struct {
	// ID is the idempotency key: the same for every attempt at the same activity.
	ID       string
	Function string
	// Organization is the number of the one whose program calls, as the control plane says it; "" for one that does not.
	Organization string
	// Args is a JSON object.
	Args json.RawMessage
	// Attempt counts from 1 and is for logs and answers: it decides nothing. At the Deadline nobody waits for the
	// answer any more (D12).
	Attempt  int
	Deadline time.Time
}

// Answer is what came of a call: a value, or an error.
type Answer struct {
	CallID  string
	Attempt int
	Value   map[string]any
	Err     *Error
}

// Error says to the program that called why a Function did not do what it was asked to.
type Error struct {
	// Code is one of the Code constants.
	Code string
	// Message is one human sentence; it becomes part of the workflow's history.
	Message string
	// Retryable makes the engine send the call again until its deadline.
	Retryable bool
}

// The codes of errors.
const (
	// CodeInvalid is an unknown Function or arguments that do not fit it.
	CodeInvalid = "invalid"
	// CodeUnknownKind is a kind that the cluster does not serve.
	CodeUnknownKind = "unknown_kind"
	// CodeNotFound is an object that has to exist and does not.
	CodeNotFound = "not_found"
	// CodeForbidden is a cluster that does not let the relay do it.
	CodeForbidden = "forbidden"
	// CodeUnreachable is a cluster that does not answer, or is too busy to.
	CodeUnreachable = "unreachable"
	// CodeConflict is a cluster whose state contradicts the call: another pod hash, another owner, another pause.
	CodeConflict = "conflict"
	// CodeAutoSync is an Application that Argo CD syncs by itself (D21).
	CodeAutoSync = "auto_sync"
	// CodeOwned is an Application that another object owns and would put back (D21).
	CodeOwned = "owned"
	// CodeSyncFailed is a sync of ours that Argo CD carried out and that failed.
	CodeSyncFailed = "sync_failed"
	// CodeTimeout is a wait that did not end before the call's deadline (D12).
	CodeTimeout = "timeout"
	// CodeTooLarge is an object that does not fit into an answer.
	CodeTooLarge = "too_large"
	// CodeInternal is everything nobody planned for.
	CodeInternal = "internal"
)

// Error is "code: message".
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// asError puts err into words for the program that called. What is not classed may name addresses or carry a token,
// so its text stays in the relay's log (D27).
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch fault.ClassOf(err) {
	case fault.Invalid:
		return &Error{Code: CodeInvalid, Message: fault.Public(err)}
	case fault.NotFound:
		return &Error{Code: CodeNotFound, Message: fault.Public(err)}
	case fault.Denied, fault.Unauthenticated:
		return &Error{Code: CodeForbidden, Message: fault.Public(err)}
	case fault.Unavailable, fault.Limited:
		return &Error{Code: CodeUnreachable, Message: fault.Public(err), Retryable: true}
	case fault.Conflict, fault.Refused:
		return &Error{Code: CodeConflict, Message: fault.Public(err), Retryable: fault.Is(err, fault.Conflict)}
	case fault.Internal, fault.Terminal:
	}
	return &Error{Code: CodeInternal, Message: "the relay could not carry this out; its log says why"}
}
