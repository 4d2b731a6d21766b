package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c *command) admin() *cobra.Command {
	return noun("admin", "", "Looking after an organization's record", c.verifyJournal())
}

// verifyJournal rebuilds every state of the organization from the journal.
func (c *command) verifyJournal() *cobra.Command {
	return c.asking("verify-journal", "Rebuild every state from the journal and report each difference; exit code 1 when there is one",
		"  lockstep admin verify-journal\n  lockstep admin verify-journal -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			check, err := api.CheckJournal(cmd.Context(), func(soFar client.JournalCheck) {
				fmt.Fprintf(c.errOut, "%d rollouts, %d rows, %d differences\n", soFar.Rollouts, soFar.Rows, len(soFar.Differences))
			})
			if err != nil {
				return err
			}
			if err := c.print(check, func(w io.Writer) { journalCheckTable(w, check) }); err != nil {
				return err
			}
			if n := len(check.Differences); n > 0 {
				return fmt.Errorf("journal: found %d differences between the states and the journal, expected none", n)
			}
			return nil
		})
}

func journalCheckTable(w io.Writer, check client.JournalCheck) {
	if len(check.Differences) == 0 {
		row(w, fmt.Sprintf("every state of %d rollouts is what %d rows of the journal say", check.Rollouts, check.Rows))
		return
	}
	row(w, "SUBJECT", "PROBLEM")
	for _, d := range check.Differences {
		row(w, d.Subject, d.Problem)
	}
}

// applicationArchive takes an application out of use; what runs of it is left alone.
func (c *command) applicationArchive() *cobra.Command {
	return c.asking("archive NAME", "Take an application out of use; what runs is left alone, and its history stays",
		"  lockstep application archive shop", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.ArchiveApplication(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "archived") })
		})
}

// environmentArchive takes an environment out of use; what runs there is left alone.
func (c *command) environmentArchive() *cobra.Command {
	return c.asking("archive NAME", "Take an environment out of use; what runs there is left alone, and its history stays",
		"  lockstep environment archive staging", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if one, err = api.ArchiveEnvironment(cmd.Context(), one.ID); err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "archived") })
		})
}
