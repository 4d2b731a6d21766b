package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// openChannels makes the channels of turns known, in their transaction: nobody learns a token before it.
func openChannels(ctx context.Context, q *query.Queries, turns []*turn) error {
	var p query.OpenChannelsParams
	for _, t := range turns {
		for _, entry := range t.Entries {
			if entry.Kind != core.KindChannel {
				continue
			}
			var token string
			if err := json.Unmarshal(entry.Value, &token); err != nil {
				return fmt.Errorf("token of channel %s of execution %d: %w", entry.Op, t.Execution.ID, err)
			}
			p.Tokens, p.Executions = append(p.Tokens, token), append(p.Executions, t.Execution.ID)
			p.Organizations = append(p.Organizations, t.Execution.Organization)
		}
	}
	if len(p.Tokens) == 0 {
		return nil
	}
	return pg.Classify(q.OpenChannels(ctx, p), "open %d channels", len(p.Tokens))
}

// Send stores a message, if its channel is open, and matches it. To a sender that repeats itself after the run has
// ended the message is a duplicate, as it would have been before.
func (s *Store) Send(ctx context.Context, m core.Message) (matched int, duplicate bool, err error) {
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
