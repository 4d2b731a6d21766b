package store

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// matchLocks are the locks under which a transaction stores events, waits and shapes (match.go). They are taken in this order, each kind
// in ascending order, so that transactions wait for one another and never in a circle:
//
//	types        a share of each type of the events and waits, or the whole type: to register a shape of it, for a claim that only one
//	             transaction may make at a time, for more keys than one may lock, and where keys are only known behind the lock
//	keys         those of the events and of the waits, and the names of events from outside
//	executions   those of the transaction, and those that wait for one of the keys (LockMatched)
//
// After that, rows of the inbox, of events and of the outbox follow. A type is one of an organization; types and keys are hashed, and two
// that share a hash share a lock.
type matchLocks struct {
	types map[int32]bool // whether the whole type is locked
	keys  map[int32]struct{}
}

const (
	// typeLocks bounds the locks of types of a transaction, and keyLocks those of keys: the server's table of locks has room for 64 for
	// each of its connections unless it is configured otherwise.
	typeLocks = 128
	keyLocks  = 96
)

func newMatchLocks() *matchLocks {
	return &matchLocks{types: map[int32]bool{}, keys: map[int32]struct{}{}}
}

// share adds a share of a type.
func (m *matchLocks) share(of eventType) {
	if id := lockOf(of); !m.types[id] {
		m.types[id] = false
	}
}

// whole adds a whole type.
func (m *matchLocks) whole(of eventType) { m.types[lockOf(of)] = true }

// event adds an event with its keys, and with its name if it comes from outside: another process may store it at the same moment.
func (m *matchLocks) event(e *newEvent) {
	m.share(typeOf(e.Event))
	for _, key := range e.keys {
		m.keys[keyLock(key)] = struct{}{}
	}
	if e.outside {
		m.keys[nameLock(e.name())] = struct{}{}
	}
}

// wait adds a wait.
func (m *matchLocks) wait(w openWait) {
	m.share(eventType{w.organization, w.eventType})
	m.keys[keyLock(w.key[:])] = struct{}{}
}

// wholly locks all types as a whole, and no key: against those who have a share of a type, that is the same.
func (m *matchLocks) wholly() {
	for id := range m.types {
		m.types[id] = true
	}
	clear(m.keys)
}

// lock takes the locks of types and keys.
func (m *matchLocks) lock(ctx context.Context, q *query.Queries) error {
	if len(m.types) == 0 {
		return nil
	}
	if len(m.keys) > keyLocks {
		m.wholly()
	}
	var types query.LockTypesParams
	for _, id := range slices.Sorted(maps.Keys(m.types)) {
		types.Ids, types.Wholes = append(types.Ids, id), append(types.Wholes, m.types[id])
	}
	if err := q.BeginMatching(ctx); err != nil {
		return pg.Classify(err, "begin matching")
	}
	if err := q.LockTypes(ctx, types); err != nil {
		return pg.Classify(err, "lock %d types of events", len(types.Ids))
	}
	if len(m.keys) == 0 {
		return nil
	}
	return pg.Classify(q.LockKeys(ctx, slices.Sorted(maps.Keys(m.keys))), "lock %d keys of events", len(m.keys))
}

// lockMatching takes the locks for events that are to be stored and for new waits, and gives the events their keys, by the filters that it
// returns. more are locks that the caller needs beside them. When strict the filters are those that this process knows; else they are read
// behind the locks, which are then of whole types.
func (s *Store) lockMatching(
	ctx context.Context, q *query.Queries, more *matchLocks, events []*newEvent, waits []openWait, own []int64, strict bool,
) (map[eventType]typeFilters, error) {
	var filters map[eventType]typeFilters
	var err error
	if strict {
		filters, err = s.filtersOf(ctx, q, events, strict)
		keyEvents(events, filters)
	}
	for _, e := range events {
		more.event(e)
	}
	for _, w := range waits {
		more.wait(w)
	}
	if !strict {
		more.wholly()
	}
	if err = errors.Join(err, more.lock(ctx, q)); err != nil {
		return nil, err
	}
	if !strict {
		if filters, err = s.filtersOf(ctx, q, events, strict); err != nil {
			return nil, err
		}
		keyEvents(events, filters)
	}
	return filters, lockMatched(ctx, q, own, events)
}

// keyEvents gives events a key for each set of paths that waits for their type have filters for.
func keyEvents(events []*newEvent, filters map[eventType]typeFilters) {
	for _, e := range events {
		e.keys = nil
		if !event.Fits(e.Type, e.Source) {
			continue // no wait finds it, whatever has let it in (D47)
		}
		for _, shape := range filters[typeOf(e.Event)].shapes {
			if key := keyFor(e.Event, shape); key != nil {
				e.keys = append(e.keys, key)
			}
		}
	}
}

// lockMatched locks executions of the transaction with those that may get one of its events, where any may.
func lockMatched(ctx context.Context, q *query.Queries, own []int64, events []*newEvent) error {
	p := query.LockMatchedParams{Executions: notNull(own)}
	for _, e := range events {
		p.Keys = append(p.Keys, e.keys...)
	}
	if len(p.Keys) == 0 {
		return nil
	}
	return pg.Classify(q.LockMatched(ctx, p), "lock executions that wait for %d keys", len(p.Keys))
}

// lockOf is the lock of a type.
func lockOf(of eventType) int32 {
	h := fnv.New32a()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(of.organization))
	_, _ = h.Write(n[:])
	_, _ = h.Write([]byte(of.name))
	return int32(h.Sum32() % typeLocks)
}

// keyLock is the lock of a key, which is a hash already.
func keyLock(key []byte) int32 { return int32(binary.BigEndian.Uint32(key)) }

// nameLock is the lock of an event's name.
func nameLock(name eventName) int32 {
	h := fnv.New32a()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(name.organization))
	_, _ = h.Write(n[:])
	_, _ = h.Write([]byte(name.source))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name.id))
	return int32(h.Sum32())
}
