package graph

import (
	"context"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// query resolves the fields of Query.
type query struct{ domain Domain }

// Viewer is who asks.
func (q query) Viewer(ctx context.Context) (model.Viewer, error) {
	actor := loadersOf(ctx).actor
	o, err := q.domain.View.Organization(ctx, actor.Organization)
	if err != nil {
		return model.Viewer{}, err
	}
	return model.Viewer{
		Organization: model.Organization{Organization: o}, PrincipalType: string(actor.Type), PrincipalID: int(actor.ID),
		Permissions: actor.Permissions.List(), Grants: wrapAll(actor.Grants, model.WrapGrant),
	}, nil
}

// Applications is one page of them.
func (q query) Applications(
	ctx context.Context, first *int, after *string, last *int, before, name *string, rolledOut *bool, orderBy *core.Order,
) (model.ApplicationConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.ApplicationConnection{}, err
	}
	filter, organization := core.ApplicationFilter{Contains: orEmpty(name), RolledOut: rolledOut}, loadersOf(ctx).actor.Organization
	s, err := q.domain.View.Applications(ctx, organization, filter, p)
	return model.ApplicationConnection(model.Connect[model.ApplicationEdge](s, model.WrapApplication, func(ctx context.Context) (int, error) {
		return q.domain.View.CountApplications(ctx, organization, filter)
	})), err
}

// Application finds one by name; null where there is none.
func (q query) Application(ctx context.Context, name string) (*model.Application, error) {
	a, err := q.domain.View.ApplicationByName(ctx, loadersOf(ctx).actor.Organization, name)
	return orNull(a, err, model.WrapApplication)
}

// Environments is one page of them.
func (q query) Environments(
	ctx context.Context, first *int, after *string, last *int, before, name *string, tiers []core.Tier, readiness []core.Readiness,
	orderBy *core.Order,
) (model.EnvironmentConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.EnvironmentConnection{}, err
	}
	filter, organization := core.EnvironmentFilter{Contains: orEmpty(name), Tiers: tiers, Readiness: readiness},
		loadersOf(ctx).actor.Organization
	s, err := q.domain.View.Environments(ctx, organization, filter, p)
	return model.EnvironmentConnection(model.Connect[model.EnvironmentEdge](s, model.WrapEnvironment, func(ctx context.Context) (int, error) {
		return q.domain.View.CountEnvironments(ctx, organization, filter)
	})), err
}

// Environment finds one by name; null where there is none.
func (q query) Environment(ctx context.Context, name string) (*model.Environment, error) {
	e, err := q.domain.View.EnvironmentByName(ctx, loadersOf(ctx).actor.Organization, name)
	return orNull(e, err, model.WrapEnvironment)
}

// Rollouts is one page of them, of one application or in some states if asked so.
func (q query) Rollouts(
	ctx context.Context, first *int, after *string, last *int, before, application *string, states []core.RolloutState, environment *string,
	orderBy *core.Order,
) (model.RolloutConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.RolloutConnection{}, err
	}
	filter := core.RolloutFilter{States: states}
	if application != nil {
		if filter.ApplicationID, err = applicationNumber(ctx, q.domain.View, *application); err != nil {
			return model.RolloutConnection{}, err
		}
	}
	if environment != nil {
		if filter.EnvironmentID, err = environmentNumber(ctx, q.domain.View, *environment); err != nil {
			return model.RolloutConnection{}, err
		}
	}
	organization := loadersOf(ctx).actor.Organization
	s, err := q.domain.View.Rollouts(ctx, organization, filter, p)
	return model.RolloutConnection(model.Connect[model.RolloutEdge](s, model.WrapRollout, func(ctx context.Context) (int, error) {
		return q.domain.View.CountRollouts(ctx, organization, filter)
	})), err
}

// Rollout finds one by identifier; null where there is none that the viewer may see.
func (q query) Rollout(ctx context.Context, global string) (*model.Rollout, error) {
	number, err := number("id", model.KindRollout, global)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).rollouts, number, model.WrapRollout)
}

// mostQueued is how many rollouts that wait are listed at most.
const mostQueued = 500

// QueuedRollouts are those that wait, of all applications or of one.
func (q query) QueuedRollouts(ctx context.Context, application *string, first *int) (all []model.QueuedRollout, err error) {
	of, n := int64(0), defaultPage
	if first != nil {
		n = min(max(*first, 0), mostQueued)
	}
	if application != nil {
		if of, err = applicationNumber(ctx, q.domain.View, *application); err != nil {
			return nil, err
		}
	}
	found, err := q.domain.View.WaitingRollouts(ctx, loadersOf(ctx).actor.Organization, of, n)
	return wrapAll(found, model.WrapQueuedRollout), err
}

