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

// CancelledRun returns the id of the run that stops what a cancelled rollout has left behind.
func CancelledRun(rollout int64) string { return RolloutRun(rollout) + cancelledSuffix }

// CancelledRollout returns the number of the cancelled rollout that a run stops the rest of; 0 for any other run.
func CancelledRollout(run string) int64 {
	rollout, is := strings.CutSuffix(run, cancelledSuffix)
	if !is {
		return 0
	}
	return Rollout(rollout)
}

const cancelledSuffix = "-cancelled"

// PreviewRun returns the id of the run of a preview.
func PreviewRun(preview int64) string { return "preview-" + strconv.FormatInt(preview, 10) }

// CheckRun returns the id of a run of a check's program.
func CheckRun(run int64) string { return "check-" + strconv.FormatInt(run, 10) }

// Check returns the number of the run of a check's program that a run is; 0 for any other run.
func Check(run string) int64 { return numbered(run, "check-", "") }

// NotificationRun returns the id of a run, from 1, that sends a notification message.
func NotificationRun(message int64, run int) string { return notification(message) + strconv.Itoa(run) }

func notification(message int64) string {
	return "notification-" + strconv.FormatInt(message, 10) + "-"
}

// Notification returns the numbers of the message that a run sends and of the run; 0 for any other run.
func Notification(run string) (message int64, n int) {
	message = numbered(run, "notification-", "-")
	if n = attempt(run, notification(message)); n == 0 {
		return 0, 0
	}
	return message, n
}

// ForgeStatusRun returns the id of a run, from 1, that publishes a status of a commit.
func ForgeStatusRun(status int64, run int) string { return forgeStatus(status) + strconv.Itoa(run) }

func forgeStatus(status int64) string {
	return "forge-status-" + strconv.FormatInt(status, 10) + "-"
}

// ForgeStatus returns the numbers of the status that a run publishes and of the run; 0 for any other run.
func ForgeStatus(run string) (status int64, n int) {
	status = numbered(run, "forge-status-", "-")
	if n = attempt(run, forgeStatus(status)); n == 0 {
		return 0, 0
	}
	return status, n
}

// ForgePullRun returns the id of a run, from 1, that reads a pull request or comments on it.
func ForgePullRun(pull int64, run int) string { return forgePull(pull) + strconv.Itoa(run) }

func forgePull(pull int64) string {
	return "forge-pull-" + strconv.FormatInt(pull, 10) + "-"
}

// ForgePull returns the numbers of the pull request that a run is about and of the run; 0 for any other run.
func ForgePull(run string) (pull int64, n int) {
	pull = numbered(run, "forge-pull-", "-")
	if n = attempt(run, forgePull(pull)); n == 0 {
		return 0, 0
	}
	return pull, n
}

// TriggerEditRun returns the id of a run, from 1, that edits files because of an event.
func TriggerEditRun(signal int64, run int) string { return triggerEdit(signal) + strconv.Itoa(run) }

func triggerEdit(signal int64) string {
	return "trigger-edit-" + strconv.FormatInt(signal, 10) + "-"
}

// TriggerEdit returns the numbers of the signal whose files a run edits and of the run; 0 for any other run.
func TriggerEdit(run string) (signal int64, n int) {
	signal = numbered(run, "trigger-edit-", "-")
	if n = attempt(run, triggerEdit(signal)); n == 0 {
		return 0, 0
	}
	return signal, n
}

// Delivers reports whether a run only reports to the outside what happens: it sends a notification message, publishes a status of a
// commit, or reads or comments a pull request. No rollout waits for it.
func Delivers(run string) bool {
	for _, find := range []func(string) (int64, int){Notification, ForgeStatus, ForgePull} {
		if _, n := find(run); n > 0 {
			return true
		}
	}
	return false
}

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
	`^(rollout-[0-9]+(-cancelled)?|preview-[0-9]+|check-[0-9]+|notification-[0-9]+-[0-9]+|forge-status-[0-9]+-[0-9]+|forge-pull-[0-9]+-[0-9]+|trigger-edit-[0-9]+-[0-9]+|` +
		`environment-[0-9]+-onboarding-[0-9]+|application-environment-[0-9]+-setup-[0-9]+)$`,
)

// Rollout returns the number of the rollout that a run is of; 0 for any other run.
func Rollout(run string) int64 { return numbered(run, "rollout-", "") }

// ApplicationEnvironment returns the number of the application environment that a run sets up; 0 for any other run.
func ApplicationEnvironment(run string) int64 {
	n := numbered(run, "application-environment-", "-setup-")
	if SetupAttempt(run, n) == 0 {
		return 0
	}
	return n
}

// numbered returns the number between a prefix and what ends it, or the end of the text; 0 if there is none, or not as it is written here.
func numbered(run, prefix, end string) int64 {
	digits, ok := strings.CutPrefix(run, prefix)
	if end != "" {
		digits, _, _ = strings.Cut(digits, end)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || strconv.FormatInt(n, 10) != digits {
		return 0
	}
	return n
}

// observing begins what stands in place of a run in the events of standing reports, which outlive the run that registered them.
const observing = "observer/"

// Observer returns what the events of a standing report carry in place of a run: the run that registered it, and its key. A report that an
// earlier release has registered has no run.
func Observer(run, key string) string {
	if run == "" {
		return observing + key
	}
	return observing + run + "/" + key
}

// ObserverRun returns the run that registered the standing report which an event is of; empty for one of an earlier release. It reports
// false for what is not of a standing report.
func ObserverRun(correlation string) (run string, standing bool) {
	rest, standing := strings.CutPrefix(correlation, observing)
	run, _, _ = strings.Cut(rest, "/")
	if !standing || !ReservedRun(run) {
		run = ""
	}
	return run, standing
}

// ReservedRun reports whether an id has the form of a run that the domain service starts.
func ReservedRun(run string) bool { return reservedRun.MatchString(run) }
