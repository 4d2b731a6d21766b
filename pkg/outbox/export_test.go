package outbox

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// Round is one round of the active sender, without its lock.
func (s *Sender) Round(ctx context.Context) error {
	for {
		_, more, err := s.round(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// OneRound is one of the rounds that Round makes until nothing is left; more is set if something is.
func (s *Sender) OneRound(ctx context.Context) (more bool, err error) {
	_, more, err = s.round(ctx)
	return more, err
}

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
