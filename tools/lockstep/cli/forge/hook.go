package forge

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) hook() *cobra.Command {
	cmd := command.Noun("hook", "hooks", "Hooks to which forges report statuses of commits, which count for checks, and pull requests",
		c.addHook(), c.listHooks(), c.removeHook(), c.reports(), c.refusals())
	cmd.GroupID = "" // only the root has groups
	return cmd
}

func hookTable(w io.Writer, all []client.ForgeHook) {
	command.Row(w, "ID", "FORGE", "REPOSITORIES", "CHECKS", "PLANS", "COMMANDS", "LAST REPORT")
	for _, h := range all {
		keys, last, plans, orders := strings.Join(h.CheckKeys, ", "), "never", "no", "no"
		if h.Plans {
			plans = "yes"
		}
		if h.Commands {
			orders = "yes"
		}
		if keys == "" {
			keys = "all"
		}
		if h.ReportedAt != nil {
			last = command.Moment(*h.ReportedAt)
		}
		command.Row(w, command.Number(h.Number), journal.Human(h.Forge), strings.Join(h.Repositories, ", "), keys, plans, orders, last)
	}
}

func (c commands) addHook() *cobra.Command {
	var forge, reason string
	var repositories, checks []string
	var plans, orders bool
	cmd := c.Asking("add", "Make a hook; its path and its secret are shown once",
		"  lockstep forge hook add --forge github --repository 'github.com/shop/*'\n"+
			"  lockstep forge hook add --forge gitlab --repository gitlab.com/shop/api --check e2e\n"+
			"  lockstep forge hook add --forge gitea --repository 'git.example.com/shop/*' --plans --commands",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			made, err := api.AddForgeHook(cmd.Context(), client.ForgeHook{
				Forge: strings.ToUpper(forge), Repositories: repositories, CheckKeys: checks, Plans: plans, Commands: orders,
			}, reason)
			if err != nil {
				return err
			}
			return c.Print(made, func(w io.Writer) {
				command.Row(w, "ID", "PATH", "SECRET")
				command.Row(w, command.Number(made.Hook.Number), made.Path, made.Secret)
			})
		})
	cmd.Flags().StringVar(&forge, "forge", "", "the `kind` of the forge: github, gitlab or gitea, which is also for Forgejo")
	cmd.Flags().StringArrayVar(&repositories, "repository", nil, "a `pattern` of repositories that it may report about, as host/path; repeatable")
	cmd.Flags().StringArrayVar(&checks, "check", nil, "only the checks with that `key`; repeatable")
	cmd.Flags().BoolVar(&plans, "plans", false, "write the plans of pull requests into a comment on them, which everybody sees who sees the pull request")
	cmd.Flags().BoolVar(&orders, "commands", false, "take commands that comments on pull requests of proposed changes begin with, such as /lockstep approve")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) listHooks() *cobra.Command {
	return c.Asking("list", "List the hooks", "  lockstep forge hook list", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeHooks(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { hookTable(w, all) })
		})
}

func (c commands) removeHook() *cobra.Command {
	var reason string
	cmd := c.Asking("remove ID", "Remove a hook: what it has reported counts no more", "  lockstep forge hook remove 7", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			number, err := strconv.Atoi(args[0])
			if err != nil || number < 1 {
				return fault.New(fault.Invalid, "found %.100q; expected the ID of a hook, such as 7", args[0])
			}
			removed, err := api.RemoveForgeHook(cmd.Context(), number, reason)
			if err != nil {
				return err
			}
			return c.Print(removed, func(w io.Writer) { hookTable(w, []client.ForgeHook{removed}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) reports() *cobra.Command {
	var commit string
	var before, first int
	cmd := c.Asking("reports", "List what forges have reported of commits, the newest first",
		"  lockstep forge hook reports\n  lockstep forge hook reports --commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeReports(cmd.Context(), commit, before, first)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "ID", "HOOK", "COMMIT", "REPOSITORY", "NAME", "PHASE", "RECORDED", "COUNTS", "DESCRIPTION")
				for _, r := range all {
					counts := "no"
					if r.Counted {
						counts = "yes"
					}
					command.Row(w, command.Number(r.Number), command.Number(r.Hook), r.Commit[:min(12, len(r.Commit))], r.Repository, r.Context,
						journal.Human(r.Phase), command.Moment(r.ChangedAt), counts, r.Description)
				}
			})
		})
	cmd.Flags().StringVar(&commit, "commit", "", "only those of the commit with that full `id`")
	cmd.Flags().IntVar(&before, "before", 0, "continue the list after the report with that `id`")
	cmd.Flags().IntVar(&first, "first", 50, "how many at most, up to 100")
	return cmd
}

func (c commands) refusals() *cobra.Command {
	return c.Asking("refusals", "List what was left out of the deliveries of forges, the latest first", "  lockstep forge hook refusals", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.ForgeRefusals(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) {
				command.Row(w, "HOOK", "WHAT", "TIMES", "LAST", "WHY")
				for _, r := range all {
					command.Row(w, command.Number(r.Hook), r.What, command.Number(r.Times), command.Moment(r.LastAt), r.Reason)
				}
			})
		})
}
