// Package source has the commands about artifact sources, and publish.
package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.source(), own.publish()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

// source is the noun of artifact sources.
func (c commands) source() *cobra.Command {
	return command.Noun("source", "src", "Artifact sources: where versions come from",
		c.sourceList(), c.sourceKinds(), c.sourceHooks(), c.sourceAdd(), c.sourceSet(), c.sourceReplace(),
		c.sourceDisable(), c.sourceEnable(), c.sourceRemove(), c.sourceTest(), c.sourceCheckNow(), c.sourceVersions())
}

func (c commands) sourceList() *cobra.Command {
	var application string
	cmd := c.Asking("list", "List artifact sources with their state",
		"  lockstep source list --application shop\n  lockstep source list -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Sources(cmd.Context(), application)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { sourceTable(w, all) })
		})
	cmd.Flags().StringVar(&application, "application", "", "only sources of this `application`")
	return cmd
}

func (c commands) sourceKinds() *cobra.Command {
	return c.Asking("kinds", "List the kinds of sources; -o json includes their configuration schemas",
		"  lockstep source kinds -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.SourceKinds(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "KIND", "TITLE")
				for _, k := range all {
					var schema struct{ Title string }
					_ = json.Unmarshal(k.Schema, &schema) // without a title there is still the kind
					command.Row(w, k.Ref, schema.Title)
				}
			})
		})
}

func (c commands) sourceHooks() *cobra.Command {
	return c.Asking("hooks", "List the hooks and tokens through which artifacts are reported, and what was rejected of their deliveries",
		"  lockstep source hooks\n  lockstep source hooks -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Senders(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { senderTable(w, all) })
		})
}

// senderTable is a row for each sender, and below it one for each part of a delivery that was left out.
func senderTable(w io.Writer, all []client.Sender) {
	command.Row(w, "NAME", "FORMAT", "LAST ARTIFACT", "PUBLISHED", "WAITING", "LEFT OUT")
	for _, s := range all {
		name := s.Name
		if name == "" {
			name = "(without a name)"
		}
		command.Row(w, name, s.Format, s.LastArtifact, command.Optional(s.LastPublishedAt), strconv.Itoa(s.Waiting), strconv.Itoa(len(s.Refused)))
		for _, r := range s.Refused {
			command.Row(w, "  "+command.Moment(r.LastAt), strconv.FormatInt(r.Times, 10)+"×", r.What, r.Reason)
		}
	}
}

// pointer is the flags that describe a source that does not exist yet.
type pointer struct {
	kind string
	set  command.Fields
}

func (p *pointer) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.kind, "kind", "oci-image@1", "the `kind` of source; `lockstep source kinds` lists them")
	cmd.Flags().StringArrayVar((*[]string)(&p.set), "set", nil, "a field of its configuration, as `field=value`; repeatable")
}

func (c commands) sourceAdd() *cobra.Command {
	var p pointer
	cmd := c.Asking("add APPLICATION SERVICE", "Add an artifact source to a service; its first of kind git gives a new application the trigger git",
		"  lockstep source add shop api --set image=registry.example.com/shop/api --set selection=semver --set range=^1 --set poll=true\n"+
			"  lockstep source add shop config --kind git@1 --set repository=https://git.example.com/shop/config.git --set branch=main --set 'paths=deploy/**'", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := p.set.JSON()
			if err != nil {
				return err
			}
			a, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, s := range a.Services {
				if !s.Called(args[1]) {
					continue
				}
				one, err := api.CreateSource(cmd.Context(), s.ID, p.kind, config)
				if err != nil {
					return err
				}
				return c.Print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
			}
			return fault.New(fault.NotFound, "service %q of application %q not found", args[1], args[0])
		})
	p.flags(cmd)
	return cmd
}

func (c commands) sourceSet() *cobra.Command {
	var p pointer
	cmd := c.Asking("set ID", "Change how a source selects artifacts and how it is polled",
		"  lockstep source set artifactsource_3 --set image=registry.example.com/shop/api --set selection=semver --set range=^2 --set poll=true",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := p.set.JSON()
			if err != nil {
				return err
			}
			one, err := api.SetSourceConfig(cmd.Context(), args[0], config)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
		})
	cmd.Flags().StringArrayVar((*[]string)(&p.set), "set", nil, "a field of the complete new configuration, as `field=value`; repeatable")
	return cmd
}

