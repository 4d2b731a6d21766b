package id

import (
	"regexp"
	"strconv"
	"strings"
)

// The runs that the domain service starts on the engine. Their ids are derived from the rows that they are for, so that a start that is
// sent again starts nothing twice, and an event's run shows which row it may change. Nobody else may start a run with such an id.

// RolloutRun returns the id of the run of a rollout.
func RolloutRun(rollout int64) string { return "rollout-" + strconv.FormatInt(rollout, 10) }

// PreviewRun returns the id of the run of a preview.
func PreviewRun(preview int64) string { return "preview-" + strconv.FormatInt(preview, 10) }

// OnboardingRun returns the id of the run of an attempt, from 1, to onboard an environment.
func OnboardingRun(environment int64, attempt int) string {
	return onboarding(environment) + strconv.Itoa(attempt)
}

// SetupRun returns the id of the run of an attempt, from 1, to set up an application in an environment.
func SetupRun(applicationEnvironment int64, attempt int) string {
	return setup(applicationEnvironment) + strconv.Itoa(attempt)
}

// OnboardingAttempt returns the number of the attempt to onboard the environment that a run is; 0 for any other run.
func OnboardingAttempt(run string, environment int64) int {
	return attempt(run, onboarding(environment))
}

// SetupAttempt returns the number of the attempt to set up the application in the environment that a run is; 0 for any other run.
func SetupAttempt(run string, applicationEnvironment int64) int {
	return attempt(run, setup(applicationEnvironment))
}

func onboarding(environment int64) string {
	return "environment-" + strconv.FormatInt(environment, 10) + "-onboarding-"
}

func setup(applicationEnvironment int64) string {
	return "application-environment-" + strconv.FormatInt(applicationEnvironment, 10) + "-setup-"
}

func attempt(run, prefix string) int {
	digits, ok := strings.CutPrefix(run, prefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != digits {
		return 0
	}
	return n
}

var reservedRun = regexp.MustCompile(
	`^(rollout-[0-9]+|preview-[0-9]+|environment-[0-9]+-onboarding-[0-9]+|application-environment-[0-9]+-setup-[0-9]+)$`,
)

// ReservedRun reports whether an id has the form of a run that the domain service starts.
func ReservedRun(run string) bool { return reservedRun.MatchString(run) }
