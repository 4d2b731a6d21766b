// Package retention deletes ended runs after a time, by rules of their organizations. A rule applies to the runs with a label, or to all
// runs if it names none. Without a rule, runs are kept. Runs of rollouts and setups are never deleted: they belong to the domain
// service's record.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// Rule says how long ended runs with a label are kept.
type Rule struct {
	// Label and Value are of the runs; both are empty for all runs of the organization.
	Label, Value string
	// Keep is the time from the end of a run to its deletion.
	Keep time.Duration
}

// Change sets a rule, or removes it if Keep is 0.
type Change struct {
	Organization int64
	Rule
	By, Reason string
	At         time.Time
}

// Run is a run that may be due.
type Run struct {
	ID       int64
	Workflow string
	Labels   map[string]string
	// Ended is zero for one that has not.
	Ended time.Time
}

// Store keeps rules and deletes runs. Each method is one transaction.
type Store interface {
	Rules(ctx context.Context, organization int64) ([]Rule, error)
	// SetRule fails with fault.Refused if the organization already has the most rules allowed.
	SetRule(ctx context.Context, c Change, most int) error
	// WithRules are the organizations that have rules.
	WithRules(ctx context.Context) ([]int64, error)
	// Runs returns a page of the runs that were started before a time, after a number.
	Runs(ctx context.Context, organization, after int64, before time.Time, most int) ([]Run, error)
	// Delete deletes the given runs that ended before a time.
	Delete(ctx context.Context, runs []int64, before time.Time) (int64, error)
}

const (
	// every is how often runs are deleted, page how many are read and most how many are deleted in a transaction.
	every = time.Hour
	page  = 1000
	most  = 100
	// mostRules bounds the rules of an organization, and shortest and longest a rule.
	mostRules = 100
	shortest  = time.Minute
	longest   = 20 * 365 * 24 * time.Hour
	// mostText is the length of a label and of its value.
	mostText = 255
)

// Retention applies the rules.
type Retention struct {
	store Store
	clock clock.Clock
	log   *slog.Logger
}

// New makes a Retention.
func New(store Store, c clock.Clock, log *slog.Logger) *Retention {
	return &Retention{store: store, clock: c, log: log}
}

// Rules lists the rules of an organization.
func (r *Retention) Rules(ctx context.Context, organization int64) ([]Rule, error) {
	if err := execution.CheckOrganization(organization); err != nil {
		return nil, err
	}
	return r.store.Rules(ctx, organization)
}

// Set sets a rule, or removes it.
func (r *Retention) Set(ctx context.Context, c Change) error {
	if err := execution.CheckOrganization(c.Organization); err != nil {
		return err
	}
	if err := execution.CheckReason(c.Reason, 0); err != nil {
		return err
	}
	switch {
	case len(c.Label) > mostText || len(c.Value) > mostText:
		return wrong("label", "found %d and %d bytes, expected at most %d", len(c.Label), len(c.Value), mostText)
	case c.Label == "" && c.Value != "":
		return wrong("label", "missing, expected the label that has the value %q", c.Value)
	case c.Keep != 0 && (c.Keep < shortest || c.Keep > longest):
		return wrong("keep", "found %s, expected %s to %s, or 0 to remove the rule", c.Keep, shortest, longest)
	}
	c.At = r.clock.Now()
	return r.store.SetRule(ctx, c, mostRules)
}

func wrong(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// Run applies the rules every hour until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if deleted, err := r.Apply(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "deleting ended runs failed; will retry", "error", err)
		} else if deleted > 0 {
			r.log.InfoContext(ctx, "ended runs were deleted as their rules say", "runs", deleted)
		}
		_ = clock.Sleep(ctx, r.clock, every) // ends early with ctx
	}
	return nil
}

// Apply deletes the runs that are due.
func (r *Retention) Apply(ctx context.Context) (deleted int64, err error) {
	organizations, err := r.store.WithRules(ctx)
	if err != nil {
		return 0, err
	}
	for _, organization := range organizations {
		n, err := r.applyTo(ctx, organization)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (r *Retention) applyTo(ctx context.Context, organization int64) (deleted int64, err error) {
	rules, err := r.store.Rules(ctx, organization)
	if err != nil || len(rules) == 0 {
		return 0, err
	}
	soonest := rules[0].Keep
	for _, rule := range rules {
		soonest = min(soonest, rule.Keep)
	}
	now := r.clock.Now()
	for after := int64(0); ; {
		runs, err := r.store.Runs(ctx, organization, after, now.Add(-soonest), page)
		if err != nil {
			return deleted, err
		}
		// Runs of one rule go together: a run that is retried meanwhile ends later than before it.
		old := map[time.Duration][]int64{}
		for _, run := range runs {
			after = run.ID
			if keep, ok := keepFor(rules, run); ok && !run.Ended.IsZero() && run.Ended.Before(now.Add(-keep)) {
				old[keep] = append(old[keep], run.ID)
			}
		}
		for keep, ids := range old {
			for len(ids) > 0 {
				n := min(len(ids), most)
				gone, err := r.store.Delete(ctx, ids[:n], now.Add(-keep))
				if deleted += gone; err != nil {
					return deleted, err
				}
				ids = ids[n:]
			}
		}
		if len(runs) < page {
			return deleted, nil
		}
	}
}

// keepFor is how long a run is kept: the longest of the rules for its labels, and only without one that of the rule for all runs.
func keepFor(rules []Rule, run Run) (keep time.Duration, ok bool) {
	if id.ReservedRun(run.Workflow) {
		return 0, false
	}
	labelled := false
	for _, rule := range rules {
		switch value, has := run.Labels[rule.Label]; {
		case rule.Label == "":
			if !labelled {
				keep, ok = rule.Keep, true
			}
		case has && value == rule.Value:
			if !labelled || rule.Keep > keep {
				keep = rule.Keep
			}
			labelled, ok = true, true
		}
	}
	return keep, ok
}
