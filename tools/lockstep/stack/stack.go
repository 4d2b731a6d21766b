package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
)

// startWithin bounds the start of one stage: migrations on a slow machine, not an install of PostgreSQL.
const startWithin = 2 * time.Minute

// discardWithin bounds how long a server may take to drop three schemas, or not to answer.
const discardWithin = time.Minute

// Config says how to run a stack.
type Config struct {
	// Dir keeps everything. A stack continues with what an earlier one left there.
	Dir string
	// DatabaseURL of a running PostgreSQL server to use, in schemas named for this stack; empty for LOCKSTEP_DATABASE_URL, and
	// without that for a server of its own.
	DatabaseURL string
	// Kubeconfig is a file with which the relay signs in to a real cluster; empty for a simulated one.
	Kubeconfig string
	// Fast gives up durability against a crash of the machine: for data that nobody needs tomorrow.
	Fast bool
	// Temporary has a stack whose start fails remove what it has outside its folder, as Discard does.
	Temporary bool
	// Set is more configuration of parts, part.key=value each, over what the stack writes for them.
	Set []string
	// Environment is added to that of every process, as NAME=value.
	Environment []string
	// Log receives what happens to the processes; nil discards it.
	Log *slog.Logger
	// Clock paces restarts; nil is the system's.
	Clock clock.Clock
}

// Stack is a running Lockstep.
type Stack struct {
	config    Config
	settings  settings
	identity  authority.Identity // who says which agents may connect to NATS
	lock      *os.File
	ports     *port.Reservation
	postgres  *postgres.Server // nil when the stack has not started it
	database  string
	processes []*process // in the order of their start
}

