package setup

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	AgentReads
	ArtifactSourcesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ArtifactSource, error)
	Environments(ctx context.Context, organization int64, f core.EnvironmentFilter, p core.Page) (core.Slice[core.Environment], error)
	// DriverBindingsByEnvironment is newest first.
	DriverBindingsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]core.DriverBinding, error)

	// EnvironmentsAfter are the environments of all organizations behind an id, in order.
	EnvironmentsAfter(ctx context.Context, behind int64, most int) ([]PlacedEnvironment, error)
	// SourcesAfter are the sources of all organizations behind an id, in order.
	SourcesAfter(ctx context.Context, id int64, most int) ([]PlacedSource, error)
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does not have.
type Tx interface {
	core.ChangeTx
	Reads
	ReadinessTx
	AgentReads
	ServicesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Service, error)
	ArtifactSourcesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ArtifactSource, error)
	ArtifactSourcesByService(ctx context.Context, organization int64, services []int64) (map[int64][]core.ArtifactSource, error)
	ApplicationEnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ApplicationEnvironment, error)
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]core.ApplicationEnvironment, error)
	// QueuedRollouts are those that wait, by application.
	QueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error)
	// ActiveRollouts is the rollout that is not over yet, by application; no key where there is none.
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	// ActiveRolloutsByEnvironment are the newest rollouts that go to environments and are not over; only number and state.
	ActiveRolloutsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Rollout, error)

	AddApplication(ctx context.Context, a core.Application) (core.Application, error)
	AddService(ctx context.Context, s core.Service) (core.Service, error)
	AddArtifactSource(ctx context.Context, s core.ArtifactSource, matchKey string) (core.ArtifactSource, error)
	// CommitSources counts the sources of commits of an application, also those that were removed.
	CommitSources(ctx context.Context, application int64) (int, error)
	// SaveArtifactSource changes what a source says, not what it points at.
	SaveArtifactSource(ctx context.Context, id int64, config json.RawMessage) (core.ArtifactSource, error)
	// SaveSourceState writes whether a source is disabled or removed, and what replaces it.
	SaveSourceState(ctx context.Context, s core.ArtifactSource) (core.ArtifactSource, error)
	DetailReads
	// PolicySets are all of the organization in their latest versions.
	PolicySets(ctx context.Context, organization int64) ([]core.PolicySet, error)
	// InstallationPolicies are the sets of the operator that are not off.
	InstallationPolicies() []core.PolicySet
	// SaveDetails replaces those of one thing.
	SaveDetails(ctx context.Context, of core.Detailed, d core.Details) error
	// DescribeApplication and DescribeService change a description.
	DescribeApplication(ctx context.Context, id int64, description string) error
	DescribeService(ctx context.Context, id int64, description string) error
	// RenameApplication is a Conflict when another application has the name. What the application was called becomes a former name, and
	// the name no longer is one of whatever had it before.
	RenameApplication(ctx context.Context, id int64, name string) error
	// RenameEnvironment and RenameService are a Conflict when another one has the name, or is shown by it; nil takes the display name away.
	// EnvironmentByName finds one by its name, or else by its display name.
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	RenameEnvironment(ctx context.Context, id int64, display *string) error
	RenameService(ctx context.Context, id int64, display *string) error
	// FormerNames are those of some applications, the latest first; no key for what has none.
	FormerNames(ctx context.Context, organization int64, applications []int64) (map[int64][]string, error)
	// ApplicationByName finds by present and former names.
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	// RetireService writes since when a service is retired; nil brings it back.
	RetireService(ctx context.Context, id int64, at *time.Time) (core.Service, error)
	// ScheduleReview has a rollout's passages evaluated at an instant. It is idempotent.
	ScheduleReview(ctx context.Context, rollout int64, due time.Time) error
	// LockControls waits for the passages that are being decided, and keeps others from being decided until the transaction ends.
	LockControls(ctx context.Context) error
	// LabelledFreezes are those by label that are not over at an instant, locked against their end and against passages that they stop.
	LabelledFreezes(ctx context.Context, at time.Time) ([]core.Freeze, error)
	// ReviewStopped has the passages evaluated again that a control has stopped.
	ReviewStopped(ctx context.Context, kind core.StopKind, control int64, at time.Time) error
	// ReconsiderVersionSet has the newest version set of an application worked out again, after the commit.
	ReconsiderVersionSet(ctx context.Context, application int64) error
	// LockApplication serialises everything that decides on what an application has: versions, pipelines, rollouts.
	LockApplication(ctx context.Context, id int64) (core.Application, error)
	// ForgetRanks is for a source whose selection changes.
	ForgetRanks(ctx context.Context, source int64) error
	// AddFlowDefinition adds the version it is given; Conflict when that is taken, so the caller holds the application's
	// lock (R13).
	AddFlowDefinition(ctx context.Context, f core.FlowDefinition) (core.FlowDefinition, error)
	// LastRolledOut is the pipeline of the application's newest rollout; the zero value without one.
	LastRolledOut(ctx context.Context, application int64) (core.FlowDefinition, error)
	// DropSetups is for the environments that a new pipeline does not go to: all but those kept.
	DropSetups(ctx context.Context, application int64, kept []int64) error
	// WantSetup makes the application environment if it is new, and unready until it has been set up again.
	WantSetup(ctx context.Context, application, environment int64, reason string) (core.ApplicationEnvironment, error)

	AddEnvironment(ctx context.Context, e core.Environment) (core.Environment, error)
	// AddNotification stores a moment while the organization has a channel, once.
	AddNotification(ctx context.Context, n core.Notification) error
	AddDriverBinding(ctx context.Context, b core.DriverBinding) (core.DriverBinding, error)
	// DescribeEnvironment changes the description.
	DescribeEnvironment(ctx context.Context, id int64, description string) error
	// WantSetups makes every application in an environment, where its pipeline goes, unready until it has been set up again.
	WantSetups(ctx context.Context, environment int64, reason string) error
	// AllEnvironments is every environment that is not archived, with its latest binding, by name; locked against change of readiness.
	AllEnvironments(ctx context.Context) (map[string]core.BoundEnvironment, error)
	// SaveEnvironmentApproval and DropEnvironmentApproval change what an environment asks by itself.
	SaveEnvironmentApproval(ctx context.Context, a core.EnvironmentApproval) error
	DropEnvironmentApproval(ctx context.Context, environment int64) error
	// SaveEnvironmentChecks changes what an environment requires by itself; nil for nothing.
	SaveEnvironmentChecks(ctx context.Context, environment int64, checks json.RawMessage) error
	// SetDirectChanges decides whether changes that belong to no rollout are accepted.
	SetDirectChanges(ctx context.Context, environment int64, allowed bool) error
	// SetChangeControl decides whether changes of the environment's controls take a second person.
	SetChangeControl(ctx context.Context, environment int64, on bool) error

	// SettleQueuedRollout writes what came of it.
	SettleQueuedRollout(ctx context.Context, q core.QueuedRollout) error
	// PreviewsByID has no key for one that does not exist.
	PreviewsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Preview, error)
	// WithdrawStart takes back the start of a workflow that nobody has tried to hand over yet; false when it is too late.
	WithdrawStart(ctx context.Context, workflowID string) (bool, error)

	// NameAgents keeps that an environment names agents; repeating it is a no-op.
	NameAgents(ctx context.Context, environment int64, agents []int64) error

	// ArchiveApplication and ArchiveEnvironment write since when something is no longer used; nil restores it.
	ArchiveApplication(ctx context.Context, id int64, at *time.Time) error
	ArchiveEnvironment(ctx context.Context, id int64, at *time.Time) error
	AddArchiving(ctx context.Context, one core.Archiving) error
}

// DetailReads is what is looked up of labels, owners and links.
type DetailReads interface {
	// Details has no key for what has none.
	Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error)
}

// Reads is what is looked up outside of transactions and within them.
type Reads interface {
	access.ApproverReads
	core.ShownReads
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	// PipelinesTo are the newest pipelines of the applications that go to an environment and are not archived, by application: at most so
	// many, of applications behind one.
	PipelinesTo(ctx context.Context, organization, environment, after int64, most int) ([]core.FlowDefinition, error)
	// EnvironmentApprovals has no key for an environment that asks nobody by itself.
	EnvironmentApprovals(ctx context.Context, organization int64, environments []int64) (map[int64]core.EnvironmentApproval, error)
}
