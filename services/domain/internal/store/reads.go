package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Organization implements view.Reads.
func (r reader) Organization(ctx context.Context, organization int64) (o core.Organization, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.GetOrganization(ctx, organization)
		o = core.Organization{ID: row.ID, Name: row.Name, CreatedAt: row.CreatedAt}
		return missing(err, "organization", organization)
	})
	return o, err
}

// ApplicationByName implements view.Reads.
func (r reader) ApplicationByName(ctx context.Context, organization int64, name string) (a core.Application, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.ApplicationByName(ctx, organization, name)
		if errors.Is(err, pgx.ErrNoRows) {
			row, err = q.ApplicationByFormerName(ctx, organization, name)
		}
		a = application(row)
		return missing(err, "application", name)
	})
	return a, err
}

// ApplicationsByID implements view.Reads.
func (r reader) ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error) {
	return byKey(ctx, r, organization, ids, "applications", (*query.Queries).ApplicationsByID,
		keyed(application, func(a core.Application) int64 { return a.ID }))
}

// ServicesByID implements view.Reads.
func (r reader) ServicesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Service, error) {
	return byKey(ctx, r, organization, ids, "services", (*query.Queries).ServicesByID,
		keyed(service, func(s core.Service) int64 { return s.ID }))
}

// ServicesByApplication implements view.Reads.
func (r reader) ServicesByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Service, error) {
	return under(ctx, r, organization, applications, "services", (*query.Queries).ServicesByApplication,
		keyed(service, func(s core.Service) int64 { return s.ApplicationID }))
}

// ArtifactSources implements view.Reads.
func (r reader) ArtifactSources(
	ctx context.Context, organization int64, f core.SourceFilter, p core.Page,
) (core.Slice[core.ArtifactSource], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "artifact sources",
		func(q *query.Queries, w core.Window) ([]query.ArtifactSource, error) {
			return q.ListArtifactSources(ctx, query.ListArtifactSourcesParams{
				OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, ApplicationID: f.ApplicationID,
				Falling: w.Falling, AtMost: limit(w),
			})
		}, artifactSource, numbered(func(a core.ArtifactSource) int64 { return a.ID }))
}

// CountArtifactSources implements view.Counts.
func (r reader) CountArtifactSources(ctx context.Context, organization int64, f core.SourceFilter) (int, error) {
	return count(ctx, r, organization, "artifact sources", func(q *query.Queries) (int64, error) {
		return q.CountArtifactSources(ctx, organization, f.ApplicationID)
	})
}

// ArtifactSourcesByID implements view.Reads.
func (r reader) ArtifactSourcesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ArtifactSource, error) {
	return byKey(ctx, r, organization, ids, "artifact sources", (*query.Queries).ArtifactSourcesByID,
		keyed(artifactSource, func(s core.ArtifactSource) int64 { return s.ID }))
}

// ArtifactSourcesByService implements view.Reads.
func (r reader) ArtifactSourcesByService(
	ctx context.Context, organization int64, services []int64,
) (map[int64][]core.ArtifactSource, error) {
	return under(ctx, r, organization, services, "artifact sources", (*query.Queries).ArtifactSourcesByService,
		keyed(artifactSource, func(s core.ArtifactSource) int64 { return s.ServiceID }))
}

// VersionsByID implements view.Reads.
func (r reader) VersionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Version, error) {
	return byKey(ctx, r, organization, ids, "versions", (*query.Queries).VersionsByID,
		keyed(version, func(v core.Version) int64 { return v.ID }))
}

// VersionsBySource implements view.Reads.
func (r reader) VersionsBySource(
	ctx context.Context, organization int64, sources []int64, p core.Page,
) (map[int64]core.Slice[core.Version], error) {
	return pages(ctx, r, organization, sources, p, core.OrderCreatedDesc, "versions",
		func(q *query.Queries, ids []int64, w core.Window) ([]query.Version, error) {
			return q.VersionsBySource(ctx, query.VersionsBySourceParams{
				OrganizationID: organization, Ids: ids, Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
			})
		}, func(row query.Version) (int64, core.Version) { return row.ArtifactSourceID, version(row) },
		func(one core.Version) int64 { return one.ID })
}

// CountVersionsBySource implements view.Counts.
func (r reader) CountVersionsBySource(ctx context.Context, organization int64, sources []int64) (map[int64]int, error) {
	return byKey(ctx, r, organization, sources, "numbers of versions", (*query.Queries).CountVersionsBySource,
		func(row query.CountVersionsBySourceRow) (int64, int) {
			return row.ID, int(row.Items)
		})
}

// VersionSetsByID implements view.Reads.
func (r reader) VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error) {
	return byKey(ctx, r, organization, ids, "version sets", (*query.Queries).VersionSetsByID,
		keyed(versionSet, func(s core.VersionSet) int64 { return s.ID }))
}

// VersionSetsByApplication implements view.Reads.
func (r reader) VersionSetsByApplication(
	ctx context.Context, organization int64, applications []int64, p core.Page,
) (map[int64]core.Slice[core.VersionSet], error) {
	return pages(ctx, r, organization, applications, p, core.OrderCreatedDesc, "version sets",
		func(q *query.Queries, ids []int64, w core.Window) ([]query.VersionSet, error) {
			return q.VersionSetsByApplication(ctx, query.VersionSetsByApplicationParams{
				OrganizationID: organization, Ids: ids, Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, AtMost: limit(w),
			})
		}, func(row query.VersionSet) (int64, core.VersionSet) { return row.ApplicationID, versionSet(row) },
		func(one core.VersionSet) int64 { return one.ID })
}

