package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// item is what goes through the groups of commits: a commit, a start with the commit of its first turn, or an event from outside.
type item struct {
	start    *start
	commit   *commit
	received *received
}

// organization is whose item it is.
func (i *item) organization() int64 {
	switch {
	case i.start != nil:
		return i.start.Organization
	case i.commit != nil:
		return i.commit.Execution.Organization
	}
	return i.received.Organization
}

// commit is a engine.Commit on its way.
type commit struct {
	engine.Commit
	// wire and events are what it emits: for the outbox, and for waits of this service's own programs. waits are rows.
	wire   []event.Sealed
	events []*newEvent
	waits  []openWait
	// children are what it starts.
	children []*start
	// values are the entries' values and continuation what the next generation is called with, where they are not stored as they are.
	values       map[int]payloads.Stored
	continuation payloads.Stored
	// fenced and done are the outcome.
	fenced bool
	done   engine.Committed
}

// pass records that the fence lets the commit through, and the state that the execution gets.
func (c *commit) pass(state execution.State) {
	c.fenced, c.done = false, engine.Committed{Turn: c.Turn, State: state}
	if !c.continues() {
		c.done.Turn++
	}
}

// claim reports whether an event is received for the first time, in the transaction that stores it.
type claim func(context.Context, pgx.Tx) (first bool, err error)

// received is an event from outside. Without a claim, the table of events recognizes duplicates.
type received struct {
	newEvent
	claim claim
	// alone is set if one claim of its type is made at a time: its rows are not only those of the event.
	alone bool
	// refusal is why the event is not accepted, where that is not the transaction's fault.
	refusal error
}

// first claims the event.
func (r *received) first(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	if r.refusal = nil; r.claim == nil {
		return true, nil
	}
	if first, err = r.claim(ctx, tx); fault.Is(err, fault.NotFound) {
		r.refusal, err = err, nil
	}
	return first, err
}

// Commit ends a turn. Turns and events of the same moment share a transaction.
func (s *Store) Commit(ctx context.Context, with engine.Commit) (engine.Committed, error) {
	c := &commit{Commit: with}
	// Whatever can fail by itself does so before it shares a transaction with others.
	if err := s.encodeEmits(c); err != nil {
		return engine.Committed{}, err
	}
	s.splitValues(c)
	var err error
	for _, child := range with.Starts {
		encoded, err := s.newStart(child.NewExecution)
		if err != nil {
			return engine.Committed{}, err
		}
		c.children = append(c.children, encoded)
	}
	if c.waits, err = s.prepareWaits(ctx, with); err != nil {
		return engine.Committed{}, err
	}
	if err := s.commits.do(ctx, &item{commit: c}); err != nil {
		return engine.Committed{}, err
	}
	if c.fenced {
		return engine.Committed{}, fmt.Errorf("commit turn %d of execution %d: %w", c.Turn, c.Execution.ID, engine.ErrFenced)
	}
	return c.done, nil
}

// splitValues cuts off what is stored by digest. Most turns have nothing of the kind.
func (s *Store) splitValues(c *commit) {
	if !s.byDigest.Load() {
		return
	}
	organization := c.Execution.Organization
	for i, e := range c.Entries {
		if payloads.Plain(e.Value, s.Large) || asIs(e.Kind) {
			continue
		}
		if c.values == nil {
			c.values = map[int]payloads.Stored{}
		}
		c.values[i] = payloads.Split(organization, e.Value, s.Large)
	}
	c.continuation = payloads.Split(organization, c.Continue, s.Large)
}

// asIs reports whether statements read the values of entries of a kind. They are never stored by digest, and always short.
func asIs(kind history.Kind) bool { return kind == history.KindStatus || kind == history.KindChannel }

func (s *Store) encodeEmits(c *commit) error {
	for _, emit := range c.Emits {
		if answer, is := emit.Answer(); is {
			c.events = append(c.events, s.split(&newEvent{Event: answer}))
			continue
		}
		if event.Own(emit.Type) { // of a type that its organization has declared: it concerns its own programs only
			c.events = append(c.events, s.split(emitted(emit, event.SourceWorkflow)))
			continue
		}
		e, err := s.Encode(emit, c.Execution.Trace)
		if err != nil {
			return fmt.Errorf("encode event %q: %w", emit.ID, err)
		}
		c.wire = append(c.wire, e)
		if emit.Type == history.TypeCallDecided || emit.Engine {
			continue // of the engine to the domain service: no program sees that it was held, or waits for its own answers
		}
		c.events = append(c.events, s.split(emitted(emit, e.Source())))
	}
	return nil
}

