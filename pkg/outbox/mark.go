package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// settleAfter is how long Run waits after a claim, for its transaction to commit and for others to join it.
	settleAfter = 50 * time.Millisecond
	// lookAgain is how long Run waits for a gap to close, or after an error.
	lookAgain = time.Second
	// pruneEvery is how often old events are forgotten.
	pruneEvery = time.Hour
	pruneBatch = 1000
)

// Run moves the marks and sends the receipts until ctx ends, and then returns nil. Errors of the database are logged and
// tried again.
func (i *Inbox) Run(ctx context.Context) error {
	var pruned time.Time
	for ctx.Err() == nil {
		if now := i.Clock.Now(); now.Sub(pruned) >= pruneEvery {
			pruned = now
			if err := i.prune(ctx, now.Add(-i.Retention)); err != nil && ctx.Err() == nil {
				i.Log.WarnContext(ctx, "deleting old inbox events failed; will retry", telemetry.KeyError, err)
			}
		}
		open, err := i.flush(ctx)
		if err != nil && ctx.Err() == nil {
			i.Log.WarnContext(ctx, "inbox cannot send receipts", telemetry.KeyError, err)
		}
		wait := pruneEvery
		if open {
			wait = lookAgain
		}
		timer := i.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-i.poke:
			_ = clock.Sleep(ctx, i.Clock, settleAfter) // ends early only with ctx
		}
		timer.Stop()
	}
	return nil
}

// flush moves the mark of every sequence that is on its way and sends it where the sender wants to hear it. open is set if
// a mark has not reached everything that was claimed.
func (i *Inbox) flush(ctx context.Context) (open bool, err error) {
	i.mu.Lock()
	sequences := slices.Collect(maps.Keys(i.seen))
	i.mu.Unlock()
	for _, seq := range sequences {
		more, oneErr := i.confirm(ctx, seq)
		open = open || more
		err = errors.Join(err, oneErr)
	}
	return open, err
}

func (i *Inbox) confirm(ctx context.Context, seq sequence) (open bool, err error) {
	i.mu.Lock()
	s := i.seen[seq]
	answer, begun, idle := s.answer, s.begun, !s.answer && s.sent >= s.highest
	s.answer = false
	i.mu.Unlock()
	if idle {
		return false, nil
	}
	mark, err := i.advance(ctx, seq, begun)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		s.answer, s.begun = true, false
		return true, err
	}
	s.begun = true
	if mark > 0 && (answer || mark != s.sent) {
		s.sent = mark
		i.send(seq, mark)
	}
	return mark < s.highest, nil
}

func (i *Inbox) advance(ctx context.Context, seq sequence, begun bool) (int64, error) {
	q := query.New(i.Pool)
	now := i.Clock.Now()
	if !begun {
		if err := q.BeginMark(ctx, query.BeginMarkParams{Sender: seq.sender, Epoch: seq.epoch, ChangedAt: now}); err != nil {
			return 0, pg.Classify(err, "begin the mark of %s", seq.sender)
		}
	}
	mark, err := q.AdvanceMark(ctx, query.AdvanceMarkParams{Sender: seq.sender, Epoch: seq.epoch, ChangedAt: now})
	return mark, pg.Classify(err, "advance the mark of %s", seq.sender)
}

func (i *Inbox) send(seq sequence, mark int64) {
	payload, err := json.Marshal(receipt{Sender: seq.sender, Receiver: i.Name, Epoch: seq.epoch, Mark: mark})
	if err != nil {
		panic(err) // strings and a number
	}
	i.Bus.Hint(receiptSubject(seq.sender), payload)
}

func (i *Inbox) prune(ctx context.Context, before time.Time) error {
	for {
		n, err := query.New(i.Pool).Prune(ctx, query.PruneParams{Before: before, AtMost: pruneBatch})
		if err != nil || n < pruneBatch {
			return pg.Classify(err, "forget events before %s", before)
		}
	}
}
