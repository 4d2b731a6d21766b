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
		c.addHook(), c.listHooks(), c.removeHook())
	cmd.GroupID = "" // only the root has groups
	return cmd
}

func hookTable(w io.Writer, all []client.ForgeHook) {
	command.Row(w, "ID", "FORGE", "REPOSITORIES", "CHECKS", "PLANS", "LAST REPORT")
	for _, h := range all {
		keys, last, plans := strings.Join(h.CheckKeys, ", "), "never", "no"
		if h.Plans {
			plans = "yes"
		}
		if keys == "" {
			keys = "all"
		}
		if h.ReportedAt != nil {
			last = command.Moment(*h.ReportedAt)
		}
		command.Row(w, command.Number(h.Number), journal.Human(h.Forge), strings.Join(h.Repositories, ", "), keys, plans, last)
	}
}

func (c commands) addHook() *cobra.Command {
	var forge, reason string
	var repositories, checks []string
	var plans bool
	cmd := c.Asking("add", "Make a hook; its path and its secret are shown once",
		"  lockstep forge hook add --forge github --repository 'github.com/shop/*'\n"+
			"  lockstep forge hook add --forge gitlab --repository gitlab.com/shop/api --check e2e\n"+
			"  lockstep forge hook add --forge gitea --repository 'git.example.com/shop/*' --plans",
		command.Exactly(0), func(cmd *cobra.Command, api *client.Client, _ []string) error {
			made, err := api.AddForgeHook(cmd.Context(), client.ForgeHook{
				Forge: strings.ToUpper(forge), Repositories: repositories, CheckKeys: checks, Plans: plans,
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
