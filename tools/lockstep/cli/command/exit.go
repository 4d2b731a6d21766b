package command

import (
	"context"
	"errors"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// The exit codes, as the help of the root command documents them.
const (
	ExitDone         = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitNotFound     = 3
	ExitState        = 4
	ExitDenied       = 5
	ExitUnavailable  = 6
	ExitNotCompleted = 7
	ExitUnwell       = 8
	ExitCancelled    = 9
	ExitSuperseded   = 10
	ExitQueued       = 11
	ExitInterrupted  = 130
)

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// Exit is err with the exit code of the process, where its class has another one.
func Exit(code int, err error) error { return exitError{error: err, code: code} }

// ExitCode is the exit code of a command that ended with err; nil is 0.
func ExitCode(ctx context.Context, err error) int {
	var own exitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &client.QueuedError{}):
		return ExitQueued
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	switch fault.ClassOf(err) {
	case fault.Invalid:
		return ExitUsage
	case fault.NotFound:
		return ExitNotFound
	case fault.Conflict, fault.Refused:
		return ExitState
	case fault.Unauthenticated, fault.Denied:
		return ExitDenied
	case fault.Unavailable, fault.Limited:
		return ExitUnavailable
	default:
		return ExitFailure
	}
}
