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
		"rollout-": false, "rollout-7a": false, "my-rollout-7": false, "rollout-7/x": false, "environment-3-onboarding": false,
		"nightly": false, "": false,
	} {
		if got := id.ReservedRun(run); got != want {
			t.Errorf("%q: found %t, expected %t", run, got, want)
		}
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
