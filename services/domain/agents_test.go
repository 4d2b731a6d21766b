package domain

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// of is a user of another organization.
func of(organization int64) core.Actor {
	a := user()
	a.Organization = organization
	return a
}

// TestAgentsAreDeclaredToTheEngine: all of them, those of other organizations and the revoked ones too, and a start brings
// those that its organization may call (R41).
func TestAgentsAreDeclaredToTheEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, _, err := agentKeys{}.New()
	f.ok(err)
	f.ok(f.store.EnsureAgent(t.Context(), org, 42, "bootstrapped", key))
	register := func(organization int64, name string) int64 {
		a, _, err := f.access.RegisterAgent(t.Context(), of(organization), name)
		f.ok(err)
		return a.ID
	}
	ours, gone, theirs := register(org, "ours"), register(org, "gone"), register(2, "theirs")
	_, err = f.access.RevokeAgent(t.Context(), user(), gone)
	f.ok(err)

	f.ok(f.handoffs.DeclareAgents(t.Context(), f.engine))
	want := []core.AgentOwner{
		{AgentID: 42, Organization: org},
		{AgentID: ours, Organization: org},
		{AgentID: gone, Organization: org, Revoked: true},
		{AgentID: theirs, Organization: 2},
	}
	if diff := cmp.Diff(want, f.engine.agents); diff != "" {
		t.Errorf("declared (-want +got):\n%s", diff)
	}

	f.environment("staging", core.TierStaging)
	f.handOver()
	if len(f.engine.started) != 1 {
		t.Fatalf("%d workflows were started, expected the environment's", len(f.engine.started))
	}
	if diff := cmp.Diff([]int64{42, ours}, f.engine.started[0].Agents); diff != "" {
		t.Errorf("the start brings (-want +got):\n%s", diff)
	}
}

// TestAgentsAreDeclaredAtOnceAndAgain: at the start of the service, when one is registered, and after the engine was away.
func TestAgentsAreDeclaredAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	received := make(chan []core.AgentOwner)
	listening := listener{engine: f.engine, received: received, away: 1}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.declareAgents(ctx, &listening) }()
	_, _, err := f.access.RegisterAgent(t.Context(), user(), "ours")
	f.ok(err)
	// The first declaration is refused; whether it knew of the agent already is a matter of timing, what comes in the end is not.
	await := func(count int) {
		t.Helper()
		limit := clock.System().NewTimer(time.Minute)
		defer limit.Stop()
		for {
			select {
			case agents := <-received:
				if len(agents) == count {
					return
				}
			case <-limit.C():
				t.Fatalf("the engine did not learn of %d agents within a minute", count)
			}
		}
	}
	await(1)
	_, _, err = f.access.RegisterAgent(t.Context(), user(), "another")
	f.ok(err)
	await(2)
	stop()
	f.ok(<-done)
}

// listener is an engine that is unreachable at first, and then forwards the agents it is sent.
type listener struct {
	*engine

	received chan<- []core.AgentOwner
	away     int
}

func (l *listener) DeclareAgents(ctx context.Context, agents []core.AgentOwner) error {
	if l.away > 0 {
		l.away--
		return fault.New(fault.Unavailable, "away")
	}
	select {
	case l.received <- agents:
	case <-ctx.Done():
	}
	return nil
}
