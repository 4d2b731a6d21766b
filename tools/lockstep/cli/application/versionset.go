package application

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c commands) versionSet() *cobra.Command {
	var limit int
	list := c.Asking("list APPLICATION", "List the version sets of an application, newest first",
		"  lockstep version-set list shop --limit 5", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.VersionSets(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { versionSetTable(w, all) })
		})
	command.LimitFlag(list, &limit, 20)
	get := c.Asking("get ID", "Show one version set", "  lockstep version-set get versionset_3", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.VersionSet(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { versionSetDetail(w, one) })
		})
	return command.Noun("version-set", "vs", "Version sets: one pinned version of every service", list, get, c.versionSetCreate(), c.versionSetWait(), c.versionSetChanges())
}

func (c commands) versionSetCreate() *cobra.Command {
	var from, name, reason string
	var set []string
	cmd := c.Asking("create APPLICATION", "Put a version set together of recorded versions",
		"  lockstep version-set create shop --from versionset_7 --set api=1.4.2 --name 2.0 --reason hotfix\n"+
			"  lockstep version-set create shop --set api=1.4.2 --set web=version_31", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			var versions []client.ChosenVersion
			for _, pair := range set {
				service, version, err := command.KeyAndValue("--set", pair)
				if err != nil {
					return err
				}
				versions = append(versions, client.ChosenVersion{Service: service, Version: version})
			}
			one, err := api.CreateVersionSet(cmd.Context(), client.NewVersionSet{
				Application: args[0], From: from, Versions: versions, Name: name, Reason: reason,
			})
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { versionSetDetail(w, one) })
		})
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the version `set` whose versions it begins with: versionset_7; without it, --set has to name every service")
	flags.StringArrayVar(&set, "set", nil, "the version of a service, as `service=version`, by the name of the version or its identifier; repeatable")
	flags.StringVar(&name, "name", "", "what to call it beside its own name, such as 2.0")
	flags.StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c commands) versionSetChanges() *cobra.Command {
	return c.Asking("changes BEFORE AFTER", "Show the components that differ between two version sets, by their SBOMs",
		"  lockstep version-set changes versionset_3 versionset_4", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			found, err := api.ComponentChanges(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return c.Print(found, func(w io.Writer) {
				command.Row(w, "COMPONENT", "BEFORE", "AFTER")
				for _, one := range found.Changes {
					command.Row(w, one.Name, strings.Join(one.Before, ","), strings.Join(one.After, ","))
				}
				if !found.Known {
					command.Row(w, "…", "some images have no SBOM")
				}
			})
		})
}

func versionSetTable(w io.Writer, all []client.VersionSet) {
	command.Row(w, "ID", "NAME", "VERSIONS", "CREATED")
	for _, v := range all {
		versions := make([]string, len(v.Entries))
		for i, e := range v.Entries {
			versions[i] = e.Service.Name + "=" + e.Version.Name
		}
		name := v.Name
		for _, c := range v.Curated {
			if c.Name != "" {
				name += " (" + c.Name + ")"
			}
		}
		command.Row(w, v.ID, name, strings.Join(versions, ","), command.Moment(v.CreatedAt))
	}
}

func versionSetDetail(w io.Writer, v client.VersionSet) {
	versionSetTable(w, []client.VersionSet{v})
	fmt.Fprintln(w)
	command.Row(w, "SERVICE", "VERSION", "DIGEST", "SEEN", "DELETED", "REFERENCE")
	for _, e := range v.Entries {
		command.Row(w, e.Service.Name, e.Version.Name, command.Short(e.Version.Digest), command.SeenAt(e.Version),
			command.Optional(e.Version.DeletedAt), e.Version.Reference)
	}
	if len(v.Curated) == 0 {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "CALLED", "PUT TOGETHER BY", "FROM", "AT", "REASON")
	for _, c := range v.Curated {
		from := ""
		if c.From != nil {
			from = c.From.Name
		}
		command.Row(w, c.Name, c.PrincipalName, from, command.Moment(c.CreatedAt), c.Reason)
	}
}

// versionSetWait waits until a version that was pushed is in a version set.
func (c commands) versionSetWait() *cobra.Command {
	var timeout time.Duration
	cmd := c.Asking("wait APPLICATION [SERVICE=VERSION...]", "Wait until an application has a version set, or one with the given versions",
		"  lockstep version-set wait shop api=1.0.0 --timeout 1m\n  lockstep version-set wait shop api=1.0.0 web=2.1.0 -o name",
		command.Between(1, command.AnyNumber),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			versions, err := command.KeysAndValues("version", args[1:])
			if err != nil {
				return err
			}
			if versions, err = byName(cmd.Context(), api, args[0], versions); err != nil {
				return err
			}
			var found client.VersionSet
			if err := c.Until(cmd.Context(), timeout, func(ctx context.Context) (command.Outcome, string, error) {
				all, err := api.VersionSets(ctx, args[0], pageOfSets)
				if err != nil {
					return command.Unsettled, "", err
				}
				i := slices.IndexFunc(all, func(v client.VersionSet) bool { return has(v, versions) })
				if i < 0 {
					return command.Unsettled, strings.TrimSpace("no version set of " + args[0] + " has " + strings.Join(args[1:], " ")), nil
				}
				found = all[i]
				return command.Reached, "", nil
			}); err != nil {
				return err
			}
			return c.Print(found, func(w io.Writer) { versionSetTable(w, []client.VersionSet{found}) })
		})
	command.TimeoutFlag(cmd, &timeout, command.WaitTime, "how long to wait; then the exit code is 7")
	return cmd
}

// byName are versions by the names of services, where they may be given by what those are shown as.
func byName(ctx context.Context, api *client.Client, application string, versions map[string]string) (map[string]string, error) {
	if len(versions) == 0 {
		return versions, nil
	}
	a, err := api.Application(ctx, application)
	if err != nil {
		return nil, err
	}
	named := maps.Clone(versions)
	for _, s := range a.Services {
		if version, shown := versions[s.DisplayName]; shown && s.DisplayName != s.Name {
			delete(named, s.DisplayName)
			named[s.Name] = version
		}
	}
	return named, nil
}

// pageOfSets is how many of the newest version sets are looked at: what was just pushed is among them.
const pageOfSets = 50

// has reports whether a version set has each of these versions, by service.
func has(set client.VersionSet, versions map[string]string) bool {
	for service, version := range versions {
		if !slices.ContainsFunc(set.Entries, func(e client.VersionSetEntry) bool {
			return e.Service.Name == service &&
				e.Version.Name == version
		}) {
			return false
		}
	}
	return true
}
