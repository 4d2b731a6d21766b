package domain

import (
	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// agentKeys are keys as NATS has them.
type agentKeys struct{}

var _ core.Keys = agentKeys{}

// New implements core.Keys.
func (agentKeys) New() (public, seed string, err error) { return bus.NewKey() }
