package workflow

import (
	"fmt"
	"log/slog"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
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

// callPolicies are those that decide about the calls of runs.
func (c Config) callPolicies(s callpolicy.Store, wall clock.Clock, log *slog.Logger) (*callpolicy.Registry, error) {
	installation, err := c.installation()
	if err != nil {
		return nil, err
	}
	return callpolicy.NewRegistry(s, wall, log, installation...).SampleCalls(c.PolicySamplesPerHour), nil
}

// installation are the policy sets of the installation (D51). Whatever is wrong with one keeps the service from starting.
func (c Config) installation() (all []callpolicy.Set, err error) {
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
		all = append(all, callpolicy.Set{Name: s.Name, Mode: s.Mode, TimeZone: s.TimeZone, Text: s.Text})
	}
	return all, nil
}
