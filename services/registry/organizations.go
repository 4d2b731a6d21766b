package registry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// organizations returns the known organizations: those with sources, as last listed by the domain, and those in the configuration.
func (c Config) organizations(withSources []int64) []int64 {
	all := slices.Clone(withSources)
	for _, t := range c.ScopedTokens {
		all = append(all, t.Organization)
	}
	for _, h := range c.Hooks {
		if h.Organization != 0 {
			all = append(all, h.Organization)
		}
	}
	for _, r := range c.Registries {
		all = append(all, r.Organizations...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unscoped returns the credentials without an organization, each with what to do about it.
func (c Config) unscoped() []fault.Field {
	var found []fault.Field
	for i, r := range c.Registries {
		if r.Password != "" && len(r.Organizations) == 0 {
			found = append(found, fault.Field{
				Name:    fmt.Sprintf("registries[%d].organizations", i),
				Problem: "missing; expected the organizations whose sources may use the account for " + r.Host,
			})
		}
	}
	if c.DockerConfig {
		found = append(found, fault.Field{
			Name:    "docker_config",
			Problem: "found true; expected false, and entries with organizations in registries: its accounts would serve every organization",
		})
	}
	if len(c.Tokens) > 0 && !c.SharedTokens {
		found = append(found, fault.Field{
			Name: "tokens", Problem: "found tokens that report for every organization; expected scoped_tokens, each with an organization, repositories and an expiry, or shared_tokens: true",
		})
	}
	return found
}

// checkOrganizations refuses credentials without an organization if there is more than one organization, and otherwise warns about them.
func (c Config) checkOrganizations(ctx context.Context, withSources []int64, log *slog.Logger) error {
	unscoped := c.unscoped()
	if len(unscoped) == 0 {
		return nil
	}
	if all := c.organizations(withSources); len(all) > 1 {
		return fault.WithFields(fault.Invalid, fmt.Sprintf("with %d organizations, every credential must name those that it serves: %s",
			len(all), fault.InvalidFields(unscoped...).Error()), unscoped...)
	}
	names := make([]string, len(unscoped))
	for i, f := range unscoped {
		names[i] = f.Name
	}
	log.WarnContext(ctx, "found credentials without an organization: with a second organization the service will not start", "settings",
		strings.Join(names, ", "))
	return nil
}
