package workflow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	limitstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/limits"
)

// limited is a timetable whose starts are limited.
func limited(t *testing.T) (*timetable, *limit.Limiter) {
	t.Helper()
	tt := newTimetable(t)
	limiter := limit.New(limitstore.New(tt.pool), tt.clock, bustest.Log(t))
	tt.runs.Tally, tt.service.Admit = limiter.Tally, limiter.Start
	return tt, limiter
}

func (tt *timetable) limit(l *limit.Limiter, org int64, to limit.Limits) {
	tt.t.Helper()
	if err := l.Set(tt.t.Context(), limit.Change{Organization: org, To: &to, By: "operator", Reason: "test"}); err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *timetable) start(org int64, workflow string) error {
	_, err := tt.service.Start(tt.t.Context(), execution.Start{
		Organization: org, Workflow: workflow, Program: program.Program{Source: []byte("sleep(seconds = 60)")},
	})
	return err
}

// TestAHogIsLimitedAndOthersAreNot (issue 18, point 8): each limit refuses its own organization alone, says what it found and expected, and
// lets in again what it has room for.
func TestAHogIsLimitedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	expect := func(t *testing.T, err error, wants ...string) {
		t.Helper()
		if !fault.Is(err, fault.Limited) {
			t.Fatalf("found %v, expected fault.Limited", err)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("found %q, expected %q in it", err, want)
			}
		}
	}
	t.Run("open runs", func(t *testing.T) {
		t.Parallel()
		tt, l := limited(t)
		if err := tt.start(organization, "before-any-limit"); err != nil {
			t.Fatal(err)
		}
		tt.limit(l, organization, limit.Limits{OpenRuns: 3})
		for n := range 2 {
			if err := tt.start(organization, fmt.Sprint("hog-", n)); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, tt.start(organization, "hog-2"), "found 3 open runs of organization 1, expected fewer than 3")
		if err := tt.start(organization, "hog-1"); err != nil {
			t.Errorf("a repeated start: %v", err)
		}
		if err := tt.start(2, "other"); err != nil {
			t.Errorf("another organization: %v", err)
		}
		if err := tt.start(organization, "rollout-7"); err != nil {
			t.Errorf("a rollout: %v", err)
		}
		for _, ended := range []string{"hog-0", "hog-1"} {
			if err := tt.service.Cancel(t.Context(), organization, ended, "enough"); err != nil {
				t.Fatal(err)
			}
		}
		if err := tt.start(organization, "hog-2"); err != nil {
			t.Errorf("after the end of others: %v", err)
		}
		// Another process has ended and begun nothing itself: it counts.
		second := limit.New(limitstore.New(tt.pool), tt.clock, bustest.Log(t))
		if err := second.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, second.Start(organization, 0), "found 3 open runs")
		standing, err := second.Get(t.Context(), organization)
		if err != nil || standing.Runs != 3 || !standing.Own || len(standing.Changes) != 1 || standing.Changes[0].By != "operator" {
			t.Errorf("found %+v, %v", standing, err)
		}
		if got := second.Refused(); got[limit.OpenRuns] != 1 {
			t.Errorf("counted %v refusals, expected one", got)
		}
	})
	t.Run("starts and events in a second", func(t *testing.T) {
		t.Parallel()
		tt, l := limited(t)
		tt.limit(l, limit.Everyone, limit.Limits{StartsPerSecond: 1000, EventsPerSecond: 1000})
		tt.limit(l, organization, limit.Limits{StartsPerSecond: 2, EventsPerSecond: 2})
		for n := range 2 {
			if err := tt.start(organization, fmt.Sprint("hog-", n)); err != nil {
				t.Fatal(err)
			}
			if err := l.Event(organization, 1); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, tt.start(organization, "hog-2"), "organization 1 starts runs more often than 2 times a second; retry after 500ms")
		expect(t, l.Event(organization, 1), "organization 1 sends events more often than 2 times a second")
		for n := range 100 {
			if err := tt.start(2, fmt.Sprint("other-", n)); err != nil {
				t.Fatal(err)
			}
		}
		tt.clock.Advance(500 * time.Millisecond)
		if err := tt.start(organization, "hog-2"); err != nil {
			t.Error(err)
		}
		expect(t, tt.start(organization, "hog-3"))
	})
	t.Run("storage", func(t *testing.T) {
		t.Parallel()
		tt, l := limited(t)
		tt.limit(l, organization, limit.Limits{StorageBytes: 2000})
		err := error(nil)
		for n := 0; n < 100 && err == nil; n++ {
			if err = tt.start(organization, fmt.Sprint("hog-", n)); err == nil && n%3 == 2 {
				tt.limit(l, organization, limit.Limits{StorageBytes: 2000 + int64(n%2)}) // measures again
			}
		}
		expect(t, err, "bytes that organization 1 has stored, expected fewer than 200")
		expect(t, l.Event(organization, 1))
		if err := tt.start(2, "other"); err != nil {
			t.Error(err)
		}
		if err := l.Set(t.Context(), limit.Change{Organization: organization, By: "operator", Reason: "bought more"}); err != nil {
			t.Fatal(err)
		}
		if err := tt.start(organization, "again"); err != nil {
			t.Errorf("without limits of its own: %v", err)
		}
	})
}

