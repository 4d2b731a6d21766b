package schedules

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/schedule"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// mostOpen bounds how many open due times of a schedule are read: more than may wait.
const mostOpen = 4 * mostWaiting

// TakeTurns locks the schedules that are to be looked at, and stores what is decided about them.
func (s *Store) TakeTurns(
	ctx context.Context, now time.Time, limit int, decide func(schedule.Schedule, []schedule.Fire) (schedule.Turn, error),
) (taken []schedule.Taken, err error) {
	err = s.tx(ctx, func(q *query.Queries) error {
		taken = nil
		rows, err := q.TakeSchedules(ctx, query.TakeSchedulesParams{Now: now, Most: int32(limit)})
		if err != nil || len(rows) == 0 {
			return pg.Classify(err, "take schedules")
		}
		p := query.OpenFiresParams{Most: mostOpen}
		for _, row := range rows {
			p.Organizations, p.Schedules = append(p.Organizations, row.Organization), append(p.Schedules, row.ID)
			p.Allows = append(p.Allows, row.Overlap == string(schedule.Allow))
		}
		open, err := q.OpenFires(ctx, p)
		if err != nil {
			return pg.Classify(err, "read open due times of %d schedules", len(rows))
		}
		fires := map[int64][]schedule.Fire{}
		for _, row := range open {
			fires[row.Schedule] = append(fires[row.Schedule],
				fire(row.Due, row.State, row.Backfill, row.Overlap, row.Count, row.Detail, row.Workflow, row.Run))
		}
		for _, row := range rows {
			k, err := known(query.FindScheduleRow(row))
			if err != nil {
				return err
			}
			turn, err := decide(k.Schedule, fires[row.ID])
			if err != nil {
				return fmt.Errorf("schedule %q of organization %d: %w", row.Name, row.Organization, err)
			}
			taken = append(taken, schedule.Taken{Schedule: k.Schedule, Turn: turn, Number: row.Turn + 1})
		}
		return saveTurns(ctx, q, taken)
	})
	return taken, err
}

// saveTurns stores turns, and forgets old due times of those that have new ones.
func saveTurns(ctx context.Context, q *query.Queries, taken []schedule.Taken) error {
	var turns query.SaveTurnsParams
	var fires query.SaveFiresParams
	forget := query.ForgetFiresParams{Kept: schedule.KeptFires}
	for _, t := range taken {
		organization, id := t.Schedule.Organization, t.Schedule.ID
		turns.Organizations, turns.Schedules = append(turns.Organizations, organization), append(turns.Schedules, id)
		turns.NextDues, turns.LastDues = append(turns.NextDues, orEpoch(t.Turn.NextDue)), append(turns.LastDues, orEpoch(t.Turn.LastDue))
		turns.Attends = append(turns.Attends, orEpoch(t.Turn.Again))
		turns.Skips, turns.Misses = append(turns.Skips, t.Turn.Skipped), append(turns.Misses, t.Turn.Missed)
		for _, f := range t.Turn.Fires {
			fires.Organizations, fires.Schedules = append(fires.Organizations, organization), append(fires.Schedules, id)
			fires.Dues, fires.States = append(fires.Dues, f.Due), append(fires.States, string(f.State))
			fires.Backfills, fires.Policies = append(fires.Backfills, f.Backfill), append(fires.Policies, string(f.Overlap))
			fires.Counts, fires.Details = append(fires.Counts, max(1, f.Count)), append(fires.Details, f.Detail)
			fires.Workflows = append(fires.Workflows, f.Workflow)
		}
		if !t.Turn.LastDue.IsZero() {
			forget.Organizations, forget.Schedules = append(forget.Organizations, organization), append(forget.Schedules, id)
		}
	}
	var saved, forgotten error
	if len(fires.Dues) > 0 {
		saved = q.SaveFires(ctx, fires)
	}
	if saved == nil && len(forget.Schedules) > 0 {
		forgotten = q.ForgetFires(ctx, forget)
	}
	if err := errors.Join(saved, forgotten); err != nil {
		return pg.Classify(err, "save due times of %d schedules", len(taken))
	}
	return pg.Classify(q.SaveTurns(ctx, turns), "save %d schedules", len(taken))
}

