package bus_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// many are n events of the domain path, and their ids.
func many(t *testing.T, n int) (events []event.Event, ids []string) {
	t.Helper()
	for i := range n {
		e := healthy(t, i+1)
		events, ids = append(events, e), append(ids, e.ID())
	}
	return events, ids
}

// stored is everything in the stream: message ids, and how many came in a batch.
func stored(t *testing.T, conn *bus.Conn) (ids []string, batched int) {
	t.Helper()
	stream, err := bus.JetStream(conn).Stream(t.Context(), bus.StreamDomain)
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	for n := state.FirstSeq; n <= state.LastSeq && state.Msgs > 0; n++ {
		msg, err := stream.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		ids = append(ids, msg.Header.Get("Nats-Msg-Id"))
		if msg.Header.Get("Nats-Batch-Id") != "" {
			batched++
		}
	}
	return ids, batched
}

// sealed are events as an outbox holds them.
func sealed(t *testing.T, events []event.Event) []event.Sealed {
	t.Helper()
	all := make([]event.Sealed, len(events))
	for i, e := range events {
		var err error
		if all[i], err = event.Seal(e); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// publishAll repeats what was not tried, as a sender does, and fails on an error that is not expected to go away.
func publishAll(t *testing.T, conn *bus.Conn, events []event.Event, ids []string) {
	t.Helper()
	wait.For(t, "everything is published", func() bool {
		errs := conn.PublishAll(t.Context(), sealed(t, events), ids)
		for i, err := range errs {
			if err == nil {
				continue
			}
			if !fault.Is(err, fault.Unavailable) {
				t.Fatalf("event %d: %v", i, err)
			}
			errs = errs[:i]
			break
		}
		events, ids = events[len(errs):], ids[len(errs):]
		return len(events) == 0
	})
}

func wired(t *testing.T) (conn, admin *bus.Conn, wire *bustest.Wire) {
	t.Helper()
	server := bustest.ServerWith(t, bustest.Unrestricted("admin"))
	wire = server.Wire(t)
	conn, admin = wire.Connect(t, server, bus.UserWorkflow), server.Connect(t, "admin")
	if err := conn.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	return conn, admin, wire
}

func TestManyAreStoredInTheirOrderAsBatches(t *testing.T) {
	t.Parallel()
	conn, admin, _ := wired(t)
	events, ids := many(t, 600)
	publishAll(t, conn, events, ids)
	got, batched := stored(t, admin)
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if batched != 600 {
		t.Errorf("%d of 600 messages came in batches", batched)
	}
}

func TestFewAreStoredOneByOne(t *testing.T) {
	t.Parallel()
	conn, admin, _ := wired(t)
	events, ids := many(t, 5)
	publishAll(t, conn, events, ids)
	got, batched := stored(t, admin)
	if diff := cmp.Diff(ids, got); diff != "" || batched != 0 {
		t.Errorf("%d came in batches; stream (-want +got):\n%s", batched, diff)
	}
}

// Whatever is lost on the way, everything is stored once, and in its order.
func TestABatchSurvivesWhatIsLost(t *testing.T) {
	t.Parallel()
	const domain = "cd.domain.1.deployment.healthy"
	// nth is the fate of the n-th message that matches.
	nth := func(n int, fate bustest.Fate, matches func(bustest.Frame) bool) func(bustest.Frame) bustest.Fate {
		seen := 0
		return func(f bustest.Frame) bustest.Fate {
			if matches(f) {
				if seen++; seen == n {
					return fate
				}
			}
			return bustest.Arrives
		}
	}
	sent := func(f bustest.Frame) bool { return f.ToServer && f.Subject == domain }
	answer := func(f bustest.Frame) bool { return !f.ToServer && bytes.Contains(f.Bytes, []byte(`"batch":`)) }
	for name, fate := range map[string]func(bustest.Frame) bustest.Fate{
		"the first message":                           nth(1, bustest.Lost, sent),
		"a message in the middle":                     nth(50, bustest.Lost, sent),
		"the last message":                            nth(100, bustest.Lost, sent),
		"the answer":                                  nth(1, bustest.Lost, answer),
		"the connection in the middle":                nth(50, bustest.Cut, sent),
		"the connection before the last message":      nth(100, bustest.Cut, sent),
		"the connection with the answer":              nth(1, bustest.Cut, answer),
		"the connection while it is repeated, by one": nth(120, bustest.Cut, sent),
		"every answer's connection, three times": func() func(bustest.Frame) bustest.Fate {
			cuts := 0
			return func(f bustest.Frame) bustest.Fate {
				if !f.ToServer && bytes.Contains(f.Bytes, []byte(`"stream":"DOMAIN"`)) && cuts < 3 {
					cuts++
					return bustest.Cut
				}
				return bustest.Arrives
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, admin, wire := wired(t)
			events, ids := many(t, 130)
			publishAll(t, conn, events[:10], ids[:10])
			wire.Decide(fate)
			publishAll(t, conn, events[10:110], ids[10:110])
			publishAll(t, conn, events[110:], ids[110:])
			got, _ := stored(t, admin)
			if diff := cmp.Diff(ids, got); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}

// A sender that has crashed does not know what it has published.
func TestABatchThatHoldsWhatIsStoredAlready(t *testing.T) {
	t.Parallel()
	conn, admin, _ := wired(t)
	events, ids := many(t, 120)
	publishAll(t, conn, events[:70], ids[:70])
	publishAll(t, conn, events, ids)
	if got, _ := stored(t, admin); !cmp.Equal(ids, got) {
		t.Errorf("stream (-want +got):\n%s", cmp.Diff(ids, got))
	}
	publishAll(t, conn, events, ids)
	if got, _ := stored(t, admin); len(got) != len(ids) {
		t.Errorf("the stream has %d messages, want %d", len(got), len(ids))
	}
}

// An event that can never be published does not keep the others of its batch back.
func TestAnEventThatIsRefusedLeavesItsBatch(t *testing.T) {
	t.Parallel()
	conn, admin, _ := wired(t)
	events, ids := many(t, 100)
	events[60] = artifact(t) // which the domain may not publish
	events[80].SetSubject(strings.Repeat("x", 9<<20))
	errs := conn.PublishAll(t.Context(), sealed(t, events), ids)
	want := map[int]fault.Class{60: fault.Denied, 80: fault.Invalid}
	if len(errs) != len(events) {
		t.Fatalf("%d of %d were tried", len(errs), len(events))
	}
	var others []string
	for i, err := range errs {
		if class, ok := want[i]; ok && !fault.Is(err, class) || !ok && err != nil {
			t.Errorf("event %d: %v", i, err)
		}
		if err == nil {
			others = append(others, ids[i])
		}
	}
	if got, _ := stored(t, admin); !cmp.Equal(others, got) {
		t.Errorf("stream (-want +got):\n%s", cmp.Diff(others, got))
	}
}

// A server before 2.12 knows nothing of batches; neither does a stream that was created by others.
func TestWithoutBatchesEachIsConfirmed(t *testing.T) {
	t.Parallel()
	t.Run("a stream that takes none any more", func(t *testing.T) {
		t.Parallel()
		conn, admin, _ := wired(t)
		stream, err := bus.JetStream(admin).Stream(t.Context(), bus.StreamDomain)
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		config.AllowAtomicPublish = false
		if _, err := bus.JetStream(admin).UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		checkOneByOne(t, conn, admin)
	})
	t.Run("a server that takes the headers for anybody's", func(t *testing.T) {
		t.Parallel()
		conn, admin, wire := wired(t)
		wire.Decide(func(f bustest.Frame) bustest.Fate {
			if f.ToServer {
				copy(f.Bytes, bytes.ReplaceAll(f.Bytes, []byte("Nats-Batch-"), []byte("Fats-Batch-")))
			}
			return bustest.Arrives
		})
		checkOneByOne(t, conn, admin)
	})
}

func checkOneByOne(t *testing.T, conn, admin *bus.Conn) {
	t.Helper()
	events, ids := many(t, 100)
	publishAll(t, conn, events[:50], ids[:50])
	publishAll(t, conn, events[50:], ids[50:])
	got, batched := stored(t, admin)
	if diff := cmp.Diff(ids, got); diff != "" || batched != 0 {
		t.Errorf("%d in batches; stream (-want +got):\n%s", batched, diff)
	}
}

func TestAServerThatIsAwayEndsPublishAll(t *testing.T) {
	t.Parallel()
	server, conn := setup(t)
	server.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	events, ids := many(t, 100)
	errs := conn.PublishAll(ctx, sealed(t, events), ids)
	if len(errs) != 1 || !fault.Is(errs[0], fault.Unavailable) {
		t.Errorf("answered %v", errs)
	}
}

// Listeners are notified that the connection was lost before anything else is published on the new one.
func TestNothingIsPublishedBeforeListenersKnowOfALostConnection(t *testing.T) {
	t.Parallel()
	conn, admin, wire := wired(t)
	notified, proceed := make(chan struct{}), make(chan struct{})
	notify := sync.OnceFunc(func() { close(notified) }) // a busy machine may lose the next connection as well
	err := conn.OnHint(t.Context(), "cd.receipt.workflow", func(payload []byte) {
		if payload == nil {
			notify()
			<-proceed
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	wire.CutAll()
	next(t, notified)
	events, ids := many(t, 1)
	if errs := conn.PublishAll(t.Context(), sealed(t, events), ids); len(errs) != 0 {
		t.Errorf("answered %v while a listener is being notified", errs)
	}
	close(proceed)
	publishAll(t, conn, events, ids)
	if got, _ := stored(t, admin); !cmp.Equal(ids, got) {
		t.Errorf("stream (-want +got):\n%s", cmp.Diff(ids, got))
	}
}

// A stream that was made before batches is changed when a service starts.
func TestAStreamOfAnEarlierVersionTakesBatches(t *testing.T) {
	t.Parallel()
	server := bustest.ServerWith(t, bustest.Unrestricted("admin"))
	admin := server.Connect(t, "admin")
	_, err := bus.JetStream(admin).CreateStream(t.Context(), jetstream.StreamConfig{Name: bus.StreamDomain, Subjects: []string{"cd.domain.>"}})
	if err != nil {
		t.Fatal(err)
	}
	events, ids := many(t, 200)
	publishAll(t, admin, events[:100], ids[:100])
	conn := server.Connect(t, bus.UserWorkflow)
	if err := conn.Apply(t.Context(), domainTopology()); err != nil {
		t.Fatal(err)
	}
	publishAll(t, conn, events[100:], ids[100:])
	got, batched := stored(t, admin)
	if diff := cmp.Diff(ids, got); diff != "" || batched != 100 {
		t.Errorf("%d in batches, want 100; stream (-want +got):\n%s", batched, diff)
	}
}