// emitted is what this service's own programs may wait for: what they emit does not come back over the bus (events.Domain).
func emitted(emit history.Emit, source string) *newEvent {
	return &newEvent{Event: history.Event{
		Organization: emit.Organization, Source: source, ID: emit.ID, Type: emit.Type, Data: emit.Data, Time: emit.Time,
	}}
}

// commitAll is the transaction of many items: strict, and if the server refuses that, once more and not strict.
func (s *Store) commitAll(ctx context.Context, items []*item) error {
	err := s.commit(ctx, items, true)
	if refused(err) {
		err = s.commit(ctx, items, false)
	}
	return fenced(err)
}

// commit is one transaction. When strict, it takes for granted what is nearly always true: every turn passes its fence and may park,
// every event is new, and the filters of its type are those that this process knows. So no statement has an answer to wait for, and all
// of them make one round trip; events that may have met a wait take a second one. A statement that finds something else refuses the
// transaction, and nothing of it has happened.
//
// When not strict, the same statements follow a look at what is true, under the same locks: a turn that is fenced and an event that is
// stored already are left out, and the others are committed.
func (s *Store) commit(ctx context.Context, items []*item, strict bool) error {
	var b *batch
	err := s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) (err error) {
		if b, err = s.gather(ctx, tx, q, items, strict); err != nil {
			return err
		}
		rows := b.payloads()
		if err := rows.Save(ctx, q, s.Clock.Now()); err != nil {
			return err
		}
		if err := s.write(ctx, tx, q, b); err != nil {
			return err
		}
		if b.woken, err = s.match(ctx, q, b.matching); err != nil {
			return err
		}
		return rows.Use(ctx, q)
	})
	if err != nil {
		return pg.Classify(err, "commit %d items", len(items))
	}
	s.programs.add(b.programs)
	s.tally(b)
	if len(b.wire) > 0 {
		s.Committed()
	}
	if startsFlow(b.events) {
		s.Met()
	}
	s.wake(append(keepRunning(b.commits, b.woken), b.born...))
	return nil
}

// tally counts the runs that a transaction has begun and ended.
func (s *Store) tally(b *batch) {
	for _, i := range b.begins {
		if !i.commit.Next.Ended() {
			s.Tally(i.start.Organization, 1)
		}
	}
	for _, c := range b.commits {
		begun := int64(len(c.children))
		if c.done.State.Ended() {
			begun--
		}
		if begun != 0 {
			s.Tally(c.Execution.Organization, begun)
		}
	}
}

// batch is the content of one transaction.
type batch struct {
	// begins are starts with their first turns, commits those of other turns, in the order of their executions.
	begins  []*item
	commits []*commit
	// programs are the digests of the programs that are stored with them.
	programs [][32]byte
	wire     []event.Sealed
	matching
	woken []engine.Woken
	// born are children that were started.
	born []engine.Woken
}

// payloads are the rows of what is stored by digest.
func (b *batch) payloads() *payloads.Rows {
	rows := new(payloads.Rows)
	for _, c := range b.commits {
		for i, stored := range c.values {
			rows.Add(stored, payloads.Entry(c.Execution.ID, c.Entries[i].Seq))
		}
		rows.Add(c.continuation, payloads.Generation(c.Execution.ID, c.Execution.Generation+1))
		for _, child := range c.children {
			rows.Add(child.inputs, payloads.Start(child.Ref))
		}
	}
	for _, e := range b.events {
		rows.Add(e.data, payloads.Event(e.Source, e.ID))
	}
	return rows
}

// gather takes the locks and puts together what is to be written.
func (s *Store) gather(ctx context.Context, tx pgx.Tx, q *query.Queries, items []*item, strict bool) (*batch, error) {
	b := &batch{matching: matching{strict: strict}}
	var all []*newEvent // also those that may not be stored
	var incoming []*received
	var waits []openWait
	var own []int64
	locks := newMatchLocks()
	for _, i := range items {
		switch {
		case i.start != nil:
			b.begins = append(b.begins, i)
			all = append(all, i.commit.events...)
		case i.commit != nil:
			b.commits = append(b.commits, i.commit)
			all, waits, own = append(all, i.commit.events...), append(waits, i.commit.waits...), append(own, i.commit.Execution.ID)
		default:
			incoming = append(incoming, i.received)
			if all = append(all, &i.received.newEvent); i.received.alone {
				locks.whole(typeOf(i.received.Event))
			}
		}
	}
	var err error
	if b.filters, err = s.lockMatching(ctx, q, locks, all, waits, own, strict); err != nil {
		return nil, err
	}
	if b.events, err = claimAll(ctx, tx, incoming); err != nil {
		return nil, err
	}
	// Everything that locks several executions does so in the order of their ids.
	slices.SortStableFunc(b.commits, func(x, y *commit) int { return cmp.Compare(x.Execution.ID, y.Execution.ID) })
	if strict {
		for _, c := range b.commits {
			c.pass(c.Next)
		}
	} else if b.commits, err = lockTurns(ctx, q, b.commits); err != nil {
		return nil, err
	}
	for _, i := range b.begins {
		b.emit(i.commit)
	}
	for _, c := range b.commits {
		b.emit(c)
		if c.gaveUp() {
			b.again = append(b.again, c.Execution.ID)
		}
	}
	return b, nil
}

