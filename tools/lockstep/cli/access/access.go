// Package access has the commands about who may do what: members, groups, tokens, organizations and agents.
package access

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		own.member(), own.group(), own.accessToken(), own.organization(), own.whoami(), own.agent(), own.access(), own.proposed(),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func permissions() []string {
	return []string{"read", "deploy", "approve", "configure", "administer", "break_glass", "freeze", "bypass", "report", "nudge"}
}

func roles() []string { return []string{"viewer", "approver", "deployer", "maintainer", "owner"} }

// accessToken manages access tokens.
func (c commands) accessToken() *cobra.Command {
	var in client.TokenInput
	var member string
	create := c.Asking("create NAME", "Create a token; it is shown only once",
		"  lockstep token create laptop\n"+
			"  lockstep token create ci --scope deploy --expires-after 30d\n"+
			"  lockstep token create scanner --scope report --check-key image-scan\n"+
			"  LOCKSTEP_TOKEN=$(lockstep token create ci --member ci-bot -o json | jq -r .token)", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			in.Name = args[0]
			if in.Lifetime%time.Second != 0 {
				return fault.New(fault.Invalid, "expires-after: found %s; expected whole seconds", in.Lifetime)
			}
			if member != "" {
				m, err := api.Member(cmd.Context(), member)
				if err != nil {
					return err
				}
				in.Member = m.ID
			}
			made, err := api.CreateToken(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "TOKEN", "ID", "EXPIRES")
				command.Row(w, made.Token, made.ID, command.Moment(made.ExpiresAt))
			})
		})
	command.WordsFlag(create, &in.Scopes, "scope", "the permissions to restrict it to; by default all that you have except break_glass and bypass",
		permissions())
	command.DurationFlag(create, &in.Lifetime, "expires-after", 90*command.Day, "how long it is valid, at most a year")
	create.Flags().StringSliceVar(&in.CheckKeys, "check-key", nil, "the `keys` of checks that it may report; by default all")
	create.Flags().StringVar(&member, "member", "", "create it for the member with this `name`; by default for you")

	list := c.Asking("list", "List your tokens, or those of a member",
		"  lockstep token list\n  lockstep token list --member ci-bot -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			m, err := api.Self(cmd.Context())
			if member != "" {
				m, err = api.Member(cmd.Context(), member)
			}
			if err != nil {
				return err
			}
			return c.Print(m.Tokens, func(w io.Writer) { tokenTable(w, c.Clock.Now(), m.Tokens) })
		})
	list.Flags().StringVar(&member, "member", "", "list those of the member with this `name`; by default your own")

	revoke := c.Asking("revoke ID", "Revoke a token at once, together with the browser sessions that were started with it",
		"  lockstep token revoke accesstoken_12", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RevokeToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { tokenTable(w, c.Clock.Now(), []client.AccessToken{one}) })
		})
	return command.Noun("token", "tokens", "Manage access tokens", create, list, revoke)
}

func tokenTable(w io.Writer, now time.Time, all []client.AccessToken) {
	command.Row(w, "ID", "NAME", "SCOPES", "STATE", "EXPIRES", "LAST USED")
	for _, t := range all {
		state := "good"
		switch {
		case t.RevokedAt != nil:
			state = "revoked"
		case t.ExpiresAt.Before(now):
			state = "expired"
		}
		command.Row(w, t.ID, t.Name, strings.ToLower(strings.Join(t.Scopes, " ")), state, command.Moment(t.ExpiresAt),
			command.Optional(t.LastUsedAt))
	}
}

