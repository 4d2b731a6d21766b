package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// loaders are the reads of one request, all within the viewer's organization: there is no way from here to another's.
type loaders struct {
	triggerLoaders
	actor core.Actor
	clock clock.Clock

	applications            *loader[int64, core.Application]
	details                 *loader[core.Detailed, core.Details]
	formerNames             *loader[int64, []string]
	services                *loader[int64, core.Service]
	servicesOf              *loader[int64, []core.Service]
	sources                 *loader[int64, core.ArtifactSource]
	sourcesOf               *loader[int64, []core.ArtifactSource]
	sourceStates            *loader[int64, setup.SourceState]
	versions                *loader[int64, core.Version]
	versionsOfSource        *loader[paged, core.Slice[core.Version]]
	versionCountOf          *loader[int64, int]
	versionsOfDeployment    *loader[int64, []core.Version]
	versionSets             *loader[int64, core.VersionSet]
	versionSetsOf           *loader[paged, core.Slice[core.VersionSet]]
	versionSetCountOf       *loader[int64, int]
	newestSetOf             *loader[int64, core.VersionSet]
	compositionOf           *loader[int64, core.Composition]
	curatedOf               *loader[int64, []core.Curated]
	seenDigests             *loader[int64, bool]
	deletedVersions         *loader[int64, time.Time]
	warningsOf              *loader[int64, []string]
	entriesOf               *loader[int64, []core.VersionSetEntry]
	environments            *loader[int64, core.Environment]
	bindings                *loader[int64, core.DriverBinding]
	bindingsOf              *loader[int64, []core.DriverBinding]
	approvalOf              *loader[int64, core.EnvironmentApproval]
	archivingsOfApplication *loader[int64, []core.Archiving]
	archivingsOfEnvironment *loader[int64, []core.Archiving]
	contactOf               *loader[int64, core.Contact]
	healthsOf               *loader[int64, []core.ServiceHealth]
	flows                   *loader[int64, core.FlowDefinition]
	latestFlowOf            *loader[int64, core.FlowDefinition]
	rollouts                *loader[int64, core.Rollout]
	rolloutsOf              *loader[paged, core.Slice[core.Rollout]]
	rolloutCountOf          *loader[int64, int]
	activeRolloutOf         *loader[int64, core.Rollout]
	rollbackPolicyOf        *loader[int64, core.RollbackPolicy]
	rolloutPolicyOf         *loader[int64, core.RolloutPolicy]
	queuedRollouts          *loader[int64, core.QueuedRollout]
	queuedRolloutOf         *loader[int64, core.QueuedRollout]
	lastQueuedOf            *loader[int64, core.QueuedRollout]
	gatesOf                 *loader[int64, []core.Gate]
	gatesOfStop             *loader[int64, []core.Gate]
	rolloutEnvironments     *loader[int64, core.RolloutEnvironment]
	rolloutEnvironmentsOf   *loader[int64, []core.RolloutEnvironment]
	deployments             *loader[int64, core.Deployment]
	deploymentsOf           *loader[int64, []core.Deployment]
	snapshotOf              *loader[int64, core.Snapshot]
	attemptsOf              *loader[int64, []core.Snapshot]
	linkOf                  *loader[int64, core.DeploymentLink]
	deploymentGatesOf       *loader[int64, []core.DeploymentGate]
	previews                *loader[int64, core.Preview]
	journalOf               *loader[paged, core.Slice[core.Transition]]
	journalCountOf          *loader[int64, int]
	standings               *loader[int64, core.Standing]
	applicationStandings    *loader[int64, core.ApplicationStanding]
	environmentStandings    *loader[int64, core.EnvironmentStanding]
	waitsOf                 *loader[int64, []view.Wait]
	checksOf                *loader[int64, []core.CheckState]
	environmentChecksOf     *loader[int64, json.RawMessage]
	outlookOf               *loader[int64, core.RollbackOutlook]
	skipsOf                 *loader[int64, []core.SkippedEnvironment]
	causesOf                *loader[int64, []core.Transition]
	fleetsOf                *loader[int64, core.RolloutFleet]
	wavesOf                 *loader[int64, []core.RolloutWave]
	deadlinesOf             *loader[int64, []view.Deadline]
	openingsOf              *loader[int64, []core.NotificationOpening]
	members                 *loader[int64, core.Member]
	cells                   *loader[int64, core.Cell]
	cellsOf                 *loader[int64, []core.Cell]
	groups                  *loader[int64, core.Group]
	membersOf               *loader[int64, []core.Member]
	proposedChanges         *loader[int64, core.ProposedChange]
	directChangesOf         *loader[int64, bool]
	changeControlOf         *loader[int64, bool]
	grants                  *loader[int64, core.Grant]
	grantsOfMember          *loader[int64, []core.Grant]
	grantsOfGroup           *loader[int64, []core.Grant]
	groupsOf                *loader[int64, []core.Group]
	tokens                  *loader[int64, core.AccessToken]
	tokensOf                *loader[int64, []core.AccessToken]
	agents                  *loader[int64, core.Agent]
	agentKeys               *loader[int64, core.AgentKey]
	agentKeysOf             *loader[int64, []core.AgentKey]
	environmentsOfAgent     *loader[int64, []core.Environment]
	freezes                 *loader[int64, core.Freeze]
	policySets              *loader[int64, core.PolicySet]
	policyDecisions         *loader[int64, core.PolicyDecision]
	callRequests            *loader[int64, core.CallRequest]
	callRequestsOf          *loader[int64, []core.CallRequest]
	callAnswersOf           *loader[int64, []core.CallAnswer]
	originOf                *loader[int64, core.Origin]
	componentsOf            *loader[int64, []provenance.Component]
	policyDecisionsOf       *loader[int64, []core.PolicyDecision]
	stoppedBy               *loader[int64, int]
	vetoes                  *loader[int64, core.Veto]
	vetoOfVersion           *loader[int64, core.Veto]
	vetoesOf                *loader[int64, []core.Veto]
	pinOf                   *loader[int64, core.Pin]
}

