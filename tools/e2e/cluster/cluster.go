package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// startWithin bounds the whole start, on a busy machine.
const startWithin = 5 * time.Minute

// Config is the configuration of a cluster.
type Config struct {
	// Programs is the folder that tools/cluster/build.sh prints.
	Programs string
	// Kustomize is the program with which Argo CD renders kustomizations; empty if it renders none.
	Kustomize string
	// Helm is the program with which Argo CD renders charts; empty if it renders none.
	Helm string
	// Prometheus is the program of that name; empty for none.
	Prometheus string
	// Workflows is the folder that tools/cluster/workflows.sh prints; empty for a cluster without Argo Workflows.
	Workflows string
	// Flux is the folder that tools/cluster/flux.sh prints; empty for a cluster without Flux.
	Flux string
	// Audit is the account whose requests the API server records in AuditFile; empty for none.
	Audit string
	// Dir keeps data and logs.
	Dir string
	// Clock paces polling; nil means the system's.
	Clock clock.Clock
	// Log receives what is started; nil for none.
	Log *slog.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	config    Config
	ports     map[string]int
	reserved  *port.Reservation // of the ports, while a program is restarted
	tokens    map[string]string
	processes []*process // in the order of their start
	rest      *rest.Config
	api       dynamic.Interface
	gauges    *gauges
	scraped   *http.Server // what Prometheus scrapes
}

// Start starts a cluster and returns when everything is ready. After an error nothing is left running.
func Start(ctx context.Context, c Config) (*Cluster, error) {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Stat(filepath.Join(c.Programs, "complete")); err != nil {
		return nil, fault.New(fault.Invalid, "programs of the cluster: %v; expected a folder that tools/cluster/build.sh has printed", err)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	c.Dir = dir
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	s := &Cluster{config: c}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	return s, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.reserveController(ctx); err != nil {
		return err
	}
	if err := c.run(ctx, c.controlPlane()...); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.applyFolder(ctx, filepath.Join(c.config.Programs, "manifests")); err != nil {
		return err
	}
	// Argo CD's controller never sees a project that is created after it has started.
	if err := c.applyOwn(ctx); err != nil {
		return err
	}
	controllers, err := c.controllers()
	if err != nil {
		return err
	}
	if err := c.applyWorkflows(ctx); err != nil {
		return err
	}
	if err := c.run(ctx, controllers...); err != nil {
		return err
	}
	if err := c.startWorkflows(ctx); err != nil {
		return err
	}
	if err := c.startFlux(ctx); err != nil {
		return err
	}
	if err := c.startMetrics(ctx); err != nil {
		return err
	}
	return c.awaitNode(ctx)
}

// run starts processes concurrently and waits until all of them are ready.
func (c *Cluster) run(ctx context.Context, programs ...program) error {
	for _, stage := range stages(programs) {
		started := make([]*process, len(stage))
		for i, p := range stage {
			process, err := c.spawn(ctx, p)
			if err != nil {
				return err
			}
			started[i] = process
			c.processes = append(c.processes, process)
		}
		for _, p := range started {
			if err := p.awaitReady(ctx, c.config.Clock); err != nil {
				return err
			}
			c.config.Log.DebugContext(ctx, "program is ready", "program", p.name)
		}
	}
	return nil
}

// Stop ends all processes, in reverse order.
func (c *Cluster) Stop() {
	for _, p := range slices.Backward(c.processes) {
		p.end()
	}
	c.processes = nil
	c.stopMetrics()
	if c.reserved != nil {
		c.reserved.Release()
	}
}

// Restart kills a program, starts it again and waits until it is ready.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	for i, p := range c.processes {
		if p.name != name {
			continue
		}
		p.kill()
		again, err := c.spawn(ctx, p.program)
		if err != nil {
			return err
		}
		c.processes[i] = again
		return again.awaitReady(ctx, c.config.Clock)
	}
	return fault.New(fault.NotFound, "program %q: found none, expected one of %q", name, c.Programs())
}

// Programs returns the names of the processes.
func (c *Cluster) Programs() []string {
	names := make([]string, len(c.processes))
	for i, p := range c.processes {
		names[i] = p.name
	}
	return names
}

// URL returns the API server's URL.
func (c *Cluster) URL() string { return "https://" + port.Address(c.ports["apiserver"]) }

// Kubeconfig returns a kubeconfig file of an account: admin, or relay, which has exactly a relay's rights.
func (c *Cluster) Kubeconfig(account string) string { return c.path("kubeconfig-" + account) }

// API returns a client with all rights.
func (c *Cluster) API() dynamic.Interface { return c.api }

// HTTP returns an HTTP client with all rights.
func (c *Cluster) HTTP() (*http.Client, error) { return rest.HTTPClientFor(c.rest) }

// AuditFile returns the file with the requests of Config.Audit, one event per line.
func (c *Cluster) AuditFile() string { return c.path("log", "audit.log") }

// LogFile returns the file with the output of a program.
func (c *Cluster) LogFile(name string) string { return c.path("log", name+".log") }

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, elements...)...)
}

// Freeze suspends a program without ending it; Thaw resumes it.
func (c *Cluster) Freeze(_ context.Context, name string) error {
	return c.signal(name, syscall.SIGSTOP)
}

// Thaw resumes a frozen program.
func (c *Cluster) Thaw(_ context.Context, name string) error { return c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) error {
	for _, p := range c.processes {
		if p.name == name {
			if err := p.cmd.Process.Signal(s); err != nil {
				return fmt.Errorf("signal %s: %w", name, err)
			}
			return nil
		}
	}
	return fault.New(fault.NotFound, "program %q: found none, expected one of %q", name, c.Programs())
}
