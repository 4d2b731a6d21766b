package application

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// applicationArchive takes an application out of use; what runs of it is left alone.
func (c commands) applicationArchive() *cobra.Command {
	return c.shelving("archive NAME", "Archive an application; what is deployed keeps running, and the history is kept",
		"  lockstep application archive shop --reason \"sold\"", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.ArchiveApplication(cmd.Context(), name, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Name, "archived") })
		})
}

// applicationRestore takes an archived application into use again.
func (c commands) applicationRestore() *cobra.Command {
	return c.shelving("restore NAME", "Restore an archived application; `lockstep source check-now` finds what was published meanwhile",
		"  lockstep application restore shop", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.RestoreApplication(cmd.Context(), name, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Name, "restored") })
		})
}

// applicationRename gives an application another name.
func (c commands) applicationRename() *cobra.Command {
	var reason string
	cmd := c.Asking("rename NAME NEW-NAME", "Rename an application; by its former names it is still found, each until another one has it",
		"  lockstep application rename shop store --reason \"as the team calls it\"", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RenameApplication(cmd.Context(), args[0], args[1], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Name, "renamed") })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// environmentRename gives an environment another display name.
func (c commands) environmentRename() *cobra.Command {
	var reason string
	cmd := c.Asking("rename NAME NEW-NAME",
		"Show an environment by another name; everything goes by the one that it was made with, which shows it again",
		"  lockstep environment rename production live --reason \"as the team calls it\"", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if one, err = api.RenameEnvironment(cmd.Context(), one.ID, args[1], reason); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Shown(), "renamed") })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// environmentArchive takes an environment out of use; what runs there is left alone.
func (c commands) environmentArchive() *cobra.Command {
	return c.shelving("archive NAME", "Archive an environment; what is deployed keeps running, and the history is kept",
		"  lockstep environment archive staging", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.Environment(cmd.Context(), name)
			if err != nil {
				return err
			}
			if one, err = api.ArchiveEnvironment(cmd.Context(), one.ID, reason); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Name, "archived") })
		})
}

// environmentRestore takes an archived environment into use again; it is onboarded anew.
func (c commands) environmentRestore() *cobra.Command {
	return c.shelving("restore NAME", "Restore an archived environment; it is onboarded again first",
		"  lockstep environment restore staging", func(cmd *cobra.Command, api *client.Client, name, reason string) error {
			one, err := api.Environment(cmd.Context(), name)
			if err != nil {
				return err
			}
			if one, err = api.RestoreEnvironment(cmd.Context(), one.ID, reason); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { command.Row(w, one.Name, "restored") })
		})
}

// shelving is a command that takes something out of use or into use, for a reason.
func (c commands) shelving(
	use, short, example string, run func(cmd *cobra.Command, api *client.Client, name, reason string) error,
) *cobra.Command {
	var reason string
	cmd := c.Asking(use, short, example, command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
		return run(cmd, api, args[0], reason)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}
