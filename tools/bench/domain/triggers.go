package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// What an event costs that one of many triggers matches: from the request to its answer, and from there to the decision.

const (
	// fewTriggers is how many there are for the comparison.
	fewTriggers = 10
	// decidedWithin bounds how long decisions may take after the last event.
	decidedWithin = 5 * time.Minute
)

// triggersSQL gives each application from a number on a trigger of each kind. The one for events reacts to builds of a branch and of the
// application alone; each schedule is due once in an hour, in every minute a sixtieth of them.
const triggersSQL = `
WITH made AS (
	INSERT INTO cd_triggers
		(organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
	SELECT 1, a.id, k.kind, k.kind, k.config, true, 'user', 1, 'bench', now()
	FROM cd_applications a CROSS JOIN LATERAL (VALUES
		('event', jsonb_build_object('types', jsonb_build_array('build.passed'), 'data', jsonb_build_object('branch', 'main', 'name', a.name))),
		('schedule', jsonb_build_object('cron', (extract(minute FROM now())::integer + 1 + a.id) % 60 || ' * * * *')),
		('chain', jsonb_build_object('blocks', jsonb_build_array(jsonb_build_object('applications', jsonb_build_array('nobody'))))),
		('version', '{}'), ('git', '{}'), ('manual', '{}'), ('drift', '{}')
	) k (kind, config)
	WHERE a.id BETWEEN $1 AND $2
	RETURNING id, application_id, kind
)
INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at)
SELECT 1, m.id, 'schedule:' || to_char(d.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), d.at, d.at
FROM made m CROSS JOIN LATERAL (SELECT date_trunc('minute', now()) + make_interval(mins => (1 + m.application_id % 60)::integer) AS at) d
WHERE m.kind = 'schedule'`

// triggers measures events with few triggers and with one for each application. The events go to applications that have one.
func triggers(ctx context.Context, database string, api probe.API, o options, log *slog.Logger) error {
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if _, err := db.Exec(ctx, `SELECT set_config('search_path', $1, false)`, schema); err != nil {
		return fmt.Errorf("choose the schema: %w", err)
	}
	if err := api.Await(ctx); err != nil {
		return err
	}
	applications := int(10_000 * o.scale)
	few := 0.0
	for round, many := range []int{min(fewTriggers, applications), applications} {
		began := clock.System().Now()
		from := 1
		if round > 0 {
			from = fewTriggers + 1
		}
		if _, err := db.Exec(ctx, triggersSQL, from, many); err != nil {
			return pg.Classify(err, "make triggers")
		}
		if _, err := db.Exec(ctx, `ANALYZE cd_triggers, cd_trigger_keys, cd_trigger_signals`); err != nil {
			return pg.Classify(err, "analyze")
		}
		log.WarnContext(ctx, "saved", "triggers", many, "took", clock.System().Now().Sub(began).String())
		// One after the other: what an event costs by itself. The first ones are for what is read once.
		alone, err := send(ctx, api, fmt.Sprintf("alone-%d", round), o.triggers, many)
		if err != nil {
			return err
		}
		alone = alone[min(len(alone)/10, fewTriggers):]
		slices.Sort(alone)
		p50, p95 := alone[len(alone)/2], alone[len(alone)*95/100]
		fmt.Fprintf(os.Stdout, "events one by one, %d triggers of which one matches: %d, p50 %.1f ms, p95 %.1f ms (goal 100), load %s\n", many,
			len(alone), ms(p50), ms(p95), probe.Load())
		if round == 0 {
			few = ms(p50)
		} else {
			fmt.Fprintf(os.Stdout, "an event with %d triggers costs %.2f times one with %d (goal 1)\n", many, ms(p50)/few, fewTriggers)
		}
	}
	if o.pace == 0 {
		return nil
	}
	return paced(ctx, db, api, o, applications)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// paced sends events at a steady pace, in batches, and waits until all that matched a trigger are decided about.
func paced(ctx context.Context, db *pgx.Conn, api probe.API, o options, applications int) (failed error) {
	n := o.pace * o.paceFor
	name := o.profile
	if name != "" {
		name += ".paced"
	}
	end, err := profiled(name)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, end()) }()
	began := clock.System().Now()
	took, err := sendPaced(ctx, api, n, o, applications)
	if err != nil {
		return err
	}
	slices.Sort(took)
	sent := clock.System().Now().Sub(began)
	fmt.Fprintf(os.Stdout, "events at %d/s, %d triggers, one in %d matches: %d in %s, p50 %.1f ms, p95 %.1f ms (goal 100), load %s\n", o.pace,
		applications, o.matching, n, sent.Round(time.Millisecond), ms(took[len(took)/2]), ms(took[len(took)*95/100]), probe.Load())
	late, cancel := context.WithTimeout(ctx, decidedWithin)
	defer cancel()
	for {
		var open int
		err := db.QueryRow(late, `SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'event:/ci/paced%' AND decided_at IS NULL`).Scan(&open)
		if err != nil {
			return pg.Classify(err, "count what is undecided")
		}
		if open == 0 {
			break
		}
		if err := clock.Sleep(late, clock.System(), 100*time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("%d events are undecided", open), err)
		}
	}
	var stored, triggers int
	var p50, p95 float64
	err = db.QueryRow(ctx, `SELECT count(*), count(DISTINCT trigger_id),
			COALESCE(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM decided_at - at)), 0) * 1000,
			COALESCE(percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM decided_at - at)), 0) * 1000
		FROM cd_trigger_signals WHERE cause LIKE 'event:/ci/paced%'`).Scan(&stored, &triggers, &p50, &p95)
	if err != nil {
		return pg.Classify(err, "read decisions")
	}
	matched := (n + o.matching - 1) / o.matching
	fmt.Fprintf(os.Stdout, "of %d events that matched %d were decided about, of %d triggers: p50 %.1f ms, p95 %.1f ms after they came (goal 100), load %s\n",
		matched, stored, triggers, p50, p95, probe.Load())
	if stored != matched {
		return fmt.Errorf("%d events matched; found %d decisions", matched, stored)
	}
	return nil
}

