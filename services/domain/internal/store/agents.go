package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func agent(r query.Agent) core.Agent {
	a := core.Agent{ID: r.ID, Name: r.Name, RevokedAt: r.RevokedAt, CreatedAt: r.CreatedAt}
	_ = json.Unmarshal(r.Labels, &a.Labels) // what was stored is an object of texts
	return a
}

func agentKey(r query.AgentKey) core.AgentKey {
	return core.AgentKey{
		ID: r.ID, AgentID: r.AgentID, PublicKey: r.PublicKey, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, SeenAt: r.SeenAt,
		CreatedAt: r.CreatedAt,
	}
}

func accessChange(r query.ListAccessChangesRow) core.AccessChange {
	return core.AccessChange{
		ID: r.ID, Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Action: core.Action(r.Action),
		Subject: core.AccessSubject{Kind: core.AccessKind(r.SubjectKind), ID: r.SubjectNumber, Name: r.SubjectName}, Detail: r.Detail,
		CreatedAt: r.CreatedAt,
	}
}

// Agents implements view.Reads.
func (r reader) Agents(ctx context.Context, organization int64, withRevoked bool, p core.Page) (core.Slice[core.Agent], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "agents", func(q *query.Queries, w core.Window) ([]query.Agent, error) {
		return q.ListAgents(ctx, query.ListAgentsParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, AboveName: w.Above.Name, BelowName: w.Below.Name,
			WithRevoked: withRevoked, ByName: w.Key == core.OrderName, Falling: w.Falling, AtMost: limit(w),
		})
	}, agent, func(one core.Agent) core.Position { return core.Position{Number: one.ID, Name: one.Name} })
}

// CountAgents implements view.Counts.
func (r reader) CountAgents(ctx context.Context, organization int64, withRevoked bool) (int, error) {
	return count(ctx, r, organization, "agents",
		func(q *query.Queries) (int64, error) { return q.CountAgents(ctx, organization, withRevoked) })
}

// AgentsByID implements view.Reads.
func (r reader) AgentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Agent, error) {
	return byKey(ctx, r, organization, ids, "agents", (*query.Queries).AgentsByID, keyed(agent, func(a core.Agent) int64 { return a.ID }))
}

// AgentByName implements view.Reads.
func (r reader) AgentByName(ctx context.Context, organization int64, name string) (a core.Agent, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.AgentByName(ctx, organization, name)
		a = agent(row)
		return missing(err, "agent", name)
	})
	return a, err
}

// AgentKeysByID implements view.Reads.
func (r reader) AgentKeysByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AgentKey, error) {
	return byKey(ctx, r, organization, ids, "keys of agents", (*query.Queries).AgentKeysByID,
		keyed(agentKey, func(k core.AgentKey) int64 { return k.ID }))
}

// AgentKeysByAgent implements view.Reads.
func (r reader) AgentKeysByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.AgentKey, error) {
	read := func(q *query.Queries, ctx context.Context, organization int64, ids []int64) ([]query.AgentKeysByAgentRow, error) {
		return q.AgentKeysByAgent(ctx, ids, organization)
	}
	return under(ctx, r, organization, agents, "keys of agents", read, func(row query.AgentKeysByAgentRow) (int64, core.AgentKey) {
		return row.AgentKey.AgentID, agentKey(row.AgentKey)
	})
}

// EnvironmentsByAgent implements view.Reads.
func (r reader) EnvironmentsByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.Environment, error) {
	return under(ctx, r, organization, agents, "environments of agents", (*query.Queries).EnvironmentsByAgent,
		func(row query.EnvironmentsByAgentRow) (int64, core.Environment) {
			return row.AgentID, environment(row.Environment)
		})
}

// AccessChanges implements view.Reads.
func (r reader) AccessChanges(ctx context.Context, organization int64, p core.Page) (core.Slice[core.AccessChange], error) {
	return list(ctx, r, organization, p, core.OrderCreatedDesc, "changes of access",
		func(q *query.Queries, w core.Window) ([]query.ListAccessChangesRow, error) {
			return q.ListAccessChanges(ctx, query.ListAccessChangesParams{
				OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
			})
		}, accessChange, numbered(func(c core.AccessChange) int64 { return c.ID }))
}

// CountAccessChanges implements view.Counts.
func (r reader) CountAccessChanges(ctx context.Context, organization int64) (int, error) {
	return count(ctx, r, organization, "changes of access",
		func(q *query.Queries) (int64, error) { return q.CountAccessChanges(ctx, organization) })
}

// AgentOfKey implements access.Store.
func (s *Store) AgentOfKey(ctx context.Context, public string, at time.Time) (core.AgentLogin, error) {
	rows, err := query.New(s.deps.Pool).AgentOfKey(ctx, public, at)
	if err != nil {
		return core.AgentLogin{}, pg.Classify(err, "find the agent of a key")
	}
	if len(rows) != 1 {
		return core.AgentLogin{}, fault.New(fault.NotFound, "no agent has the key %.60q, or it is no longer valid", public)
	}
	return core.AgentLogin{Organization: rows[0].OrganizationID, AgentID: rows[0].AgentID, KeyID: rows[0].KeyID}, nil
}

// AgentOwners implements handoff.Store.
func (s *Store) AgentOwners(ctx context.Context) ([]core.AgentOwner, error) {
	rows, err := query.New(s.deps.Pool).AgentOwners(ctx)
	owners := convertAll(rows, func(r query.AgentOwnersRow) core.AgentOwner {
		return core.AgentOwner{AgentID: r.AgentID, Organization: r.OrganizationID, Revoked: r.Revoked}
	})
	return owners, pg.Classify(err, "read whose agents are")
}

