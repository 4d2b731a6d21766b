package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
)

// Round is one round of a sender that has all lanes, without its locks.
func (s *Sender) Round(ctx context.Context) error {
	s.HaveAll()
	for {
		_, more, err := s.round(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// OneRound is one of the rounds that Round makes until nothing is left; more is set if something is.
func (s *Sender) OneRound(ctx context.Context) (more bool, err error) {
	s.HaveAll()
	_, more, err = s.round(ctx)
	return more, err
}

// OneRoundOf is OneRound for the lanes that the sender has.
func (s *Sender) OneRoundOf(ctx context.Context) (more bool, err error) {
	_, more, err = s.round(ctx)
	return more, err
}

// HaveAll gives the sender the lanes that it does not have.
func (s *Sender) HaveAll() {
	for lane := range int16(Lanes) {
		s.sent[lane] += 0
	}
}

// Have gives the sender these lanes and no others.
func (s *Sender) Have(lanes ...int16) {
	clear(s.sent)
	for _, lane := range lanes {
		s.sent[lane] = 0
	}
}

// Mine are the lanes that the sender has.
func (s *Sender) Mine() []int16 { return s.mine() }

// Joined makes the sender one of the senders, without its rounds: share shares the lanes, and leave gives up all of them.
func (s *Sender) Joined(ctx context.Context) (share func() error, leave func(), err error) {
	own, err := s.join(ctx)
	if own == nil || err != nil {
		return nil, nil, errors.Join(err, errors.New("not one of the senders"))
	}
	ctx, cancel := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() { _ = own.listen(ctx, s.notified) })
	return func() error { return s.share(ctx, own) }, sync.OnceFunc(func() {
		cancel()
		listener.Wait()
		own.close(ctx)
	}), nil
}

// Shares says what the sender of a process gives up and takes.
func Shares(has map[int32][]int16, process int32) (leave, take []int16, ok bool) {
	var senders []holder
	for process, lanes := range has {
		senders = append(senders, holder{process, slices.Clone(lanes)})
	}
	return shares(senders, process)
}

// LaneOf is the lane of an event.
func LaneOf(e event.Sealed) int16 { return laneOf(e) }

// Pause is how long after the beginning of a round that published so many events the next one begins.
func Pause(sent int) time.Duration { return pause(sent) }

// Flush moves the marks and sends the receipts once.
func (i *Inbox) Flush(ctx context.Context) error {
	_, err := i.flush(ctx)
	return err
}

// Take gives the sender a receipt.
func (s *Sender) Take(payload []byte) { s.take(payload) }

// ReadyNow is Ready for one event, without waiting.
func (i *Inbox) ReadyNow(ctx context.Context, e event.Event) ([]bool, error) {
	p, err := placeOf(e)
	if err != nil {
		return nil, err
	}
	ready, _, err := i.ready(ctx, []place{p})
	return ready, err
}

// explained is a database that explains what it is asked.
type explained struct {
	*pgxpool.Pool
	plan []string
}

func (e *explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := e.Pool.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS) "+sql, args...)
	if err == nil {
		e.plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return nil, errors.Join(err, errExplained)
}

var errExplained = errors.New("explained")

// ExplainFresh is how the database answers what a sender of a lane asks each round.
func (s *Sender) ExplainFresh(ctx context.Context, lane int16) (string, error) {
	e := &explained{Pool: s.Pool}
	_, err := query.New(e).Fresh(ctx, query.FreshParams{
		Lanes: []int16{lane}, Afters: []int64{0}, At: s.Clock.Now(), AtMost: batch, Placed: []bool{true}, Unplaced: []bool{true},
	})
	if errors.Is(err, errExplained) && len(e.plan) > 0 {
		err = nil
	}
	return strings.Join(e.plan, "\n"), err
}
