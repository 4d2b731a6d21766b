package application

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// readiness is the outcome that a readiness of the API is.
func readiness(of string) command.Outcome {
	switch of {
	case "READY":
		return command.Reached
	case "NOT_READY":
		return command.Failed
	default:
		return command.Unsettled
	}
}

// notReady says how an environment is.
func notReady(what, readiness, reason string) string {
	text := what + " is " + journal.Human(readiness)
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// untilReady waits for an environment's onboarding.
func (c commands) untilReady(
	ctx context.Context, api *client.Client, name string, timeout time.Duration,
) (one client.Environment, err error) {
	err = c.Until(ctx, timeout, func(ctx context.Context) (command.Outcome, string, error) {
		if one, err = api.Environment(ctx, name); err != nil {
			return command.Unsettled, "", err
		}
		return readiness(one.Readiness), notReady("environment "+one.Name, one.Readiness, one.ReadinessReason), nil
	})
	return one, err
}

// untilSetUp waits until an application is set up in every environment that its pipeline deploys to.
func (c commands) untilSetUp(
	ctx context.Context, api *client.Client, application string, environments []string, timeout time.Duration,
) error {
	return c.Until(ctx, timeout, func(ctx context.Context) (command.Outcome, string, error) {
		a, err := api.Application(ctx, application)
		if err != nil {
			return command.Unsettled, "", err
		}
		missing := slices.Clone(environments)
		worst, how := command.Reached, ""
		for _, e := range a.Environments {
			missing = slices.DeleteFunc(missing, func(name string) bool { return e.Environment.Called(name) })
			if found := readiness(e.Readiness); found != command.Reached && worst != command.Failed {
				worst, how = found, notReady(a.Name+" in "+e.Environment.Name, e.Readiness, e.ReadinessReason)
			}
		}
		if worst == command.Reached && len(missing) > 0 {
			return command.Unsettled, a.Name + " in " + missing[0] + " is pending", nil
		}
		return worst, how, nil
	})
}

// untilSetUpAgain waits until an application is set up in one environment.
func (c commands) untilSetUpAgain(
	ctx context.Context, api *client.Client, application, environment string, timeout time.Duration,
) (one client.ApplicationEnvironment, err error) {
	err = c.Until(ctx, timeout, func(ctx context.Context) (command.Outcome, string, error) {
		a, err := api.Application(ctx, application)
		if err != nil {
			return command.Unsettled, "", err
		}
		i := slices.IndexFunc(a.Environments, func(e client.ApplicationEnvironment) bool { return e.Environment.Called(environment) })
		if i < 0 {
			return command.Failed, a.Name + " is no longer deployed to " + environment, nil
		}
		one = a.Environments[i]
		return readiness(one.Readiness), notReady(a.Name+" in "+environment, one.Readiness, one.ReadinessReason), nil
	})
	return one, err
}