// ArtifactSources is one page of them, of one application if asked so.
func (q query) ArtifactSources(
	ctx context.Context, first *int, after *string, last *int, before, application *string, orderBy *core.Order,
) (model.ArtifactSourceConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.ArtifactSourceConnection{}, err
	}
	var filter core.SourceFilter
	if application != nil {
		if filter.ApplicationID, err = applicationNumber(ctx, q.domain.View, *application); err != nil {
			return model.ArtifactSourceConnection{}, err
		}
	}
	organization := loadersOf(ctx).actor.Organization
	s, err := q.domain.View.ArtifactSources(ctx, organization, filter, p)
	return model.ArtifactSourceConnection(model.Connect[model.ArtifactSourceEdge](s, model.WrapArtifactSource,
		func(ctx context.Context) (int, error) {
			return q.domain.View.CountArtifactSources(ctx, organization, filter)
		})), err
}

// ArtifactSourceKinds are those that the installation knows; they belong to no organization.
func (q query) ArtifactSourceKinds(context.Context) ([]model.ArtifactSourceKind, error) {
	return wrapAll(q.domain.Setup.SourceKinds(), model.WrapArtifactSourceKind), nil
}

// ArtifactSenders are the hooks and tokens of the registry service.
func (q query) ArtifactSenders(ctx context.Context) ([]model.ArtifactSender, error) {
	all, err := q.domain.Setup.ArtifactSenders(ctx, loadersOf(ctx).actor)
	return wrapAll(all, model.WrapArtifactSender), err
}

// Drivers are those that the installation carries; they belong to no organization.
func (q query) Drivers(context.Context) ([]model.Driver, error) {
	return wrapAll(q.domain.Setup.Drivers(), model.WrapDriver), nil
}

// DriverOrigins are where they come from.
func (q query) DriverOrigins(context.Context) ([]model.DriverOrigin, error) {
	return wrapAll(q.domain.Setup.DriverOrigins(), model.WrapDriverOrigin), nil
}

// JournalCheck rebuilds states from the journal, a page at a time.
func (q query) JournalCheck(ctx context.Context, first *int, after *string) (model.JournalCheck, error) {
	p, err := forward(first, after)
	if err != nil {
		return model.JournalCheck{}, err
	}
	check, err := q.domain.Rollouts.CheckJournal(ctx, loadersOf(ctx).actor, p)
	return model.JournalCheck{JournalCheck: check, Behind: p.After != ""}, err
}

// Node finds any object by its identifier.
func (q query) Node(ctx context.Context, global string) (model.Node, error) {
	kind, number, err := id.Split(global)
	if err != nil {
		return nil, fault.InvalidFields(fault.Field{Name: "id", Problem: err.Error()})
	}
	l := loadersOf(ctx)
	switch kind {
	case model.KindOrganization:
		if number != l.actor.Organization {
			return nil, nil
		}
		o, err := q.domain.View.Organization(ctx, number)
		return model.Organization{Organization: o}, err
	case model.KindApplication:
		return node(ctx, l.applications, number, model.WrapApplication)
	case model.KindService:
		return node(ctx, l.services, number, model.WrapService)
	case model.KindArtifactSource:
		return node(ctx, l.sources, number, model.WrapArtifactSource)
	case model.KindVersion:
		return node(ctx, l.versions, number, model.WrapVersion)
	case model.KindVersionSet:
		return node(ctx, l.versionSets, number, model.WrapVersionSet)
	case model.KindFlowDefinition:
		return node(ctx, l.flows, number, model.WrapFlowDefinition)
	case model.KindEnvironment:
		return node(ctx, l.environments, number, model.WrapEnvironment)
	case model.KindDriverBinding:
		return node(ctx, l.bindings, number, model.WrapDriverBinding)
	case model.KindApplicationEnvironment:
		return node(ctx, l.cells, number, model.WrapApplicationEnvironment)
	case model.KindMember:
		return node(ctx, l.members, number, model.WrapMember)
	case model.KindGroup:
		return node(ctx, l.groups, number, model.WrapGroup)
	case model.KindProposedChange:
		return node(ctx, l.proposedChanges, number, model.WrapProposedChange)
	case model.KindGrant:
		return node(ctx, l.grants, number, model.WrapGrant)
	case model.KindAgent:
		return node(ctx, l.agents, number, model.WrapAgent)
	case model.KindAccessToken:
		return visibleToken(ctx, l, number)
	case model.KindAgentKey:
		return node(ctx, l.agentKeys, number, model.WrapAgentKey)
	case model.KindRolloutPreview:
		return node(ctx, l.previews, number, model.WrapPreview)
	case model.KindRollout:
		return node(ctx, l.rollouts, number, model.WrapRollout)
	case model.KindQueuedRollout:
		return node(ctx, l.queuedRollouts, number, model.WrapQueuedRollout)
	case model.KindRolloutEnvironment:
		return node(ctx, l.rolloutEnvironments, number, model.WrapRolloutEnvironment)
	case model.KindFreeze:
		return node(ctx, l.freezes, number, model.WrapFreeze)
	case model.KindPolicySet:
		return node(ctx, l.policySets, number, model.WrapPolicySet)
	case model.KindPolicyDecision:
		return node(ctx, l.policyDecisions, number, model.WrapPolicyDecision)
	case model.KindCallRequest:
		return node(ctx, l.callRequests, number, model.WrapCallRequest)
	case model.KindChain:
		return node(ctx, l.chains, number, model.WrapChain)
	case model.KindVeto:
		return node(ctx, l.vetoes, number, model.WrapVeto)
	case model.KindDeployment:
		return node(ctx, l.deployments, number, model.WrapDeployment)
	default:
		return nil, fault.InvalidFields(fault.Field{
			Name:    "id",
			Problem: "identifier \"" + global + "\": no kind of object is called \"" + kind + "\"",
		})
	}
}

