package model

import (
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// PlanPreview is what a change would roll out.
type PlanPreview struct {
	Applications []PlannedApplication
	More         bool
}

// PlannedApplication wraps the domain's.
type PlannedApplication struct{ touched trigger.Touched }

// WrapPlannedApplication wraps the domain's.
func WrapPlannedApplication(t trigger.Touched) PlannedApplication { return PlannedApplication{t} }

// Application is the one that is touched.
func (p PlannedApplication) Application() Application { return WrapApplication(p.touched.Application) }

// Files are never null.
func (p PlannedApplication) Files() []string { return append([]string{}, p.touched.Files...) }

// FileCount counts those beyond the first ones, too.
func (p PlannedApplication) FileCount() int { return p.touched.FileCount }

// Trigger is null where none would begin a rollout.
func (p PlannedApplication) Trigger() *Trigger {
	if p.touched.Trigger == nil {
		return nil
	}
	t := WrapTrigger(*p.touched.Trigger)
	return &t
}

// Begins is never empty.
func (p PlannedApplication) Begins() string { return p.touched.Begins }

// Strategy is null where nothing could be planned.
func (p PlannedApplication) Strategy() *RolloutStrategy {
	return WrapRollout(core.Rollout{Plan: p.touched.Plan}).Strategy()
}

// StrategyReason is null with it.
func (p PlannedApplication) StrategyReason() *string { return orNull(p.touched.Plan.Why) }

// Refused is null where a rollout would begin.
func (p PlannedApplication) Refused() *string { return orNull(p.touched.Refused) }

// Environments are never null.
func (p PlannedApplication) Environments() []PlannedEnvironment {
	all := make([]PlannedEnvironment, len(p.touched.Environments))
	for i, e := range p.touched.Environments {
		all[i] = PlannedEnvironment{e}
	}
	return all
}

// PlannedEnvironment wraps the domain's.
type PlannedEnvironment struct{ foreseen rollout.ForeseenEnvironment }

// Environment is the one that would be entered.
func (e PlannedEnvironment) Environment() Environment {
	return WrapEnvironment(e.foreseen.Environment)
}

// Needs are never null.
func (e PlannedEnvironment) Needs() []PlanNeed {
	all := make([]PlanNeed, len(e.foreseen.Needs))
	for i, n := range e.foreseen.Needs {
		all[i] = PlanNeed{n}
	}
	return all
}

// Deadline is null for any time.
func (e PlannedEnvironment) Deadline() *PlannedDeadline {
	if e.foreseen.Deadline == nil {
		return nil
	}
	return &PlannedDeadline{*e.foreseen.Deadline}
}

// PlannedDeadline wraps the domain's.
type PlannedDeadline struct{ core.DeadlineRule }

// Seconds is how long it is.
func (d PlannedDeadline) Seconds() int { return int(d.After / time.Second) }

// Action is what happens when it passes.
func (d PlannedDeadline) Action() RolloutDeadlineAction {
	return RolloutDeadlineAction(strings.ToUpper(string(d.DeadlineRule.Action)))
}

// PlanNeed wraps the domain's.
type PlanNeed struct{ need rollout.Need }

// Kind is what kind of condition it is.
func (n PlanNeed) Kind() PlanNeedKind { return PlanNeedKind(strings.ToUpper(string(n.need.Kind))) }

// Subject is null for policies.
func (n PlanNeed) Subject() *string { return orNull(n.need.Subject) }

// Detail is never empty.
func (n PlanNeed) Detail() string { return n.need.Detail }

// Approvers are never null.
func (n PlanNeed) Approvers() []string { return append([]string{}, n.need.Approvers...) }

// Requirements are never null.
func (n PlanNeed) Requirements() []PlanRequirement {
	all := make([]PlanRequirement, len(n.need.Requirements))
	for i, r := range n.need.Requirements {
		all[i] = PlanRequirement{Group: orNull(r.Group), Quorum: r.Quorum}
	}
	return all
}
