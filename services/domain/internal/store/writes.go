package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// AddApplication implements setup.Tx.
func (t *tx) AddApplication(ctx context.Context, a core.Application) (core.Application, error) {
	row, err := t.q.InsertApplication(ctx, t.organization, a.Name, a.Description)
	return application(row), pg.Classify(err, "add application %q", a.Name)
}

// AddService implements setup.Tx.
func (t *tx) AddService(ctx context.Context, s core.Service) (core.Service, error) {
	row, err := t.q.InsertService(ctx, query.InsertServiceParams{
		OrganizationID: t.organization, ApplicationID: s.ApplicationID, Name: s.Name,
		Description: s.Description,
	})
	return service(row), pg.Classify(err, "add service %q", s.Name)
}

// AddArtifactSource implements setup.Tx.
func (t *tx) AddArtifactSource(ctx context.Context, s core.ArtifactSource, matchKey string) (core.ArtifactSource, error) {
	row, err := t.q.InsertArtifactSource(ctx, query.InsertArtifactSourceParams{
		OrganizationID: t.organization, ServiceID: s.ServiceID, SourceRef: s.Ref, SourceConfig: s.Config, MatchKey: matchKey,
	})
	return artifactSource(row), pg.Classify(err, "add artifact source to service %d", s.ServiceID)
}

// CommitSources implements setup.Tx.
func (t *tx) CommitSources(ctx context.Context, application int64) (int, error) {
	n, err := t.q.CommitSources(ctx, t.organization, application)
	return int(n), pg.Classify(err, "count the sources of commits of application %d", application)
}

// SaveArtifactSource implements setup.Tx.
func (t *tx) SaveArtifactSource(ctx context.Context, id int64, config json.RawMessage) (core.ArtifactSource, error) {
	row, err := t.q.SaveArtifactSource(ctx, config, t.organization, id)
	return artifactSource(row), missing(err, "artifact source", id)
}

// SaveSourceState implements setup.Tx.
func (t *tx) SaveSourceState(ctx context.Context, s core.ArtifactSource) (core.ArtifactSource, error) {
	row, err := t.q.SetArtifactSourceState(ctx, query.SetArtifactSourceStateParams{
		OrganizationID: t.organization, ID: s.ID, DisabledAt: s.DisabledAt, RemovedAt: s.RemovedAt, ReplacedBy: s.ReplacedBy,
	})
	return artifactSource(row), missing(err, "artifact source", s.ID)
}

// RetireService implements setup.Tx.
func (t *tx) RetireService(ctx context.Context, id int64, at *time.Time) (core.Service, error) {
	row, err := t.q.RetireService(ctx, at, t.organization, id)
	return service(row), missing(err, "service", id)
}

// ReconsiderVersionSet implements setup.Tx.
func (t *tx) ReconsiderVersionSet(ctx context.Context, application int64) error {
	return pg.Classify(t.q.ReconsiderVersionSet(ctx, t.organization, application), "reconsider the version set of application %d", application)
}

// LockApplication implements rollout.Tx and setup.Tx.
func (t *tx) LockApplication(ctx context.Context, id int64) (core.Application, error) {
	row, err := t.q.LockApplication(ctx, t.organization, id)
	return application(row), missing(err, "application", id)
}

// LastRolledOut implements setup.Tx.
func (t *tx) LastRolledOut(ctx context.Context, application int64) (core.FlowDefinition, error) {
	row, err := t.q.LastRolledOut(ctx, t.organization, application)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.FlowDefinition{}, nil
	}
	return flowDefinition(row), pg.Classify(err, "read the pipeline of the last rollout of application %d", application)
}

// AddFlowDefinition implements setup.Tx.
func (t *tx) AddFlowDefinition(ctx context.Context, f core.FlowDefinition) (core.FlowDefinition, error) {
	row, err := t.q.InsertFlowDefinition(ctx, query.InsertFlowDefinitionParams{
		OrganizationID: t.organization, ApplicationID: f.ApplicationID, Version: int32(f.Version), Definition: string(f.Definition),
	})
	return flowDefinition(row), pg.Classify(err, "add flow definition %d of application %d", f.Version, f.ApplicationID)
}