// claimAll claims events, in the order of their names, as every process does, and returns the first ones in their order of arrival.
func claimAll(ctx context.Context, tx pgx.Tx, incoming []*received) (first []*newEvent, err error) {
	ordered := slices.SortedStableFunc(slices.Values(incoming), func(x, y *received) int {
		return cmp.Or(cmp.Compare(x.Organization, y.Organization), cmp.Compare(x.Source, y.Source), cmp.Compare(x.ID, y.ID))
	})
	claimed := make(map[*received]bool, len(incoming))
	for _, r := range ordered {
		if claimed[r], err = r.first(ctx, tx); err != nil {
			return nil, err
		}
	}
	for _, r := range incoming {
		if r.stored = false; claimed[r] {
			first = append(first, &r.newEvent)
		}
	}
	return first, nil
}

func (b *batch) emit(c *commit) {
	b.wire, b.events = append(b.wire, c.wire...), append(b.events, c.events...)
}

// write has all rows written but those of events. It notes the waits that have to be matched.
func (s *Store) write(ctx context.Context, tx pgx.Tx, q *query.Queries, b *batch) (err error) {
	if b.programs, err = s.saveBegins(ctx, q, b.begins); err != nil {
		return err
	}
	if err := endTurns(ctx, q, b.commits, b.strict); err != nil {
		return err
	}
	var saved [][32]byte
	if b.born, saved, err = s.startChildren(ctx, q, b.commits); err != nil {
		return err
	}
	b.programs = append(b.programs, saved...)
	err = errors.Join(
		orphanChildren(ctx, q, b.commits), saveStatuses(ctx, q, b.commits),
		appendEntries(ctx, q, b.commits), openChannels(ctx, q, b.commits), closeOps(ctx, q, b.commits), beginGenerations(ctx, q, b.commits),
	)
	if err != nil {
		return err
	}
	if b.waits, err = openOps(ctx, q, b.commits); err != nil || len(b.wire) == 0 {
		return err
	}
	if b.strict {
		return s.AddNew(ctx, tx, b.wire...)
	}
	return s.Add(ctx, tx, b.wire...)
}

// refused reports whether the server has refused a transaction for what is in it, so that nothing of it has happened.
func refused(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return answered && !fault.Is(err, fault.Unavailable)
}

// fenced is ErrFenced where two owners wrote the same number of a history. The turns' fence should have refused one; the
// primary key does it in any case.
func fenced(err error) error {
	if pg.Constraint(err) == "entry_pkey" {
		return fmt.Errorf("%w: %w", engine.ErrFenced, err)
	}
	return err
}

// gaveUp reports whether a wait of the turn has ended without an event while its execution continues. An event may have been delivered to
// that wait after the turn had read its arrivals; other waits of the execution can have it now.
func (c *commit) gaveUp() bool {
	return !c.Next.Ended() && slices.ContainsFunc(c.Entries, func(e history.Entry) bool {
		return e.Event == 0 && (e.Kind == history.KindWait || e.Kind == history.KindReceive)
	})
}

// keepRunning sets the state of executions that parked and were woken by the same commit to running, and returns the other ones.
func keepRunning(commits []*commit, woken []engine.Woken) []engine.Woken {
	if len(woken) == 0 {
		return nil
	}
	parked := map[int64]*commit{}
	for _, c := range commits {
		if c.done.State == execution.Parked {
			parked[c.Execution.ID] = c
		}
	}
	var others []engine.Woken
	for _, w := range woken {
		if c, own := parked[w.ID]; own && w.Ours {
			c.done.State = execution.Running
			continue
		}
		others = append(others, w)
	}
	return others
}

// wake notifies the engine of executions that can continue.
func (s *Store) wake(woken []engine.Woken) {
	if s.Woken == nil {
		return
	}
	for _, w := range woken {
		s.Woken(w)
	}
}
