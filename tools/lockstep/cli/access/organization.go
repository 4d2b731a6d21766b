package access

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// organization is about all organizations of the installation, for those who operate it.
func (c commands) organization() *cobra.Command {
	list := c.Asking("list", "List the organizations of the installation", "  lockstep organization list -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Organizations(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { organizationTable(w, all) })
		})
	var owner string
	create := c.Asking("create NAME", "Create an organization with its first owner, whose token is shown only once",
		"  lockstep organization create books --owner alice@example.com\n"+
			"  LOCKSTEP_TOKEN=$(lockstep organization create books --owner alice -o json | jq -r .token) lockstep token create laptop",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if owner == "" {
				return fault.New(fault.Invalid, "missing owner; expected --owner NAME")
			}
			made, err := api.CreateOrganization(cmd.Context(), args[0], owner)
			if err != nil {
				return err
			}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "ID", "NAME", "OWNER", "TOKEN (FOR SEVEN DAYS)")
				command.Row(w, made.ID, made.Name, owner, made.Token)
			})
		})
	create.Flags().StringVar(&owner, "owner", "",
		"`name` of its first member and owner, such as an email address if people sign in at an identity provider; required")
	rename := c.Asking("rename NAME NEW-NAME", "Rename an organization", "  lockstep organization rename default shop", command.Exactly(2),
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
			return c.Print(one, func(w io.Writer) { organizationTable(w, []client.Organization{one}) })
		})
	return command.Noun("organization", "organizations",
		"Organizations of the installation, for its operators: the owners of the first one", list, create, rename, c.exportOrganization())
}

// exportOrganization writes what is stored of the organization of the token to a file, which is removed where it is not whole.
func (c commands) exportOrganization() *cobra.Command {
	return c.Asking("export FILE", "Write everything that is stored of your organization, without secrets, to a file of JSON lines; for its owners",
		"  lockstep organization export shop.jsonl", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) (err error) {
			file, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fault.New(fault.Invalid, "file: %w", err)
			}
			defer func() {
				if err = errors.Join(err, file.Close()); err != nil {
					_ = os.Remove(args[0])
				}
			}()
			rows, err := api.ExportOrganization(cmd.Context(), file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.Out, "%s has %d rows, and is whole.\n", args[0], rows)
			return err
		})
}

func organizationTable(w io.Writer, all []client.Organization) {
	command.Row(w, "ID", "NAME", "CREATED")
	for _, o := range all {
		command.Row(w, o.ID, o.Name, command.Moment(o.CreatedAt))
	}
}

// whoami is for whom the token in use stands.
func (c commands) whoami() *cobra.Command {
	cmd := c.Asking("whoami", "Show the member, the organization and the permissions of the token in use",
		"  lockstep whoami\n  lockstep whoami -o json | jq -r .organization.name", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			v, err := api.Viewer(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(v, func(w io.Writer) {
				name := ""
				if v.Member != nil {
					name = v.Member.Name
				}
				command.Row(w, "MEMBER", "ROLE", "ORGANIZATION", "PERMISSIONS")
				command.Row(w, name, journal.Human(v.Role), v.Organization.Name, strings.ToLower(strings.Join(v.Permissions, " ")))
			})
		})
	cmd.GroupID = "objects"
	return cmd
}
