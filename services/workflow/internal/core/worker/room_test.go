package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
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

	mu       sync.Mutex
	offered  []worker.Call
	released []string
}

func (k *kept) TakeOffers(_ context.Context, t worker.Taking) ([]worker.Call, error) {
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

// bakery is a hub with one worker that has room for so many calls.
func bakery(t *testing.T, room int) (*kept, *worker.Hub, *worker.Session) {
	t.Helper()
	store, log := &kept{}, bustest.Log(t)
	compile := func(worker.Declaration) (worker.Function, error) { return anything{}, nil }
	hub := worker.NewHub(worker.Deps{
		Store: store, Catalogue: worker.NewCatalogue(store, compile, clock.System(), log), Heartbeat: time.Hour, Poll: time.Hour,
		Clock: clock.System(), Log: log,
	})
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
	return store, hub, session
}

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
	first, second := hub.Room(1, "acme.bake"), hub.Room(1, "acme.bake")
	if first == nil || second == nil || first.Holder != session.ID() {
		t.Fatalf("found %v and %v, expected room for two at session %s", first, second, session.ID())
	}
	if third := hub.Room(1, "acme.bake"); third != nil {
		t.Fatal("found room for a third call, expected none")
	}
	second.Leave()
	first.Give(activity.Offer{ID: "bread", Execution: 7, Workflow: "morning", Args: json.RawMessage(`{}`)})
	first.Give(activity.Offer{ID: "bread"})
	first.Leave()
	if c := next(t, session); c.ID != "bread" || c.Attempt != 1 || c.Execution != 7 || c.Workflow != "morning" || c.Organization != 1 {
		t.Errorf("found %+v, expected the first attempt at bread", c)
	}
	if err := session.Answer(t.Context(), "bread", json.RawMessage(`1`), nil); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "there is room again", func() bool {
		room := hub.Room(1, "acme.bake")
		if room == nil {
			return false
		}
		room.Give(activity.Offer{ID: "cake"})
		return true
	})
	if c := next(t, session); c.ID != "cake" {
		t.Errorf("found %+v, expected the cake", c)
	}
}

// A run that calls without end must not keep a worker from calls that have waited for longer.
func TestACallThatWaitsIsNotOvertaken(t *testing.T) {
	t.Parallel()
	store, hub, session := bakery(t, 1)
	hub.Room(1, "acme.bake").Give(activity.Offer{ID: "bread"})
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
	room := hub.Room(1, "acme.bake")
	session.Drain(t.Context())
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room at a worker that drains, expected none")
	}
	select {
	case m := <-session.Messages():
		t.Fatalf("found %+v before the call was stored, expected nothing", m)
	default:
	}
	room.Leave()
	if m := <-session.Messages(); !m.Drained {
		t.Errorf("found %+v, expected the end of the drain", m)
	}
}

func TestACallOfASessionThatHasEndedIsOfferedAgain(t *testing.T) {
	t.Parallel()
	store, hub, session := bakery(t, 1)
	room := hub.Room(1, "acme.bake")
	session.Close(t.Context())
	if hub.Room(1, "acme.bake") != nil {
		t.Error("found room at a session that has ended, expected none")
	}
	room.Give(activity.Offer{ID: "bread"})
	wait.For(t, "the call is released", func() bool { return store.isReleased("bread") })
}
