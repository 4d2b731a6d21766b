package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// CellsByID implements view.Reads.
func (r reader) CellsByID(ctx context.Context, organization int64, ids []int64) (found map[int64]core.Cell, err error) {
	err = r.together(ctx, organization, func(r reader) error {
		places, err := r.ApplicationEnvironmentsByID(ctx, organization, ids)
		if err != nil {
			return err
		}
		found, err = r.cells(ctx, organization, slices.Collect(maps.Values(places)))
		return err
	})
	return found, err
}

// CellsByApplication implements view.Reads.
func (r reader) CellsByApplication(ctx context.Context, organization int64, applications []int64) (found map[int64][]core.Cell, err error) {
	err = r.together(ctx, organization, func(r reader) error {
		places, err := r.ApplicationEnvironmentsByApplication(ctx, organization, applications)
		if err != nil {
			return err
		}
		cells, err := r.cells(ctx, organization, slices.Concat(slices.Collect(maps.Values(places))...))
		found = make(map[int64][]core.Cell, len(places))
		for application, all := range places {
			found[application] = convertAll(all, func(place core.ApplicationEnvironment) core.Cell { return cells[place.ID] })
		}
		return err
	})
	return found, err
}

// cells reads what is shown of places: a query for each kind of thing, however many places there are.
func (r reader) cells(ctx context.Context, organization int64, places []core.ApplicationEnvironment) (map[int64]core.Cell, error) {
	ids := convertAll(places, func(p core.ApplicationEnvironment) int64 { return p.ID })
	known, err := byKey(ctx, r, organization, ids, "cells of the matrix", (*query.Queries).Cells,
		func(row query.CellsRow) (int64, query.CellsRow) { return row.ID, row })
	if err != nil {
		return nil, err
	}
	var around, sets, stops ids64
	for _, place := range places {
		c := known[place.ID]
		around.add(place.EnvironmentID)
		sets.add(c.LiveVersionSetID, c.LatestVersionSetID)
		stops.add(c.LatestStopID)
	}
	environments, err := r.EnvironmentsByID(ctx, organization, around.all())
	if err != nil {
		return nil, err
	}
	versionSets, err := r.VersionSetsByID(ctx, organization, sets.all())
	if err != nil {
		return nil, err
	}
	latest, err := r.RolloutEnvironmentsByID(ctx, organization, stops.all())
	if err != nil {
		return nil, err
	}
	reconciliations, err := r.Reconciliations(ctx, organization, ids)
	found := make(map[int64]core.Cell, len(places))
	for _, place := range places {
		c := known[place.ID]
		found[place.ID] = core.Cell{
			ApplicationEnvironment: place, Environment: environments[place.EnvironmentID], Health: health(c.Worst),
			Live: at(versionSets, c.LiveVersionSetID), LiveSince: c.LiveSince,
			Latest: at(latest, c.LatestStopID), LatestVersionSet: at(versionSets, c.LatestVersionSetID),
			Reconciliation: at(reconciliations, place.ID),
		}
	}
	return found, err
}

// ids64 are numbers of rows to read, each once; 0, which stands for none, is no number.
type ids64 []int64

func (s *ids64) add(ids ...int64) {
	for _, id := range ids {
		if id != 0 {
			*s = append(*s, id)
		}
	}
}

func (s ids64) all() []int64 {
	slices.Sort(s)
	return slices.Compact(s)
}

// at is what a key has; nil for nothing.
func at[T any](all map[int64]T, key int64) *T {
	one, ok := all[key]
	if !ok {
		return nil
	}
	return &one
}

// health is what the tables call the worst of services'.
func health(worst string) core.Health {
	if worst == beforeAny {
		return core.HealthUnknown
	}
	return core.Health(worst)
}

// EnvironmentsOfDrivers implements view.Reads.
func (r reader) EnvironmentsOfDrivers(ctx context.Context, organization int64, refs []string) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		ids, err = q.EnvironmentsOfDrivers(ctx, organization, refs)
		return pg.Classify(err, "find environments of drivers")
	})
	return ids, err
}

// StopsAsking implements view.Reads.
func (r reader) StopsAsking(ctx context.Context, organization int64) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		if err := q.PlanForValues(ctx); err != nil {
			return pg.Classify(err, "plan for values")
		}
		ids, err = q.StopsAsking(ctx, organization)
		return pg.Classify(err, "find stops that ask")
	})
	return ids, err
}

// MatrixApplications implements view.Reads.
func (r reader) MatrixApplications(
	ctx context.Context, organization int64, f core.MatrixFilter, stops []int64, p core.Page,
) (core.Slice[core.Application], error) {
	return list(ctx, r, organization, p, core.OrderName, "applications", func(q *query.Queries, w core.Window) ([]query.Application, error) {
		return matrix(ctx, q, organization, f, stops, w)
	}, application, func(a core.Application) core.Position { return core.Position{Name: a.Name} })
}

