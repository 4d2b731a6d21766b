package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

const (
	// catalogueRefresh is how late a replica may learn of a declaration that was replaced at another one. One that is missing is looked up at
	// once, but not more often than every cataloguePause: a program may name any number.
	catalogueRefresh = 5 * time.Second
	cataloguePause   = 200 * time.Millisecond
)

// Catalogue has the Functions of organizations as the store has them. It is safe for concurrent use.
type Catalogue struct {
	store   Store
	compile func(Declaration) (Function, error)
	clock   clock.Clock
	log     *slog.Logger

	mu    sync.Mutex
	known map[int64]registered
}

type registered struct {
	at     time.Time
	byName map[string]Function
}

var _ activity.Registered = (*Catalogue)(nil)

// NewCatalogue makes a Catalogue that has read nothing yet. compile makes Functions of declarations.
func NewCatalogue(store Store, compile func(Declaration) (Function, error), wall clock.Clock, log *slog.Logger) *Catalogue {
	return &Catalogue{store: store, compile: compile, clock: wall, log: log, known: map[int64]registered{}}
}

// Registered implements activity.Registered.
func (c *Catalogue) Registered(ctx context.Context, organization int64, name string) (activity.Function, bool, error) {
	f, found, err := c.Function(ctx, organization, name)
	if !found {
		return nil, false, err
	}
	return f, true, nil
}

// Function finds a Function of an organization.
func (c *Catalogue) Function(ctx context.Context, organization int64, name string) (Function, bool, error) {
	now := c.clock.Now()
	c.mu.Lock()
	known, read := c.known[organization]
	c.mu.Unlock()
	f, found := known.byName[name]
	age := now.Sub(known.at)
	if read && age >= 0 && (found && age < catalogueRefresh || !found && age < cataloguePause) {
		return f, found, nil
	}
	fresh, err := c.read(ctx, organization, now)
	if err != nil {
		return nil, false, err
	}
	f, found = fresh.byName[name]
	return f, found, nil
}

// Forget has the next use of an organization's Functions read them again.
func (c *Catalogue) Forget(organization int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, organization)
}

func (c *Catalogue) read(ctx context.Context, organization int64, now time.Time) (registered, error) {
	all, err := c.store.Declarations(ctx, organization)
	if err != nil {
		return registered{}, fmt.Errorf("read the functions of workers: %w", err)
	}
	fresh := registered{at: now, byName: make(map[string]Function, len(all))}
	for _, kept := range all {
		f, err := c.compile(kept.Declaration)
		if err != nil { // it was checked when it was registered, perhaps by another release
			c.log.WarnContext(ctx, "declaration of a worker's function is invalid", "function", kept.Name, "organization", organization, "error", err)
			continue
		}
		fresh.byName[kept.Name] = f
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[organization] = fresh
	return fresh, nil
}

// List returns the declarations of an organization, by name.
func (c *Catalogue) List(ctx context.Context, organization int64) ([]Kept, error) {
	return c.store.Declarations(ctx, organization)
}