// WantSetup implements setup.Tx.
func (t *tx) WantSetup(ctx context.Context, application, environment int64, reason string) (core.ApplicationEnvironment, error) {
	row, err := t.q.WantSetup(ctx, query.WantSetupParams{
		OrganizationID: t.organization, ApplicationID: application,
		EnvironmentID: environment, ReadinessReason: reason,
	})
	return applicationEnvironment(row), pg.Classify(err, "want application %d set up in environment %d", application, environment)
}

// LockApplicationEnvironment implements setup.ReadinessTx.
func (t *tx) LockApplicationEnvironment(ctx context.Context, id int64) (core.ApplicationEnvironment, error) {
	row, err := t.q.LockApplicationEnvironment(ctx, t.organization, id)
	return applicationEnvironment(row), missing(err, "application environment", id)
}

// LockApplicationsIn implements setup.ReadinessTx.
func (t *tx) LockApplicationsIn(ctx context.Context, environment, after int64, most int) ([]core.ApplicationEnvironment, error) {
	rows, err := t.q.LockApplicationsIn(ctx, query.LockApplicationsInParams{
		OrganizationID: t.organization, EnvironmentID: environment, After: after, Most: int32(most),
	})
	return convertAll(rows, applicationEnvironment), pg.Classify(err, "lock applications in environment %d", environment)
}

// AwaitingSetup implements setup.ReadinessTx.
func (t *tx) AwaitingSetup(ctx context.Context, environment int64) ([]core.ApplicationEnvironment, error) {
	rows, err := t.q.AwaitingSetup(ctx, t.organization, environment)
	return convertAll(rows, applicationEnvironment), pg.Classify(err, "find what waits for environment %d", environment)
}

// SaveApplicationEnvironment implements setup.ReadinessTx.
func (t *tx) SaveApplicationEnvironment(ctx context.Context, e core.ApplicationEnvironment) error {
	n, err := t.q.SaveApplicationEnvironment(ctx, query.SaveApplicationEnvironmentParams{
		OrganizationID: t.organization, ID: e.ID, Readiness: string(e.Readiness), ReadinessReason: e.ReadinessReason,
		Discovered: e.Discovered, SetupAttempt: int32(e.SetupAttempt), SetupWanted: e.SetupWanted,
	})
	return one(n, err, "application environment", e.ID)
}

// AddEnvironment implements setup.Tx.
func (t *tx) AddEnvironment(ctx context.Context, e core.Environment) (core.Environment, error) {
	row, err := t.q.InsertEnvironment(ctx, query.InsertEnvironmentParams{
		OrganizationID: t.organization, Name: e.Name,
		Description: e.Description, Tier: string(e.Tier),
	})
	return environment(row), pg.Classify(err, "add environment %q", e.Name)
}

// AddDriverBinding implements setup.Tx.
func (t *tx) AddDriverBinding(ctx context.Context, b core.DriverBinding) (core.DriverBinding, error) {
	row, err := t.q.InsertDriverBinding(ctx, query.InsertDriverBindingParams{
		OrganizationID: t.organization, EnvironmentID: b.EnvironmentID, Version: int32(b.Version), DriverRef: b.DriverRef,
		DriverConfig: b.DriverConfig, Fleet: b.Fleet,
	})
	return driverBinding(row), pg.Classify(err, "bind environment %d to %s", b.EnvironmentID, b.DriverRef)
}

// AllEnvironments implements setup.Tx.
func (t *tx) AllEnvironments(ctx context.Context) (map[string]core.BoundEnvironment, error) {
	return t.boundEnvironments(ctx, nil)
}

// EnvironmentsNamed implements rollout.Tx.
func (t *tx) EnvironmentsNamed(ctx context.Context, names []string) (map[string]core.BoundEnvironment, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return t.boundEnvironments(ctx, names)
}

