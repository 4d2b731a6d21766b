package rollout

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Applications(ctx context.Context, organization int64, f core.ApplicationFilter, p core.Page) (core.Slice[core.Application], error)
	// CellDifferences are the cells of applications that are not what pipelines, rollouts and healths say.
	CellDifferences(ctx context.Context, organization int64, applications []int64) ([]core.CellDifference, error)
	// Rollouts are newest first, where no other order is asked for.
	Rollouts(ctx context.Context, organization int64, f core.RolloutFilter, p core.Page) (core.Slice[core.Rollout], error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// RolloutsByApplication is the same page of every application, newest first.
	RolloutsByApplication(
		ctx context.Context, organization int64, applications []int64, p core.Page,
	) (map[int64]core.Slice[core.Rollout], error)

	// OrganizationsWithDueRollbacks are those whose policies want something rolled back at an instant.
	OrganizationsWithDueRollbacks(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithDueClosings are those with rollouts to be closed at an instant.
	OrganizationsWithDueClosings(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithFreeQueue are those with a queued rollout whose application has no active one.
	OrganizationsWithFreeQueue(ctx context.Context) ([]int64, error)
	// OrganizationsWithDueDriftLooks are those with application environments to look at for drift at an instant.
	OrganizationsWithDueDriftLooks(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithDueGateExpiries are those with gates whose time is over at an instant.
	OrganizationsWithDueGateExpiries(ctx context.Context, at time.Time) ([]int64, error)
	// NoticeAbsence notes that deadlines are looked at at an instant, and has the time since the last look not count as work if it was long;
	// it answers for how many deadlines.
	NoticeAbsence(ctx context.Context, at time.Time) (int64, error)
	// OrganizationsWithDueDeadlines are those with deadlines to look at at an instant.
	OrganizationsWithDueDeadlines(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithDueReviews are those with rollouts whose passages are to be evaluated at an instant.
	OrganizationsWithDueReviews(ctx context.Context, at time.Time) ([]int64, error)
}

// PolicyTx is the part of a transaction about policies (D51).
type PolicyTx interface {
	// PoliciesConcerning are the latest versions of the policy sets of the organization, of an application and of all environments, and those
	// that a rollout has pinned; none that are off. A rollout of 0 has pinned none.
	PoliciesConcerning(ctx context.Context, application, rollout int64) ([]core.ConcerningPolicy, error)
	// SentPolicies are the versions that the engine was sent last of the sets of the organization, of an application and of all environments,
	// also of those that are off or not about calls any more. Of each only name, version and environment are answered.
	SentPolicies(ctx context.Context, application int64) ([]core.PolicySet, error)
	PinPolicy(ctx context.Context, rollout int64, s core.PolicySet) error
	// PolicyRequester is who created a rollout, with the groups of a member, and without permissions.
	PolicyRequester(ctx context.Context, rollout int64) (core.Actor, error)
	// PolicyPlaces are environments as policies see them, by number, with the drivers that a rollout has pinned, and its targets; with the
	// present ones for rollout 0. LastFailureIn is why a deployment in an environment of a rollout has failed
	// or degraded last, and empty where none has.
	PolicyPlaces(ctx context.Context, rollout int64, environments []int64) (map[int64]core.PolicyPlace, error)
	LastFailureIn(ctx context.Context, rolloutEnvironment int64) (string, error)
	// LatestPreview is the latest of the version set of a rollout, in whatever state; false for none, and where something was committed for
	// the application since it was asked for, or another rollout of the application was not at its end.
	LatestPreview(ctx context.Context, r core.Rollout) (core.Preview, bool, error)
	// OpenIncidents are the names of the incidents that are open at an instant, by freezes that cover an application in one of some
	// environments.
	OpenIncidents(ctx context.Context, application int64, environments []int64, at time.Time) ([]string, error)
	// Details has no key for what has none.
	Details(ctx context.Context, organization int64, of []core.Detailed) (map[core.Detailed]core.Details, error)
	// MemberGroups are the names of a member's groups.
	MemberGroups(ctx context.Context, member int64) ([]string, error)
	// LatestPolicyDecisions are the latest about each gate of rollouts.
	LatestPolicyDecisions(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error)
	AddPolicyDecision(ctx context.Context, d core.PolicyDecision) (int64, error)
	// Origins are what is known of where versions come from; no key for those that are no images.
	Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error)
}

// TriggerTx is the part of a transaction about triggers and holds after rollbacks (D58).
type TriggerTx interface {
	// SignalTriggers gives the triggers of a kind that applications have something to decide about, by application. It is idempotent.
	SignalTriggers(ctx context.Context, kind core.TriggerKind, causes map[int64]string, at time.Time) error
	// SignalDrift does so for those of kind drift, if something differs, once for the same objects as long as it lasts.
	SignalDrift(ctx context.Context, applicationEnvironment int64, objects string, at time.Time) error
	// EndDrift stores that drift has ended, if the latest observation is the first without it.
	EndDrift(ctx context.Context, applicationEnvironment int64, at time.Time) error
	// HurryNotification has the message looked at now that a run sends which has ended; a no-op for any other run.
	HurryNotification(ctx context.Context, message int64, run int, at time.Time) error
	// HurryForgeStatus has the status looked at now that a run publishes which has ended; a no-op for any other run.
	HurryForgeStatus(ctx context.Context, status int64, run int, at time.Time) error
	// HurryForgePull is the same for the run that is about a pull request. SaveForgePullReading stores what that run has read, and has it
	// looked at; a no-op for any other run.
	HurryForgePull(ctx context.Context, pull int64, run int, at time.Time) error
	SaveForgePullReading(ctx context.Context, pull int64, run int, reading []byte, at time.Time) error
	// SignalChains does so for those with blocks of the application of a rollout that has reached an environment or, with 0, has completed.
	SignalChains(ctx context.Context, rollout, environment int64, at time.Time) error
	// NudgeChainsOfRollout has the chains that began a rollout decided about now.
	NudgeChainsOfRollout(ctx context.Context, rollout int64, at time.Time) error
	// ManualTrigger is that of an application, or the default.
	ManualTrigger(ctx context.Context, organization, application int64) (core.Trigger, error)
	// AddPromotionHold is a no-op where there is one.
	AddPromotionHold(ctx context.Context, h core.PromotionHold) error
	// PromotionHolds are those in force, by application.
	PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error)
	// QueuedRollouts are those that wait, by application.
	QueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error)
}

// DeadlineTx is the part of a transaction about deadlines (D59).
type DeadlineTx interface {
	// AddDeadline replaces an open one of the same rollout and kind, and of the same environment.
	AddDeadline(ctx context.Context, d core.Deadline) error
	// Deadlines are those of rollouts: of the whole, of environments as they come, and of aborts.
	Deadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deadline, error)
	// RolloutWithDueDeadline locks the next rollout of which one is due, and skips what others have locked.
	RolloutWithDueDeadline(ctx context.Context, at time.Time) (int64, bool, error)
	// SaveDeadline writes when it is due, and the outcome.
	SaveDeadline(ctx context.Context, d core.Deadline) error
}

