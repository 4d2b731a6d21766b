// Package feed has the commands about what can be read without signing in: feeds and badges.
package feed

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("feed", "", "Feeds that are read by their address, without signing in", own.list(), own.create(), own.revoke()),
		command.Noun("badge", "", "Badges that show the state of applications, without signing in", own.badges(), own.set()),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func table(w io.Writer, all []client.Feed) {
	command.Row(w, "NAME", "KIND", "MADE BY", "MADE", "READ")
	for _, f := range all {
		read := "never"
		if f.LastReadAt != nil {
			read = command.Moment(*f.LastReadAt)
		}
		command.Row(w, f.Name, journal.Human(f.Kind), f.Author, command.Moment(f.CreatedAt), read)
	}
}

func badgeTable(w io.Writer, all []client.Badges) {
	command.Row(w, "APPLICATION", "STATE", "ADDRESS")
	for _, b := range all {
		command.Row(w, b.Application, map[bool]string{true: "on", false: "off"}[b.Enabled], b.URL)
	}
}

func (c commands) list() *cobra.Command {
	return c.Asking("list", "List the feeds; their addresses are shown once, when they are made", "  lockstep feed list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Feeds(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
}

func (c commands) create() *cobra.Command {
	var kind, reason string
	cmd := c.Asking("create NAME", "Make a feed, and show its address this once: a reader who has it needs no account",
		"  lockstep feed create office --kind production_changes\n  lockstep feed create calendar --kind freezes", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			made, err := api.CreateFeed(cmd.Context(), args[0], strings.ToUpper(kind), reason)
			if err != nil {
				return err
			}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "NAME", "KIND", "ADDRESS")
				command.Row(w, made.Feed.Name, journal.Human(made.Feed.Kind), made.URL)
			})
		})
	command.WordFlag(cmd, &kind, "kind", "production_changes", "what it shows: production_changes as Atom, freezes and windows as iCalendar",
		[]string{"production_changes", "freezes", "windows"})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) revoke() *cobra.Command {
	var reason string
	cmd := c.Asking("revoke NAME", "End a feed at once", "  lockstep feed revoke office --reason 'the address got around'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RevokeFeed(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { table(w, []client.Feed{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) badges() *cobra.Command {
	return c.Asking("list", "List the applications that show badges, with their addresses", "  lockstep badge list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Badges(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { badgeTable(w, all) })
		})
}

func (c commands) set() *cobra.Command {
	var reason string
	var off bool
	cmd := c.Asking("set APPLICATION", "Show the state of an application as badges that anybody can read, or end that",
		"  lockstep badge set shop\n  lockstep badge set shop --off", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.SetBadges(cmd.Context(), args[0], !off, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { badgeTable(w, []client.Badges{one}) })
		})
	cmd.Flags().BoolVar(&off, "off", false, "show them no more")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}
