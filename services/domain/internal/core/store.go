package core

import (
	"context"
	"encoding/json"
	"time"
)

// Store keeps the domain. Its errors have the classes of pkg/fault.
type Store interface {
	Reads
	// In runs fn in one transaction that sees and changes the rows of one organization only, and commits when fn returns
	// nil. It may run fn again after a deadlock, so fn has no effect outside of tx.
	In(ctx context.Context, organization int64, fn func(ctx context.Context, tx Tx) error) error
	// OrganizationsWithSources are those with an artifact source of each match key; no key for one that nobody has. Together
	// with the methods below it is the only look across organizations.
	OrganizationsWithSources(ctx context.Context, matchKeys []string) (map[string][]int64, error)
	// SourcesAfter are the sources of all organizations behind an id, in order.
	SourcesAfter(ctx context.Context, id int64, most int) ([]PlacedSource, error)
	// OrganizationsWithDueHandoffs are those that have something to hand over at an instant.
	OrganizationsWithDueHandoffs(ctx context.Context, at time.Time) ([]int64, error)
	// AgentOfKey is whose public key it is that is good at an instant; NotFound when it is nobody's.
	AgentOfKey(ctx context.Context, public string, at time.Time) (AgentLogin, error)
	// GoodAgentKeys are those of the keys that are good at an instant, with their organizations.
	GoodAgentKeys(ctx context.Context, keys []int64, at time.Time) (map[int64]int64, error)
	// AgentOwners are all agents of all organizations, the revoked ones too.
	AgentOwners(ctx context.Context) ([]AgentOwner, error)
	// OrganizationsWithToken is the one that a token of this digest belongs to.
	OrganizationsWithToken(ctx context.Context, digest []byte) ([]int64, error)
	// OrganizationsOfIdentity are those that somebody belongs to whom an identity provider means, in order.
	OrganizationsOfIdentity(ctx context.Context, issuer, subject string) ([]Organization, error)
	// OrganizationsWithMember are those with a member of a name that has not signed in at an identity provider yet, in order.
	OrganizationsWithMember(ctx context.Context, name string) ([]int64, error)
	// OrganizationsWithProviderSession are those with a sign-in that belongs to a session at an identity provider.
	OrganizationsWithProviderSession(ctx context.Context, session string) ([]int64, error)
	// AllOrganizations is a page of every organization, for an actor of one of them.
	AllOrganizations(ctx context.Context, organization int64, p Page) (Slice[Organization], error)
	// CountAllOrganizations is how many there are.
	CountAllOrganizations(ctx context.Context, organization int64) (int, error)
	// NewOrganizationID is a number that no organization has, or gets.
	NewOrganizationID(ctx context.Context) (int64, error)
	// InTwo is In for two organizations, one after the other, in one transaction.
	InTwo(ctx context.Context, first int64, do func(ctx context.Context, tx Tx) error, second int64, then func(ctx context.Context, tx Tx) error) error
	// OrganizationsWithDueRollbacks are those whose policies want something rolled back at an instant.
	OrganizationsWithDueRollbacks(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithDueClosings are those with rollouts to be closed at an instant.
	OrganizationsWithDueClosings(ctx context.Context, at time.Time) ([]int64, error)
	// OrganizationsWithFreeQueue are those with a queued rollout whose application has no active one.
	OrganizationsWithFreeQueue(ctx context.Context) ([]int64, error)
	// OrganizationsWithUnranked are those with publications whose place in the order of their selection is not worked out.
	OrganizationsWithUnranked(ctx context.Context) ([]int64, error)
	// OrganizationsWithDueGateExpiries are those with gates whose time is over at an instant.
	OrganizationsWithDueGateExpiries(ctx context.Context, at time.Time) ([]int64, error)
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does
// not have.
type Tx interface {
	Reads
	ApplicationWrites
	EnvironmentWrites
	RolloutWrites
	HandoffWrites
	PolicyWrites
	AccessWrites
	AccessChangeWrites
	AgentWrites
	RequestWrites
	ObservedWrites
	ArchiveWrites
	// Claim takes an event for the present transaction; false when it has been applied before (D16).
	Claim(ctx context.Context, in Inbound) (first bool, err error)
	// ClaimAll is Claim for several, in their order.
	ClaimAll(ctx context.Context, all []Inbound) (firsts []bool, err error)
	// Applied reports which of some events were claimed before, and takes none.
	Applied(ctx context.Context, all []Inbound) ([]bool, error)
	// Announce publishes that a gate has been resolved, with the commit.
	Announce(ctx context.Context, r GateResolved) error
	// Command publishes what the workflow of a rollout is asked to do, with the commit.
	Command(ctx context.Context, c Command) error
	// Grant publishes that a rollout may go past a gate, with the commit.
	Grant(ctx context.Context, p Passage) error
}

// ApplicationWrites changes applications, versions and pipelines. The Add methods fill in id and creation time.
type ApplicationWrites interface {
	AddApplication(ctx context.Context, a Application) (Application, error)
	AddService(ctx context.Context, s Service) (Service, error)
	AddArtifactSource(ctx context.Context, s ArtifactSource, matchKey string) (ArtifactSource, error)
	// SaveArtifactSource changes what a source says, not what it points at.
	SaveArtifactSource(ctx context.Context, id int64, config json.RawMessage) (ArtifactSource, error)
	// LockApplication serialises everything that decides on what an application has: versions, pipelines, rollouts.
	LockApplication(ctx context.Context, id int64) (Application, error)
	// LockApplications is LockApplication for several; it answers nothing about them.
	LockApplications(ctx context.Context, ids []int64) error
	// SourcesByMatchKeys is where artifacts belong, by key, in the order of applications.
	SourcesByMatchKeys(ctx context.Context, matchKeys []string) (map[string][]SourceOwner, error)
	// VersionsTaken are the versions that have one of some names on their source, or one of some digests: only the source,
	// the name and the digest of what is asked for are read, and of what is answered filled in, with the identifier.
	VersionsTaken(ctx context.Context, names, digests []Version) ([]Version, error)
	// AddVersions fills in the identifiers, which follow the order of the list.
	AddVersions(ctx context.Context, all []Version) error
	// PublicationsOf is every publication of versions.
	PublicationsOf(ctx context.Context, versions []int64) ([]VersionPublication, error)
	// NewestPublications is the newest publication that counts of every source of applications, some versions left out, in the order of
	// sources; the version's ID is 0 where there is none.
	NewestPublications(ctx context.Context, applications, without []int64) (map[int64][]SourceNewest, error)
	// SavePublications adds publications, or replaces those of the same version and tag, in their order of arrival.
	SavePublications(ctx context.Context, all []VersionPublication) error
	// SaveSeenDigests says of versions whether their digest was seen.
	SaveSeenDigests(ctx context.Context, seen map[int64]bool) error
	// Unranked are publications of applications whose place in the order of their selection is not worked out, at most so many.
	Unranked(ctx context.Context, applications []int64, most int) ([]UnrankedPublication, error)
	// ApplicationWithUnranked is the application of such a publication; 0 where there is none.
	ApplicationWithUnranked(ctx context.Context) (int64, error)
	// SaveRanks says where publications are in the order of their selections, and whether they are taken.
	SaveRanks(ctx context.Context, placements map[int64]Placement) error
	// ForgetRanks is for a source whose selection changes.
	ForgetRanks(ctx context.Context, source int64) error
	// VersionSetsTaken are those of some contents that their applications have: application and digest are read, and filled in with the
	// identifier.
	VersionSetsTaken(ctx context.Context, all []VersionSet) ([]VersionSet, error)
	// LastVersionSets are the names of the sets made last, for the names of the next ones; no key for an application that has
	// none. The caller holds the applications' locks.
	LastVersionSets(ctx context.Context, applications []int64) (map[int64]string, error)
	// SaveNewestVersionSets says which set of each application is the newest.
	SaveNewestVersionSets(ctx context.Context, sets map[int64]int64) error
	// AddVersionSets adds sets, each with all of its entries, and fills in the identifiers; none ever gets another entry (E8).
	AddVersionSets(ctx context.Context, all []NewVersionSet) error
	// AddFlowDefinition adds the version it is given; Conflict when that is taken, so the caller holds the application's
	// lock (R13).
	AddFlowDefinition(ctx context.Context, f FlowDefinition) (FlowDefinition, error)
	// DropSetups is for the environments that a new pipeline does not go to: all but those kept.
	DropSetups(ctx context.Context, application int64, kept []int64) error
	// WantSetup makes the application environment if it is new, and unready until it has been set up again.
	WantSetup(ctx context.Context, application, environment int64, reason string) (ApplicationEnvironment, error)
	// LockApplicationEnvironment comes after the lock of its environment, if both are wanted.
	LockApplicationEnvironment(ctx context.Context, id int64) (ApplicationEnvironment, error)
	// AwaitingSetup locks the application environments that wait for an environment.
	AwaitingSetup(ctx context.Context, environment int64) ([]ApplicationEnvironment, error)
	// SaveApplicationEnvironment writes readiness, discovered, and the two setup fields.
	SaveApplicationEnvironment(ctx context.Context, e ApplicationEnvironment) error
}

// EnvironmentWrites changes environments.
type EnvironmentWrites interface {
	AddEnvironment(ctx context.Context, e Environment) (Environment, error)
	AddDriverBinding(ctx context.Context, b DriverBinding) (DriverBinding, error)
	// AllEnvironments is every environment that is not archived, with its latest binding, by name; locked against change of readiness.
	AllEnvironments(ctx context.Context) (map[string]BoundEnvironment, error)
	// LockEnvironment locks one against change, and waits for whoever plans a rollout by AllEnvironments.
	LockEnvironment(ctx context.Context, id int64) (BoundEnvironment, error)
	// SaveEnvironment writes readiness and the onboarding attempt.
	SaveEnvironment(ctx context.Context, e Environment) error
	// SaveEnvironmentApproval and DropEnvironmentApproval change what an environment asks by itself.
	SaveEnvironmentApproval(ctx context.Context, a EnvironmentApproval) error
	DropEnvironmentApproval(ctx context.Context, environment int64) error
	// KeepBundle keeps a driver's bytes under their digest; again is nothing.
	KeepBundle(ctx context.Context, digest, ref string, content []byte) error
	// Bundle is what was kept under a digest, whatever is installed by now (D7).
	Bundle(ctx context.Context, digest string) ([]byte, error)
}

// RolloutWrites changes rollouts.
type RolloutWrites interface {
	// AddRollout is a Conflict when the application has an active rollout (R14).
	AddRollout(ctx context.Context, r Rollout) (Rollout, error)
	AddRolloutEnvironment(ctx context.Context, e RolloutEnvironment) (RolloutEnvironment, error)
	AddDeployment(ctx context.Context, d Deployment) (Deployment, error)
	// AddRolloutSkip keeps that a rollout does not go to an environment of its pipeline.
	AddRolloutSkip(ctx context.Context, s SkippedEnvironment) error
	// TouchedEnvironments are those in which a rollout may have changed something since the last one completed there.
	TouchedEnvironments(ctx context.Context, application int64) (map[int64]bool, error)
	// EnvironmentsThatRan are those in which a version set has been completed, whatever came later.
	EnvironmentsThatRan(ctx context.Context, versionSet int64) (map[int64]bool, error)
	// LiveVersionSets is the version set that last completed in each environment, whatever became of its rollout later.
	LiveVersionSets(ctx context.Context, application int64) (map[int64]int64, error)
	// LockRollout is the lock of a rollout and of everything under it; it comes before that of the application.
	LockRollout(ctx context.Context, id int64) (Rollout, error)
	// LockRollouts is LockRollout for several at once; those that do not exist are not among the answer.
	LockRollouts(ctx context.Context, ids []int64) ([]Rollout, error)
	// RolloutsOfDeployments has no key for a deployment that does not exist.
	RolloutsOfDeployments(ctx context.Context, deployments []int64) (map[int64]int64, error)
	// RolloutOfDeployment finds the rollout to lock.
	RolloutOfDeployment(ctx context.Context, deployment int64) (int64, error)
	// Record writes a row of a journal and, when it changes the state, the cached state with it. It refuses a row whose
	// From is not the cached state.
	Record(ctx context.Context, t Transition) error
	// AddGateRule pins who may answer a gate of a rollout; again is nothing.
	AddGateRule(ctx context.Context, rollout int64, gate string, r GateRule) error
	// GateRules are those pinned, by gate.
	GateRules(ctx context.Context, rollout int64) (map[string]GateRule, error)
	// AddSnapshot keeps what was deployed; again is nothing.
	AddSnapshot(ctx context.Context, s Snapshot) error
	AddPreview(ctx context.Context, p Preview) (Preview, error)
	// ForgetPreviews drops previews that were asked for before an instant, as many as most at once.
	ForgetPreviews(ctx context.Context, before time.Time, most int) error
	// SettlePreview writes what came of one. One that was made stays as it was told, and none is nothing.
	SettlePreview(ctx context.Context, p Preview) error
}

// HandoffWrites changes what is still to be handed over.
type HandoffWrites interface {
	// AddHandoff writes one that is pending. A workflow is started once and cancelled once: a second one of the same kind
	// is a Conflict.
	AddHandoff(ctx context.Context, h Handoff) error
	// WithdrawStart takes back the start of a workflow that nobody has tried to hand over yet; false when it is too late.
	WithdrawStart(ctx context.Context, workflowID string) (bool, error)
	// ClaimHandoff takes the next one that is due and makes it due again at until, for the case that the claimer is lost.
	// It skips what others are claiming, and whatever has an older one of the same workflow before it.
	ClaimHandoff(ctx context.Context, at, until time.Time) (Handoff, bool, error)
	// SaveHandoff writes state, due time and error.
	SaveHandoff(ctx context.Context, h Handoff) error
	// SetWorkflowRef stores the handle on the subject.
	SetWorkflowRef(ctx context.Context, kind HandoffSubject, id int64, ref string) error
}

// AccessWrites changes members, groups and tokens.
type AccessWrites interface {
	AddMember(ctx context.Context, m Member) (Member, error)
	// LockMembers locks a member, if it is there, and every owner.
	LockMembers(ctx context.Context, id int64) ([]Member, error)
	// SaveMember writes role and removal.
	SaveMember(ctx context.Context, m Member) error
	// MemberByIdentity is whom an identity provider means, also one who was removed.
	MemberByIdentity(ctx context.Context, issuer, subject string) (Member, error)
	// SetMemberIdentity is for a member that has none yet; NotFound for any other.
	SetMemberIdentity(ctx context.Context, id int64, issuer, subject string) error
	AddGroup(ctx context.Context, g Group) (Group, error)
	LockGroup(ctx context.Context, id int64) (Group, error)
	// SetGroupMembers ends and begins memberships, so that these members belong to the group and nobody else.
	SetGroupMembers(ctx context.Context, group int64, members []int64, at time.Time) error
	AddToken(ctx context.Context, t AccessToken, digest []byte) (AccessToken, error)
	// RevokeSignInOf ends the sign-in that a session began with; of a session that began with a token it is a no-op.
	RevokeSignInOf(ctx context.Context, session int64, at time.Time) error
	// RevokeSignIns ends sign-ins at an identity provider, and their sessions with them.
	RevokeSignIns(ctx context.Context, which SignIns, at time.Time) error
	// AddOrganization makes the organization of the transaction; Conflict when its name is taken.
	AddOrganization(ctx context.Context, name string) (Organization, error)
	// LockOrganization locks the organization of the transaction.
	LockOrganization(ctx context.Context) (Organization, error)
	// RenameOrganization is a Conflict when the name is taken.
	RenameOrganization(ctx context.Context, name string) (Organization, error)
	// RevokeTokens ends a token and the sessions it began; what has ended stays as it was.
	RevokeTokens(ctx context.Context, id int64, at time.Time) error
	// TokenByDigest is a token that is good at an instant, and whose it is.
	TokenByDigest(ctx context.Context, digest []byte, at time.Time) (AccessToken, Member, error)
	// TouchToken notes that a token was used; not more than once a minute.
	TouchToken(ctx context.Context, id int64, at time.Time) error
}

// RequestWrites keeps what clients ask for under keys of their own.
type RequestWrites interface {
	// AddRequest is false when the principal has used the key before.
	AddRequest(ctx context.Context, p Principal, r Request) (first bool, err error)
	PriorRequest(ctx context.Context, p Principal, key string) (PriorRequest, error)
	AnswerRequest(ctx context.Context, p Principal, key string, answer []byte) error
}

// PolicyWrites changes policies, and what they want.
type PolicyWrites interface {
	SaveRollbackPolicy(ctx context.Context, p RollbackPolicy) error
	// ScheduleRollback is nothing when there was one for the rollout, or when a policy has made the rollout. One that waits
	// on degraded is set anew.
	ScheduleRollback(ctx context.Context, r AutomaticRollback, due time.Time) error
	// StopRollbackClock makes one that waits on degraded due no more; nothing when there is none.
	StopRollbackClock(ctx context.Context, rollout int64) error
	// DueRollback locks the next one that is due, with its rollout, and skips what others have locked.
	DueRollback(ctx context.Context, at time.Time) (AutomaticRollback, bool, error)
	// SettleRollback writes what came of it.
	SettleRollback(ctx context.Context, r AutomaticRollback) error
	SaveRolloutPolicy(ctx context.Context, p RolloutPolicy) error
	// ScheduleClosing is for a rollout that is not closed yet; again it only changes the reason.
	ScheduleClosing(ctx context.Context, rollout int64, reason string, due time.Time) error
	// DueClosing locks the next one that is due, and skips what others have locked.
	DueClosing(ctx context.Context, at time.Time) (Closing, bool, error)
	SettleClosing(ctx context.Context, rollout int64) error
	// QueueRollout replaces the one that waits for the same application.
	QueueRollout(ctx context.Context, q QueuedRollout) error
	// FreeQueuedRollout locks the next one whose application has no active rollout, and skips what others have locked.
	FreeQueuedRollout(ctx context.Context) (QueuedRollout, bool, error)
	// SettleQueuedRollout writes what came of it.
	SettleQueuedRollout(ctx context.Context, q QueuedRollout) error
	// ScheduleGateExpiry is nothing when there is one for the same request.
	ScheduleGateExpiry(ctx context.Context, e GateExpiry, due time.Time) error
	// DueGateExpiry locks the next one that is due, and skips what others have locked.
	DueGateExpiry(ctx context.Context, at time.Time) (GateExpiry, bool, error)
	SettleGateExpiry(ctx context.Context, id int64) error
}

// SourceOwner is an artifact source and what it belongs to.
type SourceOwner struct {
	SourceID, ServiceID, ApplicationID int64
	// Ref and Config are the source's, and say which of the artifacts it takes.
	Ref    string
	Config json.RawMessage
}

// VersionPublication is a version under a tag.
type VersionPublication struct {
	ArtifactSourceID, VersionID int64
	// Tag is empty for what was published without one.
	Tag  string
	Rank string
	// PublishedAt and ToldAt are those of the publication that counts; Arrival is its place among all that have come.
	PublishedAt, ToldAt time.Time
	Arrival             int64
	// Taken is whether the source takes the tag, as it is configured.
	Taken bool
	// DigestSeen is whether the version's digest was seen at the registry; nil where that was never said.
	DigestSeen *bool
}

// SourceNewest is the newest publication of a source; its VersionID is 0 where there is none.
type SourceNewest struct {
	ServiceID int64
	VersionPublication
}

// UnrankedPublication is a publication whose place in the order of its source's selection is not worked out yet.
type UnrankedPublication struct {
	ID, ApplicationID int64
	Tag               string
	// Ref and Config are the source's.
	Ref    string
	Config json.RawMessage
}

// NewVersionSet is a version set that is to be added, and the event that led to it, whose trace it keeps.
type NewVersionSet struct {
	VersionSet
	Entries []VersionSetEntry
	In      Inbound
}

// BoundEnvironment is an environment and its latest driver binding.
type BoundEnvironment struct {
	Environment
	Binding DriverBinding
}
