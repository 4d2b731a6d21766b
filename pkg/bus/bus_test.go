package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

func TestAnEventArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	sent := healthy(t, 1)
	sent.SetSubject("a\r\nb: ü") // what no header could carry
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if err := conn.Publish(telemetry.WithTraceParent(t.Context(), trace), sent); err != nil {
		t.Fatal(err)
	}
	traces := make(chan string, 1)
	c := consume(t, conn, watcher(), func(ctx context.Context, _ bus.Delivery) error {
		traces <- telemetry.TraceParent(ctx)
		return nil
	})
	got := next(t, c.handled)
	want := sent.Clone()
	want.SetExtension(event.ExtensionTraceParent, trace)
	if diff := cmp.Diff(want.String(), got.Event.String()); diff != "" {
		t.Errorf("event (-sent +received):\n%s", diff)
	}
	if got.Attempt != 1 || got.Subject != "cd.domain.1.deployment.healthy" {
		t.Errorf("attempt %d on %s", got.Attempt, got.Subject)
	}
	if tp := next(t, traces); tp != trace {
		t.Errorf("the handler's trace is %q, want %q", tp, trace)
	}
}

func TestAnEventIsStoredOnce(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	e := healthy(t, 1)
	publish(t, conn, e, e, e)
	if err := conn.PublishAttempt(t.Context(), e, "healthy-1/2"); err != nil {
		t.Fatal(err)
	}
	publish(t, conn, healthy(t, 2))
	consumer := watcher()
	consumer.Workers = 1
	c := consume(t, conn, consumer, accept)
	for _, want := range []string{"healthy-1", "healthy-1", "healthy-2"} {
		if got := next(t, c.handled).Event.ID(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTheClassOfAnErrorDecides(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	tests := []struct {
		name     string
		n        int
		errs     []error // per attempt; the last repeats
		attempts int
		rejected string
	}{
		{name: "internal errors are tried again", n: 1, errs: []error{errors.New("deadlock"), nil}, attempts: 2},
		{name: "internal errors end at the last delivery", n: 2, errs: []error{errors.New("bug")}, attempts: 3, rejected: "bug"},
		{name: "what is unavailable is tried until it is not", n: 3, errs: repeat(fault.New(fault.Unavailable, "away"), 6), attempts: 7},
		{name: "invalid ends at once", n: 4, errs: []error{fault.New(fault.Invalid, "no such state")}, attempts: 1, rejected: "no such state"},
		{name: "conflict ends at once", n: 5, errs: []error{fault.New(fault.Conflict, "taken")}, attempts: 1, rejected: "taken"},
		{
			name: "wrapped classes count", n: 6, errs: []error{fmt.Errorf("apply: %w", fault.New(fault.Terminal, "gone"))}, attempts: 1,
			rejected: "apply: gone",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			consumer := watcher()
			consumer.Durable = fmt.Sprintf("domain-test-%d", tt.n)
			consumer.Filters = []string{fmt.Sprintf("cd.domain.%d.>", tt.n)}
			c := consume(t, conn, consumer, func(_ context.Context, d bus.Delivery) error {
				return tt.errs[min(d.Attempt, len(tt.errs))-1]
			})
			publish(t, conn, makeEvent(t, fmt.Sprintf("e-%d", tt.n), int64(tt.n), event.DeploymentHealthy{DeploymentID: 1}))
			for want := 1; want <= tt.attempts; want++ {
				if got := next(t, c.handled).Attempt; got != want {
					t.Errorf("attempt %d, want %d", got, want)
				}
			}
			if tt.rejected != "" {
				r := next(t, c.rejected)
				if r.err.Error() != tt.rejected || r.Event.ID() == "" || r.Attempt != tt.attempts {
					t.Errorf("rejected attempt %d of %q because %v; want %d because %q", r.Attempt, r.Event.ID(), r.err, tt.attempts, tt.rejected)
				}
			}
			awaitDone(t, conn, consumer)
			if len(c.handled) > 0 || len(c.rejected) > 0 {
				t.Error("more deliveries came")
			}
		})
	}
}

// repeat is n times err, then nil.
func repeat(err error, n int) []error {
	errs := make([]error, n, n+1)
	for i := range errs {
		errs[i] = err
	}
	return append(errs, nil)
}

// awaitDone waits until nothing of a consumer is pending or in progress.
func awaitDone(t *testing.T, conn *bus.Conn, consumer bus.Consumer) {
	t.Helper()
	js := bus.JetStream(conn)
	wait.For(t, "consumer is done", func() bool {
		c, err := js.Consumer(t.Context(), consumer.Stream, consumer.Durable)
		return err == nil && c.CachedInfo().NumAckPending == 0 && c.CachedInfo().NumPending == 0
	})
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	c := consume(t, conn, watcher(), func(_ context.Context, d bus.Delivery) error {
		if d.Attempt == 1 {
			panic("nil map")
		}
		return nil
	})
	publish(t, conn, healthy(t, 1))
	if got := next(t, c.handled).Attempt; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
}

func TestMessagesThatAreNoEventsAreRejected(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	js := server.JetStream(t, bus.UserWorkflow)
	tests := []struct{ name, body, want string }{
		{"not an event", `hello`, "message on cd.domain.1.deployment.healthy is not a CloudEvent"},
		{
			"unknown type", `{"specversion":"1.0","id":"1","source":"/x","type":"com.gitlab.cd.teapot.boiled","data":{}}`,
			"not in the event catalogue",
		},
		{"invalid data", `{"specversion":"1.0","id":"2","source":"/x","type":"com.gitlab.cd.deployment.healthy","organizationid":"1","data":{"deployment_id":"x"}}`, "data.deployment_id"},
		{"another path's event", `{"specversion":"1.0","id":"3","source":"/x","type":"com.gitlab.cd.agent.heartbeat","data":{"agent_id":42,"version":"1","started_at":"2026-03-25T09:00:00Z","observed_at":"2026-03-25T09:00:00Z","cluster_reachable":true}}`, `event 3 came on "cd.domain.1.deployment.healthy", expected "cd.cluster.42.heartbeat"`},
		{"another organization's event", `{"specversion":"1.0","id":"4","source":"/x","type":"com.gitlab.cd.deployment.healthy","organizationid":"2","data":{"deployment_id":1}}`, `expected "cd.domain.2.deployment.healthy"`},
	}
	c := consume(t, conn, watcher(), accept)
	for _, tt := range tests {
		if _, err := js.Publish(t.Context(), "cd.domain.1.deployment.healthy", []byte(tt.body)); err != nil {
			t.Fatal(err)
		}
		r := next(t, c.rejected)
		if !fault.Is(r.err, fault.Invalid) || !contains(r.err.Error(), tt.want) {
			t.Errorf("%s: rejected because %v, want %q", tt.name, r.err, tt.want)
		}
	}
	binary := nats.NewMsg("cd.domain.1.deployment.healthy")
	for k, v := range map[string]string{
		"specversion": "1.0", "id": "5", "source": "/x", "type": "com.gitlab.cd.deployment.healthy",
		"organizationid": "1", "datacontenttype": "application/json",
	} {
		binary.Header.Set("ce-"+k, v)
	}
	binary.Data = []byte(`{"deployment_id":1}`)
	if _, err := js.PublishMsg(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	if got := next(t, c.handled).Event.ID(); got != "5" {
		t.Errorf("event %q, want the one in binary mode", got)
	}
}

func TestALongHandlerIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	consumer := watcher()
	// It is renewed after a third of it: a machine that stands still for some seconds is no reason to deliver again.
	consumer.AckWait = 6 * time.Second
	c := consume(t, conn, consumer, func(ctx context.Context, _ bus.Delivery) error {
		return clock.Sleep(ctx, clock.System(), consumer.AckWait+2*time.Second)
	})
	publish(t, conn, healthy(t, 1))
	if got := next(t, c.handled).Attempt; got != 1 {
		t.Errorf("attempt %d, want 1", got)
	}
	awaitDone(t, conn, consumer)
	if n := c.calls.Load(); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	consumer := watcher()
	consumer.Workers = 3
	c := consume(t, conn, consumer, func(ctx context.Context, _ bus.Delivery) error {
		mu.Lock()
		running++
		most = max(most, running)
		if running == 3 && most == 3 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		select {
		case <-full:
		case <-ctx.Done():
		}
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	})
	for n := range 20 {
		publish(t, conn, healthy(t, n+1))
	}
	for range 20 {
		next(t, c.handled)
	}
	if most != 3 {
		t.Errorf("%d handlers at once, want 3", most)
	}
}

func TestEventsOfTheSkippedSourceAreAcknowledgedUnread(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	own, other := healthy(t, 1), healthy(t, 2)
	own.SetSource("/services/own")
	consumer := watcher()
	consumer.Skip = "/services/own"
	publish(t, conn, own)
	publish(t, conn, other)
	c := consume(t, conn, consumer, accept)
	if got := next(t, c.handled).Event.ID(); got != other.ID() {
		t.Errorf("got %s, want %s", got, other.ID())
	}
	awaitDone(t, conn, consumer)
	if n := c.calls.Load(); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// TestExternalEventsReachTheConsumersThatAskForThem: all others of the stream acknowledge them unread.
func TestExternalEventsReachTheConsumersThatAskForThem(t *testing.T) {
	t.Parallel()
	server := bustest.ServerWith(t, bustest.Unrestricted("elsewhere")) // no service publishes them
	conn := server.Connect(t, bus.UserWorkflow)
	if err := conn.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	consumer := watcher()
	external := consumer
	external.Durable, external.External = "external", true
	data := []byte(`{"specversion":"1.0","id":"tick","source":"/x","type":"com.example.tick","organizationid":"1","data":{}}`)
	if _, err := server.JetStream(t, "elsewhere").Publish(t.Context(), event.ExternalSubject(1), data); err != nil {
		t.Fatal(err)
	}
	publish(t, conn, healthy(t, 2))
	all := consume(t, conn, external, accept)
	got := []string{next(t, all.handled).Event.ID(), next(t, all.handled).Event.ID()}
	if slices.Sort(got); got[0] != "healthy-2" || got[1] != "tick" {
		t.Errorf("got %q, want both events", got)
	}
	c := consume(t, conn, consumer, accept)
	if got := next(t, c.handled).Event.ID(); got != "healthy-2" {
		t.Errorf("got %s, want the event of the catalogue", got)
	}
	awaitDone(t, conn, consumer)
	if n := c.calls.Load(); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

func TestOneWorkerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	consumer := watcher()
	consumer.Workers = 1
	for n := range 50 {
		publish(t, conn, healthy(t, n+1))
	}
	c := consume(t, conn, consumer, accept)
	for n := range 50 {
		if got, want := next(t, c.handled).Event.ID(), fmt.Sprintf("healthy-%d", n+1); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestAnInterruptedHandlerGivesItsMessageBackAtOnce(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	started := make(chan struct{})
	first := consume(t, conn, watcher(), func(ctx context.Context, _ bus.Delivery) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	publish(t, conn, healthy(t, 1))
	next(t, started)
	first.stop()
	second := consume(t, conn, watcher(), accept)
	if got := next(t, second.handled).Attempt; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
	if len(first.rejected) > 0 {
		t.Error("the interrupted message was rejected")
	}
}

func TestAFinishedHandlerIsAcknowledgedAfterTheEnd(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	started := make(chan struct{})
	c := consume(t, conn, watcher(), func(ctx context.Context, _ bus.Delivery) error {
		close(started)
		<-ctx.Done()
		return nil
	})
	publish(t, conn, healthy(t, 1))
	next(t, started)
	c.stop()
	awaitDone(t, conn, watcher())
}

func TestHints(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	domain, workflow := server.Connect(t, bus.UserDomain), server.Connect(t, bus.UserWorkflow)
	got := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := workflow.OnHint(ctx, "cd.receipt.workflow", func(p []byte) {
		if p == nil {
			p = []byte("back")
		}
		got <- string(p)
	}); err != nil {
		t.Fatal(err)
	}
	domain.Hint("cd.receipt.workflow", []byte("12"))
	if p := next(t, got); p != "12" {
		t.Errorf("hint %q, want 12", p)
	}
	domain.Hint("cd.receipt.workflow", nil)
	if p := next(t, got); p != "" {
		t.Errorf("hint %q, want an empty one", p)
	}
	server.Restart(t)
	if p := next(t, got); p != "back" {
		t.Errorf("after a restart %q, want a hint that the connection is back", p)
	}
	wait.For(t, "hints after a restart", func() bool {
		domain.Hint("cd.receipt.workflow", []byte("13"))
		return len(got) > 0
	})
	if err := workflow.OnHint(t.Context(), "cd.receipt.domain", func([]byte) {}); !fault.Is(err, fault.Denied) {
		t.Errorf("subscribing to another's receipts: %v, want a denial", err)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	wrong := server.Config(bus.UserDomain)
	wrong.Password = "wrong"
	if _, err := bus.Connect(t.Context(), wrong, bustest.Log(t)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("wrong password: %v, want unauthenticated", err)
	}
	noKey := bus.Config{URL: server.URL(), NKeySeedFile: "/nonexistent"}
	if _, err := bus.Connect(t.Context(), noKey, bustest.Log(t)); !fault.Is(err, fault.Invalid) {
		t.Errorf("missing seed file: %v, want invalid", err)
	}
	server.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := bus.Connect(ctx, server.Config(bus.UserDomain), bustest.Log(t)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no server: %v, want unavailable", err)
	}
}

func TestConnectWaitsForTheServer(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	server.Stop(t)
	connected := make(chan error, 1)
	go func() {
		c, err := bus.Connect(t.Context(), server.Config(bus.UserDomain), bustest.Log(t))
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	none(t, connected, 300*time.Millisecond)
	server.Start(t)
	if err := next(t, connected); err != nil {
		t.Errorf("connect: %v", err)
	}
}

func TestConsumeNeedsNames(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	if err := conn.Consume(t.Context(), bus.Consumer{Stream: "DOMAIN"}, accept, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("error = %v, want invalid", err)
	}
}