// ControlTx is the part of a transaction about what stops passages from outside of a pipeline, and about evaluating them again.
type ControlTx interface {
	// VetoesByVersionSet are those of sets and of their versions; no key for one without.
	VetoesByVersionSet(ctx context.Context, organization int64, sets []int64) (map[int64][]core.Veto, error)
	// PinsByEnvironment has no key for an environment that is not pinned.
	PinsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64]core.Pin, error)
	// RolloutRequesters is what kind of principal created each rollout.
	RolloutRequesters(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.PrincipalType, error)
	// Controls are the freezes of the organization that stop something at an instant, the vetoes of a version set, and pins.
	Controls(ctx context.Context, versionSet int64, environments []int64, at time.Time) (core.Controls, error)
	// PinCheck keeps a check of a rollout.
	PinCheck(ctx context.Context, rollout int64, c core.PinnedCheck) error
	// EnvironmentChecks are those that environments require by themselves, as they were written; no key for one that requires none.
	EnvironmentChecks(ctx context.Context, organization int64, environments []int64) (map[int64]json.RawMessage, error)
	// ReviewChecked is ScheduleReview for a rollout that has checks, or is to enter an environment that follows one whose health was seen,
	// 0 for none. It is a no-op for any other.
	ReviewChecked(ctx context.Context, rollout, seen int64, due time.Time) error
	// ReviewInSync schedules a review of the active rollouts that have a check which waits until nothing differs in an
	// application environment.
	ReviewInSync(ctx context.Context, applicationEnvironment int64, due time.Time) error
	// ReviewHealth schedules a review of the active rollouts that have a check of kind health in an environment, or are to enter one that
	// follows it.
	ReviewHealth(ctx context.Context, environment int64, due time.Time) error
	// Checks are those that are pinned with a rollout, and the latest reports about its version set.
	Checks(ctx context.Context, rollout, versionSet int64) (core.Checks, error)
	CheckRunTx
	// HoldControls keeps the freezes, vetoes, pins and labels of the organization as they are until the transaction ends: none begins, ends
	// or changes. Who changes one waits for the end, so what is read behind it may be relied on.
	HoldControls(ctx context.Context) error
	// AddPassageStop notes that a control keeps a passage closed. It is idempotent.
	AddPassageStop(ctx context.Context, rollout int64, gate string, s core.Stop) error
	// ForgetPassageStops drops what was noted of a rollout, but for some gates.
	ForgetPassageStops(ctx context.Context, rollout int64, keep []string) error
	// ScheduleReview has a rollout's passages evaluated at an instant. It is idempotent.
	ScheduleReview(ctx context.Context, rollout int64, due time.Time) error
	// DueReview locks the next rollout that is due, and its reviews. It skips what others have locked; 0 without any.
	DueReview(ctx context.Context, at time.Time) (rollout int64, reviews []int64, err error)
	// SettleLostReviews ends reviews of rollouts that do not exist.
	SettleLostReviews(ctx context.Context, at time.Time) error
	// SettleReviews ends reviews that were done.
	SettleReviews(ctx context.Context, reviews []int64) error
}

