package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c *command) admin() *cobra.Command {
	return noun("admin", "", "Maintenance of an organization's record", c.verifyJournal())
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
	return c.shelving("archive NAME", "Archive an application; what is deployed keeps running, and the history is kept",
		"  lockstep application archive shop --reason \"sold\"", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.ArchiveApplication(cmd.Context(), name, reason)
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "archived") })
		})
}

// applicationRestore takes an archived application into use again.
func (c *command) applicationRestore() *cobra.Command {
	return c.shelving("restore NAME", "Restore an archived application; `lockstep source check-now` finds what was published meanwhile",
		"  lockstep application restore shop", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.RestoreApplication(cmd.Context(), name, reason)
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "restored") })
		})
}

// environmentArchive takes an environment out of use; what runs there is left alone.
func (c *command) environmentArchive() *cobra.Command {
	return c.shelving("archive NAME", "Archive an environment; what is deployed keeps running, and the history is kept",
		"  lockstep environment archive staging", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.Environment(cmd.Context(), name)
			if err != nil {
				return err
			}
			if one, err = api.ArchiveEnvironment(cmd.Context(), one.ID, reason); err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "archived") })
		})
}

// environmentRestore takes an archived environment into use again; it is onboarded anew.
func (c *command) environmentRestore() *cobra.Command {
	return c.shelving("restore NAME", "Restore an archived environment; it is onboarded again first",
		"  lockstep environment restore staging", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.Environment(cmd.Context(), name)
			if err != nil {
				return err
			}
			if one, err = api.RestoreEnvironment(cmd.Context(), one.ID, reason); err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { row(w, one.Name, "restored") })
		})
}

// shelving is a command that takes something out of use or into use, for a reason.
func (c *command) shelving(use, short, example string, run func(cmd *cobra.Command, api *client.Client, name, reason string) error) *cobra.Command {
	var reason string
	cmd := c.asking(use, short, example, exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
		return run(cmd, api, args[0], reason)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}
