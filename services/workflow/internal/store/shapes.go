package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// openWait is a row of a wait, which has one for each kind of event that it waits for.
type openWait struct {
	opRow
	organization int64
	key          [16]byte
	shape        int64
	eventType    string
	filter       string
}

// prepareWaits makes the rows of a turn's waits, each under the key of its shape, and registers new shapes.
func (s *Store) prepareWaits(ctx context.Context, c engine.Commit) ([]openWait, error) {
	var rows []openWait
	for _, o := range c.Open {
		seen := map[[16]byte]bool{}
		for _, want := range o.Op.Wants() {
			paths, key := want.Filter.Paths(), keyOf(c.Execution.Organization, want)
			// A program may name a type or a channel twice; the rows would be the same.
			if seen[key] {
				continue
			}
			seen[key] = true
			filter, err := json.Marshal(want.Filter)
			if err != nil {
				return nil, fmt.Errorf("encode filter of %s: %w", o.Op.Position, err)
			}
			id, err := s.shape(ctx, c.Execution.Organization, want.Type, paths)
			if err != nil {
				return nil, err
			}
			rows = append(rows, openWait{
				opRow:        opRow{c.Execution.ID, int32(o.Op.Ref.Branch), int32(o.Op.Ref.Index)},
				organization: c.Execution.Organization, key: key, shape: id, eventType: want.Type, filter: string(filter),
			})
		}
	}
	return rows, nil
}

// keyOf is the key of a wait, under which its events are found.
func keyOf(organization int64, want history.Want) [16]byte {
	paths := want.Filter.Paths()
	values := make([]string, len(paths))
	for i, path := range paths {
		values[i] = want.Filter[path]
	}
	return history.Key(organization, want.Type, paths, values)
}

// shape returns the id of a set of paths by which events of the type get keys. When it returns, every stored event of the
// type has its key of the shape, and every later one gets its key when it is stored.
func (s *Store) shape(ctx context.Context, organization int64, name string, paths []string) (int64, error) {
	// Types and paths hold no control characters.
	known := fmt.Sprintf("%d\x00%s\x00%s", organization, name, strings.Join(paths, "\x00"))
	if id, found := s.shapes.find(known); found {
		return id, nil
	}
	if paths == nil {
		paths = []string{} // NULL would never be equal
	}
	find := query.FindShapeParams{Organization: organization, Type: name, Paths: paths}
	row, err := s.queries.FindShape(ctx, find)
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
			locks := newMatchLocks()
			locks.whole(eventType{organization, name})
			if err := locks.lock(ctx, q); err != nil {
				return err
			}
			return q.SaveShape(ctx, query.SaveShapeParams{Organization: organization, Type: name, Paths: paths})
		})
		if err == nil {
			row, err = s.queries.FindShape(ctx, find)
		}
	}
	if err != nil {
		return 0, pg.Classify(err, "register filter %v of %s", paths, name)
	}
	if !row.Filled {
		if err := s.backfill(ctx, row.ID, find); err != nil {
			return 0, err
		}
	}
	s.shapes.add(known, row.ID)
	return row.ID, nil
}

// backfillBatch bounds the events in memory: a type may have a month of events.
const backfillBatch = 1000

// backfill stores the keys of the events that are older than a shape. It is idempotent, and after a crash the next wait of the shape does
// it. Each shape needs it once: later events get a key of the shape when they are stored.
func (s *Store) backfill(ctx context.Context, id int64, shape query.FindShapeParams) error {
	for after := int64(0); ; {
		events, err := s.queries.EventsOfType(ctx, query.EventsOfTypeParams{
			Organization: shape.Organization, Type: shape.Type, ID: after, Limit: backfillBatch,
		})
		if err != nil {
			return pg.Classify(err, "read events %s", shape.Type)
		}
		var large payloads.Columns
		for i := range events {
			large.Add(events[i].Data, func(whole []byte) { events[i].Data = whole }, func(err error) {
				s.Log.ErrorContext(ctx, "an event is damaged; no new filter will find it", "event", events[i].ID, telemetry.KeyError, err)
			})
		}
		if err := large.Read(ctx, s.queries); err != nil {
			return err
		}
		var p query.SaveKeysParams
		for _, row := range events {
			after = row.ID
			if !event.Fits(shape.Type, row.Source) {
				continue // stored by a release that did not ask who had sent it (D47)
			}
			if key := keyFor(history.Event{Organization: shape.Organization, Type: shape.Type, Data: row.Data}, shape.Paths); key != nil {
				p.Keys, p.Events = append(p.Keys, key), append(p.Events, row.ID)
			}
		}
		if len(p.Keys) > 0 {
			if err := s.queries.SaveKeys(ctx, p); err != nil {
				return pg.Classify(err, "save keys of events %s", shape.Type)
			}
		}
		if len(events) < backfillBatch {
			return pg.Classify(s.queries.ShapeFilled(ctx, id), "mark filter %d", id)
		}
	}
}

// shapes remembers shapes that are filled. Shapes are never deleted, so it is never out of date.
type shapes struct {
	mu   sync.Mutex
	byID map[string]int64
}

// shapesMost bounds it. At the bound it is emptied.
const shapesMost = 10_000

func (s *shapes) find(name string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, known := s.byID[name]
	return id, known
}

func (s *shapes) add(name string, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil || len(s.byID) >= shapesMost {
		s.byID = map[string]int64{}
	}
	s.byID[name] = id
}

// eventType is a type of events of an organization.
type eventType struct {
	organization int64
	name         string
}

func typeOf(e history.Event) eventType { return eventType{e.Organization, e.Type} }

// typeFilters is what events of a type are matched with: a key for each of the sets of paths that waits have filters for, and flows.
type typeFilters struct {
	shapes [][]string
	flows  bool
}

// knownFilters remembers the filters of types. A strict commit relies on it, and is refused where it is out of date: then the process
// learns. A type that it does not know is taken to have none, as most that are emitted.
type knownFilters struct {
	mu     sync.RWMutex
	byType map[eventType]typeFilters
}

// filtersMost bounds it. At the bound it is emptied.
const filtersMost = 10_000

func (k *knownFilters) find(of eventType) typeFilters {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byType[of]
}

func (k *knownFilters) learn(of eventType, filters typeFilters) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byType == nil || len(k.byType) >= filtersMost {
		k.byType = map[eventType]typeFilters{}
	}
	if k.byType[of] = filters; len(filters.shapes) == 0 && !filters.flows {
		delete(k.byType, of)
	}
}

// filtersOf returns the filters of the types of events: when strict those that this process knows, else those that are stored, which it
// knows from then on.
func (s *Store) filtersOf(ctx context.Context, q *query.Queries, events []*newEvent, strict bool) (map[eventType]typeFilters, error) {
	filters := map[eventType]typeFilters{}
	var p query.FindFiltersParams
	for _, e := range events {
		of := typeOf(e.Event)
		if _, seen := filters[of]; !seen {
			filters[of] = s.filters.find(of)
			p.Organizations, p.Types = append(p.Organizations, of.organization), append(p.Types, of.name)
		}
	}
	if strict {
		return filters, nil
	}
	rows, err := q.FindFilters(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "find the filters of %d types of events", len(p.Types))
	}
	for _, row := range rows {
		found := typeFilters{flows: row.Flows}
		if err := json.Unmarshal(row.Shapes, &found.shapes); err != nil {
			return nil, fmt.Errorf("filters of type %q: %w", row.Type, err)
		}
		of := eventType{row.Organization, row.Type}
		filters[of] = found
		s.filters.learn(of, found)
	}
	return filters, nil
}
