// Package application has the commands about what is deployed and where: applications, pipelines, version sets and environments.
package application

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.application(), own.pipeline(), own.versionSet(), own.service(), own.environment()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func (c commands) application() *cobra.Command {
	list := c.Asking("list", "List applications", "  lockstep application list -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Applications(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { applicationTable(w, all) })
		})
	get := c.Asking("get NAME", "Show one application", "  lockstep application get shop", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { applicationDetail(w, one) })
		})
	return command.Noun("application", "app", "Applications: services that ship together", list, get, c.applicationCreate(),
		c.rollbackPolicy(), c.rolloutPolicy(), c.applicationMetrics(), c.applicationSet(), c.applicationRename(),
		c.applicationArchive(), c.applicationRestore())
}

func applicationTable(w io.Writer, all []client.Application) {
	command.Row(w, "NAME", "SERVICES", "ACTIVE ROLLOUT", "CREATED")
	for _, a := range all {
		names := make([]string, len(a.Services))
		for i, s := range a.Services {
			names[i] = s.Shown()
		}
		active := ""
		if a.Active != nil {
			active = a.Active.ID
		}
		command.Row(w, a.Name, strings.Join(names, ","), active, command.Moment(a.CreatedAt))
	}
}

func applicationDetail(w io.Writer, a client.Application) {
	applicationTable(w, []client.Application{a})
	if len(a.FormerNames) > 0 {
		command.Row(w, "FORMERLY", strings.Join(a.FormerNames, ", "))
	}
	queueRows(w, a)
	detailRows(w, a.Labels, a.Owner, a.Links)
	fmt.Fprintln(w)
	command.Row(w, "SERVICE", "SOURCE", "CONFIGURATION")
	for _, s := range a.Services {
		name := s.Shown()
		if s.RetiredAt != nil {
			name += " (retired)"
		}
		for _, source := range s.ArtifactSources {
			command.Row(w, name, source.SourceRef, command.Compact(source.SourceConfig))
		}
	}
	if len(a.MissingVersions) > 0 {
		fmt.Fprintln(w)
		command.Row(w, "SOURCE", "NEXT VERSION SET")
	}
	for _, m := range a.MissingVersions {
		command.Row(w, m.ArtifactSource.ID, m.Reason)
	}
	if len(a.Environments) == 0 {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "ENVIRONMENT", "READINESS", "REASON")
	for _, e := range a.Environments {
		command.Row(w, e.Environment.Shown(), journal.Human(e.Readiness), e.ReadinessReason)
	}
	if drifted := a.Drifts(); len(drifted) > 0 {
		fmt.Fprintln(w)
		command.DriftTable(w, drifted)
	}
}

// queueRows say what is pending in the queue of an application and why or, while nothing is, why the latest has not begun.
func queueRows(w io.Writer, a client.Application) {
	if q := a.Queued; q != nil {
		command.Row(w, "PENDING", fmt.Sprintf("%s, since %s: %s", q.VersionSet.Name, command.Moment(q.RequestedAt), q.Words()), q.ID)
		return
	}
	if q := a.LastQueued; q != nil && (q.State == "CANCELLED" || q.State == "DROPPED") {
		command.Row(w, "NOT BEGUN", fmt.Sprintf("%s, %s at %s: %s", q.VersionSet.Name, journal.Human(q.State), command.Optional(q.EndedAt), q.Why), q.ID)
	}
}
