package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// waitTime is how long commands wait by default.
const waitTime = 5 * time.Minute

// timeoutFlag is how long a command waits.
func timeoutFlag(cmd *cobra.Command, into *time.Duration, otherwise time.Duration, usage string) {
	durationFlag(cmd, into, "timeout", otherwise, usage)
}

// waitFlags are --wait and --timeout.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *waitFlags) add(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until "+until)
	timeoutFlag(cmd, &f.timeout, waitTime, "how long --wait waits; then the exit code is 7")
}

// outcome is what one look at what is waited for has found.
type outcome int

const (
	unsettled outcome = iota
	reached
	// failed does not change without somebody's doing.
	failed
)

// until looks again and again, until what is waited for is reached, has failed, or the time is up; the latter two are exit code 7. The look
// says in words how things are. A short absence of the API does not end it.
func (c *command) until(ctx context.Context, timeout time.Duration, look func(ctx context.Context) (outcome, string, error)) error {
	if timeout <= 0 {
		return fault.New(fault.Invalid, "timeout: found %s; expected more than zero", timeout)
	}
	end := c.clock.Now().Add(timeout)
	for {
		found, how, err := c.lookOnce(ctx, end, look)
		switch {
		case err != nil && (ctx.Err() != nil || !fault.Is(err, fault.Unavailable)):
			return err
		case err != nil:
			how = err.Error()
		case found == reached:
			return nil
		case found == failed:
			return notCompletedError{how, exitNotCompleted}
		}
		if left := end.Sub(c.clock.Now()); left <= 0 {
			return notCompletedError{fmt.Sprintf("timed out after %s: %s", timeout, how), exitNotCompleted}
		} else if err := clock.Sleep(ctx, c.clock, min(left, watchPause)); err != nil {
			return err
		}
	}
}

// lookOnce bounds a look: a server that never answers does not outlast the timeout by much.
func (c *command) lookOnce(ctx context.Context, end time.Time, look func(ctx context.Context) (outcome, string, error)) (outcome, string, error) {
	bounded, cancel := context.WithTimeout(ctx, max(0, end.Sub(c.clock.Now()))+answerTime)
	defer cancel()
	found, how, err := look(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fault.New(fault.Unavailable, "the API does not answer: %w", err)
	}
	return found, how, err
}

// readiness is the outcome that a readiness of the API is.
func readiness(of string) outcome {
	switch of {
	case "READY":
		return reached
	case "NOT_READY":
		return failed
	default:
		return unsettled
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
func (c *command) untilReady(ctx context.Context, api *client.Client, name string, timeout time.Duration) (one client.Environment, err error) {
	err = c.until(ctx, timeout, func(ctx context.Context) (outcome, string, error) {
		if one, err = api.Environment(ctx, name); err != nil {
			return unsettled, "", err
		}
		return readiness(one.Readiness), notReady("environment "+one.Name, one.Readiness, one.ReadinessReason), nil
	})
	return one, err
}

// untilSetUp waits until an application is set up in every environment that its pipeline deploys to.
func (c *command) untilSetUp(ctx context.Context, api *client.Client, application string, environments []string, timeout time.Duration) error {
	return c.until(ctx, timeout, func(ctx context.Context) (outcome, string, error) {
		a, err := api.Application(ctx, application)
		if err != nil {
			return unsettled, "", err
		}
		missing := slices.Clone(environments)
		worst, how := reached, ""
		for _, e := range a.Environments {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == e.Environment.Name })
			if found := readiness(e.Readiness); found != reached && worst != failed {
				worst, how = found, notReady(a.Name+" in "+e.Environment.Name, e.Readiness, e.ReadinessReason)
			}
		}
		if worst == reached && len(missing) > 0 {
			return unsettled, a.Name + " in " + missing[0] + " is pending", nil
		}
		return worst, how, nil
	})
}

// untilSetUpAgain waits until an application is set up in one environment.
func (c *command) untilSetUpAgain(ctx context.Context, api *client.Client, application, environment string, timeout time.Duration) (one client.ApplicationEnvironment, err error) {
	err = c.until(ctx, timeout, func(ctx context.Context) (outcome, string, error) {
		a, err := api.Application(ctx, application)
		if err != nil {
			return unsettled, "", err
		}
		i := slices.IndexFunc(a.Environments, func(e client.ApplicationEnvironment) bool { return e.Environment.Name == environment })
		if i < 0 {
			return failed, a.Name + " is no longer deployed to " + environment, nil
		}
		one = a.Environments[i]
		return readiness(one.Readiness), notReady(a.Name+" in "+environment, one.Readiness, one.ReadinessReason), nil
	})
	return one, err
}

// versionSetWait waits until a version that was pushed is in a version set.
func (c *command) versionSetWait() *cobra.Command {
	var timeout time.Duration
	cmd := c.asking("wait APPLICATION [SERVICE=VERSION...]", "Wait until an application has a version set, or one with the given versions",
		"  lockstep version-set wait shop api=1.0.0 --timeout 1m\n  lockstep version-set wait shop api=1.0.0 web=2.1.0 -o name", between(1, anyNumber),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			versions, err := keysAndValues("version", args[1:])
			if err != nil {
				return err
			}
			var found client.VersionSet
			if err := c.until(cmd.Context(), timeout, func(ctx context.Context) (outcome, string, error) {
				all, err := api.VersionSets(ctx, args[0], pageOfSets)
				if err != nil {
					return unsettled, "", err
				}
				i := slices.IndexFunc(all, func(v client.VersionSet) bool { return has(v, versions) })
				if i < 0 {
					return unsettled, strings.TrimSpace("no version set of " + args[0] + " has " + strings.Join(args[1:], " ")), nil
				}
				found = all[i]
				return reached, "", nil
			}); err != nil {
				return err
			}
			return c.print(found, func(w io.Writer) { versionSetTable(w, []client.VersionSet{found}) })
		})
	timeoutFlag(cmd, &timeout, waitTime, "how long to wait; then the exit code is 7")
	return cmd
}

// pageOfSets is how many of the newest version sets are looked at: what was just pushed is among them.
const pageOfSets = 50

// has reports whether a version set has each of these versions, by service.
func has(set client.VersionSet, versions map[string]string) bool {
	for service, version := range versions {
		if !slices.ContainsFunc(set.Entries, func(e client.VersionSetEntry) bool { return e.Service.Name == service && e.Version.Name == version }) {
			return false
		}
	}
	return true
}
