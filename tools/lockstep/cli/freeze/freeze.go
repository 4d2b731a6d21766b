// Package freeze has the commands about what stops rollouts from outside of their pipelines, freezes and vetoes of versions, and about
// checks.
package freeze

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/driver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("freeze", "fz", "Freezes: times in which rollouts stop at their next passage",
			own.start(), own.list(), own.extend(), own.end()),
		command.Noun("check", "ck", "Checks: conditions of entering environments whose status people and systems report",
			append([]*cobra.Command{own.checks(), own.report(), own.evaluate(), own.decide()}, driver.Kinds(c)...)...),
	}
}

// Vetoes are the commands below version.
func Vetoes(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.veto(), own.lift()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

// until is the end that was asked for, as an instant or as a time from now.
func (commands) until(at string, last time.Duration) (time.Time, error) {
	if (at == "") == (last == 0) {
		return time.Time{}, fault.New(fault.Invalid, "expected either --for or --until: a freeze has an end, at most 30 days ahead")
	}
	if at == "" {
		return time.Now().Add(last).UTC().Truncate(time.Second), nil //nolint:forbidigo // the time of the person who asks
	}
	end, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return end, fault.New(fault.Invalid, "until: found %q; expected a time as 2026-11-27T18:00:00Z", at)
	}
	return end, nil
}

func reasoned(cmd *cobra.Command, reason *string, required bool) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the journal")
	if required {
		_ = cmd.MarkFlagRequired("reason")
	}
}

func (c commands) start() *cobra.Command {
	var in client.FreezeInput
	var last time.Duration
	var until, from string
	cmd := c.Asking("start", "Stop rollouts at their next passage within a scope, for a time; without a scope, all of the organization",
		"  lockstep freeze start --tier production --for 4h --incident INC-99 --reason 'payments fail'\n"+
			"  lockstep freeze start --environment eu-1,eu-2 --application shop --until 2026-11-30T08:00:00Z --reason 'Black Friday'\n"+
			"  lockstep freeze start --application-label tier=critical --environment-label region=eu --for 8h --reason 'audit'",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			err := command.RefuseEmpty(cmd, "environment", "application")
			if err != nil {
				return err
			}
			if in.EndsAt, err = c.until(until, last); err != nil {
				return err
			}
			if from != "" {
				if in.StartsAt, err = time.Parse(time.RFC3339, from); err != nil {
					return fault.New(fault.Invalid, "from: found %q; expected a time as 2026-11-27T18:00:00Z", from)
				}
				if last != 0 {
					in.EndsAt = in.StartsAt.Add(last)
				}
			}
			one, err := api.StartFreeze(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { table(w, []client.Freeze{one}) })
		})
	flags := cmd.Flags()
	command.WordsFlag(cmd, &in.Tiers, "tier", "only these tiers; repeatable", []string{"development", "qa", "staging", "production"})
	flags.StringSliceVar(&in.Environments, "environment", nil, "only this `environment`, by name or identifier; repeatable")
	flags.StringSliceVar(&in.Applications, "application", nil, "only this `application`, by name or identifier; repeatable")
	command.LabelsFlag(cmd, &in.EnvironmentLabels, "environment-label",
		"only environments with this label, as `key=value`; repeatable, and all have to match")
	command.LabelsFlag(cmd, &in.ApplicationLabels, "application-label",
		"only applications with this label, as `key=value`; repeatable, and all have to match")
	flags.BoolVar(&in.Rollbacks, "rollbacks", false, "stop rollbacks, too")
	flags.StringVar(&in.Incident, "incident", "", "the incident that it is for, by its `name`: policies see it while the freeze is in force")
	command.DurationFlag(cmd, &last, "for", 0, "how long; at most 30 days")
	flags.StringVar(&until, "until", "", "when it ends, in place of --for, as `time` 2026-11-30T08:00:00Z")
	flags.StringVar(&from, "from", "", "when it begins, as `time` 2026-11-27T18:00:00Z; now without it")
	reasoned(cmd, &in.Reason, true)
	return cmd
}