// CheckRunTx is the part of a transaction about runs of the programs of checks.
type CheckRunTx interface {
	// AddCheckRun adds one that is open. It is a Conflict if another one of the check is.
	AddCheckRun(ctx context.Context, r core.CheckRun) (core.CheckRun, error)
	CheckRun(ctx context.Context, id int64) (core.CheckRun, error)
	// EndCheckRuns ends those of a rollout that are open, or some of them, and answers which they were.
	EndCheckRuns(ctx context.Context, rollout int64, runs []int64, at time.Time) ([]core.CheckRun, error)
	// SetCheckOutput keeps what a run has reported for the runs of the same check in other environments.
	SetCheckOutput(ctx context.Context, run int64, output json.RawMessage) error
	// CheckOutputs are those of the runs that have reported one: as many of the first ones as have no more than most bytes together. Those of
	// the others are empty.
	CheckOutputs(ctx context.Context, runs []int64, most int) (map[int64]json.RawMessage, error)
	AddCheckReport(ctx context.Context, r core.CheckReport) (core.CheckReport, error)
	// CheckReports are the latest about version sets, of each environment, key and reporter.
	CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error)
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	// Nudge publishes a nudge.
	Nudge(ctx context.Context, n Nudge) error
	// ReportableDeployment reads what has to be known of a deployment before a report about it is taken, and locks nothing.
	ReportableDeployment(ctx context.Context, deployment int64) (ReportableDeployment, error)
	// NoteNudge records that the phase of what a deployment is outside was reported; false if it is known already, or the name is no longer
	// that of the deployment.
	NoteNudge(ctx context.Context, r OutsideReport) (bool, error)
	// NudgeDeployment publishes a nudge of a deployment.
	NudgeDeployment(ctx context.Context, n DeploymentNudge) error
	// SnapshotsByDeployment are what the latest attempts of deployments have committed.
	SnapshotsByDeployment(ctx context.Context, organization int64, deployments []int64) (map[int64]core.Snapshot, error)
}

