package graph

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// ArchiveApplication takes an application, given by name or identifier, out of use.
func (m mutation) ArchiveApplication(ctx context.Context, in model.ArchiveApplicationInput) (p model.ArchiveApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Setup.ArchiveApplication(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// RenameEnvironment gives an environment another display name.
func (m mutation) RenameEnvironment(ctx context.Context, in model.RenameEnvironmentInput) (p model.RenameEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.RenameEnvironment(ctx, l.actor, setup.Displaying{ID: n, DisplayName: in.DisplayName, Reason: orEmpty(in.Reason)})
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// RenameService gives a service another display name.
func (m mutation) RenameService(ctx context.Context, in model.RenameServiceInput) (p model.RenameServicePayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/serviceId", model.KindService, in.ServiceID)
	if err == nil {
		_, err = m.domain.Setup.RenameService(ctx, l.actor, setup.Displaying{ID: n, DisplayName: in.DisplayName, Reason: orEmpty(in.Reason)})
		err = inField(err, "/serviceId")
	}
	p.Service, p.Errors, err = outcome(ctx, l.services, n, model.WrapService, err)
	return p, err
}

// RenameApplication gives an application, given by name or identifier, another name.
func (m mutation) RenameApplication(ctx context.Context, in model.RenameApplicationInput) (p model.RenameApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Setup.RenameApplication(ctx, l.actor, setup.Renaming{ID: n, Name: in.Name, Reason: orEmpty(in.Reason)})
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// ArchiveEnvironment takes an environment out of use.
func (m mutation) ArchiveEnvironment(ctx context.Context, in model.ArchiveEnvironmentInput) (p model.ArchiveEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.ArchiveEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// RestoreApplication takes an archived application, given by name or identifier, into use again.
func (m mutation) RestoreApplication(ctx context.Context, in model.RestoreApplicationInput) (p model.RestoreApplicationPayload, err error) {
	l := loadersOf(ctx)
	n, err := applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Setup.RestoreApplication(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, n, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// RestoreEnvironment takes an archived environment into use again.
func (m mutation) RestoreEnvironment(ctx context.Context, in model.RestoreEnvironmentInput) (p model.RestoreEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.RestoreEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/environmentId")
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// Archivings are when the application was archived and restored.
func (application) Archivings(ctx context.Context, a *model.Application) ([]model.Archiving, error) {
	return list(ctx, loadersOf(ctx).archivingsOfApplication, a.ID, model.WrapArchiving)
}

// Archivings are when the environment was archived and restored.
func (environment) Archivings(ctx context.Context, e *model.Environment) ([]model.Archiving, error) {
	return list(ctx, loadersOf(ctx).archivingsOfEnvironment, e.ID, model.WrapArchiving)
}

// archiving resolves those of Archiving.
type archiving struct{}

// Principal is the member who did it.
func (archiving) Principal(ctx context.Context, a *model.Archiving) (*model.Member, error) {
	return principal(ctx, a.Type, a.Principal.ID)
}

// CreateArtifactSource gives a service another source.
func (m mutation) CreateArtifactSource(
	ctx context.Context, in model.CreateArtifactSourceInput,
) (p model.CreateArtifactSourcePayload, err error) {
	l := loadersOf(ctx)
	service, err := number("/serviceId", model.KindService, in.ServiceID)
	var s core.ArtifactSource
	if err == nil {
		s, err = m.domain.Setup.AddArtifactSource(ctx, l.actor, service, setup.NewArtifactSource{Ref: in.SourceRef, Config: in.SourceConfig})
		err = inField(err, "/serviceId")
	}
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, s.ID, model.WrapArtifactSource, err)
	return p, err
}

// SetArtifactSourceConfig changes how a source selects and is polled.
func (m mutation) SetArtifactSourceConfig(
	ctx context.Context, in model.SetArtifactSourceConfigInput,
) (p model.SetArtifactSourceConfigPayload, err error) {
	l := loadersOf(ctx)
	source, err := number("/artifactSourceId", model.KindArtifactSource, in.ArtifactSourceID)
	if err == nil {
		_, err = m.domain.Setup.SetArtifactSourceConfig(ctx, l.actor, source, in.SourceConfig)
		err = inField(err, "/artifactSourceId")
	}
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, source, model.WrapArtifactSource, err)
	return p, err
}

// LookAtArtifactSource looks at a source now.
func (m mutation) LookAtArtifactSource(
	ctx context.Context, in model.LookAtArtifactSourceInput,
) (p model.LookAtArtifactSourcePayload, err error) {
	l := loadersOf(ctx)
	source, err := number("/artifactSourceId", model.KindArtifactSource, in.ArtifactSourceID)
	var sight setup.SourceSight
	if err == nil {
		sight, err = m.domain.Setup.LookAtArtifactSource(ctx, l.actor, source)
		err = inField(err, "/artifactSourceId")
	}
	p.Artifact, p.Problem = sight.Artifact, sight.Problem
	p.ArtifactSource, p.Errors, err = outcome(ctx, l.sources, source, model.WrapArtifactSource, err)
	return p, err
}

// TryArtifactSource looks at what may become a source.
func (m mutation) TryArtifactSource(ctx context.Context, in model.TryArtifactSourceInput) (p model.TryArtifactSourcePayload, err error) {
	sight, err := m.domain.Setup.TryArtifactSource(ctx, loadersOf(ctx).actor,
		setup.NewArtifactSource{Ref: in.SourceRef, Config: in.SourceConfig})
	p.Artifact, p.Problem, p.Errors = sight.Artifact, sight.Problem, []model.UserError{}
	if err != nil {
		p.Errors, err = userErrors(err)
	}
	return p, err
}

// DisableArtifactSource stops a source from taking versions.
func (m mutation) DisableArtifactSource(
	ctx context.Context, in model.DisableArtifactSourceInput,
) (p model.DisableArtifactSourcePayload, err error) {
	p.ArtifactSource, p.Errors, err = m.changedSource(ctx, in.ArtifactSourceID, in.Reason, m.domain.Setup.DisableArtifactSource)
	return p, err
}

// EnableArtifactSource has a disabled source take versions again.
func (m mutation) EnableArtifactSource(
	ctx context.Context, in model.EnableArtifactSourceInput,
) (p model.EnableArtifactSourcePayload, err error) {
	p.ArtifactSource, p.Errors, err = m.changedSource(ctx, in.ArtifactSourceID, in.Reason, m.domain.Setup.EnableArtifactSource)
	return p, err
}

// RemoveArtifactSource takes a source out of new version sets.
func (m mutation) RemoveArtifactSource(
	ctx context.Context, in model.RemoveArtifactSourceInput,
) (p model.RemoveArtifactSourcePayload, err error) {
	p.ArtifactSource, p.Errors, err = m.changedSource(ctx, in.ArtifactSourceID, in.Reason, m.domain.Setup.RemoveArtifactSource)
	return p, err
}

// ReplaceArtifactSource makes another source in the place of one.
func (m mutation) ReplaceArtifactSource(
	ctx context.Context, in model.ReplaceArtifactSourceInput,
) (p model.ReplaceArtifactSourcePayload, err error) {
	next := setup.NewArtifactSource{Ref: in.SourceRef, Config: in.SourceConfig}
	p.ArtifactSource, p.Errors, err = m.changedSource(ctx, in.ArtifactSourceID, in.Reason,
		func(ctx context.Context, a core.Actor, source int64, reason string) (core.ArtifactSource, error) {
			return m.domain.Setup.ReplaceArtifactSource(ctx, a, source, next, reason)
		})
	return p, err
}

// changedSource changes the state of a source, and answers the source that there is now.
func (m mutation) changedSource(
	ctx context.Context, global string, reason *string,
	change func(ctx context.Context, a core.Actor, source int64, reason string) (core.ArtifactSource, error),
) (*model.ArtifactSource, []model.UserError, error) {
	l := loadersOf(ctx)
	source, err := number("/artifactSourceId", model.KindArtifactSource, global)
	var s core.ArtifactSource
	if err == nil {
		s, err = change(ctx, l.actor, source, orEmpty(reason))
		err = inField(err, "/artifactSourceId")
	}
	return outcome(ctx, l.sources, s.ID, model.WrapArtifactSource, err)
}

// AddService gives an application, given by name or identifier, another service.
func (m mutation) AddService(ctx context.Context, in model.AddServiceInput) (p model.AddServicePayload, err error) {
	l := loadersOf(ctx)
	application, err := applicationNumber(ctx, m.domain.View, in.Application)
	var s core.Service
	if err == nil {
		n := setup.NewService{Name: in.Name, Description: orEmpty(in.Description)}
		for _, src := range in.ArtifactSources {
			n.ArtifactSources = append(n.ArtifactSources, setup.NewArtifactSource{Ref: src.SourceRef, Config: src.SourceConfig})
		}
		s, err = m.domain.Setup.AddService(ctx, l.actor, application, n, orEmpty(in.Reason))
	}
	p.Service, p.Errors, err = outcome(ctx, l.services, s.ID, model.WrapService, inField(err, "/application"))
	return p, err
}

// RetireService takes a service out of new version sets and rollouts.
func (m mutation) RetireService(ctx context.Context, in model.RetireServiceInput) (p model.RetireServicePayload, err error) {
	p.Service, p.Errors, err = m.changedService(ctx, in.ServiceID, in.Reason, m.domain.Setup.RetireService)
	return p, err
}

// RestoreService brings back a retired service.
func (m mutation) RestoreService(ctx context.Context, in model.RestoreServiceInput) (p model.RestoreServicePayload, err error) {
	p.Service, p.Errors, err = m.changedService(ctx, in.ServiceID, in.Reason, m.domain.Setup.RestoreService)
	return p, err
}

func (m mutation) changedService(
	ctx context.Context, global string, reason *string,
	change func(ctx context.Context, a core.Actor, service int64, reason string) (core.Service, error),
) (*model.Service, []model.UserError, error) {
	l := loadersOf(ctx)
	service, err := number("/serviceId", model.KindService, global)
	if err == nil {
		_, err = change(ctx, l.actor, service, orEmpty(reason))
		err = inField(err, "/serviceId")
	}
	return outcome(ctx, l.services, service, model.WrapService, err)
}

// CreateVersionSet puts a version set together of recorded versions.
func (m mutation) CreateVersionSet(ctx context.Context, in model.CreateVersionSetInput) (p model.CreateVersionSetPayload, err error) {
	l := loadersOf(ctx)
	n := intake.NewCurated{Name: orEmpty(in.Name), Reason: orEmpty(in.Reason)}
	if n.Application, err = applicationNumber(ctx, m.domain.View, in.Application); err == nil && in.FromVersionSetID != nil {
		n.From, err = number("/fromVersionSetId", model.KindVersionSet, *in.FromVersionSetID)
	}
	for _, v := range in.Versions {
		choice := intake.Choice{Service: v.Service, Version: v.Version}
		if n, err := id.Parse(model.KindVersion, v.Version); err == nil {
			choice.VersionID = n
		}
		n.Choices = append(n.Choices, choice)
	}
	var set core.VersionSet
	if err == nil {
		set, err = m.domain.Intake.CreateVersionSet(ctx, l.actor, n)
	}
	p.VersionSet, p.Errors, err = outcome(ctx, l.versionSets, set.ID, model.WrapVersionSet, inField(err, "/application"))
	return p, err
}

// MissingVersions are the sources that the next version set goes without, or waits for.
func (application) MissingVersions(ctx context.Context, a *model.Application) ([]model.MissingVersion, error) {
	c, _, err := loadersOf(ctx).compositionOf.load(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	return wrapAll(c.Missing, model.WrapMissingVersion), nil
}

// missingVersion resolves those of MissingVersion.
type missingVersion struct{}

// ArtifactSource is the source without a version.
func (missingVersion) ArtifactSource(ctx context.Context, v *model.MissingVersion) (model.ArtifactSource, error) {
	return required(ctx, loadersOf(ctx).sources, model.KindArtifactSource, v.SourceID, model.WrapArtifactSource)
}

// Reason is why it has none, and what to do about it.
func (missingVersion) Reason(ctx context.Context, v *model.MissingVersion) (string, error) {
	service, err := required(ctx, loadersOf(ctx).services, model.KindService, v.ServiceID, model.WrapService)
	if err != nil {
		return "", err
	}
	switch {
	case v.Reason == core.MissingDisabled:
		return fmt.Sprintf("goes without a source of service %q, which is disabled and has no version", service.Name), nil
	case v.Reason == core.MissingMatch:
		return fmt.Sprintf("waits for a version of service %q: its source has versions, but its selection takes none of them or its registry "+
			"has none; publish one, change the selection, or disable the source", service.Name), nil
	case v.Blocks:
		return fmt.Sprintf("waits for the first version of service %q; publish one, or disable the source", service.Name), nil
	default:
		return fmt.Sprintf("goes without a source of service %q until its first version is published", service.Name), nil
	}
}

// ReplacedBy is the source that has replaced it.
func (artifactSource) ReplacedBy(ctx context.Context, s *model.ArtifactSource) (*model.ArtifactSource, error) {
	return optional(ctx, loadersOf(ctx).sources, s.ReplacedBy, model.WrapArtifactSource)
}

// Curated is by whom the set was put together.
func (versionSet) Curated(ctx context.Context, v *model.VersionSet) ([]model.CuratedVersionSet, error) {
	return list(ctx, loadersOf(ctx).curatedOf, v.ID, model.WrapCuratedVersionSet)
}

// curatedVersionSet resolves those of CuratedVersionSet.
type curatedVersionSet struct{}

// From is the set that it was begun with.
func (curatedVersionSet) From(ctx context.Context, c *model.CuratedVersionSet) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).versionSets, c.FromSetID, model.WrapVersionSet)
}

// SetLabels sets and ends labels.
func (m mutation) SetLabels(ctx context.Context, in model.SetLabelsInput) (model.DetailsPayload, error) {
	of, err := detailed(in.SubjectID)
	n := setup.ChangedLabels{Of: of, Unset: in.Unset, Reason: orEmpty(in.Reason)}
	if err == nil && len(in.Set) > 0 && (json.Unmarshal(in.Set, &n.Set) != nil || n.Set == nil && string(in.Set) != "null") {
		err = fault.InvalidFields(fault.Field{Name: "/set", Problem: "found something else; expected an object of strings"})
	}
	if err == nil {
		err = inField(m.domain.Setup.SetLabels(ctx, loadersOf(ctx).actor, n), "/subjectId")
	}
	return detailsOutcome(ctx, of, err)
}

// SetDetails changes descriptions, owners and links.
func (m mutation) SetDetails(ctx context.Context, in model.SetDetailsInput) (model.DetailsPayload, error) {
	of, err := detailed(in.SubjectID)
	n := setup.ChangedDetails{
		Of: of, Description: in.Description, Owner: in.Owner, SetLinks: map[string]string{},
		UnsetLinks: in.UnsetLinks, Reason: orEmpty(in.Reason),
	}
	for i, link := range in.SetLinks {
		if _, twice := n.SetLinks[link.Title]; twice && err == nil {
			err = fault.InvalidFields(fault.Field{
				Name: fmt.Sprintf("/setLinks/%d/title", i), Problem: fmt.Sprintf("found %.120q twice; expected each title once", link.Title),
			})
		}
		n.SetLinks[link.Title] = link.URL
	}
	if err == nil {
		err = inField(m.domain.Setup.SetDetails(ctx, loadersOf(ctx).actor, n), "/subjectId")
	}
	return detailsOutcome(ctx, of, err)
}

// detailed is what a global identifier of something that has details names.
func detailed(global string) (core.Detailed, error) {
	for kind, name := range map[core.AccessKind]string{
		core.ChangedApplication: model.KindApplication, core.ChangedEnvironment: model.KindEnvironment, core.ChangedService: model.KindService,
	} {
		if n, err := id.Parse(name, global); err == nil {
			return core.Detailed{Kind: kind, ID: n}, nil
		}
	}
	return core.Detailed{}, fault.InvalidFields(fault.Field{
		Name:    "/subjectId",
		Problem: fmt.Sprintf("found %.80q; expected an application, an environment or a service, such as application_3", global),
	})
}

func detailsOutcome(ctx context.Context, of core.Detailed, err error) (p model.DetailsPayload, failed error) {
	l := loadersOf(ctx)
	switch of.Kind {
	case core.ChangedEnvironment:
		p.Environment, p.Errors, err = outcome(ctx, l.environments, of.ID, model.WrapEnvironment, err)
	case core.ChangedService:
		p.Service, p.Errors, err = outcome(ctx, l.services, of.ID, model.WrapService, err)
	default:
		p.Application, p.Errors, err = outcome(ctx, l.applications, of.ID, model.WrapApplication, err)
	}
	return p, err
}
