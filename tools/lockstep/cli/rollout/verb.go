package rollout

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// verb is what is done to one rollout, for a reason.
func (c commands) verb(
	verb, short, example string, do func(api *client.Client, ctx context.Context, rollout, reason string) (client.Rollout, error),
) *cobra.Command {
	var reason string
	cmd := c.Asking(verb+" ID", short, example, command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := do(api, cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) rolloutPause() *cobra.Command {
	return c.verb("pause", "Pause a rollout at its current gate or, between gates, at the next one",
		"  lockstep rollout pause rollout_12 --reason 'incident 81'", (*client.Client).PauseRollout)
}

func (c commands) rolloutResume() *cobra.Command {
	return c.verb("resume", "Resume a paused rollout",
		"  lockstep rollout resume rollout_12 --reason 'incident 81 is over'", (*client.Client).ResumeRollout)
}

func (c commands) rolloutAbort() *cobra.Command {
	return c.verb("abort", "Return what is being deployed to the previous stable version; the rollout then waits for a retry",
		"  lockstep rollout abort rollout_12 --reason 'errors at 25 %'", (*client.Client).AbortRollout)
}

func (c commands) rolloutRetry() *cobra.Command {
	return c.verb("retry", "Restart an aborted rollout from its first gate; for a failed one, start a new rollout",
		"  lockstep rollout retry rollout_12 --reason 'the quota was too small'", (*client.Client).RetryRollout)
}

func (c commands) rolloutRollback() *cobra.Command {
	var in client.RollbackInput
	var watch bool
	var most watchFlags
	cmd := c.Asking("rollback ID", "Cancel a rollout unless it has ended, and roll back to an earlier version set",
		"  lockstep rollout rollback rollout_12 --reason 'slow' --watch\n"+
			"  lockstep rollout rollback rollout_12 --environment production --reason 'incident 99'\n"+
			"  lockstep rollout rollback rollout_12 --to versionset_3", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := most.check(cmd, watch); err != nil {
				return err
			}
			one, err := api.RollbackRollout(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			c.warn(one)
			if watch {
				return c.watch(cmd.Context(), api, one.ID, most)
			}
			return c.Print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&in.VersionSet, "to", "", "roll back to this earlier `version set`; by default to what was live before")
	cmd.Flags().StringSliceVar(&in.Environments, "environment", nil, "roll back only this `environment`; repeatable, or separated by commas")
	cmd.Flags().StringSliceVar(&in.Environments, "only", nil, "the same as --environment")
	cmd.Flags().StringSliceVar(&in.Exclude, "exclude", nil, "leave this `environment` as it is; repeatable, or separated by commas")
	cmd.Flags().BoolVar(&in.BreakGlass, "break-glass", false,
		"pass its approvals and checks without the consent of others; requires --reason, and is visible to everybody")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the journal")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the new rollout")
	most.add(cmd, "with --watch,")
	return cmd
}

func (c commands) rolloutBreakGlass() *cobra.Command {
	cmd := c.verb("break-glass", "Pass the approvals of a rollout, and the checks of a rollback, alone; journal, metric and alert report it",
		"  lockstep rollout break-glass rollout_12 --reason 'incident 99: alone on call'", (*client.Client).BreakGlass)
	cmd.PreRunE = requireReason
	return cmd
}

// requireReason refuses a command without --reason.
func requireReason(cmd *cobra.Command, _ []string) error {
	if reason, err := cmd.Flags().GetString("reason"); err != nil || strings.TrimSpace(reason) == "" {
		return fault.New(fault.Invalid, "missing reason; expected --reason, which is kept in the journal")
	}
	return nil
}

func (c commands) rolloutBypassFreeze() *cobra.Command {
	cmd := c.verb("bypass-freeze", "Let a rollout past the freezes that stop it now; the journal and a metric report it",
		"  lockstep rollout bypass-freeze rollout_12 --reason 'incident 99: the fix'", (*client.Client).BypassFreeze)
	cmd.PreRunE = requireReason
	return cmd
}

func (c commands) rolloutKeep() *cobra.Command {
	cmd := c.verb("keep", "Call off the automatic rollback of a rollout; what it deployed stays",
		"  lockstep rollout keep rollout_12 --reason 'we are looking at it'", (*client.Client).StopAutomaticRollback)
	cmd.PreRunE = requireReason
	return cmd
}
