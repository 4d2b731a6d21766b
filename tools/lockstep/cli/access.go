package cli

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func permissions() []string {
	return []string{"read", "deploy", "approve", "configure", "administer", "break_glass"}
}

func roles() []string { return []string{"viewer", "approver", "deployer", "maintainer", "owner"} }

// accessToken manages access tokens.
func (c *command) accessToken() *cobra.Command {
	var in client.TokenInput
	var member string
	create := c.asking("create NAME", "Create a token; it is shown only once",
		"  lockstep token create laptop\n"+
			"  lockstep token create ci --scope deploy --expires-after 30d\n"+
			"  LOCKSTEP_TOKEN=$(lockstep token create ci --member ci-bot -o json | jq -r .token)", exactly(1),
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
			return c.print(made, func(w io.Writer) {
				row(w, "TOKEN", "ID", "EXPIRES")
				row(w, made.Token, made.ID, moment(made.ExpiresAt))
			})
		})
	wordsFlag(create, &in.Scopes, "scope", "the permissions to restrict it to; by default all that you have except break_glass", permissions())
	durationFlag(create, &in.Lifetime, "expires-after", 90*day, "how long it is valid, at most a year")
	create.Flags().StringVar(&member, "member", "", "create it for the member with this `name`; by default for you")

	list := c.asking("list", "List your tokens, or those of a member",
		"  lockstep token list\n  lockstep token list --member ci-bot -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			m, err := api.Self(cmd.Context())
			if member != "" {
				m, err = api.Member(cmd.Context(), member)
			}
			if err != nil {
				return err
			}
			return c.print(m.Tokens, func(w io.Writer) { tokenTable(w, c.clock.Now(), m.Tokens) })
		})
	list.Flags().StringVar(&member, "member", "", "list those of the member with this `name`; by default your own")

	revoke := c.asking("revoke ID", "Revoke a token at once, together with the browser sessions that were started with it",
		"  lockstep token revoke accesstoken_12", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RevokeToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { tokenTable(w, c.clock.Now(), []client.AccessToken{one}) })
		})
	return noun("token", "tokens", "Manage access tokens", create, list, revoke)
}

func tokenTable(w io.Writer, now time.Time, all []client.AccessToken) {
	row(w, "ID", "NAME", "SCOPES", "STATE", "EXPIRES", "LAST USED")
	for _, t := range all {
		state := "good"
		switch {
		case t.RevokedAt != nil:
			state = "revoked"
		case t.ExpiresAt.Before(now):
			state = "expired"
		}
		row(w, t.ID, t.Name, strings.ToLower(strings.Join(t.Scopes, " ")), state, moment(t.ExpiresAt), optional(t.LastUsedAt))
	}
}

// member is who belongs to the organization.
func (c *command) member() *cobra.Command {
	show := func(m client.Member) error {
		return c.print(m, func(w io.Writer) { memberTable(w, []client.Member{m}) })
	}
	list := c.asking("list", "List members", "  lockstep member list -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			everybody, err := api.Members(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(everybody, func(w io.Writer) { memberTable(w, everybody) })
		})
	var role string
	var machine bool
	add := c.asking("add NAME", "Add a person or a machine",
		"  lockstep member add alice@example.com --role deployer\n  lockstep member add ci-bot --machine --role deployer", exactly(1),
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
	wordFlag(add, &role, "role", "viewer", "what it may do", roles())
	add.Flags().BoolVar(&machine, "machine", false, "create a service account")
	promote := c.asking("role NAME ROLE", "Change the role of a member", "  lockstep member role alice@example.com approver", exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			role, err := chosen(roles(), args[1])
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
			return show(m)
		})
	remove := c.asking("remove NAME", "Remove a member; its tokens stop working", "  lockstep member remove alice@example.com", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			m, err := api.Member(cmd.Context(), args[0])
			if err == nil {
				m, err = api.RemoveMember(cmd.Context(), m.ID)
			}
			if err != nil {
				return err
			}
			return show(m)
		})
	return noun("member", "members", "Members: who may do what", list, add, promote, remove)
}

func memberTable(w io.Writer, everybody []client.Member) {
	row(w, "NAME", "ROLE", "KIND", "GROUPS", "SINCE", "REMOVED")
	for _, m := range everybody {
		kind := "person"
		if m.Kind == "AGENT" {
			kind = "machine"
		}
		row(w, m.Name, journal.Human(m.Role), kind, names(m.Groups), moment(m.CreatedAt), optional(m.RemovedAt))
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
func (c *command) group() *cobra.Command {
	list := c.asking("list", "List groups", "  lockstep group list", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			groups, err := api.Groups(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(groups, func(w io.Writer) { groupTable(w, groups) })
		})
	var empty bool
	set := c.asking("set NAME [MEMBER...]", "Set the members of a group, which is created if it does not exist",
		"  lockstep group set release-managers alice@example.com bob@example.com\n  lockstep group set release-managers --empty", between(1, 1000),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			switch members := args[1:]; {
			case len(members) == 0 && !empty:
				// Rollouts go on with whatever the group is, so a gate that is for it would have nobody to answer it.
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
					return c.print(g, func(w io.Writer) { groupTable(w, []client.Group{g}) })
				}
			}
			g, err := api.CreateGroup(cmd.Context(), args[0], ids)
			if err != nil {
				return err
			}
			return c.print(g, func(w io.Writer) { groupTable(w, []client.Group{g}) })
		})
	set.Flags().BoolVar(&empty, "empty", false, "leave the group without members; nobody can then approve the gates that require it")
	return noun("group", "groups", "Groups: sets of members, for gates that only they may approve", list, set)
}

func groupTable(w io.Writer, groups []client.Group) {
	row(w, "NAME", "MEMBERS")
	for _, g := range groups {
		row(w, g.Name, names(g.Members))
	}
}

// journal is what happened in the whole organization.
func (c *command) journal() *cobra.Command {
	var after string
	var limit int
	list := c.asking("list", "Print the journal of the organization, oldest first",
		"  lockstep journal list --limit 50\n  lockstep journal list --after MTIz -o json | jq -r '.[-1].cursor'", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			entries, err := api.Journal(cmd.Context(), after, limit)
			if err != nil {
				return err
			}
			return c.print(entries, func(w io.Writer) {
				row(w, "WHEN", "ROLLOUT", "APPLICATION", "SUBJECT", "WHAT", "GATE", "WHO", "REASON")
				for _, e := range entries {
					t := e.Transition
					row(w, moment(t.CreatedAt), e.Rollout.ID, e.Rollout.Application.Name, t.What(), t.Event, t.GateID, t.Who(), t.Reason)
				}
			})
		})
	list.Flags().StringVar(&after, "after", "", "start after this `cursor`")
	limitFlag(list, &limit, 0)
	return noun("journal", "log", "The journal: who did what, and why", list)
}
