package outbox

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// batch is how many events one round publishes, between two looks at the receipts: what the bus stores at once.
	batch = 256
	// ResendWindow is how many places of a lane, counted from the lowest unconfirmed one, are sent again.
	ResendWindow = 1000
	// mostReceipts is how many receipts wait to be looked at: one of each lane and receiver, and what is about earlier sequences.
	mostReceipts = 1000
)

// round takes the receipts that have come, gives places to what has none, and publishes what is due. more is set if there is more to
// do at once, and sent how many events were published. An errBusAway error leaves the rest for later.
func (s *Sender) round(ctx context.Context) (sent int, more bool, err error) {
	if err := s.settle(ctx); err != nil {
		return 0, false, err
	}
	if err := s.repeat(ctx); err != nil {
		return 0, false, err
	}
	due, more, err := s.due(ctx)
	if err != nil {
		return 0, false, err
	}
	done := published{upTo: map[int16]int64{}}
	whole := false
	if !s.mayBeLost() { // or this round would overtake what has to be sent again
		whole, err = s.publish(ctx, due, &done)
	}
	if noteErr := s.note(ctx, done); noteErr != nil {
		return 0, false, noteErr
	}
	return done.count(), err == nil && (more || !whole), err
}

// due are the events to publish now, those of each lane in the order of their places; more is set if there are others. To look for what
// is to be sent again costs as much as the window holds, so it is done when something is due and not in every round.
func (s *Sender) due(ctx context.Context) (due []query.FreshRow, more bool, err error) {
	q, now := query.New(s.Pool), s.Clock.Now()
	fresh, unnumbered, err := s.fresh(ctx, now)
	s.soon = false
	if len(unnumbered) > 0 {
		taken, err := s.number(ctx, unnumbered)
		if err != nil {
			return nil, false, err
		}
		if fresh, unnumbered, err = s.fresh(ctx, now); err != nil {
			return nil, false, err
		}
		// What another transaction gives places to is no reason to begin at once.
		unnumbered = slices.DeleteFunc(unnumbered, func(lane int16) bool { return slices.Contains(taken, lane) })
		s.soon = len(taken) > 0
	}
	if err != nil {
		return nil, false, err
	}
	more = len(unnumbered) > 0 || len(fresh) >= batch
	if s.overdue.After(now) {
		return fresh, more, nil
	}
	lanes, sent := s.inOrder(now)
	rows, err := q.Overdue(ctx, query.OverdueParams{Lanes: lanes, At: now, Sent: sent, ResendWindow: ResendWindow, AtMost: batch})
	if err != nil {
		return nil, false, pg.Classify(err, "read due events")
	}
	if len(rows) == batch {
		more = true
	} else if s.overdue, err = s.nextOverdue(ctx, now, len(rows)); err != nil {
		return nil, false, err
	}
	for _, row := range rows {
		due = append(due, query.FreshRow(row))
	}
	// What has no place comes first, and what is new last: not before all that is to be sent again.
	unplaced := slices.IndexFunc(fresh, func(row query.FreshRow) bool { return row.Place > 0 })
	if unplaced < 0 {
		unplaced = len(fresh)
	}
	if len(rows) == batch {
		fresh = fresh[:unplaced]
	}
	return slices.Concat(fresh[:unplaced], due, fresh[unplaced:]), more, nil
}

// fresh are the events to publish for the first time; unnumbered are the lanes that have others, without a place yet.
func (s *Sender) fresh(ctx context.Context, now time.Time) (rows []query.FreshRow, unnumbered []int16, err error) {
	p := query.FreshParams{Lanes: s.mine(), At: now, AtMost: batch}
	for _, lane := range p.Lanes {
		p.Afters = append(p.Afters, s.sent[lane])
		p.Placed, p.Unplaced = append(p.Placed, s.open(part{lane, true}, now)), append(p.Unplaced, s.open(part{lane, false}, now))
	}
	rows, err = query.New(s.Pool).Fresh(ctx, p)
	for len(rows) > 0 && rows[0].Receipted && rows[0].Place == 0 {
		unnumbered, rows = append(unnumbered, rows[0].Lane), rows[1:]
	}
	return rows, unnumbered, pg.Classify(err, "read new events")
}

