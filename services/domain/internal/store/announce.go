package store

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Source is the source of the domain's events.
const Source = "/services/domain"

// Announce implements core.Tx: the event is made here, once, in the transaction, and keeps its id however often it is sent.
func (t *tx) Announce(ctx context.Context, r core.GateResolved) error {
	data := event.ApprovalResolved{
		RolloutID: r.RolloutID, GateID: r.GateID, Resolution: "rejected",
		PrincipalType: string(r.Type), PrincipalID: r.ID, Reason: r.Reason,
	}
	if r.Approved {
		data.Resolution = "approved"
	}
	e, err := event.New(event.Header{
		ID: id.New(r.At), Source: Source, Organization: r.Organization, Correlation: fmt.Sprintf("rollout-%d", r.RolloutID), Time: r.At,
	}, data)
	if err != nil {
		return fmt.Errorf("make event of gate %q: %w", r.GateID, err)
	}
	return t.deps.Publish(ctx, t.pgx, e)
}