// TestEndedRunsAreDeletedByLabel (issue 18, point 8).
func TestEndedRunsAreDeletedByLabel(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	keeping := retention.New(retention.Deps{Store: limitstore.New(tt.pool), Clock: tt.clock, Log: bustest.Log(t)})
	const day = 24 * time.Hour
	for label, keep := range map[string]time.Duration{"nightly": day, "audit": 90 * day, "": 10 * day} {
		c := retention.Change{Organization: organization, Rule: retention.Rule{Keep: keep}, By: "alice", Reason: "space"}
		if label != "" {
			c.Label, c.Value = "kind", label
		}
		if err := keeping.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []struct {
		organization int64
		id, label    string
		open         bool
	}{
		{organization, "nightly", "nightly", false},
		{organization, "nightly-open", "nightly", true},
		{organization, "audit", "audit", false},
		{organization, "other", "x", false},
		{organization, "rollout-9", "nightly", false},
		{2, "nightly", "nightly", false},
	} {
		tt.run(run.organization, run.id, run.label)
		if !run.open {
			if err := tt.service.Cancel(t.Context(), run.organization, run.id, "done"); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func(want string) {
		t.Helper()
		if _, err := keeping.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got string
		err := tt.pool.QueryRow(t.Context(), `SELECT string_agg(organization || ' ' || workflow, ', ' ORDER BY id) FROM execution`).Scan(&got)
		if err != nil || got != want {
			t.Errorf("found %s (%v), expected %s", got, err, want)
		}
	}
	left("1 nightly, 1 nightly-open, 1 audit, 1 other, 1 rollout-9, 2 nightly")
	tt.clock.Advance(2 * day)
	left("1 nightly-open, 1 audit, 1 other, 1 rollout-9, 2 nightly")
	tt.clock.Advance(9 * day)
	left("1 nightly-open, 1 audit, 1 rollout-9, 2 nightly")
	tt.clock.Advance(100 * day)
	left("1 nightly-open, 1 rollout-9, 2 nightly")
	var rows int
	err := tt.pool.QueryRow(t.Context(), `SELECT count(*) FROM entry WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = entry.execution)`).Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d entries are left of runs that are gone (%v)", rows, err)
	}
	tt.run(organization, "nightly", "nightly") // the id is free again
}

// TestLimitsOverTheAPI sets and reads limits and rules, and refuses what they refuse.
func TestLimitsOverTheAPI(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx := t.Context()
	for _, l := range []*autoflowv1.Limits{{OpenRuns: -1}, {StorageBytes: -1}} {
		_, err := s.SetLimits(ctx, &autoflowv1.SetLimitsRequest{OrganizationId: organization, Limits: l})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", l, err)
		}
	}
	set := &autoflowv1.SetLimitsRequest{OrganizationId: organization, Limits: &autoflowv1.Limits{StartsPerSecond: 1}, Reason: "hog"}
	if _, err := s.SetLimits(ctx, set); err != nil {
		t.Fatal(err)
	}
	found, err := s.GetLimits(ctx, &autoflowv1.GetLimitsRequest{OrganizationId: organization})
	if err != nil || found.GetLimits().GetStartsPerSecond() != 1 || found.GetChanges()[0].GetReason() != "hog" {
		t.Errorf("found %v, %v", found, err)
	}
	refused := false
	for n := range 20 {
		_, err := s.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: fmt.Sprint("w-", n), Starlark: []byte("x = 1"),
		})
		refused = refused || fault.Is(err, fault.Limited)
	}
	if !refused {
		t.Error("20 starts were let in at one in a second")
	}
	used, err := s.ListLimitUse(ctx, &autoflowv1.ListLimitUseRequest{})
	if err != nil || len(used.GetUses()) == 0 || used.GetUses()[0].GetLimit() != "starts_per_second" || used.GetUses()[0].GetMost() != 1 {
		t.Errorf("found %v, %v; expected a use of starts_per_second", used, err)
	}
	if _, err := s.ListLimitUse(ctx, &autoflowv1.ListLimitUseRequest{AtLeastPercent: 101}); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected that 101 percent is invalid", err)
	}
	for rule, ok := range map[*autoflowv1.RetentionRule]bool{
		{Label: "kind", Value: "x", Keep: durationpb.New(time.Hour)}:   true,
		{Value: "x", Keep: durationpb.New(time.Hour)}:                  false,
		{Label: "kind", Value: "x", Keep: durationpb.New(time.Second)}: false,
	} {
		_, err := s.SetRetention(ctx, &autoflowv1.SetRetentionRequest{OrganizationId: organization, Rule: rule, Reason: "space"})
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", rule, err)
		}
	}
	rules, err := s.ListRetention(ctx, &autoflowv1.ListRetentionRequest{OrganizationId: organization})
	if err != nil || len(rules.GetRules()) != 1 || rules.GetRules()[0].GetKeep().AsDuration() != time.Hour {
		t.Errorf("found %v, %v", rules, err)
	}
}
