package drivertest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// watch is k8s.watch, where the world lets programs watch.
func (w *world) watch(args object) (any, *core.FunctionError) {
	if !w.watching {
		return nil, &core.FunctionError{Code: "forbidden", Message: "no watches here"}
	}
	return object{
		"watch": args["namespace"].(string) + "/" + args["name"].(string),
		"types": []any{core.TypeRolloutStatusChanged, core.TypeObjectChanged},
	}, nil
}

// observed is what a watch tells next: at once when the Rollout is not as it was told of, else when it moves by itself.
func (w *world) observed(op core.Op) (core.Event, bool) {
	var key string
	if err := json.Unmarshal([]byte(op.Filter["watch"]), &key); err != nil {
		w.t.Fatal(err)
	}
	r := w.rollouts[key]
	if r == nil {
		return core.Event{}, false
	}
	for _, at := range []time.Time{w.now, r.changed.Add(max(r.pace, time.Second))} {
		then := *r
		then.move(at)
		view := then.view()
		data, err := json.Marshal(object{"watch": key, "object": object{"status": view["status"], "metadata": view["metadata"]}})
		if err != nil {
			w.t.Fatal(err)
		}
		if !at.Before(w.now) && w.told[key] != string(data) {
			return core.Event{Type: core.TypeRolloutStatusChanged, ID: "observed", Data: data, Time: at}, true
		}
	}
	return core.Event{}, false
}

// tellWatch notes what a watch has told.
func (w *world) tellWatch(event json.RawMessage) {
	var told struct {
		Type string
		Data json.RawMessage
	}
	var data struct{ Watch string }
	if json.Unmarshal(event, &told) != nil || told.Type != core.TypeRolloutStatusChanged || json.Unmarshal(told.Data, &data) != nil {
		return
	}
	if w.told == nil {
		w.told = map[string]string{}
	}
	w.told[data.Watch] = string(told.Data)
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
