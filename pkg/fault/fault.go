// Package fault classifies errors by what a caller should do about them. One table maps each class to every boundary: gRPC,
// GraphQL, HTTP, event consumers and logs.
//
// An error is given a class only if a caller acts on it; every other error is Internal, and its text never leaves the
// process.
//
// Across a process boundary the class, the message with all that was wrapped around it, and the fields are kept. Lost are the causes below
// the class, so errors.Is finds none of them on the other side; whatever was no fault, which arrives as "internal error"; and the
// difference between Terminal and Internal over gRPC, which has one code for both.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// A Class is what a caller should do about an error.
type Class int

// The classes. The zero value is Internal, so that an unclassified error never leaks its text.
const (
	// Internal covers every unexpected error: the caller can do nothing, an operator reads the log.
	Internal Class = iota
	// Invalid input: the caller corrects it; a retry is useless.
	Invalid
	// NotFound: there is no such thing, or the caller may not know of it.
	NotFound
	// Conflict with what exists already: the caller reads the current state and decides.
	Conflict
	// Refused: well-formed, but not in the present state (a second active rollout, an environment that is not ready).
	Refused
	// Unauthenticated: the caller has not proved who it is.
	Unauthenticated
	// Denied: the caller may not do this.
	Denied
	// Unavailable: a dependency does not answer; retry later.
	Unavailable
	// Limited: too many requests; retry later, and slower.
	Limited
	// Terminal: it failed permanently; a retry is useless, and the input is not at fault.
	Terminal
)

// Field locates one thing that is wrong with an input.
type Field struct {
	// Name is the path of the field, as the caller wrote it: "data.digest", "/steps/2/type".
	Name string
	// Problem says what was found and what was expected.
	Problem string
}

// Error is an error with a class. Its message is safe to show to the caller of the request.
type Error struct {
	class   Class
	message string
	fields  []Field
	cause   error
}

// New returns an error of a class. A %w in format keeps the cause for errors.Is and the log. Its text becomes part of the message, so wrap
// only what the caller may read.
func New(class Class, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{class: class, message: err.Error(), cause: errors.Unwrap(err)}
}

// Because gives err a class and a public message that does not contain err's text; err is kept for the log.
func Because(err error, class Class, format string, args ...any) *Error {
	return &Error{class: class, message: fmt.Sprintf(format, args...), cause: err}
}

// InvalidFields returns an Invalid error about the given fields. The message lists them all.
func InvalidFields(fields ...Field) *Error {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.Name + ": " + f.Problem
	}
	return &Error{class: Invalid, message: strings.Join(parts, "; "), fields: fields}
}

// WithFields returns an error of any class about the given fields: a Conflict in two of them, for instance.
func WithFields(class Class, message string, fields ...Field) *Error {
	return &Error{class: class, message: message, fields: fields}
}

// Error returns the public message.
func (e *Error) Error() string { return e.message }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Class returns the class of the error.
func (e *Error) Class() Class { return e.class }

// Fields returns the fields at fault; nil for most errors.
func (e *Error) Fields() []Field { return e.fields }

// ClassOf returns the class of the outermost classified error in err's chain, or Internal if there is none. It is meant for errors: for nil
// it returns Internal too.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.class
	}
	return Internal
}

// Is reports whether err is of the class.
func Is(err error, class Class) bool { return err != nil && ClassOf(err) == class }

// FieldsOf returns the fields of the outermost classified error in err's chain.
func FieldsOf(err error) []Field {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.fields
	}
	return nil
}

// Public returns what a caller may read of err: its message, or a constant for Internal errors.
func Public(err error) string {
	if ClassOf(err) == Internal {
		return "internal error"
	}
	return err.Error()
}
