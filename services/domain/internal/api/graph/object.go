package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// What hangs below an object is loaded together with what hangs below its siblings.

// application resolves the fields of Application that are loaded.
type application struct{}

// Services are those of the application, in the order in which they were made.
func (application) Services(ctx context.Context, a *model.Application) ([]model.Service, error) {
	return list(ctx, loadersOf(ctx).servicesOf, a.ID, model.WrapService)
}

// VersionSets is one page of them, newest first.
func (application) VersionSets(
	ctx context.Context, a *model.Application, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.VersionSetConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.VersionSetConnection{}, err
	}
	l := loadersOf(ctx)
	items, _, err := l.versionSetsOf.load(ctx, paged{a.ID, p})
	return model.VersionSetConnection(model.Connect[model.VersionSetEdge](items, model.WrapVersionSet, func(ctx context.Context) (int, error) {
		n, _, err := l.versionSetCountOf.load(ctx, a.ID)
		return n, err
	})), err
}

// NewestVersionSet has the newest version of every source; null before the first set.
func (application) NewestVersionSet(ctx context.Context, a *model.Application) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).newestSetOf, a.ID, model.WrapVersionSet)
}

// FlowDefinition is the latest; null before the first.
func (application) FlowDefinition(ctx context.Context, a *model.Application) (*model.FlowDefinition, error) {
	return optional(ctx, loadersOf(ctx).latestFlowOf, a.ID, model.WrapFlowDefinition)
}

// Environments are those that the pipelines deploy to.
func (application) Environments(ctx context.Context, a *model.Application) ([]model.ApplicationEnvironment, error) {
	return list(ctx, loadersOf(ctx).cellsOf, a.ID, model.WrapApplicationEnvironment)
}

// Rollouts is one page of them, newest first.
func (application) Rollouts(
	ctx context.Context, a *model.Application, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.RolloutConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.RolloutConnection{}, err
	}
	l := loadersOf(ctx)
	items, _, err := l.rolloutsOf.load(ctx, paged{a.ID, p})
	return model.RolloutConnection(model.Connect[model.RolloutEdge](items, model.WrapRollout, func(ctx context.Context) (int, error) {
		n, _, err := l.rolloutCountOf.load(ctx, a.ID)
		return n, err
	})), err
}

// ActiveRollout is the one that is not over yet, if there is one (R14).
func (application) ActiveRollout(ctx context.Context, a *model.Application) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).activeRolloutOf, a.ID, model.WrapRollout)
}

// RollbackPolicy is its own, or the default.
func (application) RollbackPolicy(ctx context.Context, a *model.Application) (model.RollbackPolicy, error) {
	own, err := optional(ctx, loadersOf(ctx).rollbackPolicyOf, a.ID, model.WrapRollbackPolicy)
	if err != nil || own == nil {
		return model.WrapRollbackPolicy(core.DefaultRollbackPolicy(a.ID)), err
	}
	return *own, nil
}

// RolloutPolicy is its own, or the default.
func (application) RolloutPolicy(ctx context.Context, a *model.Application) (model.RolloutPolicy, error) {
	own, err := optional(ctx, loadersOf(ctx).rolloutPolicyOf, a.ID, model.WrapRolloutPolicy)
	if err != nil || own == nil {
		return model.WrapRolloutPolicy(core.DefaultRolloutPolicy(a.ID)), err
	}
	return *own, nil
}

// QueuedRollout is the one that waits in its queue, if there is one.
func (application) QueuedRollout(ctx context.Context, a *model.Application) (*model.QueuedRollout, error) {
	return optional(ctx, loadersOf(ctx).queuedRolloutOf, a.ID, model.WrapQueuedRollout)
}

// LastQueuedRollout is the latest that has left its queue; null if none has.
func (application) LastQueuedRollout(ctx context.Context, a *model.Application) (*model.QueuedRollout, error) {
	return optional(ctx, loadersOf(ctx).lastQueuedOf, a.ID, model.WrapQueuedRollout)
}

// queuedRollout resolves those of QueuedRollout.
type queuedRollout struct{}

// Application is whose queue it waits in.
func (queuedRollout) Application(ctx context.Context, q *model.QueuedRollout) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, q.ApplicationID, model.WrapApplication)
}

// VersionSet is what will be promoted.
func (queuedRollout) VersionSet(ctx context.Context, q *model.QueuedRollout) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, q.VersionSetID, model.WrapVersionSet)
}

// WaitsFor is null for one that waits no longer.
func (queuedRollout) WaitsFor(ctx context.Context, q *model.QueuedRollout) (*model.QueueWait, error) {
	if q.QueuedRollout.State != core.QueuedPending {
		return nil, nil //nolint:nilnil // null
	}
	active, _, err := loadersOf(ctx).activeRolloutOf.load(ctx, q.ApplicationID)
	kind, _ := q.WaitsFor(active)
	w := model.QueueWait(strings.ToUpper(string(kind)))
	return &w, err
}

