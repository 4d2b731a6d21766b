package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// verb is what is done to one rollout, for a reason.
func (c *command) verb(verb, short, example string, do func(api *client.Client, ctx context.Context, rollout, reason string) (client.Rollout, error)) *cobra.Command {
	var reason string
	cmd := c.asking(verb+" ID", short, example, exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := do(api, cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c *command) rolloutPause() *cobra.Command {
	return c.verb("pause", "Hold a rollout at the gate where it stands, or, on its way, at the next one",
		"  lockstep rollout pause rollout_12 --reason 'incident 81'", (*client.Client).PauseRollout)
}

func (c *command) rolloutResume() *cobra.Command {
	return c.verb("resume", "Let a rollout that is held go on",
		"  lockstep rollout resume rollout_12 --reason 'incident 81 is over'", (*client.Client).ResumeRollout)
}

func (c *command) rolloutAbort() *cobra.Command {
	return c.verb("abort", "Take what is being deployed back to the version that was stable, and stay there",
		"  lockstep rollout abort rollout_12 --reason 'errors at 25 %'", (*client.Client).AbortRollout)
}

func (c *command) rolloutRetry() *cobra.Command {
	return c.verb("retry", "Start an aborted rollout again from its first gate; of one that has failed, begin another",
		"  lockstep rollout retry rollout_12 --reason 'the quota was too small'", (*client.Client).RetryRollout)
}

func (c *command) rolloutRollback() *cobra.Command {
	var in client.RollbackInput
	var watch bool
	var most watchFlags
	cmd := c.asking("rollback ID", "End a rollout, if it has not ended, and go back to an earlier version set",
		"  lockstep rollout rollback rollout_12 --reason 'slow' --watch\n"+
			"  lockstep rollout rollback rollout_12 --environment production --reason 'incident 99'\n"+
			"  lockstep rollout rollback rollout_12 --to versionset_3", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := most.check(cmd, watch); err != nil {
				return err
			}
			one, err := api.RollbackRollout(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			if watch {
				return c.watch(cmd.Context(), api, one.ID, most)
			}
			return c.print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&in.VersionSet, "to", "", "this `version set`, any earlier one; by default what was live before")
	cmd.Flags().StringSliceVar(&in.Environments, "environment", nil, "roll back only this `environment`; again, or with commas, for more")
	cmd.Flags().StringSliceVar(&in.Exclude, "exclude", nil, "leave this `environment` as it is; again, or with commas, for more")
	cmd.Flags().BoolVar(&in.BreakGlass, "break-glass", false, "pass its approvals without anybody else's consent; needs --reason, and everybody sees it")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the journal")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the new rollout")
	most.add(cmd, "with --watch,")
	return cmd
}

func (c *command) rolloutBreakGlass() *cobra.Command {
	cmd := c.verb("break-glass", "Pass the approvals of a rollout without anybody else's consent; the journal, a metric and an alert tell of it",
		"  lockstep rollout break-glass rollout_12 --reason 'incident 99: alone on call'", (*client.Client).BreakGlass)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if reason, err := cmd.Flags().GetString("reason"); err != nil || strings.TrimSpace(reason) == "" {
			return fault.New(fault.Invalid, "missing reason; expected --reason, which is kept in the journal")
		}
		return nil
	}
	return cmd
}

func (c *command) rolloutKeep() *cobra.Command {
	return c.verb("keep", "Stop the automatic rollback that is due for a rollout: what it deployed stays",
		"  lockstep rollout keep rollout_12 --reason 'we are looking at it'", (*client.Client).StopAutomaticRollback)
}
