// Package policy has the commands about policies: what rollouts are allowed to do, written in Cedar.
package policy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("policy", "pol", "Policies: what rollouts are allowed to do, written in Cedar",
			own.list(), own.installation(), own.show(), own.history(), own.put(), own.disable(), own.check(), own.test(), own.explain(),
			own.decisions(),
			own.simulate(), own.requests(),
			own.answer(), own.schema(), own.template()),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func (c commands) list() *cobra.Command {
	return c.Asking("list", "List policy sets in their latest versions", "  lockstep policy list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.PolicySets(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
}

func table(w io.Writer, all []client.PolicySet) {
	command.Row(w, "NAME", "SCOPE", "VERSION", "MODE", "TIME ZONE", "SINCE", "BY", "REASON")
	for _, s := range all {
		command.Row(
			w, s.Name, scope(s), command.Number(s.Version), journal.Human(s.Mode), s.TimeZone, command.Moment(s.CreatedAt), s.Author, s.Reason,
		)
	}
}

// scope is what a set concerns, in a few words.
func scope(s client.PolicySet) string {
	switch {
	case s.Application != nil:
		return "application " + s.Application.Name
	case s.Environment != nil:
		return "environment " + s.Environment.Name
	case len(s.ApplicationLabels) > 0:
		return "applications with " + command.Selector(s.ApplicationLabels)
	default:
		return "organization"
	}
}

// installation lists the sets of the operator.
func (c commands) installation() *cobra.Command {
	return c.Asking("installation", "List the policy sets of the installation, which concern every organization; -o json has their text",
		"  lockstep policy installation\n  lockstep policy installation -o json | jq -r '.[0].text'", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.InstallationPolicies(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "NAME", "MODE", "TIME ZONE")
				for _, s := range all {
					command.Row(w, s.Name, journal.Human(s.Mode), s.TimeZone)
				}
			})
		})
}

// versions are those of a set, of which there is at least one.
func versions(cmd *cobra.Command, api *client.Client, name string) ([]client.PolicySet, error) {
	all, err := api.PolicySetVersions(cmd.Context(), name)
	if err == nil && len(all) == 0 {
		err = fault.New(fault.NotFound, "policy set %q does not exist; lockstep policy list lists those that do", name)
	}
	return all, err
}

func (c commands) show() *cobra.Command {
	version := 0
	cmd := c.Asking("show NAME", "Print the policies of a set",
		"  lockstep policy show production\n  lockstep policy show production --version 3 -o json | jq -r .text",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := versions(cmd, api, args[0])
			if err != nil {
				return err
			}
			for _, s := range all {
				if version == 0 || s.Version == version {
					return c.Print(s, func(w io.Writer) {
						// With numbers, as messages name lines; and so no text of a server begins a line of a terminal.
						for i, line := range strings.Split(strings.TrimRight(s.Text, "\n"), "\n") {
							command.Row(w, command.Number(i+1), line)
						}
					})
				}
			}
			return fault.New(fault.NotFound, "policy set %q has no version %d among its latest 100", args[0], version)
		})
	cmd.Flags().IntVar(&version, "version", 0, "this `version`, in place of the latest")
	return cmd
}

func (c commands) history() *cobra.Command {
	return c.Asking("history NAME", "List the versions of a policy set, the latest first", "  lockstep policy history production",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := versions(cmd, api, args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
}

// read reads a file of policies, or the standard input for -.
func read(cmd *cobra.Command, name string) (string, error) {
	from := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", fault.Because(err, fault.Invalid, "read %s: %v", name, err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, policy.MaxText+1))
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "read %s: %v", name, err)
	}
	return string(text), nil
}

func (c commands) put() *cobra.Command {
	var in client.PolicySetInput
	var labels map[string]string
	cmd := c.Asking("put NAME FILE", "Add a version of a policy set, and the set if it is new; a new one is tried out until --mode enforce",
		"  lockstep policy put production production.cedar --reason 'no Friday evenings' --time-zone Europe/Berlin\n"+
			"  lockstep policy put production production.cedar --mode enforce --reason 'tried for two weeks'",
		command.Exactly(2), func(cmd *cobra.Command, api *client.Client, args []string) error {
			var err error
			if in.Text, err = read(cmd, args[1]); err != nil {
				return err
			}
			in.Name, in.Labels = args[0], labels
			return c.save(cmd, api, in)
		})
	flags := cmd.Flags()
	flags.StringVar(&in.Application, "application", "", "only rollouts of this `application`, by name or identifier; for a new set")
	flags.StringVar(&in.Environment, "environment", "", "only passages of this `environment`, by name or identifier; for a new set")
	command.LabelsFlag(cmd, &labels, "application-label",
		"only rollouts of the applications with this label, as `key=value`; repeatable, and all have to match; for a new set")
	flags.StringVar(&in.TimeZone, "time-zone", "", "the time `zone` of days and hours, such as Europe/Berlin")
	command.WordFlag(cmd, &in.Mode, "mode", "", "whether it counts; as before without it", []string{"enforce", "dry_run", "off"})
	reasoned(cmd, &in.Reason)
	return cmd
}

func reasoned(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why; kept with the version")
	_ = cmd.MarkFlagRequired("reason")
}

func (c commands) save(cmd *cobra.Command, api *client.Client, in client.PolicySetInput) error {
	one, err := api.PutPolicySet(cmd.Context(), in)
	if err != nil {
		return err
	}
	return c.Print(one, func(w io.Writer) { table(w, []client.PolicySet{one}) })
}

