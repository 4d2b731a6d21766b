package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// The workflow service is killed whenever the deploy program has recorded another step: kill -9 between any two of its
// commits, including those that its successors make.
func TestWorkflowServiceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	ctx, w := setup(t, oneStage())
	set, err := w.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	r := w.roll(ctx, t, set, func(ctx context.Context, r client.Rollout) error {
		kills, err = w.killAtEachStep(ctx, t, r)
		return err
	})
	w.expectAllGates(t, r)
	if least := 10; kills < least {
		t.Errorf("the service was killed %d times, want at least %d: the program has more steps than that", kills, least)
	}
	t.Logf("%s completed through %d kills", r.ID, kills)
}

// killAtEachStep kills the workflow service each time the history has grown since its last life, until ctx ends.
func (w *world) killAtEachStep(ctx context.Context, t *testing.T, r client.Rollout) (kills int, err error) {
	t.Helper()
	conn, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	query := fmt.Sprintf(`SELECT e.last_seq FROM %s.execution e WHERE e.workflow = $1`, pgx.Identifier{w.stack.Schema("workflow")}.Sanitize())
	workflow := strings.Replace(r.ID, "_", "-", 1)
	var killedAt int64
	for {
		var seq int64
		err := conn.QueryRow(ctx, query, workflow).Scan(&seq)
		switch {
		case ended(ctx):
			return kills, nil
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return kills, err
		case seq > killedAt:
			// Not even until it is ready does a successor live, if it records something before that.
			_, err := w.stack.Kill("workflow")
			if err != nil && !fault.Is(err, fault.Unavailable) {
				return kills, err
			}
			if err == nil {
				kills, killedAt = kills+1, seq
			}
		}
		if clock.Sleep(ctx, clock.System(), time.Millisecond) != nil {
			return kills, nil
		}
	}
}

// Every other process is killed once in the middle of one rollout, one after the other.
func TestEveryOtherProcessKilled(t *testing.T) {
	t.Parallel()
	ctx, w := setup(t, oneStage())

	// The registries die before they have passed on what they received.
	set, err := w.PushWhile(ctx, "2.0.0", func() error {
		for _, part := range []string{"registry", "oci"} {
			if _, err := w.stack.Kill(part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var killed []string
	r := w.roll(ctx, t, set, func(ctx context.Context, _ client.Rollout) error {
		for _, part := range []string{"domain", "relay", "nats", "simcluster", "git", "registry"} {
			starts, err := w.stack.Kill(part)
			if err == nil {
				err = w.stack.AwaitRestart(ctx, part, starts)
			}
			if ended(ctx) {
				return nil
			}
			if err != nil {
				return err
			}
			killed = append(killed, part)
		}
		return nil
	})
	w.expectAllGates(t, r)
	if len(killed) != 6 {
		t.Errorf("killed %q before the rollout was over, want six processes", killed)
	}
}

// Losing every stream, consumer and message in the middle of a rollout loses nothing (D44).
func TestStreamsWiped(t *testing.T) {
	t.Parallel()
	ctx, w := setup(t, oneStage())
	set, err := w.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	wiped := 0
	r := w.roll(ctx, t, set, func(ctx context.Context, _ client.Rollout) error {
		for range 3 {
			starts, err := w.stack.WipeStreams()
			if err == nil {
				err = w.stack.AwaitRestart(ctx, "nats", starts)
			}
			if ended(ctx) {
				return nil
			}
			if err != nil {
				return err
			}
			wiped++
			_ = clock.Sleep(ctx, clock.System(), time.Second) // cut short when the rollout is over
		}
		return nil
	})
	w.expectAllGates(t, r)
	if wiped == 0 {
		t.Error("the rollout was over before the streams were wiped")
	}
}
