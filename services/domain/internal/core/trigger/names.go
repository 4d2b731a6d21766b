package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// byNames is the configuration of a trigger with the names of environments, and of services of its application, where its author has
// written what they are shown as: what is stored never follows a display name. Patterns are of names.
func byNames(ctx context.Context, tx Tx, organization int64, of core.Trigger, c config) (json.RawMessage, error) {
	environments, err := tx.EnvironmentsShownAs(ctx, organization, slices.DeleteFunc(
		append([]string{c.Until, c.Environment}, c.Environments...), func(one string) bool { return one == "" || strings.Contains(one, "*") },
	))
	if err != nil {
		return nil, err
	}
	services := map[string]string{}
	if len(c.Services) > 0 {
		all, err := tx.ServicesByApplication(ctx, organization, []int64{of.ApplicationID})
		if err != nil {
			return nil, err
		}
		for _, s := range all[of.ApplicationID] {
			if s.DisplayName != s.Name {
				services[s.DisplayName] = s.Name
			}
		}
	}
	after := map[string]any{}
	for member, one := range map[string]string{"until": c.Until, "environment": c.Environment} {
		if name, shown := environments[one]; shown {
			after[member] = name
		}
	}
	lists := map[string]struct {
		written []string
		names   map[string]string
	}{"environments": {c.Environments, environments}, "services": {c.Services, services}}
	for member, list := range lists {
		named := core.ByNames(list.written, list.names)
		if !slices.Equal(named, list.written) {
			after[member] = named
		}
	}
	if len(after) == 0 {
		return of.Config, nil
	}
	given := map[string]json.RawMessage{}
	if err := json.Unmarshal(of.Config, &given); err != nil {
		return nil, fmt.Errorf("read the configuration of trigger %q: %w", of.Name, err)
	}
	for member, value := range after {
		if given[member], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("write %s of trigger %q: %w", member, of.Name, err)
		}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("write the configuration of trigger %q: %w", of.Name, err)
	}
	return text, nil
}
