package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

const (
	// watchPause is how long a watch waits before it asks again what did not answer.
	watchPause = 500 * time.Millisecond
	// patience is how long a watch goes on while the API does not answer.
	patience = 2 * time.Minute
)

func (c *command) rolloutWatch() *cobra.Command {
	cmd := c.asking("watch ID", "Follow a rollout to its end: one line for each entry of its journal, as it is written",
		"  lockstep rollout watch rollout_12\n  lockstep rollout watch rollout_12 -o json | jq .event", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			return c.watch(cmd.Context(), api, args[0])
		})
	cmd.Long = cmd.Short + `.

It follows the journal's stream, and goes on where it was when the connection breaks. The exit code says how it ended:
  0   completed
  7   failed
  9   cancelled
  10  superseded: a newer version set took its place
  6   the API did not answer for two minutes; the rollout goes on`
	return cmd
}

// watch prints what the journal has, and then what is written to it, until the rollout is over. Rows are read by the rollout's
// own journal, each once; the stream says when. A short absence of the API does not end it.
func (c *command) watch(ctx context.Context, api *client.Client, id string) error {
	w := &watching{command: c, api: api, id: id, lastAnswer: c.clock.Now()}
	for {
		over, err := w.round(ctx)
		switch {
		case over:
			return c.watchEnd(w.rollout)
		case err == nil: // the server has ended the stream, as it does now and then
		case !fault.Is(err, fault.Unavailable) || c.clock.Now().Sub(w.lastAnswer) > patience:
			return err
		default:
			if err := clock.Sleep(ctx, c.clock, watchPause); err != nil {
				return err
			}
		}
	}
}

// watching is how far a watch has come.
type watching struct {
	*command
	api     *client.Client
	id      string
	rollout client.Rollout
	// shown is the cursor of the last row of the rollout that was printed; stream that of the organization's journal from which
	// the stream goes on.
	shown, stream string
	lastAnswer    time.Time
}

// errOver ends a stream whose rollout is over.
var errOver = errors.New("the rollout is over")

// round follows one stream to its end.
func (w *watching) round(ctx context.Context) (over bool, err error) {
	if w.stream == "" {
		// Taken before the rows are read: what is written between the two is in both, and is printed once.
		if w.stream, err = w.api.JournalCursor(ctx); err != nil {
			return false, err
		}
	}
	if over, err = w.show(ctx); over || err != nil {
		return over, err
	}
	answered := false
	err = w.api.FollowRollout(ctx, w.id, w.stream, func() { answered = true }, func(cursor string) error {
		over, err := w.show(ctx)
		if err != nil {
			return err
		}
		w.stream = cursor
		if over {
			return errOver
		}
		return nil
	})
	if answered {
		w.lastAnswer = w.clock.Now() // a quiet stream was an answer for as long as it lasted
	}
	if errors.Is(err, errOver) {
		return true, nil
	}
	return false, err
}

// show prints the rows that have not been printed, and reports whether the rollout is over.
func (w *watching) show(ctx context.Context) (over bool, err error) {
	r, cursor, err := w.api.RolloutSince(ctx, w.id, w.shown)
	if err != nil {
		return false, err
	}
	w.lastAnswer = w.clock.Now()
	for _, t := range r.Journal {
		if err := w.watched(r, t); err != nil {
			return false, err
		}
	}
	if n := len(r.Journal); n == 0 {
		r.Journal = w.rollout.Journal // the last rows there were, which say why it ended
	}
	w.rollout, w.shown = r, cursor
	return r.Over(), nil
}

// watched prints one entry: a line for people, or one JSON object on a line.
func (c *command) watched(r client.Rollout, t client.Transition) error {
	if c.output != "table" {
		encoded, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("encode transition: %w", err)
		}
		if c.output == "yaml" {
			fmt.Fprintln(c.out, "---")
			return printYAML(c.out, t)
		}
		fmt.Fprintf(c.out, "%s\n", encoded)
		return nil
	}
	fmt.Fprintln(c.out, t.CreatedAt.Local().Format("15:04:05"), text.Line(journal.Line(r, t)))
	return nil
}

func (c *command) watchEnd(r client.Rollout) error {
	if r.State == "COMPLETED" {
		return nil
	}
	reason := ""
	for _, t := range r.Journal {
		if t.Subject == r.ID && t.Reason != "" {
			reason = t.Reason
		}
	}
	message := r.ID + " " + journal.Human(r.State)
	if reason != "" {
		message += ": " + reason
	}
	return notCompletedError{message, endOf(r, reason)}
}

// endOf is the exit code of a rollout that did not complete. The API has no word of its own for one that was superseded: the
// journal's reason says so.
func endOf(r client.Rollout, reason string) int {
	switch {
	case r.State != "CANCELLED":
		return exitNotCompleted
	case strings.HasPrefix(reason, supersededBy):
		return exitSuperseded
	default:
		return exitCancelled
	}
}

// supersededBy begins the reason of a rollout that a newer version set took the place of.
const supersededBy = "superseded by "
