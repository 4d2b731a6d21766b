package application

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// service is the noun of services.
func (c commands) service() *cobra.Command {
	return command.Noun("service", "", "Services of applications that exist", c.serviceAdd(), c.serviceSet(), c.serviceRename(),
		c.serviceRetire(), c.serviceRestore())
}

func (c commands) serviceAdd() *cobra.Command {
	var kind, description, reason string
	var set command.Fields
	cmd := c.Asking("add APPLICATION NAME", "Add a service to an application; version sets go without it until it has a version",
		"  lockstep service add shop worker --set image=r.example.com/worker --set selection=semver --set poll=true --reason 'split off'", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := set.JSON()
			if err != nil {
				return err
			}
			one, err := api.AddService(cmd.Context(), args[0], args[1], description, []client.SourceInput{{Ref: kind, Config: config}}, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { serviceTable(w, args[0], []client.Service{one}) })
		})
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "oci-image@1", "the `kind` of its artifact source; `lockstep source kinds` lists them")
	flags.StringArrayVar((*[]string)(&set), "set", nil, "a field of the source's configuration, as `field=value`; repeatable")
	flags.StringVar(&description, "description", "", "what the service is")
	flags.StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c commands) serviceRetire() *cobra.Command {
	return c.serving("retire", "Retire a service: no new version set has it, and no new rollout deploys it; what runs is left as it is",
		(*client.Client).RetireService)
}

func (c commands) serviceRestore() *cobra.Command {
	return c.serving("restore", "Bring back a retired service", (*client.Client).RestoreService)
}

// serving is a command that changes whether a service is in service.
func (c commands) serving(
	verb, short string, change func(api *client.Client, ctx context.Context, service, reason string) (client.Service, error),
) *cobra.Command {
	example := "  lockstep service " + verb + " shop worker --reason 'merged into api'"
	return c.ofService(verb+" APPLICATION SERVICE", short, example, command.Exactly(2),
		func(ctx context.Context, api *client.Client, service string, _ []string, reason string) (client.Service, error) {
			return change(api, ctx, service, reason)
		})
}

// serviceRename gives a service another display name.
func (c commands) serviceRename() *cobra.Command {
	return c.ofService("rename APPLICATION SERVICE NEW-NAME",
		"Show a service by another name; everything goes by the one that it was made with, which shows it again",
		"  lockstep service rename shop worker jobs --reason 'as the team calls it'", command.Exactly(3),
		func(ctx context.Context, api *client.Client, service string, args []string, reason string) (client.Service, error) {
			return api.RenameService(ctx, service, args[2], reason)
		})
}

// ofService is a command that changes the service of an application, for a reason.
func (c commands) ofService(
	use, short, example string, number cobra.PositionalArgs,
	change func(ctx context.Context, api *client.Client, service string, args []string, reason string) (client.Service, error),
) *cobra.Command {
	var reason string
	cmd := c.Asking(use, short, example, number,
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			a, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, s := range a.Services {
				if !s.Called(args[1]) {
					continue
				}
				one, err := change(cmd.Context(), api, s.ID, args, reason)
				if err != nil {
					return err
				}
				return c.Print(one, func(w io.Writer) { serviceTable(w, args[0], []client.Service{one}) })
			}
			return fault.New(fault.NotFound, "service %q of application %q not found", args[1], args[0])
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func serviceTable(w io.Writer, application string, all []client.Service) {
	command.Row(w, "ID", "APPLICATION", "NAME", "SOURCES", "RETIRED")
	for _, s := range all {
		var sources []string
		for _, src := range s.ArtifactSources {
			sources = append(sources, src.ID)
		}
		command.Row(w, s.ID, application, s.Shown(), strings.Join(sources, ","), command.Optional(s.RetiredAt))
	}
}
