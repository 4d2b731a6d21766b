package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// TestNothingIsLostOrAppliedTwice drives both halves through random histories of commits, crashes, losses, repetitions and
// reorderings, and then lets everything through: every committed event must have been applied exactly once, positions
// must never have changed, and the outbox must be empty.
func TestNothingIsLostOrAppliedTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rapid.Check(t, func(r *rapid.T) { newHistory(s, r).run() })
}

// TestTheOrderIsKept is the same with a receiver that applies what is in turn, and nothing else: whatever the stream does, it applies
// what was committed in the order in which it was.
func TestTheOrderIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(s, r)
		h.ordered = true
		h.run()
	})
}

// TestTheOrderOfEachRunIsKeptInLanes is the same with several runs and two senders, which share the lanes in one way after another, and
// at times both believe to have one: what is applied of each run is what one sequence would give, and what one sender with one lane gave
// (D65).
func TestTheOrderOfEachRunIsKeptInLanes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(s, r)
		h.ordered, h.runs = true, runsOfLanes()[:4]
		h.shared()
		h.run()
	})
}

// history is one random run.
type history struct {
	*stage
	r         *rapid.T
	committed []string
	positions map[string]string
	in        []message // what the receiver's consumer may still be handed
	runs      []string  // if events are of several; an event is RUN/NUMBER then
	other     *outbox.Sender
	alone     bool // the first sender has all lanes
	crash     bool
	ordered   bool // events that are not ready are not applied
}

func newHistory(s *stage, r *rapid.T) *history {
	h := &history{stage: s, r: r, positions: map[string]string{}, alone: true}
	s.applied = nil
	s.stream.take()
	s.stream.loseHints = false
	clear(s.stream.ids)
	for _, wipe := range []struct{ sql string }{
		{`TRUNCATE outbox, outbox_mark RESTART IDENTITY; UPDATE outbox_lane SET epoch = gen_random_uuid()::text, place = 0`},
	} {
		_, err := s.from.Exec(s.t.Context(), wipe.sql)
		s.must(err)
	}
	_, err := s.to.Exec(s.t.Context(), `TRUNCATE inbox, inbox_mark`)
	s.must(err)
	s.restart()
	s.stream.before = func(event.Event) error {
		if h.crash && rapid.Bool().Draw(h.r, "bus away") {
			return fault.New(fault.Unavailable, "away")
		}
		return nil
	}
	return h
}

// restart is the crash and new start of both services.
func (s *stage) restart() {
	s.sender = s.newSender(s.clock)
	s.inbox = s.newInbox("domain")
	s.hear()
}

func (h *history) run() {
	defer func() { h.stream.before = nil }()
	h.r.Repeat(map[string]func(*rapid.T){
		"commit":    h.commit,
		"round":     func(*rapid.T) { h.send() },
		"bad round": func(*rapid.T) { h.crash = true; h.send(); h.crash = false },
		"wait": func(r *rapid.T) {
			h.clock.Advance(time.Duration(rapid.IntRange(1, 70).Draw(r, "seconds")) * time.Second)
		},
		"wipe":     func(*rapid.T) { h.stream.take(); h.in = nil },
		"deliver":  h.deliverOne,
		"undone":   h.deliverUndone,
		"receipts": func(*rapid.T) { h.must(h.inbox.Flush(h.t.Context())) },
		"lose hints": func(*rapid.T) {
			h.stream.loseHints = true
			h.must(h.inbox.Flush(h.t.Context()))
			h.stream.loseHints = false
		},
		"new start": func(*rapid.T) { h.restart(); h.shared() },
		"share":     func(*rapid.T) { h.shared() },
		"lost note": func(*rapid.T) {
			h.exec(`UPDATE outbox SET attempts = greatest(attempts - 1, 0), next_attempt_at = '-infinity'`)
		},
		"": h.check,
	})
	h.finish()
}

// shared has two senders share the lanes anew, if there are several runs: each lane has one of them or both, as it may look for a moment.
func (h *history) shared() {
	if h.runs == nil {
		return
	}
	h.alone, h.other = false, h.newSender(h.clock)
	var first, second []int16
	for lane := range int16(outbox.Lanes) {
		has := rapid.IntRange(1, 3).Draw(h.r, "who has the lane")
		if has&1 != 0 {
			first = append(first, lane)
		}
		if has&2 != 0 {
			second = append(second, lane)
		}
	}
	h.sender.Have(first...)
	h.other.Have(second...)
}

