package workflow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/render"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// SandboxCommand is the argument with which this service's binary becomes a child process.
const SandboxCommand = "sandbox"

// Sandbox is the child process: it runs the programs that it is given over its standard input, until that ends. It
// reads no configuration and holds no secret (D45).
func Sandbox(ctx context.Context) error {
	return sandbox.Serve(ctx, os.Stdin, os.Stdout, script.New(script.Limits{}))
}

// RenderCommand is the argument with which this service's binary becomes a child process that renders one overlay or chart.
const RenderCommand = "render"

// Render is that child process. It reads no configuration and holds no secret.
func Render(ctx context.Context) error {
	return sandbox.ServeTask(ctx, os.Stdin, os.Stdout, render.Compute)
}

// children are what runs programs, and what renders beside them, on the same processors.
func children(c Config, wall clock.Clock, log *slog.Logger) (*sandbox.Scripts, *sandbox.Tasks, error) {
	scripts, err := programs(c, wall, log)
	if err != nil {
		return nil, nil, err
	}
	tasks, err := renderings(c, wall)
	if err != nil {
		scripts.Close()
		return nil, nil, err
	}
	tasks.Beside(scripts)
	return scripts, tasks, nil
}

// renderings are what starts them.
func renderings(c Config, wall clock.Clock) (*sandbox.Tasks, error) {
	command := c.RenderCommand
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's file: %w", err)
		}
		command = []string{self, RenderCommand}
	}
	return sandbox.NewTasks(sandbox.TasksConfig{
		Command: command, Processes: c.RenderProcesses, Clock: wall,
		Limits: sandbox.Limits{Memory: int64(c.RenderMemory) << 20, CPU: c.RenderCPU},
	}), nil
}

// programs runs those of the drivers here and all others in child processes. A driver's program is known by its bytes
// and those of its modules, whichever caller submits it; one that this release no longer knows, because a rollout has
// pinned an older one, is run like a tenant's.
func programs(c Config, wall clock.Clock, log *slog.Logger) (*sandbox.Scripts, error) {
	drivers, err := driver.Embedded()
	if err != nil {
		return nil, fmt.Errorf("read the built-in drivers: %w", err)
	}
	kinds, err := driver.EmbeddedChecks()
	if err != nil {
		return nil, fmt.Errorf("read the built-in check kinds: %w", err)
	}
	if drivers, err = drivers.With(kinds); err != nil {
		return nil, fmt.Errorf("read the built-in check kinds: %w", err)
	}
	if c.DriverDir != "" {
		more, err := driver.LoadAll(os.DirFS(c.DriverDir))
		if err != nil {
			return nil, fmt.Errorf("read the drivers in %s: %w", c.DriverDir, err)
		}
		if drivers, err = drivers.With(more); err != nil {
			return nil, fmt.Errorf("read the drivers in %s: %w", c.DriverDir, err)
		}
	}
	trusted := map[[32]byte]bool{}
	for _, bundle := range drivers.All() {
		own := []driver.Workflow{driver.Onboarding, driver.Setup, driver.Deploy}
		if bundle.IsCheck() {
			own = []driver.Workflow{driver.Check}
		}
		for _, workflow := range own {
			p, err := bundle.Program(workflow)
			if err != nil {
				return nil, fmt.Errorf("read driver %s: %w", bundle.Ref(), err)
			}
			trusted[identity(program.Program{Source: p.Source, Modules: p.Modules})] = true
		}
	}
	command := c.SandboxCommand
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's file: %w", err)
		}
		command = []string{self, SandboxCommand}
	}
	scripts := sandbox.New(sandbox.Config{
		Command: command, Processes: c.SandboxProcesses, Children: c.SandboxChildren, Memory: int64(c.SandboxTotalMemory) << 20,
		Limits:  sandbox.Limits{Memory: int64(c.SandboxMemory) << 20, CPU: c.SandboxCPU},
		Trusted: func(p program.Program) bool { return c.TrustPrograms || trusted[identity(p)] },
		Here:    script.New(script.Limits{}), Clock: wall, Log: log,
	})
	if !c.TrustPrograms {
		scripts.Prepare()
	}
	return scripts, nil
}

// isolation says which layers keep child processes from everything but their work, once one has been started: `lockstep doctor` reads it.
type isolation struct{ scripts *sandbox.Scripts }

// isolationLabels are the name of a layer and why it is not in force.
func isolationLabels() []string { return []string{"layer", "missing"} }

func (isolation) layers() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_workflow_sandbox_isolation",
		"Layers of the isolation of child processes that run programs: 1 in force, 0 missing.", isolationLabels(), nil)
}

func (isolation) moved() *prometheus.Desc {
	return prometheus.NewDesc("lockstep_workflow_sandbox_moved_total",
		"Child processes that were ended because another organization needed their place or memory.", nil, nil)
}

// Describe names the metrics.
func (i isolation) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- i.layers()
	descriptions <- i.moved()
}

// Collect answers what is known.
func (i isolation) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(i.moved(), prometheus.CounterValue, float64(i.scripts.Moved()))
	known, started := i.scripts.Isolation()
	if !started {
		return
	}
	for _, layer := range known.Layers() {
		in := 1.0
		if layer.Missing != "" {
			in = 0
		}
		metrics <- prometheus.MustNewConstMetric(i.layers(), prometheus.GaugeValue, in, layer.Name, layer.Missing)
	}
}

// identity is the digest of a program with its modules.
func identity(p program.Program) [32]byte {
	h := sha256.New()
	write := func(name string, source []byte) {
		sum := program.Digest(source)
		_, _ = fmt.Fprintf(h, "%q%x", name, sum) // writing to a hash does not fail
	}
	write("", p.Source)
	for _, name := range slices.Sorted(maps.Keys(p.Modules)) {
		write(name, p.Modules[name])
	}
	return [32]byte(h.Sum(nil))
}
