package workflow_test

import (
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
)

// Store is all ports of the store that the tests' fixtures need, for doubles that change one method of it.
type Store interface {
	engine.Store
	control.Store
	control.OperatorStore
	agent.CallStore
}