// FleetTx is the part of a transaction about fleets (D61).
type FleetTx interface {
	// LabelledAgents are those that were not revoked and have labels.
	LabelledAgents(ctx context.Context) ([]fleet.Target, error)
	// RolloutFleetAgents are the targets of an environment of a rollout, by wave, in their order.
	RolloutFleetAgents(ctx context.Context, rolloutEnvironment int64) ([]PinnedTarget, error)
	// TargetsThatRan is what was deployed last to each agent of fleets of an application, by environment and agent; no key where nothing was.
	TargetsThatRan(ctx context.Context, application int64, environments []int64) (map[int64]map[int64]RanTarget, error)
	// AddRolloutFleet keeps the targets of an environment, wave by wave, and the agents of its configuration.
	AddRolloutFleet(ctx context.Context, rolloutEnvironment int64, spec json.RawMessage, agents []int64, waves [][]fleet.Target) error
	// RolloutFleets has no key for an environment without one.
	RolloutFleets(ctx context.Context, organization int64, environments []int64) (map[int64]core.RolloutFleet, error)
	RolloutWaves(ctx context.Context, organization int64, environments []int64) (map[int64][]core.RolloutWave, error)
	// BeginRolloutWave begins the next attempt of a wave: its targets that are not healthy are deployed.
	BeginRolloutWave(ctx context.Context, environment int64, wave int, at time.Time) error
	// EndRolloutTarget keeps how an attempt at a target has ended, and answers whether its wave has ended with it. A repeated report, and one
	// about another attempt, change nothing. NotFound for an agent that is no target.
	EndRolloutTarget(ctx context.Context, t core.RolloutTarget) (waveEnded bool, err error)
	// EndRolloutTargets has all targets fail that are being deployed: their environment has ended.
	EndRolloutTargets(ctx context.Context, environment int64, reason string, at time.Time) error
	// WaveAgents are the agents of the targets of a wave.
	WaveAgents(ctx context.Context, environment int64, wave int) ([]int64, error)
	PauseRolloutWave(ctx context.Context, environment int64, wave int, paused bool) error
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does not have.
type Tx interface {
	core.ChangeTx
	setup.ReadinessTx
	ControlTx
	PolicyTx
	TriggerTx
	DeadlineTx
	policy.CallTx
	FleetTx
	// MayObserve reports whether a rollout, or the setup of an application environment, was started for what a standing report is about. Each
	// is 0 for none.
	MayObserve(ctx context.Context, rollout, setup int64, about Observed) (bool, error)
	// SaveHealth answers whether it counts for a clock: it is news, or says that the service is degraded.
	SaveHealth(ctx context.Context, h core.ServiceHealth) (counts bool, err error)
	// RolloutServing is the last rollout that has begun to deploy a service in an environment; false when none has.
	RolloutServing(ctx context.Context, service, environment int64) (rollout int64, ok bool, err error)
	// DegradedSince is since when the first of the services is degraded that a rollout was the last to deploy; false
	// when none is.
	DegradedSince(ctx context.Context, rollout int64) (since time.Time, ok bool, err error)
	SaveReconciliation(ctx context.Context, r core.Reconciliation) error
	// SaveContact answers whether it says something new.
	SaveContact(ctx context.Context, c core.Contact) (news bool, err error)
	// CheckFailed and CheckPassed store that a check whose state is observed fails or passes, once for each failure.
	CheckFailed(ctx context.Context, n core.Notification) error
	CheckPassed(ctx context.Context, n core.Notification) error
	core.HealthReads

	access.ApproverReads
	// MembersByID finds removed ones as well.
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	VersionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Version, error)
	// CommitsSince are the commits of a source from a version back to the one with a digest, which is left out; the newest first. Where the
	// one before a commit is not known, they end with it.
	CommitsSince(ctx context.Context, version int64, digest string, most int) ([]core.Version, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	EntriesByVersionSet(ctx context.Context, organization int64, versionSets []int64) (map[int64][]core.VersionSetEntry, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]core.ApplicationEnvironment, error)
	// EnvironmentApprovals has no key for an environment that asks nobody by itself.
	EnvironmentApprovals(ctx context.Context, organization int64, environments []int64) (map[int64]core.EnvironmentApproval, error)
	// RolloutPolicies has no key for an application that has none of its own.
	RolloutPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RolloutPolicy, error)
	// RollbackPolicies has no key for an application that has none of its own.
	RollbackPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RollbackPolicy, error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// RolloutsByApplication is the same page of every application, newest first.
	RolloutsByApplication(
		ctx context.Context, organization int64, applications []int64, p core.Page,
	) (map[int64]core.Slice[core.Rollout], error)
	// ActiveRollouts is the rollout that is not over yet, by application; no key where there is none.
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	// SkipsByRollout are the environments of its pipeline that a rollout does not go to.
	SkipsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.SkippedEnvironment, error)
	// AutomaticRollbacksByRollout has no key for a rollout of which no policy wants, or wanted, anything.
	AutomaticRollbacksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.RollbackOutlook, error)
	OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error)
	// GateWordsByRollout are the rows of rollouts' own journals about gates, pauses and resumptions, oldest first.
	GateWordsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Transition, error)
	// RolloutEnvironmentsByRollout is in promotion order.
	RolloutEnvironmentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.RolloutEnvironment, error)
	// DeploymentsByRollout are those of rollouts, by the environment of a rollout.
	DeploymentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deployment, error)
	// EnvironmentsByRollout are the environments that rollouts go to, by their own number.
	EnvironmentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.Environment, error)
	PreviewsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Preview, error)
	// Journal is the three journals of a rollout as one, oldest first.
	Journal(ctx context.Context, organization, rollout int64, p core.Page) (core.Slice[core.Transition], error)

	// Together asks the database in one round trip what several reads ask. Each is run twice, and the first time finds nothing: so it sets
	// what it has found, and does nothing else.
	Together(ctx context.Context, reads ...func(context.Context) error) error

	// Claim takes an event for the present transaction; false when it has been applied before (D16).
	Claim(ctx context.Context, in core.Inbound) (first bool, err error)
	// ClaimAll is Claim for several, in their order.
	ClaimAll(ctx context.Context, all []core.Inbound) (firsts []bool, err error)
	// Announce publishes that a gate has been resolved, with the commit.
	Announce(ctx context.Context, r GateResolved) error
	// Command publishes what the workflow of a rollout is asked to do, with the commit.
	Command(ctx context.Context, c Command) error
	// Grant publishes that a rollout may go past a gate, with the commit.
	Grant(ctx context.Context, p Passage) error
	// Revoke publishes that a rollout's passages have ended, with the commit.
	Revoke(ctx context.Context, e End) error
	// PinPlaces keeps what the passage of an environment opens for a rollout, and the weights at which the rollout stops there.
	PinPlaces(ctx context.Context, rollout, environment int64, places []core.Place, weights []int) error
	// PinnedPlaces is what was kept; nothing for rollouts of earlier releases.
	PinnedPlaces(ctx context.Context, rollout, environment int64) (places []core.Place, weights []int, err error)

	// LockApplication serialises everything that decides on what an application has: versions, pipelines, rollouts.
	LockApplication(ctx context.Context, id int64) (core.Application, error)

	// EnvironmentsNamed are those of some names that are not archived, with their latest binding, by name; locked against change of readiness.
	EnvironmentsNamed(ctx context.Context, names []string) (map[string]core.BoundEnvironment, error)
	// ClaimingEnvironments is every environment, also one that is archived, with its latest binding; not locked.
	ClaimingEnvironments(ctx context.Context) ([]core.BoundEnvironment, error)

	// AddRollout is a Conflict when the application has an active rollout (R14).
	AddRollout(ctx context.Context, r core.Rollout) (core.Rollout, error)
	AddRolloutEnvironment(ctx context.Context, e core.RolloutEnvironment) (core.RolloutEnvironment, error)
	AddDeployment(ctx context.Context, d core.Deployment) (core.Deployment, error)
	// AddRolloutSkip keeps that a rollout does not go to an environment of its pipeline.
	AddRolloutSkip(ctx context.Context, s core.SkippedEnvironment) error
	// TouchedEnvironments are those in which a rollout may have changed something since the last one completed there.
	TouchedEnvironments(ctx context.Context, application int64) (map[int64]bool, error)
	// RecordedInputs are the inputs of the last rollout that has brought a version set to an environment; nil if none has.
	RecordedInputs(ctx context.Context, versionSet, environment int64) (json.RawMessage, error)
	// EnvironmentsThatRan are those in which a version set has been completed, whatever came later.
	EnvironmentsThatRan(ctx context.Context, versionSet int64) (map[int64]bool, error)
	// LiveVersionSets is the version set that last completed in each environment, whatever happened to its rollout later.
	LiveVersionSets(ctx context.Context, application int64) (map[int64]int64, error)
	// LockRollout is the lock of a rollout and of everything under it; it comes before that of the application.
	LockRollout(ctx context.Context, id int64) (core.Rollout, error)
	// LockRollouts is LockRollout for several at once; those that do not exist are not among the answer.
	LockRollouts(ctx context.Context, ids []int64) ([]core.Rollout, error)
	// RolloutsOfDeployments has no key for a deployment that does not exist.
	RolloutsOfDeployments(ctx context.Context, deployments []int64) (map[int64]int64, error)
	// IsTarget reports whether a deployment is in the environment, and the agent is one of its targets.
	IsTarget(ctx context.Context, deployment, environment, agent int64) (bool, error)
	// RolloutOfDeployment finds the rollout to lock.
	RolloutOfDeployment(ctx context.Context, deployment int64) (int64, error)
	// Record writes a row of a journal and, when it changes the state, the cached state with it. It refuses a row whose
	// From is not the cached state.
	Record(ctx context.Context, t core.Transition) error
	// AddGateRule pins who may answer a gate of a rollout; repeating it is a no-op.
	AddGateRule(ctx context.Context, rollout int64, gate string, r core.PinnedGate) error
	// GateRules are those pinned, by gate.
	GateRules(ctx context.Context, rollout int64) (map[string]core.PinnedGate, error)
	// Proposal is that of an environment of a rollout, as it was saved; false for none.
	Proposal(ctx context.Context, rollout, environment int64) (core.ForgeProposal, bool, error)
	SaveProposal(ctx context.Context, rollout, environment int64, p core.ForgeProposal) error
	// AnswerProposal keeps that the merge of a proposal with the last commit ended was looked at as an answer to the gate of its environment,
	// and why it is no approval; empty if it is one.
	AnswerProposal(ctx context.Context, rollout, environment int64, ended, answer string) error
	// GateAnsweredBefore reports whether any answer to a gate is in the journal before a row of it, which asks.
	GateAnsweredBefore(ctx context.Context, rollout int64, gate string, request int64) (bool, error)
	// MemberAtForge is the member who has linked the account of a user of a forge, by the forge's number; or why it is nobody.
	MemberAtForge(ctx context.Context, repository string, user int64) (a core.Actor, nobody string, err error)
	// AddSnapshot keeps what the first attempt has deployed; repeating it is a no-op.
	AddSnapshot(ctx context.Context, s core.Snapshot) error
	// ReplaceSnapshot puts the snapshot of an attempt in the place of that of the one before, which is kept as an attempt.
	ReplaceSnapshot(ctx context.Context, s core.Snapshot) error
	// AddAttempt keeps what an attempt has committed, without a change of what is deployed.
	AddAttempt(ctx context.Context, s core.Snapshot) error
	// CountAttempts is how many attempts of a deployment are kept beside its snapshot.
	CountAttempts(ctx context.Context, deployment int64) (int, error)
	// EnteredEnvironments are those that a rollout was let into and has not completed.
	EnteredEnvironments(ctx context.Context, rollout int64) ([]int64, error)
	// AddCancellation has the program cancelled of a rollout's driver started, with inputs beside those of its run; a no-op if that was not
	// started.
	AddCancellation(ctx context.Context, rollout int64, inputs json.RawMessage, at time.Time) error
	// SaveDeploymentLink keeps what a deployment is outside of Lockstep, instead of what was known before.
	SaveDeploymentLink(ctx context.Context, l core.DeploymentLink) error
	AddPreview(ctx context.Context, p core.Preview) (core.Preview, error)
	// ForgetPreviews drops previews that were asked for before an instant, as many as most at once.
	ForgetPreviews(ctx context.Context, before time.Time, most int) error
	// SettlePreview records the result of one. A recorded result stays, and for an unknown preview it is a no-op.
	SettlePreview(ctx context.Context, p core.Preview) error

	// WithdrawStart takes back the start of a workflow that nobody has tried to hand over yet; false when it is too late.
	WithdrawStart(ctx context.Context, workflowID string) (bool, error)

	SaveRollbackPolicy(ctx context.Context, p core.RollbackPolicy) error
	// ScheduleRollback is a no-op if there was one for the rollout, or if a policy has made the rollout. One that waits
	// on degraded is set anew.
	ScheduleRollback(ctx context.Context, r core.AutomaticRollback, due time.Time) error
	// StopRollbackClock makes one that waits on degraded due no more; nothing when there is none.
	StopRollbackClock(ctx context.Context, rollout int64) error
	// DueRollback locks the next one that is due, with its rollout, and skips what others have locked.
	DueRollback(ctx context.Context, at time.Time) (core.AutomaticRollback, bool, error)
	// SettleRollback writes what came of it.
	SettleRollback(ctx context.Context, r core.AutomaticRollback) error
	SaveRolloutPolicy(ctx context.Context, p core.RolloutPolicy) error
	// ScheduleClosing is for a rollout that is not closed yet; again it only changes the reason.
	ScheduleClosing(ctx context.Context, rollout int64, reason string, due time.Time) error
	// DueClosing locks the next one that is due, and skips what others have locked.
	DueClosing(ctx context.Context, at time.Time) (core.Closing, bool, error)
	SettleClosing(ctx context.Context, rollout int64) error
	ApplicationEnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ApplicationEnvironment, error)
	// DueDriftLook locks the next one that is due, and skips what others have locked; DriftLook locks that of an application environment.
	DueDriftLook(ctx context.Context, at time.Time) (core.DriftLook, bool, error)
	DriftLook(ctx context.Context, applicationEnvironment int64) (core.DriftLook, bool, error)
	SaveDriftLook(ctx context.Context, l core.DriftLook) error
	// Reconciliations are what is known to differ, by application environment.
	Reconciliations(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]core.Reconciliation, error)
	// DeployedLast is with what the version set was deployed that is live; false for nothing.
	DeployedLast(ctx context.Context, application, environment int64) (core.DeployedLast, bool, error)
	// LiveSnapshots are with what each service was deployed that is live, in the order of services.
	LiveSnapshots(ctx context.Context, application, environment int64) ([]core.LiveSnapshot, error)
	// ForgetDriftPreviews deletes previews by which was searched for drift, of before an instant.
	ForgetDriftPreviews(ctx context.Context, before time.Time, most int) error
	// QueueRollout drops the one that waits for the same application, and returns the new one with its number.
	QueueRollout(ctx context.Context, q core.QueuedRollout) (core.QueuedRollout, error)
	// LockQueuedRollout waits for who begins it or takes it out of the queue.
	LockQueuedRollout(ctx context.Context, id int64) (core.QueuedRollout, error)
	// FreeQueuedRollout locks the next one whose application has no active rollout, and skips what others have locked.
	// One that waits for a comparison is next at an instant only if that has taken too long.
	FreeQueuedRollout(ctx context.Context, at time.Time) (core.QueuedRollout, bool, error)
	// CompareQueuedRollout has one wait for a comparison.
	CompareQueuedRollout(ctx context.Context, q core.QueuedRollout) error
	// SettleQueuedRollout writes what came of it.
	SettleQueuedRollout(ctx context.Context, q core.QueuedRollout) error
	// ScheduleGateExpiry is a no-op if there is one for the same request.
	ScheduleGateExpiry(ctx context.Context, e core.GateExpiry, due time.Time) error
	// DueGateExpiry locks the next one that is due, and skips what others have locked.
	DueGateExpiry(ctx context.Context, at time.Time) (core.GateExpiry, bool, error)
	SettleGateExpiry(ctx context.Context, id int64) error
}

