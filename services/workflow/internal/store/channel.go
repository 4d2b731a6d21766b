package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// openChannels stores the channels of turns in their transaction, before which no token is published.
func openChannels(ctx context.Context, q *query.Queries, commits []*commit) error {
	var p query.OpenChannelsParams
	for _, c := range commits {
		for _, entry := range c.Entries {
			if entry.Kind != history.KindChannel {
				continue
			}
			var token string
			if err := json.Unmarshal(entry.Value, &token); err != nil {
				return fmt.Errorf("token of channel %s of execution %d: %w", entry.Op, c.Execution.ID, err)
			}
			p.Tokens, p.Executions = append(p.Tokens, token), append(p.Executions, c.Execution.ID)
			p.Organizations = append(p.Organizations, c.Execution.Organization)
		}
	}
	if len(p.Tokens) == 0 {
		return nil
	}
	return pg.Classify(q.OpenChannels(ctx, p), "open %d channels", len(p.Tokens))
}

// Send stores a message, if its channel is open, and matches it. A message that is sent again is a duplicate, also after the run has
// ended.
func (s *Store) Send(ctx context.Context, m history.Message) (matched int, duplicate bool, err error) {
	e, err := m.Event()
	if err != nil {
		return 0, false, err
	}
	return s.receive(ctx, e, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		q := s.queries.WithTx(tx)
		open, err := q.HasChannel(ctx, query.HasChannelParams{Token: m.Token, Organization: m.Organization})
		if err != nil || open {
			return open, pg.Classify(err, "find channel")
		}
		known, err := q.HasEvent(ctx, query.HasEventParams{Organization: m.Organization, Source: e.Source, EventID: e.ID})
		if err != nil {
			return false, pg.Classify(err, "find message %q", m.ID)
		}
		if !known {
			return false, fault.New(fault.NotFound, "there is no such channel; it may be that its workflow has ended")
		}
		return false, nil
	})
}
