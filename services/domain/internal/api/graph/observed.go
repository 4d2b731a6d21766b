package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
)

// Contact is whether anybody can be reached who acts there; null before anybody was heard of.
func (environment) Contact(ctx context.Context, e *model.Environment) (*model.Contact, error) {
	return optional(ctx, loadersOf(ctx).contactOf, e.ID, model.WrapContact)
}

// Healths are those of the services that were seen there.
func (environment) Healths(ctx context.Context, e *model.Environment) ([]model.ServiceHealth, error) {
	return list(ctx, loadersOf(ctx).healthsOf, e.ID, model.WrapServiceHealth)
}

// serviceHealth resolves the fields of ServiceHealth.
type serviceHealth struct{}

// Service is whose health it is.
func (serviceHealth) Service(ctx context.Context, h *model.ServiceHealth) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, h.ServiceID, model.WrapService)
}
