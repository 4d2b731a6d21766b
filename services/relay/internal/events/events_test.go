package events

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// outgoing collects the published events, and refuses the first few.
type outgoing struct {
	mu     sync.Mutex
	refuse int
	sent   []event.Event
}

func (o *outgoing) Publish(_ context.Context, e event.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse > 0 {
		o.refuse--
		return fault.New(fault.Unavailable, "away")
	}
	o.sent = append(o.sent, e)
	return nil
}

// all returns the events published so far.
func (o *outgoing) all() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.sent)
}

func (o *outgoing) completed(t *testing.T) []event.FunctionCompleted {
	t.Helper()
	var all []event.FunctionCompleted
	for _, e := range o.all() {
		data, err := event.Decode[event.FunctionCompleted](e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

// gate is a Runner whose calls wait until they are released.
type gate struct {
	started chan string
	proceed chan core.Answer
}

func (g gate) Run(ctx context.Context, call core.Call) core.Answer {
	g.started <- call.ID
	select {
	case a := <-g.proceed:
		a.CallID, a.Attempt = call.ID, call.Attempt
		return a
	case <-ctx.Done():
		return core.Answer{CallID: call.ID, Err: &core.Error{Code: core.CodeTimeout}}
	}
}

func called(t *testing.T, id string, attempt int) event.Event {
	t.Helper()
	e, err := event.New(event.Header{
		ID: id, Source: "/services/workflow", Organization: 1, Correlation: "rollout-1",
		Time: clock.System().Now(),
	},
		event.FunctionCalled{
			AgentID: 42, CallID: id, Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: attempt,
			Deadline: clock.System().Now().Add(time.Minute).Format(time.RFC3339Nano),
		})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// serve runs a Receiver inside a synctest bubble; events sent to the channel are accepted in order.
func serve(t *testing.T, g gate, bus *outgoing, limit int) (deliver func(event.Event) error, stop func()) {
	t.Helper()
	r := NewReceiver(ReceiverDeps{
		Agent: 42, Runner: g, Bus: bus, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Limit: limit,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan Accept)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Serve(ctx, func(ctx context.Context, accept Accept) error {
			ready <- accept
			<-ctx.Done()
			return nil
		})
	}()
	accept := <-ready
	return func(e event.Event) error { return accept(ctx, e) }, func() { cancel(); <-ended }
}

func TestACallInFlightIsExecutedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, bus := gate{started: make(chan string, 9), proceed: make(chan core.Answer)}, &outgoing{refuse: 3}
		deliver, stop := serve(t, g, bus, 4)
		defer stop()
		for attempt := 1; attempt <= 3; attempt++ {
			if err := deliver(called(t, "exec/0.1", attempt)); err != nil {
				t.Fatal(err)
			}
		}
		g.proceed <- core.Answer{Value: map[string]any{"found": true}}
		time.Sleep(5 * time.Second)
		want := []event.FunctionCompleted{{AgentID: 42, CallID: "exec/0.1", Attempt: 3, Value: json.RawMessage(`{"found":true}`)}}
		if diff := cmp.Diff(want, bus.completed(t)); diff != "" || len(g.started) != 1 {
			t.Errorf("%d runs, answers (-want +got):\n%s", len(g.started), diff)
		}
		if got := event.Extension(bus.all()[0], event.ExtensionCorrelation); got != "rollout-1" {
			t.Errorf("correlation of the answer is %q", got)
		}
		if err := deliver(called(t, "exec/0.1", 4)); err != nil {
			t.Fatal(err)
		}
		g.proceed <- core.Answer{Err: &core.Error{Code: core.CodeForbidden, Message: "no"}}
		synctest.Wait()
		got := bus.completed(t)
		if len(got) != 2 || got[1].Error == nil || got[1].Error.Code != "forbidden" || bus.all()[0].ID() == bus.all()[1].ID() {
			t.Errorf("a call that was answered before is not carried out again: %+v", got)
		}
	})
}

func TestCallsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, bus := gate{started: make(chan string, 9), proceed: make(chan core.Answer)}, &outgoing{}
		deliver, stop := serve(t, g, bus, 1)
		defer stop()
		if err := deliver(called(t, "exec/0.1", 1)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- deliver(called(t, "exec/0.2", 1)) }()
		synctest.Wait()
		if len(g.started) != 1 {
			t.Errorf("%d calls run at once", len(g.started))
		}
		g.proceed <- core.Answer{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestInterruptedCallsAreNotAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, bus := gate{started: make(chan string, 9), proceed: make(chan core.Answer)}, &outgoing{}
		deliver, stop := serve(t, g, bus, 1)
		if err := deliver(called(t, "exec/0.1", 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		if len(bus.all()) != 0 {
			t.Errorf("answered %+v", bus.all())
		}
	})
}

func TestACallForAnotherAgentIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deliver, stop := serve(t, gate{}, &outgoing{}, 1)
		defer stop()
		e := called(t, "exec/0.1", 1)
		if err := e.SetData("application/json", event.FunctionCalled{
			AgentID: 7, CallID: "c", Function: "f", Arguments: json.RawMessage(`{}`), Attempt: 1, Deadline: "2026-01-01T00:00:00Z",
		}); err != nil {
			t.Fatal(err)
		}
		if err := deliver(e); !fault.Is(err, fault.Invalid) || fault.FieldsOf(err)[0].Name != "data.agent_id" {
			t.Errorf("error %v", err)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := &outgoing{}
		var away atomic.Bool
		h := NewHeartbeat(HeartbeatDeps{
			Agent: 42, Version: "v1", Interval: 5 * time.Second, Bus: bus, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
			Reachable: func(context.Context) error {
				if away.Load() {
					return fault.New(fault.Unavailable, "the cluster does not answer")
				}
				return nil
			},
			Watching: func() ([]string, time.Time) { return []string{"b", "a"}, clock.System().Now().Add(90 * time.Second) },
		})
		if h.Cluster(t.Context()) == nil {
			t.Error("ready before the cluster was asked")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		if err := h.Cluster(ctx); err != nil {
			t.Errorf("not ready: %v", err)
		}
		away.Store(true)
		time.Sleep(6 * time.Second)
		if h.Cluster(ctx) == nil {
			t.Error("ready although the cluster does not answer")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var got []bool
		for _, e := range bus.all() {
			data, err := event.Decode[event.AgentHeartbeat](e)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, data.ClusterReachable)
			if data.Watching != event.WatchDigest([]string{"a", "b"}) || data.LeaseSeconds != 90 {
				t.Errorf("watching %q for %d seconds", data.Watching, data.LeaseSeconds)
			}
		}
		if diff := cmp.Diff([]bool{true, false}, got); diff != "" {
			t.Errorf("reachable (-want +got):\n%s", diff)
		}
	})
}
