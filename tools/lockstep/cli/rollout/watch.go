package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

func (c commands) rolloutWatch() *cobra.Command {
	var most watchFlags
	cmd := c.Asking("watch ID", "Follow a rollout to its end, with a line for each new entry of its journal",
		"  lockstep rollout watch rollout_12\n  lockstep rollout watch rollout_12 --until approval --timeout 10m\n  lockstep rollout watch rollout_12 -o json | jq .event", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := most.check(cmd, true); err != nil {
				return err
			}
			return c.watch(cmd.Context(), api, args[0], most)
		})
	cmd.Long = cmd.Short + `.

It follows the journal's stream, and resumes where it was when the connection breaks. With --until gate it ends as soon as the rollout waits at
a gate (for an approval, a soak time or to be resumed), with --until approval as soon as it waits for an approval. The exit code says how it ended:
  0   completed, or reached what --until names
  7   failed, or --timeout ran out; the rollout continues
  9   cancelled
  10  superseded: a newer version set took its place
  6   the API did not answer for two minutes; the rollout continues`
	most.add(cmd, "")
	return cmd
}

// watchFlags are how far a rollout is watched.
type watchFlags struct {
	until   string
	timeout time.Duration
}

// add gives a command its flags; with names the flag that they belong to, where there is one.
func (f *watchFlags) add(cmd *cobra.Command, with string) {
	command.WordFlag(cmd, &f.until, "until", "end", strings.TrimSpace(with+" when to stop watching"), []string{"gate", "approval", "end"})
	command.TimeoutFlag(cmd, &f.timeout, 0, strings.TrimSpace(with+" how long to watch at most; then the exit code is 7. 0 for no limit"))
}

// check refuses flags before anything is changed.
func (f *watchFlags) check(cmd *cobra.Command, watch bool) error {
	if f.timeout < 0 {
		return fault.New(fault.Invalid, "timeout: found %s; expected zero or more", f.timeout)
	}
	if !watch && (cmd.Flags().Changed("until") || cmd.Flags().Changed("timeout")) {
		return fault.New(fault.Invalid, "--until and --timeout require --watch")
	}
	return nil
}

// reached reports whether a rollout waits for what it is watched for.
func (f *watchFlags) reached(r client.Rollout) bool {
	return slices.ContainsFunc(r.WaitingOn, func(one client.Wait) bool {
		switch f.until {
		case "APPROVAL":
			return one.Kind == "APPROVAL"
		case "GATE":
			return one.Kind == "APPROVAL" || one.Kind == "SOAK" || one.Kind == "PAUSE"
		default:
			return false
		}
	})
}

// watch prints what the journal has, and then what is written to it, until the rollout is over or has come as far as asked. Rows are read
// by the rollout's own journal, each once; the stream says when. A short absence of the API does not end it.
func (c commands) watch(ctx context.Context, api *client.Client, id string, most watchFlags) error {
	interrupted := ctx
	if most.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most.timeout)
		defer cancel()
	}
	w := &watching{commands: c, api: api, id: id, most: most, lastAnswer: c.Clock.Now()}
	for {
		over, err := w.round(ctx)
		switch {
		case over && !w.rollout.Over():
			_, err := w.show(ctx) // the rows that say so may have been written after those that came with it
			return err
		case over:
			return c.watchEnd(w.rollout)
		case ctx.Err() != nil && interrupted.Err() == nil:
			return w.timedOut()
		case err == nil: // the server has ended the stream, as it does now and then
		case !fault.Is(err, fault.Unavailable) || c.Clock.Now().Sub(w.lastAnswer) > command.Patience:
			return err
		default:
			if err := clock.Sleep(ctx, c.Clock, command.WatchPause); err != nil {
				if interrupted.Err() == nil {
					return w.timedOut()
				}
				return err
			}
		}
	}
}

// timedOut is a watch that ended before the rollout did.
func (w *watching) timedOut() error {
	how := "is unknown"
	if w.rollout.ID != "" {
		how = "is " + journal.Human(w.rollout.Status)
	}
	if waits := waitsFor(w.rollout); len(waits) > 0 {
		how += " and waits for " + strings.Join(waits, ", ")
	}
	return command.Exit(command.ExitNotCompleted, fmt.Errorf("timed out after %s: %s %s; it continues", w.most.timeout, w.id, how))
}

// watching is how far a watch has come.
type watching struct {
	commands
	api     *client.Client
	id      string
	most    watchFlags
	rollout client.Rollout
	// shown is the cursor of the last row of the rollout that was printed; stream is the cursor in the organization's journal
	// from which the stream resumes.
	shown, stream string
	lastAnswer    time.Time
}

// errOver ends a stream whose rollout is over, or has come as far as asked.
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
		w.lastAnswer = w.Clock.Now() // a quiet stream was an answer for as long as it lasted
	}
	if errors.Is(err, errOver) {
		return true, nil
	}
	return false, err
}

// show prints the rows that have not been printed, and reports whether the rollout is over, or has come as far as asked.
func (w *watching) show(ctx context.Context) (over bool, err error) {
	r, cursor, err := w.api.RolloutSince(ctx, w.id, w.shown)
	if err != nil {
		return false, err
	}
	w.lastAnswer = w.Clock.Now()
	for _, t := range r.Journal {
		if err := w.watched(r, t); err != nil {
			return false, err
		}
	}
	if n := len(r.Journal); n == 0 {
		r.Journal = w.rollout.Journal // the last rows there were, which say why it ended
	}
	w.rollout, w.shown = r, cursor
	return r.Over() || w.most.reached(r), nil
}

// watched prints one entry: a line for people, or one JSON object on a line.
func (c commands) watched(r client.Rollout, t client.Transition) error {
	if c.Output != "table" {
		encoded, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("encode transition: %w", err)
		}
		if c.Output == "yaml" {
			fmt.Fprintln(c.Out, "---")
			return command.PrintYAML(c.Out, t)
		}
		fmt.Fprintf(c.Out, "%s\n", encoded)
		return nil
	}
	fmt.Fprintln(c.Out, t.CreatedAt.Local().Format("15:04:05"), text.Line(journal.Line(r, t)))
	return nil
}

func (c commands) watchEnd(r client.Rollout) error {
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
	return command.Exit(endOf(r, reason), errors.New(message))
}

// endOf is the exit code of a rollout that did not complete. The API has no word of its own for one that was superseded: the
// journal's reason says so.
func endOf(r client.Rollout, reason string) int {
	switch {
	case r.State != "CANCELLED":
		return command.ExitNotCompleted
	case strings.HasPrefix(reason, supersededBy):
		return command.ExitSuperseded
	default:
		return command.ExitCancelled
	}
}

// supersededBy begins the reason of a rollout that a newer version set took the place of.
const supersededBy = "superseded by "
