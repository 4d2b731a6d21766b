package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// organization is about all organizations of the installation, for those who operate it.
func (c *command) organization() *cobra.Command {
	list := c.asking("list", "List the organizations of the installation", "  lockstep organization list -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Organizations(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { organizationTable(w, all) })
		})
	var owner string
	create := c.asking("create NAME", "Create an organization with its first owner, whose token is shown only once",
		"  lockstep organization create books --owner alice@example.com\n"+
			"  LOCKSTEP_TOKEN=$(lockstep organization create books --owner alice -o json | jq -r .token) lockstep token create laptop", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if owner == "" {
				return fault.New(fault.Invalid, "missing owner; expected --owner NAME")
			}
			made, err := api.CreateOrganization(cmd.Context(), args[0], owner)
			if err != nil {
				return err
			}
			return c.print(made, func(w io.Writer) {
				row(w, "ID", "NAME", "OWNER", "TOKEN (FOR SEVEN DAYS)")
				row(w, made.ID, made.Name, owner, made.Token)
			})
		})
	create.Flags().StringVar(&owner, "owner", "",
		"`name` of its first member and owner, such as an email address if people sign in at an identity provider; required")
	rename := c.asking("rename NAME NEW-NAME", "Rename an organization", "  lockstep organization rename default shop", exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Organizations(cmd.Context())
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(o client.Organization) bool { return o.Name == args[0] || o.ID == args[0] })
			if at < 0 {
				return fault.New(fault.NotFound, "organization %q not found; see `lockstep organization list`", args[0])
			}
			one, err := api.RenameOrganization(cmd.Context(), all[at].ID, args[1])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { organizationTable(w, []client.Organization{one}) })
		})
	return noun("organization", "organizations",
		"Organizations of the installation, for its operators: the owners of the first one", list, create, rename)
}

func organizationTable(w io.Writer, all []client.Organization) {
	row(w, "ID", "NAME", "CREATED")
	for _, o := range all {
		row(w, o.ID, o.Name, moment(o.CreatedAt))
	}
}

// whoami is for whom the token in use stands.
func (c *command) whoami() *cobra.Command {
	cmd := c.asking("whoami", "Show the member, the organization and the permissions of the token in use",
		"  lockstep whoami\n  lockstep whoami -o json | jq -r .organization.name", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			v, err := api.Viewer(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(v, func(w io.Writer) {
				name := ""
				if v.Member != nil {
					name = v.Member.Name
				}
				row(w, "MEMBER", "ROLE", "ORGANIZATION", "PERMISSIONS")
				row(w, name, journal.Human(v.Role), v.Organization.Name, strings.ToLower(strings.Join(v.Permissions, " ")))
			})
		})
	cmd.GroupID = "objects"
	return cmd
}
