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
	environments := append([]int64{}, f.EnvironmentIDs...)
	stops = append([]int64{}, stops...)
	return r.byName(ctx, organization, p, func(q *sqlc.Queries, after string, most int32) ([]sqlc.Application, error) {
		if err := q.PlanForValues(ctx); err != nil {
			return nil, err
		}
		if len(healths) == 0 {
			return q.MatrixByCell(ctx, sqlc.MatrixByCellParams{
				OrganizationID: organization, AfterName: after, Contains: f.Contains, Environments: environments, States: states,
				Waiting: waiting, Stops: stops, AtMost: most,
			})
		}
		return q.MatrixByHealth(ctx, sqlc.MatrixByHealthParams{
			OrganizationID: organization, AfterName: after, Contains: f.Contains, Healths: healths, Environments: environments, States: states,
			Waiting: waiting, Stops: stops, AtMost: most,
		})
	})
}
