package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// kept is a store of heartbeats that may be away.
type kept struct {
	agent.ReportStore
	mu    sync.Mutex
	away  bool
	saved []string
	looks int
}

func (k *kept) ReportAgents(context.Context, time.Time, time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	return nil
}

func (k *kept) SaveBeats(_ context.Context, beats []agent.Beat) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return errors.New("the database is away")
	}
	text := ""
	for _, b := range beats {
		if b.Message == "cannot be stored" {
			return fault.New(fault.Invalid, "found a character that no text may have")
		}
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

// What an agent says about its cluster is bounded, and has nothing that the database refuses for all that is stored with it.
func TestAnAgentCannotKeepOthersFromBeingHeard(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	a := NewAgents(AgentsDeps{Clock: clock.System(), Log: log})
	cluster := Cluster{Agents: a, Health: NewHealth(), Log: log}
	for i, message := range []string{"a\x00b", "\xff", strings.Repeat("é", 10_000), "no route\nto host"} {
		e, err := event.New(event.Header{ID: fmt.Sprint(i), Source: "/agents/7", Time: noon}, event.AgentHeartbeat{
			AgentID: 7, Message: message, StartedAt: "2026-03-25T12:00:00Z", ObservedAt: "2026-03-25T12:00:00Z",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Handle(t.Context(), bus.Delivery{Event: e, Subject: "cd.cluster.7.heartbeat"}); err != nil {
			t.Errorf("%q: %v", message, err)
			continue
		}
		got := a.unsaved.take()
		if len(got) != 1 || len(got[0].Message) > messageMost+10 ||
			strings.ContainsAny(got[0].Message, "\x00\n") || !utf8.ValidString(got[0].Message) {
			t.Errorf("%q: found %+v", message, got)
		}
	}
}

// While heartbeats cannot be stored no agent is taken for offline.
func TestNobodyIsOfflineBecauseTheDatabaseWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &kept{}
		a := NewAgents(AgentsDeps{Store: store, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		defer func() { cancel(); loops.Wait() }()
		loops.Go(func() { a.report(ctx) })
		loops.Go(func() { a.listen(ctx) })
		looks := func(after time.Duration) (n int) {
			time.Sleep(after)
			synctest.Wait()
			store.mu.Lock()
			defer store.mu.Unlock()
			n, store.looks = store.looks, 0
			return n
		}
		if n := looks(31 * time.Second); n != 3 {
			t.Errorf("found %d looks, expected 3", n)
		}
		store.set(true)
		a.heard(event.AgentHeartbeat{AgentID: 1, ClusterReachable: true})
		if n := looks(3 * time.Second); n != 0 {
			t.Errorf("found %d looks before the next is due", n)
		}
		if n := looks(time.Minute); n != 0 {
			t.Errorf("found %d looks while the database is away, expected none", n)
		}
		store.set(false)
		if n := looks(time.Minute); n < 8 || store.set(false)[0] != "1 true ; " {
			t.Errorf("found %d looks since it is back", n)
		}
	})
}

// Heartbeats that come together are one statement, of each agent the newest; while the database is away they wait, and do not pile up
// (D65).
func TestHeartbeatsAreStoredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, log := &kept{}, slog.New(slog.DiscardHandler)
		watches := NewWatches(WatchesDeps{Store: &wanted{}, Bus: &sets{}, Clock: clock.System(), Log: log})
		a := NewAgents(AgentsDeps{Store: store, Watches: watches, Clock: clock.System(), Log: log})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.listen(ctx) }()
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
		beat(1, "")
		beat(2, "cannot be stored")
		beat(3, "")
		expect("one cannot be stored", time.Second, false, "1 true ; ", "3 true ; ")
	})
}
