package access

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// proposed is what a second person has to confirm.
func (c commands) proposed() *cobra.Command {
	var every bool
	list := c.Asking("list", "List changes that wait for a second person", "  lockstep change list\n  lockstep change list --all -o json",
		command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ProposedChanges(cmd.Context(), !every, 0)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { changeTable(w, all) })
		})
	list.Flags().BoolVar(&every, "all", false, "list decided and expired ones, too")
	show := c.Asking("show CHANGE", "Show a proposed change: the control before and after", "  lockstep change show proposedchange_3",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.ProposedChange(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				changeTable(w, []client.ProposedChange{one})
				command.Row(w, "REASON", one.Reason)
				command.Row(w, "BEFORE", string(one.Before))
				command.Row(w, "AFTER", string(one.After))
			})
		})
	return command.Noun("change", "changes", "Changes of environments under change control, which a second person confirms", list, show,
		c.decided("confirm CHANGE", "Make a proposed change, as the second person", "reviewed", (*client.Client).ConfirmChange),
		c.decided("reject CHANGE", "End a proposed change without making it, as the second person", "not this week", (*client.Client).RejectChange),
		c.decided("withdraw CHANGE", "End a proposed change without making it, as its proposer", "outdated", (*client.Client).WithdrawChange),
		c.decided("force CHANGE", "Make a proposed change without a second person, by break-glass; the reason is required", "everybody else is asleep",
			(*client.Client).ForceChange))
}

// decided is one of the decisions about a proposed change.
func (c commands) decided(
	use, short, why string, do func(api *client.Client, ctx context.Context, id, reason string) (client.ProposedChange, error),
) *cobra.Command {
	var reason string
	verb, _, _ := strings.Cut(use, " ")
	cmd := c.Asking(use, short, "  lockstep change "+verb+" proposedchange_3 --reason \""+why+"\"", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := do(api, cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { changeTable(w, []client.ProposedChange{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func changeTable(w io.Writer, all []client.ProposedChange) {
	command.Row(w, "ID", "STATE", "ACTION", "OF", "ENVIRONMENTS", "PROPOSED BY", "AT", "UNTIL", "DECIDED BY")
	for _, p := range all {
		decider := ""
		if p.Decider != nil {
			decider = p.Decider.Name
		}
		command.Row(w, p.ID, journal.Human(p.State), p.Action, p.SubjectName, names(p.Environments), p.ProposerName, command.Moment(p.CreatedAt),
			command.Moment(p.ExpiresAt), decider)
	}
}
