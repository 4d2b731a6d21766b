package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The world of a scenario: its clock, and its Functions, which keep their effects by key.

// world is what a scenario acts on: the functions, which keep what they did under its key, and the clock.
type world struct {
	t            *testing.T
	pool         *pgxpool.Pool
	organization int64
	clock        *clocktest.Clock
	mu           sync.Mutex
	answers      map[string][]json.RawMessage
	// answered are the functions that have answers.
	answered []string
	effects  []string
	done     map[string]json.RawMessage
	// failures counts the attempts that failed because the scenario says how many do.
	failures map[string]int
	// start is what the run was started with: its program is replaced by that of a change. changed are the programs to change to.
	start   execution.Start
	changed map[string][]byte
	// lowered is set if a process kept smaller values by digest than a service does.
	lowered bool
}

// carryOut has the effect once for each key, and answers the same again for the same key.
func (w *world) carryOut(function, key string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer, known := w.done[key]
	if !known {
		list := w.answers[function]
		if len(list) == 0 {
			w.t.Errorf("no answer for %s", function)
			return nil, &history.FunctionError{Code: "unscripted"}
		}
		answer = repeated(list[0])
		if len(list) > 1 {
			w.answers[function] = list[1:]
		}
		w.done[key] = answer
		handle, op, _ := strings.Cut(key, "/")
		_, generation, _ := strings.Cut(handle, "~")
		if generation != "" {
			op = generation + ":" + op
		}
		w.effects = append(w.effects, function+" "+op)
	}
	var failed struct {
		Error *history.FunctionError `json:"$error"`
		Times int                    `json:"$times"`
		SHA   string                 `json:"sha"`
	}
	if json.Unmarshal(answer, &failed) != nil || failed.Error == nil {
		return answer, nil
	}
	if failed.Times == 0 {
		return nil, failed.Error
	}
	// A repeat under one key is an attempt more at the same thing. What has succeeded keeps its answer.
	if w.failures[key]++; w.failures[key] <= failed.Times {
		return nil, failed.Error
	}
	return json.RawMessage(`"` + failed.SHA + `"`), nil
}

// repeated is an answer, in full.
func repeated(answer json.RawMessage) json.RawMessage {
	var long struct {
		Repeat int `json:"$repeat"`
	}
	if json.Unmarshal(answer, &long) != nil || long.Repeat == 0 {
		return answer
	}
	return json.RawMessage(`"` + strings.Repeat("x", long.Repeat) + `"`)
}

// shown is the scenario's clock with timers of the real one, so that loops run while the scenario's time stands still.
type shown struct{ *clocktest.Clock }

func (shown) NewTimer(d time.Duration) clock.Timer { return clock.System().NewTimer(d) }

type function struct {
	name string
	*world
}

func (f function) Name() string { return f.name }

func (f function) Location() activity.Location { return activity.InProcess }

func (function) Effect() activity.Effect { return activity.Reads }

func (f function) Call(_ context.Context, call activity.Call) (any, error) {
	return f.carryOut(call.Function, call.ID)
}

// relay answers calls at once, and twice; calls of functions without answers it never answers.
type relay struct {
	*world
	service *control.Service
}

func (r relay) Send(ctx context.Context, call agent.OutgoingCall) error {
	if !slices.Contains(r.answered, call.Function) {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // see steady
	value, err := r.carryOut(call.Function, call.ID)
	answer := agent.Answer{Call: call.ID, Agent: call.Agent, Value: value}
	if err != nil {
		answer.Error = history.AsFunctionError(err)
	}
	return errors.Join(r.service.Answer(ctx, answer), r.service.Answer(ctx, answer))
}

// onCluster reports whether a relay carries the Function out.
func onCluster(name string) bool {
	return strings.HasPrefix(name, "k8s.") || strings.HasPrefix(name, "argo.")
}