// visibleToken is a token as a node, where it is among those of its member that the viewer sees; nil for all others.
func visibleToken(ctx context.Context, l *loaders, number int64) (model.Node, error) {
	token, found, err := l.tokens.load(ctx, number)
	if err != nil || !found {
		return nil, err
	}
	visible, _, err := l.tokensOf.load(ctx, token.MemberID)
	if err != nil || !slices.ContainsFunc(visible, func(t core.AccessToken) bool { return t.ID == number }) {
		return nil, err
	}
	return model.WrapAccessToken(token), nil
}

// node loads an object as a node; nil where there is none.
func node[V any, M model.Node](ctx context.Context, l *loader[int64, V], number int64, wrap func(V) M) (model.Node, error) {
	value, found, err := l.load(ctx, number)
	if err != nil || !found {
		return nil, err
	}
	return wrap(value), nil
}

// orNull makes null of what was not found.
func orNull[V, M any](value V, err error, wrap func(V) M) (*M, error) {
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := wrap(value)
	return &m, nil
}

// number reads the identifier in an argument or input field.
func number(field, kind, global string) (int64, error) {
	n, err := id.Parse(kind, global)
	if err != nil {
		return 0, fault.InvalidFields(fault.Field{Name: field, Problem: err.Error()})
	}
	return n, nil
}

// applicationNumber finds an application by its identifier or by its name.
func applicationNumber(ctx context.Context, reads view.Reads, nameOrID string) (int64, error) {
	return byNameOrID(ctx, model.KindApplication, nameOrID, reads.ApplicationsByID, func(name string) (int64, error) {
		a, err := reads.ApplicationByName(ctx, loadersOf(ctx).actor.Organization, name)
		return a.ID, err
	})
}

// environmentNumber finds an environment by its identifier or by its name.
func environmentNumber(ctx context.Context, reads view.Reads, nameOrID string) (int64, error) {
	return byNameOrID(ctx, model.KindEnvironment, nameOrID, reads.EnvironmentsByID, func(name string) (int64, error) {
		e, err := reads.EnvironmentByName(ctx, loadersOf(ctx).actor.Organization, name)
		return e.ID, err
	})
}

func byNameOrID[V any](
	ctx context.Context, kind, nameOrID string, byID func(context.Context, int64, []int64) (map[int64]V, error),
	byName func(string) (int64, error),
) (int64, error) {
	if strings.HasPrefix(nameOrID, kind+"_") {
		// Something may be named like an identifier; then the object of that number, if there is one, comes first.
		if n, err := id.Parse(kind, nameOrID); err == nil {
			found, err := byID(ctx, loadersOf(ctx).actor.Organization, []int64{n})
			if _, ok := found[n]; ok || err != nil {
				return n, err
			}
		}
	}
	return byName(nameOrID)
}