// Why is what it waits for, or what came of it.
func (queuedRollout) Why(ctx context.Context, q *model.QueuedRollout) (string, error) {
	switch q.QueuedRollout.State {
	case core.QueuedStarted:
		return fmt.Sprintf("it has begun as rollout_%d", q.MadeRolloutID), nil
	case core.QueuedDropped:
		return q.Outcome, nil
	case core.QueuedPending:
	}
	active, _, err := loadersOf(ctx).activeRolloutOf.load(ctx, q.ApplicationID)
	_, why := q.WaitsFor(active)
	return why, err
}

// Principal is null for who is no member.
func (queuedRollout) Principal(ctx context.Context, q *model.QueuedRollout) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, q.Requester.ID, model.WrapMember)
}

// Rollout is null unless it has begun.
func (queuedRollout) Rollout(ctx context.Context, q *model.QueuedRollout) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, q.MadeRolloutID, model.WrapRollout)
}

// CancelledBy is null for nobody.
func (queuedRollout) CancelledBy(ctx context.Context, q *model.QueuedRollout) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, q.CancelledBy.ID, model.WrapMember)
}

// ViewerCan is about taking it out of the queue.
func (queuedRollout) ViewerCan(ctx context.Context, q *model.QueuedRollout) ([]model.Ability, error) {
	l := loadersOf(ctx)
	s, _, err := l.applicationStandings.load(ctx, q.ApplicationID)
	if err != nil {
		return nil, err
	}
	return abilities(func(core.Action) error { return q.MayCancel(l.actor, s.Targets) }, core.ActionCancelQueuedRollout)
}

// service resolves those of Service.
type service struct{}

// Application is whose service it is.
func (service) Application(ctx context.Context, s *model.Service) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, s.ApplicationID, model.WrapApplication)
}

// ArtifactSources is where artifacts of the service come from.
func (service) ArtifactSources(ctx context.Context, s *model.Service) ([]model.ArtifactSource, error) {
	return list(ctx, loadersOf(ctx).sourcesOf, s.ID, model.WrapArtifactSource)
}

// artifactSource resolves those of ArtifactSource.
type artifactSource struct{}

// Service is whose source it is.
func (artifactSource) Service(ctx context.Context, s *model.ArtifactSource) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, s.ServiceID, model.WrapService)
}

// State is how the source is doing; null while that is not known.
func (artifactSource) State(ctx context.Context, s *model.ArtifactSource) (*model.ArtifactSourceState, error) {
	return optional(ctx, loadersOf(ctx).sourceStates, s.ID, model.WrapArtifactSourceState)
}

// Versions is one page of them, newest first.
func (artifactSource) Versions(
	ctx context.Context, s *model.ArtifactSource, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.VersionConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.VersionConnection{}, err
	}
	l := loadersOf(ctx)
	items, _, err := l.versionsOfSource.load(ctx, paged{s.ID, p})
	return model.VersionConnection(model.Connect[model.VersionEdge](items, model.WrapVersion, func(ctx context.Context) (int, error) {
		n, _, err := l.versionCountOf.load(ctx, s.ID)
		return n, err
	})), err
}

// version resolves those of Version.
type version struct{}

// DigestSeen reports whether the digest was seen at the registry; null where that was never said.
func (version) DigestSeen(ctx context.Context, v *model.Version) (*bool, error) {
	return optional(ctx, loadersOf(ctx).seenDigests, v.ID, func(seen bool) bool { return seen })
}

// DeletedAt is when the image, or the last tag that named it, was deleted at the registry; null while it exists.
func (version) DeletedAt(ctx context.Context, v *model.Version) (*time.Time, error) {
	return optional(ctx, loadersOf(ctx).deletedVersions, v.ID, func(at time.Time) time.Time { return at })
}

// versionSet resolves those of VersionSet.
type versionSet struct{}

// Warnings is what to consider before the set is rolled out.
func (versionSet) Warnings(ctx context.Context, v *model.VersionSet) ([]string, error) {
	return list(ctx, loadersOf(ctx).warningsOf, v.ID, func(warning string) string { return warning })
}

// Entries are the versions in the set, one for each source.
func (versionSet) Entries(ctx context.Context, v *model.VersionSet) ([]model.VersionSetEntry, error) {
	return list(ctx, loadersOf(ctx).entriesOf, v.ID, model.WrapVersionSetEntry)
}

// versionSetEntry resolves those of VersionSetEntry.
type versionSetEntry struct{}

// Service is whose version it is.
func (versionSetEntry) Service(ctx context.Context, e *model.VersionSetEntry) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, e.ServiceID, model.WrapService)
}

