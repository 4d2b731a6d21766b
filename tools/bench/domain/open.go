package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

const (
	// changing is which part of the open checks changes in a second: one in so many.
	changing = 100
	// reporters is how many report at the same time.
	reporters = 8
)

// openSQL gives rollouts that are under way open checks at the entrance of the environment that is next.
const openSQL = `
WITH chosen AS (
    SELECT r.id, r.application_id, r.version_set_id, e.environment_id, n.name
    FROM cd_rollouts r
    JOIN cd_rollout_environments e ON e.rollout_id = r.id AND e.position = 2
    JOIN cd_environments n ON n.id = e.environment_id
    WHERE r.id >= $1 AND r.id < $1 + $2
), guarded AS (
    UPDATE cd_rollouts r SET passages = true, asked = false FROM chosen c WHERE r.id = c.id
), pinned AS (
    INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds)
    SELECT 1, c.id, c.environment_id, 'proposed', 'check-' || k, 'status', 0 FROM chosen c, generate_series(1, $3::int) k
)
SELECT c.id, 0, c.application_id, c.version_set_id, c.environment_id, c.name FROM chosen c ORDER BY c.id`

// opened are rollouts that wait for open checks, each for as many.
type opened struct {
	rollouts []waitingRollout
	each     int
	// reports counts statuses that were reported while passages were measured, late those that were due a second before or more.
	reports, late atomic.Int64
}

// checks is how many are open.
func (o *opened) checks() int { return len(o.rollouts) * o.each }

// open opens checks of rollouts from a number on, and has their passages requested.
func open(ctx context.Context, conn *bus.Conn, database string, first int64, rollouts, checks int) (*opened, error) {
	o := &opened{}
	if rollouts < 1 || checks < 1 {
		return o, nil
	}
	o.each = (checks + rollouts - 1) / rollouts
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{`SELECT set_config('search_path', '` + schema + `', false)`, `SET session_replication_role = replica`} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("open checks: %w", err)
		}
	}
	rows, err := db.Query(ctx, openSQL, first, rollouts, o.each)
	if err != nil {
		return nil, fmt.Errorf("open checks: %w", err)
	}
	if o.rollouts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[waitingRollout]); err != nil {
		return nil, fmt.Errorf("open checks: %w", err)
	}
	for _, r := range o.rollouts {
		e, err := event.New(event.Header{
			ID: fmt.Sprintf("open-%d", r.ID), Source: event.SourceWorkflow, Time: clock.System().Now(), Organization: 1, Correlation: id.RolloutRun(r.ID),
		}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: r.Gate})
		if err != nil {
			return nil, err
		}
		if err := conn.Publish(ctx, e); err != nil {
			return nil, err
		}
	}
	for _, r := range o.rollouts[max(0, len(o.rollouts)-1):] { // they are handled in order
		if err := requested(ctx, database, r); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// openBehind opens checks of rollouts under way that nothing else is measured with: those behind so many.
func openBehind(ctx context.Context, conn *bus.Conn, database string, behind int, o options) (*opened, error) {
	active := int(2_000 * o.scale)
	first := int64(100_000*o.scale) - int64(active) + 1 + int64(behind)
	return open(ctx, conn, database, first, min(o.open, active-o.events/16-behind), o.open)
}

// print prints what has changed in a time.
func (o *opened) print(took time.Duration) {
	if o.checks() == 0 {
		return
	}
	fmt.Fprintf(os.Stdout, "meanwhile %d checks were open, of which %.0f a second changed, %d later than a second after they were due\n", o.checks(),
		float64(o.reports.Load())/took.Seconds(), o.late.Load())
}

// change reports statuses until ctx ends: each second one of a hundred checks gets another phase. One check of each rollout is never
// reported, so that no passage is granted.
func (o *opened) change(ctx context.Context, api probe.API) error {
	if o.checks() == 0 || o.each < 2 {
		return nil
	}
	every := time.Second * changing / time.Duration(o.checks())
	began := clock.System().Now()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range reporters {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				due := began.Add(time.Duration(i) * every)
				if early := due.Sub(clock.System().Now()); early > 0 {
					_ = clock.Sleep(ctx, clock.System(), early) // it ends early with ctx, which is looked at below
				} else if early < -time.Second {
					o.late.Add(1)
				}
				err := o.report(ctx, api, i)
				if ctx.Err() != nil {
					return nil //nolint:nilerr // there are enough
				}
				if err != nil {
					return err
				}
				o.reports.Add(1)
			}
		})
	}
	return group.Wait()
}

// report gives a check a phase that it has not had before it.
func (o *opened) report(ctx context.Context, api probe.API, i int) error {
	r := o.rollouts[i%len(o.rollouts)]
	round := i / len(o.rollouts)
	phase := "SUCCESS"
	if round/(o.each-1)%2 == 1 {
		phase = "FAILURE"
	}
	raw, err := api.Ask(ctx, `mutation($input: ReportCheckInput!) { done: reportCheck(input: $input) { errors { message } } }`, map[string]any{
		"input": map[string]any{
			"application": fmt.Sprintf("application_%d", r.Application), "environment": r.Gate, "versionSetId": fmt.Sprintf("versionset_%d", r.VersionSet),
			"key": "check-" + strconv.Itoa(1+round%(o.each-1)), "phase": phase,
		},
	})
	if err != nil {
		return err
	}
	var body struct {
		Data struct {
			Done struct{ Errors []struct{ Message string } }
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if found := body.Data.Done.Errors; len(found) > 0 {
		return fmt.Errorf("refused: %s", found[0].Message)
	}
	return nil
}