// inOrder are the lanes whose events with places may be sent now, and the place in each up to which nothing waits for its first
// publication.
func (s *Sender) inOrder(now time.Time) (lanes []int16, sent []int64) {
	for _, lane := range s.mine() {
		if s.open(part{lane, true}, now) {
			lanes, sent = append(lanes, lane), append(sent, s.sent[lane])
		}
	}
	return lanes, sent
}

// nextOverdue is when to look again, once everything was found that was due; also for what nobody here knows of. What was found
// may be published or not: if not, it is due still.
func (s *Sender) nextOverdue(ctx context.Context, now time.Time, found int) (time.Time, error) {
	if found > 0 {
		return now, nil
	}
	lanes, _ := s.inOrder(now)
	times, err := query.New(s.Pool).NextOverdue(ctx, query.NextOverdueParams{Lanes: lanes, ResendWindow: ResendWindow})
	return slices.MinFunc(append(times, now.Add(s.ResendAfter)), time.Time.Compare), pg.Classify(err, "read when events are due")
}

// repeat makes everything due that was sent and not confirmed, once the connection has been lost and is back: a stream that came
// back empty gets it in the order that it had, before what is new.
func (s *Sender) repeat(ctx context.Context) error {
	if !s.mayBeLost() {
		return nil
	}
	s.setLost(false)
	s.lookForOverdue(time.Time{})
	clear(s.refused)
	if err := query.New(s.Pool).Repeat(ctx, query.RepeatParams{Lanes: s.mine(), At: s.Clock.Now()}); err != nil {
		s.setLost(true)
		return pg.Classify(err, "have unconfirmed events sent again")
	}
	return nil
}

func (s *Sender) mayBeLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *Sender) setLost(lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
}

// forget has the sender find out anew what was sent of a lane.
func (s *Sender) forget(lane int16) {
	s.sent[lane], s.overdue = 0, time.Time{}
}

// lookForOverdue has the round that begins at or after at look for what is to be sent again.
func (s *Sender) lookForOverdue(at time.Time) {
	if at.Before(s.overdue) {
		s.overdue = at
	}
}

// number gives places to the events of lanes that have none, but not in those where another transaction does so at the moment: these it
// answers.
func (s *Sender) number(ctx context.Context, lanes []int16) (taken []int16, err error) {
	const most = 10 * batch
	for len(lanes) > 0 {
		var held []int16
		var numbered []query.NumberRow
		err := pg.InPipeline(ctx, s.Pool, func(tx pgx.Tx) (err error) {
			q := query.New(tx)
			if held, err = q.HoldCursor(ctx, lanes); err != nil || len(held) == 0 {
				return err
			}
			pg.Last(tx)
			numbered, err = q.Number(ctx, query.NumberParams{Lanes: held, AtMost: most})
			return err
		})
		if err != nil {
			return nil, pg.Classify(err, "number new events")
		}
		for _, lane := range lanes {
			if !slices.Contains(held, lane) {
				taken = append(taken, lane)
			}
		}
		lanes = nil
		for _, of := range numbered {
			if of.Place <= s.sent[of.Lane] { // the database was set back
				s.forget(of.Lane)
			}
			if of.Events == most {
				lanes = append(lanes, of.Lane)
			}
		}
	}
	return taken, nil
}

// note stores what was published. A crash before it repeats the publications under the same message ids; so does one right after it,
// by which the database loses it again. So nobody waits for the disk: that is for those who wait for a commit.
func (s *Sender) note(ctx context.Context, done published) error {
	if done.count() > 0 {
		err := pg.InPipeline(ctx, s.Pool, func(tx pgx.Tx) error {
			q := query.New(tx)
			if err := q.Hasten(ctx); err != nil {
				return err
			}
			if len(done.again.Ids) > 0 {
				if err := q.Sent(ctx, done.again); err != nil {
					return err
				}
			}
			if len(done.final) == 0 {
				return nil
			}
			return q.Forget(ctx, done.final)
		})
		if err != nil {
			return pg.Classify(err, "note %d published events", done.count())
		}
	}
	if len(done.again.Ids) > 0 {
		s.lookForOverdue(slices.MinFunc(done.again.NextAttempts, time.Time.Compare))
	}
	for lane, place := range done.upTo {
		s.sent[lane] = max(s.sent[lane], place)
	}
	return nil
}

