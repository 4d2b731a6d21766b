package store

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Events that come from outside are mostly of types that have come before, and are new. Then their keys are known before they are stored,
// and the transaction makes two journeys: one that stores them and hands them to the waits, and the commit. Whether the types
// have the filters that this process knows is looked up once for each type, not for each event. Where anything else is
// true nothing is done, and then again with the questions asked (commitAsked).

// codeUnknownFilter: a type has filters that the process does not know, or starts runs of a flow. The message says of which organization, and
// which.
const codeUnknownFilter = "LS003"

// heard are events whose keys are known.
type heard struct {
	rows   query.SaveKnownParams
	byName map[eventName]*told
}

// known answers the events of items with their keys; ok is false where there is something else among them, or what this process does
// not know.
func (s *Store) known(items []*work) (h heard, ok bool) {
	h.byName = make(map[eventName]*told, len(items))
	events := make([]*told, 0, len(items))
	seen := map[awaitedType][][]string{}
	var keys keys
	for _, item := range items {
		r := item.received
		if r == nil || r.claim != nil {
			return h, false
		}
		of := awaitedType{r.Organization, r.Type}
		paths, again := seen[of]
		if !again {
			if paths, ok = s.filters.find(of); !ok {
				return h, false
			}
			seen[of] = paths
			h.rows.KnownOrganizations, h.rows.KnownTypes = append(h.rows.KnownOrganizations, of.organization), append(h.rows.KnownTypes, of.name)
			h.rows.KnownShapes = append(h.rows.KnownShapes, int32(len(paths)))
		}
		events = append(events, &r.told)
		h.byName[r.name()] = &r.told
		for _, shape := range paths {
			keys.add(r.Event, shape)
		}
		for len(h.rows.Places) < len(keys.params.Keys) {
			h.rows.Places = append(h.rows.Places, int32(len(events)))
		}
	}
	// Of two with one name the second would find the first.
	if len(h.byName) < len(events) {
		return h, false
	}
	rows := s.eventRows(events)
	h.rows.Received, h.rows.Organizations, h.rows.Sources, h.rows.EventIds = rows.Received, rows.Organizations, rows.Sources, rows.EventIds
	h.rows.Types, h.rows.Data, h.rows.Occurred, h.rows.Keys = rows.Types, rows.Data, rows.Occurred, keys.params.Keys
	return h, true
}

// commitKnown is the transaction of events whose keys are known. done is false where something else was true than this process knew,
// and nothing was done.
func (s *Store) commitKnown(ctx context.Context, h heard) (done bool, err error) {
	var woken []core.Woken
	err = s.pipelined(ctx, func(_ pgx.Tx, q *query.Queries) error {
		woken = nil
		for _, e := range h.byName {
			e.matched = 0
		}
		if err := q.LockMatching(ctx); err != nil {
			return err
		}
		if err := q.SaveKnown(ctx, h.rows); err != nil {
			return err
		}
		woken, err = s.satisfy(ctx, q, nil, h.rows.Keys, h.byName)
		return err
	})
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && (refusal.Code == codeUnknownFilter || refusal.ConstraintName == "event_once") {
		return false, nil
	}
	if err != nil {
		return true, pg.Classify(err, "save %d events", len(h.byName))
	}
	for _, e := range h.byName {
		e.stored = true
	}
	s.wake(woken)
	return true, nil
}

// filters remembers the sets of paths that types have keys for. What it knows was true once, and is looked up when it is used.
type filters struct {
	mu     sync.RWMutex
	byType map[awaitedType][][]string
}

// filtersMost bounds it; beyond it begins anew.
const filtersMost = 10_000

func (f *filters) find(of awaitedType) (paths [][]string, known bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	paths, known = f.byType[of]
	return paths, known
}

// learn notes what was seen of a type. One that starts runs of flows is not remembered: who is to be told of that is found by asking.
func (f *filters) learn(of awaitedType, paths [][]string, starts bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if starts {
		delete(f.byType, of)
		return
	}
	if f.byType == nil || len(f.byType) >= filtersMost {
		f.byType = map[awaitedType][][]string{}
	}
	f.byType[of] = paths
}
