package handoff

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Programs reads drivers that were kept.
type Programs interface {
	// Program is a program of a driver whose bytes were kept.
	Program(content []byte, program string) (Program, error)
}

// Program is a driver's program with the modules it may load.
type Program struct {
	Source  []byte
	Modules map[string][]byte
}

// Engine runs workflows.
type Engine interface {
	// Start submits a workflow; the same again answers the same handle (D5).
	Start(ctx context.Context, w Workflow) (ref string, err error)
	// Cancel asks a workflow to stop. NotFound when there is none.
	Cancel(ctx context.Context, organization int64, workflowID, reason string) error
	// DeclareAgents says whose agents are; runs of other organizations cannot call them.
	DeclareAgents(ctx context.Context, agents []core.AgentOwner) error
}

// Workflow is what Engine.Start submits.
type Workflow struct {
	Organization int64
	ID           string
	Program      Program
	Inputs       json.RawMessage
	Labels       map[string]string
	// Agents are those of the organization: it may be the first that the engine hears of one.
	Agents []int64
	// Trace is where what it does is to be recorded, in W3C form; empty for that of the call.
	Trace string
}

// declareAtOnce is how many agents are declared in one call.
const declareAtOnce = 5000

// DeclareAgents declares to the engine which organization owns each agent, so that no run calls those of another one. It is all
// of them again each time: repeated declarations change nothing there, and lost ones are made again.
func (u *UseCases) DeclareAgents(ctx context.Context, engine Engine) error {
	owners, err := u.store.AgentOwners(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(owners, declareAtOnce) {
		ctx, cancel := context.WithTimeout(ctx, handoffCall)
		err := engine.DeclareAgents(ctx, some)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
