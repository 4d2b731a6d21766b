package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// leaving is a shop whose driver has a program for cancelled rollouts.
func leaving(t *testing.T) *shop {
	t.Helper()
	dir := t.TempDir()
	for name, text := range letter(t, "one", "v1") {
		if strings.HasSuffix(name, "manifest.json") {
			text = []byte(strings.Replace(strings.Replace(string(text), `"letter"`, `"paper"`, 1), `"deploy":`, `"cancelled":"v1/cancelled.star","deploy":`, 1))
		}
		path := filepath.Join(dir, "paper", name)
		for path, text := range map[string][]byte{
			path: text, filepath.Join(dir, "paper", "v1", "cancelled.star"): []byte(`print(cancelled["environments"])` + "\n"),
		} {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return shopOf(setupWith(t, clock.System(), Config{DriverDir: dir}))
}

// afterwards are the runs that stop what rollouts have left behind.
func (s *shop) afterwards() (found []handoff.Workflow) {
	for _, w := range s.engine.started {
		if strings.HasSuffix(w.ID, "-cancelled") {
			found = append(found, w)
		}
	}
	return found
}

func (s *shop) cancelled(r core.Rollout) {
	s.t.Helper()
	_, err := s.rollouts.CancelRollout(s.t.Context(), user(), r.ID, "enough")
	s.ok(err)
}

// revocations are the events about the end of rollouts, for the engine.
func (s *shop) revocations() (found []string) {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT (event->'data')::jsonb::text FROM outbox WHERE event->>'type' = 'com.gitlab.cd.rollout.passages_revoked' ORDER BY 1 DESC`)
	s.ok(err)
	defer rows.Close()
	for rows.Next() {
		var data string
		s.ok(rows.Scan(&data))
		found = append(found, data)
	}
	s.ok(rows.Err())
	return found
}

// D53, R2-34: a cancellation starts the program of the driver for it, once, with what the rollout's run was started with and the
// environments that the rollout was let into and has not completed. The end of that run changes nothing of the record, whatever it is.
func TestACancellationStartsTheProgramForIt(t *testing.T) {
	t.Parallel()
	s := leaving(t)
	r := s.rollout(s.set)
	s.handOver()
	s.enter(r, "staging")
	s.cancelled(r)
	s.want(s.revocations(), []string{fmt.Sprintf(`{"cancelled": true, "rollout_id": 1, "environment_ids": [%d]}`, s.staging.ID)})
	s.handOver()
	s.handOver()
	started := s.afterwards()
	if len(started) != 1 || started[0].ID != "rollout-1-cancelled" || !strings.Contains(string(started[0].Program.Source), "cancelled[") {
		t.Fatalf("found %+v, expected one run of the program", started)
	}
	s.want(started[0].Labels, map[string]string{"subject": "rollout_1", "program": "cancelled"})
	var in, own map[string]any
	s.ok(json.Unmarshal(started[0].Inputs, &in))
	s.ok(json.Unmarshal(s.inputsOfRun(r), &own))
	own["cancelled"] = map[string]any{"environments": []any{float64(s.staging.ID)}}
	s.want(in, own)
	s.want(s.engine.cancels, []string{"rollout-1"})
	before := s.story(r)
	s.deliver(s.emit(event.WorkflowFailed{WorkflowID: "rollout-1-cancelled", Error: "the Argo Server does not answer"}, "rollout-1-cancelled"))
	s.deliver(s.emit(event.WorkflowCompleted{WorkflowID: "rollout-1-cancelled"}, "rollout-1-cancelled"))
	s.want(s.story(r), before)
}

// What ends by itself has no such run, nor what was cancelled before its run was handed over, or before it was let into
// an environment that it has not completed.
func TestWhatWasNotStartedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := leaving(t)
	first := s.rollout(s.set)
	s.cancelled(first)
	s.handOver()
	second := s.rollout(s.set)
	s.handOver()
	s.report(event.RolloutFailed{RolloutID: second.ID, Reason: "no"})
	s.handOver()
	third := s.rollout(s.set)
	s.handOver()
	s.enter(third, "staging")
	s.report(event.RolloutEnvironmentStarted{RolloutID: third.ID, EnvironmentID: s.staging.ID})
	s.report(event.RolloutEnvironmentHealthy{RolloutID: third.ID, EnvironmentID: s.staging.ID})
	s.cancelled(third)
	s.handOver()
	s.want(len(s.afterwards()), 0)
	s.want(s.revocations(), []string{`{"rollout_id": 2}`, `{"cancelled": true, "rollout_id": 3}`, `{"cancelled": true, "rollout_id": 1}`})
}

// A driver without the program has no run, and nothing is tried again.
func TestADriverWithoutTheProgramIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.handOver()
	s.enter(r, "staging")
	s.cancelled(r)
	s.handOver()
	s.want(len(s.afterwards()), 0)
	s.want(s.countOf(`SELECT count(*) FROM cd_handoffs WHERE state = 'pending'`), 0)
}

// A process that dies as it hands the run over, and an engine that is away, lose nothing: it is started later, under the same id.
func TestTheRunAfterACancellationIsNotLost(t *testing.T) {
	t.Parallel()
	s := leaving(t)
	r := s.rollout(s.set)
	s.handOver()
	s.enter(r, "staging")
	s.cancelled(r)
	s.engine.answer = fault.New(fault.Unavailable, "away")
	for range 2 { // the cancellation of the run, and the start
		if _, _, err := s.handoffs.HandOver(t.Context(), s.engine); !fault.Is(err, fault.Unavailable) {
			t.Errorf("found %v, expected that the engine is away", err)
		}
	}
	s.engine.answer = nil
	due := func() {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), `UPDATE cd_handoffs SET due_at = now() - interval '1 minute' WHERE state = 'pending'`)
		s.ok(err)
	}
	due()
	// The engine has it, and the process is gone before it has settled that.
	gone, cancel := context.WithCancel(t.Context())
	killed := &vanishing{engine: s.engine, then: cancel}
	for range 2 {
		if _, _, err := s.handoffs.HandOver(gone, killed); err != nil {
			break
		}
	}
	due()
	s.handOver()
	ids := []string{}
	for _, w := range s.afterwards() {
		ids = append(ids, w.ID)
	}
	s.want(slices.Compact(ids), []string{"rollout-1-cancelled"})
	s.want(s.countOf(`SELECT count(*) FROM cd_handoffs WHERE subject_kind = 'cancellation' AND state = 'done'`), 1)
}

// vanishing is an engine whose caller is gone once a run was started.
type vanishing struct {
	*engine
	then func()
}

func (d *vanishing) Start(ctx context.Context, w handoff.Workflow) (string, error) {
	defer d.then()
	return d.engine.Start(ctx, w)
}
