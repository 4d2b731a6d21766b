// Package retention deletes ended runs after a time, by rules of their organizations. A rule applies to the runs with a label, or to all
// runs if it names none. Without a rule, runs are kept. Runs of rollouts and setups are never deleted: they belong to the domain
// service's record. Where an archive is configured, a run is deleted only after the archive has confirmed that it keeps it.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// Archive keeps runs that are deleted from the database.
type Archive interface {
	// Keep stores a run whole; once it has returned, the run may be deleted. Repeated, it has no further effect. The error is
	// fault.Unavailable if the archive cannot be reached, which concerns all runs; any other is about this run.
	Keep(ctx context.Context, organization int64, run Run) error
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

// Deps are what a Retention works with.
type Deps struct {
	Store Store
	// Archive is nil if deleted runs are not kept.
	Archive Archive
	// Kept counts runs by their outcome: "archived" or "failed"; nil counts nothing.
	Kept  func(outcome string)
	Clock clock.Clock
	Log   *slog.Logger
}

// Retention applies the rules.
type Retention struct {
	store   Store
	archive Archive
	kept    func(outcome string)
	clock   clock.Clock
	log     *slog.Logger
}

// New makes a Retention.
func New(d Deps) *Retention {
	r := &Retention{store: d.Store, archive: d.Archive, kept: d.Kept, clock: d.Clock, log: d.Log}
	if r.kept == nil {
		r.kept = func(string) {}
	}
	return r
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

// Apply deletes the runs that are due. The organizations take turns, a page of runs each, so that one with many due runs delays no other.
func (r *Retention) Apply(ctx context.Context) (deleted int64, err error) {
	organizations, err := r.store.WithRules(ctx)
	if err != nil {
		return 0, err
	}
	now := r.clock.Now()
	after := make(map[int64]int64, len(organizations))
	for len(organizations) > 0 {
		var rest []int64
		for _, organization := range organizations {
			n, last, err := r.page(ctx, organization, after[organization], now)
			if deleted += n; err != nil {
				return deleted, err
			}
			if last > 0 {
				after[organization] = last
				rest = append(rest, organization)
			}
		}
		organizations = rest
	}
	return deleted, nil
}

// page deletes what is due among a page of an organization's runs after a number, and returns the number after which the next page begins,
// 0 if there is none.
func (r *Retention) page(ctx context.Context, organization, after int64, now time.Time) (deleted, last int64, err error) {
	rules, err := r.store.Rules(ctx, organization)
	if err != nil || len(rules) == 0 {
		return 0, 0, err
	}
	soonest := rules[0].Keep
	for _, rule := range rules {
		soonest = min(soonest, rule.Keep)
	}
	runs, err := r.store.Runs(ctx, organization, after, now.Add(-soonest), page)
	if err != nil {
		return 0, 0, err
	}
	// Runs of one rule go together: a run that is retried meanwhile ends later than before it.
	old := map[time.Duration][]Run{}
	for _, run := range runs {
		if keep, ok := keepFor(rules, run); ok && !run.Ended.IsZero() && run.Ended.Before(now.Add(-keep)) {
			old[keep] = append(old[keep], run)
		}
	}
	for keep, due := range old {
		for chunk := range slices.Chunk(due, most) {
			ids, err := r.keepAll(ctx, organization, chunk)
			if err != nil {
				return deleted, 0, err
			}
			gone, err := r.store.Delete(ctx, ids, now.Add(-keep))
			if deleted += gone; err != nil {
				return deleted, 0, err
			}
		}
	}
	if len(runs) < page {
		return deleted, 0, nil
	}
	return deleted, runs[len(runs)-1].ID, nil
}

// keepAll archives runs and returns the numbers of those that may be deleted. A run that the archive cannot keep stays; an archive that
// cannot be reached is an error.
func (r *Retention) keepAll(ctx context.Context, organization int64, runs []Run) (ids []int64, err error) {
	for _, run := range runs {
		if r.archive != nil {
			err := r.archive.Keep(ctx, organization, run)
			if err != nil {
				r.kept("failed")
			}
			switch {
			case fault.Is(err, fault.Unavailable) || ctx.Err() != nil:
				return nil, fmt.Errorf("archive workflow %q of organization %d: %w", run.Workflow, organization, err)
			case err != nil:
				r.log.WarnContext(ctx, "archiving an ended run failed; it is kept", "organization", organization, "workflow", run.Workflow, "error", err)
				continue
			}
			r.kept("archived")
		}
		ids = append(ids, run.ID)
	}
	return ids, nil
}

// keepFor is how long a run is kept: the longest of the rules for its labels, and only without one that of the rule for all runs.
func keepFor(rules []Rule, run Run) (keep time.Duration, ok bool) {
	// What sent a notification, published a status or read a pull request is kept like any other run: the domain service looks at it for
	// minutes.
	message, _ := id.Notification(run.Workflow)
	status, _ := id.ForgeStatus(run.Workflow)
	pull, _ := id.ForgePull(run.Workflow)
	if message == 0 && status == 0 && pull == 0 && id.ReservedRun(run.Workflow) {
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
