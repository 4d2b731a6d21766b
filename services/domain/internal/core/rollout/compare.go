package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Before a rollout begins about which nothing else decides, the drivers list what it would change (R4-19), if the pipeline wants that. It
// waits in the queue of its application meanwhile: a crash loses nothing, a newer request takes its place, and an answer that does not
// arrive leaves the pipeline in force.

// comparesFor is how long a rollout waits for the drivers.
const comparesFor = 2 * time.Minute

// compare adds what the drivers have listed to the facts of a decision, and finds out whether they are to be asked. Nobody waits for it
// who takes something back, repeats or repairs it.
func (p *plan) compare(f *planner.Facts, w wish) {
	if p.back != nil && (!p.back.forward || p.back.repair) || w.repeats.ID != 0 {
		f.Rules.Compare = false
	}
	if w.comparison != nil {
		found := p.find(*w.comparison)
		f.Finding = &found
	}
	if !planner.Asks(*f) {
		return
	}
	if why := p.cannotCompare(); why != "" {
		f.Finding = &planner.Finding{Strategy: planner.Pipeline, Summary: why}
		return
	}
	p.asks = true
}

// cannotCompare is why the drivers of a plan cannot list what it changes; empty if they can.
func (p *plan) cannotCompare() string {
	refs := p.driverRefs()
	several := slices.ContainsFunc(refs, func(ref string) bool { return ref != refs[0] })
	for _, s := range p.stops {
		switch {
		case s.fleet != nil:
			return s.environment.Name + " is a fleet, whose manifests are not compared"
		case !s.driver.Plans:
			return fmt.Sprintf("driver %s cannot list beforehand what a rollout changes", s.driver.Ref)
		case several && !s.driver.CombinesPlan:
			return fmt.Sprintf("driver %s cannot list beforehand what a rollout changes in a pipeline of several drivers", s.driver.Ref)
		}
	}
	return ""
}

// find is what a comparison means for the plan.
func (p *plan) find(c core.Preview) planner.Finding {
	names := make([]string, len(p.stops))
	var all []planner.Compared
	for i, s := range p.stops {
		names[i] = s.environment.Name
		one := planner.Compared{Environment: s.environment.Name}
		at := slices.IndexFunc(c.Environments, func(e core.PreviewedEnvironment) bool { return e.EnvironmentID == s.environment.ID })
		switch {
		case c.State == core.PreviewPending:
			one.Reason = fmt.Sprintf("there was no answer within %s", comparesFor)
		case c.State == core.PreviewFailed:
			one.Reason = c.Reason
		case at < 0 || c.Environments[at].Compared == nil:
			continue
		default:
			found := c.Environments[at].Compared
			one.Reason, one.Workloads, one.Things = found.Reason, found.Workloads, found.Things
			if one.Reason == "" {
				one.Reason = c.Environments[at].Reason
			}
		}
		all = append(all, one)
	}
	var added []string
	for _, id := range p.fresh {
		if v := p.versions[id]; v.IsImage() {
			added = append(added, v.Name)
		}
	}
	return planner.Find(names, all, added)
}

// commitsOf are the commits that were compared, by environment.
func commitsOf(c core.Preview) map[int64]string {
	commits := map[int64]string{}
	for _, e := range c.Environments {
		if e.Compared != nil {
			commits[e.EnvironmentID] = e.Compared.Commit
		}
	}
	return commits
}

// part are the environments that a plan goes to, by name, if they are a part of the pipeline; empty for all of it.
func (p *plan) part() []string {
	if p.back == nil {
		return nil
	}
	if len(p.back.scope.Only) > 0 {
		return p.back.scope.Only
	}
	names := make([]string, len(p.stops))
	for i, s := range p.stops {
		names[i] = s.environment.Name
	}
	return names
}

// askDrivers has the drivers list what a plan changes, and returns the number of the comparison.
func (u *UseCases) askDrivers(ctx context.Context, tx Tx, c cause, p plan) (int64, error) {
	made, err := tx.AddPreview(ctx, core.Preview{ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID})
	if err != nil {
		return 0, err
	}
	inputs, err := json.Marshal(p.previewInput(c.Organization, made.ID))
	if err != nil {
		return 0, fmt.Errorf("encode inputs of comparison %d: %w", made.ID, err)
	}
	return made.ID, setup.SubmitCombined(ctx, tx, p.drivers, c.at, p.driverRefs(), core.Handoff{
		WorkflowID: previewWorkflow(made.ID), Subject: core.HandoffPreview, SubjectID: made.ID, Program: core.ProgramPlan, Inputs: inputs,
	})
}

