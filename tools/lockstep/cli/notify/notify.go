// Package notify has the commands about notifications: channels and routes, and the outcome of messages.
package notify

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("notify", "", "Notifications: where they are sent to, what is sent, and the outcome",
			under("channel", "Where notifications are sent to", own.channels(), own.addChannel(), own.removeChannel(), own.kinds()),
			under("route", "What channels are sent, and how", own.routes(), own.addRoute(), own.removeRoute()),
			under("me", "What you have sent to yourself", own.myChannels(), own.mine(), own.addMine(), own.removeMine(), own.myMessages(), own.retryMine()),
			under("account", "Chat accounts, whose users answer by the buttons of messages and by slash commands", own.accounts(), own.removeAccount()),
			own.test(), own.preview(), own.list(), own.retry()),
	}
}

// under is a group of commands under a noun.
func under(name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := command.Noun(name, "", short, subcommands...)
	cmd.GroupID = "" // only the root has groups
	return cmd
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func reasoned(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the journal")
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func channelTable(w io.Writer, all []client.NotificationChannel) {
	command.Row(w, "NAME", "KIND", "STATE", "PER MINUTE", "CONFIG")
	for _, c := range all {
		command.Row(w, c.Name, journal.Human(c.Kind), onOff(c.Enabled), command.Number(c.Rate), string(c.Config))
	}
}

func routeTable(w io.Writer, all []client.NotificationRoute) {
	command.Row(w, "NAME", "CHANNEL", "STATE", "CONFIG", "PROBLEM")
	for _, r := range all {
		command.Row(w, r.Name, r.Channel, onOff(r.Enabled), string(r.Config), r.Problem)
	}
}

func messageTable(w io.Writer, all []client.NotificationMessage) {
	command.Row(w, "ID", "CHANNEL", "STATE", "SEVERITY", "SENT", "OPENED BY", "TITLE", "WHY NOT", "TEMPLATE")
	for _, m := range all {
		sent, opened := "", make([]string, len(m.Openings))
		for i, o := range m.Openings {
			opened[i] = o.Member
		}
		if m.SentAt != nil {
			sent = command.Moment(*m.SentAt)
		}
		command.Row(w, command.Number(m.Number), m.Channel, journal.Human(m.State), journal.Human(m.Severity), sent,
			strings.Join(opened, ", "), m.Title, m.Error, m.TemplateError)
	}
}

func (c commands) channels() *cobra.Command {
	return c.Asking("list", "List the channels", "  lockstep notify channel list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.NotificationChannels(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { channelTable(w, all) })
		})
}

func (c commands) addChannel() *cobra.Command {
	var kind, reason string
	var set command.Fields
	var off bool
	var rate int
	cmd := c.Asking("add NAME", "Save a channel; one of that name gets the new configuration",
		"  lockstep notify channel add team --kind slack --set account=slack-bot --set target=C0123456789\n"+
			"  lockstep notify channel add ops --kind pagerduty --set account=pagerduty-key\n"+
			`  lockstep notify channel add mail --kind email --set url=smtps://mail.example.com:465 --set from=cd@example.com --set 'to=["team@example.com"]'`,
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := set.JSON()
			if err != nil {
				return err
			}
			one, err := api.PutNotificationChannel(cmd.Context(), client.NotificationChannel{
				Name: args[0], Kind: kind, Config: config, Rate: rate, Enabled: !off,
			}, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { channelTable(w, []client.NotificationChannel{one}) })
		})
	command.WordFlag(cmd, &kind, "kind", "webhook", "the kind, which lockstep notify channel kinds describes",
		[]string{"slack", "teams", "mattermost", "discord", "email", "pagerduty", "opsgenie", "webhook", "nats"})
	cmd.Flags().StringArrayVar((*[]string)(&set), "set", nil, "a field of its configuration, as `field=value`; lists as JSON; repeatable")
	cmd.Flags().IntVar(&rate, "rate", 20, "how many messages it receives within a minute at most")
	cmd.Flags().BoolVar(&off, "off", false, "save it switched off")
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) removeChannel() *cobra.Command {
	var reason string
	cmd := c.Asking("remove NAME", "Remove a channel with its routes", "  lockstep notify channel remove team", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RemoveNotificationChannel(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { channelTable(w, []client.NotificationChannel{one}) })
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) kinds() *cobra.Command {
	return c.Asking("kinds", "List the kinds of channels; with -o json, also the schemas of their configurations", "  lockstep notify channel kinds",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.NotificationKinds(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "KIND", "DESCRIPTION")
				for _, k := range all {
					command.Row(w, journal.Human(k.Kind), k.Description)
				}
			})
		})
}

func (c commands) routes() *cobra.Command {
	return c.Asking("list", "List the routes", "  lockstep notify route list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.NotificationRoutes(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { routeTable(w, all) })
		})
}

