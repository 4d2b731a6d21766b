package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Most turns go as expected: nobody else has touched the executions, and nobody waits for what they emit. Such a commit has
// nothing to ask between its statements, so all of them make one journey to the server and the match lock is held for no
// longer than that. Each statement that finds something else refuses: the transaction is undone as a whole, and is done
// again with the questions asked (commitAsked).

// The codes with which statements refuse (function refuse in the schema).
const (
	// codeNotAsAsked: a turn is fenced, or may not park because something has come.
	codeNotAsAsked = "LS001"
	// codeAwaited: an event is of a type that somebody waits for. The message says of which organization, and which.
	codeAwaited = "LS002"
)

// expected reports whether the commit is likely to go as expected: it has turns only, none of which looks for an event, and
// emits what nobody was seen to wait for.
func (s *Store) expected(items []*work) bool {
	for _, item := range items {
		if item.turn == nil || len(item.turn.waits) > 0 || item.turn.gaveUp() || s.tellsSomebody(item.turn) {
			return false
		}
	}
	return true
}

// tellsSomebody reports whether a turn emits what somebody was seen to wait for.
func (s *Store) tellsSomebody(t *turn) bool {
	return slices.ContainsFunc(t.told, func(e *told) bool { return s.awaited.has(awaitedType{e.Organization, e.Type}) })
}

// commitExpected is the transaction of turns that go as expected. done is false where they did not, and nothing was done.
func (s *Store) commitExpected(ctx context.Context, items []*work) (done bool, err error) {
	turns := make([]*turn, len(items))
	var wire []event.Sealed
	var events []*told
	for i, item := range items {
		turns[i] = item.turn
		wire, events = append(wire, item.turn.wire...), append(events, item.turn.told...)
	}
	err = s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) error {
		if len(events) > 0 {
			if err := q.LockMatching(ctx); err != nil {
				return err
			}
		}
		if err := endTurnsAsAsked(ctx, q, turns); err != nil {
			return err
		}
		if err := errors.Join(appendEntries(ctx, q, turns), openChannels(ctx, q, turns), closeOps(ctx, q, turns), beginGenerations(ctx, q, turns)); err != nil {
			return err
		}
		if _, err := openOps(ctx, q, turns); err != nil { // no waits, whatever it answers
			return err
		}
		return s.tellNobody(ctx, tx, q, wire, events)
	})
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch refusal.Code {
		case codeAwaited:
			s.awaited.learn(refusal.Message, events)
			return false, nil
		case codeNotAsAsked:
			return false, nil
		}
		if refusal.ConstraintName == "event_once" || refusal.ConstraintName == "outbox_event_once" { // emitted before, by a turn that a retry has undone
			return false, nil
		}
	}
	if err != nil {
		return true, fenced(pg.Classify(err, "commit %d turns", len(turns)))
	}
	for _, t := range turns {
		t.asAsked()
	}
	if len(wire) > 0 {
		s.Committed()
	}
	return true, nil
}

// tellNobody stores events, under the match lock, that nobody is expected to wait for.
func (s *Store) tellNobody(ctx context.Context, tx pgx.Tx, q *query.Queries, wire []event.Sealed, events []*told) error {
	if len(events) == 0 {
		return nil
	}
	if err := s.AddNew(ctx, tx, wire...); err != nil {
		return err
	}
	rows := s.eventRows(events)
	p := query.SaveUnawaitedParams{
		Received: rows.Received, Organizations: rows.Organizations, Sources: rows.Sources, EventIds: rows.EventIds,
		Types: rows.Types, Data: rows.Data, Occurred: rows.Occurred,
	}
	named := map[awaitedType]bool{}
	for _, e := range events {
		if of := (awaitedType{e.Organization, e.Type}); !named[of] {
			named[of] = true
			p.UnawaitedOrganizations, p.UnawaitedTypes = append(p.UnawaitedOrganizations, of.organization), append(p.UnawaitedTypes, of.name)
		}
	}
	return q.SaveUnawaited(ctx, p)
}

// awaitedType is a type of events of an organization.
type awaitedType struct {
	organization int64
	name         string
}

// String is the type as SaveUnawaited names it.
func (a awaitedType) String() string { return strconv.FormatInt(a.organization, 10) + " " + a.name }

// awaitedTypes remembers types that somebody was seen to wait for, so that no commit expects anything else. What is not known
// any more costs a journey, and what is known too long three: neither makes anything wrong.
type awaitedTypes struct {
	mu    sync.RWMutex
	known map[awaitedType]struct{}
}

// awaitedMost bounds it; beyond it begins anew.
const awaitedMost = 10_000

func (a *awaitedTypes) has(t awaitedType) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, known := a.known[t]
	return known
}

// learn notes that of the events those of the type with this name are awaited.
func (a *awaitedTypes) learn(name string, events []*told) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || len(a.known) >= awaitedMost {
		a.known = map[awaitedType]struct{}{}
	}
	for _, e := range events {
		if t := (awaitedType{e.Organization, e.Type}); t.String() == name {
			a.known[t] = struct{}{}
		}
	}
}