// Start brings a stack up and returns when every part of it is ready. On an error nothing of it is left running.
func Start(ctx context.Context, c Config) (*Stack, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.DatabaseURL == "" {
		c.DatabaseURL = os.Getenv("LOCKSTEP_DATABASE_URL")
	}
	if err := c.checkSet(); err != nil {
		return nil, err
	}
	s := &Stack{config: c}
	if err := s.start(ctx); err != nil {
		err = errors.Join(err, s.Stop())
		if c.Temporary && s.settings.ID != "" { // without it, it has got nowhere
			err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.startPostgres(ctx); err != nil {
		return err
	}
	children := s.children()
	if err := s.writeConfigurations(children); err != nil {
		return err
	}
	for stage := range 1 + slices.MaxFunc(children, func(a, b child) int { return a.stage - b.stage }).stage {
		if err := s.startStage(ctx, children, stage); err != nil {
			return err
		}
	}
	return writeJSON(s.path("endpoints.json"), s.endpoints())
}

// open makes the folder, and takes it and its ports.
func (s *Stack) open(ctx context.Context) error {
	// Others may pass through: PostgreSQL runs as another account when we are root.
	//nolint:gosec // see above; what is in it is closed to them
	if err := os.MkdirAll(s.config.Dir, 0o711); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, name := range []string{"run", "log", "config", "git"} {
		if err := os.MkdirAll(s.path(name), 0o700); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	var err error
	if s.lock, err = lock(s.path("lock")); err != nil {
		return err
	}
	if s.settings, s.ports, err = openSettings(ctx, s.config.Clock, s.config.Dir); err != nil {
		return err
	}
	s.identity, err = authority.NewIdentity(s.settings.Authority)
	return err
}

func (s *Stack) startPostgres(ctx context.Context) error {
	s.database = s.config.DatabaseURL
	if s.database != "" {
		return nil
	}
	server, err := postgres.Start(ctx, postgres.Config{DataDir: s.path("postgres"), Fast: s.config.Fast, Log: s.config.Log})
	if err != nil {
		return err // it says what could not be started
	}
	s.postgres, s.database = server, server.URL()
	return nil
}

// Schema is the name of a service's schema: plain on a server of our own, this stack's on one that is shared.
func (s *Stack) Schema(service string) string {
	if s.config.DatabaseURL == "" {
		return service
	}
	return service + "_" + s.settings.ID
}

func (s *Stack) writeConfigurations(children []child) error {
	for _, c := range children {
		if err := s.writeYAML(c.name+".yaml", c.config); err != nil {
			return err
		}
	}
	if err := writeFile(s.path("config", "git-password"), []byte(s.settings.Token)); err != nil {
		return err
	}
	if err := writeFile(s.path("config", "relay-key"), []byte(s.settings.RelaySeed)); err != nil {
		return err
	}
	if s.config.Kubeconfig != "" {
		return nil
	}
	return s.writeYAML("kubeconfig.yaml", s.simulated())
}

func (s *Stack) writeYAML(name string, v any) error {
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return writeFile(s.path("config", name), text)
}

// startStage starts the children of a stage and waits for all of them.
func (s *Stack) startStage(ctx context.Context, children []child, stage int) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var started []*process
	for _, c := range children {
		if c.stage != stage {
			continue
		}
		p := &process{
			name: c.name, args: append([]string{"serve", c.name, "--config", s.path("config", c.name+".yaml")}, s.config.setOf(c.name)...),
			ready:   c.ready,
			pidFile: s.path("run", c.name+".pid"), logFile: s.LogFile(c.name),
			environment: append(environment(os.Environ()), s.config.Environment...),
			clock:       s.config.Clock, log: s.config.Log,
		}
		p.start(ctx)
		started = append(started, p)
		s.processes = append(s.processes, p)
	}
	for _, p := range started {
		if err := p.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkSet finds what is for no part.
func (c Config) checkSet() error {
	for _, each := range c.Set {
		part, setting, _ := strings.Cut(each, ".")
		if key, _, ok := strings.Cut(setting, "="); !ok || key == "" || !slices.Contains(Parts(), part) {
			return fault.New(fault.Invalid, "set: found %q, expected <part>.<key>=<value>, the part one of %q", each, Parts())
		}
	}
	return nil
}

// setOf are the flags of one part.
func (c Config) setOf(part string) []string {
	var flags []string
	for _, each := range c.Set {
		if setting, ok := strings.CutPrefix(each, part+"."); ok {
			flags = append(flags, "--set", setting)
		}
	}
	return flags
}

// environment is the supervisor's without what would configure a service of ours: that is in its file.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") })
}

// Stop ends every process in the reverse order of its start, PostgreSQL last, and gives the data folder back.
func (s *Stack) Stop() error {
	for _, p := range slices.Backward(s.processes) {
		p.end()
	}
	s.processes = nil
	var errs []error
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
		s.postgres = nil
	}
	if s.ports != nil {
		s.ports.Release()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Endpoints are where the parts listen.
func (s *Stack) Endpoints() Endpoints { return s.endpoints() }

// GitDir holds the repositories of the Git server.
func (s *Stack) GitDir() string { return s.path("git") }

// RepositoryURL is the address of a repository as the services know it: without credentials.
func (s *Stack) RepositoryURL(name string) string {
	return "http://" + s.address("git") + "/" + name + ".git"
}

// LogFile is where the output of a part goes.
func (s *Stack) LogFile(part string) string { return s.path("log", part+".log") }

// LogTail is the end of a part's log, of those lines that matter, for messages.
func (s *Stack) LogTail(part string, lines int, matters func(line string) bool) string {
	return tail(s.LogFile(part), 0, lines, matters)
}

// Health is the address of a service's health server, for readiness and metrics: of registry, domain, workflow or relay.
func (s *Stack) Health(service string) string { return "http://" + s.address(service+"-health") }

// Process is the process id of a part, 0 while it is not running.
func (s *Stack) Process(part string) (int, error) {
	p, err := s.part(part)
	if err != nil {
		return 0, err
	}
	pid, _, _ := p.status()
	return pid, nil
}

// Account is where NATS listens and how a service signs in there.
func (s *Stack) Account(service string) (url, user, password string) {
	return s.Endpoints().NATS, service, s.settings.Passwords[service]
}

// Kill ends a part as a crash would (kill -9), and answers how many times it had been started before. It is started again at once.
func (s *Stack) Kill(part string) (starts int, err error) {
	p, err := s.part(part)
	if err != nil {
		return 0, err
	}
	return p.kill(nil)
}

// Disconnect ends a part as a crash would, and keeps it away until Connect.
func (s *Stack) Disconnect(part string) error {
	p, err := s.part(part)
	if err != nil {
		return err
	}
	return p.keepAway()
}

// Connect starts a part again that is kept away, and waits until it is ready. One that is not kept away is left alone.
func (s *Stack) Connect(ctx context.Context, part string) error {
	p, err := s.part(part)
	if err != nil {
		return err
	}
	if p.isAway() {
		return s.AwaitRestart(ctx, part, p.bringBack())
	}
	return nil
}

// WipeStreams kills NATS and removes its whole store before it is started again: every stream, consumer and message is lost.
func (s *Stack) WipeStreams() (starts int, err error) {
	p, err := s.part("nats")
	if err != nil {
		return 0, err
	}
	return p.kill(func() error { return os.RemoveAll(s.path("nats")) })
}

// AwaitRestart waits until a part has been started more than starts times and is ready.
func (s *Stack) AwaitRestart(ctx context.Context, part string, starts int) error {
	p, err := s.part(part)
	if err != nil {
		return err
	}
	for {
		if _, n, _ := p.status(); n > starts {
			return p.waitReady(ctx)
		}
		if err := clock.Sleep(ctx, s.config.Clock, time.Millisecond); err != nil {
			return fmt.Errorf("wait for %s to be started again: %w", part, err)
		}
	}
}

func (s *Stack) part(name string) (*process, error) {
	for _, p := range s.processes {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fault.New(fault.NotFound, "part %q: found none, expected one of %s", name, strings.Join(Parts(), ", "))
}

// Discard removes what a stopped stack has outside its folder: its schemas on a PostgreSQL server that it shares.
func (s *Stack) Discard(ctx context.Context) error {
	if s.config.DatabaseURL == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, discardWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.config.DatabaseURL)
	if err != nil {
		return fmt.Errorf("discard schemas: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, service := range []string{"domain", "workflow", "registry"} {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{service + "_" + s.settings.ID}.Sanitize()+" CASCADE"); err != nil {
			return fmt.Errorf("discard schema of %s: %w", service, err)
		}
	}
	return nil
}
