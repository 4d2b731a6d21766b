package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

const (
	watchInterval = 500 * time.Millisecond
	// patience is how long a watch goes on while the API does not answer.
	patience = 2 * time.Minute
)

func (c *command) rolloutWatch() *cobra.Command {
	return c.asking("watch ID", "Follow a rollout to its end: one line for each entry of its journal",
		"  lockstep rollout watch rollout_12\n  lockstep rollout watch rollout_12 -o json | jq .event", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			return c.watch(cmd.Context(), api, args[0])
		})
}

// watch prints what is new in the journal until the rollout is over. A short absence of the API does not end it.
func (c *command) watch(ctx context.Context, api *client.Client, id string) error {
	seen := 0
	lastAnswer := c.clock.Now()
	for {
		r, err := api.Rollout(ctx, id)
		switch {
		case err == nil:
			lastAnswer = c.clock.Now()
			for _, t := range r.Journal[min(seen, len(r.Journal)):] {
				if err := c.watched(r, t); err != nil {
					return err
				}
			}
			seen = len(r.Journal)
			if r.Over() {
				return c.watchEnd(r)
			}
		case !fault.Is(err, fault.Unavailable) || c.clock.Now().Sub(lastAnswer) > patience:
			return err
		}
		if err := clock.Sleep(ctx, c.clock, watchInterval); err != nil {
			return err
		}
	}
}

// watched prints one entry: a line for people, or one JSON object on a line.
func (c *command) watched(r client.Rollout, t client.Transition) error {
	if c.output != "table" {
		text, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("encode transition: %w", err)
		}
		if c.output == "yaml" {
			fmt.Fprintln(c.out, "---")
			return printYAML(c.out, t)
		}
		fmt.Fprintf(c.out, "%s\n", text)
		return nil
	}
	fmt.Fprintln(c.out, t.CreatedAt.Local().Format("15:04:05"), journal.Line(r, t))
	return nil
}

func (c *command) watchEnd(r client.Rollout) error {
	if r.State != "COMPLETED" {
		reason := ""
		if n := len(r.Journal); n > 0 && r.Journal[n-1].Reason != "" {
			reason = ": " + r.Journal[n-1].Reason
		}
		return notCompletedError{fmt.Sprintf("%s %s%s", r.ID, journal.Human(r.State), reason)}
	}
	return nil
}
