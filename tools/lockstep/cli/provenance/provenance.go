// Package provenance has the commands about where versions come from, and where they are.
package provenance

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Commands are the commands of this package that are nouns.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{command.Noun("where", "", "Where images, commits and components are live", own.component(), own.digest())}
}

// Versions are the commands below version.
func Versions(c *command.Command) []*cobra.Command { return []*cobra.Command{commands{c}.provenance()} }

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func (c commands) component() *cobra.Command {
	return c.Asking("component NAME[@VERSION]", "Show where a component of an SBOM is live, by its name or its package URL",
		"  lockstep where component log4j-core@2.14.1\n  lockstep where component pkg:npm/left-pad@1.3.0", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			name, version := args[0], ""
			// A package URL has its version inside, and the scope of an npm package begins with @.
			if at := strings.LastIndex(name, "@"); at > 0 && !strings.HasPrefix(name, "pkg:") {
				name, version = name[:at], name[at+1:]
			}
			all, err := api.WhereComponent(cmd.Context(), name, version)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { whereTable(w, all) })
		})
}

func (c commands) digest() *cobra.Command {
	return c.Asking("digest DIGEST", "Show where the digest of an image, or the SHA of a commit, is live",
		"  lockstep where digest sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.WhereDigest(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { whereTable(w, all) })
		})
}

func whereTable(w io.Writer, all []client.Whereabouts) {
	command.Row(w, "APPLICATION", "ENVIRONMENT", "SERVICE", "VERSION", "SINCE", "COMPONENT")
	for _, one := range all {
		component := ""
		if one.Component != nil {
			component = one.Component.Name + "@" + one.Component.Version
		}
		command.Row(w, one.Application.Name, one.Environment.Name, one.Service.Name, one.Version.Name, command.Moment(one.Since), component)
	}
}

func (c commands) provenance() *cobra.Command {
	var now bool
	cmd := c.Asking("provenance ID", "Show what signatures and attestations state about a version, and what was refused",
		"  lockstep version provenance version_12\n  lockstep version provenance version_12 --look-up", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			get := api.ProvenVersion
			if now {
				get = api.LookUpProvenance
			}
			one, err := get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { provenanceTable(w, one) })
		})
	cmd.Flags().BoolVar(&now, "look-up", false, "have it looked up as soon as possible; shows what is known until then")
	return cmd
}

func provenanceTable(w io.Writer, v client.ProvenVersion) {
	p := v.Provenance
	if p == nil {
		command.Row(w, "VERSION", "PROVENANCE")
		command.Row(w, v.Name, "none: it is no image, or was never to be looked up")
		return
	}
	command.Row(w, "FACT", "VALUE")
	row := func(name, value string) {
		if value != "" {
			command.Row(w, name, value)
		}
	}
	row("version", v.Name)
	row("signed by", strings.Join(p.SignedBy, ", "))
	row("built by", strings.Join(p.Builders, ", "))
	row("build level", level(p.BuildLevel))
	for _, s := range p.Sources {
		row("source", strings.TrimSuffix(s.Repository+"@"+s.Revision, "@"))
	}
	if p.Claimed != nil {
		row("claimed by the image", strings.Trim(p.Claimed.Source+"@"+p.Claimed.Revision, "@")+" (not verified)")
	}
	if p.ComponentCount != nil {
		row("components", fmt.Sprintf("%d (%s)", *p.ComponentCount, p.SBOMFormat))
	}
	if f := p.Vulnerabilities; f != nil {
		row("vulnerabilities", fmt.Sprintf("%d critical, %d high, %d medium, %d low", len(f.Critical), len(f.High), f.Medium, f.Low))
		row("critical", strings.Join(f.Critical, ", "))
		row("not affected", strings.Join(f.NotAffected, ", "))
		row("scanned at", command.Optional(f.ScannedAt))
	}
	row("looked up at", command.Optional(p.LookedAt))
	row("next lookup", command.Optional(p.NextLookAt))
	row("problem", p.Problem)
	fmt.Fprintln(w)
	command.Row(w, "EVIDENCE", "FORM", "SIGNER", "STATES", "SIGNED AT", "PROBLEM")
	for _, e := range p.Evidence {
		command.Row(w, command.Short(e.Digest), e.Form, e.Signer, e.PredicateType, command.Optional(e.SignedAt), e.Problem)
	}
	if p.Truncated {
		command.Row(w, "…", "more is attached than was read")
	}
}

func level(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
