package outbox

import (
	"context"
	"fmt"
	"slices"
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

// part is what of a lane keeps its order: what has a place, or what has none.
type part struct {
	lane   int16
	placed bool
}

func partOf(row query.FreshRow) part { return part{row.Lane, row.Receipted} }

// refusal is how often a part of a lane could not be published on, one time after the other, and until when it is not tried again.
type refusal struct {
	times int
	until time.Time
}

const (
	// tryAgainAfter is how long a part of a lane is left alone once the bus, which is connected, did not take its next event; it doubles up to
	// tryAgainAtMost. Such an answer takes seconds, for which all others wait.
	tryAgainAfter, tryAgainAtMost = time.Second, 16 * time.Second
	// refusedAtMost is how many events of a path a round tries that are not taken: the others of the path are likely not to be.
	refusedAtMost = 2
)

// open reports whether a part of a lane may be tried.
func (s *Sender) open(p part, now time.Time) bool { return !s.refused[p].until.After(now) }

// refuse leaves a part of a lane alone for a while, whose next event the bus did not take.
func (s *Sender) refuse(p part) {
	r := s.refused[p]
	r.until = s.Clock.Now().Add(min(tryAgainAfter<<min(r.times, 8), tryAgainAtMost))
	r.times++
	s.refused[p] = r
	s.lookForOverdue(r.until)
}

// item is an event to publish, or why it cannot be.
type item struct {
	query.FreshRow
	event event.Sealed
	err   error
}

// publish hands what is due to the bus, in its order, and collects the outcome. whole is false if it stopped early:
// errBusAway if the bus is gone, nil if the connection broke and is back. An event that the bus refuses is postponed
// and no error; one that it does not take at the moment holds up what comes after it in its lane, and no other.
func (s *Sender) publish(ctx context.Context, due []query.FreshRow, done *published) (whole bool, err error) {
	items := make([]item, len(due))
	for i, row := range due {
		items[i].FreshRow = row
		items[i].event, items[i].err = s.event(row)
	}
	// What was not taken lately comes last: the others need not wait for it.
	slices.SortStableFunc(items, func(a, b item) int { return s.refused[partOf(a.FreshRow)].times - s.refused[partOf(b.FreshRow)].times })
	paths := map[event.Path]int{}
	for len(items) > 0 {
		n, notTaken, err := s.publishSome(ctx, items, done)
		if err != nil || n < len(items) && notTaken == nil {
			return false, err
		}
		if notTaken == nil {
			break
		}
		if ctx.Err() != nil || !s.Bus.Connected() {
			return false, fmt.Errorf("%w: publish event %q: %w", errBusAway, items[n].event.ID(), notTaken)
		}
		paths[items[n].event.Path()]++
		s.refuse(partOf(items[n].FreshRow))
		s.Log.WarnContext(ctx, "the bus does not take an event; what comes after it in its lane waits", "lane", items[n].Lane,
			telemetry.KeyPosition, items[n].Place, telemetry.KeyError, notTaken)
		if items = s.others(items[n+1:], paths); s.mayBeLost() {
			return false, nil // as in round
		}
	}
	return true, nil
}

// others are the items that are in no lane that waits, nor on a path that takes nothing; where one is, its lane waits as well.
func (s *Sender) others(items []item, paths map[event.Path]int) (others []item) {
	now := s.Clock.Now()
	for _, it := range items {
		p := partOf(it.FreshRow)
		switch {
		case !s.open(p, now):
		case it.err == nil && paths[it.event.Path()] >= refusedAtMost:
			s.refuse(p)
		default:
			others = append(others, it)
		}
	}
	return others
}

// publishSome publishes items up to the first that the bus does not take, and says how many there were before it, and why. It may stop
// early without a reason.
func (s *Sender) publishSome(ctx context.Context, items []item, done *published) (n int, notTaken, err error) {
	var events []event.Sealed
	var messages []string
	for _, it := range items {
		if it.err == nil {
			events, messages = append(events, it.event), append(messages, messageID(it.event, it.Attempts))
		}
	}
	var errs []error
	if len(events) > 0 {
		errs = s.Bus.PublishAll(ctx, events, messages)
	}
	tried := 0
	for n, it := range items {
		reason := it.err
		if reason == nil {
			if tried == len(errs) {
				return n, nil, ctx.Err()
			}
			if reason = errs[tried]; reason != nil && !hopeless(reason) {
				return n, reason, nil
			}
			tried++
			delete(s.refused, partOf(it.FreshRow))
		}
		done.upTo[it.Lane] = max(done.upTo[it.Lane], it.Place)
		switch {
		case reason != nil:
			if err := s.postpone(ctx, it.FreshRow, reason); err != nil {
				return n, nil, err
			}
		case !it.Receipted || len(s.Receivers) == 0:
			done.final = append(done.final, it.ID)
		default:
			done.again.Ids = append(done.again.Ids, it.ID)
			done.again.NextAttempts = append(done.again.NextAttempts, s.next(it.Attempts))
		}
	}
	return len(items), nil, nil
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