// matrix takes the query that has an index for what is asked.
func matrix(
	ctx context.Context, q *query.Queries, organization int64, f core.MatrixFilter, stops []int64, w core.Window,
) ([]query.Application, error) {
	asked := query.MatrixAmongParams{
		OrganizationID: organization, AboveName: w.Above.Name, BelowName: w.Below.Name, Contains: strings.ToLower(f.Contains),
		Environments: f.EnvironmentIDs,
		States:       standings(f.States), Healths: worst(f.Healths), Falling: w.Falling, AtMost: limit(w),
		// Empty lists, not none: NULL would meet no condition.
		Applications: []int64{}, Stops: []int64{}, Without: []int64{},
	}
	if asked.Environments == nil {
		asked.Environments = []int64{}
	}
	named, few, err := named(ctx, q, organization, f.Contains)
	waiting := f.Waiting != nil && *f.Waiting
	if err != nil || few && len(named) == 0 || waiting && len(stops) == 0 {
		return nil, err
	}
	if few {
		asked.Applications = named
	}
	if f.Waiting != nil && !waiting && len(stops) > 0 {
		asked.Without = stops
	}
	switch {
	case waiting:
		asked.Stops = stops
		return q.MatrixAmong(ctx, asked)
	case few:
		return q.MatrixAmong(ctx, asked)
	case len(asked.Environments) > 0 && len(asked.Environments) <= fewEnvironments:
		return q.MatrixByEnvironment(ctx, query.MatrixByEnvironmentParams{
			OrganizationID: organization, AboveName: asked.AboveName, BelowName: asked.BelowName, Contains: asked.Contains,
			Environments: asked.Environments,
			States:       asked.States, Healths: asked.Healths, Without: asked.Without, Falling: asked.Falling, AtMost: asked.AtMost,
		})
	default:
		return q.MatrixByCell(ctx, query.MatrixByCellParams{
			OrganizationID: organization, AboveName: asked.AboveName, BelowName: asked.BelowName, Contains: asked.Contains,
			Environments: asked.Environments,
			States:       asked.States, Healths: asked.Healths, Without: asked.Without, Falling: asked.Falling, AtMost: asked.AtMost,
		})
	}
}

// fewEnvironments is how many are looked up one by one; more are looked out for on the way.
const fewEnvironments = 10

// How f.Waiting is passed to CountMatrix.
const (
	waitingOrNot = iota
	waitingOnly
	waitingNot
)

// CountMatrixApplications implements view.Counts.
func (r reader) CountMatrixApplications(ctx context.Context, organization int64, f core.MatrixFilter, stops []int64) (int, error) {
	waiting := int32(waitingOrNot)
	if f.Waiting != nil {
		waiting = waitingNot
		if *f.Waiting {
			waiting = waitingOnly
		}
	}
	return count(ctx, r, organization, "applications of the matrix", func(q *query.Queries) (int64, error) {
		return q.CountMatrix(ctx, query.CountMatrixParams{
			OrganizationID: organization, States: standings(f.States), Healths: worst(f.Healths),
			Environments: append([]int64{}, f.EnvironmentIDs...),
			Contains:     strings.ToLower(f.Contains), Waiting: waiting, Stops: append([]int64{}, stops...),
		})
	})
}

// beforeAny is a cell's standing before its first rollout, and its worst health before any was seen.
const beforeAny = ""

// standings are what the tables have for states; all for none.
func standings(states []core.RolloutState) []string {
	if len(states) == 0 {
		return []string{
			beforeAny, string(core.RolloutPending), string(core.RolloutInProgress), string(core.RolloutPaused), string(core.RolloutCompleted),
			string(core.RolloutFailed), string(core.RolloutCancelled),
		}
	}
	return convertAll(states, func(s core.RolloutState) string { return string(s) })
}

// worst is what the tables have for the worst health of some services; all for none. What was never seen has no health.
func worst(healths []core.Health) []string {
	if len(healths) == 0 {
		return []string{
			beforeAny, string(core.HealthHealthy), string(core.HealthUnknown), string(core.HealthProgressing), string(core.HealthDegraded),
		}
	}
	return convertAll(healths, func(h core.Health) string { return string(h) })
}

// fewNamed is how many applications are few. Where more have a text in their names, one in so many does, and a list that goes
// by name comes by a page of them soon; where fewer do, they are looked up, whatever else there is.
const fewNamed = 200

// named are the applications that have a text in their names, where those are few; not few for an empty text.
func named(ctx context.Context, q *query.Queries, organization int64, text string) (ids []int64, few bool, err error) {
	if text == "" {
		return nil, false, nil
	}
	ids, err = q.ApplicationsNamed(ctx, organization, strings.ToLower(text), fewNamed+1)
	if err != nil || len(ids) > fewNamed {
		return nil, false, err
	}
	slices.Sort(ids)
	return slices.Compact(ids), true, nil
}

// CellDifferences implements view.Reads.
func (r reader) CellDifferences(ctx context.Context, organization int64, applications []int64) ([]core.CellDifference, error) {
	rows, err := fetch(ctx, r, organization, applications, "cells that differ", (*query.Queries).CellDifferences)
	return convertAll(rows, func(row query.CellDifferencesRow) core.CellDifference {
		return core.CellDifference{
			ApplicationID: row.ApplicationID, EnvironmentID: row.EnvironmentID, StopID: row.StopID,
			Kept: core.CellContent{
				Exists: row.Kept, ApplicationName: row.KeptName, Shown: row.KeptShown, Worst: healthInWords(row.KeptWorst),
				LatestStopID: row.KeptLatest,
				LatestState:  core.State(row.KeptState), LiveStopID: row.KeptLive, LiveVersionSetID: row.KeptSet, LiveSince: row.KeptSince,
			},
			Rebuilt: core.CellContent{
				Exists: row.Rebuilt, ApplicationName: row.RebuiltName, Shown: row.RebuiltShown, Worst: healthInWords(row.RebuiltWorst),
				LatestStopID: row.RebuiltLatest,
				LatestState:  core.State(row.RebuiltState), LiveStopID: row.RebuiltLive, LiveVersionSetID: row.RebuiltSet, LiveSince: row.RebuiltSince,
			},
		}
	}), err
}

// healthInWords says what the tables call the worst of services' for people.
func healthInWords(worst string) string {
	if worst == beforeAny {
		return "no health seen"
	}
	return worst
}
