package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/outbox"
)

// replica is a sender that a test moves by hand.
type replica struct {
	*outbox.Sender
	share func() error
	leave func()
}

// replicas are senders that share lanes when a test says so.
func (s *stage) replicas(n int) (all []replica) {
	s.t.Helper()
	for range n {
		r := replica{Sender: s.newSender(s.clock)}
		var err error
		r.share, r.leave, err = r.Joined(s.t.Context())
		s.must(err)
		s.t.Cleanup(r.leave)
		all = append(all, r)
	}
	return all
}

// sends is what a replica publishes in a round, by event.
func (s *stage) sends(r replica) []string {
	s.t.Helper()
	for {
		more, err := r.OneRoundOf(s.t.Context())
		s.must(err)
		if !more {
			break
		}
	}
	sent := ids(s.stream.take())
	slices.Sort(sent)
	return sent
}

// ofLanes are the events numbered n of the runs of some lanes.
func ofLanes(lanes []int16, n string) (events []string) {
	for _, lane := range lanes {
		events = append(events, runsOfLanes()[lane]+"/"+n)
	}
	slices.Sort(events)
	return events
}

// A lane that is handed over is sent by its new replica alone: the old one sends nothing of it from then on, not even before it has looked
// again, and deletes nothing of it (D65).
func TestALaneThatIsHandedOverHasOneSender(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	both := s.replicas(2)
	one, other := both[0], both[1]
	other.leave()
	s.must(one.share())
	all := one.Mine()
	same(t, "lanes of one alone", len(all), outbox.Lanes)

	other = s.replicas(1)[0]
	s.must(other.share())
	same(t, "lanes while the other has all", len(other.Mine()), 0)
	s.must(one.share())
	kept := one.Mine()
	same(t, "lanes that one keeps", len(kept), outbox.Lanes/2)
	s.addOf(ofLanes(all, "1")...)
	same(t, "sent while nobody has the rest", s.sends(one), ofLanes(kept, "1"))
	s.must(other.share())
	taken := other.Mine()
	together := append(slices.Clone(kept), taken...)
	slices.Sort(together)
	same(t, "lanes of both", together, all)
	same(t, "sent by the other", s.sends(other), ofLanes(taken, "1"))
	s.addOf(ofLanes(all, "2")...)
	same(t, "sent by one", s.sends(one), ofLanes(kept, "2"))
	same(t, "sent by the other", s.sends(other), ofLanes(taken, "2"))
}

// What a replica has sent and nobody has confirmed is sent again by the replica that takes its lanes when it is due, also if that one had
// nothing to look for until later (D44, D65).
func TestWhatATakenLaneHasIsSentAgainInTime(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	both := s.replicas(2)
	one, other := both[0], both[1]
	for range 2 { // what one leaves is for the other, in either order
		s.must(one.share())
		s.must(other.share())
	}
	lanes := one.Mine()
	same(t, "lanes of one", len(lanes), outbox.Lanes/2)
	s.addOf(ofLanes(lanes, "1")...)
	same(t, "sent", s.sends(one), ofLanes(lanes, "1")) // due again in ten seconds
	s.clock.Advance(9 * time.Second)
	same(t, "sent by the other", s.sends(other), []string{}) // and it looks again in ten seconds
	one.leave()
	s.must(other.share())
	same(t, "lanes of the other", len(other.Mine()), outbox.Lanes)
	s.clock.Advance(2 * time.Second)
	same(t, "sent again, for the second time", s.sends(other), ofLanes(lanes, "1/2"))
}