// triggerLoaders are those about triggers and chains.
type triggerLoaders struct {
	triggersOf         *loader[int64, []core.Trigger]
	triggerDecisionsOf *loader[int64, []core.TriggerSignal]
	promotionHoldsOf   *loader[int64, []core.PromotionHold]
	chains             *loader[int64, core.Chain]
	chainsOf           *loader[int64, []core.Chain]
	chainsAfter        *loader[int64, []core.Chain]
	chainNodesOf       *loader[int64, []core.ChainNode]
}

func newTriggerLoaders(b batching, r Domain) triggerLoaders {
	return triggerLoaders{
		triggersOf:         plain(b, r.Triggers.Triggers),
		triggerDecisionsOf: plain(b, r.Triggers.TriggerDecisions),
		promotionHoldsOf:   plain(b, r.Triggers.PromotionHolds),
		chains:             plain(b, r.Triggers.Chains),
		chainsOf:           plain(b, r.Triggers.ChainsByApplication),
		chainsAfter:        plain(b, r.Triggers.ChainsByRollout),
		chainNodesOf:       plain(b, r.Triggers.ChainNodes),
	}
}

// paged is one page of what belongs to an object.
type paged struct {
	owner int64
	page  core.Page
}

func newLoaders(r Domain, actor core.Actor, c clock.Clock, window time.Duration) *loaders { //nolint:funlen // a table
	b := batching{organization: actor.Organization, clock: c, window: window}
	return &loaders{
		triggerLoaders:          newTriggerLoaders(b, r),
		actor:                   actor,
		clock:                   c,
		applications:            plain(b, r.View.ApplicationsByID),
		details:                 plain(b, r.View.Details),
		formerNames:             plain(b, r.View.FormerNames),
		services:                plain(b, r.View.ServicesByID),
		servicesOf:              plain(b, r.View.ServicesByApplication),
		sources:                 plain(b, r.View.ArtifactSourcesByID),
		sourcesOf:               plain(b, r.View.ArtifactSourcesByService),
		sourceStates:            plain(b, r.Setup.SourceStates),
		versions:                plain(b, r.View.VersionsByID),
		versionsOfSource:        pages(b, r.View.VersionsBySource),
		versionCountOf:          plain(b, r.View.CountVersionsBySource),
		versionsOfDeployment:    plain(b, r.View.VersionsByDeployment),
		versionSets:             plain(b, r.View.VersionSetsByID),
		versionSetsOf:           pages(b, r.View.VersionSetsByApplication),
		versionSetCountOf:       plain(b, r.View.CountVersionSetsByApplication),
		newestSetOf:             plain(b, r.View.NewestVersionSets),
		compositionOf:           plain(b, r.View.Compositions),
		curatedOf:               plain(b, r.View.CuratedVersionSets),
		seenDigests:             plain(b, r.View.SeenDigests),
		deletedVersions:         plain(b, r.View.DeletedVersions),
		warningsOf:              plain(b, warnings(r.View)),
		entriesOf:               plain(b, r.View.EntriesByVersionSet),
		environments:            plain(b, r.View.EnvironmentsByID),
		bindings:                plain(b, r.View.DriverBindingsByID),
		bindingsOf:              plain(b, r.View.DriverBindingsByEnvironment),
		approvalOf:              plain(b, r.View.EnvironmentApprovals),
		archivingsOfApplication: plain(b, r.View.ArchivingsByApplication),
		archivingsOfEnvironment: plain(b, r.View.ArchivingsByEnvironment),
		contactOf:               plain(b, r.View.Contacts),
		healthsOf:               plain(b, r.View.HealthsByEnvironment),
		flows:                   plain(b, r.View.FlowDefinitionsByID),
		latestFlowOf:            plain(b, r.View.LatestFlowDefinitions),
		rollouts:                plain(b, r.View.RolloutsByID),
		rolloutsOf:              pages(b, r.View.RolloutsByApplication),
		rolloutCountOf:          plain(b, r.View.CountRolloutsByApplication),
		activeRolloutOf:         plain(b, r.View.ActiveRollouts),
		rollbackPolicyOf:        plain(b, r.View.RollbackPolicies),
		rolloutPolicyOf:         plain(b, r.View.RolloutPolicies),
		queuedRollouts:          plain(b, r.View.QueuedRolloutsByID),
		queuedRolloutOf:         plain(b, r.View.QueuedRollouts),
		lastQueuedOf:            plain(b, r.View.LastQueuedRollouts),
		gatesOf:                 plain(b, r.View.OpenGates),
		gatesOfStop:             plain(b, r.View.GatesOfStops),
		rolloutEnvironments:     plain(b, r.View.RolloutEnvironmentsByID),
		rolloutEnvironmentsOf:   plain(b, r.View.RolloutEnvironmentsByRollout),
		deployments:             plain(b, r.View.DeploymentsByID),
		deploymentsOf:           plain(b, r.View.DeploymentsByRolloutEnvironment),
		snapshotOf:              plain(b, r.View.SnapshotsByDeployment),
		attemptsOf:              plain(b, r.View.AttemptsByDeployment),
		linkOf:                  plain(b, r.View.LinksByDeployment),
		deploymentGatesOf:       plain(b, r.View.GatesByDeployment),
		previews:                plain(b, r.View.PreviewsByID),
		journalOf:               pages(b, r.View.JournalsByRollout),
		journalCountOf:          plain(b, r.View.CountJournalsByRollout),
		standings:               plain(b, r.View.Standings),
		applicationStandings:    plain(b, r.View.ApplicationStandings),
		environmentStandings:    plain(b, r.View.EnvironmentStandings),
		waitsOf:                 plain(b, r.View.Waits),
		checksOf:                plain(b, r.View.RolloutChecks),
		environmentChecksOf:     plain(b, r.View.EnvironmentChecks),
		outlookOf:               plain(b, r.View.RollbackOutlooks),
		skipsOf:                 plain(b, r.View.SkipsByRollout),
		causesOf:                plain(b, r.View.CausesByRollout),
		fleetsOf:                plain(b, r.View.RolloutFleets),
		wavesOf:                 plain(b, r.View.RolloutWaves),
		deadlinesOf:             plain(b, r.View.RolloutDeadlines),
		openingsOf:              plain(b, r.Notify.Openings),
		members:                 plain(b, r.View.MembersByID),
		cells:                   plain(b, r.View.CellsByID),
		cellsOf:                 plain(b, r.View.CellsByApplication),
		groups:                  plain(b, r.View.GroupsByID),
		membersOf:               plain(b, r.View.MembersByGroup),
		proposedChanges:         plain(b, r.Control.ProposedChangesByID),
		directChangesOf:         plain(b, r.View.DirectChanges),
		changeControlOf:         plain(b, r.View.ChangeControlled),
		grants:                  plain(b, r.View.GrantsByID),
		grantsOfMember:          plain(b, r.View.GrantsByMember),
		grantsOfGroup:           plain(b, r.View.GrantsByGroup),
		groupsOf:                plain(b, r.View.GroupsByMember),
		tokens:                  plain(b, r.View.TokensByID),
		agents:                  plain(b, r.View.AgentsByID),
		agentKeys:               plain(b, r.View.AgentKeysByID),
		agentKeysOf:             plain(b, r.View.AgentKeysByAgent),
		environmentsOfAgent:     plain(b, r.View.EnvironmentsByAgent),
		freezes:                 plain(b, r.View.FreezesByID),
		policySets:              plain(b, r.Policies.PolicySetsByID),
		policyDecisions:         plain(b, r.Policies.PolicyDecisionsByID),
		callRequests:            plain(b, r.Policies.CallRequestsByID),
		callRequestsOf:          plain(b, r.Policies.CallRequestsByRollout),
		callAnswersOf:           plain(b, r.Policies.CallAnswersOf),
		originOf:                plain(b, r.Origins.Origins),
		componentsOf:            plain(b, r.Origins.Components),
		policyDecisionsOf:       plain(b, r.Policies.PolicyDecisionsByRollout),
		stoppedBy:               plain(b, r.View.StoppedByFreeze),
		vetoes:                  plain(b, r.View.VetoesByID),
		vetoOfVersion:           plain(b, r.View.VetoesByVersion),
		vetoesOf:                plain(b, r.View.VetoesByVersionSet),
		pinOf:                   plain(b, r.View.PinsByEnvironment),
		tokensOf: plain(b, func(ctx context.Context, _ int64, members []int64) (map[int64][]core.AccessToken, error) {
			return r.Access.VisibleTokens(ctx, actor, members)
		}),
	}
}

