package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

const longHelp = `lockstep promotes several services at once, gate by gate, through environments.

It calls the GraphQL API at the first of --endpoint, LOCKSTEP_ENDPOINT and --endpoints-file that is given. Only workflow calls
the workflow service.

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
  11   the rollout is queued: it starts when the active one ends
  130  interrupted`

// command is what all subcommands share.
type command struct {
	version string
	// out and errOut escape what acts on a terminal; terminal, under out, does not, and is for what writes styles of its own.
	out, errOut    io.Writer
	terminal       io.Writer
	getenv         func(string) string
	clock          clock.Clock
	endpoint       string
	token          string
	endpointsFile  string
	output         string
	colourTerminal bool
}

// Main runs the command line and answers the exit code. The first SIGINT, SIGTERM or SIGHUP ends what runs in order; the next
// one ends the process.
func Main(version string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	c := newCommand(version, os.Stdout, os.Stderr, os.Getenv)
	c.colourTerminal = colours(os.Stdout, os.Getenv)
	return c.run(ctx, args)
}

// Command is the tree of commands with their flags, for the reference. It is not made to be run.
func Command(version string) *cobra.Command {
	return newCommand(version, io.Discard, io.Discard, func(string) string { return "" }).root()
}

// newCommand is a command line that writes to two terminals, or to files in their place.
func newCommand(version string, out, errOut io.Writer, getenv func(string) string) *command {
	return &command{version: version, out: text.NewWriter(out), errOut: text.NewWriter(errOut), terminal: out, getenv: getenv, clock: clock.System()}
}

// run is one command to its end, and answers the exit code.
func (c *command) run(ctx context.Context, args []string) int {
	root := c.root() //nolint:contextcheck // commands take the context that ExecuteContext is given
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil && code != exitInterrupted {
		// Further lines of an error are indented: none of them is taken for a message of this program.
		fmt.Fprintln(c.errOut, "lockstep: "+strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return code
}

// root builds the tree of commands.
func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "Promote several services at once, gate by gate",
		Long:          longHelp,
		Version:       c.version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(c.out)
	root.SetErr(c.errOut)
	root.AddCommand(c.doctor())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Invalid, "%w; run '%s --help'", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&c.endpoint, "endpoint", "", "`URL` of the GraphQL API (LOCKSTEP_ENDPOINT)")
	flags.StringVar(&c.token, "token", "", "bearer `token` (prefer LOCKSTEP_TOKEN, which is not visible in the list of processes)")
	flags.StringVar(&c.endpointsFile, "endpoints-file", "", "`file` that lockstep dev writes: DIR/endpoints.json")
	flags.StringVarP(&c.output, "output", "o", "table",
		"output `format`: table, json or yaml; name for just names or identifiers, where a command supports it")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddGroup(
		&cobra.Group{ID: "objects", Title: "Objects:"},
		&cobra.Group{ID: "local", Title: "On this machine:"},
	)
	root.AddCommand(c.application(), c.source(), c.pipeline(), c.versionSet(), c.environment(), c.driver(), c.rollout(), c.workflow(), c.journal(), c.member(), c.group(), c.accessToken(), c.organization(), c.whoami(), c.agent(), c.access(), c.admin(), c.publish(), c.dev(), c.demo(), c.serve(), c.versionCommand())
	c.completions(root)
	completion(root)
	return root
}

func (c *command) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if c.output == "table" {
				fmt.Fprintln(c.out, "lockstep "+c.version)
				return nil
			}
			return c.print(versionAnswer{Version: c.version}, nil)
		},
	}
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
			sub.Args, sub.RunE = subcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// api is the client for the endpoint that the caller named.
func (c *command) api() (*client.Client, error) {
	endpoint, token, err := c.target()
	if err != nil {
		return nil, err
	}
	if endpoint == "" {
		return nil, fault.New(fault.Invalid, "missing endpoint; expected --endpoint URL, LOCKSTEP_ENDPOINT or --endpoints-file FILE")
	}
	return client.New(client.Config{Endpoint: endpoint, Token: token}), nil
}

// target is the endpoint that the caller named, "" for none, and the token for it.
func (c *command) target() (endpoint, token string, err error) {
	endpoint, token = c.endpoint, c.token
	if endpoint == "" && c.endpointsFile == "" {
		endpoint = c.getenv("LOCKSTEP_ENDPOINT")
	}
	if endpoint == "" && c.endpointsFile != "" {
		e, err := stack.ReadEndpoints(c.endpointsFile)
		if err != nil {
			return "", "", fault.New(fault.Invalid, "%w", err)
		}
		endpoint = e.GraphQL
		if token == "" {
			token = e.Token
		}
	}
	if token == "" {
		token = c.getenv("LOCKSTEP_TOKEN")
	}
	return endpoint, token, nil
}

// exactly is cobra.ExactArgs with an error of our class.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// anyNumber is no limit of arguments.
const anyNumber = math.MaxInt

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return arguments(cmd, args, least, most)
		}
		return nil
	}
}

// arguments says which arguments are missing, or which ones are too many.
func arguments(cmd *cobra.Command, args []string, least, most int) error {
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if len(args) > most {
		return fault.New(fault.Invalid, "unexpected argument %q; usage: %s", args[most], usage)
	}
	names := strings.Fields(cmd.Use)[1:]
	missing := names[min(len(args), len(names)):min(least, len(names))]
	word := "argument"
	if len(missing) > 1 {
		word = "arguments"
	}
	return fault.New(fault.Invalid, "missing %s %s; usage: %s", word, strings.Join(missing, ", "), usage)
}
