package outbox

import "context"

// Round is one round of the active sender, without its lock.
func (s *Sender) Round(ctx context.Context) error {
	for {
		more, err := s.round(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// Flush moves the marks and sends the receipts once.
func (i *Inbox) Flush(ctx context.Context) error {
	_, err := i.flush(ctx)
	return err
}

// Take gives the sender a receipt.
func (s *Sender) Take(payload []byte) { s.take(payload) }
