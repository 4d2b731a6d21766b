package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// source is the noun of artifact sources.
func (c *command) source() *cobra.Command {
	return noun("source", "src", "Artifact sources: where versions come from",
		c.sourceList(), c.sourceKinds(), c.sourceHooks(), c.sourceAdd(), c.sourceSet(), c.sourceTest(), c.sourceCheckNow(), c.sourceVersions())
}

func (c *command) sourceList() *cobra.Command {
	var application string
	cmd := c.asking("list", "List artifact sources with their state",
		"  lockstep source list --application shop\n  lockstep source list -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Sources(cmd.Context(), application)
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { sourceTable(w, all) })
		})
	cmd.Flags().StringVar(&application, "application", "", "only sources of this `application`")
	return cmd
}

func (c *command) sourceKinds() *cobra.Command {
	return c.asking("kinds", "List the kinds of sources; -o json includes their configuration schemas",
		"  lockstep source kinds -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.SourceKinds(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				row(w, "KIND", "TITLE")
				for _, k := range all {
					var schema struct{ Title string }
					_ = json.Unmarshal(k.Schema, &schema) // without a title there is still the kind
					row(w, k.Ref, schema.Title)
				}
			})
		})
}

func (c *command) sourceHooks() *cobra.Command {
	return c.asking("hooks", "List the hooks and tokens through which artifacts are reported, and what was rejected of their deliveries",
		"  lockstep source hooks\n  lockstep source hooks -o json", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Senders(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) { senderTable(w, all) })
		})
}

// senderTable is a row for each sender, and below it one for each part of a delivery that was left out.
func senderTable(w io.Writer, all []client.Sender) {
	row(w, "NAME", "FORMAT", "LAST ARTIFACT", "PUBLISHED", "WAITING", "LEFT OUT")
	for _, s := range all {
		name := s.Name
		if name == "" {
			name = "(without a name)"
		}
		row(w, name, s.Format, s.LastArtifact, optional(s.LastPublishedAt), strconv.Itoa(s.Waiting), strconv.Itoa(len(s.Refused)))
		for _, r := range s.Refused {
			row(w, "  "+moment(r.LastAt), strconv.FormatInt(r.Times, 10)+"×", r.What, r.Reason)
		}
	}
}

// pointer is how commands are told of a source that does not exist yet.
type pointer struct {
	kind string
	set  fields
}

func (p *pointer) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.kind, "kind", "oci-image@1", "the `kind` of source; `lockstep source kinds` lists them")
	cmd.Flags().StringArrayVar((*[]string)(&p.set), "set", nil, "a field of its configuration, as `field=value`; repeatable")
}

// fields are those of a configuration, as field=value.
type fields []string

// agentField is the field by which drivers name the relay that reaches a cluster: its number.
const agentField = "cluster_agent_id"

// withAgent is json, with the number of an agent that was given by its name.
func (f fields) withAgent(ctx context.Context, api *client.Client) (json.RawMessage, error) {
	named := slices.Clone(f)
	for i, pair := range f {
		field, value, _ := strings.Cut(pair, "=")
		if _, err := strconv.ParseFloat(value, 64); field != agentField || value == "" || err == nil {
			continue
		}
		agent, err := api.Agent(ctx, value)
		if err != nil {
			return nil, err
		}
		named[i] = field + "=" + strconv.FormatInt(agent.Number, 10)
	}
	return named.json()
}

// json is the configuration. A value that is a number, true or false in JSON is one.
func (f fields) json() (json.RawMessage, error) {
	config := map[string]any{}
	for _, pair := range f {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := config[name]; !ok || name == "" || twice {
			return nil, fault.New(fault.Invalid, "set: found %q; expected field=value, each field once", pair)
		}
		var literal any
		if err := json.Unmarshal([]byte(value), &literal); err == nil {
			switch literal.(type) {
			case bool, float64:
				config[name] = json.RawMessage(value)
				continue
			}
		}
		config[name] = value
	}
	return json.Marshal(config)
}