// batching is what all loaders of a request share.
type batching struct {
	organization int64
	clock        clock.Clock
	window       time.Duration
}

// plain loads by number, or by what else identifies something.
func plain[K comparable, V any](b batching, read func(context.Context, int64, []K) (map[K]V, error)) *loader[K, V] {
	return &loader[K, V]{clock: b.clock, window: b.window, fetch: func(ctx context.Context, ids []K) (map[K]V, error) {
		return read(ctx, b.organization, ids)
	}}
}

// pages loads pages by owner; owners of whom the same page is asked for are read at once.
func pages[V any](
	b batching, read func(context.Context, int64, []int64, core.Page) (map[int64]core.Slice[V], error),
) *loader[paged, core.Slice[V]] {
	return &loader[paged, core.Slice[V]]{
		clock: b.clock, window: b.window,
		fetch: func(ctx context.Context, keys []paged) (map[paged]core.Slice[V], error) {
			owners := map[core.Page][]int64{}
			for _, k := range keys {
				owners[k.page] = append(owners[k.page], k.owner)
			}
			all := make(map[paged]core.Slice[V], len(keys))
			for page, ids := range owners {
				slices, err := read(ctx, b.organization, ids, page)
				if err != nil {
					return nil, err
				}
				for id, slice := range slices {
					all[paged{id, page}] = slice
				}
			}
			return all, nil
		},
	}
}

