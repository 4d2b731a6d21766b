package forge

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c commands) account() *cobra.Command {
	cmd := command.Noun("account", "accounts", "Accounts at forges, whose users answer by commands in comments on pull requests",
		c.linkAccount(), c.listAccounts(), c.unlinkAccount())
	cmd.GroupID = "" // only the root has groups
	return cmd
}

func accountTable(w io.Writer, all []client.ForgeAccount) {
	command.Row(w, "ID", "PLACE", "ACCOUNT", "MEMBER", "GOOD FOR", "LINKED")
	for _, a := range all {
		command.Row(w, command.Number(a.Number), a.Place, a.Name+" ("+a.User+")", a.Member, strings.ToLower(strings.Join(a.Permissions, ", ")), command.Moment(a.LinkedAt))
	}
}

func (c commands) linkAccount() *cobra.Command {
	return c.Asking("link HOOK ACCOUNT", "Get a code that links your account at a forge, once the account writes it into a comment",
		"  lockstep forge account link 7 ann", command.Exactly(2), func(cmd *cobra.Command, api *client.Client, args []string) error {
			hook, err := strconv.Atoi(args[0])
			if err != nil || hook < 1 {
				return fault.New(fault.Invalid, "found %.100q; expected the ID of a hook, such as 7", args[0])
			}
			made, err := api.MakeForgeCode(cmd.Context(), hook, args[1])
			if err != nil {
				return err
			}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "ACCOUNT", "COMMENT TO WRITE ON A PULL REQUEST", "UNTIL")
				command.Row(w, made.Account, made.Comment, command.Moment(made.ExpiresAt))
			})
		})
}

func (c commands) listAccounts() *cobra.Command {
	return c.Asking("list", "List the accounts that members have linked: your own, and all of them if you administer", "  lockstep forge account list",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeAccounts(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { accountTable(w, all) })
		})
}

func (c commands) unlinkAccount() *cobra.Command {
	var reason string
	cmd := c.Asking("unlink ID", "Unlink an account: its user answers nothing until it is linked again", "  lockstep forge account unlink 3 --reason 'lost phone'",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			number, err := strconv.Atoi(args[0])
			if err != nil || number < 1 {
				return fault.New(fault.Invalid, "found %.100q; expected the ID of an account, such as 3", args[0])
			}
			one, err := api.UnlinkForgeAccount(cmd.Context(), number, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { accountTable(w, []client.ForgeAccount{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}
