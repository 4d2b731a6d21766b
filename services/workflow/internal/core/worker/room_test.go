package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// kept is a store in which calls are offered by tests.
type kept struct {
	worker.Store

	// taking is called by a look, before it finds anything; nil: nothing is.
	taking func()

	mu       sync.Mutex
	offered  []worker.Call
	released []string
}

func (k *kept) TakeOffers(_ context.Context, t worker.Taking) ([]worker.Call, error) {
	if k.taking != nil {
		k.taking()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most := min(t.Most, len(k.offered))
	taken := k.offered[:most]
	k.offered = k.offered[most:]
	return taken, nil
}

func (k *kept) ReleaseOffers(_ context.Context, _ string, ids []string, _ time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released = append(k.released, ids...)
	return nil
}

func (k *kept) offer(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offered = append(k.offered, worker.Call{ID: id, Function: "acme.bake"})
}

func (k *kept) isReleased(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.released, id)
}

func (*kept) AnswerOffer(context.Context, worker.Answer) (bool, error)    { return true, nil }
func (*kept) SaveDeclarations(context.Context, worker.Registration) error { return nil }
func (*kept) NotifyOffers(context.Context) error                          { return nil }
func (*kept) ListenOffers(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

func (*kept) Declarations(context.Context, int64) (all []worker.Kept, err error) {
	return []worker.Kept{{Declaration: worker.Declaration{Name: "acme.bake"}}}, nil
}

// anything is a Function that takes and answers everything.
type anything struct{ worker.Function }

func (anything) CheckResult(json.RawMessage) error { return nil }

func (anything) SecretArguments() []string { return nil }

// bakery is a hub with one worker that has room for so many calls.
func bakery(t *testing.T, room int) (*kept, *worker.Hub, *worker.Session) {
	t.Helper()
	store := &kept{}
	hub, session := bakeryWith(t, store, clock.System(), room, nil)
	return store, hub, session
}

// bakeryWith calls taking at the beginning of each look; nil: nothing.
func bakeryWith(t *testing.T, store *kept, wall clock.Clock, room int, taking func(*worker.Hub)) (*worker.Hub, *worker.Session) {
	t.Helper()
	log := bustest.Log(t)
	compile := func(worker.Declaration) (worker.Function, error) { return anything{}, nil }
	hub := worker.NewHub(worker.Deps{
		Store: store, Catalogue: worker.NewCatalogue(store, compile, wall, log), Heartbeat: time.Hour, Poll: time.Hour, Clock: wall, Log: log,
	})
	if taking != nil {
		store.taking = func() { taking(hub) }
	}
	session, err := hub.Open(t.Context(), worker.Opening{
		Organization: 1, Prefix: "acme", Name: "oven", InFlight: room, Functions: []worker.Declaration{{Name: "acme.bake", Effect: "reads"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var parts sync.WaitGroup
	parts.Go(func() { _ = hub.Run(ctx) })
	parts.Go(func() { _ = session.Run(ctx) })
	t.Cleanup(func() { cancel(); parts.Wait() })
	return hub, session
}

// roomOf waits for room: a look keeps all of it while it lasts.
func roomOf(t *testing.T, hub *worker.Hub) (room *activity.Room) {
	t.Helper()
	wait.For(t, "there is room", func() bool {
		room = hub.Room(1, "acme.bake")
		return room != nil
	})
	return room
}

// later is a clock that can be set forward.
type later struct {
	clock.Clock

	by atomic.Int64
}

func (l *later) Now() time.Time { return l.Clock.Now().Add(time.Duration(l.by.Load())) }

// next is the next call that the worker gets.
func next(t *testing.T, s *worker.Session) worker.Call {
	t.Helper()
	select {
	case m := <-s.Messages():
		if m.Call == nil {
			t.Fatalf("found %+v, expected a call", m)
		}
		return *m.Call
	case <-t.Context().Done():
		t.Fatal("the worker got no call")
		return worker.Call{}
	}
}

func TestACallIsGivenToTheWorkerThatHasRoom(t *testing.T) {
	t.Parallel()
	_, hub, session := bakery(t, 2)
	if hub.Room(2, "acme.bake") != nil || hub.Room(1, "acme.fry") != nil {
		t.Fatal("found room of another organization or for another Function, expected none")
	}
	first := roomOf(t, hub)
	second := roomOf(t, hub)
	if first.Holder != session.ID() {
		t.Fatalf("found room at session %s, expected %s", first.Holder, session.ID())
	}
	if third := hub.Room(1, "acme.bake"); third != nil {
		t.Fatal("found room for a third call, expected none")
	}
	second.Leave("")
	first.Give(activity.Offer{ID: "bread", Execution: 7, Workflow: "morning", Args: json.RawMessage(`{}`)})
	first.Give(activity.Offer{ID: "bread"})
	first.Leave("")
	if c := next(t, session); c.ID != "bread" || c.Attempt != 1 || c.Execution != 7 || c.Workflow != "morning" || c.Organization != 1 {
		t.Errorf("found %+v, expected the first attempt at bread", c)
	}
	if err := session.Answer(t.Context(), "bread", json.RawMessage(`1`), nil); err != nil {
		t.Fatal(err)
	}
	roomOf(t, hub).Give(activity.Offer{ID: "cake"})
	if c := next(t, session); c.ID != "cake" {
		t.Errorf("found %+v, expected the cake", c)
	}
}

// A run that calls without end must not keep a worker from calls that have waited for longer.
func TestACallThatWaitsIsNotOvertaken(t *testing.T) {
	t.Parallel()
	store, hub, session := bakery(t, 1)
	roomOf(t, hub).Give(activity.Offer{ID: "bread"})
	next(t, session)
	store.offer("cake")
	hub.Offered(1, "acme.bake")
	if err := session.Answer(t.Context(), "bread", json.RawMessage(`1`), nil); err != nil {
		t.Fatal(err)
	}
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room before the call that waits was taken, expected none")
	}
	if c := next(t, session); c.ID != "cake" {
		t.Errorf("found %+v, expected the cake", c)
	}
}

func TestADrainWaitsForACallThatIsBeingStored(t *testing.T) {
	t.Parallel()
	_, hub, session := bakery(t, 1)
	room := roomOf(t, hub)
	session.Drain(t.Context())
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room at a worker that drains, expected none")
	}
	select {
	case m := <-session.Messages():
		t.Fatalf("found %+v before the call was stored, expected nothing", m)
	default:
	}
	room.Leave("")
	if m := <-session.Messages(); !m.Drained {
		t.Errorf("found %+v, expected the end of the drain", m)
	}
}

func TestACallOfASessionThatHasEndedIsOfferedAgain(t *testing.T) {
	t.Parallel()
	store, hub, session := bakery(t, 1)
	room := roomOf(t, hub)
	session.Close(t.Context())
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room at a session that has ended, expected none")
	}
	room.Give(activity.Offer{ID: "bread"})
	wait.For(t, "the call is released", func() bool { return store.isReleased("bread") })
}

// A worker never has more than it takes: what a look may find has its place, and a call that comes meanwhile is found by the next look.
func TestAWorkerHasNoMoreThanItTakes(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	store := &kept{}
	hub, session := bakeryWith(t, store, clock.System(), 2, func(h *worker.Hub) {
		if looks.Add(1) > 1 {
			return
		}
		if h.Room(1, "acme.bake") != nil {
			t.Error("found room during a look for as many calls as there is room for, expected none")
		}
		store.offer("bread")
	})
	if c := next(t, session); c.ID != "bread" {
		t.Errorf("found %+v, expected the bread", c)
	}
	wait.For(t, "the worker is looked after again", func() bool { return looks.Load() >= 2 })
	roomOf(t, hub)
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room for a third call, expected none")
	}
}

// A commit whose outcome is unknown may have stored its calls, and one that took long may have stored them for too short a time.
func TestACallThatMayBeStoredIsOfferedToAll(t *testing.T) {
	t.Parallel()
	store, wall := &kept{}, &later{Clock: clock.System()}
	hub, _ := bakeryWith(t, store, wall, 1, nil)
	roomOf(t, hub).Leave("bread")
	wait.For(t, "the bread is released", func() bool { return store.isReleased("bread") })
	late := roomOf(t, hub)
	wall.by.Store(int64(40 * time.Minute))
	late.Give(activity.Offer{ID: "cake"})
	wait.For(t, "the cake is released", func() bool { return store.isReleased("cake") })
}

// A drain that begins during a look ends behind it.
func TestADrainWaitsForALook(t *testing.T) {
	t.Parallel()
	looking, drained := make(chan struct{}), make(chan struct{})
	_, session := bakeryWith(t, &kept{}, clock.System(), 1, func(*worker.Hub) {
		close(looking)
		<-drained
	})
	<-looking
	session.Drain(t.Context())
	close(drained)
	if m := <-session.Messages(); !m.Drained {
		t.Errorf("found %+v, expected the end of the drain", m)
	}
}
