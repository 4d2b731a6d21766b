// Package local has the commands that run Lockstep on this machine or examine an installation: dev, demo, serve and doctor.
package local

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/serve"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.dev(), own.demo(), own.serve(), own.doctor()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func (c commands) dev() *cobra.Command {
	var dir, kubeconfig string
	var set []string
	var verbose bool
	cmd := &cobra.Command{
		Use: "dev", GroupID: "local",
		Short: "Run a complete Lockstep on this machine",
		Long: `dev starts PostgreSQL, NATS, an OCI registry, a Git server, a simulated cluster and the four services, and keeps them running until
it is interrupted. A process that dies is restarted. The next run continues with the data in DIR.

DIR/endpoints.json   all addresses, for scripts and for --endpoints-file
DIR/log/*.log        the log of each process
DIR/run/*.pid        its process id`,
		Example: "  lockstep dev\n\n  eval \"$(lockstep dev env)\"    # in another terminal\n  lockstep rollout list",
		Args:    command.Subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.dataFolder(dir)
			if err != nil {
				return err
			}
			if kubeconfig != "" {
				if _, err := os.Stat(kubeconfig); err != nil {
					return fault.New(fault.Invalid, "kubeconfig: %v, expected a file with which the relay signs in to a cluster", err)
				}
				if kubeconfig, err = filepath.Abs(kubeconfig); err != nil {
					return fmt.Errorf("kubeconfig: %w", err)
				}
			}
			fmt.Fprintln(c.ErrOut, "starting; the first start in a folder takes longest")
			s, err := stack.Start(cmd.Context(), stack.Config{Dir: dir, Kubeconfig: kubeconfig, Set: set, Log: c.logger(verbose)})
			if err != nil {
				return err
			}
			c.printEndpoints(s.Endpoints(), dir)
			<-cmd.Context().Done()
			fmt.Fprintln(c.ErrOut, "stopping")
			return s.Stop()
		},
	}
	dataFlag(cmd, &dir)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` with the credentials of a real cluster, to use instead of the simulated one")
	cmd.Flags().StringArrayVar(&set, "set", nil, "further configuration of a part, as `part.key=value`; repeatable")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the supervisor does")
	cmd.AddCommand(c.devEnv(), c.devPush())
	return cmd
}

func (c commands) logger(verbose bool) *slog.Logger {
	if verbose {
		return telemetry.Logger(c.ErrOut, "debug")
	}
	return telemetry.Logger(c.ErrOut, "warn")
}

func (c commands) printEndpoints(e stack.Endpoints, dir string) {
	flag := ""
	if dir != stack.DefaultFolder() {
		flag = " --data " + shellQuoted(dir)
	}
	_ = c.Print(e, func(w io.Writer) {
		command.Row(w, "GraphQL", e.GraphQL)
		command.Row(w, "console", e.Console)
		command.Row(w, "registry", e.Registry+"  (CloudEvents and notifications)")
		command.Row(w, "gRPC", e.GRPC+"  (reflection and health are on)")
		command.Row(w, "OCI registry", e.OCI+"  (lockstep dev push NAME:TAG, or docker push "+e.OCI+"/…)")
		command.Row(w, "Git", e.Git)
		command.Row(w, "NATS", e.NATS)
		command.Row(w, "PostgreSQL", e.Database)
		if e.Cluster != "" {
			command.Row(w, "cluster", e.Cluster+"  (simulated)")
		}
		command.Row(w, "token", e.Token)
		fmt.Fprintln(w)
		fmt.Fprintln(w, "ready; in another terminal: eval \"$(lockstep dev env"+flag+")\"; Ctrl-C stops everything")
	})
}

func (c commands) demo() *cobra.Command {
	var dir string
	var verbose bool
	cmd := &cobra.Command{
		Use: "demo", GroupID: "local",
		Short: "Show a good version, a bad one and a rollback on a complete stack",
		Long: `demo starts the same stack as dev in a temporary folder and uses it as registries and users do: two services reach staging and
production gate by gate, a bad version is stopped, and a rollback restores the good one. It ends with the journal of each rollout. The
exit code is 0 only if every step was observed in the API, in Git and in the cluster. Nothing is left running.`,
		Example: "  lockstep demo\n  lockstep demo --data /tmp/demo    # keeps the folder",
		Args:    command.Exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Config{Dir: dir, Out: c.Terminal, Colour: c.ColourTerminal, Clock: c.Clock, Log: c.logger(verbose)})
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "`folder` to use and keep, which has to be new or empty")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the supervisor does")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// serve is what the stack starts; it is not for people.
func (c commands) serve() *cobra.Command {
	return &cobra.Command{
		Use: "serve PART [FLAG]…", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Invalid, "missing part; expected one of %q", stack.Parts())
			}
			err := serve.Run(cmd.Context(), args[0], args[1:])
			if fault.Is(err, fault.Invalid) {
				return command.Exit(stack.ExitConfiguration, err)
			}
			return err
		},
	}
}
