package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// at is an instant of the test's day, in minutes.
func at(minutes int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute)
}

func word(verb core.Verb, gate string, to core.RolloutState, minute int) core.Transition {
	return core.Transition{Verb: verb, GateID: gate, To: core.State(to), CreatedAt: at(minute)}
}

// What people were waited for counts once, however their waits overlap.
func TestWaitingForPeople(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		words []core.Transition
		want  int
	}{
		"until it was asked for": {nil, 10},
		"a gate": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20),
			word(core.VerbApprove, "a", core.RolloutInProgress, 50),
		}, 40},
		"two have to agree": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20), word(core.VerbApprove, "a", core.RolloutInProgress, 30),
			word(core.VerbApprove, "a", core.RolloutInProgress, 60),
		}, 50},
		"two gates at once": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20), word(core.VerbRequestApproval, "b", core.RolloutInProgress, 30),
			word(core.VerbApprove, "a", core.RolloutInProgress, 40), word(core.VerbApprove, "b", core.RolloutInProgress, 50),
		}, 40},
		"asked again by a retry": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20), word(core.VerbApprove, "a", core.RolloutInProgress, 30),
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 60), word(core.VerbApprove, "a", core.RolloutInProgress, 65),
		}, 25},
		"an approval by the end of its time": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20),
			word(core.VerbExpire, "a", core.RolloutInProgress, 35),
		}, 25},
		"a hold over a gate": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20), word(core.VerbPause, "", core.RolloutPaused, 25),
			word(core.VerbApprove, "a", core.RolloutPaused, 30), word(core.VerbResume, "", core.RolloutInProgress, 40),
		}, 30},
		"a soak": {[]core.Transition{
			word(core.VerbReachGate, "a", core.RolloutInProgress, 20),
			word(core.VerbPassGate, "a", core.RolloutInProgress, 50),
		}, 10},
		"an abort, which closes the gate, and a retry": {[]core.Transition{
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 20), word(core.VerbAbort, "", core.RolloutInProgress, 30),
			word(core.VerbPause, "", core.RolloutPaused, 35),
			word(core.VerbRetry, "", core.RolloutPaused, 50), word(core.VerbResume, "", core.RolloutInProgress, 50),
			word(core.VerbRequestApproval, "a", core.RolloutInProgress, 60), word(core.VerbApprove, "a", core.RolloutInProgress, 65),
		}, 40},
		"a pause that was only asked for": {[]core.Transition{
			word(core.VerbPause, "", core.RolloutInProgress, 20),
			word(core.VerbResume, "", core.RolloutInProgress, 30),
		}, 10},
		"a later environment's gate": {[]core.Transition{
			word(core.VerbRequestApproval, "z", core.RolloutInProgress, 110),
			word(core.VerbApprove, "z", core.RolloutInProgress, 120),
		}, 10},
		"a gate that outlasts it":  {[]core.Transition{word(core.VerbRequestApproval, "a", core.RolloutInProgress, 90)}, 20},
		"a pause that outlasts it": {[]core.Transition{word(core.VerbPause, "", core.RolloutPaused, 70)}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []Attempt{{RolloutID: 1, MadeAt: at(0), AskedAt: at(10)}}
			one := landing{Delivery{FinishedAt: at(100)}, &all[0]}
			if got := waitedFor(one, bySet(all)[0], map[int64][]core.Transition{1: tt.words}); got != time.Duration(tt.want)*time.Minute {
				t.Errorf("found %s; want %d minutes", got, tt.want)
			}
		})
	}
}

// delivered is a rollout that was over in environment 1, and nowhere else.
func delivered(rollout, set, previous int64, made, asked, finished int, state core.RolloutState) Attempt {
	over := at(finished)
	return Attempt{
		RolloutID: rollout, VersionSetID: set, Within: true, MadeAt: at(made), AskedAt: at(asked), OverAt: &over,
		Deliveries: []Delivery{
			{EnvironmentID: 1, PreviousVersionSetID: previous, First: set > previous, State: state, StartedAt: at(asked), FinishedAt: over},
		},
	}
}

// The history of an environment: a deployment, one that fails, one that is rolled back, where the first rollback fails too, a cancellation,
// and a failure at the end.
func TestDeliveryMetricsOfAStory(t *testing.T) {
	t.Parallel()
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	all := []Attempt{
		delivered(1, 1, 0, 0, 0, 10, core.RolloutCompleted),
		delivered(2, 2, 1, 20, 20, 30, core.RolloutFailed),
		delivered(3, 3, 1, 40, 45, 60, core.RolloutCompleted),
		delivered(4, 4, 3, 70, 70, 100, core.RolloutCompleted),
		delivered(5, 5, 4, 110, 110, 120, core.RolloutCancelled),
		delivered(6, 3, 4, 40, 122, 125, core.RolloutFailed),
		delivered(7, 3, 4, 40, 130, 140, core.RolloutCompleted),
		delivered(8, 6, 3, 150, 150, 160, core.RolloutFailed),
	}
	w := DeliveryWindow{Since: at(0), Until: at(1000)}
	want := DeliveryMetrics{
		EnvironmentID: 1, Since: w.Since, Until: w.Until,
		Deployments: 4, Reworked: 2, Ended: 7, Failures: 4, Cancelled: 1,
		// 10, 20 and 30; a rollback has none
		Lead:    Durations{Count: 3, Mean: minutes(20), Median: minutes(20), P90: minutes(30), Longest: minutes(30)},
		People:  Durations{Count: 3, Mean: 100 * time.Second, P90: minutes(5), Longest: minutes(5)},
		Machine: Durations{Count: 3, Mean: minutes(20) - 100*time.Second, Median: minutes(15), P90: minutes(30), Longest: minutes(30)},
		// 30 → 60; 100 → 140, which was completed, and taken back; 125 → 140.
		Recovery:    Durations{Count: 3, Mean: minutes(85) / 3, Median: minutes(30), P90: minutes(40), Longest: minutes(40)},
		Unrecovered: 1,
	}
	if diff := cmp.Diff(want, measure(w, 1, all, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Without deployments there are no figures, and another environment has none.
	for name, got := range map[string]DeliveryMetrics{"nothing": measure(w, 1, nil, nil), "another environment": measure(w, 2, all, nil)} {
		if got.EnvironmentID = 0; got != (DeliveryMetrics{Since: w.Since, Until: w.Until}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
