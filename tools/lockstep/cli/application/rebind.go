package application

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// environmentSet changes an environment: its description, and its driver or configuration by a new driver binding.
func (c commands) environmentSet() *cobra.Command {
	var driver string
	var details detailFlags
	var config command.Fields
	var unset []string
	var members string
	var wait command.WaitFlags
	cmd := c.Asking("set NAME", "Change an environment's driver, configuration or agent by a new binding, or its description, labels, owner and links",
		"  lockstep environment set production --set cluster_agent_id=production-us --wait\n"+
			"  lockstep environment set production --driver kubernetes@1 --set cluster_agent_id=production-eu\n"+
			"  lockstep environment set production --unset projects --description 'EU customers'\n"+
			"  lockstep environment set production --label region=eu --owner platform", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := details.change(cmd, one.ID)
			if err != nil {
				return err
			}
			in := client.EnvironmentChange{Environment: one.ID, Description: d.Description, Reason: d.Reason}
			d.Description = nil
			if in.Fleet, err = c.fleet(members); err != nil {
				return err
			}
			if driver != "" || len(config)+len(unset) > 0 {
				given, err := config.WithAgent(cmd.Context(), api)
				if err != nil {
					return err
				}
				if err := rebind(&in, one, driver, given, unset); err != nil {
					return err
				}
			}
			if d.Labels() || d.Others() {
				one, err = client.SetDetails[client.Environment](cmd.Context(), api, d)
			}
			if err == nil && (!d.Labels() && !d.Others() || in.Description != nil || in.DriverRef != nil || in.Fleet != nil) {
				one, err = api.UpdateEnvironment(cmd.Context(), in)
			}
			if err == nil && wait.Wait {
				one, err = c.untilReady(cmd.Context(), api, one.Name, wait.Timeout)
			}
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { environmentDetail(w, one) })
		})
	flags := cmd.Flags()
	flags.StringVar(&driver, "driver", "", "another `driver`, which begins with the fields of --set only; another major version keeps the fields")
	flags.StringArrayVar((*[]string)(&config), "set", nil,
		"a field of the driver's configuration, as `field=value`; repeatable. The others stay. cluster_agent_id takes the name or number of an agent")
	flags.StringArrayVar(&unset, "unset", nil, "a `field` of the driver's configuration to leave out; repeatable")
	flags.StringVar(&members, "fleet", "", "a YAML `file` with the whole fleet; none makes it an environment of one cluster")
	details.add(cmd)
	wait.Add(cmd, "its onboarding has ended")
	return cmd
}

// rebind puts the next driver and configuration of an environment into a change: the fields in force, without some, and with those given.
func rebind(in *client.EnvironmentChange, one client.Environment, driver string, given json.RawMessage, unset []string) error {
	if len(one.DriverBindings) == 0 {
		return fault.New(fault.Refused, "environment %q has no driver binding", one.Name)
	}
	now := one.DriverBindings[0]
	if driver == "" {
		driver = now.DriverRef
	}
	fields := map[string]any{}
	if name(driver) == name(now.DriverRef) {
		known, _ := now.DriverConfig.(map[string]any)
		maps.Copy(fields, known)
	}
	for _, field := range unset {
		if _, has := fields[field]; !has {
			return fault.New(fault.Invalid, "unset: found %q, which the configuration does not have: %s", field, command.Compact(fields))
		}
		delete(fields, field)
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(given, &own); err != nil {
		return fmt.Errorf("read the fields: %w", err)
	}
	for field, value := range own {
		fields[field] = value
	}
	in.DriverRef, in.DriverConfig, in.BindingVersion = &driver, fields, now.Version
	return nil
}

// name is that of a driver, without its major version.
func name(ref string) string {
	for i := range ref {
		if ref[i] == '@' {
			return ref[:i]
		}
	}
	return ref
}
