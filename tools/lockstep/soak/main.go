// Command soak runs steady rollouts through all four services on a stack of its own, for a given time, and judges by the slope
// of what it samples meanwhile whether anything grows that must not: memory, goroutines, connections, open files, tables and streams
// that are queues. `make soak FOR=30m` runs it.
//
// It is not a benchmark: the pace is its own, and how long anything takes does not count. Its exit code is 1 when something grows or a
// rollout does not complete.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

func main() {
	os.Exit(start(os.Args[1:])) //nolint:forbidigo // this is a main package
}

// start answers the exit code.
func start(args []string) int {
	// What the stack starts as its child processes: `<this program> serve PART …`.
	if len(args) > 0 && args[0] == "serve" {
		return cli.Main("soak", args)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	var out string
	flags := flag.NewFlagSet("soak", flag.ExitOnError)
	flags.DurationVar(&o.lasting, "for", 30*time.Minute, "for how `long` rollouts are started")
	flags.DurationVar(&o.pace, "pace", 5*time.Second, "`time` between the beginnings of two rollouts")
	flags.DurationVar(&o.sampling, "sample", 10*time.Second, "`time` between two samples")
	flags.IntVar(&o.applications, "applications", 3, "how `many` applications take turns")
	flags.StringVar(&out, "json", "", "write the report as JSON into this `file`")
	_ = flags.Parse(args) // it ends the process itself
	if err := run(ctx, o, os.Stdout, out); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	return 0
}

// run soaks, prints the report, and answers what is wrong with it.
func run(ctx context.Context, o options, table io.Writer, out string) (err error) {
	dir, err := os.MkdirTemp("", "lockstep-soak-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the account that runs PostgreSQL has to get through
		return fmt.Errorf("open the folder: %w", err)
	}
	o.dir = dir
	r, err := soak(ctx, o)
	if err != nil {
		return err
	}
	if err := r.print(table); err != nil {
		return err
	}
	if out != "" {
		if err := r.write(out); err != nil {
			return err
		}
	}
	return r.verdict()
}

// report is what a soak found.
type report struct {
	// Lasted is in seconds, from the first rollout to the end of the last.
	Lasted float64 `json:"seconds"`
	// Rollouts have completed; Samples were taken.
	Rollouts int `json:"rollouts"`
	Samples  int `json:"samples"`
	// Series has a line for each thing that was sampled.
	Series []line `json:"series"`
}

// print writes a table: first what grows, then what is flat, then what is a record and may grow.
func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d rollouts in %.0f s, %d samples\n", r.Rollouts, r.Lasted, r.Samples)
	fmt.Fprintln(w, "VERDICT\tWHAT\tAT FIRST\tAT LAST\tGREW BY\tMAY GROW BY\tUNIT")
	for _, verdict := range []verdict{grows, flat, record} {
		for _, l := range r.Series {
			if l.Verdict == verdict {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%+.1f\t%s\t%s\n", l.Verdict, l.Name, l.First, l.Last, l.Growth, l.allowance(), l.Unit)
			}
		}
	}
	return w.Flush()
}

// write keeps the whole report, every sample included, in a file.
func (r report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.WriteFile(filepath.Clean(file), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// verdict is an error that names whatever grows.
func (r report) verdict() error {
	var errs []error
	for _, l := range r.Series {
		if l.Verdict == grows {
			errs = append(errs, fmt.Errorf("%s grew by %.1f %s, expected no more than %.1f", l.Name, l.Growth, l.Unit, l.Allowed))
		}
	}
	return errors.Join(errs...)
}