type loadersKey struct{}

func withLoaders(ctx context.Context, l *loaders) context.Context {
	return context.WithValue(ctx, loadersKey{}, l)
}

// loadersOf are the loaders of the request. The handler puts them there before anything is resolved.
func loadersOf(ctx context.Context) *loaders {
	l, ok := ctx.Value(loadersKey{}).(*loaders)
	if !ok {
		panic("graph: a resolver runs outside the handler")
	}
	return l
}

// required loads what a foreign key promises to be there, and wraps it.
func required[V, M any](ctx context.Context, l *loader[int64, V], kind string, number int64, wrap func(V) M) (M, error) {
	value, found, err := l.load(ctx, number)
	if err == nil && !found {
		err = fmt.Errorf("%s %d is referred to, but does not exist", kind, number)
	}
	if err != nil {
		var none M
		return none, err
	}
	return wrap(value), nil
}

// optional loads what may not be there, and wraps it; nil without it, and for the number 0, which nothing has.
func optional[V, M any](ctx context.Context, l *loader[int64, V], number int64, wrap func(V) M) (*M, error) {
	if number == 0 {
		return nil, nil
	}
	value, found, err := l.load(ctx, number)
	if err != nil || !found {
		return nil, err
	}
	m := wrap(value)
	return &m, nil
}

// list loads what belongs to an object, and wraps each; empty, not null, where there is nothing.
func list[V, M any](ctx context.Context, l *loader[int64, []V], owner int64, wrap func(V) M) ([]M, error) {
	values, _, err := l.load(ctx, owner)
	if err != nil {
		return nil, err
	}
	return wrapAll(values, wrap), nil
}

// each loads objects by their numbers, and wraps those that exist.
func each[V, M any](ctx context.Context, l *loader[int64, V], numbers []int64, wrap func(V) M) ([]M, error) {
	values, err := l.loadAll(ctx, numbers)
	return wrapAll(values, wrap), err
}

func wrapAll[V, M any](values []V, wrap func(V) M) []M {
	all := make([]M, len(values))
	for i, v := range values {
		all[i] = wrap(v)
	}
	return all
}

