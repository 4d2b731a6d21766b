package outbox_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/outbox"
)

// The sender's database is restored to before a, b and c, which the receiver has (D66). More events follow than the receiver has confirmed
// of the old sequence, and the stream loses them: what it confirms when an old one comes again is not taken for a receipt of theirs.
func TestAfterARestoreOldReceiptsConfirmNothingNew(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	old := s.stream.take()
	s.deliver(old...)
	_, err := s.from.Exec(t.Context(), "DELETE FROM outbox")
	s.must(err)
	_, err = s.from.Exec(t.Context(), "UPDATE outbox_lane SET place = 0")
	s.must(err)
	s.add("kept") // which the backup has, without a position
	for range 2 { // doing it again does no harm
		s.must(outbox.Restored(t.Context(), s.sending))
	}
	s.sender = s.newSender(s.clock)
	s.hear()
	s.add("d", "e", "f", "g")
	s.round()
	lost := s.stream.take()
	same(t, "positions", positions(t, lost), []int{1, 2, 3, 4, 5})
	s.deliver(old[2])
	s.confirm()
	same(t, "held after a receipt of the old sequence", s.held(), []string{"kept", "d", "e", "f", "g"})
	s.deliver(lost...)
	s.confirm()
	same(t, "held after their own receipt", s.held(), []string{})
	same(t, "applied", s.applied, []string{"a", "b", "c", "kept", "d", "e", "f", "g"})
}
