package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
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
