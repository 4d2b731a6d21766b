package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ agent.RegistryStore = (*Store)(nil)

// SaveAgents stores the owners of agents. If one of the agents belongs to another organization, none is stored.
func (s *Store) SaveAgents(ctx context.Context, agents []agent.Agent) error {
	var p query.SaveAgentOwnersParams
	for _, a := range agents {
		p.Ids, p.Organizations, p.Revoked = append(p.Ids, a.ID), append(p.Organizations, a.Organization), append(p.Revoked, a.Revoked)
	}
	return s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		others, err := q.SaveAgentOwners(ctx, p)
		if err != nil {
			return pg.Classify(err, "save %d agents", len(agents))
		}
		if len(others) > 0 {
			return fault.New(fault.Conflict, "agent %d belongs to another organization", others[0])
		}
		return nil
	})
}

// Agents reads all agents.
func (s *Store) Agents(ctx context.Context) ([]agent.Agent, error) {
	rows, err := s.queries.AgentOwners(ctx)
	if err != nil {
		return nil, pg.Classify(err, "read agents")
	}
	agents := make([]agent.Agent, len(rows))
	for i, row := range rows {
		agents[i] = agent.Agent(row)
	}
	return agents, nil
}