// ArtifactSource is where the version came from.
func (versionSetEntry) ArtifactSource(ctx context.Context, e *model.VersionSetEntry) (model.ArtifactSource, error) {
	return required(ctx, loadersOf(ctx).sources, model.KindArtifactSource, e.ArtifactSourceID, model.WrapArtifactSource)
}

// Version is the version itself.
func (versionSetEntry) Version(ctx context.Context, e *model.VersionSetEntry) (model.Version, error) {
	return required(ctx, loadersOf(ctx).versions, model.KindVersion, e.VersionID, model.WrapVersion)
}

// environment resolves those of Environment.
type environment struct{}

// DriverBindings are all versions of it, newest first.
func (environment) DriverBindings(ctx context.Context, e *model.Environment) ([]model.DriverBinding, error) {
	return list(ctx, loadersOf(ctx).bindingsOf, e.ID, model.WrapDriverBinding)
}

// Approval is what it asks of rollouts by itself; null for nothing.
func (environment) Approval(ctx context.Context, e *model.Environment) (*model.EnvironmentApproval, error) {
	return optional(ctx, loadersOf(ctx).approvalOf, e.ID, model.WrapEnvironmentApproval)
}

// DirectChanges reports whether changes that belong to no rollout are accepted.
func (environment) DirectChanges(ctx context.Context, e *model.Environment) (bool, error) {
	allowed, _, err := loadersOf(ctx).directChangesOf.load(ctx, e.ID)
	return allowed, err
}

// ChangeControl reports whether changes of its controls take a second person.
func (environment) ChangeControl(ctx context.Context, e *model.Environment) (bool, error) {
	on, _, err := loadersOf(ctx).changeControlOf.load(ctx, e.ID)
	return on, err
}

// applicationEnvironment resolves those of ApplicationEnvironment.
type applicationEnvironment struct{}

// FormerNames are those that the application had, the latest first.
func (application) FormerNames(ctx context.Context, a *model.Application) ([]string, error) {
	names, _, err := loadersOf(ctx).formerNames.load(ctx, a.ID)
	return append([]string{}, names...), err
}

// Labels are those of the application.
func (application) Labels(ctx context.Context, a *model.Application) (json.RawMessage, error) {
	return labelsOf(ctx, core.ChangedApplication, a.ID)
}

// Owner answers for the application.
func (application) Owner(ctx context.Context, a *model.Application) (string, error) {
	d, _, err := loadersOf(ctx).details.load(ctx, core.Detailed{Kind: core.ChangedApplication, ID: a.ID})
	return d.Owner, err
}

// Links are those of the application, by title.
func (application) Links(ctx context.Context, a *model.Application) ([]model.Link, error) {
	return linksOf(ctx, core.ChangedApplication, a.ID)
}

// Labels are those of the service.
func (service) Labels(ctx context.Context, s *model.Service) (json.RawMessage, error) {
	return labelsOf(ctx, core.ChangedService, s.ID)
}

// Owner answers for the service.
func (service) Owner(ctx context.Context, s *model.Service) (string, error) {
	d, _, err := loadersOf(ctx).details.load(ctx, core.Detailed{Kind: core.ChangedService, ID: s.ID})
	return d.Owner, err
}

// Links are those of the service, by title.
func (service) Links(ctx context.Context, s *model.Service) ([]model.Link, error) {
	return linksOf(ctx, core.ChangedService, s.ID)
}

// Labels are those of the environment.
func (environment) Labels(ctx context.Context, e *model.Environment) (json.RawMessage, error) {
	return labelsOf(ctx, core.ChangedEnvironment, e.ID)
}

// Owner answers for the environment.
func (environment) Owner(ctx context.Context, e *model.Environment) (string, error) {
	d, _, err := loadersOf(ctx).details.load(ctx, core.Detailed{Kind: core.ChangedEnvironment, ID: e.ID})
	return d.Owner, err
}

// Links are those of the environment, by title.
func (environment) Links(ctx context.Context, e *model.Environment) ([]model.Link, error) {
	return linksOf(ctx, core.ChangedEnvironment, e.ID)
}

func labelsOf(ctx context.Context, kind core.AccessKind, number int64) (json.RawMessage, error) {
	d, _, err := loadersOf(ctx).details.load(ctx, core.Detailed{Kind: kind, ID: number})
	if err != nil || len(d.Labels) == 0 {
		return json.RawMessage("{}"), err
	}
	text, err := json.Marshal(d.Labels)
	if err != nil {
		return nil, fmt.Errorf("encode labels: %w", err)
	}
	return text, nil
}

func linksOf(ctx context.Context, kind core.AccessKind, number int64) ([]model.Link, error) {
	d, _, err := loadersOf(ctx).details.load(ctx, core.Detailed{Kind: kind, ID: number})
	all := make([]model.Link, 0, len(d.Links))
	for _, title := range slices.Sorted(maps.Keys(d.Links)) {
		all = append(all, model.Link{Title: title, URL: d.Links[title]})
	}
	return all, err
}
