// Package forge has the commands about statuses and deployments of commits: which applications have theirs published, what became of it,
// and where forges report statuses to.
package forge

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("forge", "", "Statuses of commits: publish checks and deployments at GitHub, GitLab, Gitea and Forgejo, see what became of it, and count what they report",
			own.publish(), own.list(), own.statuses(), own.plans(), own.hosts(), own.retry(), own.hook(), own.account()),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func mirrorTable(w io.Writer, all []client.ForgeMirror) {
	command.Row(w, "APPLICATION", "STATE", "ENVIRONMENTS", "CREDENTIAL", "PLANS", "DEPLOYMENTS")
	for _, m := range all {
		state, environments, credential := "on", strings.Join(m.Environments, ", "), m.Credential
		if !m.Enabled {
			state = "off"
		}
		if environments == "" {
			environments = "all"
		}
		if credential == "" {
			credential = "by URL"
		}
		plans := "yes"
		if m.Plans != nil && !*m.Plans {
			plans = "no"
		}
		deployments := "no"
		if m.Deployments != nil && *m.Deployments {
			deployments = "yes"
		}
		command.Row(w, m.Application, state, environments, credential, plans, deployments)
	}
}

func (c commands) publish() *cobra.Command {
	var environments, addresses []string
	var credential, reason string
	var off, plans, deployments bool
	cmd := c.Asking("publish APPLICATION", "Publish the checks of an application as statuses of its commits, and its deployments, or end that",
		"  lockstep forge publish shop\n  lockstep forge publish shop --environment production --credential github\n  lockstep forge publish shop --deployments --address production=https://shop.example.com\n"+
			"  lockstep forge publish shop --off\n"+
			"  lockstep forge publish shop --off --plans=false",
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			m := client.ForgeMirror{Application: args[0], Environments: environments, Credential: credential, Enabled: !off}
			if cmd.Flags().Changed("plans") {
				m.Plans = &plans
			}
			if cmd.Flags().Changed("deployments") {
				m.Deployments = &deployments
			}
			if cmd.Flags().Changed("address") {
				m.Addresses = []client.EnvironmentAddress{}
			}
			for _, one := range addresses {
				environment, url, is := strings.Cut(one, "=")
				if one != "" && (!is || environment == "" || url == "") {
					return fmt.Errorf("--address: found %q, expected environment=https://host/path, or nothing for none", one)
				}
				if one != "" {
					m.Addresses = append(m.Addresses, client.EnvironmentAddress{Environment: environment, URL: url})
				}
			}
			one, err := api.PutForgeMirror(cmd.Context(), m, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { mirrorTable(w, []client.ForgeMirror{one}) })
		})
	cmd.Flags().StringArrayVar(&environments, "environment", nil, "only the checks of the environment of that `name`; repeatable")
	cmd.Flags().StringVar(&credential, "credential", "", "the `name` of the credential; by default the one with the longest matching URL")
	cmd.Flags().StringArrayVar(&addresses, "address", nil, "where the application is reached, as `environment=URL`, for deployments; repeatable; '' for none; by default as it is")
	cmd.Flags().BoolVar(&off, "off", false, "publish nothing more")
	cmd.Flags().BoolVar(&plans, "plans", true, "whether the plans of pull requests are about the application, too; by default as it is")
	cmd.Flags().BoolVar(&deployments, "deployments", false, "whether deployments are published at GitHub and GitLab, too; by default as it is")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) list() *cobra.Command {
	return c.Asking("list", "List the applications whose checks are published", "  lockstep forge list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeMirrors(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { mirrorTable(w, all) })
		})
}

func (c commands) statuses() *cobra.Command {
	var state, kind, commit string
	var first int
	cmd := c.Asking("statuses", "List statuses and deployments of commits with their outcomes, the newest first",
		"  lockstep forge statuses --state failed\n  lockstep forge statuses --kind deployment", command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeStatuses(cmd.Context(), strings.ToUpper(state), strings.ToUpper(kind), commit, first)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "ID", "KIND", "COMMIT", "NAME", "PHASE", "STATE", "SENT", "WHY NOT")
				for _, s := range all {
					sent := ""
					if s.SentAt != nil {
						sent = command.Moment(*s.SentAt)
					}
					command.Row(w, command.Number(s.Number), journal.Human(s.Kind), s.Commit[:min(12, len(s.Commit))], s.Name,
						journal.Human(cmp.Or(s.Stage, s.Phase)), journal.Human(s.State), sent, s.Error)
				}
			})
		})
	cmd.Flags().StringVar(&state, "state", "", "only those in a `state`: pending, sending, sent or failed")
	cmd.Flags().StringVar(&kind, "kind", "", "only those of a `kind`: status or deployment")
	cmd.Flags().StringVar(&commit, "commit", "", "only those of the commit with that full `id`")
	cmd.Flags().IntVar(&first, "first", 50, "how many at most, up to 100")
	return cmd
}

func (c commands) plans() *cobra.Command {
	var first int
	cmd := c.Asking("plans", "List pull requests whose plans are written into a comment, the newest first", "  lockstep forge plans",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgePulls(cmd.Context(), first)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "REPOSITORY", "PULL REQUEST", "COMMIT", "STATE", "ENDED", "OUTCOME", "WHY NOT")
				for _, p := range all {
					ended := ""
					if p.EndedAt != nil {
						ended = command.Moment(*p.EndedAt)
					}
					command.Row(w, p.Repository, command.Number(p.PullRequest), p.Commit[:min(12, len(p.Commit))], journal.Human(p.State), ended,
						p.Outcome, p.Error)
				}
			})
		})
	cmd.Flags().IntVar(&first, "first", 50, "how many at most, up to 100")
	return cmd
}

func (c commands) hosts() *cobra.Command {
	return c.Asking("hosts", "List the servers that statuses are sent to, with the requests that they still accept", "  lockstep forge hosts",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeHosts(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "HOST", "WAITING", "PAUSED UNTIL", "QUOTA LEFT", "PROBLEM")
				for _, h := range all {
					paused, quota := "", ""
					if h.PausedUntil != nil {
						paused = command.Moment(*h.PausedUntil)
					}
					if h.QuotaRemaining != nil && h.QuotaLimit != nil {
						quota = fmt.Sprintf("%d of %d", *h.QuotaRemaining, *h.QuotaLimit)
					}
					command.Row(w, h.Host, command.Number(h.Waiting), paused, quota, h.Problem)
				}
			})
		})
}

func (c commands) retry() *cobra.Command {
	var reason string
	cmd := c.Asking("retry [ID]", "Send statuses again that were given up: one, or the oldest 500", "  lockstep forge retry\n  lockstep forge retry 7",
		command.Between(0, 1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			number := 0
			if len(args) > 0 {
				var err error
				if number, err = strconv.Atoi(args[0]); err != nil || number < 1 {
					return fault.New(fault.Invalid, "found %.100q; expected the ID of a status, such as 7", args[0])
				}
			}
			retried, err := api.RetryForgeStatuses(cmd.Context(), number, reason)
			if err != nil {
				return err
			}
			return c.Print(retried, func(w io.Writer) {
				command.Row(w, "SENT AGAIN", "MORE")
				more := "no"
				if retried.More {
					more = "yes"
				}
				command.Row(w, command.Number(retried.Count), more)
			})
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}
