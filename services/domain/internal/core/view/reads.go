package view

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ObservedReads has no key for what nobody has seen yet.
type ObservedReads interface {
	core.HealthReads
	Reconciliations(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]core.Reconciliation, error)
}

// Reads is everything that can be looked at, within one organization. Lists are paged by keyset; what hangs below a
// list is read for all its items at once, so that no list costs a query for each item. A map has no key for an
// identifier that does not exist in the organization; a child list that is empty may have no key either.
type Reads interface {
	ObservedReads
	ControlReads
	Counts
	Organization(ctx context.Context, organization int64) (core.Organization, error)
	// IdentityOf is who a member is at an identity provider; empty for one that has not signed in at any.
	IdentityOf(ctx context.Context, organization, member int64) (issuer, subject string, err error)

	Applications(ctx context.Context, organization int64, f core.ApplicationFilter, p core.Page) (core.Slice[core.Application], error)
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	ServicesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Service, error)
	ServicesByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Service, error)
	ArtifactSources(ctx context.Context, organization int64, f core.SourceFilter, p core.Page) (core.Slice[core.ArtifactSource], error)
	ArtifactSourcesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ArtifactSource, error)
	ArtifactSourcesByService(ctx context.Context, organization int64, services []int64) (map[int64][]core.ArtifactSource, error)

	VersionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Version, error)
	// VersionsBySource is the same page of every source, newest first.
	VersionsBySource(ctx context.Context, organization int64, sources []int64, p core.Page) (map[int64]core.Slice[core.Version], error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	// VersionSetsByApplication is the same page of every application, newest first.
	VersionSetsByApplication(
		ctx context.Context, organization int64, applications []int64, p core.Page,
	) (map[int64]core.Slice[core.VersionSet], error)
	// NewestVersionSets has the newest version of every source of an application; no key for an application without a set.
	NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error)
	// Compositions are what the next version sets of applications consist of, and what they go without; no key for an application without
	// sources.
	Compositions(ctx context.Context, organization int64, applications []int64) (map[int64]core.Composition, error)
	// CuratedVersionSets is by whom sets were put together, at most twenty of each; no key for those that intake has made.
	CuratedVersionSets(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.Curated, error)
	// SeenDigests says of versions whether their digest was seen at the registry; no key where that was never said.
	SeenDigests(ctx context.Context, organization int64, versions []int64) (map[int64]bool, error)
	// DeletedVersions says of versions when their image, or the last tag that named them, was deleted at the registry; no key for those that
	// exist.
	DeletedVersions(ctx context.Context, organization int64, versions []int64) (map[int64]time.Time, error)
	EntriesByVersionSet(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.VersionSetEntry, error)

	Environments(ctx context.Context, organization int64, f core.EnvironmentFilter, p core.Page) (core.Slice[core.Environment], error)
	core.ShownReads
	// EnvironmentByName finds by names and display names.
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	DriverBindingsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.DriverBinding, error)
	// DriverBindingsByEnvironment is newest first.
	DriverBindingsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]core.DriverBinding, error)

	FlowDefinitionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.FlowDefinition, error)
	// LatestFlowDefinitions is the newest pipeline of each application; no key for one that has none.
	LatestFlowDefinitions(ctx context.Context, organization int64, applications []int64) (map[int64]core.FlowDefinition, error)
	// PipelinesTo are the newest pipelines of the applications that go to an environment and are not archived, by application: at most so
	// many, of applications behind one.
	PipelinesTo(ctx context.Context, organization, environment, after int64, most int) ([]core.FlowDefinition, error)
	ApplicationEnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ApplicationEnvironment, error)
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]core.ApplicationEnvironment, error)

	// ArchivingsByApplication and ArchivingsByEnvironment are the latest of each, newest first.
	ArchivingsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Archiving, error)
	ArchivingsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]core.Archiving, error)
	// EnvironmentApprovals has no key for an environment that asks nobody by itself.
	EnvironmentApprovals(ctx context.Context, organization int64, environments []int64) (map[int64]core.EnvironmentApproval, error)
	// DirectChanges and ChangeControlled have true for environments where changes that belong to no rollout are accepted, and for those whose
	// controls take a second person to change.
	DirectChanges(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error)
	ChangeControlled(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error)
	// Members are those who have not been removed, in the order in which they came.
	Members(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Member], error)
	// MembersByID finds removed ones as well: journals speak of them.
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	MemberByName(ctx context.Context, organization int64, name string) (core.Member, error)
	// PeopleWithRoles are people, no machines, who have one of some roles and have not been removed, by number: at most so many.
	PeopleWithRoles(ctx context.Context, organization int64, roles []core.Role, most int) ([]int64, error)
	// PeopleWithGrants are people who have a permission by a grant, wherever it is limited to, by number: at most so many.
	PeopleWithGrants(ctx context.Context, organization int64, p core.Permission, most int) ([]int64, error)
	Groups(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Group], error)
	GroupsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Group, error)
	GroupByName(ctx context.Context, organization int64, name string) (core.Group, error)
	MembersByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Member, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	core.GrantReads
	// GrantsByGroup are those of groups, GrantsByID also those that were revoked.
	GrantsByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Grant, error)
	GrantsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Grant, error)
	TokensByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AccessToken, error)
	// TokensByMember is newest first, and without browsers' sessions.
	TokensByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.AccessToken, error)

	// Agents are in the order in which they were registered.
	Agents(ctx context.Context, organization int64, withRevoked bool, p core.Page) (core.Slice[core.Agent], error)
	// AgentsByID and AgentKeysByAgent find revoked ones as well; AgentByName does not.
	AgentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Agent, error)
	AgentByName(ctx context.Context, organization int64, name string) (core.Agent, error)
	// AgentKeysByAgent are the latest of each, newest first.
	AgentKeysByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.AgentKey, error)
	AgentKeysByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AgentKey, error)
	// EnvironmentsByAgent are those whose configurations name an agent.
	EnvironmentsByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.Environment, error)
	// AccessChanges are newest first.
	AccessChanges(ctx context.Context, organization int64, p core.Page) (core.Slice[core.AccessChange], error)

	// CellsByID are of application environments, CellsByApplication of those that its latest pipeline goes to.
	CellsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Cell, error)
	CellsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Cell, error)
	// CellDifferences are the cells of applications that are not what pipelines, rollouts and healths say.
	CellDifferences(ctx context.Context, organization int64, applications []int64) ([]core.CellDifference, error)
	// MatrixApplications are applications that have a cell as it is asked for, by name. Stops are the rollout environments at
	// which a gate is open, which f.Waiting goes by.
	MatrixApplications(
		ctx context.Context, organization int64, f core.MatrixFilter, stops []int64, p core.Page,
	) (core.Slice[core.Application], error)
	// EnvironmentsOfDrivers are environments that are bound to one of some drivers now.
	EnvironmentsOfDrivers(ctx context.Context, organization int64, refs []string) ([]int64, error)
	// StopsAsking are the rollout environments at which a gate is open: those that GatesOfStops has a key for.
	StopsAsking(ctx context.Context, organization int64) ([]int64, error)
	// RolloutsAsking are rollouts that are not over and have asked for an approval, by number.
	RolloutsAsking(ctx context.Context, organization int64, r core.Range) ([]int64, error)
	// JournalBetween is of the journal of the whole organization, by position.
	JournalBetween(ctx context.Context, organization int64, r core.Range) ([]core.JournalEntry, error)
	JournalHorizon(ctx context.Context, organization int64) (core.Horizon, error)

	// FormerNames are those of some applications, the latest first; no key for what has none.
	FormerNames(ctx context.Context, organization int64, applications []int64) (map[int64][]string, error)
	// Details has no key for what has none.
	Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error)
	// RolloutPolicies has no key for an application that has none of its own.
	RolloutPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RolloutPolicy, error)
	// QueuedRollouts are those that wait, by application.
	QueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error)
	// QueuedRolloutsByID are those with some numbers, also of those that wait no longer.
	QueuedRolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.QueuedRollout, error)
	// LastQueuedRollouts are the latest that have left the queue, by application.
	LastQueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error)
	// WaitingRollouts are those that wait in the queues of all applications, or of one, the first to begin first, as many as most.
	WaitingRollouts(ctx context.Context, organization, application int64, most int) ([]core.QueuedRollout, error)
	// RollbackPolicies has no key for an application that has none of its own.
	RollbackPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RollbackPolicy, error)
	// Rollouts are newest first, where no other order is asked for.
	Rollouts(ctx context.Context, organization int64, f core.RolloutFilter, p core.Page) (core.Slice[core.Rollout], error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// RolloutsByApplication is the same page of every application, newest first.
	RolloutsByApplication(
		ctx context.Context, organization int64, applications []int64, p core.Page,
	) (map[int64]core.Slice[core.Rollout], error)
	// ActiveRollouts is the rollout that is not over yet, by application; no key where there is none.
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	// ActiveRolloutsByEnvironment are the newest rollouts that go to environments and are not over; only number and state.
	ActiveRolloutsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Rollout, error)
	// RolloutFleets has no key for an environment of a rollout that is no fleet. RolloutWaves are in order.
	RolloutFleets(ctx context.Context, organization int64, environments []int64) (map[int64]core.RolloutFleet, error)
	RolloutWaves(ctx context.Context, organization int64, environments []int64) (map[int64][]core.RolloutWave, error)
	// RolloutTargets are failed ones first.
	RolloutTargets(
		ctx context.Context, organization, environment int64, f core.TargetFilter, p core.Page,
	) (core.Slice[core.RolloutTarget], error)
	// SkipsByRollout are the environments of its pipeline that a rollout does not go to.
	SkipsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.SkippedEnvironment, error)
	// CausesByRollout are the rows of the journal that led to a rollout, the first cause first, and last its own first row.
	CausesByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Transition, error)
	// Deadlines are those of rollouts: of the whole, of environments as they come, and of aborts.
	Deadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deadline, error)
	// PinnedGates are the rules of rollouts' gates, by gate.
	PinnedGates(ctx context.Context, organization int64, rollouts []int64) (map[int64]map[string]core.PinnedGate, error)
	// AutomaticRollbacksByRollout has no key for a rollout of which no policy wants, or wanted, anything.
	AutomaticRollbacksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.RollbackOutlook, error)
	OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error)
	// GateWordsByRollout are the rows of rollouts' own journals about gates, pauses and resumptions, oldest first.
	GateWordsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Transition, error)
	RolloutEnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.RolloutEnvironment, error)
	// RolloutEnvironmentsByRollout is in promotion order.
	RolloutEnvironmentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.RolloutEnvironment, error)
	DeploymentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Deployment, error)
	DeploymentsByRolloutEnvironment(ctx context.Context, organization int64, rolloutEnvironments []int64) (map[int64][]core.Deployment, error)
	// VersionsByDeployment is what a deployment carries: the versions of its service's sources in the rollout's set.
	VersionsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.Version, error)
	LinksByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64]core.DeploymentLink, error)
	SnapshotsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64]core.Snapshot, error)
	// AttemptsByDeployment returns the snapshots before those, the earliest first, each with its commit, digest and time only.
	AttemptsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.Snapshot, error)
	PreviewsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Preview, error)
	// GatesByDeployment is in the order in which they were come to.
	GatesByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64][]core.DeploymentGate, error)
	// Attempts are the rollouts that a window of delivery metrics is about, and those around it, in the order in which they were made.
	Attempts(ctx context.Context, organization int64, s DeliverySearch) ([]Attempt, error)
	// Journal is the three journals of a rollout as one, oldest first.
	Journal(ctx context.Context, organization, rollout int64, p core.Page) (core.Slice[core.Transition], error)
	// JournalsByRollout is the same page of the journal of every rollout, oldest first.
	JournalsByRollout(ctx context.Context, organization int64, rollouts []int64, p core.Page) (map[int64]core.Slice[core.Transition], error)
}

