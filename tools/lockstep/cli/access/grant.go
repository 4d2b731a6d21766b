package access

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func grantable() []string {
	return []string{"deploy", "approve", "configure", "break_glass", "freeze", "bypass", "report", "nudge"}
}

// holder finds who gets a grant, by name.
type holder func(cmd *cobra.Command, api *client.Client, name string, in *client.GrantInput) error

func toMember(cmd *cobra.Command, api *client.Client, name string, in *client.GrantInput) error {
	m, err := api.Member(cmd.Context(), name)
	in.Member = m.ID
	return err
}

func toGroup(cmd *cobra.Command, api *client.Client, name string, in *client.GrantInput) error {
	groups, err := api.Groups(cmd.Context())
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Name == name || g.ID == name {
			in.Group = g.ID
			return nil
		}
	}
	return fault.New(fault.NotFound, "group %q not found", name)
}

// grant gives permissions beside a role.
func (c commands) grant(short, example string, find holder) *cobra.Command {
	var in client.GrantInput
	cmd := c.Asking("grant NAME PERMISSION...", short, example, command.Between(2, 1+len(grantable())),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			for _, given := range args[1:] {
				word, err := command.Chosen(grantable(), given)
				if err != nil {
					return fault.New(fault.Invalid, "permission: %w", err)
				}
				in.Permissions = append(in.Permissions, word)
			}
			if err := find(cmd, api, args[0], &in); err != nil {
				return err
			}
			g, err := api.GrantPermissions(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.Print(g, func(w io.Writer) { grantTable(w, []client.Grant{g}) })
		})
	cmd.Flags().StringSliceVar(&in.Applications, "application", nil, "only for the applications with these `names`; by default for all")
	cmd.Flags().StringSliceVar(&in.Environments, "environment", nil, "only in the environments with these `names`; by default in all")
	command.WordsFlag(cmd, &in.Tiers, "tier", "only in environments of these tiers; by default in all",
		[]string{"development", "qa", "staging", "production"})
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the record")
	return cmd
}

func (c commands) memberGrant() *cobra.Command {
	return c.grant("Give a member permissions beside the role: everywhere, or limited to applications, environments and tiers",
		"  lockstep member grant alice@example.com deploy --application shop --tier staging\n"+
			"  lockstep member grant alice@example.com approve configure --environment production --reason \"release manager\"", toMember)
}

func (c commands) groupGrant() *cobra.Command {
	return c.grant("Give the members of a group permissions beside their roles: everywhere, or limited to applications, environments and tiers",
		"  lockstep group grant payments deploy approve --application payments\n"+
			"  lockstep group grant on-call break_glass --tier production", toGroup)
}

// revoke ends a grant of a member or of a group.
func (c commands) revoke() *cobra.Command {
	var reason string
	cmd := c.Asking("revoke GRANT", "End a grant of a member or of a group; all tokens follow at once",
		"  lockstep member revoke grant_3 --reason \"off call\"", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			g, err := api.RevokeGrant(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			c.WarnRules(cmd.Context(), api, "", "")
			return c.Print(g, func(w io.Writer) { grantTable(w, []client.Grant{g}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// grants are those of one member.
func (c commands) grants() *cobra.Command {
	return c.Asking("grants NAME", "List what a member may do beside the role: grants of its own, and of its groups",
		"  lockstep member grants alice@example.com", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			m, err := api.Member(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all := append([]client.Grant{}, m.Grants...)
			return c.Print(all, func(w io.Writer) { grantTable(w, all) })
		})
}

func grantTable(w io.Writer, all []client.Grant) {
	command.Row(w, "ID", "OF", "PERMISSIONS", "APPLICATIONS", "ENVIRONMENTS", "TIERS", "SINCE", "REVOKED")
	for _, g := range all {
		of := ""
		if g.Member != nil {
			of = g.Member.Name
		}
		if g.Group != nil {
			of = "group " + g.Group.Name
		}
		command.Row(w, g.ID, of, strings.ToLower(strings.Join(g.Permissions, " ")), limit(names(g.Applications)), limit(names(g.Environments)),
			limit(strings.ToLower(strings.Join(g.Tiers, " "))), command.Moment(g.CreatedAt), command.Optional(g.RevokedAt))
	}
}

// limit is a limit for people.
func limit(named string) string {
	if named == "" {
		return "all"
	}
	return named
}
