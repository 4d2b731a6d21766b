package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/access"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/application"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/credential"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/driver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/feed"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/forge"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/freeze"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/journal"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/local"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/notify"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/policy"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/provenance"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/rollout"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/source"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/trigger"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
)

const longHelp = `lockstep promotes several services at once, gate by gate, through environments.

It calls the GraphQL API at the first of --endpoint, LOCKSTEP_ENDPOINT and --endpoints-file that is given. Only workflow and
schedule call the workflow service.

Exit codes:
  0    done; what was watched completed
  1    unexpected error
  2    the command or its input is invalid
  3    not found
  4    conflict with the current state, such as a second active rollout
  5    the token is missing, invalid or expired, or lacks a permission
  6    the API does not answer
  7    what was watched or waited for failed, or --wait or --timeout ran out
  8    lockstep doctor found a problem
  9    the rollout that was watched was cancelled
  10   the rollout that was watched was superseded by a newer version set
  11   the rollout is pending in the queue: it waits for the active one, or for the drivers to compare its manifests
  130  interrupted`

// Main runs the command line and answers the exit code. The first SIGINT, SIGTERM or SIGHUP ends what runs in order; the next
// one ends the process.
func Main(version string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	c := command.New(version, os.Stdout, os.Stderr, os.Getenv)
	c.ColourTerminal = colours(os.Stdout, os.Getenv)
	return run(ctx, c, args)
}

// Command is the tree of commands with their flags, for the reference. It is not made to be run.
func Command(version string) *cobra.Command {
	return root(command.New(version, io.Discard, io.Discard, func(string) string { return "" }))
}

// run is one command to its end, and answers the exit code.
func run(ctx context.Context, c *command.Command, args []string) int {
	root := root(c) //nolint:contextcheck // commands take the context that ExecuteContext is given
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := command.ExitCode(ctx, err)
	if err != nil && code != command.ExitInterrupted {
		// Further lines of an error are indented: none of them is taken for a message of this program.
		fmt.Fprintln(c.ErrOut, "lockstep: "+strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return code
}

// root builds the tree of commands.
func root(c *command.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "Promote several services at once, gate by gate",
		Long:          longHelp,
		Version:       c.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          command.Subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Invalid, "%w; run '%s --help'", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&c.Endpoint, "endpoint", "", "`URL` of the GraphQL API (LOCKSTEP_ENDPOINT)")
	flags.StringVar(&c.Token, "token", "", "bearer `token` (prefer LOCKSTEP_TOKEN, which is not visible in the list of processes)")
	flags.StringVar(&c.EndpointsFile, "endpoints-file", "", "`file` that lockstep dev writes: DIR/endpoints.json")
	flags.StringVarP(&c.Output, "output", "o", "table",
		"output `format`: table, json or yaml; name for just names or identifiers, where a command supports it")
	_ = root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddGroup(
		&cobra.Group{ID: "objects", Title: "Objects:"},
		&cobra.Group{ID: "local", Title: "On this machine:"},
	)
	for _, commands := range [][]*cobra.Command{
		application.Commands(c), source.Commands(c), driver.Commands(c), rollout.Commands(c), trigger.Commands(c), notify.Commands(c),
		forge.Commands(c),
		feed.Commands(c),
		credential.Commands(c),
		freeze.Commands(c), provenance.Commands(c), policy.Commands(c), workflow.Commands(c),
		journal.Commands(c), access.Commands(c), local.Commands(c),
		{versionCommand(c)},
	} {
		root.AddCommand(commands...)
	}
	completions(c, root)
	completion(root)
	return root
}

func versionCommand(c *command.Command) *cobra.Command {
	version := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, veto a version of an application, or show where it comes from",
		Args:  command.Exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if c.Output == "table" {
				fmt.Fprintln(c.Out, "lockstep "+c.Version)
				return nil
			}
			return c.Print(versionAnswer{Version: c.Version}, nil)
		},
	}
	version.AddCommand(freeze.Vetoes(c)...)
	version.AddCommand(provenance.Versions(c)...)
	return version
}

// versionAnswer is what `version` prints for programs.
type versionAnswer struct {
	Version string `json:"version"`
}

// completion is cobra's command, which answers a shell that it does not know with its help, as if all were well.
func completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, sub := range root.Commands() {
		if sub.Name() == "completion" {
			sub.Args, sub.RunE = command.Subcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// colours reports whether f is a terminal whose user has nothing against colours.
func colours(f *os.File, getenv func(string) string) bool {
	if getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
