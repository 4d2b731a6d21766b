package domain

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// jobEvents are the two reports of an attempt at a job in staging.
func (s *shop) jobEvents(r core.Rollout, attempt int, result string) (event.Data, event.Data) {
	return event.RolloutEnvironmentJobStarted{RolloutID: r.ID, EnvironmentID: s.staging.ID, Job: "migrate", When: "before", Attempt: attempt},
		event.RolloutEnvironmentJobEnded{
			RolloutID: r.ID, EnvironmentID: s.staging.ID, Job: "migrate", When: "before", Attempt: attempt, Result: result,
			Reason: "exit code 3", Log: "no such table",
		}
}

// D54, R4-23: the result of a job and the end of its log are part of the journal, once, however often they are reported; and none after
// the end.
func TestJobsAreInTheJournal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID})
	for attempt, result := range []string{"failed", "succeeded"} {
		started, ended := s.jobEvents(r, attempt+1, result)
		first, second := s.emit(started, ""), s.emit(ended, "")
		s.deliver(first, second, first, second)
		s.report(started)
		s.report(ended)
	}
	s.want(s.ownStory(r), []string{
		"rollout create →pending", "rollout start pending→in_progress", "rollout pass_gate in_progress→in_progress",
		"rollout start_job in_progress→in_progress", "rollout end_job in_progress→in_progress",
		"rollout start_job in_progress→in_progress", "rollout end_job in_progress→in_progress",
	})
	var gate, reason string
	s.ok(s.pool.QueryRow(t.Context(),
		`SELECT gate_id, reason FROM cd_rollout_transitions WHERE event = 'end_job' ORDER BY id LIMIT 1`).Scan(&gate, &reason))
	s.want([]string{gate, reason}, []string{"staging/before/migrate#1", "failed: exit code 3\nno such table"})
	s.verifyJournal(r)

	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "enough"})
	before := len(s.ownStory(r))
	started, ended := s.jobEvents(r, 3, "succeeded")
	s.report(started)
	s.report(ended)
	if after := len(s.ownStory(r)); after != before {
		t.Errorf("%d rows after the end of the rollout, expected none", after-before)
	}
}
