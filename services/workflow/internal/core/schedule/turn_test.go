package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// minutely is due every minute, next at noon.
func minutely(t *testing.T, overlap Overlap) (Schedule, Plan) {
	t.Helper()
	s := Schedule{ID: 7, Name: "m", Spec: Spec{Every: time.Minute}, Overlap: overlap, CatchUp: time.Hour, NextDue: noon}
	plan, err := s.Spec.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return s, plan
}

// shown is a turn as text: what happens to each due time, by its minute after noon.
func shown(turn Turn) (lines []string) {
	for _, f := range turn.Fires {
		lines = append(lines, fmt.Sprintf("%.0f %s", f.Due.Sub(noon).Minutes(), f.State))
	}
	for _, workflow := range turn.Cancel {
		lines = append(lines, "cancel "+workflow)
	}
	return append(lines, fmt.Sprintf("start %d", len(turn.Start)))
}

// TestPolicies covers each policy with a run that is under way and three due times, and with one that has ended.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		overlap Overlap
		run     execution.State
		want    string
	}{
		{Skip, execution.Parked, "0 skipped, 1 skipped, 2 skipped, start 0"},
		{Skip, execution.Completed, "-1 done, 0 starting, 1 skipped, 2 skipped, start 1"},
		{BufferOne, execution.Parked, "0 waiting, 1 skipped, 2 skipped, start 0"},
		{BufferOne, execution.Failed, "-1 done, 0 starting, 1 waiting, 2 skipped, start 1"},
		{BufferAll, execution.Running, "0 waiting, 1 waiting, 2 waiting, start 0"},
		{BufferAll, execution.Quarantined, "-1 done, 0 starting, 1 waiting, 2 waiting, start 1"},
		{CancelOther, execution.Running, "0 skipped, 1 skipped, 2 waiting, cancel earlier, start 0"},
		{CancelOther, execution.Cancelled, "-1 done, 0 skipped, 1 skipped, 2 starting, start 1"},
		{Allow, execution.Running, "0 starting, 1 starting, 2 starting, start 3"},
	} {
		s, plan := minutely(t, c.overlap)
		open := []Fire{{Due: noon.Add(-time.Minute), State: Started, Exists: true, Run: c.run, Workflow: "earlier"}}
		turn := s.turn(plan, open, noon.Add(2*time.Minute))
		if found := strings.Join(shown(turn), ", "); found != c.want {
			t.Errorf("%s, run %s: found %s, expected %s", c.overlap, c.run, found, c.want)
		}
		if want := noon.Add(3 * time.Minute); !turn.NextDue.Equal(want) || !turn.LastDue.Equal(want.Add(-time.Minute)) {
			t.Errorf("%s: due next at %s, last at %s", c.overlap, turn.NextDue, turn.LastDue)
		}
	}
}

// TestTheBufferIsBounded: with the policy buffer_all, and a run that does not end, 100 due times wait; backfilled ones are not counted.
func TestTheBufferIsBounded(t *testing.T) {
	t.Parallel()
	s, plan := minutely(t, BufferAll)
	open := []Fire{{Due: noon.Add(-time.Hour), State: Started, Exists: true, Run: execution.Running, Workflow: "earlier"}}
	for i := range 200 {
		due := noon.Add(-time.Duration(i+100) * time.Hour)
		open = append(open, Fire{Due: due, State: Waiting, Backfill: true, Overlap: BufferAll, Detail: "waits"})
	}
	for i := range MaxBuffered - 1 {
		open = append(open, Fire{Due: noon.Add(time.Duration(i) * time.Second), State: Waiting, Detail: "waits"})
	}
	turn := s.turn(plan, open, noon.Add(3*time.Minute))
	if diff := cmp.Diff([]string{"2 waiting", "3 skipped", "start 0"}, shown(turn)); diff != "" { // those before wait already
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCatchUp: due times within the window are started, earlier ones are counted as missed, as one row, also where there are millions.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	s, plan := minutely(t, Allow)
	s.CatchUp = 150 * time.Second
	turn := s.turn(plan, nil, noon.Add(5*time.Minute))
	if diff := cmp.Diff([]string{"0 missed", "3 starting", "4 starting", "5 starting", "start 3"}, shown(turn)); diff != "" || turn.Missed != 3 {
		t.Errorf("%d missed (-want +got):\n%s", turn.Missed, diff)
	}
	s.Spec.Every = time.Second
	plan, err := s.Spec.Plan()
	if err != nil {
		t.Fatal(err)
	}
	now := noon.AddDate(1, 0, 0)
	turn = s.turn(plan, nil, now)
	if turn.Missed < maxCounted || turn.Missed > 2*maxCounted || len(turn.Start) != maxDue || !turn.Settled.Equal(now) {
		t.Errorf("found %d missed, %d starts, settled %s, expected about %d, %d and %s", turn.Missed, len(turn.Start), turn.Settled,
			maxCounted, maxDue, now)
	}
	if first := now.Sub(turn.Start[0].Due); first > s.CatchUp {
		t.Errorf("a start is %s late, expected at most %s", first, s.CatchUp)
	}
}

// TestAPausedSchedule starts only what was requested, and a clock that was set back starts nothing again.
func TestAPausedSchedule(t *testing.T) {
	t.Parallel()
	s, plan := minutely(t, Skip)
	s.Paused = true
	open := []Fire{{Due: noon.Add(-time.Hour), State: Waiting}, {Due: noon.Add(-2 * time.Hour), State: Waiting, Backfill: true}}
	turn := s.turn(plan, open, noon.Add(time.Hour))
	if diff := cmp.Diff([]string{"-120 starting", "start 1"}, shown(turn)); diff != "" || !turn.Settled.IsZero() || !turn.NextDue.Equal(noon) {
		t.Errorf("settled %s (-want +got):\n%s", turn.Settled, diff)
	}
	s.Paused = false
	turn = s.turn(plan, nil, noon.Add(-time.Hour))
	if diff := cmp.Diff([]string{"start 0"}, shown(turn)); diff != "" || !turn.Settled.Equal(noon) {
		t.Errorf("settled %s (-want +got):\n%s", turn.Settled, diff)
	}
}

// TestADueTimeThatWasTriggered has no second row.
func TestADueTimeThatWasTriggered(t *testing.T) {
	t.Parallel()
	s, plan := minutely(t, Skip)
	open := []Fire{{Due: noon, State: Started, Backfill: true, Exists: true, Run: execution.Running, Workflow: s.RunID(noon)}}
	if diff := cmp.Diff([]string{"start 0"}, shown(s.turn(plan, open, noon))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
