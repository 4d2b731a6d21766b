package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
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
	return s.receive(ctx, &received{claim: func(ctx context.Context, tx pgx.Tx) (bool, error) {
		q := s.queries.WithTx(tx)
		var open bool
		var err error
		if m.Ref != "" {
			open, err = q.OpenInbox(ctx, query.OpenInboxParams{Ref: m.Ref, Organization: m.Organization, Token: m.Token})
		} else {
			open, err = q.HasChannel(ctx, query.HasChannelParams{Token: m.Token, Organization: m.Organization})
		}
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
	}}, e)
}

// HasMessage reports whether the message is stored.
func (s *Store) HasMessage(ctx context.Context, m history.Message) (bool, error) {
	e, err := m.Event()
	if err != nil {
		return false, err
	}
	known, err := s.queries.HasEvent(ctx, query.HasEventParams{Organization: m.Organization, Source: e.Source, EventID: e.ID})
	return known, pg.Classify(err, "find message %q", m.ID)
}

// AnswerTo reads the answer to a call. open reports whether there may be one later, where there is none (nil).
func (s *Store) AnswerTo(ctx context.Context, m history.Message) (answer *history.Answer, open bool, err error) {
	row, err := s.queries.FindAnswer(ctx, query.FindAnswerParams{
		Organization: m.Organization, Source: history.AnswerSource(m.Token), EventID: m.ID, Token: m.Token,
	})
	if err != nil {
		return nil, false, pg.Classify(err, "find the answer to %q", m.ID)
	}
	if row.Answer == "" {
		return nil, row.Open, nil
	}
	whole := []byte(row.Answer)
	if err := s.whole(ctx, &whole); err != nil {
		return nil, false, fmt.Errorf("the answer to %q: %w", m.ID, err)
	}
	if err := json.Unmarshal(whole, &answer); err != nil {
		return nil, false, fmt.Errorf("the answer to %q: %w", m.ID, err)
	}
	return answer, row.Open, nil
}

// createWithMessage is the transaction of a start with a message: both are stored, or neither.
func (s *Store) createWithMessage(ctx context.Context, item *start) error {
	e, err := item.Message.Event()
	if err != nil {
		return err
	}
	items := []*start{item}
	programs, saved := s.unsaved(items)
	var rows []query.CreateExecutionsRow
	err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
		events := []*newEvent{s.split(&newEvent{Event: e, outside: true})}
		large := new(payloads.Rows)
		large.Add(events[0].data, payloads.Event(e.Source, e.ID))
		large.Add(item.inputs, payloads.Start(item.Ref))
		filters, err := s.lockMatching(ctx, q, newMatchLocks(), events, nil, nil, false)
		if err != nil {
			return err
		}
		if len(saved) > 0 {
			if err := q.SavePrograms(ctx, programs); err != nil {
				return pg.Classify(err, "save %d programs", len(saved))
			}
		}
		if err := large.Save(ctx, q, s.Clock.Now()); err != nil {
			return err
		}
		if rows, err = q.CreateExecutions(ctx, s.newExecutions(items)); err != nil || len(rows) == 0 {
			return pg.Classify(err, "create workflow %q", item.Workflow)
		}
		if err := saveTraces(ctx, q, items, rows); err != nil {
			return err
		}
		if _, err := q.OpenInbox(ctx, query.OpenInboxParams{
			Ref: item.Ref, Organization: item.Organization, Token: item.Message.Token,
		}); err != nil {
			return pg.Classify(err, "open the inbox of workflow %q", item.Workflow)
		}
		if _, err = s.match(ctx, q, matching{events: events, filters: filters}); err != nil {
			return err
		}
		return large.Use(ctx, q)
	})
	if err != nil {
		return err
	}
	s.programs.add(saved)
	if len(rows) == 0 {
		return existing(ctx, s.queries, items)
	}
	item.created = engine.Created{ID: rows[0].ID, Ref: item.Ref, Created: true}
	s.Tally(item.Organization, 1)
	return nil
}
