package domain

import (
	"fmt"
	"os"
	"slices"
	"strconv"
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
// also where events are sent again. LOCKSTEP_TRIGGER_APPLICATIONS and LOCKSTEP_TRIGGER_EVENTS are how many there are; it logs how long
// sending an event and deciding take.
func TestNoEventIsMissedOrDecidedTwice(t *testing.T) {
	t.Parallel()
	const workers = 4
	applications, events := scaleOf(t, "LOCKSTEP_TRIGGER_APPLICATIONS", 4), scaleOf(t, "LOCKSTEP_TRIGGER_EVENTS", 40)
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
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals`)-before, events)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'event:%' AND state = 'pending' AND outcome <> 'waiting'`), 0)
	// One rollout of each application is under way, whatever has arrived meanwhile.
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts`), min(applications, events))
	w.want(w.countOf(`SELECT count(DISTINCT application_id) FROM cd_rollouts`), min(applications, events))
	slices.Sort(sends)
	slices.Sort(decisions)
	t.Logf("%d applications, %d events in %s: sending p50 %s p95 %s; %d decisions p50 %s p95 %s", applications, events, took, sends[len(sends)/2],
		sends[len(sends)*95/100], len(decisions), decisions[len(decisions)/2], decisions[len(decisions)*95/100])
}