// rounds are rounds of the senders.
func (h *history) rounds() error {
	if h.alone {
		return h.sender.Round(h.t.Context())
	}
	for _, sender := range rapid.Permutation([]*outbox.Sender{h.sender, h.other}).Draw(h.r, "who sends first") {
		for more := true; more; {
			var err error
			if more, err = sender.OneRoundOf(h.t.Context()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *history) exec(sql string) {
	_, err := h.from.Exec(h.t.Context(), sql)
	h.must(err)
}

func (h *history) commit(r *rapid.T) {
	var batch []event.Event
	for range rapid.IntRange(1, 4).Draw(r, "events") {
		id := fmt.Sprintf("e%d", len(h.committed)+len(batch))
		if h.runs == nil {
			batch = append(batch, started(id))
		} else {
			run := rapid.SampledFrom(h.runs).Draw(r, "run")
			batch = append(batch, startedBy(run, run+"/"+id))
		}
	}
	undone := errors.New("undone")
	keep := rapid.Float64().Draw(r, "luck") < 0.8
	add := map[string]func(context.Context, pgx.Tx, ...event.Sealed) error{
		"Add": outbox.Add, "AddNumbered": outbox.AddNumbered, "AddNew": outbox.AddNew,
	}[rapid.SampledFrom([]string{"Add", "AddNumbered", "AddNew"}).Draw(r, "by")]
	err := pg.InTx(h.t.Context(), h.from, func(tx pgx.Tx) error {
		if err := add(h.t.Context(), tx, sealed(batch...)...); err != nil || keep {
			return err
		}
		return undone
	})
	if err != nil && !errors.Is(err, undone) {
		r.Fatal(err)
	}
	if keep {
		for _, e := range batch {
			h.committed = append(h.committed, e.ID())
		}
	}
}

func (h *history) send() {
	if err := h.rounds(); err != nil && !fault.Is(err, fault.Unavailable) {
		h.r.Fatal(err)
	}
	for _, m := range h.stream.take() {
		p := fmt.Sprintf("%s %d", event.Extension(m.event, outbox.ExtensionEpoch), position(h.t, m))
		if known, ok := h.positions[m.event.ID()]; ok && known != p {
			h.r.Fatalf("event %s was at position %s and is at %s now", m.event.ID(), known, p)
		}
		h.positions[m.event.ID()] = p
		h.in = append(h.in, m)
	}
}

// deliverOne hands any of the messages to the receiver, and sometimes keeps it to be delivered again.
func (h *history) deliverOne(r *rapid.T) {
	if len(h.in) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.in)-1).Draw(r, "which")
	m := h.in[i]
	if rapid.Bool().Draw(r, "acknowledged") {
		h.in = slices.Delete(h.in, i, i+1)
	}
	h.receive(m)
}

// receive hands messages to the receiver one after the other.
func (h *history) receive(messages ...message) {
	for _, m := range messages {
		if h.ordered {
			h.inbox.GapAtMost = 1000 * time.Hour // nothing is lost for ever
			ready, err := h.inbox.ReadyNow(h.t.Context(), m.event)
			if h.must(err); !ready[0] {
				continue
			}
		}
		h.deliver(m)
	}
}

func (h *history) deliverUndone(r *rapid.T) {
	if len(h.in) == 0 {
		return
	}
	m := h.in[rapid.IntRange(0, len(h.in)-1).Draw(r, "which")]
	undone := errors.New("undone")
	err := pg.InTx(h.t.Context(), h.to, func(tx pgx.Tx) error {
		if _, err := h.inbox.Claim(h.t.Context(), tx, m.event); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		r.Fatal(err)
	}
}

// check is what holds at every moment.
func (h *history) check(r *rapid.T) {
	counts := map[string]int{}
	for _, id := range h.applied {
		if counts[id]++; counts[id] > 1 {
			r.Fatalf("event %s was applied twice", id)
		}
	}
	if h.ordered && h.runs == nil && !slices.Equal(h.applied, h.committed[:len(h.applied)]) {
		r.Fatalf("applied %v, of %v", h.applied, h.committed)
	}
	for _, run := range h.runs {
		applied, committed := ofRun(run, h.applied), ofRun(run, h.committed)
		if !slices.Equal(applied, committed[:len(applied)]) {
			r.Fatalf("applied %v of %s, of %v", applied, run, committed)
		}
	}
	held := h.held()
	for _, id := range h.committed {
		if counts[id] == 0 && !slices.Contains(held, id) {
			r.Fatalf("event %s is neither applied nor held", id)
		}
	}
	seen := map[string]string{}
	for id, p := range h.positions {
		if seen[p] != "" {
			r.Fatalf("events %s and %s are both at position %s", id, seen[p], p)
		}
		seen[p] = id
	}
}

// finish lets everything through.
func (h *history) finish() {
	if !h.alone {
		h.sender.HaveAll() // who stays has all
	}
	for range 10 {
		h.clock.Advance(time.Minute)
		h.send()
		h.receive(h.in...)
		h.in = nil
		h.must(h.inbox.Flush(h.t.Context()))
		h.send()
	}
	h.check(h.r)
	if held := h.held(); len(held) > 0 {
		h.r.Fatalf("still held: %v", held)
	}
	if len(h.applied) != len(h.committed) {
		h.r.Fatalf("%d events were committed and %d applied", len(h.committed), len(h.applied))
	}
}
