package demo

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

const (
	followInterval = 100 * time.Millisecond
	// rolloutLimit bounds one rollout of a world that does not say otherwise.
	rolloutLimit = 3 * time.Minute
)

// Hooks are called with what happens to a rollout that is followed. Each may be nil.
type Hooks struct {
	// Row is called with each new row of the journal.
	Row func(r client.Rollout, t client.Transition)
	// Gate is called when a gate waits for approval; nil approves it silently.
	Gate func(ctx context.Context, r client.Rollout, g client.Gate) error
}

// Follow follows a rollout to its end, and approves what waits for approval. An API that is away for a while is waited for.
func (w *World) Follow(ctx context.Context, id string, hooks Hooks) (client.Rollout, error) {
	limit := w.Patience
	if limit == 0 {
		limit = rolloutLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last client.Rollout
	seen, resolved := 0, map[string]bool{}
	for {
		r, err := w.API.Rollout(ctx, id)
		switch {
		case err == nil:
			last = r
			for ; seen < len(r.Journal); seen++ {
				if hooks.Row != nil {
					hooks.Row(r, r.Journal[seen])
				}
			}
			if r.Over() {
				return r, nil
			}
			if err := w.resolve(ctx, r, resolved, hooks); err != nil {
				return r, err
			}
		case !fault.Is(err, fault.Unavailable) && ctx.Err() == nil:
			return last, err
		}
		if err := clock.Sleep(ctx, w.Clock, cmp.Or(w.Interval, followInterval)); err != nil {
			return last, fmt.Errorf("follow %s: %w; it is %s", id, err, describe(last))
		}
	}
}

// resolve approves the gates of a rollout that it has not approved yet.
func (w *World) resolve(ctx context.Context, r client.Rollout, resolved map[string]bool, hooks Hooks) error {
	for _, g := range r.OpenGates {
		if resolved[g.GateID] {
			continue
		}
		if hooks.Gate != nil {
			if err := hooks.Gate(ctx, r, g); err != nil {
				return err
			}
		}
		_, err := w.API.ApproveGate(ctx, r.ID, g.GateID, "staging looks good")
		if fault.Is(err, fault.Unavailable) {
			return nil // the next look finds the gate still open, or not
		}
		if err != nil {
			return fmt.Errorf("approve gate %q of %s: %w", g.GateID, r.ID, err)
		}
		resolved[g.GateID] = true
	}
	return nil
}

// describe says where a rollout stands in one line.
func describe(r client.Rollout) string {
	text := r.State
	for _, e := range r.Environments {
		text += "; " + e.Environment.Name + " " + e.State
		for _, d := range e.Deployments {
			text += ", " + d.Service.Name + " " + d.State
		}
	}
	return text
}
