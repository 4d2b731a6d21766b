package core

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Call is a call of a Function by the workflow service.
type Call struct {
	// ID is the idempotency key: the same for every attempt at the same activity.
	ID       string
	Function string
	// Organization is the number of the organization whose program calls, as reported by the control plane; "" if it reports none.
	Organization string
	// Args is a JSON object.
	Args json.RawMessage
	// Attempt counts from 1 and is only used in logs and answers. After the Deadline no answer is expected any more (D12).
	Attempt  int
	Deadline time.Time
	// HeldWeights are the weights, in percent, that a Rollout must not leave: their passages have not been granted. Control planes of earlier
	// releases report none.
	HeldWeights []int
	// Owner is whose objects k8s.apply, k8s.patch and k8s.delete may change, as the control plane reports it; "" from control planes of
	// earlier releases, and for calls that only read.
	Owner string
	// Installation is which installation of the control plane calls; "" from those of earlier releases.
	Installation string
}

// Answer is the result of a call: a value, or an error.
type Answer struct {
	CallID  string
	Attempt int
	Value   map[string]any
	Err     *Error
}

// Error is the error of a Function, for the program that called it.
type Error struct {
	// Code is one of the Code constants.
	Code string
	// Message is one sentence for people; it becomes part of the workflow's history.
	Message string
	// Retryable makes the engine repeat the call until its deadline.
	Retryable bool
}

// The codes of errors.
const (
	// CodeInvalid: an unknown Function, or arguments that do not fit it.
	CodeInvalid = "invalid"
	// CodeUnknownKind: a kind that the cluster does not serve.
	CodeUnknownKind = "unknown_kind"
	// CodeNotFound: a required object does not exist.
	CodeNotFound = "not_found"
	// CodeForbidden: the relay lacks the rights in the cluster.
	CodeForbidden = "forbidden"
	// CodeUnreachable: the cluster does not answer, or is overloaded.
	CodeUnreachable = "unreachable"
	// CodeConflict: the state of the cluster contradicts the call: another pod hash, another owner, another pause.
	CodeConflict = "conflict"
	// CodeAutoSync: Argo CD syncs the Application automatically (D21).
	CodeAutoSync = "auto_sync"
	// CodeOwned: another object owns the Application and would revert it (D21), or an object belongs to another application.
	CodeOwned = "owned"
	// CodeSyncFailed: Argo CD executed a sync of ours, and it failed.
	CodeSyncFailed = "sync_failed"
	// CodeTimeout: a wait did not end before the call's deadline (D12).
	CodeTimeout = "timeout"
	// CodeTooLarge: the result does not fit into an answer.
	CodeTooLarge = "too_large"
	// CodeInternal: any unexpected error.
	CodeInternal = "internal"
)

// Error returns "code: message".
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// asError converts err for the calling program. An unclassified error may contain addresses or a token, so its text stays in the relay's
// log (D27).
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
	return &Error{Code: CodeInternal, Message: "the relay failed to execute this; its log has the reason"}
}
