// Package schedules is the store of schedules, beside that of runs.
package schedules

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Store keeps schedules in the tables of the service.
type Store struct {
	pool    *pgxpool.Pool
	queries *query.Queries
}

var _ schedule.Store = (*Store)(nil)

// New makes a Store over a pool whose schema has been migrated.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool, queries: query.New(pool)} }

// tx runs fn in a transaction. It may run fn several times, so fn first resets what it assigns outside.
func (s *Store) tx(ctx context.Context, fn func(*query.Queries) error) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return fn(s.queries.WithTx(tx)) })
}

// SaveSchedule makes a schedule the one of its name.
func (s *Store) SaveSchedule(
	ctx context.Context, given schedule.Schedule, sum [32]byte, most int, settle func(old *schedule.Known) (time.Time, error),
) (current schedule.Schedule, created bool, err error) {
	err = s.tx(ctx, func(q *query.Queries) error {
		current, created = given, false
		if err := q.LockScheduleName(ctx, given.Organization); err != nil {
			return pg.Classify(err, "lock the schedules of organization %d", given.Organization)
		}
		row, err := q.LockSchedule(ctx, query.LockScheduleParams{Organization: given.Organization, Name: given.Name})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			current.ID, current.NextDue, err = insert(ctx, q, given, sum, most, settle)
			current.Version, created = 1, true
			return err
		case err != nil:
			return pg.Classify(err, "find schedule %q", given.Name)
		}
		old, err := known(query.FindScheduleRow(row))
		if err != nil || [32]byte(row.Digest) == sum {
			current = old.Schedule
			return err
		}
		current.ID, current.Version, current.CreatedAt, created = old.ID, old.Version+1, old.CreatedAt, true
		current.Paused, current.Note = old.Paused, old.Note
		current.Started, current.Skipped, current.Missed, current.Refused = old.Started, old.Skipped, old.Missed, old.Refused
		if current.NextDue, err = settle(&old); err != nil {
			return err
		}
		c, err := columnsOf(ctx, q, given)
		if err != nil {
			return err
		}
		return pg.Classify(q.ReplaceSchedule(ctx, query.ReplaceScheduleParams{
			Organization: old.Organization, ID: old.ID, Spec: c.spec, Overlap: string(given.Overlap), CatchUp: int64(given.CatchUp),
			Program: c.program, Modules: c.modules, Inputs: c.inputs, Secrets: c.secrets, Labels: c.labels, Digest: sum[:],
			NextDue: optional(current.NextDue), AttendAt: &given.ChangedAt, ChangedBy: given.ChangedBy,
		}), "replace schedule %q", given.Name)
	})
	return current, created, err
}

// insert stores a schedule with a new name.
func insert(
	ctx context.Context, q *query.Queries, given schedule.Schedule, sum [32]byte, most int, settle func(old *schedule.Known) (time.Time,
		error),
) (id int64, nextDue time.Time, err error) {
	n, err := q.CountSchedules(ctx, query.CountSchedulesParams{Organization: given.Organization, Most: int32(most)})
	if err != nil {
		return 0, nextDue, pg.Classify(err, "count the schedules of organization %d", given.Organization)
	}
	if n >= int64(most) {
		return 0, nextDue, fault.New(fault.Refused, "found %d schedules of organization %d, expected at most %d with this one", n,
			given.Organization, most)
	}
	if nextDue, err = settle(nil); err != nil {
		return 0, nextDue, err
	}
	c, err := columnsOf(ctx, q, given)
	if err != nil {
		return 0, nextDue, err
	}
	id, err = q.SaveSchedule(ctx, query.SaveScheduleParams{
		Organization: given.Organization, Name: given.Name, Spec: c.spec, Overlap: string(given.Overlap), CatchUp: int64(given.CatchUp),
		Program: c.program, Modules: c.modules, Inputs: c.inputs, Secrets: c.secrets, Labels: c.labels, Digest: sum[:],
		Paused: given.Paused, Note: given.Note, NextDue: optional(nextDue), AttendAt: &given.CreatedAt, ChangedBy: given.ChangedBy,
		CreatedAt: given.CreatedAt,
	})
	return id, nextDue, pg.Classify(err, "save schedule %q", given.Name)
}

