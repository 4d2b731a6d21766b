package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// Chains is what the API needs of package trigger about chains.
type Chains interface {
	CancelChain(ctx context.Context, a core.Actor, id int64, reason string) (core.Chain, error)
	Chains(ctx context.Context, organization int64, ids []int64) (map[int64]core.Chain, error)
	ChainsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Chain, error)
	ChainsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Chain, error)
	ChainNodes(ctx context.Context, organization int64, chains []int64) (map[int64][]core.ChainNode, error)
}

// Triggers is what the API needs of package trigger.
type Triggers interface {
	Chains
	PutTrigger(ctx context.Context, a core.Actor, n trigger.NewTrigger) (core.Trigger, error)
	RemoveTrigger(ctx context.Context, a core.Actor, application int64, name, reason string) (core.Trigger, error)
	Foresee(ctx context.Context, a core.Actor, c trigger.Change) (all []trigger.Touched, more bool, err error)
	SendEvent(ctx context.Context, a core.Actor, e trigger.Event) (trigger.Delivery, error)
	ReleasePromotionHold(ctx context.Context, a core.Actor, application, environment int64, reason string) (core.Application, error)
	Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error)
	TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error)
	PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error)
}

var _ Triggers = (*trigger.UseCases)(nil)

// PlanPreview is what a change of a repository would roll out.
func (q query) PlanPreview(ctx context.Context, in model.PlanPreviewInput) (model.PlanPreview, error) {
	all, more, err := q.domain.Triggers.Foresee(ctx, loadersOf(ctx).actor, trigger.Change{
		Repository: in.Repository, Branch: in.Branch, Paths: in.Paths, SHA: orEmpty(in.Sha), Message: orEmpty(in.Message),
	})
	p := model.PlanPreview{Applications: make([]model.PlannedApplication, len(all)), More: more}
	for i, one := range all {
		p.Applications[i] = model.WrapPlannedApplication(one)
	}
	return p, err
}

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
	sent, err := m.domain.Triggers.SendEvent(ctx, loadersOf(ctx).actor, trigger.Event{
		ID: in.ID, Source: in.Source, Type: in.Type, Data: in.Data,
	})
	p.Triggers, p.Errors, err = changed(sent, err, func(d trigger.Delivery) int { return d.Triggers })
	if p.Triggers != nil {
		p.Full = &sent.Full
	}
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

// Chains are those that its rollouts began.
func (application) Chains(ctx context.Context, a *model.Application) ([]model.Chain, error) {
	return list(ctx, loadersOf(ctx).chainsOf, a.ID, model.WrapChain)
}

// Chains are those that it began.
func (rolloutResolver) Chains(ctx context.Context, r *model.Rollout) ([]model.Chain, error) {
	return list(ctx, loadersOf(ctx).chainsAfter, r.ID, model.WrapChain)
}

// chainResolver resolves the fields of Chain that are loaded.
type chainResolver struct{}

// Application is whose rollout it follows.
func (chainResolver) Application(ctx context.Context, c *model.Chain) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, c.ApplicationID, model.WrapApplication)
}

// Rollout is the one that it follows.
func (chainResolver) Rollout(ctx context.Context, c *model.Chain) (model.Rollout, error) {
	return required(ctx, loadersOf(ctx).rollouts, model.KindRollout, c.RolloutID, model.WrapRollout)
}

// Parent is the chain that began that rollout.
func (chainResolver) Parent(ctx context.Context, c *model.Chain) (*model.Chain, error) {
	return optional(ctx, loadersOf(ctx).chains, c.ParentID, model.WrapChain)
}

// Nodes are the applications in it.
func (chainResolver) Nodes(ctx context.Context, c *model.Chain) ([]model.ChainNode, error) {
	return list(ctx, loadersOf(ctx).chainNodesOf, c.ID, model.WrapChainNode)
}

// chainNode resolves the fields of ChainNode that are loaded.
type chainNode struct{}

// Application is the one in the chain.
func (chainNode) Application(ctx context.Context, n *model.ChainNode) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, n.ApplicationID, model.WrapApplication)
}

// Rollout is the one that began.
func (chainNode) Rollout(ctx context.Context, n *model.ChainNode) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, n.RolloutID, model.WrapRollout)
}

// Chains are those that the rollout began.
func (chainNode) Chains(ctx context.Context, n *model.ChainNode) ([]model.Chain, error) {
	if n.RolloutID == 0 {
		return []model.Chain{}, nil
	}
	return list(ctx, loadersOf(ctx).chainsAfter, n.RolloutID, model.WrapChain)
}

// CancelChain ends a chain with everything in it.
func (m mutation) CancelChain(ctx context.Context, in model.CancelChainInput) (p model.CancelChainPayload, err error) {
	n, err := number("/chainId", model.KindChain, in.ChainID)
	var ended core.Chain
	if err == nil {
		ended, err = m.domain.Triggers.CancelChain(ctx, loadersOf(ctx).actor, n, orEmpty(in.Reason))
	}
	p.Chain, p.Errors, err = changed(ended, inField(err, "/chainId"), model.WrapChain)
	return p, err
}
