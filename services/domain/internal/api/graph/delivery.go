package graph

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// DeliveryMetrics are of an application, in each environment of its pipeline or in the one that is named.
func (q query) DeliveryMetrics(
	ctx context.Context, application string, environment *string, since, until *time.Time,
) ([]model.DeliveryMetrics, error) {
	var w view.DeliveryWindow
	var err error
	if w.ApplicationID, err = applicationNumber(ctx, q.domain.View, application); err != nil {
		return nil, err
	}
	if environment != nil {
		id, err := environmentNumber(ctx, q.domain.View, *environment)
		if err != nil {
			return nil, err
		}
		w.EnvironmentIDs = []int64{id}
	}
	if since != nil {
		w.Since = *since
	}
	if until != nil {
		w.Until = *until
	}
	all, err := q.domain.View.DeliveryMetrics(ctx, loadersOf(ctx).actor.Organization, w)
	metrics := make([]model.DeliveryMetrics, len(all))
	for i, one := range all {
		metrics[i] = model.DeliveryMetrics{DeliveryMetrics: one}
	}
	return metrics, err
}

// deliveryMetrics resolves those of DeliveryMetrics.
type deliveryMetrics struct{}

// Environment is where the deployments were.
func (deliveryMetrics) Environment(ctx context.Context, m *model.DeliveryMetrics) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, m.EnvironmentID, model.WrapEnvironment)
}