// columns are what columns hold of a schedule.
type columns struct{ spec, program, modules, inputs, secrets, labels []byte }

// columnsOf encodes a schedule, and stores its program.
func columnsOf(ctx context.Context, q *query.Queries, s schedule.Schedule) (c columns, err error) {
	main := program.Digest(s.Program.Source)
	modules := make(map[string]string, len(s.Program.Modules))
	sources := query.SaveProgramsParams{Digests: [][]byte{main[:]}, Sources: [][]byte{s.Program.Source}}
	for name, source := range s.Program.Modules {
		sum := program.Digest(source)
		modules[name] = program.Hex(sum)
		sources.Digests, sources.Sources = append(sources.Digests, sum[:]), append(sources.Sources, source)
	}
	if err := q.SavePrograms(ctx, sources); err != nil {
		return c, pg.Classify(err, "save program of schedule %q", s.Name)
	}
	c.program, c.inputs = main[:], s.Inputs
	if len(c.inputs) == 0 {
		c.inputs = []byte("{}")
	}
	for _, field := range []struct {
		into  *[]byte
		value any
	}{{&c.spec, s.Spec}, {&c.modules, modules}, {&c.secrets, s.Secrets}, {&c.labels, s.Labels}} {
		if *field.into, err = json.Marshal(field.value); err != nil {
			return c, fmt.Errorf("encode schedule %q: %w", s.Name, err)
		}
	}
	return c, nil
}

// optional is a time as a column that may be NULL.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// orEpoch is a time as an element of a list: those have no NULL.
func orEpoch(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0)
	}
	return t
}

// known decodes a row.
func known(row query.FindScheduleRow) (k schedule.Known, err error) {
	k.Schedule = schedule.Schedule{
		ID: row.ID, Organization: row.Organization, Name: row.Name, Version: int(row.Version), Overlap: schedule.Overlap(row.Overlap),
		CatchUp: time.Duration(row.CatchUp), ProgramDigest: hex.EncodeToString(row.Program), Paused: row.Paused, Note: row.Note,
		ChangedBy: row.ChangedBy, CreatedAt: row.CreatedAt, ChangedAt: row.ChangedAt,
		Started: row.Started, Skipped: row.Skipped, Missed: row.Missed, Refused: row.Refused,
	}
	if row.NextDue != nil {
		k.NextDue = *row.NextDue
	}
	if row.LastDue != nil {
		k.LastDue = *row.LastDue
	}
	if err := json.Unmarshal(row.Spec, &k.Spec); err != nil {
		return k, fmt.Errorf("decode schedule %q of organization %d: %w", row.Name, row.Organization, err)
	}
	return k, nil
}

// absent is the error about a schedule that does not exist.
func absent(organization int64, name string) error {
	return fault.New(fault.NotFound, "there is no schedule %q in organization %d", name, organization)
}

// mostWaiting bounds the due times of a schedule that may wait when others are added.
const mostWaiting = 1000

// ChangeSchedule applies a change to a schedule.
func (s *Store) ChangeSchedule(
	ctx context.Context, organization int64, name string, change func(schedule.Known) (schedule.Schedule, []schedule.Fire, error),
) (changed schedule.Schedule, added int, err error) {
	err = s.tx(ctx, func(q *query.Queries) error {
		changed, added = schedule.Schedule{}, 0
		row, err := q.LockSchedule(ctx, query.LockScheduleParams{Organization: organization, Name: name})
		if errors.Is(err, pgx.ErrNoRows) {
			return absent(organization, name)
		}
		if err != nil {
			return pg.Classify(err, "lock schedule %q", name)
		}
		k, err := known(query.FindScheduleRow(row))
		if err != nil {
			return err
		}
		var fires []schedule.Fire
		if changed, fires, err = change(k); err != nil {
			return err
		}
		if added, err = addFires(ctx, q, changed, fires); err != nil {
			return err
		}
		return pg.Classify(q.ChangeSchedule(ctx, query.ChangeScheduleParams{
			Organization: organization, ID: changed.ID, Paused: changed.Paused, Note: changed.Note, NextDue: optional(changed.NextDue),
			ChangedBy: changed.ChangedBy, ChangedAt: changed.ChangedAt, AttendAt: time.Unix(1, 0), // now, whatever the clock
		}), "change schedule %q", name)
	})
	return changed, added, err
}

