package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// WaitTime is how long commands wait by default.
const WaitTime = 5 * time.Minute

// WatchPause is the time between two attempts while the API does not answer, and between two looks at what is waited for.
const WatchPause = 500 * time.Millisecond

// AnswerTime is how much longer than the requested wait an answer may take.
const AnswerTime = 10 * time.Second

// Patience is how long a watch continues while the API does not answer.
const Patience = 2 * time.Minute

// TimeoutFlag is how long a command waits.
func TimeoutFlag(cmd *cobra.Command, into *time.Duration, otherwise time.Duration, usage string) {
	DurationFlag(cmd, into, "timeout", otherwise, usage)
}

// WaitFlags are --wait and --timeout.
type WaitFlags struct {
	Wait    bool
	Timeout time.Duration
}

// Add gives a command both flags; until completes "wait until".
func (f *WaitFlags) Add(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&f.Wait, "wait", false, "wait until "+until)
	TimeoutFlag(cmd, &f.Timeout, WaitTime, "how long --wait waits; then the exit code is 7")
}

// Outcome is the result of one look at what is waited for.
type Outcome int

// The outcomes. Failed does not change until someone acts.
const (
	Unsettled Outcome = iota
	Reached
	Failed
)

// Until looks repeatedly until what is waited for is reached or has failed, or until the timeout; the latter two are exit code 7. The
// look also describes the state in words. A short absence of the API does not end it.
func (c *Command) Until(ctx context.Context, timeout time.Duration, look func(ctx context.Context) (Outcome, string, error)) error {
	if timeout <= 0 {
		return fault.New(fault.Invalid, "timeout: found %s; expected more than zero", timeout)
	}
	end := c.Clock.Now().Add(timeout)
	for {
		found, how, err := c.lookOnce(ctx, end, look)
		switch {
		case err != nil && (ctx.Err() != nil || !fault.Is(err, fault.Unavailable)):
			return err
		case err != nil:
			how = err.Error()
		case found == Reached:
			return nil
		case found == Failed:
			return Exit(ExitNotCompleted, errors.New(how))
		}
		if left := end.Sub(c.Clock.Now()); left <= 0 {
			return Exit(ExitNotCompleted, fmt.Errorf("timed out after %s: %s", timeout, how))
		} else if err := clock.Sleep(ctx, c.Clock, min(left, WatchPause)); err != nil {
			return err
		}
	}
}

// lookOnce bounds a look: a server that never answers does not outlast the timeout by much.
func (c *Command) lookOnce(
	ctx context.Context, end time.Time, look func(ctx context.Context) (Outcome, string, error),
) (Outcome, string, error) {
	bounded, cancel := context.WithTimeout(ctx, max(0, end.Sub(c.Clock.Now()))+AnswerTime)
	defer cancel()
	found, how, err := look(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fault.New(fault.Unavailable, "the API does not answer: %w", err)
	}
	return found, how, err
}
