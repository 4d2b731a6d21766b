package journal

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c commands) admin() *cobra.Command {
	return command.Noun("admin", "", "Maintenance of an organization's record", c.verifyJournal(), c.reconcile(), c.retention())
}

// verifyJournal rebuilds every state of the organization from the journal.
func (c commands) verifyJournal() *cobra.Command {
	return c.Asking("verify-journal", "Rebuild every state from the journal, check the chain that journals are sealed in, and report each difference; exit code 1 when there is one",
		"  lockstep admin verify-journal\n  lockstep admin verify-journal -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			check, err := api.CheckJournal(cmd.Context(), func(soFar client.JournalCheck) {
				fmt.Fprintf(c.ErrOut, "%d rollouts, %d rows, %d differences\n", soFar.Rollouts, soFar.Rows, len(soFar.Differences))
			})
			if err != nil {
				return err
			}
			switch chain, err := api.CheckJournalChain(cmd.Context()); {
			case err == nil:
				check.Chain = &chain
			case !client.IsUnknownField(err): // a server of the release before has no chain
				return err
			}
			if err := c.Print(check, func(w io.Writer) { journalCheckTable(w, check) }); err != nil {
				return err
			}
			if n := len(check.Differences); n > 0 {
				return fmt.Errorf("journal: found %d differences between the states and the journal, expected none", n)
			}
			if check.Chain != nil && check.Chain.Problem != "" {
				return fmt.Errorf("journal: %s", check.Chain.Problem)
			}
			return nil
		})
}

func journalCheckTable(w io.Writer, check client.JournalCheck) {
	if chain := check.Chain; chain != nil {
		defer func() {
			command.Row(w, fmt.Sprintf("%d blocks with %d rows are what was sealed; the last one has the digest %s", chain.Block,
				chain.Rows, chain.Head))
		}()
	}
	if len(check.Differences) == 0 {
		command.Row(w, fmt.Sprintf("every state of %d rollouts is what %d rows of the journal say", check.Rollouts, check.Rows))
		return
	}
	command.Row(w, "SUBJECT", "PROBLEM")
	for _, d := range check.Differences {
		command.Row(w, d.Subject, d.Problem)
	}
}
