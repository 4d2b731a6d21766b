package domain

import (
	"context"
	"encoding/json"
	"fmt"
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

// policySetsInterval is how often policy sets are announced again although nothing has changed, and policySetsRetry how soon that is
// attempted again after a failure.
const (
	policySetsInterval = 6 * time.Hour
	policySetsRetry    = 5 * time.Second
)

// keepPolicies has what policies have stopped evaluated again, by the sets of the installation that this process has read, and then
// announces the sets of organizations to the engine, at once and from time to time, until ctx ends.
func (s *service) keepPolicies(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.policies.ReviewInstallation(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "evaluating again what policies have stopped failed; will retry", telemetry.KeyError, err)
			s.pause(ctx, policySetsRetry)
		}
	}
	return pg.AsLeader(ctx, s.pool, "policy sets", clock.System(), func(ctx context.Context) error {
		for ctx.Err() == nil {
			next := policySetsInterval
			if err := s.policies.AnnounceAgain(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "announcing policy sets failed; will retry", telemetry.KeyError, err)
				next = policySetsRetry
			}
			s.pause(ctx, next)
		}
		return nil
	})
}
