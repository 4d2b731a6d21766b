package command

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Noun is a command with subcommands about one kind of object.
func Noun(name, alias, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, GroupID: "objects",
		Args: Subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if alias != "" {
		cmd.Aliases = []string{alias}
	}
	if plural := name + "s"; alias != plural && slices.Contains(counted(), name) {
		cmd.Aliases = append(cmd.Aliases, plural)
	}
	for _, sub := range subcommands {
		switch sub.Name() {
		case "list":
			sub.Aliases = append(sub.Aliases, "ls")
		case "remove":
			sub.Aliases = append(sub.Aliases, "rm")
		}
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// counted are the nouns that have a plural, which is an alias.
func counted() []string {
	return []string{
		"application", "service", "source", "pipeline", "version-set", "environment", "driver", "rollout", "workflow", "flow", "schedule", "member", "group", "token",
		"organization", "agent",
	}
}

// Subcommand refuses an unknown subcommand of a command that only groups others, and suggests the closest one.
func Subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && (text.Distance(args[0], sub.Name()) <= max(1, len(args[0])/3) || strings.HasPrefix(sub.Name(), args[0])) {
			names = append(names, strconv.Quote(sub.Name()))
		}
	}
	meant := ""
	if len(names) > 0 {
		meant = "; did you mean " + strings.Join(text.Nearest(strconv.Quote(args[0]), names), " or ") + "?"
	}
	return fault.New(fault.Invalid, "unknown command %q%s; run '%s --help'", args[0], meant, cmd.CommandPath())
}

// Asking is a subcommand that asks the API.
func (c *Command) Asking(use, short, example string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, api *client.Client, args []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: args, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.checkNamed(cmd); err != nil {
				return err
			}
			api, err := c.API()
			if err != nil {
				return err
			}
			return run(cmd, api, args)
		},
	}
}