func (c *command) sourceAdd() *cobra.Command {
	var p pointer
	cmd := c.asking("add APPLICATION SERVICE", "Add an artifact source to a service",
		"  lockstep source add shop api --set image=registry.example.com/shop/api --set selection=semver --set range=^1 --set poll=true\n"+
			"  lockstep source add shop config --kind git@1 --set repository=https://git.example.com/shop/config.git --set branch=main --set 'paths=deploy/**'", exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := p.set.json()
			if err != nil {
				return err
			}
			a, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, s := range a.Services {
				if s.Name != args[1] {
					continue
				}
				one, err := api.CreateSource(cmd.Context(), s.ID, p.kind, config)
				if err != nil {
					return err
				}
				return c.print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
			}
			return fault.New(fault.NotFound, "service %q of application %q not found", args[1], args[0])
		})
	p.flags(cmd)
	return cmd
}

func (c *command) sourceSet() *cobra.Command {
	var p pointer
	cmd := c.asking("set ID", "Change how a source selects artifacts and how it is polled",
		"  lockstep source set artifactsource_3 --set image=registry.example.com/shop/api --set selection=semver --set range=^2 --set poll=true", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := p.set.json()
			if err != nil {
				return err
			}
			one, err := api.SetSourceConfig(cmd.Context(), args[0], config)
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { sourceTable(w, []client.Source{one}) })
		})
	cmd.Flags().StringArrayVar((*[]string)(&p.set), "set", nil, "a field of the complete new configuration, as `field=value`; repeatable")
	return cmd
}

func (c *command) sourceTest() *cobra.Command {
	var p pointer
	cmd := c.asking("test", "Test a source configuration without saving it",
		"  lockstep source test --set image=registry.example.com/shop/api --set selection=semver --set poll=true", exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			config, err := p.set.json()
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

func (c *command) sourceCheckNow() *cobra.Command {
	return c.asking("check-now ID", "Poll a source now; what is found becomes a version",
		"  lockstep source check-now artifactsource_3", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			sight, err := api.LookAtSource(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.sighted(sight)
		})
}

func (c *command) sourceVersions() *cobra.Command {
	var limit int
	cmd := c.asking("versions ID", "List the versions of a source, newest first; SEEN is whether the digest was seen at the registry, DELETED when it was deleted there",
		"  lockstep source versions artifactsource_3 --limit 5", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.SourceVersions(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				row(w, "ID", "NAME", "DIGEST", "SEEN", "DELETED", "REFERENCE", "RECORDED")
				for _, v := range all {
					row(w, v.ID, v.Name, short(v.Digest), seenAt(v), optional(v.DeletedAt), v.Reference, moment(v.CreatedAt))
				}
			})
		})
	limitFlag(cmd, &limit, 20)
	return cmd
}

// seenAt is whether the digest of a version was seen at its registry. One that was not does not become the newest.
func seenAt(v client.Version) string {
	switch {
	case v.DigestSeen == nil:
		return ""
	case *v.DigestSeen:
		return "yes"
	}
	return "no"
}

// sighted prints what a look came to. A look that failed is not the command's failure to look, but the exit code shows it.
func (c *command) sighted(s client.Sight) error {
	err := c.print(s, func(w io.Writer) {
		if s.Problem == "" {
			newest := s.Artifact
			if newest == "" {
				newest = "no matching tag (sources that accept any tag are not polled: use `lockstep publish`)"
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
	row(w, "ID", "APPLICATION", "SERVICE", "KIND", "POINTS AT", "LAST POLL", "NEXT", "NEWEST", "PROBLEM")
	for _, s := range all {
		cells := []string{s.ID, s.Service.Application.Name, s.Service.Name, s.SourceRef, pointsAt(s)}
		switch {
		case s.State == nil:
			cells = append(cells, "unknown", "", "", "")
		case s.State.LookedAt == nil && !s.State.Polled:
			cells = append(cells, "not polled", "", s.State.LastArtifact, "")
		default:
			cells = append(cells, optional(s.State.LookedAt), optional(s.State.NextLookAt), s.State.LastArtifact, s.State.LastError)
		}
		row(w, cells...)
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