// ControlReads is what stops passages from outside of pipelines.
type ControlReads interface {
	// Freezes are newest first, where no other order is asked for.
	Freezes(ctx context.Context, organization int64, f core.FreezeFilter, p core.Page) (core.Slice[core.Freeze], error)
	CountFreezes(ctx context.Context, organization int64, f core.FreezeFilter) (int, error)
	FreezesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Freeze, error)
	// FreezesInForce are those that are not over at an instant, also those to come.
	FreezesInForce(ctx context.Context, organization int64, at time.Time) ([]core.Freeze, error)
	// StoppedByFreeze is how many rollouts wait for the end of each freeze; no key for one that stops none.
	StoppedByFreeze(ctx context.Context, organization int64, freezes []int64) (map[int64]int, error)
	VetoesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Veto, error)
	// VetoesByVersion are those in force; no key for a version without.
	VetoesByVersion(ctx context.Context, organization int64, versions []int64) (map[int64]core.Veto, error)
	// VetoesByVersionSet are those in force, of sets and of their versions; no key for a set without.
	VetoesByVersionSet(ctx context.Context, organization int64, sets []int64) (map[int64][]core.Veto, error)
	// PinsByEnvironment has no key for an environment that is not pinned.
	PinsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Pin, error)
	// ChecksByRollout are those that are pinned with rollouts.
	ChecksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PinnedCheck, error)
	// EnvironmentChecks are those that environments require by themselves, as they were written; no key for one that requires none.
	EnvironmentChecks(ctx context.Context, organization int64, environments []int64) (map[int64]json.RawMessage, error)
	// LatestPolicyDecisions are the latest about each gate of rollouts.
	LatestPolicyDecisions(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error)
	// CheckReports are the latest about version sets, of each environment, key and reporter.
	CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error)
	// CheckRuns are the latest runs of the programs of checks of rollouts, one for each check.
	CheckRuns(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CheckRun, error)
	// RolloutRequesters is what kind of principal created each rollout.
	RolloutRequesters(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.PrincipalType, error)
}

