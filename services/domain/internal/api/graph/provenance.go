package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
)

// Origins is what the API needs of package origin.
type Origins interface {
	Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error)
	Components(ctx context.Context, organization int64, versions []int64) (map[int64][]provenance.Component, error)
	LookUp(ctx context.Context, a core.Actor, version int64) error
	WhereComponent(ctx context.Context, a core.Actor, name, version string) ([]core.Whereabouts, error)
	WhereDigest(ctx context.Context, a core.Actor, digest string) ([]core.Whereabouts, error)
	ComponentChanges(ctx context.Context, organization, before, after int64) (changes []origin.ComponentChange, known bool, err error)
}

var _ Origins = (*origin.UseCases)(nil)

// Provenance is what is known of where an image comes from.
func (version) Provenance(ctx context.Context, v *model.Version) (*model.Provenance, error) {
	return optional(ctx, loadersOf(ctx).originOf, v.ID, model.WrapProvenance)
}

// origins resolves the fields of Provenance that are loaded.
type origins struct{}

// Components are those of the SBOM.
func (origins) Components(ctx context.Context, p *model.Provenance) ([]model.Component, error) {
	return list(ctx, loadersOf(ctx).componentsOf, p.VersionID, model.WrapComponent)
}

// whereabouts resolves those of Whereabouts.
type whereabouts struct{}

// Application is where it is live.
func (whereabouts) Application(ctx context.Context, w *model.Whereabouts) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, "application", w.ApplicationID, model.WrapApplication)
}

// Environment is where it is live.
func (whereabouts) Environment(ctx context.Context, w *model.Whereabouts) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, "environment", w.EnvironmentID, model.WrapEnvironment)
}

// Service is the one that runs it.
func (whereabouts) Service(ctx context.Context, w *model.Whereabouts) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, "service", w.ServiceID, model.WrapService)
}

// Version is the one that is live.
func (whereabouts) Version(ctx context.Context, w *model.Whereabouts) (model.Version, error) {
	return required(ctx, loadersOf(ctx).versions, "version", w.VersionID, model.WrapVersion)
}

// WhereComponent is where versions are live that have a component.
func (q query) WhereComponent(ctx context.Context, name string, of *string) ([]model.Whereabouts, error) {
	all, err := q.domain.Origins.WhereComponent(ctx, loadersOf(ctx).actor, name, orEmpty(of))
	return wrapAll(all, model.WrapWhereabouts), err
}

// WhereDigest is where versions with a digest are live.
func (q query) WhereDigest(ctx context.Context, digest string) ([]model.Whereabouts, error) {
	all, err := q.domain.Origins.WhereDigest(ctx, loadersOf(ctx).actor, digest)
	return wrapAll(all, model.WrapWhereabouts), err
}

// ComponentChanges are the components that differ between two version sets.
func (q query) ComponentChanges(ctx context.Context, before, after string) (c model.ComponentChanges, err error) {
	var sets [2]int64
	for i, text := range []string{before, after} {
		if sets[i], err = number([]string{"/before", "/after"}[i], model.KindVersionSet, text); err != nil {
			return c, err
		}
	}
	changes, known, err := q.domain.Origins.ComponentChanges(ctx, loadersOf(ctx).actor.Organization, sets[0], sets[1])
	return model.ComponentChanges{Changes: wrapAll(changes, model.WrapComponentChange), Known: known}, err
}

// LookUpProvenance looks up a version as soon as possible.
func (m mutation) LookUpProvenance(ctx context.Context, in model.LookUpProvenanceInput) (p model.LookUpProvenancePayload, err error) {
	n, err := number("/versionId", model.KindVersion, in.VersionID)
	if err == nil {
		err = m.domain.Origins.LookUp(ctx, loadersOf(ctx).actor, n)
	}
	var v core.Version
	if err == nil {
		v, _, err = loadersOf(ctx).versions.load(ctx, n)
	}
	p.Version, p.Errors, err = changed(v, inField(err, "/versionId"), model.WrapVersion)
	return p, err
}
