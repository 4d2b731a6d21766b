package handoff

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Functions looks up what programs can call. The engine keeps it.
type Functions interface {
	// ListFunctions has all of an organization, by name: those of the engine and those of its workers.
	ListFunctions(ctx context.Context, organization int64) ([]Function, error)
}

// FunctionEffect is what a Function does to anything outside of the engine.
type FunctionEffect string

// The effects.
const (
	FunctionReads     FunctionEffect = "reads"
	FunctionChanges   FunctionEffect = "changes"
	FunctionTakesBack FunctionEffect = "takes_back"
	// FunctionSpecial is of Functions of the engine that are neither: their documentation says what they do.
	FunctionSpecial FunctionEffect = "special"
)

// Function is what programs can call.
type Function struct {
	Name string
	// Doc is Markdown. Of a worker's Function, the worker has written it.
	Doc    string
	Effect FunctionEffect
	// ArgumentsSchema and ResultSchema are those that a worker has declared; nil for none.
	ArgumentsSchema, ResultSchema json.RawMessage
	// Worker is set for a Function of workers, of which so many are Connected to one process of the engine.
	Worker    bool
	Connected int
	// RegisteredAt is when workers have declared it as it is; nil for a Function of the engine.
	RegisteredAt *time.Time
	// RegisteredBy is the name of the token that it was declared with, RegisteredByWorker the worker's name and RegisteredByVersion the
	// version of its program; empty where that is not known.
	RegisteredBy, RegisteredByWorker, RegisteredByVersion string
}

// Functions are what programs of the actor's organization can call.
func (u *UseCases) Functions(ctx context.Context, a core.Actor) ([]Function, error) {
	return u.workflows.ListFunctions(ctx, a.Organization)
}