// take keeps the latest receipt of each receiver for the next round, and notes when the connection was lost meanwhile.
func (s *Sender) take(payload []byte) {
	if payload == nil {
		s.setLost(true)
		s.look()
		return
	}
	var r receipt
	if err := json.Unmarshal(payload, &r); err != nil || r.Mark <= 0 || !slices.Contains(s.Receivers, r.Receiver) {
		return // not a receipt that anybody waits for
	}
	s.mu.Lock()
	from := receiptOf{r.Receiver, r.Epoch}
	if old, ok := s.receipts[from]; !ok || old < r.Mark {
		if len(s.receipts) >= mostReceipts {
			clear(s.receipts) // they come again
		}
		s.receipts[from] = r.Mark
	}
	s.mu.Unlock()
	s.look()
}

// settle raises the marks that receipts have brought and deletes what all receivers have. Receipts of lanes that another sender has are
// for that one.
func (s *Sender) settle(ctx context.Context) error {
	s.mu.Lock()
	receipts := s.receipts
	s.receipts = map[receiptOf]int64{}
	s.mu.Unlock()
	if len(receipts) == 0 {
		return nil
	}
	states, err := query.New(s.Pool).State(ctx, s.mine())
	if err != nil {
		return pg.Classify(err, "read the outbox's lanes")
	}
	of := make(map[string]query.OutboxLane, len(states))
	for _, state := range states {
		of[state.Epoch] = state
	}
	confirmed := query.ConfirmParams{At: s.Clock.Now()}
	for from, mark := range receipts {
		state, mine := of[from.epoch]
		switch {
		case !mine: // of an earlier sequence, or of a lane that is another's
		case mark > state.Place:
			s.Log.WarnContext(ctx, "a receiver has confirmed more than was ever sent: this database was set back; a new sequence begins",
				"receiver", from.receiver, "mark", mark, telemetry.KeyPosition, state.Place, "lane", state.Lane)
			if err := s.restart(ctx, state); err != nil {
				return err
			}
			delete(of, state.Epoch)
		default:
			confirmed.Lanes, confirmed.Epochs = append(confirmed.Lanes, state.Lane), append(confirmed.Epochs, state.Epoch)
			confirmed.Receivers, confirmed.Marks = append(confirmed.Receivers, from.receiver), append(confirmed.Marks, mark)
		}
	}
	if len(confirmed.Lanes) == 0 {
		return nil
	}
	s.lookForOverdue(time.Time{}) // the window moves
	err = pg.InPipeline(ctx, s.Pool, func(tx pgx.Tx) error {
		q := query.New(tx)
		// Until the end no new sequence begins, of which a receipt of the one before would delete what nobody has.
		if err := q.HoldEpochs(ctx, confirmed.Lanes); err != nil {
			return err
		}
		if err := q.Confirm(ctx, confirmed); err != nil {
			return err
		}
		return q.DeleteConfirmed(ctx, query.DeleteConfirmedParams{Lanes: confirmed.Lanes, Epochs: confirmed.Epochs, Receivers: s.Receivers})
	})
	return pg.Classify(err, "confirm and delete events of lanes %v", confirmed.Lanes)
}

// restart begins a new sequence of a lane with everything that is still held of it, unless another sender has done so already.
func (s *Sender) restart(ctx context.Context, lane query.OutboxLane) error {
	s.forget(lane.Lane)
	err := pg.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		q := query.New(tx)
		now, err := q.LockLane(ctx, lane.Lane)
		if err != nil || now.Epoch != lane.Epoch {
			return err
		}
		return begin(ctx, q, lane.Lane)
	})
	return pg.Classify(err, "begin a new sequence of lane %d", lane.Lane)
}