// Counts is how many items lists have in all, whatever page of them is shown. Each is a query of its own that grows with the
// list, so it is made only for callers who ask for the count.
type Counts interface {
	CountApplications(ctx context.Context, organization int64, f core.ApplicationFilter) (int, error)
	CountArtifactSources(ctx context.Context, organization int64, f core.SourceFilter) (int, error)
	CountEnvironments(ctx context.Context, organization int64, f core.EnvironmentFilter) (int, error)
	CountRollouts(ctx context.Context, organization int64, f core.RolloutFilter) (int, error)
	CountMatrixApplications(ctx context.Context, organization int64, f core.MatrixFilter, stops []int64) (int, error)
	CountMembers(ctx context.Context, organization int64) (int, error)
	CountGroups(ctx context.Context, organization int64) (int, error)
	CountRolloutTargets(ctx context.Context, organization, environment int64, f core.TargetFilter) (int, error)
	CountAgents(ctx context.Context, organization int64, withRevoked bool) (int, error)
	CountAccessChanges(ctx context.Context, organization int64) (int, error)
	CountJournal(ctx context.Context, organization int64) (int, error)

	// Those of what belongs to objects have no key for an object that has none.
	CountVersionsBySource(ctx context.Context, organization int64, sources []int64) (map[int64]int, error)
	CountVersionSetsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64]int, error)
	CountRolloutsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64]int, error)
	CountJournalsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]int, error)
}
