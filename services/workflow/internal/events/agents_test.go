package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// kept is a store of heartbeats that may be away.
type kept struct {
	agent.ReportStore
	mu    sync.Mutex
	away  bool
	saved []string
}

func (k *kept) SaveBeats(_ context.Context, beats []agent.Beat) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return errors.New("the database is away")
	}
	text := ""
	for _, b := range beats {
		text += fmt.Sprintf("%d %t %s; ", b.Agent, b.Reachable, b.Message)
	}
	k.saved = append(k.saved, text)
	return nil
}

func (k *kept) set(away bool) (saved []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	saved, k.saved, k.away = k.saved, nil, away
	return saved
}

// Heartbeats that come together are one statement, of each agent the newest; while the database is away they wait, and do not pile up (D65).
func TestHeartbeatsAreStoredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, log := &kept{}, slog.New(slog.DiscardHandler)
		watches := NewWatches(WatchesDeps{Store: &wanted{}, Bus: &sets{}, Clock: clock.System(), Log: log})
		a := NewAgents(AgentsDeps{Store: store, Watches: watches, Clock: clock.System(), Log: log})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = a.Listen(ctx) }()
		defer func() { cancel(); <-ended }()
		expect := func(when string, after time.Duration, away bool, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := store.set(away); !slices.Equal(got, want) {
				t.Errorf("%s: found %q, expected %q", when, got, want)
			}
		}
		beat := func(number int64, message string) {
			a.heard(event.AgentHeartbeat{AgentID: number, ClusterReachable: message == "", Message: message})
		}
		beat(2, "")
		beat(1, "")
		time.Sleep(beatsTogether / 2)
		beat(2, "no cluster")
		expect("too early", 0, false)
		expect("collected", beatsTogether, true, "1 true ; 2 false no cluster; ")
		beat(1, "")
		beat(2, "first")
		expect("the database is away", time.Minute, true)
		beat(2, "second")
		expect("still", time.Minute, false)
		expect("it is back", 2*time.Second, false, "1 true ; 2 false second; ")
		expect("nobody speaks", time.Hour, false)
	})
}
