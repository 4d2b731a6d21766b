// Command e2e runs the end-to-end scenarios: Lockstep's own stack, with its relay on a real Kubernetes API server with the real Argo CD and
// Argo Rollouts. `make e2e` builds the programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/e2e/cluster"
	"github.com/lockstep-cd/lockstep/tools/e2e/measure"
	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

func main() {
	// The stack starts its parts as children of this executable.
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(cli.Main("e2e", os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	programs := flags.String("programs", "", "`folder` that tools/cluster/build.sh has printed")
	scenarios := flags.String("scenarios", "scenarios", "`folder` of the scenarios")
	drivers := flags.String("drivers", "", "`folder` of drivers that scenarios use beside the built-in ones; by default the one beside the scenarios")
	dir := flags.String("data", "", "`folder` that keeps data and logs; by default a temporary one, which is kept after a failure")
	verbose := flags.Bool("v", false, "print each act")
	kustomize := flags.String("kustomize", "", "`program` that Argo CD renders kustomizations with")
	helm := flags.String("helm", "", "`program` that Argo CD renders charts with")
	prometheus := flags.String("prometheus", "", "`program` that scenarios with metrics need")
	workflows := flags.String("workflows", "", "`folder` that tools/cluster/workflows.sh has printed, which scenarios with workflows need")
	fluxPrograms := flags.String("flux", "", "`folder` that tools/cluster/flux.sh has printed, which scenarios with Flux need")
	cost := flags.Bool("cost", false, "print with each act the relay's requests to the API server and its memory (with -v)")
	figures := flags.Int("measure", 0, "measure instead of running scenarios, with so many concurrent `rollouts` on one relay")
	plainFigures := flags.Int("measure-objects", 0, "measure what kubernetes@1 needs for so many `objects`, instead of running scenarios")
	argoFigures := flags.Int("measure-workflows", 0, "measure what a relay needs for so many Argo `Workflows` at once, beside a tenth of them, instead of running scenarios")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *drivers == "" {
		*drivers = filepath.Join(filepath.Dir(filepath.Clean(*scenarios)), "drivers")
	}
	all, err := scenario.Load(*scenarios, flags.Args()...)
	if err != nil {
		return err
	}
	measured := *figures > 0 || *argoFigures > 0 || *plainFigures > 0
	if !measured {
		if err := playable(all, *prometheus, *workflows, *fluxPrograms); err != nil {
			return err
		}
	}
	level := "warn"
	if *verbose {
		level = "debug"
	}
	log := telemetry.Logger(os.Stderr, level)
	data, remove, err := folder(*dir)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = remove()
		} else {
			fmt.Fprintln(os.Stderr, "data and logs are in", data)
		}
	}()
	clk := clock.System()
	began := clk.Now()
	config := cluster.Config{
		Programs: *programs, Kustomize: *kustomize, Helm: *helm, Prometheus: *prometheus, Workflows: *workflows, Flux: *fluxPrograms,
		Dir: filepath.Join(data, "cluster"), Log: log,
	}
	if measured || *cost {
		config.Audit = cluster.Relay
	}
	place, stop, err := start(ctx, data, *drivers, config, !measured)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Printf("%-22s %5.1fs  the cluster and Lockstep are up\n", "start", clk.Now().Sub(began).Seconds())
	pid := filepath.Join(data, "lockstep", "run", "relay.pid")
	switch {
	case *figures > 0:
		return take(ctx, place, *figures, pid)
	case *argoFigures > 0:
		return takeWorkflows(ctx, place, *argoFigures, pid)
	case *plainFigures > 0:
		return takeObjects(ctx, place, *plainFigures)
	case *cost:
		place.Cost = measure.Cost(pid, measure.Audit(filepath.Join(config.Dir, "log", "audit.log")))
	}
	return play(ctx, place, all)
}

// playable is an error if a scenario needs a program that there is not.
func playable(all []scenario.Scenario, prometheus, workflows, flux string) error {
	for _, s := range all {
		if s.Workflows && workflows == "" {
			return fmt.Errorf("scenario %s: found no --workflows, expected the folder of the programs", s.Name)
		}
		if s.Flux && flux == "" {
			return fmt.Errorf("scenario %s: found no --flux, expected the folder of the programs", s.Name)
		}
		if s.Metrics && prometheus == "" {
			return fmt.Errorf("scenario %s: found no --prometheus, expected the path of the program", s.Name)
		}
	}
	return nil
}

// samples is the number of rollouts, of ten gates each, for the latencies.
const samples = 10

// take measures, and prints the table, which is partial after an error.
func take(ctx context.Context, place *scenario.Place, atOnce int, relayPID string) error {
	kubernetes, ok := place.Cluster.(*cluster.Cluster)
	if !ok {
		return errors.New("measure: expected a real cluster")
	}
	latency, err := measure.Latencies(ctx, place, samples)
	fmt.Print(measure.Table(latency, measure.Load{}))
	if err != nil {
		return err
	}
	load, err := measure.AtOnce(ctx, place, atOnce, relayPID, measure.Audit(kubernetes.AuditFile()))
	fmt.Print(measure.Table(latency, load))
	return err
}

