package cli

import (
	"context"
	"errors"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// The exit codes, as longHelp documents them.
const (
	exitDone         = 0
	exitFailure      = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitState        = 4
	exitDenied       = 5
	exitUnavailable  = 6
	exitNotCompleted = 7
	exitUnwell       = 8
	exitCancelled    = 9
	exitSuperseded   = 10
	exitQueued       = 11
	exitInterrupted  = 130
)

// notCompletedError is a watched rollout or workflow that ended otherwise.
type notCompletedError struct {
	message string
	code    int
}

func (e notCompletedError) Error() string { return e.message }

// childError is a configuration that a process of the stack refuses.
type childError struct{ error }

func (e childError) Unwrap() error { return e.error }

func exitCode(ctx context.Context, err error) int {
	var ended notCompletedError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &ended):
		return ended.code
	case errors.As(err, &client.QueuedError{}):
		return exitQueued
	case errors.As(err, &unwellError{}):
		return exitUnwell
	case errors.As(err, &childError{}):
		return stack.ExitConfiguration
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	switch fault.ClassOf(err) {
	case fault.Invalid:
		return exitUsage
	case fault.NotFound:
		return exitNotFound
	case fault.Conflict, fault.Refused:
		return exitState
	case fault.Unauthenticated, fault.Denied:
		return exitDenied
	case fault.Unavailable, fault.Limited:
		return exitUnavailable
	default:
		return exitFailure
	}
}