// addFires stores due times that are to be started.
func addFires(ctx context.Context, q *query.Queries, of schedule.Schedule, fires []schedule.Fire) (added int, err error) {
	if len(fires) == 0 {
		return 0, nil
	}
	waiting, err := q.CountWaiting(ctx, query.CountWaitingParams{Organization: of.Organization, Schedule: of.ID, Most: mostWaiting})
	if err != nil {
		return 0, pg.Classify(err, "count due times of schedule %q", of.Name)
	}
	if waiting >= mostWaiting {
		return 0, fault.New(fault.Refused, "found %d due times of schedule %q that wait, expected fewer before others are added", waiting, of.Name)
	}
	p := query.AddFiresParams{Organization: of.Organization, Schedule: of.ID, Overlap: string(fires[0].Overlap)}
	for _, f := range fires {
		p.Dues, p.Workflows = append(p.Dues, f.Due), append(p.Workflows, f.Workflow)
	}
	n, err := q.AddFires(ctx, p)
	return int(n), pg.Classify(err, "add %d due times to schedule %q", len(fires), of.Name)
}

// FindSchedule reads a schedule.
func (s *Store) FindSchedule(ctx context.Context, organization int64, name string) (schedule.Schedule, error) {
	row, err := s.queries.FindSchedule(ctx, query.FindScheduleParams{Organization: organization, Name: name})
	if errors.Is(err, pgx.ErrNoRows) {
		return schedule.Schedule{}, absent(organization, name)
	}
	if err != nil {
		return schedule.Schedule{}, pg.Classify(err, "find schedule %q", name)
	}
	k, err := known(row)
	return k.Schedule, err
}

// ListSchedules reads a page of schedules.
func (s *Store) ListSchedules(ctx context.Context, organization, after int64, limit int) ([]schedule.Schedule, error) {
	rows, err := s.queries.ListSchedules(ctx, query.ListSchedulesParams{Organization: organization, ID: after, Limit: int32(limit)})
	if err != nil {
		return nil, pg.Classify(err, "list schedules")
	}
	list := make([]schedule.Schedule, len(rows))
	for i, row := range rows {
		k, err := known(query.FindScheduleRow(row))
		if err != nil {
			return nil, err
		}
		list[i] = k.Schedule
	}
	return list, nil
}

// Fires reads the outcomes of the last due times.
func (s *Store) Fires(ctx context.Context, organization, of int64, limit int) ([]schedule.Fire, error) {
	rows, err := s.queries.Fires(ctx, query.FiresParams{Organization: organization, Schedule: of, Limit: int32(limit)})
	if err != nil {
		return nil, pg.Classify(err, "read due times of schedule %d", of)
	}
	fires := make([]schedule.Fire, len(rows))
	for i, row := range rows {
		f := fire(row.Due, row.State, row.Backfill, row.Overlap, row.Count, row.Detail, row.Workflow, row.Run)
		if row.RunError != nil {
			f.RunError = *row.RunError
		}
		if row.EndedAt != nil {
			f.EndedAt = *row.EndedAt
		}
		fires[i] = f
	}
	return fires, nil
}

func fire(due time.Time, state string, backfill bool, overlap string, count int64, detail, workflow string, run *string) schedule.Fire {
	f := schedule.Fire{
		Due: due, State: schedule.State(state), Backfill: backfill, Overlap: schedule.Overlap(overlap), Count: count, Detail: detail,
		Workflow: workflow,
	}
	if run != nil {
		f.Exists, f.Run = true, execution.Named(*run)
	}
	return f
}

// DeleteSchedule removes a schedule.
func (s *Store) DeleteSchedule(ctx context.Context, organization int64, name string) error {
	n, err := s.queries.DeleteSchedule(ctx, query.DeleteScheduleParams{Organization: organization, Name: name})
	if err == nil && n == 0 {
		return absent(organization, name)
	}
	return pg.Classify(err, "delete schedule %q", name)
}
