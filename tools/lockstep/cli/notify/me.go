package notify

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func mineTable(w io.Writer, all []client.MyNotification) {
	command.Row(w, "NAME", "CHANNEL", "STATE", "CONFIG")
	for _, s := range all {
		command.Row(w, s.Name, s.Channel, onOff(s.Enabled), string(s.Config))
	}
}

func (c commands) myChannels() *cobra.Command {
	return c.Asking("channels", "List the channels that you may subscribe to, and where they reach you", "  lockstep notify me channels", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.MyNotificationChannels(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "NAME", "KIND", "REACHES YOU AT", "WHY NOT")
				for _, one := range all {
					command.Row(w, one.Name, journal.Human(one.Kind), one.Reaches, one.Problem)
				}
			})
		})
}

func (c commands) mine() *cobra.Command {
	return c.Asking("list", "List your subscriptions", "  lockstep notify me list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.MyNotifications(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { mineTable(w, all) })
		})
}

func (c commands) addMine() *cobra.Command {
	var channel string
	var set command.Fields
	var off bool
	cmd := c.Asking("add NAME", "Save a subscription of yours; one of that name gets the new configuration",
		"  lockstep notify me add questions --channel mail --set only=may_approve\n"+
			"  lockstep notify me add shop --channel mail --set application=shop --set 'severities=[\"high\"]'\n"+
			"  lockstep notify me add daily --channel mail --set only=waiting --set digest_minutes=1440",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := set.JSON()
			if err != nil {
				return err
			}
			one, err := api.PutMyNotification(cmd.Context(), client.MyNotification{Name: args[0], Channel: channel, Config: config, Enabled: !off})
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { mineTable(w, []client.MyNotification{one}) })
		})
	cmd.Flags().StringVar(&channel, "channel", "", "the `name` of the channel; `lockstep notify me channels` lists them")
	_ = cmd.MarkFlagRequired("channel")
	cmd.Flags().StringArrayVar((*[]string)(&set), "set", nil, "a field of its configuration, as `field=value`; lists and objects as JSON; repeatable")
	cmd.Flags().BoolVar(&off, "off", false, "save it switched off")
	return cmd
}

func (c commands) removeMine() *cobra.Command {
	return c.Asking("remove NAME", "Remove a subscription of yours", "  lockstep notify me remove daily", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RemoveMyNotification(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { mineTable(w, []client.MyNotification{one}) })
		})
}

func (c commands) myMessages() *cobra.Command {
	var first int
	cmd := c.Asking("messages", "List what was sent to you, the newest first", "  lockstep notify me messages", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.MyNotificationMessages(cmd.Context(), first)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { messageTable(w, all) })
		})
	cmd.Flags().IntVar(&first, "first", 50, "how many at most, up to 100")
	return cmd
}

func (c commands) retryMine() *cobra.Command {
	return c.Asking("retry ID", "Send a message to you again that has failed", "  lockstep notify me retry 7", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			number, err := messageNumber(args[0])
			if err != nil {
				return err
			}
			one, err := api.RetryMyNotification(cmd.Context(), number)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { messageTable(w, []client.NotificationMessage{one}) })
		})
}
