// Package journal has the commands about the record: the journal, and its check.
package journal

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.journal(), own.audit(), own.admin()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

// journal is what happened in the whole organization.
func (c commands) journal() *cobra.Command {
	var after string
	var limit int
	list := c.Asking("list", "Print the journal of the organization, oldest first",
		"  lockstep journal list --limit 50\n  lockstep journal list --after MTIz -o json | jq -r '.[-1].cursor'", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			entries, err := api.Journal(cmd.Context(), after, limit)
			if err != nil {
				return err
			}
			return c.Print(entries, func(w io.Writer) {
				command.Row(w, "WHEN", "ROLLOUT", "APPLICATION", "SUBJECT", "WHAT", "GATE", "WHO", "REASON")
				for _, e := range entries {
					t := e.Transition
					command.Row(w, command.Moment(t.CreatedAt), e.Rollout.ID, e.Rollout.Application.Name, t.What(), t.Event, t.GateID, t.Who(), t.Reason)
				}
			})
		})
	list.Flags().StringVar(&after, "after", "", "start after this `cursor`")
	command.LimitFlag(list, &limit, 0)
	return command.Noun("journal", "log", "The journal: who did what, and why", list, c.export(), c.verify())
}