// boundEnvironments reads those with one of some names, or all for nil.
func (t *tx) boundEnvironments(ctx context.Context, names []string) (map[string]core.BoundEnvironment, error) {
	// Share locks, in the order of ids: many may plan rollouts at once, and an onboarding that is about to change the
	// readiness waits for them (E59).
	rows, err := t.q.BoundEnvironments(ctx, t.organization, names)
	found := make(map[string]core.BoundEnvironment, len(rows))
	for _, r := range rows {
		found[r.Environment.Name] = core.BoundEnvironment{Environment: environment(r.Environment), Binding: driverBinding(r.DriverBinding)}
	}
	return found, pg.Classify(err, "read environments")
}

// ClaimingEnvironments implements setup.ReadinessTx.
func (t *tx) ClaimingEnvironments(ctx context.Context) ([]core.BoundEnvironment, error) {
	rows, err := t.q.ClaimingEnvironments(ctx, t.organization)
	all := make([]core.BoundEnvironment, len(rows))
	for i, r := range rows {
		all[i] = core.BoundEnvironment{Environment: environment(r.Environment), Binding: driverBinding(r.DriverBinding)}
	}
	return all, pg.Classify(err, "read environments")
}

// LockEnvironment implements access.Tx and setup.ReadinessTx.
func (t *tx) LockEnvironment(ctx context.Context, id int64) (core.BoundEnvironment, error) {
	// A transaction that waits for the lock gets the row as it was left, but the binding as of before: so it is read behind the lock.
	if _, err := t.q.LockEnvironment(ctx, t.organization, id); err != nil {
		return core.BoundEnvironment{}, missing(err, "environment", id)
	}
	r, err := t.q.LockEnvironment(ctx, t.organization, id)
	return core.BoundEnvironment{Environment: environment(r.Environment), Binding: driverBinding(r.DriverBinding)},
		missing(err, "environment", id)
}

// SaveEnvironment implements access.Tx and setup.ReadinessTx.
func (t *tx) SaveEnvironment(ctx context.Context, e core.Environment) error {
	n, err := t.q.SaveEnvironment(ctx, query.SaveEnvironmentParams{
		OrganizationID: t.organization, ID: e.ID, Readiness: string(e.Readiness), ReadinessReason: e.ReadinessReason,
		OnboardingAttempt: int32(e.OnboardingAttempt),
	})
	return one(n, err, "environment", e.ID)
}

// DescribeEnvironment implements setup.Tx.
func (t *tx) DescribeEnvironment(ctx context.Context, id int64, description string) error {
	n, err := t.q.DescribeEnvironment(ctx, description, t.organization, id)
	return one(n, err, "environment", id)
}

// WantSetups implements setup.Tx.
func (t *tx) WantSetups(ctx context.Context, environment int64, reason string) error {
	return pg.Classify(t.q.WantSetups(ctx, reason, t.organization, environment), "want the setups in environment %d", environment)
}

// KeepBundle implements setup.StartTx.
func (t *tx) KeepBundle(ctx context.Context, digest, ref string, content []byte) error {
	return pg.Classify(t.q.KeepBundle(ctx, query.KeepBundleParams{
		OrganizationID: t.organization, Digest: digest, DriverRef: ref,
		Content: content,
	}), "keep driver bundle %s", digest)
}

// Bundle implements handoff.Tx.
func (t *tx) Bundle(ctx context.Context, digest string) ([]byte, error) {
	content, err := t.q.BundleContent(ctx, t.organization, digest)
	return content, missing(err, "driver bundle", digest)
}

// one makes of an update that met no row a NotFound.
func one(n int64, err error, what string, id int64) error {
	if err == nil && n != 1 {
		return fault.New(fault.NotFound, "%s %d does not exist", what, id)
	}
	return pg.Classify(err, "save %s %d", what, id)
}

