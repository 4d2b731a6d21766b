// Command bench measures the durable engine as its callers see it: through gRPC, on a PostgreSQL that waits for its disk
// and a JetStream that syncs every write, each on this machine. `make bench` runs it; README.md says how to read it.
//
// It asserts no figure: they depend on the machine. A scenario that finds a wrong result, as a lost event, ends with an error all the same;
// what must hold on every machine is in the tests of services/workflow.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

func main() {
	// What runs the programs is a child of the service.
	if len(os.Args) == 2 && os.Args[1] == workflow.SandboxCommand {
		os.Exit(run.Main("bench "+workflow.SandboxCommand, workflow.Sandbox))
	}
	// The service under test is a child of this executable, so that its processor time can be distinguished from ours.
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		os.Exit(run.Main("bench "+serveCommand, serve))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	// scale multiplies how much every scenario does.
	scale float64
	// most bounds the parked runs of B4 in place of the scale; 0: it does not.
	most int
	// profile is a folder for profiles of the service.
	profile string
	// peers is the folder of the peers' programs; empty runs none.
	peers string
	out   string
	only  []string
	// data is a folder whose contents stay; empty: everything is in a folder that is removed.
	data string
}

// parkedMost is beside how many parked runs B4 measures at most.
func (o options) parkedMost() int { return cmp.Or(o.most, max(1_000, int(1_000_000*o.scale))) }

func bench(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Float64Var(&o.scale, "scale", 1, "how much every scenario does, as a `factor`")
	flags.StringVar(&o.peers, "peers", "", "run the peers whose programs are in this `folder` as well (their modules are fetched)")
	flags.StringVar(&o.profile, "profile", "", "write CPU profiles of the service into this `folder`")
	flags.StringVar(&o.out, "json", "", "write the figures as JSON into this `file`")
	flags.StringVar(&o.data, "data", "", "keep the servers' data in this `folder`; the next run of B4 finds the parked runs of the one before there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.only = flags.Args()
	log := telemetry.Logger(os.Stderr, "warn")
	temporary, err := probe.Folder()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }() // nothing runs in it any more
	dir := temporary
	if o.data != "" {
		if dir, err = filepath.Abs(o.data); err != nil {
			return err
		}
	}
	report := newReport()
	if err := measure(ctx, log, dir, o, report); err != nil {
		return err
	}
	report.print(os.Stdout)
	if o.out == "" {
		return nil
	}
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(o.out), append(b, '\n'), 0o600)
}

// measure runs the scenarios one after the other, each on servers of its own, so that none pays for the rows of the one
// before.
func measure(ctx context.Context, log *slog.Logger, dir string, o options, report *report) error {
	chosen, err := choose(scenarios(), o.only)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		w, err := newWorld(ctx, log, filepath.Join(dir, s.name), o, s.config)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintln(os.Stderr, "running", s.name)
		err = s.run(ctx, w, report)
		if closeErr := w.close(ctx); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// choose answers the scenarios whose names begin with one of the given, or all where none is given. A name that chooses none is an error,
// for a run of an hour would be without it.
func choose(all []scenario, prefixes []string) (chosen []scenario, err error) {
	for _, prefix := range prefixes {
		if !slices.ContainsFunc(all, func(s scenario) bool { return strings.HasPrefix(s.name, prefix) }) {
			return nil, fmt.Errorf("no scenario's name begins with %q: there are %s", prefix, names(all))
		}
	}
	for _, s := range all {
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(s.name, prefix) }) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// names are those of scenarios, for people.
func names(all []scenario) string {
	list := make([]string, len(all))
	for i, s := range all {
		list[i] = s.name
	}
	return strings.Join(list, ", ")
}