// compareFirst puts a rollout into the queue, where it waits for the drivers.
func (u *UseCases) compareFirst(ctx context.Context, tx Tx, c cause, p plan, q core.QueuedRollout) (*core.QueuedRollout, error) {
	waiting, err := tx.QueuedRollouts(ctx, c.Organization, []int64{p.application.ID})
	if err != nil {
		return nil, err
	}
	replaced := waiting[p.application.ID]
	if err := u.endComparison(ctx, tx, c, replaced, core.ReplacedInQueue); err != nil {
		return nil, err
	}
	if err := tx.ForgetPreviews(ctx, c.at.Add(-previewsKept), forgottenAtOnce); err != nil {
		return nil, err
	}
	id, err := u.askDrivers(ctx, tx, c, p)
	if err != nil {
		return nil, err
	}
	until := c.at.Add(comparesFor)
	// Requests that follow each other faster than the drivers answer do not put off the application for ever.
	if replaced.ComparesUntil != nil && replaced.ComparesUntil.Before(until) {
		until = *replaced.ComparesUntil
	}
	q.ApplicationID, q.VersionSetID, q.Requester, q.RequestedAt = p.application.ID, p.versionSet.ID, c.Principal(), c.at
	q.ComparisonID, q.ComparesUntil = id, &until
	q, err = tx.QueueRollout(ctx, q)
	return &q, err
}

// enterQueue puts a rollout into the queue of its application. What the drivers compare for the one that waits there is stopped.
func (u *UseCases) enterQueue(ctx context.Context, tx Tx, c cause, q core.QueuedRollout) (core.QueuedRollout, error) {
	waiting, err := tx.QueuedRollouts(ctx, c.Organization, []int64{q.ApplicationID})
	if err != nil {
		return q, err
	}
	if err := u.endComparison(ctx, tx, c, waiting[q.ApplicationID], core.ReplacedInQueue); err != nil {
		return q, err
	}
	return tx.QueueRollout(ctx, q)
}

// compareQueued is compareFirst for a rollout that is in the queue already.
func (u *UseCases) compareQueued(ctx context.Context, tx Tx, c cause, p plan, q *core.QueuedRollout) error {
	if err := u.endComparison(ctx, tx, c, *q, "it is compared again, with what runs now"); err != nil {
		return err
	}
	id, err := u.askDrivers(ctx, tx, c, p)
	if err != nil {
		return err
	}
	until := c.at.Add(comparesFor)
	q.ComparisonID, q.ComparesUntil = id, &until
	return tx.CompareQueuedRollout(ctx, *q)
}

// comparisonOf is what the drivers have listed about a rollout in the queue; nil if they were not asked, or if another rollout of the
// application has begun since: what runs may be something else now.
func comparisonOf(ctx context.Context, tx Tx, organization int64, q core.QueuedRollout) (*core.Preview, error) {
	if q.ComparisonID == 0 {
		return nil, nil //nolint:nilnil // not asked
	}
	known, err := tx.PreviewsByID(ctx, organization, []int64{q.ComparisonID})
	if err != nil {
		return nil, err
	}
	found, exists := known[q.ComparisonID]
	if !exists || found.VersionSetID != q.VersionSetID {
		return nil, nil //nolint:nilnil // asked too long ago, or by a replica of an earlier release for what has been replaced since
	}
	newest, err := tx.RolloutsByApplication(ctx, organization, []int64{q.ApplicationID}, core.Page{First: 1})
	if err != nil {
		return nil, err
	}
	if all := newest[q.ApplicationID].Nodes; len(all) > 0 && !all[0].CreatedAt.Before(found.RequestedAt) {
		return nil, nil //nolint:nilnil // stale
	}
	return &found, nil
}

// endComparison has the run stopped that compares for a rollout in the queue, if it is under way.
func (u *UseCases) endComparison(ctx context.Context, tx Tx, c cause, q core.QueuedRollout, reason string) error {
	if q.ComparisonID == 0 {
		return nil
	}
	known, err := tx.PreviewsByID(ctx, c.Organization, []int64{q.ComparisonID})
	if err != nil {
		return err
	}
	found, exists := known[q.ComparisonID]
	if !exists || found.State != core.PreviewPending {
		return nil
	}
	withdrawn, err := tx.WithdrawStart(ctx, previewWorkflow(found.ID))
	if err != nil || withdrawn {
		return err
	}
	return tx.AddHandoff(ctx, core.Handoff{
		Kind: core.HandoffCancel, WorkflowID: previewWorkflow(found.ID), Subject: core.HandoffPreview, SubjectID: found.ID,
		Reason: reason, DueAt: c.at,
	})
}

// comparisonCounts count what came of comparisons in this process.
type comparisonCounts struct{ quick, pipeline, timeout, failed atomic.Int64 }

// Comparisons are those that rollouts have waited for in this process, by result.
func (u *UseCases) Comparisons() map[string]int64 {
	c := &u.comparisons
	return map[string]int64{"quick": c.quick.Load(), "pipeline": c.pipeline.Load(), "timeout": c.timeout.Load(), "failed": c.failed.Load()}
}

// count counts what came of a comparison.
func (c *comparisonCounts) count(p plan, found core.Preview) {
	unknown := func(s stop) bool {
		return !slices.ContainsFunc(found.Environments, func(e core.PreviewedEnvironment) bool {
			return e.EnvironmentID == s.environment.ID && e.Compared != nil && e.Compared.Reason == "" && e.Reason == ""
		})
	}
	switch {
	case p.compared != nil:
		c.quick.Add(1)
	case found.State == core.PreviewPending:
		c.timeout.Add(1)
	case found.State == core.PreviewFailed || slices.ContainsFunc(p.stops, unknown):
		c.failed.Add(1)
	default:
		c.pipeline.Add(1)
	}
}