func (c commands) disable() *cobra.Command {
	var reason string
	cmd := c.Asking("disable NAME", "Switch a policy set off; rollouts under way keep what they were created with",
		"  lockstep policy disable production --reason 'replaced by release'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			return c.save(cmd, api, client.PolicySetInput{Name: args[0], Mode: "OFF", Reason: reason})
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) check() *cobra.Command {
	return c.Asking("check FILE", "Validate policies against the schema and the organization, and store nothing",
		"  lockstep policy check production.cedar",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			text, err := read(cmd, args[0])
			if err != nil {
				return err
			}
			found, err := api.CheckPolicies(cmd.Context(), text)
			if err != nil {
				return err
			}
			if err := c.Print(found, func(w io.Writer) {
				if len(found.Problems)+len(found.Warnings) == 0 {
					command.Row(w, "valid")
					return
				}
				command.Row(w, "KIND", "LINE", "COLUMN", "POLICY", "MESSAGE")
				problems(w, "problem", found.Problems)
				problems(w, "warning", found.Warnings)
			}); err != nil {
				return err
			}
			if len(found.Problems) > 0 {
				return command.Exit(1, errors.New("the policies are not valid"))
			}
			return nil
		})
}

func problems(w io.Writer, kind string, all []client.PolicyProblem) {
	place := func(n *int) string {
		if n == nil {
			return ""
		}
		return command.Number(*n)
	}
	for _, p := range all {
		command.Row(w, kind, place(p.Line), place(p.Column), p.Policy, p.Message)
	}
}

func (c commands) explain() *cobra.Command {
	return c.Asking("explain DECISION", "Show a decision of policies: which of them applied, and with what values",
		"  lockstep policy explain policydecision_7\n  lockstep policy explain callrequest_7", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if strings.HasPrefix(args[0], "callrequest_") {
				return c.explainCall(cmd, api, args[0])
			}
			d, err := api.PolicyDecision(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(d, func(w io.Writer) {
				command.Row(w, "DECISION", "PASSAGE", "VERDICT", "WOULD BE", "AT", "POLICIES")
				command.Row(w, d.ID, d.GateID, journal.Human(d.Verdict), journal.Human(d.WouldBe), command.Moment(d.CreatedAt), command.Short(d.Digest))
				command.Row(w, "")
				rulings(w, d.Rulings)
				command.Row(w, "")
				command.Row(w, "ASKED", command.Compact(d.Request))
			})
		})
}

func (c commands) decisions() *cobra.Command {
	return c.Asking("decisions", "List what policies decided about changes of controls, also those that they denied",
		"  lockstep policy decisions", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ControlDecisions(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "DECISION", "VERDICT", "WOULD BE", "AT", "BECAUSE")
				for _, d := range all {
					command.Row(w, d.ID, journal.Human(d.Verdict), journal.Human(d.WouldBe), command.Moment(d.CreatedAt), d.Summary)
				}
			})
		})
}

func (c commands) simulate() *cobra.Command {
	var in client.PolicySetInput
	var since time.Duration
	cmd := c.Asking("simulate NAME FILE", "List the recorded decisions that would have been different if a policy set had these policies",
		"  lockstep policy simulate production production.cedar --since 30d", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			var err error
			if in.Text, err = read(cmd, args[1]); err != nil {
				return err
			}
			in.Name = args[0]
			from := time.Now().Add(-since).UTC() //nolint:forbidigo // the time of the person who asks
			found, err := api.SimulatePolicies(cmd.Context(), in, from)
			if err != nil {
				return err
			}
			return c.Print(found, func(w io.Writer) {
				command.Row(w, "DECISION", "ROLLOUT", "PASSAGE", "AT", "WAS", "WOULD BE", "BECAUSE")
				for _, d := range found.Different {
					rollout := ""
					if d.Rollout != nil {
						rollout = d.Rollout.ID
					}
					command.Row(w, d.Decision.ID, rollout, d.Decision.GateID, command.Moment(d.Decision.CreatedAt), journal.Human(d.Decision.Verdict),
						journal.Human(d.Verdict), d.Summary)
				}
				for _, d := range found.DifferentCalls {
					command.Row(w, d.CallRequest.ID, d.CallRequest.WorkflowID, "call of "+d.CallRequest.Function, command.Moment(d.CallRequest.CreatedAt),
						journal.Human(d.CallRequest.Verdict), journal.Human(d.Verdict), d.Summary)
				}
				more := ""
				if found.SampledCalls > 0 {
					more = fmt.Sprintf("; %d of the calls are a sample of those that all policies had permitted", found.SampledCalls)
				}
				if found.Truncated {
					more += "; there are earlier ones"
				}
				command.Row(w, fmt.Sprintf("%d of %d decisions and %d of %d calls would have been different%s", found.DifferentCount, found.Evaluated,
					found.DifferentCallCount, found.EvaluatedCalls, more))
			})
		})
	flags := cmd.Flags()
	flags.StringVar(&in.Application, "application", "", "the `application` of a set that does not exist yet")
	flags.StringVar(&in.Environment, "environment", "", "the `environment` of a set that does not exist yet")
	flags.StringVar(&in.TimeZone, "time-zone", "", "the time `zone` of days and hours")
	command.DurationFlag(cmd, &since, "since", 30*24*time.Hour, "how far back")
	return cmd
}
