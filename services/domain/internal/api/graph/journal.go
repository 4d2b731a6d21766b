package graph

import (
	"context"
	"log/slog"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// What lies across rollouts: what waits, and the journal of everything.

// GatesForMe is one page of the gates that wait for the viewer.
func (q query) GatesForMe(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.GateConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.GateConnection{}, err
	}
	actor := loadersOf(ctx).actor
	s, err := q.domain.View.GatesFor(ctx, actor, p)
	return model.GateConnection(model.Connect[model.GateEdge](s, model.WrapGate, func(ctx context.Context) (int, error) {
		return q.domain.View.CountGatesFor(ctx, actor)
	})), err
}

// Journal is one page of the organization's whole journal.
func (q query) Journal(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.JournalEntryConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.JournalEntryConnection{}, err
	}
	organization := loadersOf(ctx).actor.Organization
	s, err := q.domain.View.JournalOf(ctx, organization, p)
	return model.JournalEntryConnection(model.Connect[model.JournalEntryEdge](s, model.WrapJournalEntry,
		func(ctx context.Context) (int, error) {
			return q.domain.View.CountJournal(ctx, organization)
		})), err
}

// JournalCursor is where the journal ends now.
func (q query) JournalCursor(ctx context.Context) (string, error) {
	present, err := q.domain.View.Present(ctx, loadersOf(ctx).actor.Organization)
	return core.CursorOf(present), err
}

// Rollout is whose gate it is.
func (gate) Rollout(ctx context.Context, g *model.Gate) (model.Rollout, error) {
	return required(ctx, loadersOf(ctx).rollouts, model.KindRollout, g.RolloutID, model.WrapRollout)
}

// Rollout is what it is a part of.
func (rolloutEnvironment) Rollout(ctx context.Context, e *model.RolloutEnvironment) (model.Rollout, error) {
	return required(ctx, loadersOf(ctx).rollouts, model.KindRollout, e.RolloutID, model.WrapRollout)
}

// journalEntry resolves the fields of JournalEntry that are loaded.
type journalEntry struct{}

// Rollout is what the row belongs to.
func (journalEntry) Rollout(ctx context.Context, e *model.JournalEntry) (model.Rollout, error) {
	if r, read := e.ReadRollout(); read {
		return r, nil
	}
	return required(ctx, loadersOf(ctx).rollouts, model.KindRollout, e.RolloutID, model.WrapRollout)
}

// subscription resolves the fields of Subscription.
type subscription struct {
	domain Domain
	log    *slog.Logger
}

// Journal follows the organization's journal, or one rollout's. Nothing is buffered but the page that was read: a slow client slows its own
// reading.
func (s subscription) Journal(ctx context.Context, after, rollout *string) (<-chan model.JournalEntry, error) {
	only := int64(0)
	if rollout != nil {
		var err error
		if only, err = number("rollout", model.KindRollout, *rollout); err != nil {
			return nil, err
		}
		_, found, err := loadersOf(ctx).rollouts.load(ctx, only)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fault.New(fault.NotFound, "%s does not exist", *rollout)
		}
	}
	position := int64(-1)
	if cursor := transport.ResumeFrom(ctx, after); cursor != "" {
		var err error
		if position, err = core.PositionOf(cursor); err != nil {
			return nil, err
		}
	}
	actor := loadersOf(ctx).actor
	entries := make(chan model.JournalEntry)
	go func() {
		defer close(entries)
		err := s.domain.View.Follow(ctx, actor, position, only, func(f view.Followed) bool {
			select {
			case entries <- model.WrapFollowed(f):
				return true
			case <-ctx.Done():
				return false
			}
		})
		if err != nil && ctx.Err() == nil {
			// The stream ends, and the client begins again where it was.
			s.log.WarnContext(ctx, "reading journal for a stream failed", telemetry.KeyError, err)
		}
	}()
	return entries, nil
}