// GateResolved is the fact that a gate was answered.
type GateResolved struct {
	core.Actor
	RolloutID int64
	GateID    string
	Approved  bool
	Reason    string
	At        time.Time
}

// Passage is the permission to go past a gate.
type Passage struct {
	Organization, RolloutID int64
	ApplicationID           int64
	GateID                  string
	Opening
	// Attempt is that of the wave of a fleet; 0 for any other gate.
	Attempt int
	At      time.Time
}

// End reports that a rollout is over: its run may no longer change anything.
type End struct {
	Organization, RolloutID int64
	// Cancelled reports whether the program cancelled of its drivers may take back what it has begun.
	Cancelled bool
	// Left are, of a rollout that was cancelled, the environments that it has entered and not completed.
	Left []int64
	At   time.Time
}

// Abort and retry (D18, E73). An abort returns the running environments to the version that was stable before, and leaves the rollout
// paused there; a retry starts it again from its first gate. Both are requests to the workflow: the journal records the request, and
// the pause once it has taken effect (D17).

// Command is something that a rollout's workflow is asked to do.
type Command struct {
	Organization, RolloutID int64
	// Verb is abort or retry.
	Verb   core.Verb
	Reason string
	At     time.Time
}

// Nudge asks the program of a check to evaluate it now.
type Nudge struct {
	Organization, RolloutID, RunID int64
	At                             time.Time
}
