// Command registry measures how soon and how surely what is pushed becomes a version set, or a rollout: the registry and the domain
// service on a real PostgreSQL and a JetStream that syncs every write, and an OCI registry and Git
// repositories with TLS and a password that real clients push to. `make bench-registry` runs it.
//
// It is not a test: figures depend on the machine, and are printed next to their goals. Only a lost event ends it with an error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// options are what the command line says.
type options struct {
	// pushes is how many images are pushed, one after the other.
	pushes int
	// rate and lasting are how many events a second are delivered, and for how long.
	rate    int
	lasting time.Duration
	// commits are pushed to the repositories of so many teams and reported by a webhook, and polled is how many each team pushes without one.
	commits, teams, polled int
	out                    string
}

// figure is one line of the report.
type figure struct {
	Name string  `json:"name"`
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	// Note says what the numbers do not.
	Note string `json:"note"`
	Load string `json:"load"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.pushes, "pushes", 200, "how many `images` are pushed; 0 for none")
	flag.IntVar(&o.rate, "rate", 1000, "how many `events` are delivered in a second; 0 for none")
	flag.DurationVar(&o.lasting, "for", time.Minute, "how `long` they are")
	flag.IntVar(&o.commits, "commits", 200, "how many `commits` are pushed that a webhook reports; 0 for none, and for no polls")
	flag.IntVar(&o.teams, "teams", 20, "to the repositories of how many `applications`")
	flag.IntVar(&o.polled, "polled", 3, "how many `commits` each of them has without a webhook; 0 for none")
	flag.StringVar(&o.out, "json", "", "write the figures as JSON into this `file`")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // this is a main package, as tools/bench is
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := probe.Folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := newWorld(ctx, dir, telemetry.Logger(os.Stderr, "error"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	var all []figure
	for _, measure := range []func(context.Context, *world, options) ([]figure, error){latency, pushes, flood} {
		figures, err := measure(ctx, w, o)
		if err != nil {
			return err
		}
		for i := range figures {
			figures[i].Load = probe.Load()
		}
		all = append(all, figures...)
	}
	return report(all, o.out)
}

func report(figures []figure, out string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tN\tP50 (images: goal 100 ms)\tP99 (images: goal 500 ms)\tNOTE\tLOAD")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%d\t%.1f ms\t%.1f ms\t%s\t%s\n", f.Name, f.N, f.P50, f.P99, f.Note, f.Load)
	}
	if err := w.Flush(); err != nil || out == "" {
		return err
	}
	b, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	return os.WriteFile(filepath.Clean(out), append(b, '\n'), 0o600)
}
