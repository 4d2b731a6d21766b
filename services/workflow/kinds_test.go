package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script/scripttest"
)

// TestARunThatWasReadFromTheDatabaseHasItsValues replaces the process before a function reaches any of the values: a process that
// dies loses none of them, of whatever kind. Each builtin that takes a function has its turn.
func TestARunThatWasReadFromTheDatabaseHasItsValues(t *testing.T) {
	t.Parallel()
	for _, use := range scripttest.Uses() {
		t.Run(use.Builtin, func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			paused := make(chan struct{}, 1)
			act := func(replaced bool) behaviour {
				return func(ctx context.Context, c activity.Call) (any, error) {
					now := clock.System().Now()
					if token, ok := c.Args["reply_to"].(string); ok {
						if _, err := e.service.SendToChannel(ctx,
							history.Message{Organization: 1, Token: token, ID: "m", Data: json.RawMessage(`[1]`)}); err != nil {
							return nil, err
						}
					}
					if c.Args["tick"] != nil {
						tick := history.Event{
							Organization: 1, Source: "/test", ID: c.ID, Type: scripttest.Tick,
							Data: json.RawMessage(`{"a": [1]}`), Time: now,
						}
						if _, _, err := e.service.Receive(ctx, tick); err != nil {
							return nil, err
						}
					}
					if c.Args["pause"] != nil && !replaced {
						paused <- struct{}{}
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return c.Args, nil
				}
			}
			stop := e.runWith("one", e.store, act(false), 1000)
			inputs := scripttest.Inputs
			if use.Builtin == "on_event" {
				inputs = fmt.Sprintf(`%s, %q: {"handler": "handle", "event": {"data": {"a": [1]}}}}`, strings.TrimSuffix(inputs, "}"),
					program.HandlerInput)
			}
			_, err := e.service.StartOfFlow(t.Context(), execution.Start{
				Organization: 1, Workflow: "w", Inputs: []byte(inputs),
				Program: program.Program{Source: []byte(scripttest.Program(use, scripttest.Kinds())), Modules: scripttest.Modules()},
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-paused:
			case <-t.Context().Done():
				t.Fatal("the run did not come to its pause")
			}
			stop()
			e.runWith("two", e.store, act(true), 1000)
			if w := e.ended("w"); w.State != execution.Completed {
				t.Errorf("ended as %d: %s", w.State, w.Error)
			}
			if use.Builtin == "poll" && len(e.history()) < len(scripttest.Kinds()) {
				t.Errorf("found %d entries, expected a poll for every kind", len(e.history()))
			}
		})
	}
}
