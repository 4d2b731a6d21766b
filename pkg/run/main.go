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

// Main calls run with a context that ends at the first SIGINT or SIGTERM, and returns the exit code: 0 if run succeeded or was interrupted,
// 2 for invalid arguments or configuration (an Invalid error), and 1 otherwise; a request for help is 0. A second signal ends the process
// at once. The error goes to standard error, because a process that cannot read its configuration has no logger yet. Main also hides the
// process's memory and environment from the user's other processes (HideMemory).
//
// The single argument --version, or version, prints the build information instead.
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
