package rollout

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// rolloutTargets lists the targets of a fleet.
func (c commands) rolloutTargets() *cobra.Command {
	var filter client.TargetFilter
	cmd := c.Asking("targets ID", "List the targets of a rollout to a fleet, failed ones first",
		"  lockstep rollout targets rollout_12 --environment production\n"+
			"  lockstep rollout targets rollout_12 --environment production --wave 2 --state failed",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			filter.Rollout = args[0]
			found, err := api.Targets(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return c.Print(found, func(w io.Writer) {
				command.Row(w, "TARGET", "AGENT", "WAVE", "STATE", "FINISHED", "REASON")
				for _, t := range found {
					command.Row(w, t.Name, strconv.FormatInt(t.AgentNumber, 10), command.Number(t.Wave), strings.ToLower(t.State),
						command.Optional(t.FinishedAt), t.Reason)
				}
			})
		})
	cmd.Flags().StringVar(&filter.Environment, "environment", "", "the `environment` that is a fleet")
	cmd.Flags().IntVar(&filter.Wave, "wave", 0, "only this wave; 0 for all")
	command.WordFlag(cmd, &filter.State, "state", "", "only those in this state", []string{"pending", "deploying", "healthy", "failed"})
	command.LimitFlag(cmd, &filter.Limit, 100)
	_ = cmd.MarkFlagRequired("environment")
	return cmd
}

func (c commands) rolloutPauseWave() *cobra.Command {
	return c.wave("pause-wave", "Pause a wave of a fleet: it does not begin, and no later one does",
		"  lockstep rollout pause-wave rollout_12 --environment production --wave 3 --reason 'look first'", (*client.Client).PauseWave)
}

func (c commands) rolloutResumeWave() *cobra.Command {
	return c.wave("resume-wave", "Resume a paused wave of a fleet",
		"  lockstep rollout resume-wave rollout_12 --environment production --wave 3", (*client.Client).ResumeWave)
}

// wave is what is done to one wave, for a reason.
func (c commands) wave(
	verb, short, example string, do func(api *client.Client, ctx context.Context, w client.Wave) (client.Rollout, error),
) *cobra.Command {
	var w client.Wave
	cmd := c.Asking(verb+" ID", short, example, command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
		w.Rollout = args[0]
		one, err := do(api, cmd.Context(), w)
		if err != nil {
			return err
		}
		return c.Print(one, func(out io.Writer) { rolloutTable(out, []client.Rollout{one}) })
	})
	cmd.Flags().StringVar(&w.Environment, "environment", "", "the `environment` that is a fleet")
	cmd.Flags().IntVar(&w.Number, "wave", 0, "the `number` of the wave, from 1")
	cmd.Flags().StringVar(&w.Reason, "reason", "", "why, for the journal")
	_ = cmd.MarkFlagRequired("environment")
	_ = cmd.MarkFlagRequired("wave")
	return cmd
}
