// Package fault classifies errors by what a caller should do about them. One table maps each class to every boundary: gRPC,
// GraphQL, HTTP, event consumers and logs.
//
// An error is given a class only if a caller acts on it; every other error is Internal, and its text never leaves the
// process. Across a process boundary the class, message and fields are kept, and the chain of wrapped causes is lost.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// A Class says what a caller should do about an error.
type Class int

// The classes. The zero value is Internal, so that a forgotten class never tells a stranger anything.
const (
	// Internal is everything nobody planned for: the caller can do nothing, an operator reads the log.
	Internal Class = iota
	// Invalid input: the caller mends it; trying again is useless.
	Invalid
	// NotFound: there is no such thing, or the caller may not know of it.
	NotFound
	// Conflict with what exists already: the caller looks again and decides.
	Conflict
	// Refused: well-formed, but not in the present state (a second active rollout, an environment that is not ready).
	Refused
	// Unauthenticated: the caller has not said who it is.
	Unauthenticated
	// Denied: the caller may not do this.
	Denied
	// Unavailable: something is away; try again later.
	Unavailable
	// Limited: too much was asked for; the caller tries again later, and slower.
	Limited
	// Terminal: it failed for good; trying again is useless and nobody's input is at fault.
	Terminal
)

// Field locates one thing that is wrong with an input.
type Field struct {
	// Name is the path of the field, as the caller wrote it: "data.digest", "/steps/2/type".
	Name string
	// Problem says what was found and what was expected.
	Problem string
}

// Error is an error with a class. Its message is safe to show to whoever may make the request.
type Error struct {
	class   Class
	message string
	fields  []Field
	cause   error
}

// New is an error of a class. A %w in format keeps that cause for errors.Is and the log; its text is part of the
// message, so wrap only what the caller may read.
func New(class Class, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{class: class, message: err.Error(), cause: errors.Unwrap(err)}
}

// Because gives err a class and a public message that does not contain err's text; err is kept for the log.
func Because(err error, class Class, format string, args ...any) *Error {
	return &Error{class: class, message: fmt.Sprintf(format, args...), cause: err}
}

// InvalidFields is an Invalid error about the fields given. The message lists them all.
func InvalidFields(fields ...Field) *Error {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.Name + ": " + f.Problem
	}
	return &Error{class: Invalid, message: strings.Join(parts, "; "), fields: fields}
}

// WithFields is an error of any class about the fields given: a Conflict in two of them, for instance.
func WithFields(class Class, message string, fields ...Field) *Error {
	return &Error{class: class, message: message, fields: fields}
}

// Error is the public message.
func (e *Error) Error() string { return e.message }

// Unwrap is the cause, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// Class is the class of the error.
func (e *Error) Class() Class { return e.class }

// Fields are the fields at fault; nil for most errors.
func (e *Error) Fields() []Field { return e.fields }

// ClassOf is the class of the outermost classed error in err's chain, and Internal where there is none. The class of
// nil is Internal too; ask only about errors.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.class
	}
	return Internal
}

// Is reports whether err is of the class.
func Is(err error, class Class) bool { return err != nil && ClassOf(err) == class }

// FieldsOf are the fields of the outermost classed error in err's chain.
func FieldsOf(err error) []Field {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.fields
	}
	return nil
}

// Public is what a caller may read of err: its message, or a constant for Internal ones.
func Public(err error) string {
	if ClassOf(err) == Internal {
		return "internal error"
	}
	return err.Error()
}
