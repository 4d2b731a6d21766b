package drivertest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// watch is k8s.watch, where the world lets programs watch.
func (w *world) watch(args object) (any, *history.FunctionError) {
	if !w.watching {
		return nil, &history.FunctionError{Code: "forbidden", Message: "no watches here"}
	}
	key := args["namespace"].(string) + "/" + args["name"].(string)
	w.watches[key], _ = args["subject"].(object)
	if args["kind"] == "Workflow" {
		return object{"watch": key, "types": []any{agent.TypeObjectChanged}}, nil
	}
	return object{"watch": key, "types": []any{agent.TypeRolloutStatusChanged, agent.TypeObjectChanged}}, nil
}

// observed is the next event of the watches: at once of a Rollout that differs from its last report, else of the first that moves by
// itself.
func (w *world) observed(want history.Want) (next history.Event, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(w.watches)) {
		if e, found := w.observe(key); found && want.Filter.Matches(e.Data) && (!ok || e.Time.Before(next.Time)) {
			next, ok = e, true
		}
	}
	return next, ok
}

func (w *world) observe(key string) (history.Event, bool) {
	if w.argo != nil {
		return w.argo.observe(w, key)
	}
	r := w.rollouts[key]
	if r == nil {
		return history.Event{}, false
	}
	for _, at := range []time.Time{w.now, r.changed.Add(max(r.pace, time.Second)), r.changed.Add(max(r.breaks, time.Second))} {
		then := *r
		then.move(at)
		view := then.view()
		w.see(&then, view)
		data := object{"watch": key, "object": object{"status": view["status"], "metadata": view["metadata"]}}
		maps.Copy(data, w.watches[key])
		text, err := json.Marshal(data)
		if err != nil {
			w.t.Fatal(err)
		}
		if !at.Before(w.now) && w.reported[key] != string(text) {
			return history.Event{Type: agent.TypeRolloutStatusChanged, Data: text, Time: at}, true
		}
	}
	return history.Event{}, false
}

// noteWatch stores what a watch has reported.
func (w *world) noteWatch(text json.RawMessage) {
	var e struct {
		Type string
		Data json.RawMessage
	}
	var data struct{ Watch string }
	if json.Unmarshal(text, &e) != nil || e.Type != agent.TypeRolloutStatusChanged && e.Type != agent.TypeObjectChanged ||
		json.Unmarshal(e.Data, &data) != nil {
		return
	}
	w.reported[data.Watch] = string(e.Data)
}

// With a watch a Rollout is looked at when something has happened to it, and else at every tenth rest; without one at
// every rest (E42, D20).
func TestAWatchTakesThePlaceOfPolling(t *testing.T) {
	t.Parallel()
	looks, took := map[bool]int{}, map[bool]time.Duration{}
	for _, watching := range []bool{false, true} {
		w := shop(t)
		w.watching = watching
		for _, r := range w.rollouts {
			r.pace = 280 * time.Second
		}
		began := w.now
		if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
			t.Fatalf("watching %t: %s", watching, failure)
		}
		looks[watching], took[watching] = w.looks, w.now.Sub(began)
	}
	if looks[true]*5 > looks[false] {
		t.Errorf("%d looks with the watch, %d without; expected a fifth at most", looks[true], looks[false])
	}
	if took[true] > took[false] {
		t.Errorf("%s with the watch, %s without", took[true], took[false])
	}
	t.Logf("looks: %d watched, %d polled; time: %s watched, %s polled", looks[true], looks[false], took[true], took[false])
}

// slowly is a shop that is watched and, without that, looked at every five minutes; edit changes what its rollout is given.
func slowly(t *testing.T, edit func(gate object)) (*world, object) {
	t.Helper()
	w := shop(t)
	w.watching = true
	in := inputs(2, func(_, environment object) {
		environment["application_environment"].(object)["config"].(object)["poll_interval"] = 300
		gate := object{"weight": 25}
		if edit != nil {
			edit(gate)
		}
		environment["gates"] = []any{gate}
	})
	return w, in
}

// A failure at a gate is found at once, and not by the next poll, whatever the driver waits for there (E67).
func TestWhatFailsAtAGateIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(w *world, gate object){
		"while it soaks":      func(_ *world, gate object) { gate["soak_duration"] = 6 * 3600 },
		"while people decide": func(_ *world, gate object) { gate["approval"] = object{} },
		"while it is held":    func(w *world, _ object) { w.held["staging/25"] = 6 * time.Hour },
		"while the other one is on its way": func(w *world, _ object) {
			w.rollouts["shop/worker"].pace = 550 * time.Second
			w.rollouts["shop/api"].breaks = 123 * time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var given object
			w, in := slowly(t, func(gate object) { given = gate })
			w.rollouts["shop/api"].breaks = 7777 * time.Second
			edit(w, given)
			began := w.now
			w.run(driver.Deploy, in)
			expectEnd(t, w, "rollout.failed reason=staging: api is degraded at gate 25: pods crash")
			if took := w.now.Sub(began) - w.rollouts["shop/api"].breaks; took > time.Second {
				t.Errorf("it took %s to see it", took)
			}
		})
	}
}

// An abort does not wait for the next poll either.
func TestAnAbortIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after string
		later time.Duration
		soak  int
	}{
		"on the way":     {after: "deployment.started deployment_id=12", later: 100 * time.Second},
		"while it soaks": {after: atGate, later: 1000 * time.Second, soak: 3600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, in := slowly(t, func(gate object) { gate["soak_duration"] = tc.soak })
			for _, r := range w.rollouts {
				r.pace = 280 * time.Second
			}
			w.asks = map[string]map[string]time.Duration{tc.after: {event.TypeRolloutAbortRequested: tc.later}}
			aborts := 0
			w.fail = func(name string, _ object) *history.FunctionError {
				if name == "argo.abort" {
					aborts++
					if !w.now.Equal(w.asked) {
						t.Errorf("aborted %s after it was asked for", w.now.Sub(w.asked))
					}
				}
				return nil
			}
			w.run(driver.Deploy, in)
			if aborts != 2 {
				t.Errorf("found %d aborts, expected one for each service:\n%s", aborts, strings.Join(w.story, "\n"))
			}
		})
	}
}

// A gate that people take a week for costs neither the cluster nor the history more than a slow look now and then.
func TestAWeekAtAGateCostsLittle(t *testing.T) {
	t.Parallel()
	w, in := slowly(t, func(gate object) { gate["approval"] = object{} })
	began := w.now
	w.run(driver.Deploy, in)
	week := w.now.Sub(began)
	if most := 2*int(week/(15*time.Minute)) + 50; w.looks > most || week < 7*24*time.Hour {
		t.Errorf("found %d looks in %s, expected at most %d", w.looks, week, most)
	}
}
