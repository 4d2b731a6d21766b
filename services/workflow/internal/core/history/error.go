package history

import (
	"cmp"
	"errors"
	"time"
)

// FunctionError is a Function's refusal or failure, in words that the program and the reader of its history may see.
type FunctionError struct {
	// Code is a stable token: not_found, forbidden, unreachable, conflict, invalid, timeout, internal …
	Code string `json:"code"`
	// Message is one human sentence.
	Message string `json:"message"`
	// Retryable makes the engine call again, with the same Call.ID and a growing interval, until the call's deadline.
	Retryable bool `json:"retryable,omitempty"`
	// After is how long the next attempt has to wait at least. It is not recorded.
	After time.Duration `json:"-"`
}

// The codes that the engine itself answers with.
const (
	// CodeInternal is an error that a Function did not put into words.
	CodeInternal = "internal"
	// CodeTimeout is a call that was not answered before its deadline (D12).
	CodeTimeout = "timeout"
	// CodeInvalid is a call with arguments that cannot be sent.
	CodeInvalid = "invalid"
	// CodeTooLarge is an answer that is larger than a program can be given.
	CodeTooLarge = "too_large"
	// CodeUnreadable is an answer, an event or a message that no program can read.
	CodeUnreadable = "unreadable"
	// CodeInvalidYAML is a text that parse_yaml cannot read.
	CodeInvalidYAML = "invalid_yaml"
	// CodeForbidden is a call that would change what its run may not change.
	CodeForbidden = "forbidden"
	// CodeLimited is an operation that would exceed a limit of the organization: retry it when others have ended, or do without.
	CodeLimited = "limited"
	// CodeUnreachable is a call that was not executed because something that it needs is not available now.
	CodeUnreachable = "unreachable"
	// CodeChildFailed and CodeChildCancelled are the ends of a child that is waited for.
	CodeChildFailed    = "child_failed"
	CodeChildCancelled = "child_cancelled"
	// CodeUnknownFunction is a Function that is not registered.
	CodeUnknownFunction = "unknown_function"
)

// Error is "code: message".
func (e *FunctionError) Error() string { return e.Code + ": " + e.Message }

// AsFunctionError finds the *FunctionError in err's chain, or makes an internal one that does not show err's text.
// That text may hold addresses or secrets, and a message becomes part of the history (D27).
func AsFunctionError(err error) *FunctionError {
	if fe, ok := errors.AsType[*FunctionError](err); ok {
		return &FunctionError{Code: cmp.Or(fe.Code, CodeInternal), Message: fe.Message, Retryable: fe.Retryable, After: fe.After}
	}
	return &FunctionError{Code: CodeInternal, Message: "the function did not finish; the service's log says why"}
}
