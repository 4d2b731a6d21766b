package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// Agent is a relay that programs may call: those of its organization, as long as it has not been revoked (R41, E30).
type Agent struct {
	ID, Organization int64
	Revoked          bool
}

// RegistryStore keeps whose agents are.
type RegistryStore interface {
	// SaveAgents adds declarations of agents to the earlier ones, in one transaction: the first organization of an
	// agent stays its only one, fault.Conflict for another, and Revoked is never taken back.
	SaveAgents(ctx context.Context, agents []Agent) error
	// Agents reads all of them.
	Agents(ctx context.Context) ([]Agent, error)
}

// Owners says whether a run may call an agent.
type Owners interface {
	// Problem says why a run of the organization cannot call the agent, in words for its author; empty when it can. The error
	// says that nothing is known now.
	Problem(ctx context.Context, organization, agent int64) (problem string, err error)
}

const (
	// agentsRefresh is how late this process may learn of an agent that was declared to another one. One that is missing is
	// looked up at once, so this is how long a revoked agent may still be called; its relay is cut off by then.
	agentsRefresh = 5 * time.Second
	// agentsPause is the least time between two looks for agents that are not there: a program may name any number.
	agentsPause = 200 * time.Millisecond
)

// Registry are the agents as this process knows them: all, from the store, in memory.
//
// It is safe for concurrent use.
type Registry struct {
	store RegistryStore
	clock clock.Clock
	log   *slog.Logger
	// changed is raised when there is an agent that was not known before.
	changed wake.Signal

	mu     sync.Mutex
	known  map[int64]Agent
	readAt time.Time
}

var _ Owners = (*Registry)(nil)

// NewRegistry makes Agents that know of nothing yet; Run reads the store.
func NewRegistry(store RegistryStore, c clock.Clock, log *slog.Logger) *Registry {
	return &Registry{store: store, clock: c, log: log, changed: wake.NewSignal(), known: map[int64]Agent{}}
}

// Changed is raised when there is an agent that was not known before.
func (a *Registry) Changed() <-chan struct{} { return a.changed }

// Known are the numbers of the agents that were not revoked, sorted.
func (a *Registry) Known() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var numbers []int64
	for _, number := range slices.Sorted(maps.Keys(a.known)) {
		if !a.known[number].Revoked {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// Run polls for agents that were declared to other processes, until ctx ends.
func (a *Registry) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := a.read(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "reading agents failed", "error", err)
		}
		_ = clock.Sleep(ctx, a.clock, agentsRefresh) // ends early with ctx
	}
	return nil
}

// maxDeclared bounds one declaration.
const maxDeclared = 10000

// Declare adds declarations of agents to those that are known, here and in the store.
func (a *Registry) Declare(ctx context.Context, agents []Agent) error {
	var wrong []fault.Field
	owners := make(map[int64]int64, len(agents))
	if len(agents) > maxDeclared {
		return fault.InvalidFields(fault.Field{Name: "agents", Problem: fmt.Sprintf("found %d, expected at most %d", len(agents), maxDeclared)})
	}
	for i, agent := range agents {
		if owner, twice := owners[agent.ID]; twice && owner != agent.Organization {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("agents[%d].organization_id", i),
				Problem: fmt.Sprintf("found %d for agent %d, and %d before", agent.Organization, agent.ID, owner),
			})
		}
		owners[agent.ID] = agent.Organization
		if agent.ID <= 0 {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("agents[%d].agent_id", i),
				Problem: fmt.Sprintf("found %d, expected a number above zero", agent.ID),
			})
		}
		if agent.Organization <= 0 {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("agents[%d].organization_id", i),
				Problem: fmt.Sprintf("found %d, expected a number above zero", agent.Organization),
			})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	news := a.news(agents)
	if len(news) == 0 {
		return nil // what is in memory was read from the store, where nothing is taken back
	}
	if err := a.store.SaveAgents(ctx, news); err != nil {
		return err
	}
	a.learn(news)
	return nil
}

// news are those of the agents of which something else is known.
func (a *Registry) news(agents []Agent) []Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(agents), func(declared Agent) bool {
		known, ok := a.known[declared.ID]
		return ok && known.Organization == declared.Organization && (known.Revoked || !declared.Revoked)
	})
}

func (a *Registry) learn(agents []Agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, agent := range agents {
		known, ok := a.known[agent.ID]
		agent.Revoked = agent.Revoked || known.Revoked
		a.known[agent.ID] = agent
		if !ok {
			a.changed.Raise()
		}
	}
}

func (a *Registry) read(ctx context.Context) error {
	agents, err := a.store.Agents(ctx)
	if err != nil {
		return err
	}
	a.learn(agents)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readAt = a.clock.Now()
	return nil
}

// Problem implements AgentOwners. The agents of others do not exist for an organization: the words about them are those
// about numbers that nobody has.
func (a *Registry) Problem(ctx context.Context, organization, number int64) (string, error) {
	agent, ok, readAt, none := a.find(number)
	// It may have been declared to another process a moment ago.
	if !ok && a.clock.Now().Sub(readAt) >= agentsPause {
		if err := a.read(ctx); err != nil {
			return "", err
		}
		agent, ok, _, none = a.find(number)
	}
	switch {
	case none:
		// As after an update: the run waits, for to fail it would be wrong as soon as the domain service is back.
		return "", fault.New(fault.Unavailable, "agent ownership is not known yet: waiting for the domain service (or set agent_owners)")
	case !ok || agent.Organization != organization:
		return fmt.Sprintf("found %d, expected the number of an agent of the organization", number), nil
	case agent.Revoked:
		return fmt.Sprintf("found %d, which was revoked; expected the number of an agent of the organization", number), nil
	default:
		return "", nil
	}
}

func (a *Registry) find(number int64) (agent Agent, ok bool, readAt time.Time, none bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent, ok = a.known[number]
	return agent, ok, a.readAt, len(a.known) == 0
}
