package domain

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// agentKeys are keys as NATS has them.
type agentKeys struct{}

var _ access.Keys = agentKeys{}

// New implements access.Keys.
func (agentKeys) New() (public, seed string, err error) { return bus.NewKey() }

// admission answers the authority.
type admission struct{ access *access.UseCases }

var _ authority.Keys = admission{}

// Admit implements authority.Keys.
func (a admission) Admit(ctx context.Context, public string) (authority.Admission, error) {
	of, err := a.access.AdmitAgent(ctx, public)
	return authority.Admission{Agent: of.AgentID, Key: of.KeyID}, err
}

// Good implements authority.Keys.
func (a admission) Good(ctx context.Context, keys []int64) (map[int64]bool, error) {
	return a.access.GoodAgentKeys(ctx, keys)
}

// admit says which agents may connect to NATS, where this service has been made the authority of that.
func (s *service) admit(ctx context.Context, c Config, ready func()) error {
	ready()
	if c.NATSAuthoritySeed == "" {
		<-ctx.Done()
		return nil
	}
	identity, err := authority.NewIdentity(c.NATSAuthoritySeed)
	if err != nil {
		return fmt.Errorf("nats_authority_seed: %w", err)
	}
	return authority.Run(ctx, authority.Deps{
		URL: c.NATSURL, TLS: c.NATS.Certificates(), Identity: identity, Keys: admission{s.access}, Changed: s.barred,
		Clock: clock.System(), Log: s.log,
	})
}

// agentsChanged signals that a key may have ended, whose connections are to be cut off now, and that the engine may have something
// to learn.
func (s *service) agentsChanged() {
	for _, changed := range []chan struct{}{s.barred, s.undeclared} {
		select {
		case changed <- struct{}{}:
		// One is waiting already; its receiver looks at everything.
		default:
		}
	}
}

const (
	// declareEvery is how late the engine may learn again what it has lost, or what another replica could not declare.
	declareEvery = time.Minute
	// declareAgain is how soon it is tried again while the engine is away.
	declareAgain = 2 * time.Second
)

// declareAgents declares the owners of agents to the engine, until ctx ends: at the start, on every change, and each declareEvery.
func (s *service) declareAgents(ctx context.Context, engine handoff.Engine) error {
	for ctx.Err() == nil {
		pause := declareEvery
		if err := s.handoffs.DeclareAgents(ctx, engine); err != nil && ctx.Err() == nil {
			pause = declareAgain
			s.log.WarnContext(ctx, "declaring agents to the engine failed; will retry", telemetry.KeyError, err)
		}
		timer := clock.System().NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-s.undeclared:
		}
		timer.Stop()
	}
	return nil
}