// loader joins the reads that the fields of one request ask for at about the same time into one, so that a list costs
// as many queries as it has levels, not as it has items. It keeps nothing: what is asked for later is read again, and
// sees what a mutation before it in the same request has changed.
type loader[K comparable, V any] struct {
	fetch  func(ctx context.Context, keys []K) (map[K]V, error)
	clock  clock.Clock
	window time.Duration

	mu sync.Mutex
	// open takes further keys; nil when the next one begins a batch. mu guards it, and the keys of the batch it points to.
	open *batch[K, V]
}

// batch is one read that is being put together or under way.
type batch[K comparable, V any] struct {
	keys  []K
	asked map[K]bool
	// done is closed when values and err are set; before that only run may touch them.
	done   chan struct{}
	values map[K]V
	err    error
}

// load is the value of a key, and whether there is one.
func (l *loader[K, V]) load(ctx context.Context, key K) (value V, found bool, err error) {
	b := l.join(ctx, key)
	select {
	case <-b.done:
	case <-ctx.Done():
		return value, false, fmt.Errorf("load: %w", ctx.Err())
	}
	if b.err != nil {
		return value, false, b.err
	}
	value, found = b.values[key]
	return value, found, nil
}

// loadAll are the values of several keys that have one, in the order of the keys, in one read.
func (l *loader[K, V]) loadAll(ctx context.Context, keys []K) ([]V, error) {
	var all []V
	batches := make([]*batch[K, V], len(keys))
	for i, key := range keys {
		batches[i] = l.join(ctx, key)
	}
	for i, b := range batches {
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("load: %w", ctx.Err())
		}
		if b.err != nil {
			return nil, b.err
		}
		if value, found := b.values[keys[i]]; found {
			all = append(all, value)
		}
	}
	return all, nil
}

// join puts a key into the batch that is open, or opens one. The batch reads with the context of the caller that opened it: all
// its members belong to one request and end with it.
func (l *loader[K, V]) join(ctx context.Context, key K) *batch[K, V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.open
	if b == nil {
		b = &batch[K, V]{asked: map[K]bool{}, done: make(chan struct{})}
		l.open = b
		go l.run(ctx, b)
	}
	if !b.asked[key] {
		b.asked[key] = true
		b.keys = append(b.keys, key)
	}
	return b
}

// run waits for others to join, and reads.
func (l *loader[K, V]) run(ctx context.Context, b *batch[K, V]) {
	defer close(b.done)
	defer func() {
		if p := recover(); p != nil { // a panic here would not end the request but the process
			b.err = fmt.Errorf("load %d keys: panic: %v", len(b.keys), p)
		}
	}()
	_ = clock.Sleep(ctx, l.clock, l.window) // ended early, the read below says why
	l.mu.Lock()
	// Closed to others before the read: a later caller opens the next batch, and no key is added while fetch has
	// the list.
	l.open = nil
	l.mu.Unlock()
	b.values, b.err = l.fetch(ctx, b.keys)
}

// warnings reads what to consider before version sets are rolled out: versions whose image was deleted at its registry. Names are read only
// where there is something to say.
func warnings(r view.Reads) func(ctx context.Context, organization int64, sets []int64) (map[int64][]string, error) {
	return func(ctx context.Context, organization int64, sets []int64) (map[int64][]string, error) {
		entries, err := r.EntriesByVersionSet(ctx, organization, sets)
		if err != nil {
			return nil, err
		}
		var ids []int64
		for _, of := range entries {
			for _, e := range of {
				ids = append(ids, e.VersionID)
			}
		}
		deleted, err := r.DeletedVersions(ctx, organization, core.Distinct(ids))
		if err != nil || len(deleted) == 0 {
			return nil, err
		}
		var versionIDs, serviceIDs []int64
		for _, of := range entries {
			for _, e := range of {
				if _, gone := deleted[e.VersionID]; gone {
					versionIDs, serviceIDs = append(versionIDs, e.VersionID), append(serviceIDs, e.ServiceID)
				}
			}
		}
		versions, err := r.VersionsByID(ctx, organization, core.Distinct(versionIDs))
		if err != nil {
			return nil, err
		}
		services, err := r.ServicesByID(ctx, organization, core.Distinct(serviceIDs))
		if err != nil {
			return nil, err
		}
		all := map[int64][]string{}
		for set, of := range entries {
			for _, e := range of {
				if at, gone := deleted[e.VersionID]; gone {
					all[set] = append(all[set], fmt.Sprintf("The image of %s %s was deleted at its registry on %s: where it is not kept elsewhere, it cannot be started.",
						services[e.ServiceID].Name, versions[e.VersionID].Name, at.UTC().Format(time.DateTime+" MST")))
				}
			}
		}
		return all, nil
	}
}
