package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// noun is a command with subcommands about one kind of object.
func noun(name, alias, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, GroupID: "objects",
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if alias != "" {
		cmd.Aliases = []string{alias}
	}
	if plural := name + "s"; alias != plural && slices.Contains(counted(), name) {
		cmd.Aliases = append(cmd.Aliases, plural)
	}
	for _, sub := range subcommands {
		switch sub.Name() {
		case "list":
			sub.Aliases = append(sub.Aliases, "ls")
		case "remove":
			sub.Aliases = append(sub.Aliases, "rm")
		}
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// counted are the nouns that have a plural, which is an alias.
func counted() []string {
	return []string{
		"application", "source", "pipeline", "version-set", "environment", "driver", "rollout", "workflow", "flow", "member", "group", "token", "organization", "agent",
	}
}

// subcommand refuses an unknown subcommand of a command that only groups others, and suggests the closest one.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && (text.Distance(args[0], sub.Name()) <= max(1, len(args[0])/3) || strings.HasPrefix(sub.Name(), args[0])) {
			names = append(names, strconv.Quote(sub.Name()))
		}
	}
	meant := ""
	if len(names) > 0 {
		meant = "; did you mean " + strings.Join(text.Nearest(strconv.Quote(args[0]), names), " or ") + "?"
	}
	return fault.New(fault.Invalid, "unknown command %q%s; run '%s --help'", args[0], meant, cmd.CommandPath())
}

// asking is a subcommand that asks the API.
func (c *command) asking(use, short, example string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, api *client.Client, args []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: args, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.checkNamed(cmd); err != nil {
				return err
			}
			api, err := c.api()
			if err != nil {
				return err
			}
			return run(cmd, api, args)
		},
	}
}

func (c *command) application() *cobra.Command {
	list := c.asking("list", "List applications", "  lockstep application list -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Applications(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { applicationTable(w, all) })
		})
	get := c.asking("get NAME", "Show one application", "  lockstep application get shop", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { applicationDetail(w, one) })
		})
	return noun("application", "app", "Applications: services that ship together", list, get, c.applicationCreate(), c.rollbackPolicy(), c.rolloutPolicy(), c.applicationMetrics(), c.applicationArchive(), c.applicationRestore())
}

func applicationTable(w io.Writer, all []client.Application) {
	row(w, "NAME", "SERVICES", "ACTIVE ROLLOUT", "CREATED")
	for _, a := range all {
		names := make([]string, len(a.Services))
		for i, s := range a.Services {
			names[i] = s.Name
		}
		active := ""
		if a.Active != nil {
			active = a.Active.ID
		}
		row(w, a.Name, strings.Join(names, ","), active, moment(a.CreatedAt))
	}
}

func applicationDetail(w io.Writer, a client.Application) {
	applicationTable(w, []client.Application{a})
	fmt.Fprintln(w)
	row(w, "SERVICE", "SOURCE", "CONFIGURATION")
	for _, s := range a.Services {
		for _, source := range s.ArtifactSources {
			row(w, s.Name, source.SourceRef, compact(source.SourceConfig))
		}
	}
	if len(a.Environments) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "ENVIRONMENT", "READINESS", "REASON")
	for _, e := range a.Environments {
		row(w, e.Environment.Name, journal.Human(e.Readiness), e.ReadinessReason)
	}
}

func (c *command) versionSet() *cobra.Command {
	var limit int
	list := c.asking("list APPLICATION", "List the version sets of an application, newest first",
		"  lockstep version-set list shop --limit 5", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.VersionSets(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { versionSetTable(w, all) })
		})
	limitFlag(list, &limit, 20)
	get := c.asking("get ID", "Show one version set", "  lockstep version-set get versionset_3", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.VersionSet(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { versionSetDetail(w, one) })
		})
	return noun("version-set", "vs", "Version sets: one pinned version of every service", list, get, c.versionSetWait())
}

func versionSetTable(w io.Writer, all []client.VersionSet) {
	row(w, "ID", "NAME", "VERSIONS", "CREATED")
	for _, v := range all {
		versions := make([]string, len(v.Entries))
		for i, e := range v.Entries {
			versions[i] = e.Service.Name + "=" + e.Version.Name
		}
		row(w, v.ID, v.Name, strings.Join(versions, ","), moment(v.CreatedAt))
	}
}

func versionSetDetail(w io.Writer, v client.VersionSet) {
	versionSetTable(w, []client.VersionSet{v})
	fmt.Fprintln(w)
	row(w, "SERVICE", "VERSION", "DIGEST", "SEEN", "DELETED", "REFERENCE")
	for _, e := range v.Entries {
		row(w, e.Service.Name, e.Version.Name, short(e.Version.Digest), seenAt(e.Version), optional(e.Version.DeletedAt), e.Version.Reference)
	}
}

// warn prints what to consider about a rollout that was just created, beside its output.
func (c *command) warn(r client.Rollout) {
	for _, warning := range r.VersionSet.Warnings {
		fmt.Fprintln(c.errOut, "warning: "+text.Line(warning))
	}
}

func (c *command) environment() *cobra.Command {
	list := c.asking("list", "List environments", "  lockstep environment list", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Environments(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { environmentTable(w, all) })
		})
	get := c.asking("get NAME", "Show one environment", "  lockstep environment get production -o yaml", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { environmentDetail(w, one) })
		})
	return noun("environment", "env", "Environments: places to deploy to", list, get, c.environmentCreate(), c.environmentApproval(), c.environmentRetry(), c.environmentArchive(), c.environmentRestore())
}

func environmentTable(w io.Writer, all []client.Environment) {
	row(w, "NAME", "TIER", "READINESS", "DRIVER", "CREATED")
	for _, e := range all {
		driver := ""
		if len(e.DriverBindings) > 0 {
			driver = e.DriverBindings[0].DriverRef
		}
		row(w, e.Name, journal.Human(e.Tier), journal.Human(e.Readiness), driver, moment(e.CreatedAt))
	}
}

func environmentDetail(w io.Writer, e client.Environment) {
	environmentTable(w, []client.Environment{e})
	if e.ReadinessReason != "" {
		fmt.Fprintln(w)
		row(w, "not ready: "+e.ReadinessReason)
	}
	fmt.Fprintln(w)
	row(w, "BINDING", "VERSION", "DRIVER", "CONFIGURATION")
	for _, b := range e.DriverBindings {
		row(w, b.ID, number(b.Version), b.DriverRef, compact(b.DriverConfig))
	}
}
