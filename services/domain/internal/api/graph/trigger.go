package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// Triggers is what the API needs of package trigger.
type Triggers interface {
	PutTrigger(ctx context.Context, a core.Actor, n trigger.NewTrigger) (core.Trigger, error)
	RemoveTrigger(ctx context.Context, a core.Actor, application int64, name, reason string) (core.Trigger, error)
	SendEvent(ctx context.Context, a core.Actor, e trigger.Event) (int, error)
	ReleasePromotionHold(ctx context.Context, a core.Actor, application, environment int64, reason string) (core.Application, error)
	Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error)
	TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error)
	PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error)
}

var _ Triggers = (*trigger.UseCases)(nil)

// TriggerKinds are all kinds.
func (query) TriggerKinds(context.Context) ([]model.TriggerKindDescription, error) {
	var all []model.TriggerKindDescription
	for _, k := range trigger.Kinds() {
		all = append(all, model.TriggerKindDescription{Kind: k.Kind, Description: k.Description, Schema: k.Schema, Default: k.Default})
	}
	return all, nil
}

// Triggers are those of an application.
func (application) Triggers(ctx context.Context, a *model.Application) ([]model.Trigger, error) {
	return list(ctx, loadersOf(ctx).triggersOf, a.ID, model.WrapTrigger)
}

// PromotionHolds are those in force.
func (application) PromotionHolds(ctx context.Context, a *model.Application) ([]model.PromotionHold, error) {
	return list(ctx, loadersOf(ctx).promotionHoldsOf, a.ID, model.WrapPromotionHold)
}

// triggerResolver resolves the fields of Trigger that are loaded.
type triggerResolver struct{}

// LastDecision is the latest; nil for none.
func (r triggerResolver) LastDecision(ctx context.Context, t *model.Trigger) (*model.TriggerDecision, error) {
	all, err := r.Decisions(ctx, t)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// Decisions are the latest, the latest first.
func (triggerResolver) Decisions(ctx context.Context, t *model.Trigger) ([]model.TriggerDecision, error) {
	if t.ID == 0 {
		return []model.TriggerDecision{}, nil
	}
	return list(ctx, loadersOf(ctx).triggerDecisionsOf, t.ID, model.WrapTriggerDecision)
}

// triggerDecision resolves the fields of TriggerDecision that are loaded.
type triggerDecision struct{}

// VersionSet is the one that it was about.
func (triggerDecision) VersionSet(ctx context.Context, d *model.TriggerDecision) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).versionSets, d.VersionSetID, model.WrapVersionSet)
}

// Rollout is the one that began.
func (triggerDecision) Rollout(ctx context.Context, d *model.TriggerDecision) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, d.RolloutID, model.WrapRollout)
}

// promotionHold resolves the fields of PromotionHold that are loaded.
type promotionHold struct{}

// Environment is where automation is held.
func (promotionHold) Environment(ctx context.Context, h *model.PromotionHold) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, h.EnvironmentID, model.WrapEnvironment)
}

// Rollout is the rollback.
func (promotionHold) Rollout(ctx context.Context, h *model.PromotionHold) (model.Rollout, error) {
	return required(ctx, loadersOf(ctx).rollouts, model.KindRollout, h.RolloutID, model.WrapRollout)
}

// PutTrigger saves a trigger.
func (m mutation) PutTrigger(ctx context.Context, in model.PutTriggerInput) (p model.PutTriggerPayload, err error) {
	l := loadersOf(ctx)
	n := trigger.NewTrigger{Name: in.Name, Kind: in.Kind, Config: in.Config, Enabled: in.Enabled, Reason: orEmpty(in.Reason)}
	if string(n.Config) == "null" {
		n.Config = nil
	}
	// Before names are looked up, which would reveal what exists.
	if err = l.actor.MaySomewhere(core.ActionPutTrigger); err == nil {
		n.ApplicationID, err = applicationNumber(ctx, m.domain.View, in.Application)
	}
	var saved core.Trigger
	if err == nil {
		saved, err = m.domain.Triggers.PutTrigger(ctx, l.actor, n)
	}
	if err == nil {
		wrapped := model.WrapTrigger(saved)
		p.Trigger = &wrapped
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n.ApplicationID, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// RemoveTrigger removes one.
func (m mutation) RemoveTrigger(ctx context.Context, in model.RemoveTriggerInput) (p model.RemoveTriggerPayload, err error) {
	l := loadersOf(ctx)
	var id int64
	if err = l.actor.MaySomewhere(core.ActionRemoveTrigger); err == nil {
		id, err = applicationNumber(ctx, m.domain.View, in.Application)
	}
	if err == nil {
		_, err = m.domain.Triggers.RemoveTrigger(ctx, l.actor, id, in.Name, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, id, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// SendEvent gives an event to triggers.
func (m mutation) SendEvent(ctx context.Context, in model.SendEventInput) (p model.SendEventPayload, err error) {
	many, err := m.domain.Triggers.SendEvent(ctx, loadersOf(ctx).actor, trigger.Event{
		ID: in.ID, Source: in.Source, Type: in.Type, Data: in.Data,
	})
	p.Triggers, p.Errors, err = changed(many, err, func(n int) int { return n })
	return p, err
}

// ReleasePromotionHold lets automation begin rollouts again.
func (m mutation) ReleasePromotionHold(
	ctx context.Context, in model.ReleasePromotionHoldInput,
) (p model.ReleasePromotionHoldPayload, err error) {
	l := loadersOf(ctx)
	var id, environment int64
	if err = l.actor.MaySomewhere(core.ActionReleasePromotionHold); err == nil {
		id, err = applicationNumber(ctx, m.domain.View, in.Application)
	}
	if err == nil {
		environment, err = environmentNumber(ctx, m.domain.View, in.Environment)
	}
	if err == nil {
		_, err = m.domain.Triggers.ReleasePromotionHold(ctx, l.actor, id, environment, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, id, model.WrapApplication, inField(err, "/application"))
	return p, err
}
