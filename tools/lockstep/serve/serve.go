// Package serve is what the child processes of a stack do: one part each, configured by a file.
//
// It does not supervise them; package stack does.
package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/ociregistry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster"
)

// Run runs one part until ctx ends. args are those of pkg/config.
func Run(ctx context.Context, part string, args []string) error {
	if err := run.HideMemory(); err != nil {
		return err
	}
	switch part {
	case "nats":
		return load(ctx, part, args, runNATS)
	case "oci":
		return load(ctx, part, args, runOCI)
	case "git":
		return load(ctx, part, args, runGit)
	case "simcluster":
		return load(ctx, part, args, runCluster)
	case "registry":
		return registry.Program(os.Stdout).Start(ctx, args)
	case "domain":
		return load(ctx, part, args, domain.Run)
	case "workflow":
		return load(ctx, part, args, runWorkflow)
	case workflow.SandboxCommand:
		return workflow.Sandbox(ctx)
	case workflow.RenderCommand:
		return workflow.Render(ctx)
	case "relay":
		return load(ctx, part, args, relay.Run)
	default:
		return fault.New(fault.Invalid, "part: found %q, expected one of those that package stack starts", part)
	}
}

// runWorkflow has the service start its child processes as this program starts them.
func runWorkflow(ctx context.Context, c workflow.Config) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	c.SandboxCommand = []string{self, "serve", workflow.SandboxCommand}
	c.RenderCommand = []string{self, "serve", workflow.RenderCommand}
	return workflow.Run(ctx, c)
}

func load[T any](ctx context.Context, part string, args []string, run func(context.Context, T) error) error {
	c, err := config.Load[T](part, args)
	if err != nil {
		return err
	}
	return run(ctx, c)
}

func logger(part string) *slog.Logger {
	return telemetry.Logger(os.Stderr, "info").With(telemetry.KeyService, part)
}

type natsConfig struct {
	Address    string     `koanf:"address"`
	StoreDir   string     `koanf:"store_dir"`
	Users      []natsUser `koanf:"users"`
	SyncAlways bool       `koanf:"sync_always"`
	// Issuer and Authority are the public keys of the authority that authenticates agents.
	Issuer    string `koanf:"issuer"`
	Authority string `koanf:"authority"`
}

type natsUser struct {
	Name     string `koanf:"name"`
	Password string `koanf:"password" secret:"true"`
}

func runNATS(ctx context.Context, c natsConfig) error {
	host, text, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fault.New(fault.Invalid, "address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fault.New(fault.Invalid, "address: found %q, expected host:port with a number", c.Address)
	}
	users := make([]natsserver.User, len(c.Users))
	for i, u := range c.Users {
		users[i] = natsserver.User{Name: u.Name, Password: u.Password}
	}
	config := natsserver.Config{StoreDir: c.StoreDir, Host: host, Port: port, Users: users, SyncAlways: c.SyncAlways, Log: logger("nats")}
	if c.Issuer != "" {
		config.Authority = &natsserver.Authority{Issuer: c.Issuer, User: c.Authority}
	}
	s, err := natsserver.Start(config)
	if err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

type ociConfig struct {
	Address     string `koanf:"address"`
	Dir         string `koanf:"dir"`
	NotifyURL   string `koanf:"notify_url"`
	NotifyToken string `koanf:"notify_token" secret:"true"`
}

func runOCI(ctx context.Context, c ociConfig) error {
	return ociregistry.Run(ctx, ociregistry.Config{
		Address: c.Address, Dir: c.Dir, NotifyURL: c.NotifyURL, NotifyToken: c.NotifyToken,
	}, logger("oci"), func() {})
}

type gitConfig struct {
	Address  string `koanf:"address"`
	Dir      string `koanf:"dir"`
	Username string `koanf:"username"`
	Password string `koanf:"password" secret:"true"`
}

func runGit(ctx context.Context, c gitConfig) error {
	return gitserver.Run(ctx, gitserver.Config{
		Address: c.Address, Dir: c.Dir, Username: c.Username, Password: c.Password,
	}, logger("git"), func() {})
}

type clusterConfig struct {
	Address     string `koanf:"address"`
	Dir         string `koanf:"dir"`
	GitUsername string `koanf:"git_username"`
	GitPassword string `koanf:"git_password" secret:"true"`
	Registry    string `koanf:"registry"`
}

func runCluster(ctx context.Context, c clusterConfig) error {
	return simcluster.Run(ctx, simcluster.Config{
		Address: c.Address, Dir: c.Dir, GitUsername: c.GitUsername, GitPassword: c.GitPassword, Registry: c.Registry,
	}, logger("simcluster"), func() {})
}