func (c commands) addRoute() *cobra.Command {
	var channel, reason string
	var set command.Fields
	var off bool
	cmd := c.Asking("add NAME", "Save a route; one of that name gets the new configuration",
		"  lockstep notify route add production --channel team --set 'tiers=[\"production\"]'\n"+
			"  lockstep notify route add nightly --channel mail --set digest_minutes=60 --set 'severities=[\"low\",\"normal\"]'\n"+
			"  lockstep notify route add mine --channel team --set 'expression=application.startsWith(\"shop\") && severity == \"high\"'",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := set.JSON()
			if err != nil {
				return err
			}
			one, err := api.PutNotificationRoute(cmd.Context(), client.NotificationRoute{
				Name: args[0], Channel: channel, Config: config, Enabled: !off,
			}, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { routeTable(w, []client.NotificationRoute{one}) })
		})
	cmd.Flags().StringVar(&channel, "channel", "", "the `name` of the channel")
	_ = cmd.MarkFlagRequired("channel")
	cmd.Flags().StringArrayVar((*[]string)(&set), "set", nil, "a field of its configuration, as `field=value`; lists and objects as JSON; repeatable")
	cmd.Flags().BoolVar(&off, "off", false, "save it switched off")
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) removeRoute() *cobra.Command {
	var reason string
	cmd := c.Asking("remove NAME", "Remove a route; a channel without routes is sent what matters by default", "  lockstep notify route remove nightly",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RemoveNotificationRoute(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { routeTable(w, []client.NotificationRoute{one}) })
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) test() *cobra.Command {
	return c.Asking("test ROUTE", "Send a test message to the channel of a route; `lockstep notify list` shows its outcome",
		"  lockstep notify test production", command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.TestNotificationRoute(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { routeTable(w, []client.NotificationRoute{one}) })
		})
}

func (c commands) preview() *cobra.Command {
	var event, title, text string
	cmd := c.Asking("preview CHANNEL", "Show what a channel would say of an event, with made-up data; nothing is sent",
		"  lockstep notify preview team --event rollout_failed\n"+
			"  lockstep notify preview team --event rollout_failed --title '{[ .application ]} is broken' --text '{[ index .lines 0 ]}'",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			given := func(name string, value *string) *string {
				if cmd.Flags().Changed(name) {
					return value
				}
				return nil
			}
			p, err := api.PreviewNotification(cmd.Context(), args[0], strings.ToUpper(event), given("title", &title), given("text", &text))
			if err != nil {
				return err
			}
			return c.Print(p, func(w io.Writer) {
				for _, l := range append([]string{p.Title}, p.Lines...) {
					command.Row(w, l)
				}
				if p.Problem != "" {
					command.Row(w, "The default is shown, because a template cannot be filled in: "+p.Problem)
				}
			})
		})
	cmd.Flags().StringVar(&event, "event", "", "the `event`, such as approval_needed")
	_ = cmd.MarkFlagRequired("event")
	cmd.Flags().StringVar(&title, "title", "", "a `template` of the title, in place of the one that the channel has")
	cmd.Flags().StringVar(&text, "text", "", "a `template` of the text, in place of the one that the channel has")
	return cmd
}

func (c commands) list() *cobra.Command {
	var state, channel string
	var first int
	cmd := c.Asking("list", "List messages with their outcomes, the newest first; those that have failed are dead letters",
		"  lockstep notify list --state failed", command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.NotificationMessages(cmd.Context(), strings.ToUpper(state), channel, first)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { messageTable(w, all) })
		})
	cmd.Flags().StringVar(&state, "state", "", "only those in a `state`: pending, sending, sent, failed or digested")
	cmd.Flags().StringVar(&channel, "channel", "", "only those of the channel of that `name`")
	cmd.Flags().IntVar(&first, "first", 50, "how many at most, up to 100")
	return cmd
}

func (c commands) retry() *cobra.Command {
	return c.Asking("retry ID", "Send a dead letter again", "  lockstep notify retry 7", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			number, err := messageNumber(args[0])
			if err != nil {
				return err
			}
			one, err := api.RetryNotification(cmd.Context(), number)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { messageTable(w, []client.NotificationMessage{one}) })
		})
}

func messageNumber(text string) (int, error) {
	number, err := strconv.Atoi(strings.TrimPrefix(text, "notification_"))
	if err != nil || number < 1 {
		return 0, fault.New(fault.Invalid, "found %.100q; expected the ID of a message, such as 7", text)
	}
	return number, nil
}

func accountTable(w io.Writer, all []client.ChatAccount) {
	command.Row(w, "ID", "KIND", "WORKSPACE", "USER", "NAME", "MEMBER", "GOOD FOR", "LINKED")
	for _, a := range all {
		linked := ""
		if a.LinkedAt != nil {
			linked = command.Moment(*a.LinkedAt)
		}
		command.Row(w, command.Number(a.Number), journal.Human(a.Kind), a.Workspace, a.User, a.Name, a.Member,
			strings.ToLower(strings.Join(a.Permissions, ",")), linked)
	}
}

func (c commands) accounts() *cobra.Command {
	return c.Asking("list", "List the chat accounts that members have linked: your own, and all of them if you administer", "  lockstep notify account list",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ChatAccounts(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { accountTable(w, all) })
		})
}

func (c commands) removeAccount() *cobra.Command {
	var reason string
	cmd := c.Asking("remove ID", "Unlink a chat account: its user answers nothing until it is linked again", "  lockstep notify account remove 3 --reason 'lost phone'",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			number, err := strconv.Atoi(args[0])
			if err != nil || number < 1 {
				return fault.New(fault.Invalid, "found %.100q; expected the ID of a chat account, such as 3", args[0])
			}
			one, err := api.UnlinkChatAccount(cmd.Context(), number, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { accountTable(w, []client.ChatAccount{one}) })
		})
	reasoned(cmd, &reason)
	return cmd
}
