package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// PinPlaces implements rollout.Tx.
func (t *tx) PinPlaces(ctx context.Context, rollout, environment int64, places []core.Place, weights []int) error {
	encoded, err := json.Marshal(append([]core.Place{}, places...))
	if err != nil {
		return fmt.Errorf("encode places of rollout %d: %w", rollout, err)
	}
	p := query.InsertRolloutPlacesParams{
		OrganizationID: t.organization, RolloutID: rollout, EnvironmentID: environment, Places: encoded,
		Weights: []int32{},
	}
	for _, w := range weights {
		p.Weights = append(p.Weights, int32(w))
	}
	return pg.Classify(t.q.InsertRolloutPlaces(ctx, p), "pin places of rollout %d", rollout)
}

// PinnedPlaces implements rollout.Tx.
func (t *tx) PinnedPlaces(ctx context.Context, rollout, environment int64) (places []core.Place, weights []int, err error) {
	row, err := t.q.RolloutPlaces(ctx, t.organization, rollout, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, pg.Classify(err, "read places of rollout %d", rollout)
	}
	for _, w := range row.Weights {
		weights = append(weights, int(w))
	}
	if err := json.Unmarshal(row.Places, &places); err != nil {
		return nil, nil, fmt.Errorf("decode places of rollout %d: %w", rollout, err)
	}
	return places, weights, nil
}

// SetDirectChanges implements setup.Tx.
func (t *tx) SetDirectChanges(ctx context.Context, environment int64, allowed bool) error {
	return pg.Classify(t.q.SetDirectChanges(ctx, t.organization, environment, allowed), "set direct changes of environment %d", environment)
}

// DirectChanges implements setup.PlacesTx and view.Reads.
func (r reader) DirectChanges(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error) {
	allowed := map[int64]bool{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		ids, err := q.DirectChanges(ctx, organization, environments)
		for _, one := range ids {
			allowed[one] = true
		}
		return pg.Classify(err, "read direct changes of %d environments", len(environments))
	})
	return allowed, err
}

// AnnouncePlaces implements setup.PlacesTx.
func (t *tx) AnnouncePlaces(ctx context.Context, at time.Time, all ...core.Territory) error {
	if len(all) == 0 {
		return nil
	}
	sequence, err := t.q.PlacesSequence(ctx)
	if err != nil {
		return pg.Classify(err, "number the places of environment %d", all[0].EnvironmentID)
	}
	events := make([]event.Sealed, len(all))
	for i, territory := range all {
		events[i], err = event.Make(event.Header{
			ID: id.New(at), Source: Source, Organization: t.organization,
			Correlation: "environment-" + strconv.FormatInt(territory.EnvironmentID, 10), Time: at,
		}, event.EnvironmentPlacesChanged{
			EnvironmentID: territory.EnvironmentID, Name: territory.Name, ApplicationID: territory.ApplicationID, Sequence: sequence,
			Protected: territory.Protected, Archived: territory.Archived, Places: eventPlaces(territory.Places),
		})
		if err != nil {
			return fmt.Errorf("make the event of the places of environment %d: %w", territory.EnvironmentID, err)
		}
	}
	return t.deps.Publish(ctx, outgoing{t.pgx, t.line}, events...)
}

// eventPlaces are places as events have them.
func eventPlaces(places []core.Place) []event.Place {
	all := make([]event.Place, len(places))
	for i, p := range places {
		all[i] = event.Place(p)
	}
	return all
}

// EnvironmentsAfter implements setup.Store.
func (s *Store) EnvironmentsAfter(ctx context.Context, behind int64, most int) ([]setup.PlacedEnvironment, error) {
	rows, err := query.New(s.deps.Pool).EnvironmentsAfter(ctx, behind, int32(most))
	return convertAll(rows, func(r query.EnvironmentsAfterRow) setup.PlacedEnvironment { return setup.PlacedEnvironment(r) }),
		pg.Classify(err, "read environments behind %d", behind)
}
