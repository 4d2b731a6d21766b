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
	"github.com/lockstep-cd/lockstep/pkg/port"
)

// startWithin bounds the whole start, on a machine that does other things as well.
const startWithin = 3 * time.Minute

// Config says how to run a cluster.
type Config struct {
	// Programs is the folder that tools/cluster/build.sh prints.
	Programs string
	// Kustomize is the program that Argo CD renders kustomizations with; empty for a cluster that renders none.
	Kustomize string
	// Helm is the program that Argo CD renders charts with; empty for a cluster that renders none.
	Helm string
	// Audit is the account whose requests the API server records in AuditFile; empty for nobody.
	Audit string
	// Dir keeps data and logs.
	Dir string
	// Clock paces the looks; nil is the system's.
	Clock clock.Clock
	// Log is told what starts; nil for nobody.
	Log *slog.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	config    Config
	ports     map[string]int
	reserved  *port.Reservation // of the ports, while a program is started again
	tokens    map[string]string
	processes []*process // in the order of their start
	rest      *rest.Config
	api       dynamic.Interface
}

// Start brings a cluster up and returns when all of it works. On an error nothing of it is left running.
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
	if err := c.run(ctx, c.controlPlane()...); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.applyFolder(ctx, filepath.Join(c.config.Programs, "manifests")); err != nil {
		return err
	}
	// Argo CD's controller never sees a project that comes after it.
	if err := c.applyOwn(ctx); err != nil {
		return err
	}
	if err := c.run(ctx, c.controllers()...); err != nil {
		return err
	}
	return c.awaitNode(ctx)
}

// run starts processes side by side and waits until all of them are ready.
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

// Stop ends every process, the last one first.
func (c *Cluster) Stop() {
	for _, p := range slices.Backward(c.processes) {
		p.end()
	}
	c.processes = nil
	if c.reserved != nil {
		c.reserved.Release()
	}
}

// Restart ends a program as a crash would, starts it again and waits until it is ready.
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

// Programs are the names of the processes.
func (c *Cluster) Programs() []string {
	names := make([]string, len(c.processes))
	for i, p := range c.processes {
		names[i] = p.name
	}
	return names
}

// URL is the API server's.
func (c *Cluster) URL() string { return "https://" + port.Address(c.ports["apiserver"]) }

// Kubeconfig is a file with which the named account signs in: admin, or relay, who may do what a relay has to and no more.
func (c *Cluster) Kubeconfig(account string) string { return c.path("kubeconfig-" + account) }

// API is a client that may do everything.
func (c *Cluster) API() dynamic.Interface { return c.api }

// HTTP is a client that may do everything, for those who read with a URL.
func (c *Cluster) HTTP() (*http.Client, error) { return rest.HTTPClientFor(c.rest) }

// AuditFile has the requests of Config.Audit, one event a line.
func (c *Cluster) AuditFile() string { return c.path("log", "audit.log") }

// LogFile is where the output of a program goes.
func (c *Cluster) LogFile(name string) string { return c.path("log", name+".log") }

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, elements...)...)
}

// Freeze stops a program without ending it; Thaw lets it go on.
func (c *Cluster) Freeze(_ context.Context, name string) error {
	return c.signal(name, syscall.SIGSTOP)
}

// Thaw lets a program that was frozen go on.
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