// takeWorkflows measures Argo Workflows at once on one relay.
func takeWorkflows(ctx context.Context, place *scenario.Place, atOnce int, relayPID string) error {
	kubernetes, ok := place.Cluster.(*cluster.Cluster)
	if !ok || kubernetes.ArgoServer() == "" {
		return errors.New("measure: expected a real cluster with --workflows")
	}
	growth, err := measure.Growing(ctx, place, atOnce, relayPID, measure.Audit(kubernetes.AuditFile()))
	fmt.Print(growth.Table())
	if err != nil {
		return err
	}
	return growth.Check()
}

// takeObjects measures a deployment of many objects.
func takeObjects(ctx context.Context, place *scenario.Place, objects int) error {
	kubernetes, ok := place.Cluster.(*cluster.Cluster)
	if !ok {
		return errors.New("measure: expected a real cluster")
	}
	plain, err := measure.PlainObjects(ctx, place, objects, kubernetes.AuditFile())
	if err != nil {
		return err
	}
	fmt.Print(plain.Table())
	return plain.Check()
}

// play runs the scenarios one after the other; after a failure the others still run.
func play(ctx context.Context, place *scenario.Place, all []scenario.Scenario) error {
	var failed []error
	began := place.Clock.Now()
	for _, s := range all {
		if ctx.Err() != nil {
			break
		}
		from := place.Clock.Now()
		err := place.Run(ctx, s)
		word := "ok"
		if err != nil {
			word = "FAILED"
			failed = append(failed, fmt.Errorf("%s: %w", s.Name, err))
		}
		fmt.Printf("%-22s %5.1fs  %-6s %s\n", s.Name, place.Clock.Now().Sub(from).Seconds(), word, s.About)
	}
	fmt.Printf("%d of %d scenarios as expected, %.0f seconds\n", len(all)-len(failed), len(all), place.Clock.Now().Sub(began).Seconds())
	return errors.Join(append(failed, ctx.Err())...)
}

// start starts the cluster and a stack on it, whose drivers look for drift soon if scenarios are played: measurements count requests.
func start(ctx context.Context, data, driverDir string, config cluster.Config, plays bool) (*scenario.Place, func() error, error) {
	log := config.Log
	c, err := cluster.Start(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	set, err := argo(data, c)
	if err != nil {
		c.Stop()
		return nil, nil, err
	}
	drivers, err := filepath.Abs(driverDir)
	if err != nil {
		c.Stop()
		return nil, nil, fmt.Errorf("drivers: %w", err)
	}
	set = append(set,
		"relay.allow_apply=[deployments.apps, services, configmaps, namespaces, widgets.example.com, customresourcedefinitions.apiextensions.k8s.io]",
		"relay.allow_delete=[configmaps]", "relay.allow_logs=true",
		`workflow.http_allow_networks=["127.0.0.1"]`,
		"domain.driver_dir="+drivers, "workflow.driver_dir="+drivers,
		"relay.allow_patch=[gitrepositories.source.toolkit.fluxcd.io, kustomizations.kustomize.toolkit.fluxcd.io]")
	if plays {
		set = append(set, "domain.drift_every=1m", "domain.drift_window=10s")
	}
	s, err := stack.Start(ctx, stack.Config{
		Dir: filepath.Join(data, "lockstep"), Kubeconfig: c.Kubeconfig(cluster.Relay),
		Fast: true, Set: set, Log: log,
	})
	if err != nil {
		c.Stop()
		return nil, nil, fmt.Errorf("start Lockstep: %w", err)
	}
	stop := func() error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err := errors.Join(s.Stop(), s.Discard(within))
		c.Stop()
		return err
	}
	place := &scenario.Place{Stack: s, Cluster: c, Clock: clock.System(), Log: log}
	if err := place.Prepare(ctx); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return place, stop, nil
}

// argo is the configuration with which programs reach the Argo Server: its address, and the credential "argo" of the account that
// may submit.
func argo(data string, c *cluster.Cluster) ([]string, error) {
	url := c.ArgoServer()
	if url == "" {
		return nil, nil
	}
	file := filepath.Join(data, "cluster", "argo-token")
	if err := os.WriteFile(file, []byte(c.Token(cluster.Submitter)), 0o600); err != nil {
		return nil, fmt.Errorf("write token: %w", err)
	}
	return []string{
		fmt.Sprintf("workflow.http_credentials=[{name: argo, url_prefixes: [%q], ref: %q, organizations: [1]}]", url+"/", "file:"+file),
	}, nil
}

// folder returns the data folder of the run, and a function to remove it.
func folder(dir string) (string, func() error, error) {
	if dir != "" {
		return dir, func() error { return nil }, os.MkdirAll(dir, 0o711) //nolint:gosec // PostgreSQL's account needs access
	}
	dir, err := os.MkdirTemp("", "lockstep-e2e-")
	if err != nil {
		return "", nil, fmt.Errorf("temporary folder: %w", err)
	}
	//nolint:gosec // the account of PostgreSQL passes through; what is in it is closed to others
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", nil, fmt.Errorf("temporary folder: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
