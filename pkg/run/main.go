package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/build"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The exit codes of Main.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Main calls run with a context that ends at the first SIGINT or SIGTERM, and returns the exit code: 0 when run
// succeeded or was interrupted, 2 for a mistake in what the process was given (an Invalid error, or a request for help,
// which is 0), and 1 otherwise. A second signal ends the process at once. The error goes to standard error, because a
// process that cannot read its configuration has no logger yet. Other processes of the user cannot look at this one's memory and environment
// (HideMemory).
//
// The one argument --version, or version, prints what the binary was made from instead.
func Main(name string, run func(context.Context) error) int {
	if len(os.Args) == 2 && (os.Args[1] == "--version" || os.Args[1] == "version") {
		fmt.Fprintln(os.Stdout, name, build.Read())
		return exitOK
	}
	if err := HideMemory(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from here on a signal has its default effect
	err := run(ctx)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(os.Stderr, err)
		return exitOK
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if fault.Is(err, fault.Invalid) {
			return exitUsage
		}
		return exitFailure
	}
}