// SaveDetails implements setup.Tx.
func (t *tx) SaveDetails(ctx context.Context, of core.Detailed, d core.Details) error {
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	if d.Links == nil {
		d.Links = map[string]string{}
	}
	labels, err := json.Marshal(d.Labels)
	if err != nil {
		return fmt.Errorf("encode labels of %s %d: %w", of.Kind, of.ID, err)
	}
	links, err := json.Marshal(d.Links)
	if err != nil {
		return fmt.Errorf("encode links of %s %d: %w", of.Kind, of.ID, err)
	}
	p := query.SaveDetailsParams{OrganizationID: t.organization, Labels: labels, Owner: d.Owner, Links: links}
	switch of.Kind {
	case core.ChangedEnvironment:
		p.EnvironmentID = &of.ID
	case core.ChangedService:
		p.ServiceID = &of.ID
	default:
		p.ApplicationID = &of.ID
	}
	return pg.Classify(t.q.SaveDetails(ctx, p), "save details of %s %d", of.Kind, of.ID)
}

// DescribeApplication implements setup.Tx.
func (t *tx) DescribeApplication(ctx context.Context, id int64, description string) error {
	n, err := t.q.DescribeApplication(ctx, description, t.organization, id)
	return one(n, err, "application", id)
}

// RenameApplication implements setup.Tx.
func (t *tx) RenameApplication(ctx context.Context, id int64, name string) error {
	n, err := t.q.RenameApplication(ctx, name, t.organization, id)
	return one(n, err, "application", id)
}

// RenameEnvironment implements setup.Tx.
func (t *tx) RenameEnvironment(ctx context.Context, id int64, display *string) error {
	n, err := t.q.RenameEnvironment(ctx, display, t.organization, id)
	return one(n, err, "environment", id)
}

// RenameService implements setup.Tx.
func (t *tx) RenameService(ctx context.Context, id int64, display *string) error {
	n, err := t.q.RenameService(ctx, display, t.organization, id)
	return one(n, err, "service", id)
}

// FormerNames implements setup.Reads and view.Reads.
func (r reader) FormerNames(ctx context.Context, organization int64, applications []int64) (map[int64][]string, error) {
	found := map[int64][]string{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.FormerNames(ctx, organization, applications)
		for _, row := range rows {
			found[row.ApplicationID] = append(found[row.ApplicationID], row.Name)
		}
		return pg.Classify(err, "read the former names of %d applications", len(applications))
	})
	return found, err
}

// DescribeService implements setup.Tx.
func (t *tx) DescribeService(ctx context.Context, id int64, description string) error {
	n, err := t.q.DescribeService(ctx, description, t.organization, id)
	return one(n, err, "service", id)
}

// Details implements setup.DetailReads and view.Reads.
func (r reader) Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error) {
	p := query.DetailsParams{OrganizationID: organization, Applications: []int64{}, Environments: []int64{}, Services: []int64{}}
	for _, one := range of {
		switch one.Kind {
		case core.ChangedEnvironment:
			p.Environments = append(p.Environments, one.ID)
		case core.ChangedService:
			p.Services = append(p.Services, one.ID)
		default:
			p.Applications = append(p.Applications, one.ID)
		}
	}
	found := map[core.Detailed]core.Details{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.Details(ctx, p)
		if err != nil {
			return pg.Classify(err, "read details of %d things", len(of))
		}
		for _, row := range rows {
			d := core.Details{Owner: row.Owner}
			if err := errors.Join(json.Unmarshal(row.Labels, &d.Labels), json.Unmarshal(row.Links, &d.Links)); err != nil {
				return fmt.Errorf("decode details %d: %w", row.ID, err)
			}
			found[detailed(row)] = d
		}
		return nil
	})
	return found, err
}

// detailed is what a row is of.
func detailed(row query.Details) core.Detailed {
	switch {
	case row.EnvironmentID != nil:
		return core.Detailed{Kind: core.ChangedEnvironment, ID: *row.EnvironmentID}
	case row.ServiceID != nil:
		return core.Detailed{Kind: core.ChangedService, ID: *row.ServiceID}
	default:
		return core.Detailed{Kind: core.ChangedApplication, ID: orZero(row.ApplicationID)}
	}
}