// CountVersionSetsByApplication implements view.Counts.
func (r reader) CountVersionSetsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64]int, error) {
	return byKey(ctx, r, organization, applications, "numbers of version sets", (*query.Queries).CountVersionSetsByApplication,
		func(row query.CountVersionSetsByApplicationRow) (int64, int) {
			return row.ID, int(row.Items)
		})
}

// EntriesByVersionSet implements view.Reads.
func (r reader) EntriesByVersionSet(
	ctx context.Context, organization int64, versionSets []int64,
) (map[int64][]core.VersionSetEntry, error) {
	return under(ctx, r, organization, versionSets, "version set entries", (*query.Queries).EntriesByVersionSet,
		func(e query.EntriesByVersionSetRow) (int64, core.VersionSetEntry) {
			return e.VersionSetID, core.VersionSetEntry{
				VersionSetID: e.VersionSetID, ServiceID: e.ServiceID, ArtifactSourceID: e.ArtifactSourceID,
				VersionID: e.VersionID,
			}
		})
}

// EnvironmentByName implements view.Reads.
func (r reader) EnvironmentByName(ctx context.Context, organization int64, name string) (e core.Environment, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.EnvironmentByName(ctx, organization, name)
		if errors.Is(err, pgx.ErrNoRows) {
			row, err = q.EnvironmentByDisplayName(ctx, organization, name)
		}
		e = environment(row)
		return missing(err, "environment", name)
	})
	return e, err
}

// EnvironmentsShownAs implements core.ShownReads.
func (r reader) EnvironmentsShownAs(ctx context.Context, organization int64, display []string) (map[string]string, error) {
	if len(display) == 0 {
		return nil, nil
	}
	names := map[string]string{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.EnvironmentsShownAs(ctx, organization, display)
		for _, row := range rows {
			names[row.DisplayName] = row.Name
		}
		return pg.Classify(err, "read the names of %d environments", len(display))
	})
	return names, err
}

// EnvironmentsByID implements view.Reads.
func (r reader) EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error) {
	return byKey(ctx, r, organization, ids, "environments", (*query.Queries).EnvironmentsByID,
		keyed(environment, func(e core.Environment) int64 { return e.ID }))
}

// DriverBindingsByID implements view.Reads.
func (r reader) DriverBindingsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.DriverBinding, error) {
	return byKey(ctx, r, organization, ids, "driver bindings", (*query.Queries).DriverBindingsByID,
		keyed(driverBinding, func(b core.DriverBinding) int64 { return b.ID }))
}

// DriverBindingsByEnvironment implements view.Reads.
func (r reader) DriverBindingsByEnvironment(
	ctx context.Context, organization int64, environments []int64,
) (map[int64][]core.DriverBinding, error) {
	return under(ctx, r, organization, environments, "driver bindings", (*query.Queries).DriverBindingsByEnvironment,
		keyed(driverBinding, func(b core.DriverBinding) int64 { return b.EnvironmentID }))
}

// FlowDefinitionsByID implements view.Reads.
func (r reader) FlowDefinitionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.FlowDefinition, error) {
	return byKey(ctx, r, organization, ids, "flow definitions", (*query.Queries).FlowDefinitionsByID,
		keyed(flowDefinition, func(f core.FlowDefinition) int64 { return f.ID }))
}

// LatestFlowDefinitions implements view.Reads.
func (r reader) LatestFlowDefinitions(
	ctx context.Context, organization int64, applications []int64,
) (map[int64]core.FlowDefinition, error) {
	return byKey(ctx, r, organization, applications, "flow definitions", (*query.Queries).LatestFlowDefinitions,
		keyed(flowDefinition, func(f core.FlowDefinition) int64 { return f.ApplicationID }))
}

// PipelinesTo implements view.Reads.
func (r reader) PipelinesTo(ctx context.Context, organization, environment, after int64, most int) (all []core.FlowDefinition, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PipelinesTo(ctx, query.PipelinesToParams{
			OrganizationID: organization, EnvironmentID: environment, After: after,
			Most: int32(most),
		})
		all = convertAll(rows, flowDefinition)
		return pg.Classify(err, "read the pipelines to environment %d", environment)
	})
	return all, err
}

// ApplicationEnvironmentsByID implements view.Reads.
func (r reader) ApplicationEnvironmentsByID(
	ctx context.Context, organization int64, ids []int64,
) (map[int64]core.ApplicationEnvironment, error) {
	return byKey(ctx, r, organization, ids, "application environments", (*query.Queries).ApplicationEnvironmentsByID,
		keyed(applicationEnvironment, func(e core.ApplicationEnvironment) int64 { return e.ID }))
}

// ApplicationEnvironmentsByApplication implements view.Reads.
func (r reader) ApplicationEnvironmentsByApplication(
	ctx context.Context, organization int64, applications []int64,
) (map[int64][]core.ApplicationEnvironment, error) {
	return under(ctx, r, organization, applications, "application environments", (*query.Queries).ApplicationEnvironmentsByApplication,
		keyed(applicationEnvironment, func(e core.ApplicationEnvironment) int64 { return e.ApplicationID }))
}