// tick is how long events are collected that are sent together.
const tick = 20 * time.Millisecond

// sendPaced sends events at a pace, in batches of those that have become due, and returns how long after that each was stored.
func sendPaced(ctx context.Context, api probe.API, n int, o options, applications int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(publishers)
	start := clock.System().Now()
	due := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(o.pace)) }
	for from := 0; from < n; {
		now := clock.System().Now()
		to := from
		for to < n && to-from < batch && !due(to).After(now) {
			to++
		}
		if to == from {
			if err := clock.Sleep(ctx, clock.System(), tick); err != nil {
				break
			}
			continue
		}
		first := from
		group.Go(func() error {
			matching, err := sendBatch(ctx, api, first, to, o.matching, applications)
			if err != nil {
				return err
			}
			for i := first; i < to; i++ {
				if matching[i-first] != (i%o.matching == 0) {
					return fmt.Errorf("event %d: found reached %t", i, matching[i-first])
				}
				took[i] = clock.System().Now().Sub(due(i))
			}
			return nil
		})
		from = to
	}
	return took, group.Wait()
}

// batch is how many events are sent at once at most.
const batch = 100

// sendBatch sends events, and returns which of them reached a trigger.
func sendBatch(ctx context.Context, api probe.API, from, to, matching, applications int) ([]bool, error) {
	events := make([]map[string]any, 0, to-from)
	for i := from; i < to; i++ {
		name := fmt.Sprintf("application-%05d", 1+i/matching*31%applications)
		if i%matching != 0 {
			name = fmt.Sprintf("library-%05d", i)
		}
		events = append(events, map[string]any{
			"specversion": "1.0", "id": strconv.Itoa(i), "source": "/ci/paced", "type": "build.passed",
			"data": map[string]any{"branch": "main", "name": name, "commit": fmt.Sprintf("%040x", i)},
		})
	}
	raw, err := api.Post(ctx, "/v1/triggers/events", "application/cloudevents-batch+json", events)
	if err != nil {
		return nil, err
	}
	var answer struct{ Events []struct{ Triggers int } }
	if err := json.Unmarshal(raw, &answer); err != nil || len(answer.Events) != to-from {
		return nil, fmt.Errorf("found answer %.200s; expected %d deliveries: %w", raw, to-from, err)
	}
	reached := make([]bool, to-from)
	for i, e := range answer.Events {
		reached[i] = e.Triggers == 1
	}
	return reached, nil
}

// send sends events one after the other, and returns how long each took.
func send(ctx context.Context, api probe.API, name string, n, applications int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range n {
		began := clock.System().Now()
		if err := sendOne(ctx, api, name, i, 1+i*31%applications); err != nil {
			return nil, err
		}
		took[i] = clock.System().Now().Sub(began)
	}
	return took, nil
}

func sendOne(ctx context.Context, api probe.API, name string, i, application int) error {
	raw, err := api.Ask(ctx, `mutation($input: SendEventInput!) { done: sendEvent(input: $input) { triggers errors { message } } }`, map[string]any{
		"input": map[string]any{
			"id": strconv.Itoa(i), "source": "/ci/" + name, "type": "build.passed",
			"data": map[string]any{"branch": "main", "name": fmt.Sprintf("application-%05d", application), "commit": fmt.Sprintf("%040x", i)},
		},
	})
	if err != nil {
		return err
	}
	var body struct {
		Data struct {
			Done struct {
				Triggers int
				Errors   []struct{ Message string }
			}
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if done := body.Data.Done; len(done.Errors) > 0 || done.Triggers != 1 {
		return fmt.Errorf("event %d to application %d: reached %d triggers: %v", i, application, done.Triggers, done.Errors)
	}
	return nil
}
