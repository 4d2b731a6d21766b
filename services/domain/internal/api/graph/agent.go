package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// Agents, which act in clusters, and the log of who gave or took whose access.

// Agents is one page of them.
func (q query) Agents(
	ctx context.Context, first *int, after *string, last *int, before *string, withRevoked *bool, orderBy *core.Order,
) (model.AgentConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.AgentConnection{}, err
	}
	organization, revoked := loadersOf(ctx).actor.Organization, withRevoked != nil && *withRevoked
	s, err := q.domain.View.Agents(ctx, organization, revoked, p)
	return model.AgentConnection(model.Connect[model.AgentEdge](s, model.WrapAgent, func(ctx context.Context) (int, error) {
		return q.domain.View.CountAgents(ctx, organization, revoked)
	})), err
}

// Agent finds one by name; null where there is none.
func (q query) Agent(ctx context.Context, name string) (*model.Agent, error) {
	a, err := q.domain.View.AgentByName(ctx, loadersOf(ctx).actor.Organization, name)
	return orNull(a, err, model.WrapAgent)
}

// AccessChanges is one page of the log.
func (q query) AccessChanges(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.AccessChangeConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.AccessChangeConnection{}, err
	}
	actor := loadersOf(ctx).actor
	s, err := q.domain.Access.AccessChangesFor(ctx, actor, p)
	return model.AccessChangeConnection(model.Connect[model.AccessChangeEdge](s, model.WrapAccessChange,
		func(ctx context.Context) (int, error) {
			return q.domain.Access.CountAccessChangesFor(ctx, actor)
		})), err
}

// agent resolves those fields of Agent that are loaded.
type agent struct{}

// Keys are the latest.
func (agent) Keys(ctx context.Context, a *model.Agent) ([]model.AgentKey, error) {
	return list(ctx, loadersOf(ctx).agentKeysOf, a.ID, model.WrapAgentKey)
}

// Connected reports whether one of them is in use.
func (agent) Connected(ctx context.Context, a *model.Agent) (bool, error) {
	l := loadersOf(ctx)
	keys, _, err := l.agentKeysOf.load(ctx, a.ID)
	return a.RevokedAt == nil && core.ConnectedAt(keys, l.clock.Now()), err
}

// LastSeenAt is when one of them was; null for never.
func (agent) LastSeenAt(ctx context.Context, a *model.Agent) (last *time.Time, err error) {
	keys, _, err := loadersOf(ctx).agentKeysOf.load(ctx, a.ID)
	for _, k := range keys {
		if k.SeenAt != nil && (last == nil || k.SeenAt.After(*last)) {
			last = k.SeenAt
		}
	}
	return last, err
}

// Environments are those that deploy through it.
func (agent) Environments(ctx context.Context, a *model.Agent) ([]model.Environment, error) {
	return list(ctx, loadersOf(ctx).environmentsOfAgent, a.ID, model.WrapEnvironment)
}

// ViewerCan is about an agent. One that is revoked is past all of it.
func (agent) ViewerCan(ctx context.Context, a *model.Agent) ([]model.Ability, error) {
	l := loadersOf(ctx)
	return abilities(func(action core.Action) error {
		if err := l.actor.May(action); err != nil {
			return err
		}
		return a.Open()
	}, core.ActionSetAgentLabels, core.ActionRotateAgent, core.ActionRevokeAgent, core.ActionRevokeAgentKey)
}

// accessChange resolves those of AccessChange.
type accessChange struct{}

// Principal is the member who did it.
func (accessChange) Principal(ctx context.Context, c *model.AccessChange) (*model.Member, error) {
	return principal(ctx, c.Type, c.Principal.ID)
}

// RegisterAgent makes an agent, and shows the seed of its key this once.
func (m mutation) RegisterAgent(ctx context.Context, in model.RegisterAgentInput) (model.AgentKeyPayload, error) {
	return keyed(ctx, 0, func(int64) (core.Agent, string, error) {
		return m.domain.Access.RegisterAgent(ctx, loadersOf(ctx).actor, in.Name)
	}, nil)
}

// RotateAgent gives an agent another key, and shows its seed this once.
func (m mutation) RotateAgent(ctx context.Context, in model.RotateAgentInput) (model.AgentKeyPayload, error) {
	n, err := number("/agentId", model.KindAgent, in.AgentID)
	return keyed(ctx, n, func(n int64) (core.Agent, string, error) {
		r := access.Rotation{AgentID: n}
		if in.OverlapSeconds != nil {
			// 0 would be taken for "as usual"; what ends at once is below it.
			r.Overlap = max(time.Duration(*in.OverlapSeconds)*time.Second, 0)
			if r.Overlap == 0 {
				r.Overlap = -1
			}
		}
		made, seed, err := m.domain.Access.RotateAgent(ctx, loadersOf(ctx).actor, r)
		return made, seed, inField(err, "/agentId")
	}, err)
}

// keyed is the answer to what makes a key, unless something was wrong before.
func keyed(ctx context.Context, n int64, do func(int64) (core.Agent, string, error), err error) (p model.AgentKeyPayload, _ error) {
	var made core.Agent
	var seed string
	if err == nil {
		made, seed, err = do(n)
	}
	if err == nil {
		p.Seed = &seed
	}
	p.Agent, p.Errors, err = outcome(ctx, loadersOf(ctx).agents, made.ID, model.WrapAgent, err)
	return p, err
}

// RevokeAgent ends an agent.
func (m mutation) RevokeAgent(ctx context.Context, in model.RevokeAgentInput) (p model.AgentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/agentId", model.KindAgent, in.AgentID)
	if err == nil {
		_, err = m.domain.Access.RevokeAgent(ctx, l.actor, n)
		err = inField(err, "/agentId")
	}
	p.Agent, p.Errors, err = outcome(ctx, l.agents, n, model.WrapAgent, err)
	return p, err
}

// RevokeAgentKey ends one key of an agent.
func (m mutation) RevokeAgentKey(ctx context.Context, in model.RevokeAgentKeyInput) (p model.AgentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/keyId", model.KindAgentKey, in.KeyID)
	var of core.Agent
	if err == nil {
		of, err = m.domain.Access.RevokeAgentKey(ctx, l.actor, n)
		err = inField(err, "/keyId")
	}
	p.Agent, p.Errors, err = outcome(ctx, l.agents, of.ID, model.WrapAgent, err)
	return p, err
}
