package id_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/id"
)

// TestRunsOfTheDomainServiceAreReserved (D47): all that it makes, and nothing that others are likely to use.
func TestRunsOfTheDomainServiceAreReserved(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]bool{
		id.RolloutRun(78): true, id.PreviewRun(5): true, id.OnboardingRun(3, 2): true, id.SetupRun(5, 1): true, "rollout-078": true,
		"rollout-": false, id.NotificationRun(4, 2): true, "notification-4": false, id.CancelledRun(78): true, "rollout-78-cancelled-1": false, "rollout-7a": false, "my-rollout-7": false, "rollout-7/x": false, "environment-3-onboarding": false,
		"nightly": false, "": false, id.ForgeStatusRun(4, 2): true, "forge-status-4": false,
	} {
		if got := id.ReservedRun(run); got != want {
			t.Errorf("%q: found %t, expected %t", run, got, want)
		}
	}
}

// TestRunsAfterACancellation: only the exact form is read, and such a run is not that of the rollout.
func TestRunsAfterACancellation(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]int64{
		id.CancelledRun(7): 7, "rollout-7": 0, "rollout-07-cancelled": 0, "rollout--cancelled": 0, "rollout-7-cancelled-cancelled": 0, "x": 0,
	} {
		if got := id.CancelledRollout(run); got != want {
			t.Errorf("%q: found %d, expected %d", run, got, want)
		}
	}
	if got := id.Rollout(id.CancelledRun(7)); got != 0 {
		t.Errorf("found that it is the run of rollout %d", got)
	}
}

// TestAttemptsOfRuns (D47).
func TestAttemptsOfRuns(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]int{
		"environment-3-onboarding-2": 2, "environment-3-onboarding-02": 0, "environment-3-onboarding-0": 0, "environment-3-onboarding--1": 0,
		"environment-3-onboarding-2x": 0, "environment-33-onboarding-2": 0, "application-environment-3-setup-2": 0, "": 0,
	} {
		if got := id.OnboardingAttempt(run, 3); got != want {
			t.Errorf("%q: found attempt %d, expected %d", run, got, want)
		}
	}
	if got := id.SetupAttempt("application-environment-3-setup-12", 3); got != 12 {
		t.Errorf("found attempt %d, expected 12", got)
	}
}

// TestWhatARunIsOf: only the exact form is read, and what a standing report carries says the run that registered it (D47).
func TestWhatARunIsOf(t *testing.T) {
	t.Parallel()
	for run, want := range map[string][2]int64{
		id.RolloutRun(7): {7, 0}, id.SetupRun(5, 2): {0, 5}, "rollout-07": {}, "rollout-": {}, "rollout-7x": {}, "rollout--7": {},
		"application-environment-5-setup-": {}, "application-environment-05-setup-1": {}, "application-environment-5-setup-01": {},
		"application-environment-5-setup-1/x": {}, "environment-5-onboarding-1": {}, "": {},
	} {
		if got := [2]int64{id.Rollout(run), id.ApplicationEnvironment(run)}; got != want {
			t.Errorf("%q is of %v, expected %v", run, got, want)
		}
	}
	for correlation, want := range map[string]struct {
		run      string
		standing bool
	}{
		id.Observer(id.RolloutRun(7), "argo.health/service_id=4"): {"rollout-7", true},
		id.Observer("", "agent/environment_id=1"):                 {"", true},
		id.RolloutRun(7):            {"", false},
		"xobserver/rollout-7/agent": {"", false},
	} {
		if run, standing := id.ObserverRun(correlation); run != want.run || standing != want.standing {
			t.Errorf("%q is of run %q, standing %t; expected %+v", correlation, run, standing, want)
		}
	}
}
