package store

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/sqlc"
)

// Cells implements core.Reads.
func (r reader) Cells(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]core.Cell, error) {
	return byKey(ctx, r, organization, applicationEnvironments, "cells of the matrix", (*sqlc.Queries).Cells, func(row sqlc.CellsRow) (int64, core.Cell) {
		c := core.Cell{
			LiveVersionSetID: row.LiveVersionSetID, LiveSince: row.LiveSince, LatestStopID: row.LatestStopID, LatestVersionSetID: row.LatestVersionSetID,
			Health: byBadness()[row.Worst],
		}
		if row.LatestState != nil {
			state := core.RolloutState(*row.LatestState)
			c.LatestState = &state
		}
		return row.ID, c
	})
}

// byBadness are the healths in the order in which the queries of the matrix compare them.
func byBadness() [4]core.Health {
	return [...]core.Health{core.HealthHealthy, core.HealthUnknown, core.HealthProgressing, core.HealthDegraded}
}

// EnvironmentsOfDrivers implements core.Reads.
func (r reader) EnvironmentsOfDrivers(ctx context.Context, organization int64, refs []string) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		ids, err = q.EnvironmentsOfDrivers(ctx, organization, refs)
		return pg.Classify(err, "find environments of drivers")
	})
	return ids, err
}

// How the queries of the matrix are told what f.Waiting asks for.
const (
	waitingOrNot = iota
	waitingOnly
	waitingNot
)

// MatrixApplications implements core.Reads.
func (r reader) MatrixApplications(ctx context.Context, organization int64, f core.MatrixFilter, stops []int64, p core.Page) (core.Slice[core.Application], error) {
	return list(ctx, r, organization, p, core.OrderName, "applications of the matrix", func(q *sqlc.Queries, w core.Window) ([]core.Application, error) {
		all, _, err := matrix(ctx, q, organization, f, stops, w, false)
		return all, err
	}, func(a core.Application) core.Application { return a }, func(a core.Application) core.Position { return core.Position{Name: a.Name} })
}

// CountMatrixApplications implements core.Counts.
func (r reader) CountMatrixApplications(ctx context.Context, organization int64, f core.MatrixFilter, stops []int64) (int, error) {
	return count(ctx, r, organization, "applications of the matrix", func(q *sqlc.Queries) (int64, error) {
		if err := q.PlanForValues(ctx); err != nil {
			return 0, err
		}
		_, items, err := matrix(ctx, q, organization, f, stops, core.Window{}, true)
		return items, err
	})
}

// matrix reads applications of a window, and, when counting, how many there are in all of it.
func matrix(
	ctx context.Context, q *sqlc.Queries, organization int64, f core.MatrixFilter, stops []int64, w core.Window, counting bool,
) (all []core.Application, items int64, err error) {
	states, healths, waiting := make([]int16, len(f.States)), make([]int16, len(f.Healths)), int32(waitingOrNot)
	for i, s := range f.States {
		states[i] = int16(s)
	}
	for i, h := range f.Healths {
		healths[i] = int16(h)
	}
	if f.Waiting != nil {
		waiting = waitingNot
		if *f.Waiting {
			waiting = waitingOnly
		}
	}
	// An empty list, not none: NULL would meet no condition.
	by := sqlc.MatrixByCellParams{
		OrganizationID: organization, AboveName: w.Above.Name, BelowName: w.Below.Name, Contains: f.Contains, Environments: append([]int64{}, f.EnvironmentIDs...),
		States: states, Waiting: waiting, Stops: append([]int64{}, stops...), Counting: counting, Falling: w.Falling, AtMost: limit(w),
	}
	if len(healths) == 0 {
		rows, err := q.MatrixByCell(ctx, by)
		for _, row := range rows {
			all, items = append(all, application(row.Application)), row.Items
		}
		return all, items, err
	}
	rows, err := q.MatrixByHealth(ctx, sqlc.MatrixByHealthParams{
		OrganizationID: by.OrganizationID, AboveName: by.AboveName, BelowName: by.BelowName, Contains: by.Contains, Healths: healths, Environments: by.Environments,
		States: by.States, Waiting: by.Waiting, Stops: by.Stops, Counting: by.Counting, Falling: by.Falling, AtMost: by.AtMost,
	})
	for _, row := range rows {
		all, items = append(all, application(row.Application)), row.Items
	}
	return all, items, err
}

// CellDifferences implements core.Reads.
func (r reader) CellDifferences(ctx context.Context, organization int64, applications []int64) ([]core.CellDifference, error) {
	rows, err := fetch(ctx, r, organization, applications, "cells that differ", (*sqlc.Queries).CellDifferences)
	return convertAll(rows, func(row sqlc.CellDifferencesRow) core.CellDifference {
		return core.CellDifference{
			StopID: row.StopID, EnvironmentID: row.EnvironmentID,
			Kept: core.CellContent{LatestStopID: row.KeptLatest, LatestState: row.KeptState, LiveStopID: row.KeptLive, LiveVersionSetID: row.KeptSet, LiveSince: row.KeptSince},
			Told: core.CellContent{LatestStopID: row.ToldLatest, LatestState: row.ToldState, LiveStopID: row.ToldLive, LiveVersionSetID: row.ToldSet, LiveSince: row.ToldSince},
		}
	}), err
}
