package journal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// retention is how long what is settled is kept.
func (c commands) retention() *cobra.Command {
	cmd := command.Noun("retention", "", "How long what is settled is kept, and legal hold", c.retentionList(),
		c.retentionSet(), c.retentionHold(), c.retentionArchived())
	cmd.GroupID = ""
	return cmd
}

func (c commands) retentionList() *cobra.Command {
	return c.Asking("list", "List how long each kind is kept, and how many rows are due to be deleted; it deletes nothing",
		"  lockstep admin retention list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			r, err := api.Retention(cmd.Context())
			return c.printRetention(r, err)
		})
}

func (c commands) retentionSet() *cobra.Command {
	var reason string
	cmd := c.Asking("set KIND DAYS", "Set how long a kind is kept: 7 to 3650 days, or 0 for as long as the organization exists",
		"  lockstep admin retention set requests 30 --reason growth", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			days, err := strconv.Atoi(args[1])
			if err != nil {
				return fault.New(fault.Invalid, "DAYS: found %q, expected a number of days", args[1])
			}
			r, err := api.SetRetention(cmd.Context(), args[0], days, reason)
			return c.printRetention(r, err)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) retentionHold() *cobra.Command {
	var reason string
	var end bool
	cmd := c.Asking("hold", "Put a legal hold into force, or end it with --end: while it is in force, nothing is deleted for its age",
		"  lockstep admin retention hold --reason 'case 7'\n  lockstep admin retention hold --end --reason 'case 7 is closed'",
		command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			r, err := api.SetLegalHold(cmd.Context(), !end, reason)
			return c.printRetention(r, err)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why; required")
	cmd.Flags().BoolVar(&end, "end", false, "end the legal hold")
	return cmd
}

func (c commands) retentionArchived() *cobra.Command {
	var rows string
	cmd := c.Asking("archived KIND", "List the objects of the archive that have deleted rows of a kind; with --rows, read them; for owners",
		"  lockstep admin retention archived handoffs\n  lockstep admin retention archived handoffs --rows handoffs.jsonl", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if rows != "" {
				return c.readArchived(cmd, api, args[0], rows)
			}
			all, err := api.ArchivedObjects(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "OBJECT", "ROWS", "DELETED", "SHA-256")
				for _, o := range all {
					command.Row(w, o.Name, strconv.Itoa(o.Rows), o.DeletedAt.UTC().Format(time.RFC3339), o.SHA256)
				}
			})
		})
	cmd.Flags().StringVar(&rows, "rows", "", "write the rows as JSON lines to this `file`, which must not exist")
	return cmd
}

// readArchived writes archived rows to a file, never over one.
func (c commands) readArchived(cmd *cobra.Command, api *client.Client, kind, name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.New(fault.Invalid, "--rows: %w", err)
	}
	defer func() { _ = file.Close() }()
	n, err := api.ReadArchived(cmd.Context(), kind, file)
	if err != nil {
		return fmt.Errorf("%s has %d rows: %w", name, n, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	_, err = fmt.Fprintf(c.Out, "%d rows\n", n)
	return err
}

func (c commands) printRetention(r client.Retention, err error) error {
	if err != nil {
		return err
	}
	return c.Print(r, func(w io.Writer) {
		command.Row(w, "KIND", "KEPT", "DUE")
		for _, rule := range r.Rules {
			kept := fmt.Sprintf("%d days", rule.KeepDays)
			if rule.KeepDays == 0 {
				kept = "always"
			}
			command.Row(w, rule.Kind, kept, strconv.Itoa(rule.Due))
		}
		if r.LegalHold != "" {
			command.Row(w, "nothing is deleted while the legal hold is in force: "+r.LegalHold)
		}
	})
}
