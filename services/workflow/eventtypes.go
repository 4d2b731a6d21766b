package workflow

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/eventtypes"
)

// eventTypes are the types of events that organizations have declared.
func eventTypes(pool *pgxpool.Pool, wall clock.Clock, log *slog.Logger) *eventtype.Types {
	return eventtype.New(eventtype.Deps{
		Store: eventtypes.New(pool), Reserved: event.Prefix, Clock: wall, Log: log,
		Compile: func(text []byte) (eventtype.Validate, error) {
			compiled, err := schema.Compile(text)
			if err != nil {
				return nil, err
			}
			return compiled.Validate, nil
		},
	})
}

// checkType says whether programs of an organization may emit events of a type.
func checkType(types *eventtype.Types) func(context.Context, int64, string) *history.FunctionError {
	return func(ctx context.Context, organization int64, eventType string) *history.FunctionError {
		if _, declared, err := types.Of(ctx, organization, eventType); err != nil || declared {
			return nil //nolint:nilerr // what cannot be found out now is no problem of the program; emit looks again
		}
		return events.CheckType(eventType)
	}
}
