package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ agent.WatchStore = (*Store)(nil)

// OpenWatch stores a watch, which lasts until its execution ends.
func (s *Store) OpenWatch(ctx context.Context, w agent.Watch) error {
	spec, err := json.Marshal(w.Spec)
	if err != nil {
		return fmt.Errorf("encode watch %s: %w", w.ID, err)
	}
	_, err = s.queries.OpenWatch(ctx, query.OpenWatchParams{
		ID: w.ID, Agent: w.Agent, Spec: spec, CreatedAt: s.Clock.Now(), Ref: w.Execution,
	})
	return pg.Classify(err, "open watch %s", w.ID)
}

// CloseWatch deletes a watch. The agent is 0 if there is no such watch.
func (s *Store) CloseWatch(ctx context.Context, execution, watch string) (agent int64, err error) {
	agent, err = s.queries.CloseWatch(ctx, query.CloseWatchParams{ID: watch, Ref: execution})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return agent, pg.Classify(err, "close watch %s", watch)
}

// WantedWatches reads an agent's watches. It deletes those of executions that have ended, in whatever way (E78).
func (s *Store) WantedWatches(ctx context.Context, agentID int64) ([]agent.Watch, error) {
	if err := s.queries.DropEndedWatches(ctx, []int64{agentID}); err != nil {
		return nil, pg.Classify(err, "drop watches of agent %d", agentID)
	}
	rows, err := s.queries.WantedWatches(ctx, agentID)
	if err != nil {
		return nil, pg.Classify(err, "read watches of agent %d", agentID)
	}
	watches := make([]agent.Watch, len(rows))
	for i, row := range rows {
		watches[i] = agent.Watch{ID: row.ID, Agent: agentID}
		if err := json.Unmarshal(row.Spec, &watches[i].Spec); err != nil {
			return nil, fmt.Errorf("watch %s: %w", row.ID, err)
		}
	}
	observers, err := s.observerWatches(ctx, agentID)
	return append(watches, observers...), err
}

// WantedIDs reads the ids of agents' watches. It deletes those that WantedWatches deletes.
func (s *Store) WantedIDs(ctx context.Context, agents []int64) (map[int64][]string, error) {
	if err := s.queries.DropEndedWatches(ctx, agents); err != nil {
		return nil, pg.Classify(err, "drop watches of %d agents", len(agents))
	}
	rows, err := s.queries.WantedIDs(ctx, agents)
	if err != nil {
		return nil, pg.Classify(err, "read watches of %d agents", len(agents))
	}
	observers, err := s.observerWatches(ctx, agents...)
	if err != nil {
		return nil, err
	}
	ids := map[int64][]string{}
	for _, row := range rows {
		ids[row.Agent] = append(ids[row.Agent], row.ID)
	}
	for _, watch := range observers {
		ids[watch.Agent] = append(ids[watch.Agent], watch.ID)
	}
	return ids, nil
}

// ReceiveObserved stores what a watch has observed as an event of the execution's organization, and matches it.
func (s *Store) ReceiveObserved(ctx context.Context, watch string, agent int64, e history.Event) (matched int, err error) {
	if strings.HasPrefix(watch, observerWatch) {
		return 0, s.report(ctx, watch, agent, e)
	}
	row, err := s.queries.FindWatch(ctx, watch)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil // ended; the relay learns it from its next set of watches
	}
	if err != nil {
		return 0, pg.Classify(err, "find watch %s", watch)
	}
	// The bus authenticates the agent, not the watch that it names: no agent reports about another's cluster.
	if row.Agent != agent {
		return 0, fault.New(fault.Denied, "agent %d observed under watch %s, which is not its own", agent, watch)
	}
	if e.Data, err = about(e.Data, row.Spec); err != nil {
		return 0, fmt.Errorf("observation under watch %s: %w", watch, err)
	}
	e.Organization = row.Organization
	matched, _, err = s.Receive(ctx, e)
	return matched, err
}

// about adds the members of the watch's subject to an observation.
func about(data, spec json.RawMessage) (json.RawMessage, error) {
	var watch agent.WatchSpec
	if err := json.Unmarshal(spec, &watch); err != nil {
		return nil, fmt.Errorf("decode what is watched: %w", err)
	}
	if len(watch.Subject) == 0 {
		return data, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("decode what was seen: %w", err)
	}
	for name, number := range watch.Subject {
		members[name] = strconv.AppendInt(nil, number, 10)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("encode what was seen: %w", err)
	}
	return text, nil
}
