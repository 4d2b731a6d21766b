package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	// churnProgram has a history to replay, and then takes events for ever.
	churnProgram = stepsProgram + `
while True:
    wait_for_event("com.example.touch", filter = {"number": number})
`
	churnSteps = 20
	// churnSize is how much memory such a run takes in the service's cache, in bytes, as the service reckons; it grows with each event.
	churnSize = 31 << 10
	// churnSeed decides whose event is next.
	churnSeed = 9
)

// churn is B9: events for parked runs at random, which are all in memory, and then with room for a tenth of them there, so that nine
// of ten have to be loaded and replayed, and as many others given up.
func churn(ctx context.Context, w *world, r *report) error {
	runs := w.scaled(5_000)
	if err := w.recached(ctx, int64(2*runs*churnSize)); err != nil {
		return err
	}
	_, _, err := w.drive(ctx, 32, runs, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		return 0, begin(ctx, c, fmt.Sprintf("churn-%d", i), churnProgram, fmt.Sprintf(`{"steps": %d, "number": %d}`, churnSteps, i))
	})
	if err != nil {
		return err
	}
	sent := 0
	for _, c := range []struct {
		name  string
		cache int64
	}{{"all in memory", 0}, {"a tenth in memory", int64(runs * churnSize / 10)}} {
		if c.cache > 0 {
			if err := w.recached(ctx, c.cache); err != nil {
				return err
			}
			// Fills the cache.
			if err := w.touch(ctx, r, runs, sent, runs/5, row{}); err != nil {
				return err
			}
			sent += runs / 5
		}
		m := row{Scenario: "event-to-resumed, " + c.name, Clients: 32, N: w.scaled(5_000), Unit: "events"}
		if err := w.touch(ctx, r, runs, sent, m.N, m); err != nil {
			return err
		}
		sent += m.N
	}
	var got int
	if err := w.db.QueryRow(ctx, "SELECT count(DISTINCT event) FROM workflow.entry WHERE kind = 'wait'").Scan(&got); err != nil {
		return err
	}
	if got != sent {
		return fmt.Errorf("of %d events %d were taken", sent, got)
	}
	return nil
}

// recached starts the service anew with another cache.
func (w *world) recached(ctx context.Context, bytes int64) error {
	if err := w.down(); err != nil {
		return err
	}
	w.config.CacheBytes = bytes
	return w.up(ctx)
}

// touch sends n events to runs at random, the first of which has the number from, waits until they have been taken, and adds a row, if it
// has a name: with what all of that has used, and the time from each event to the moment at which the program continued.
func (w *world) touch(ctx context.Context, r *report, runs, from, n int, m row) error {
	if err := w.settled(ctx); err != nil {
		return err
	}
	const read = "SELECT coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE schemaname = 'workflow' AND relname = 'entry'"
	var rows, rowsAfter int64
	if err := w.db.QueryRow(ctx, read).Scan(&rows); err != nil {
		return err
	}
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	sent := make(latencies, n) // since began
	began := now()
	_, _, err = w.drive(ctx, 32, n, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		chance := rand.New(rand.NewPCG(churnSeed, uint64(from+i))) //nolint:gosec // the same events in every run
		sent[i] = now().Sub(began)
		_, err := c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
			`{"specversion":"1.0","id":"touch-%d","source":"/bench","type":"com.example.touch","organizationid":"%d","data":{"number":%d}}`,
			from+i, organization, chance.IntN(runs))})
		return 0, err
	})
	if err != nil {
		return err
	}
	if err := w.drained(ctx); err != nil {
		return err
	}
	took := now().Sub(began)
	after, err := w.usage(ctx)
	if err != nil || m.Scenario == "" {
		return err
	}
	if err := w.db.QueryRow(ctx, read).Scan(&rowsAfter); err != nil {
		return err
	}
	resumed, err := w.taken(ctx, began, sent, from)
	if err != nil {
		return err
	}
	m.Engine, m.PerSecond, m.P50, m.P99 = "lockstep", float64(n)/took.Seconds(), resumed.at(0.5), resumed.at(0.99)
	m.Note = fmt.Sprintf("%d runs, cache %d KB; %.1f rows of history read for each", runs, w.config.CacheBytes>>10,
		float64(rowsAfter-rows)/float64(n))
	r.add(m.used(after.since(before), n))
	return nil
}

// taken is how long after each event was sent its program continued, by the time of its entry in the history.
func (w *world) taken(ctx context.Context, began time.Time, sent latencies, from int) (latencies, error) {
	rows, err := w.db.Query(ctx, `SELECT substr(e.event_id, 7)::int, n.recorded_at FROM workflow.event e JOIN workflow.entry n ON n.event = e.id
WHERE e.type = 'com.example.touch' AND substr(e.event_id, 7)::int >= $1`, from)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	resumed := make(latencies, 0, len(sent))
	for rows.Next() {
		var number int
		var at time.Time
		if err := rows.Scan(&number, &at); err != nil {
			return nil, err
		}
		resumed = append(resumed, at.Sub(began)-sent[number-from])
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(resumed) != len(sent) {
		return nil, fmt.Errorf("of %d events %d were taken", len(sent), len(resumed))
	}
	return resumed, nil
}
