package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

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