// member is who belongs to the organization.
func (c commands) member() *cobra.Command {
	show := func(m client.Member) error {
		return c.Print(m, func(w io.Writer) { memberTable(w, []client.Member{m}) })
	}
	list := c.Asking("list", "List members", "  lockstep member list -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			everybody, err := api.Members(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(everybody, func(w io.Writer) { memberTable(w, everybody) })
		})
	var role string
	var machine bool
	add := c.Asking("add NAME", "Add a person or a machine",
		"  lockstep member add alice@example.com --role deployer\n  lockstep member add ci-bot --machine --role deployer", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			kind := "USER"
			if machine {
				kind = "AGENT"
			}
			m, err := api.CreateMember(cmd.Context(), args[0], kind, role)
			if err != nil {
				return err
			}
			return show(m)
		})
	command.WordFlag(add, &role, "role", "viewer", "what it may do", roles())
	add.Flags().BoolVar(&machine, "machine", false, "create a service account")
	promote := c.Asking("role NAME ROLE", "Change the role of a member", "  lockstep member role alice@example.com approver",
		command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			role, err := command.Chosen(roles(), args[1])
			if err != nil {
				return fault.New(fault.Invalid, "role: %w", err)
			}
			m, err := api.Member(cmd.Context(), args[0])
			if err == nil {
				m, err = api.SetMemberRole(cmd.Context(), m.ID, role)
			}
			if err != nil {
				return err
			}
			c.WarnRules(cmd.Context(), api, "", "")
			return show(m)
		})
	remove := c.Asking("remove NAME", "Remove a member; its tokens stop working", "  lockstep member remove alice@example.com",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			m, err := api.Member(cmd.Context(), args[0])
			if err == nil {
				m, err = api.RemoveMember(cmd.Context(), m.ID)
			}
			if err != nil {
				return err
			}
			c.WarnRules(cmd.Context(), api, "", "")
			return show(m)
		})
	return command.Noun("member", "members", "Members: who may do what", list, add, promote, remove, c.memberGrant(),
		c.grants(), c.revoke())
}

func memberTable(w io.Writer, everybody []client.Member) {
	command.Row(w, "NAME", "ROLE", "KIND", "GROUPS", "SINCE", "REMOVED")
	for _, m := range everybody {
		kind := "person"
		if m.Kind == "AGENT" {
			kind = "machine"
		}
		command.Row(w, m.Name, journal.Human(m.Role), kind, names(m.Groups), command.Moment(m.CreatedAt), command.Optional(m.RemovedAt))
	}
}

func names(all []client.Reference) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = one.Name
	}
	return strings.Join(words, " ")
}

// group is a set of members, for gates that not everybody may answer.
func (c commands) group() *cobra.Command {
	list := c.Asking("list", "List groups", "  lockstep group list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			groups, err := api.Groups(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(groups, func(w io.Writer) { groupTable(w, groups) })
		})
	var empty bool
	set := c.Asking("set NAME [MEMBER...]", "Set the members of a group, which is created if it does not exist",
		"  lockstep group set release-managers alice@example.com bob@example.com\n  lockstep group set release-managers --empty",
		command.Between(1, 1000),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			switch members := args[1:]; {
			case len(members) == 0 && !empty:
				// A gate that requires this group could then be approved by nobody.
				return fault.New(fault.Invalid, "missing members; expected those who belong to the group, or --empty for nobody")
			case len(members) > 0 && empty:
				return fault.New(fault.Invalid, "empty: found it with %d members; expected one or the other", len(members))
			}
			ids := []string{}
			for _, name := range args[1:] {
				m, err := api.Member(cmd.Context(), name)
				if err != nil {
					return err
				}
				ids = append(ids, m.ID)
			}
			groups, err := api.Groups(cmd.Context())
			if err != nil {
				return err
			}
			for _, g := range groups {
				if g.Name == args[0] {
					if g, err = api.SetGroupMembers(cmd.Context(), g.ID, ids); err != nil {
						return err
					}
					c.WarnRules(cmd.Context(), api, "", "")
					return c.Print(g, func(w io.Writer) { groupTable(w, []client.Group{g}) })
				}
			}
			g, err := api.CreateGroup(cmd.Context(), args[0], ids)
			if err != nil {
				return err
			}
			return c.Print(g, func(w io.Writer) { groupTable(w, []client.Group{g}) })
		})
	set.Flags().BoolVar(&empty, "empty", false, "leave the group without members; nobody can then approve the gates that require it")
	return command.Noun("group", "groups", "Groups: sets of members, for gates that only they may approve, and for grants", list, set, c.groupGrant())
}

func groupTable(w io.Writer, groups []client.Group) {
	command.Row(w, "NAME", "MEMBERS")
	for _, g := range groups {
		command.Row(w, g.Name, names(g.Members))
	}
}
