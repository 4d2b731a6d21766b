package freeze

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) report() *cobra.Command {
	in, observed := client.CheckInput{}, ""
	cmd := c.Asking("report KEY", "Report the status of a check about a version set, a commit or an artifact",
		"  lockstep check report healthy --application shop --environment staging --version-set versionset_7 --phase success\n"+
			"  lockstep check report load-test --application shop --environment staging --commit $SHA --phase failure "+
			"--link https://ci.example.com/7\n"+
			"  lockstep check report scan --application shop --environment staging --digest sha256:9f86… --phase success",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			in.Key = args[0]
			if observed != "" {
				var err error
				if in.ObservedAt, err = time.Parse(time.RFC3339, observed); err != nil {
					return fault.New(fault.Invalid, "observed-at: found %q; expected a time as 2026-11-27T18:00:00Z", observed)
				}
			}
			one, err := api.ReportCheck(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				command.Row(w, "CHECK", "PHASE", "APPLICATION", "ENVIRONMENT", "VERSION SET", "REPORTER", "DESCRIPTION")
				command.Row(w, one.Key, journal.Human(one.Phase), one.Application.Name, one.Environment.Name, one.VersionSet.Name, one.Reporter,
					one.Description)
			})
		})
	flags := cmd.Flags()
	flags.StringVar(&in.Application, "application", "", "the `application`, by name or identifier")
	flags.StringVar(&in.Environment, "environment", "", "the `environment`, by name or identifier")
	flags.StringVar(&in.VersionSet, "version-set", "", "the `version set` that the status is about: versionset_7")
	flags.StringVar(&in.Commit, "commit", "", "the `commit` that the status is about, in place of --version-set: all of its digits")
	flags.StringVar(&in.Digest, "digest", "", "the `digest` of the artifact, such as sha256:9f86…, that the status is about, in place of --version-set")
	flags.StringVar(&in.Description, "description", "", "text for people; at most 1000 bytes")
	flags.StringVar(&in.Link, "link", "", "an http or https `address` with more")
	flags.StringVar(&observed, "observed-at", "", "the `time` when it was found out, as 2026-11-27T18:00:00Z, at most 30 days ago; without, now. "+
		"Of two statuses of one reporter the one that was observed later counts")
	command.WordFlag(cmd, &in.Phase, "phase", "success", "what the check came to", []string{"pending", "success", "failure"})
	_ = cmd.MarkFlagRequired("application")
	_ = cmd.MarkFlagRequired("environment")
	return cmd
}

// evaluate has a check evaluated now.
func (c commands) evaluate() *cobra.Command {
	environment := ""
	cmd := c.Asking("evaluate ROLLOUT KEY", "Have a check evaluated now whose kind is a check kind: its program need not wait, or begins again",
		"  lockstep check evaluate rollout_7 change-ticket --environment production", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.EvaluateCheck(cmd.Context(), args[0], environment, args[1])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				command.Row(w, "ROLLOUT", "STATE")
				command.Row(w, one.ID, journal.Human(one.State))
			})
		})
	cmd.Flags().StringVar(&environment, "environment", "", "the `environment` that the check is about, by name or identifier")
	_ = cmd.MarkFlagRequired("environment")
	return cmd
}

// decide answers a check whose program asks a person.
func (c commands) decide() *cobra.Command {
	environment, phase, reason := "", "", ""
	cmd := c.Asking("decide ROLLOUT KEY", "Decide a check whose program asks a person, since what it has found is inconclusive or it has no data",
		"  lockstep check decide rollout_7 errors --environment staging --phase success --reason \"no traffic at night; logs are clean\"",
		command.Exactly(2), func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.DecideCheck(cmd.Context(), args[0], environment, args[1], phase, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				command.Row(w, "ROLLOUT", "STATE")
				command.Row(w, one.ID, journal.Human(one.State))
			})
		})
	cmd.Flags().StringVar(&environment, "environment", "", "the `environment` that the check is about, by name or identifier")
	cmd.Flags().StringVar(&reason, "reason", "", "why, as `text` for the record; at most 1000 bytes")
	command.WordFlag(cmd, &phase, "phase", "", "what you have decided", []string{"success", "failure"})
	for _, required := range []string{"environment", "phase", "reason"} {
		_ = cmd.MarkFlagRequired(required)
	}
	return cmd
}

// checks lists the checks of a rollout.
func (c commands) checks() *cobra.Command {
	return c.Asking("list ROLLOUT", "List the checks of a rollout in each of its environments, and what they have come to",
		"  lockstep check list rollout_7\n  lockstep check list rollout_7 -o json", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.RolloutChecks(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "ENVIRONMENT", "CHECK", "KIND", "ABOUT", "REQUIRED BY", "PHASE", "DETAIL", "LINK")
				for _, one := range all {
					by := map[bool]string{true: "the environment", false: "the pipeline"}[one.Own]
					command.Row(w, one.Environment.Name, one.Key, one.KindName, journal.Human(one.Target), by, journal.Human(one.Phase),
						one.Detail, one.Link)
				}
			})
		})
}
