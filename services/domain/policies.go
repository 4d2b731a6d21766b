package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// PolicyConfig is a policy set of the installation: it concerns every organization, which cannot change or weaken it. The domain service
// decides by it about rollouts and changes of controls, and the workflow service about calls of Functions: give it to both.
type PolicyConfig struct {
	// Name is that by which decisions name it, as installation.NAME: 1 to 63 lower-case letters, digits and hyphens.
	Name string `koanf:"name"`
	// File has the policies, in Cedar, of at most 64 KiB. It is read when the service starts; a service that cannot read it does not start.
	File string `koanf:"file"`
	// Mode is enforce; dry_run for a set that is tried out; or off. Empty means enforce.
	Mode string `koanf:"mode"`
	// TimeZone is where the days and hours are that its policies see, such as Europe/Berlin. Empty means UTC.
	TimeZone string `koanf:"time_zone"`
}

// installation are the policy sets of the installation (D51). Whatever is wrong with one keeps the service from starting.
func (c Config) installation() (all []core.PolicySet, err error) {
	files := make([]policy.InstallationFile, len(c.Policies))
	for i, p := range c.Policies {
		files[i] = policy.InstallationFile(p)
	}
	sets, wrong, err := policy.ReadInstallation(files)
	if err != nil {
		name := "policies"
		if wrong >= 0 {
			name = fmt.Sprintf("policies[%d]", wrong)
		}
		return nil, fault.InvalidFields(fault.Field{Name: name, Problem: err.Error()})
	}
	for _, s := range sets {
		if s.Mode != string(core.PolicyOff) {
			all = append(all, core.PolicySet{
				Name: s.Name, Installation: true, Mode: core.PolicyMode(s.Mode), TimeZone: s.TimeZone, Text: s.Text,
			})
		}
	}
	return all, nil
}

// agentsOf are the agents that the configuration of a driver names; none for a driver that is not installed.
func (s *service) agentsOf(driver string, config json.RawMessage) ([]int64, error) {
	named, err := s.drivers.Now().Agents(driver, config)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	numbers := make([]int64, len(named))
	for i, n := range named {
		numbers[i] = n.Number
	}
	return numbers, err
}

// driverRefs are the drivers that are installed, as name@major.
func (s *service) driverRefs() []string {
	var refs []string
	for _, d := range s.drivers.Now().All() {
		refs = append(refs, d.Ref)
	}
	return refs
}

// policySetsInterval is how often policy sets are announced again although nothing has changed. What has failed is attempted again after
// policySetsRetry, and then after twice as long each time, up to policySetsRetryMost.
const (
	policySetsInterval  = 6 * time.Hour
	policySetsRetry     = 5 * time.Second
	policySetsRetryMost = 10 * time.Minute
)

// keepPolicies has what policies have stopped evaluated again when the sets of the installation have changed, and announces the sets of
// organizations to the engine, at once and from time to time, until ctx ends. One process does that for all.
func (s *service) keepPolicies(ctx context.Context) error {
	return pg.AsLeader(ctx, s.pool, "policy sets", clock.System(), func(ctx context.Context) error {
		keep := func(what string, do func(ctx context.Context, only []int64) ([]int64, error)) func() {
			return func() {
				for ctx.Err() == nil {
					s.attempt(ctx, what, s.pause, do)
					s.pause(ctx, policySetsInterval)
				}
			}
		}
		var both sync.WaitGroup // what fails in one does not hold up the other
		both.Go(keep("evaluating again what policies have stopped", s.policies.ReviewInstallation))
		both.Go(keep("announcing policy sets", s.policies.AnnounceAgain))
		both.Wait()
		return nil
	})
}

// attempt does something in all organizations, and again in those in which that failed, until it has succeeded in all of them. It gives up
// after the interval: then all are due again.
func (s *service) attempt(
	ctx context.Context, what string, pause func(ctx context.Context, d time.Duration),
	do func(ctx context.Context, only []int64) ([]int64, error),
) {
	var left []int64 // all of them
	wait, waited := policySetsRetry, time.Duration(0)
	for ctx.Err() == nil && waited < policySetsInterval {
		failed, err := do(ctx, left)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.WarnContext(
			ctx, "keeping policies up to date failed; will retry", slog.String("task", what), slog.Int("organizations", len(failed)), slog.Any(telemetry.KeyError, err),
		)
		left, waited = failed, waited+wait
		pause(ctx, wait)
		wait = min(2*wait, policySetsRetryMost)
	}
}