// GoodAgentKeys implements access.Store.
func (s *Store) GoodAgentKeys(ctx context.Context, keys []int64, at time.Time) (map[int64]int64, error) {
	rows, err := query.New(s.deps.Pool).GoodAgentKeys(ctx, keys, at)
	good := make(map[int64]int64, len(rows))
	for _, r := range rows {
		good[r.KeyID] = r.OrganizationID
	}
	return good, pg.Classify(err, "look keys of agents up")
}

// EnsureAgent makes an agent of a given number with a key, unless it exists.
func (s *Store) EnsureAgent(ctx context.Context, organization, number int64, name, public string) error {
	return s.view(ctx, organization, func(q *query.Queries) error {
		if err := q.EnsureAgent(ctx, organization, number, name); err != nil {
			return pg.Classify(err, "ensure agent %d", number)
		}
		if err := q.EnsureAgentKey(ctx, organization, number, public); err != nil {
			return pg.Classify(err, "ensure the key of agent %d", number)
		}
		// The number was given by hand; the table's own counter would give out the same one.
		return pg.Classify(q.AdvanceAgentIDs(ctx, number), "advance the numbers of agents")
	})
}

// AddAgent implements access.Tx.
func (t *tx) AddAgent(ctx context.Context, name string) (core.Agent, error) {
	row, err := t.q.InsertAgent(ctx, t.organization, name)
	return agent(row), pg.Classify(err, "add agent %q", name)
}

// SetAgentLabels implements access.Tx.
func (t *tx) SetAgentLabels(ctx context.Context, id int64, labels map[string]string) (core.Agent, error) {
	text, err := json.Marshal(labels)
	if err != nil {
		return core.Agent{}, fmt.Errorf("encode labels of agent %d: %w", id, err)
	}
	row, err := t.q.SetAgentLabels(ctx, text, t.organization, id)
	return agent(row), pg.Classify(err, "set labels of agent %d", id)
}

// LockAgent implements access.Tx.
func (t *tx) LockAgent(ctx context.Context, id int64) (core.Agent, error) {
	row, err := t.q.LockAgent(ctx, t.organization, id)
	return agent(row), missing(err, "agent", id)
}

// RevokeAgent implements access.Tx.
func (t *tx) RevokeAgent(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(t.q.RevokeAgent(ctx, at, t.organization, id), "revoke agent %d", id)
}

// NameAgents implements setup.Tx.
func (t *tx) NameAgents(ctx context.Context, environment int64, agents []int64) error {
	return pg.Classify(t.q.NameAgents(ctx, t.organization, environment, agents), "name agents of environment %d", environment)
}

// AddAgentKey implements access.Tx.
func (t *tx) AddAgentKey(ctx context.Context, agent int64, public string) (core.AgentKey, error) {
	row, err := t.q.InsertAgentKey(ctx, t.organization, agent, public)
	return agentKey(row), pg.Classify(err, "add a key of agent %d", agent)
}

// ExpireAgentKeys implements access.Tx.
func (t *tx) ExpireAgentKeys(ctx context.Context, agent int64, at time.Time) error {
	return pg.Classify(t.q.ExpireAgentKeys(ctx, at, t.organization, agent), "replace the keys of agent %d", agent)
}

// RevokeAgentKey implements access.Tx.
func (t *tx) RevokeAgentKey(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(t.q.RevokeAgentKey(ctx, at, t.organization, id), "revoke key %d", id)
}

// AgentNumbers implements handoff.Tx.
func (t *tx) AgentNumbers(ctx context.Context) ([]int64, error) {
	numbers, err := t.q.AgentNumbers(ctx, t.organization)
	return numbers, pg.Classify(err, "read the numbers of agents")
}

// SeeAgentKeys implements access.Tx.
func (t *tx) SeeAgentKeys(ctx context.Context, ids []int64, at time.Time) error {
	err := t.q.SeeAgentKeys(ctx, query.SeeAgentKeysParams{At: at, OrganizationID: t.organization, Ids: ids, UnlessSince: at.Add(-usedWithin)})
	return pg.Classify(err, "note the use of keys of agents")
}

// LatestChange implements access.Tx.
func (t *tx) LatestChange(ctx context.Context, action core.Action, kind core.AccessKind) (json.RawMessage, error) {
	found, err := t.q.LatestChange(ctx, t.organization, string(action), string(kind))
	if err != nil || len(found) == 0 {
		return nil, pg.Classify(err, "read the latest %s", action)
	}
	return unlessNull(found[0]), nil
}

// AddChange implements core.ChangeTx.
func (t *tx) AddChange(ctx context.Context, c core.Change) error {
	// version-trace-span-flags
	trace := ""
	if parts := strings.Split(telemetry.TraceParent(ctx), "-"); len(parts) == 4 {
		trace = parts[1]
	}
	err := t.q.InsertChange(ctx, query.InsertChangeParams{
		OrganizationID: t.organization, PrincipalType: string(c.Type), PrincipalID: c.Principal.ID, PrincipalName: c.PrincipalName,
		Action: string(c.Action), SubjectKind: string(c.Subject.Kind), SubjectNumber: c.Subject.ID, SubjectName: c.Subject.Name,
		ApplicationID: orNull(c.ApplicationID), EnvironmentID: orNull(c.EnvironmentID), Reason: c.Reason, Detail: c.Detail,
		Before: c.Before, After: c.After, TraceID: trace,
	})
	return pg.Classify(err, "record %s", c.Action)
}
