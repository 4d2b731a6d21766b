package application

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) environmentCreate() *cobra.Command {
	in := client.EnvironmentInput{}
	var members string
	var config command.Fields
	var wait command.WaitFlags
	cmd := c.Asking("create NAME", "Create an environment and start its onboarding",
		"  lockstep environment create production --tier production --set cluster_agent_id=production-eu --wait\n"+
			"  lockstep environment create stores --driver kubernetes@1 --set cluster_agent_id=store-1 --fleet fleet.yaml\n"+
			"  lockstep environment create production --tier production --set cluster_agent_id=42", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			driver, err := config.WithAgent(cmd.Context(), api)
			if err != nil {
				return err
			}
			in.Name, in.DriverConfig = args[0], driver
			if in.Fleet, err = c.fleet(members); err != nil {
				return err
			}
			one, err := api.CreateEnvironment(cmd.Context(), in)
			if err == nil && wait.Wait {
				one, err = c.untilReady(cmd.Context(), api, one.Name, wait.Timeout)
			}
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { environmentTable(w, []client.Environment{one}) })
		})
	flags := cmd.Flags()
	command.WordFlag(cmd, &in.Tier, "tier", "development", "what is at stake there", tiers())
	flags.StringVar(&in.DriverRef, "driver", "argo-rollouts@1", "the `driver` to deploy with")
	flags.StringVar(&in.Description, "description", "", "description")
	flags.StringArrayVar((*[]string)(&config), "set", nil,
		"a field of the driver's configuration, as `field=value`; repeatable. cluster_agent_id takes the name or number of an agent")
	flags.StringVar(&members, "fleet", "", "a YAML `file` with the fleet, of an environment of many clusters: selector, waves, success")
	wait.Add(cmd, "its onboarding has ended")
	return cmd
}

// fleet reads a fleet from a file; nil without one, and an object without members for "none".
func (c commands) fleet(file string) (any, error) {
	switch file {
	case "":
		return nil, nil //nolint:nilnil // nothing was given
	case "none":
		return map[string]any{}, nil
	}
	encoded, err := readYAML(os.Stdin, file)
	return encoded, err
}

// environmentRetry onboards an environment again, or sets an application up in it again.
func (c commands) environmentRetry() *cobra.Command {
	var application string
	var wait command.WaitFlags
	cmd := c.Asking("retry NAME", "Repeat the onboarding of an environment, or the setup of an application in it",
		"  lockstep environment retry production\n  lockstep environment retry production --application shop", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if application == "" {
				one, err := api.Environment(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if one, err = api.RetryOnboarding(cmd.Context(), one.ID); err != nil {
					return err
				}
				if wait.Wait {
					if one, err = c.untilReady(cmd.Context(), api, one.Name, wait.Timeout); err != nil {
						return err
					}
				}
				return c.Print(one, func(w io.Writer) { environmentTable(w, []client.Environment{one}) })
			}
			a, err := api.Application(cmd.Context(), application)
			if err != nil {
				return err
			}
			for _, ae := range a.Environments {
				if !ae.Environment.Called(args[0]) {
					continue
				}
				one, err := api.RetrySetup(cmd.Context(), ae.ID)
				if err == nil && wait.Wait {
					one, err = c.untilSetUpAgain(cmd.Context(), api, a.Name, args[0], wait.Timeout)
				}
				if err != nil {
					return err
				}
				return c.Print(one, func(w io.Writer) {
					command.Row(w, "APPLICATION", "ENVIRONMENT", "READINESS", "REASON")
					command.Row(w, a.Name, one.Environment.Shown(), journal.Human(one.Readiness), one.ReadinessReason)
				})
			}
			return fault.New(fault.NotFound, "environment: the pipeline of %q does not deploy to %q", application, args[0])
		})
	cmd.Flags().StringVar(&application, "application", "", "repeat the setup of the application with this `name`")
	wait.Add(cmd, "the onboarding has ended; with --application, the setup")
	return cmd
}

func (c commands) environment() *cobra.Command {
	list := c.Asking("list", "List environments", "  lockstep environment list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Environments(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { environmentTable(w, all) })
		})
	get := c.Asking("get NAME", "Show one environment", "  lockstep environment get production -o yaml", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { environmentDetail(w, one) })
		})
	return command.Noun("environment", "env", "Environments: places to deploy to", list, get, c.environmentDrift(), c.environmentCreate(), c.environmentSet(), c.environmentApproval(), c.environmentChecks(), c.directChanges(), c.changeControl(),
		c.environmentPin("pin", "Keep policies, schedules and machines from changing what runs in an environment; people may",
			"  lockstep environment pin production --reason 'migration by hand'", (*client.Client).PinEnvironment),
		c.environmentPin("unpin", "Let automation change what runs in an environment again", "  lockstep environment unpin production",
			(*client.Client).UnpinEnvironment),
		c.environmentRetry(), c.environmentRename(), c.environmentArchive(), c.environmentRestore())
}

// environmentDrift lists what differs in an environment.
func (c commands) environmentDrift() *cobra.Command {
	return c.Asking("drift NAME", "List what differs in an environment from what was deployed, object by object",
		"  lockstep environment drift production\n  lockstep environment drift production -o json", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Drifts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { command.DriftTable(w, all) })
		})
}

func environmentTable(w io.Writer, all []client.Environment) {
	command.Row(w, "NAME", "TIER", "READINESS", "DRIVER", "CREATED")
	for _, e := range all {
		driver := ""
		if len(e.DriverBindings) > 0 {
			driver = e.DriverBindings[0].DriverRef
		}
		command.Row(w, e.Shown(), journal.Human(e.Tier), journal.Human(e.Readiness), driver, command.Moment(e.CreatedAt))
	}
}

func environmentDetail(w io.Writer, e client.Environment) {
	environmentTable(w, []client.Environment{e})
	detailRows(w, e.Labels, e.Owner, e.Links)
	if e.ReadinessReason != "" {
		fmt.Fprintln(w)
		command.Row(w, "not ready: "+e.ReadinessReason)
	}
	fmt.Fprintln(w)
	command.Row(w, "BINDING", "VERSION", "DRIVER", "CONFIGURATION")
	for _, b := range e.DriverBindings {
		command.Row(w, b.ID, command.Number(b.Version), b.DriverRef, command.Compact(b.DriverConfig))
	}
	if len(e.DriverBindings) > 0 && e.DriverBindings[0].Fleet != nil {
		fmt.Fprintln(w)
		command.Row(w, "FLEET")
		command.Row(w, command.Compact(e.DriverBindings[0].Fleet))
	}
}
