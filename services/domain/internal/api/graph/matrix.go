package graph

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// Applications beside environments: the matrix, and its cells.

// Matrix is one page of it.
func (q query) Matrix(
	ctx context.Context, first *int, after *string, last *int, before *string, filter *model.MatrixFilter, orderBy *core.Order,
) (model.MatrixConnection, error) {
	p, err := page(matrixPage, first, after, last, before, orderBy)
	if err != nil {
		return model.MatrixConnection{}, err
	}
	var f core.MatrixFilter
	if filter != nil {
		f = core.MatrixFilter{
			Contains: orEmpty(filter.Text), Drivers: filter.Drivers, States: filter.States, Healths: filter.Health,
			Waiting: filter.Waiting,
		}
		for _, environment := range filter.Environments {
			id, err := environmentNumber(ctx, q.domain.View, environment)
			if err != nil {
				return model.MatrixConnection{}, err
			}
			f.EnvironmentIDs = append(f.EnvironmentIDs, id)
		}
	}
	organization := loadersOf(ctx).actor.Organization
	s, environments, err := q.domain.View.Matrix(ctx, organization, f, p)
	return model.MatrixConnection(model.Connect[model.MatrixEdge](s, func(a core.Application) model.MatrixRow {
		return model.MatrixRow{Application: model.WrapApplication(a), Environments: environments}
	}, func(ctx context.Context) (int, error) { return q.domain.View.CountMatrix(ctx, organization, f) })), err
}

// matrixRow resolves the fields of MatrixRow that are loaded.
type matrixRow struct{}

// Newest is the newest version set of the application.
func (matrixRow) Newest(ctx context.Context, r *model.MatrixRow) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).newestSetOf, r.Application.ID, model.WrapVersionSet)
}

// Cells are where the application stands, in the environments that are shown.
func (matrixRow) Cells(ctx context.Context, r *model.MatrixRow) ([]model.ApplicationEnvironment, error) {
	all, _, err := loadersOf(ctx).cellsOf.load(ctx, r.Application.ID)
	if err != nil {
		return nil, err
	}
	shown := []model.ApplicationEnvironment{}
	for _, one := range all {
		if r.Environments == nil || slices.Contains(r.Environments, one.EnvironmentID) {
			shown = append(shown, model.WrapApplicationEnvironment(one))
		}
	}
	return shown, nil
}

// Gates are those that hold it up there.
func (applicationEnvironment) Gates(ctx context.Context, e *model.ApplicationEnvironment) ([]model.Gate, error) {
	latest := e.Cell.Latest
	if latest == nil || latest.State.Terminal() {
		return []model.Gate{}, nil
	}
	return list(ctx, loadersOf(ctx).gatesOfStop, latest.ID, model.WrapGate)
}

// ValidateDriverConfig says what is wrong with a configuration. That it is wrong is the answer, not an error.
func (q query) ValidateDriverConfig(
	_ context.Context, driverRef string, kind *setup.DriverConfigKind, config json.RawMessage,
) ([]model.ConfigProblem, error) {
	asked := setup.EnvironmentConfig
	if kind != nil {
		asked = *kind
	}
	problems, err := q.domain.Setup.ValidateDriverConfig(driverRef, asked, config)
	return wrapAll(problems, wrapProblem), err
}

// Contact reports whether anybody can be reached who acts there; null before anybody was heard of.
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
