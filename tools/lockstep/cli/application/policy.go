package application

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// rollbackPolicy shows what an application does by itself about a rollout that fails, or changes what was named.
func (c commands) rollbackPolicy() *cobra.Command {
	var failed, degraded, inFull bool
	var after time.Duration
	cmd := c.Asking("rollback-policy NAME", "Show or change when an application rolls back automatically",
		"  lockstep application rollback-policy shop\n  lockstep application rollback-policy shop --on-failed=false --degraded-after 10m",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			policy, flags := one.RollbackPolicy, cmd.Flags()
			if flags.Changed("on-failed") {
				policy.OnFailed = failed
			}
			if flags.Changed("on-degraded") {
				policy.OnDegraded = degraded
			}
			if flags.Changed("in-full") {
				policy.InFull = inFull
			}
			if flags.Changed("degraded-after") {
				if after%time.Second != 0 {
					return fault.New(fault.Invalid, "degraded-after: found %s; expected whole seconds", after)
				}
				policy.DegradedAfterSeconds = int(after / time.Second)
			}
			if policy != one.RollbackPolicy {
				if one, err = api.SetRollbackPolicy(cmd.Context(), one.ID, policy); err != nil {
					return err
				}
			}
			return c.Print(one.RollbackPolicy, func(w io.Writer) { rollbackPolicyTable(w, one.RollbackPolicy) })
		})
	cmd.Flags().BoolVar(&failed, "on-failed", true, "roll back at once when a rollout fails")
	cmd.Flags().BoolVar(&degraded, "on-degraded", true, "roll back when a service has been degraded for --degraded-after")
	cmd.Flags().BoolVar(&inFull, "in-full", false, "promote rollbacks in full at once, without stopping at weight gates")
	command.DurationFlag(cmd, &after, "degraded-after", 30*time.Minute, "how long a service may be degraded before the rollback")
	return cmd
}

// rolloutPolicy shows how an application's rollouts deal with failures and with each other, or changes what was named.
func (c commands) rolloutPolicy() *cobra.Command {
	var onFailure, onNewer string
	cmd := c.Asking("rollout-policy NAME", "Show or change how rollouts react to failures and newer version sets",
		"  lockstep application rollout-policy shop\n  lockstep application rollout-policy shop --on-failure abort --on-newer queue",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			policy := one.RolloutPolicy
			if cmd.Flags().Changed("on-failure") {
				policy.OnFailure = onFailure
			}
			if cmd.Flags().Changed("on-newer") {
				policy.OnNewer = onNewer
			}
			if policy != one.RolloutPolicy {
				if one, err = api.SetRolloutPolicy(cmd.Context(), one.ID, policy); err != nil {
					return err
				}
			}
			return c.Print(one.RolloutPolicy, func(w io.Writer) {
				command.Row(w, "ON FAILURE", "ON A NEWER VERSION SET")
				command.Row(w, journal.Human(one.RolloutPolicy.OnFailure), journal.Human(one.RolloutPolicy.OnNewer))
			})
		})
	command.WordFlag(cmd, &onFailure, "on-failure", "stop", "what happens when a rollout fails", []string{"stop", "abort", "rollback"})
	command.WordFlag(cmd, &onNewer, "on-newer", "refuse", "what happens to a newer version set while a rollout is active",
		[]string{"refuse", "queue", "supersede"})
	return cmd
}

func rollbackPolicyTable(w io.Writer, p client.RollbackPolicy) {
	command.Row(w, "WHEN A ROLLOUT", "ROLLS BACK")
	command.Row(w, "failed", when(p.OnFailed, "at once"))
	command.Row(w, "is degraded", when(p.OnDegraded, fmt.Sprintf("after %s", time.Duration(p.DegradedAfterSeconds)*time.Second)))
}

func when(on bool, text string) string {
	if on {
		return text
	}
	return "only manually"
}
