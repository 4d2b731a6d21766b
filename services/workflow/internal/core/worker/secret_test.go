package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// answering is a store that keeps answers, and in which a session may lose its calls.
type answering struct {
	kept

	// answers and lost are guarded by kept's mutex.
	answers []worker.Answer
	lost    []string
}

func (s *answering) AnswerOffer(_ context.Context, a worker.Answer) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
	return true, nil
}

func (s *answering) ExtendOffers(context.Context, string, []string, time.Time) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, nil
}

func (*answering) SecretsOf(context.Context, int64) (map[string]string, error) { return nil, nil }

// offerSecretly offers calls with a secret argument.
func (s *answering) offerSecretly(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.offered = append(s.offered, worker.Call{ID: id, Function: "acme.bake", Args: json.RawMessage(`{"key": "bank"}`)})
	}
}

// secretive is a Function with a secret argument.
type secretive struct{ anything }

func (secretive) SecretArguments() []string { return []string{"key"} }

// vault has one value for everybody.
type vault struct {
	mu    sync.Mutex
	value string
}

func (v *vault) SecretFor(ctx context.Context, _ int64, _, _ string, _ map[string]string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	activity.Conceal(ctx, v.value)
	return v.value, nil
}

func (v *vault) rotate(value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
}

// A worker may be given a call twice, and answer it with what it was sent first.
func TestAnAnswerHasNoSecretAfterItsCallWasTakenAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"while the worker has it": false, "after the worker had lost it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, secrets, wall, log := &answering{}, &vault{value: "old-value"}, clock.System(), bustest.Log(t)
			compile := func(worker.Declaration) (worker.Function, error) { return secretive{}, nil }
			hub := worker.NewHub(worker.Deps{
				Store: store, Catalogue: worker.NewCatalogue(store, compile, wall, log), Heartbeat: time.Hour, Poll: time.Hour, Clock: wall,
				Log: log, Secrets: secrets,
			})
			session, err := hub.Open(t.Context(), worker.Opening{
				Organization: 1, Prefix: "acme", Name: "oven", InFlight: 3, Functions: []worker.Declaration{{Name: "acme.bake", Effect: "reads"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			var parts sync.WaitGroup
			parts.Go(func() { _ = hub.Run(ctx) })
			parts.Go(func() { _ = session.Run(ctx) })
			t.Cleanup(func() { cancel(); parts.Wait() })

			store.offerSecretly("bread")
			hub.Offered(1, "acme.bake")
			if c := next(t, session); c.Secrets["key"] != "old-value" {
				t.Fatalf("found the secrets %v, expected the value", c.Secrets)
			}
			secrets.rotate("new-value")
			if lose {
				store.mu.Lock()
				store.lost = []string{"bread"}
				store.mu.Unlock()
				session.Heartbeat()
				if m := <-session.Messages(); m.Cancelled != "bread" {
					t.Fatalf("found %+v, expected that the bread is cancelled", m)
				}
			}
			store.offerSecretly("bread", "cake") // with the cake the bread has been taken again
			hub.Offered(1, "acme.bake")
			for last := ""; last != "cake"; {
				last = next(t, session).ID
			}
			for call, answer := range map[string]string{"bread": "old-value and new-value", "cake": "new-value"} {
				encoded, _ := json.Marshal(answer)
				if err := session.Answer(t.Context(), call, encoded, nil); err != nil {
					t.Fatal(err)
				}
			}
			store.mu.Lock()
			defer store.mu.Unlock()
			for _, a := range store.answers {
				shown := string(a.Value)
				if !strings.Contains(shown, history.Redacted) || strings.Contains(shown, "old-value") || lose && strings.Contains(shown, "new-value") {
					t.Errorf("found the answer %s of %s stored, expected no secret", shown, a.Call)
				}
			}
			if len(store.answers) != 2 {
				t.Errorf("found %d answers, expected 2", len(store.answers))
			}
		})
	}
}
