package trigger

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) chains() *cobra.Command {
	return c.Asking("list APPLICATION", "List the latest chains that rollouts of an application began", "  lockstep chain list shop", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Chains(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "ID", "FOLLOWS", "STATE", "BLOCK", "BEGAN", "WHY")
				for _, one := range all {
					command.Row(w, one.ID, one.Rollout.ID, journal.Human(one.State), progress(one), command.Moment(one.BeganAt), one.Reason)
				}
			})
		})
}

func progress(c client.Chain) string {
	return command.Number(c.Block) + " of " + command.Number(c.Blocks)
}

func (c commands) showChain() *cobra.Command {
	return c.Asking("show CHAIN", "Show a chain as one graph: its blocks, the applications in them, and what came of each", "  lockstep chain show chain_12",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Chain(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { graph(w, one) })
		})
}

// graph prints a chain, a line for each application.
func graph(w io.Writer, c client.Chain) {
	command.Row(w, "BLOCK", "APPLICATION", "STATE", "ROLLOUT", "BEGAN", "WHY")
	why := c.Reason
	if c.Parent != nil {
		why = strings.TrimPrefix(why+"; part of "+c.Parent.ID, "; ")
	}
	command.Row(w, progress(c), c.Application.Name, journal.Human(c.State), c.Rollout.ID, c.ID, why)
	for _, n := range c.Nodes {
		rollout := ""
		if n.Rollout != nil {
			rollout = n.Rollout.ID
		}
		var began []string
		for _, one := range n.Chains {
			began = append(began, one.ID)
		}
		command.Row(w, command.Number(n.Block), "→ "+n.Application.Name, journal.Human(n.State), rollout, strings.Join(began, " "), n.Reason)
	}
}

func (c commands) cancelChain() *cobra.Command {
	var reason string
	cmd := c.Asking("cancel CHAIN", "End a chain: later blocks do not begin, and its rollouts that wait or are under way are cancelled; what was deployed stays",
		"  lockstep chain cancel chain_12 --reason 'wrong version'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.CancelChain(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { graph(w, one) })
		})
	reasoned(cmd, &reason)
	return cmd
}
