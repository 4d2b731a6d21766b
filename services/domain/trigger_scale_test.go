package domain

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// scaleOf is a size that the environment may set.
func scaleOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// D58, R4-04, R4-06: with every trigger of every application on and several workers, no event is missed, and none begins anything twice,
// also where events are sent again. LOCKSTEP_TRIGGER_APPLICATIONS, such as 1000,10000, and LOCKSTEP_TRIGGER_EVENTS are how many there are.
// An event and what is decided about it reads no more rows beside more applications; how long both take is logged.
//
//nolint:tparallel,paralleltest // it is measured: one number of applications after the other
func TestNoEventIsMissedOrDecidedTwice(t *testing.T) {
	t.Parallel()
	sizes, events := []int{4}, scaleOf(t, "LOCKSTEP_TRIGGER_EVENTS", 40)
	if given := os.Getenv("LOCKSTEP_TRIGGER_APPLICATIONS"); given != "" {
		sizes = nil
		for text := range strings.SplitSeq(given, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				t.Fatalf("found LOCKSTEP_TRIGGER_APPLICATIONS=%s; expected numbers such as 1000,10000", given)
			}
			sizes = append(sizes, n)
		}
	}
	costs := map[int]float64{}
	for _, applications := range sizes {
		t.Run(strconv.Itoa(applications), func(t *testing.T) { costs[applications] = missNoEvent(t, applications, events) })
	}
	if few, many := costs[sizes[0]], costs[sizes[len(sizes)-1]]; many > 1.3*few {
		t.Errorf("an event reads %.1f rows of %d applications, and %.1f of %d; expected at most 1.3 times as many", few, sizes[0], many, sizes[len(sizes)-1])
	}
}

// rowsRead are the rows that transactions of the service have read so far, in tables and indexes.
func (w winter) rowsRead() (n int64) {
	w.t.Helper()
	for _, c := range w.service.pool.AcquireAllIdle(w.t.Context()) { // what a connection has not reported yet
		_, err := c.Exec(w.t.Context(), `SELECT pg_stat_force_next_flush()`)
		c.Release()
		w.ok(err)
	}
	const query = `SELECT tup_returned + tup_fetched FROM pg_stat_database WHERE datname = current_database()`
	w.ok(w.fixture.pool.QueryRow(w.t.Context(), query).Scan(&n))
	return n
}

// missNoEvent sends events to applications and has them decided, and returns how many rows are read for each.
func missNoEvent(t *testing.T, applications, events int) float64 {
	t.Helper()
	const workers = 4
	w := clocked(t)
	all := []winter{w}
	for i := range applications - 1 {
		all = append(all, w.another(fmt.Sprintf("app-%d", i), 5000+i))
	}
	for i, one := range all {
		one.trigger(core.TriggerVersion, `{"quiet_seconds":0}`)
		one.trigger(core.TriggerGit, `{}`)
		one.trigger(core.TriggerSchedule, `{"cron":"@yearly"}`)
		one.trigger(core.TriggerDrift, `{}`)
		one.trigger(core.TriggerChain, `{"follows":["nobody"]}`)
		one.trigger(core.TriggerEvent, fmt.Sprintf(`{"types":["of-%d"]}`, i))
	}
	w.decide()
	before := w.countOf(`SELECT count(*) FROM cd_trigger_signals`)
	_, err := w.pool.Exec(t.Context(), `VACUUM ANALYZE`)
	w.ok(err)
	read := w.rowsRead()
	wall := clock.System()
	var mu sync.Mutex
	var sends, decisions []time.Duration
	var group, sending sync.WaitGroup
	sent := make(chan struct{})
	for sender := range workers {
		sending.Go(func() {
			for n := sender; n < events; n += workers {
				e := trigger.Event{ID: fmt.Sprint(n), Source: "/ci", Type: fmt.Sprintf("of-%d", n%applications)}
				for range 1 + n%2 { // every other one arrives twice
					began := wall.Now()
					d, err := w.triggers.SendEvent(t.Context(), user(), e)
					took := wall.Now().Sub(began)
					if err != nil || d.Triggers != 1 {
						t.Errorf("event %d: found %+v, %v", n, d, err)
					}
					mu.Lock()
					sends = append(sends, took)
					mu.Unlock()
				}
			}
		})
	}
	for range workers {
		group.Go(func() {
			for last := false; ; {
				began := wall.Now()
				_, worked, err := w.triggers.DecideDue(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if worked {
					mu.Lock()
					decisions = append(decisions, wall.Now().Sub(began))
					mu.Unlock()
					continue
				}
				if last {
					return
				}
				select {
				case <-sent: // one more round after the last event
					last = true
				default:
				}
			}
		})
	}
	began := wall.Now()
	sending.Wait()
	took := wall.Now().Sub(began)
	close(sent)
	group.Wait()
	w.decide() // what a worker has skipped because another one had it locked
	cost := float64(w.rowsRead()-read) / float64(events)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals`)-before, events)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'event:%' AND state = 'pending' AND outcome <> 'waiting'`), 0)
	// One rollout of each application is under way, whatever has arrived meanwhile.
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts`), min(applications, events))
	w.want(w.countOf(`SELECT count(DISTINCT application_id) FROM cd_rollouts`), min(applications, events))
	slices.Sort(sends)
	slices.Sort(decisions)
	t.Logf("%d applications, %d events in %s: sending p50 %s p95 %s; %d decisions p50 %s p95 %s; %.1f rows read for each event", applications, events, took,
		sends[len(sends)/2], sends[len(sends)*95/100], len(decisions), decisions[len(decisions)/2], decisions[len(decisions)*95/100], cost)
	return cost
}