// LoadSchedules reads what runs of schedules are started with.
func (s *Store) LoadSchedules(ctx context.Context, of []schedule.Taken) (map[int64]schedule.Schedule, error) {
	var p query.LoadSchedulesParams
	for _, t := range of {
		p.Organizations, p.Schedules = append(p.Organizations, t.Schedule.Organization), append(p.Schedules, t.Schedule.ID)
	}
	rows, err := s.queries.LoadSchedules(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "load %d schedules", len(of))
	}
	loaded := make(map[int64]schedule.Schedule, len(rows))
	modules := make(map[int64]map[string]string, len(rows))
	wanted := map[string]bool{}
	for _, row := range rows {
		found := schedule.Schedule{ID: row.ID, Organization: row.Organization, Name: row.Name, Inputs: row.Inputs}
		var named map[string]string
		if err := errors.Join(json.Unmarshal(row.Secrets, &found.Secrets), json.Unmarshal(row.Labels, &found.Labels),
			json.Unmarshal(row.Modules, &named)); err != nil {
			return nil, fmt.Errorf("decode schedule %q of organization %d: %w", row.Name, row.Organization, err)
		}
		found.ProgramDigest = hex.EncodeToString(row.Program)
		wanted[found.ProgramDigest] = true
		for _, sum := range named {
			wanted[sum] = true
		}
		loaded[row.ID], modules[row.ID] = found, named
	}
	sources, err := s.sources(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for id, found := range loaded {
		found.Program = program.Program{Source: sources[found.ProgramDigest], Modules: make(map[string][]byte, len(modules[id]))}
		for name, sum := range modules[id] {
			found.Program.Modules[name] = sources[sum]
		}
		loaded[id] = found
	}
	return loaded, nil
}

// sources reads programs by their hexadecimal digests.
func (s *Store) sources(ctx context.Context, wanted map[string]bool) (map[string][]byte, error) {
	var digests [][]byte
	for sum := range wanted {
		b, err := hex.DecodeString(sum)
		if err != nil {
			return nil, fmt.Errorf("digest %q of a program: %w", sum, err)
		}
		digests = append(digests, b)
	}
	rows, err := s.queries.LoadPrograms(ctx, digests)
	if err != nil {
		return nil, pg.Classify(err, "load %d programs", len(digests))
	}
	found := make(map[string][]byte, len(rows))
	for _, row := range rows {
		found[hex.EncodeToString(row.Digest)] = row.Source
	}
	for sum := range wanted {
		if _, exists := found[sum]; !exists {
			return nil, fmt.Errorf("the program of digest %s is missing", sum)
		}
	}
	return found, nil
}

// FinishTurns stores the outcomes of starts.
func (s *Store) FinishTurns(ctx context.Context, outcomes []schedule.Outcome, settled []schedule.Taken) error {
	return s.tx(ctx, func(q *query.Queries) error {
		var fires query.FinishFiresParams
		for _, o := range outcomes {
			fires.Organizations, fires.Schedules = append(fires.Organizations, o.Organization), append(fires.Schedules, o.Schedule)
			fires.Dues, fires.States = append(fires.Dues, o.Due), append(fires.States, string(o.State))
			fires.Details = append(fires.Details, o.Detail)
		}
		var turns query.SettleTurnsParams
		for _, t := range settled {
			turns.Organizations, turns.Schedules = append(turns.Organizations, t.Schedule.Organization), append(turns.Schedules, t.Schedule.ID)
			turns.Turns, turns.Attends = append(turns.Turns, t.Number), append(turns.Attends, orEpoch(t.Turn.Settled))
		}
		if len(outcomes) > 0 {
			if err := q.FinishFires(ctx, fires); err != nil {
				return pg.Classify(err, "finish %d starts of schedules", len(outcomes))
			}
		}
		if len(settled) == 0 {
			return nil
		}
		return pg.Classify(q.SettleTurns(ctx, turns), "settle %d schedules", len(settled))
	})
}

// NextAttention is when the next schedule is to be looked at.
func (s *Store) NextAttention(ctx context.Context) (time.Time, error) {
	at, err := s.queries.NextAttention(ctx)
	if err != nil || at.Unix() == 0 {
		return time.Time{}, pg.Classify(err, "find the next schedule")
	}
	return at, nil
}