func (c commands) sourceReplace() *cobra.Command {
	var p pointer
	var reason string
	cmd := c.Asking("replace ID", "Replace a source by one for another repository or of another kind; sets keep its last version until the new one has one",
		"  lockstep source replace artifactsource_3 --set image=ghcr.io/shop/api --set selection=semver --set poll=true --reason 'registry moved'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := p.set.JSON()
			if err != nil {
				return err
			}
			one, err := api.ReplaceSource(cmd.Context(), args[0], p.kind, config, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
		})
	p.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c commands) sourceDisable() *cobra.Command {
	return c.changing("disable", "Stop a source from taking versions; version sets keep its last one", (*client.Client).DisableSource)
}

func (c commands) sourceEnable() *cobra.Command {
	return c.changing("enable", "Have a disabled source take versions again", (*client.Client).EnableSource)
}

func (c commands) sourceRemove() *cobra.Command {
	return c.changing("remove", "Take a source out of new version sets, permanently; its versions stay", (*client.Client).RemoveSource)
}

// changing is a command that changes the state of a source.
func (c commands) changing(
	verb, short string, change func(api *client.Client, ctx context.Context, source, reason string) (client.Source, error),
) *cobra.Command {
	var reason string
	cmd := c.Asking(verb+" ID", short, "  lockstep source "+verb+" artifactsource_3 --reason 'wrong repository'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := change(api, cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c commands) sourceTest() *cobra.Command {
	var p pointer
	cmd := c.Asking("test", "Test a source configuration without saving it",
		"  lockstep source test --set image=registry.example.com/shop/api --set selection=semver --set poll=true", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			config, err := p.set.JSON()
			if err != nil {
				return err
			}
			sight, err := api.TrySource(cmd.Context(), p.kind, config)
			if err != nil {
				return err
			}
			return c.sighted(sight)
		})
	p.flags(cmd)
	return cmd
}

func (c commands) sourceCheckNow() *cobra.Command {
	return c.Asking("check-now ID", "Poll a source now; what is found becomes a version",
		"  lockstep source check-now artifactsource_3", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			sight, err := api.LookAtSource(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.sighted(sight)
		})
}

func (c commands) sourceVersions() *cobra.Command {
	var limit int
	cmd := c.Asking("versions ID", "List the versions of a source, newest first; SEEN is whether the digest was seen at the registry, DELETED when it was deleted there",
		"  lockstep source versions artifactsource_3 --limit 5", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.SourceVersions(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "ID", "NAME", "DIGEST", "SEEN", "DELETED", "REFERENCE", "RECORDED")
				for _, v := range all {
					command.Row(w, v.ID, v.Name, command.Short(v.Digest), command.SeenAt(v), command.Optional(v.DeletedAt), v.Reference,
						command.Moment(v.CreatedAt))
				}
			})
		})
	command.LimitFlag(cmd, &limit, 20)
	return cmd
}

// sighted prints what a look came to. A look that failed is not the command's failure to look, but the exit code shows it.
func (c commands) sighted(s client.Sight) error {
	err := c.Print(s, func(w io.Writer) {
		if s.Problem == "" {
			newest := s.Artifact
			if newest == "" {
				newest = "nothing new, or no matching tag (sources of images that accept any tag are not polled: use `lockstep publish`)"
			}
			fmt.Fprintln(w, "newest: "+text.Line(newest))
		}
	})
	if err == nil && s.Problem != "" {
		return fault.New(fault.Refused, "the source cannot be read: %s", s.Problem)
	}
	return err
}

func sourceTable(w io.Writer, all []client.Source) {
	command.Row(w, "ID", "APPLICATION", "SERVICE", "KIND", "POINTS AT", "LAST POLL", "NEXT", "NEWEST", "PROBLEM")
	for _, s := range all {
		cells := []string{s.ID, s.Service.Application.Name, s.Service.Name, s.SourceRef, pointsAt(s)}
		switch {
		case s.RemovedAt != nil:
			cells = append(cells, "removed", "", "", "")
		case s.DisabledAt != nil:
			cells = append(cells, "disabled", "", "", "")
		case s.State == nil:
			cells = append(cells, "unknown", "", "", "")
		case s.State.LookedAt == nil && !s.State.Polled:
			cells = append(cells, "not polled", "", s.State.LastArtifact, "")
		default:
			cells = append(cells, command.Optional(s.State.LookedAt), command.Optional(s.State.NextLookAt), s.State.LastArtifact, s.State.LastError)
		}
		command.Row(w, cells...)
	}
}

// pointsAt is the field of a configuration that people know a source by; another kind has other fields, and shows none.
func pointsAt(s client.Source) string {
	config, _ := s.SourceConfig.(map[string]any)
	for _, field := range []string{"image", "repository"} {
		if at, ok := config[field].(string); ok {
			return at
		}
	}
	return ""
}