func (c commands) list() *cobra.Command {
	var over bool
	cmd := c.Asking("list", "List freezes that are in force or to come", "  lockstep freeze list --all", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Freezes(cmd.Context(), over)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
	cmd.Flags().BoolVar(&over, "all", false, "also those that are over")
	return cmd
}

func (c commands) extend() *cobra.Command {
	var last time.Duration
	var until, reason string
	cmd := c.Asking("extend ID", "Choose a later end for a freeze: at most 30 days from now",
		"  lockstep freeze extend freeze_3 --for 24h --reason 'not mended yet'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			end, err := c.until(until, last)
			if err != nil {
				return err
			}
			one, err := api.ExtendFreeze(cmd.Context(), args[0], end, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { table(w, []client.Freeze{one}) })
		})
	command.DurationFlag(cmd, &last, "for", 0, "how long from now; at most 30 days")
	cmd.Flags().StringVar(&until, "until", "", "when it ends, in place of --for, as `time` 2026-11-30T08:00:00Z")
	reasoned(cmd, &reason, false)
	return cmd
}

func (c commands) end() *cobra.Command {
	var reason string
	cmd := c.Asking("end ID", "End a freeze before its time; rollouts that it has stopped continue",
		"  lockstep freeze end freeze_3 --reason 'mended'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.EndFreeze(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { table(w, []client.Freeze{one}) })
		})
	reasoned(cmd, &reason, false)
	return cmd
}

func table(w io.Writer, all []client.Freeze) {
	command.Row(w, "ID", "SCOPE", "STARTS", "ENDS", "STATE", "STOPS", "BY", "REASON")
	for _, f := range all {
		state, end := "to come", f.EndsAt
		switch {
		case f.EndedAt != nil:
			state, end = "ended", *f.EndedAt
		case f.InForce:
			state = "in force"
		case f.StoppedRollouts == 0 && f.EndsAt.Before(time.Now()): //nolint:forbidigo // the time of the person who looks
			state = "over"
		}
		command.Row(w, f.ID, scope(f), command.Moment(f.StartsAt), command.Moment(end), state, command.Number(f.StoppedRollouts), f.Author,
			f.Reason)
	}
}

// scope is what a freeze concerns, in a few words.
func scope(f client.Freeze) string {
	var parts []string
	for _, tier := range f.Tiers {
		parts = append(parts, journal.Human(tier))
	}
	for _, of := range [][]client.Reference{f.Environments, f.Applications} {
		for _, one := range of {
			parts = append(parts, one.Name)
		}
	}
	if len(f.EnvironmentLabels) > 0 {
		parts = append(parts, "environments with "+command.Selector(f.EnvironmentLabels))
	}
	if len(f.ApplicationLabels) > 0 {
		parts = append(parts, "applications with "+command.Selector(f.ApplicationLabels))
	}
	text := "everything"
	if len(parts) > 0 {
		text = strings.Join(parts, ",")
	}
	if f.Rollbacks {
		text += " (with rollbacks)"
	}
	if f.Incident != "" {
		text += " (" + f.Incident + ")"
	}
	return text
}

func (c commands) veto() *cobra.Command {
	var reason string
	cmd := c.Asking("veto ID", "Veto a version or a version set: it is never deployed, also by rollouts under way",
		"  lockstep version veto versionset_7 --reason 'CVE-2026-1234'\n  lockstep version veto version_12 --reason 'wrong build'",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.VetoVersion(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { vetoTable(w, one) })
		})
	reasoned(cmd, &reason, true)
	return cmd
}

func (c commands) lift() *cobra.Command {
	var reason string
	cmd := c.Asking("lift-veto ID", "Lift a veto; rollouts that it has stopped continue",
		"  lockstep version lift-veto veto_2 --reason 'patched'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.LiftVeto(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { vetoTable(w, one) })
		})
	reasoned(cmd, &reason, true)
	return cmd
}

func vetoTable(w io.Writer, v client.Veto) {
	command.Row(w, "ID", "STATE", "SINCE", "BY", "REASON")
	state := "in force"
	if v.LiftedAt != nil {
		state = "lifted at " + command.Moment(*v.LiftedAt)
	}
	command.Row(w, v.ID, state, command.Moment(v.CreatedAt), v.Author, v.Reason)
}
