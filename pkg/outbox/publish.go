package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// published collects what a round has published, to note it in one statement.
type published struct {
	again query.SentParams
	final []int64
	// upTo is the highest place of each lane among them, also of those that were refused.
	upTo map[int16]int64
}

// count is how many events were published.
func (p published) count() int { return len(p.again.Ids) + len(p.final) }

// publish hands what is due to the bus, in its order, and collects the outcome. whole is false if it stopped early:
// errBusAway if the bus is gone, nil if the connection broke and is back. An event that the bus refuses is postponed
// and no error.
func (s *Sender) publish(ctx context.Context, due []query.FreshRow, done *published) (whole bool, err error) {
	readable, messages := make([]event.Sealed, 0, len(due)), make([]string, 0, len(due))
	unreadable := map[int64]error{}
	for _, row := range due {
		e, err := s.event(row)
		if err != nil {
			unreadable[row.ID] = err
			continue
		}
		readable, messages = append(readable, e), append(messages, messageID(e, row.Attempts))
	}
	var errs []error
	if len(readable) > 0 {
		errs = s.Bus.PublishAll(ctx, readable, messages)
	}
	tried := 0
	for _, row := range due {
		refusal := unreadable[row.ID]
		if refusal == nil {
			if tried == len(errs) {
				return false, ctx.Err()
			}
			refusal = errs[tried]
			if refusal != nil && !hopeless(refusal) {
				return false, fmt.Errorf("%w: publish event %q: %w", errBusAway, readable[tried].ID(), refusal)
			}
			tried++
		}
		done.upTo[row.Lane] = max(done.upTo[row.Lane], row.Place)
		switch {
		case refusal != nil:
			if err := s.postpone(ctx, row, refusal); err != nil {
				return false, err
			}
		case !row.Receipted || len(s.Receivers) == 0:
			done.final = append(done.final, row.ID)
		default:
			done.again.Ids = append(done.again.Ids, row.ID)
			done.again.NextAttempts = append(done.again.NextAttempts, s.next(row.Attempts))
		}
	}
	return true, nil
}

// event is what a row holds, with its place on it.
func (s *Sender) event(row query.FreshRow) (event.Sealed, error) {
	e, err := event.Restore(row.Event)
	if err != nil {
		return e, fmt.Errorf("stored event: %w", err)
	}
	if !row.Receipted {
		return e, nil
	}
	return place{sequence{s.Name, row.Epoch}, row.Place, row.Base}.put(e)
}

// messageID is the event's own id the first time, and another one each further time, because the stream would drop it
// although no receiver has it.
func messageID(e event.Sealed, attempts int32) string {
	if attempts == 0 {
		return e.ID()
	}
	return e.ID() + "/" + strconv.Itoa(int(attempts)+1)
}

// next is when an event that has been sent attempts times before is sent again.
func (s *Sender) next(attempts int32) time.Time {
	wait := s.ResendAtMost
	if attempts < 16 {
		wait = min(s.ResendAfter<<attempts, s.ResendAtMost)
	}
	return s.Clock.Now().Add(wait)
}

func (s *Sender) postpone(ctx context.Context, row query.FreshRow, reason error) error {
	s.Log.ErrorContext(ctx, "event cannot be published", telemetry.KeyPosition, row.Place,
		telemetry.KeyAttempt, row.Attempts+1, telemetry.KeyError, reason)
	next := s.next(row.Attempts)
	s.lookForOverdue(next)
	err := query.New(s.Pool).Postpone(ctx, query.PostponeParams{ID: row.ID, NextAttemptAt: next, Reason: reason.Error()})
	return pg.Classify(err, "postpone event at position %d", row.Place)
}
