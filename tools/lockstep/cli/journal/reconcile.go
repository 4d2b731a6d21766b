package journal

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// reconcile compares the record with what others know, after a restore to an earlier time.
func (c commands) reconcile() *cobra.Command {
	var since, reason string
	var apply bool
	cmd := c.Asking("reconcile", "After a restore to an earlier time: report where the record differs from what the workflow "+
		"service and Git know, and settle it with --apply; exit code 1 when a difference is left",
		"  lockstep admin reconcile --since 2026-11-23T10:00:00Z\n"+
			"  lockstep admin reconcile --since 2026-11-23T10:00:00Z --apply --reason 'restored the backup of ten'", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			from, err := instant("--since", since, c.Clock.Now())
			if err != nil {
				return err
			}
			if from.IsZero() {
				return fault.New(fault.Invalid, "--since: found none; expected the time to which the database was restored")
			}
			differences, err := api.RecordDifferences(cmd.Context(), from)
			if err != nil {
				return err
			}
			left := len(differences)
			for i, d := range differences {
				if !apply || d.Remedy == "" {
					continue
				}
				settled, err := api.ReconcileRecord(cmd.Context(), from, d.Kind, d.Subject, reason)
				switch {
				case err != nil:
					differences[i].Outcome = "failed: " + err.Error()
					continue
				case settled:
					differences[i].Outcome = "settled"
				default:
					differences[i].Outcome = "nothing to do any more"
				}
				left--
			}
			if err := c.Print(differences, func(w io.Writer) { differenceTable(w, differences, apply) }); err != nil {
				return err
			}
			if left > 0 {
				return fmt.Errorf("record: found %d differences that are not settled, expected none", left)
			}
			return nil
		})
	cmd.Flags().StringVar(&since, "since", "", "the `time` to which the database was restored, within the past 14 days: "+
		"2026-11-23T10:00:00Z, or how long ago, such as 2h")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	cmd.Flags().BoolVar(&apply, "apply", false, "settle the differences; without it nothing is changed")
	return cmd
}

func differenceTable(w io.Writer, differences []client.RecordDifference, apply bool) {
	if len(differences) == 0 {
		command.Row(w, "the record has everything that the workflow service and Git know")
		return
	}
	last := "WHAT --apply DOES"
	if apply {
		last = "OUTCOME"
	}
	command.Row(w, "KIND", "SUBJECT", "PROBLEM", last)
	for _, d := range differences {
		what := d.Remedy
		if apply {
			what = d.Outcome
		}
		if d.Remedy == "" {
			what = "cannot be settled"
		}
		command.Row(w, d.Kind, d.Subject, d.Problem, what)
	}
}
