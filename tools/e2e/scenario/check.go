package scenario

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Measuring is a cluster with a Prometheus.
type Measuring interface {
	// Metrics returns its URL; empty without one.
	Metrics() string
	// SetMetric sets e2e_value{name="…"}; nil removes it.
	SetMetric(name string, value *float64) error
}

// metric sets or removes a value. The names of scenarios are their own.
func (r *run) metric(m Metric) error {
	measuring, ok := r.Cluster.(Measuring)
	if !ok {
		return fault.New(fault.Invalid, "metric %q: found a cluster without Prometheus", m.Name)
	}
	value := &m.Value
	if m.Gone {
		value = nil
	}
	return measuring.SetMetric(r.scenario.Name+"-"+m.Name, value)
}

// checks returns what the started rollout waits for, as far as it is checks, by key.
func (r *run) checks(ctx context.Context) (map[string]client.Wait, []string, error) {
	now, err := r.world.API.Rollout(ctx, r.started.ID)
	if err != nil {
		return nil, nil, err
	}
	found, texts := map[string]client.Wait{}, []string{}
	for _, w := range now.WaitingOn {
		if w.Kind == "CHECK" {
			found[w.Subject] = w
			texts = append(texts, fmt.Sprintf("%s %s: %s", w.Subject, w.Status, w.Detail))
		}
	}
	return found, texts, nil
}

// check waits for a status and a detail of a check.
func (r *run) check(ctx context.Context, want Check) error {
	pattern, err := regexp.Compile(want.Detail)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	return r.world.Await(ctx, fmt.Sprintf("check %s to be %s: %s", want.Key, want.Status, want.Detail), func() (string, bool, error) {
		all, texts, err := r.checks(ctx)
		w, waits := all[want.Key]
		return strings.Join(texts, "; "), waits && w.Status == want.Status && pattern.MatchString(w.Detail), err
	})
}

// passed waits until other checks are waited for, and this one is not.
func (r *run) passed(ctx context.Context, key string) error {
	return r.world.Await(ctx, "check "+key+" to be green", func() (string, bool, error) {
		all, texts, err := r.checks(ctx)
		_, waits := all[key]
		return strings.Join(texts, "; "), !waits && len(all) > 0, err
	})
}
