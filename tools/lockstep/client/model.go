package client

import (
	"encoding/json"
	"fmt"
	"time"
)

// The types below have the names and shapes of the schema; fields that were not requested are empty.

// Application is a group of services that ship together.
type Application struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// FormerNames are those that it had, by which it is still found.
	FormerNames []string `json:"formerNames,omitempty"`
	// Labels are what chains, policies and notifications select by; Owner answers for it, and Links are kept with it.
	Labels    map[string]string `json:"labels,omitempty"`
	Owner     string            `json:"owner,omitempty"`
	Links     []Link            `json:"links,omitempty"`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	Services  []Service         `json:"services,omitempty"`
	Active    *Reference        `json:"activeRollout,omitempty"`
	// RollbackPolicy is when it rolls back automatically.
	RollbackPolicy RollbackPolicy `json:"rollbackPolicy,omitzero"`
	RolloutPolicy  RolloutPolicy  `json:"rolloutPolicy,omitzero"`
	// Queued is the rollout that is pending in the queue, and LastQueued the latest that has left it.
	Queued     *QueuedRollout `json:"queuedRollout,omitempty"`
	LastQueued *QueuedRollout `json:"lastQueuedRollout,omitempty"`
	// Environments are those of the pipeline.
	Environments []ApplicationEnvironment `json:"environments,omitempty"`
	// MissingVersions are what the next version set goes without, or waits for.
	MissingVersions []MissingVersion `json:"missingVersions,omitempty"`
}

// Link is an address that is kept with an application, an environment or a service.
type Link struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// RollbackPolicy is when an application rolls back automatically.
type RollbackPolicy struct {
	OnFailed             bool `json:"onFailed"`
	OnDegraded           bool `json:"onDegraded"`
	DegradedAfterSeconds int  `json:"degradedAfterSeconds"`
	// InFull promotes rollbacks without gates by weight.
	InFull bool `json:"inFull"`
}

// RolloutPolicy is how an application's rollouts handle failures and each other.
type RolloutPolicy struct {
	// OnFailure is STOP, ABORT or ROLLBACK.
	OnFailure string `json:"onFailure"`
	// OnNewer is REFUSE, QUEUE or SUPERSEDE.
	OnNewer string `json:"onNewer"`
}

// RolloutDeadline is how long a rollout, one of its environments, or an abort after which it ends, may take.
type RolloutDeadline struct {
	// Kind is ROLLOUT, ENVIRONMENT or ABORT, and Environment that of the second.
	Kind        string     `json:"kind"`
	Environment *Reference `json:"environment,omitempty"`
	Seconds     int        `json:"seconds"`
	// Action is FAIL, ABORT or CANCEL.
	Action        string `json:"action"`
	CountsWaiting bool   `json:"countsWaiting"`
	// AtWork is whether only time counts in which the rollout is at work: it is the default of pipelines without deadlines.
	AtWork bool `json:"atWork"`
	// State is PENDING, RUNNING, WAITING, MET, PASSED or WITHDRAWN.
	State string `json:"state"`
	// DueAt is nil unless it runs, and RemainingSeconds unless it runs or stands still.
	DueAt            *time.Time `json:"dueAt,omitempty"`
	RemainingSeconds *int       `json:"remainingSeconds,omitempty"`
}

// QueuedRollout is a rollout that waits in the queue of its application before it begins, or has waited there.
type QueuedRollout struct {
	ID          string    `json:"id,omitempty"`
	Application Reference `json:"application,omitzero"`
	VersionSet  Reference `json:"versionSet"`
	// State is PENDING, STARTED, CANCELLED or DROPPED.
	State string `json:"state,omitempty"`
	// WaitsFor is ROLLOUT, COMPARISON or TURN while it is pending, and Why what it waits for, or what came of it, in one sentence.
	WaitsFor string `json:"waitsFor,omitempty"`
	Why      string `json:"why,omitempty"`
	// Environments are where it is to go, by name; none for the whole pipeline.
	Environments []string  `json:"environments,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	RequestedAt  time.Time `json:"requestedAt"`
	// ComparesUntil is how long it waits for the drivers to compare its manifests; nil if it does not.
	ComparesUntil *time.Time `json:"comparesUntil,omitempty"`
	PrincipalType string     `json:"principalType,omitempty"`
	// Principal is the member who has requested it, and CancelledBy who has cancelled it; nil for others.
	Principal   *Reference `json:"principal,omitempty"`
	CancelledBy *Reference `json:"cancelledBy,omitempty"`
	// EndedAt is when it left the queue, and Rollout what it has become; nil while it waits.
	EndedAt *time.Time `json:"endedAt,omitempty"`
	Rollout *Reference `json:"rollout,omitempty"`
}

// Words says why it is pending, or what came of it; empty from an earlier release.
func (q QueuedRollout) Words() string {
	if q.ComparesUntil != nil && q.WaitsFor == "COMPARISON" {
		return q.Why + ", until " + q.ComparesUntil.Local().Format(time.TimeOnly) + " at most"
	}
	return q.Why
}

// Reference is an object of which only the identifier and, if it has one, the name were requested.
type Reference struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// ServiceReference is a service with its application: services of different applications may have the same name.
type ServiceReference struct {
	Reference
	Application Reference `json:"application"`
}

// Service is one service of an application.
type Service struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// DisplayName is what people see, and may write in place of the name; empty if the server does not know of it.
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	// Labels are what chains, policies and notifications select by; Owner answers for it, and Links are kept with it.
	Labels          map[string]string `json:"labels,omitempty"`
	Owner           string            `json:"owner,omitempty"`
	Links           []Link            `json:"links,omitempty"`
	ArtifactSources []ArtifactSource  `json:"artifactSources,omitempty"`
	// RetiredAt is since when no new rollout deploys it; nil while it is in service.
	RetiredAt *time.Time `json:"retiredAt,omitempty"`
}

// MissingVersion is a source that the next version set of its application goes without or, if it blocks, waits for.
type MissingVersion struct {
	ArtifactSource Identified `json:"artifactSource"`
	Blocks         bool       `json:"blocks"`
	Reason         string     `json:"reason"`
}

// Identified is something by its identifier.
type Identified struct {
	ID string `json:"id"`
}

// ArtifactSource is where a service's images come from.
type ArtifactSource struct {
	ID           string `json:"id"`
	SourceRef    string `json:"sourceRef"`
	SourceConfig any    `json:"sourceConfig"`
}

// ApplicationEnvironment is an application in an environment.
type ApplicationEnvironment struct {
	ID              string               `json:"id"`
	Environment     EnvironmentReference `json:"environment"`
	Readiness       string               `json:"readiness"`
	ReadinessReason string               `json:"readinessReason,omitempty"`
	// Reconciliation is nil before the first observation, and unless one application was asked for.
	Reconciliation *Reconciliation `json:"reconciliation,omitempty"`
}

// Reconciliation is what an application is in an environment, compared with what was deployed there.
type Reconciliation struct {
	// Drift says what differs; empty if nothing does.
	Drift   string          `json:"drift"`
	Objects []DriftedObject `json:"objects,omitempty"`
	// Since is since when something has differed, or since when nothing has.
	Since      time.Time `json:"since,omitzero"`
	ObservedAt time.Time `json:"observedAt,omitzero"`
	// StaleReason is why it may not be so any more; empty if nothing speaks against it.
	StaleReason string `json:"staleReason,omitempty"`
}

// DriftedObject is an object that differs from what was deployed.
type DriftedObject struct {
	// Kind is empty, as Name is, if the difference is only known in words.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// How is MISSING, EXTRA or DIFFERENT.
	How string `json:"how"`
	// Differs says what differs in it, such as "replicas 9 → 2".
	Differs []string `json:"differs,omitempty"`
	// Held are the fields that others have taken over, so that no deploy sets them.
	Held []HeldField `json:"held,omitempty"`
}

// HeldField is a field that another manager has taken over.
type HeldField struct {
	Path string `json:"path"`
	// Manager is empty if it is unknown.
	Manager string `json:"manager,omitempty"`
}

// Drifted is an application that differs in an environment from what was deployed there.
type Drifted struct {
	Application    Reference       `json:"application"`
	Environment    Reference       `json:"environment"`
	Reconciliation *Reconciliation `json:"reconciliation,omitempty"`
}

// Drifts are the environments in which an application differs, as far as they were asked for.
func (a Application) Drifts() []Drifted {
	drifted := []Drifted{}
	for _, e := range a.Environments {
		if e.Reconciliation != nil && e.Reconciliation.Drift != "" {
			drifted = append(drifted, Drifted{
				Application: Reference{ID: a.ID, Name: a.Name}, Environment: e.Environment.Reference, Reconciliation: e.Reconciliation,
			})
		}
	}
	return drifted
}

// VersionSet is one version of every artifact source of an application.
type VersionSet struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	Entries   []VersionSetEntry `json:"entries,omitempty"`
	// Warnings are what to consider before it is rolled out.
	Warnings []string `json:"warnings,omitempty"`
	// Curated is by whom it was put together; empty for a set that was only made of what was published.
	Curated []Curated `json:"curated,omitempty"`
}

// Curated is that a member has put a version set together.
type Curated struct {
	// Name is what it is called beside the set's own name; empty for nothing.
	Name          string     `json:"name"`
	Reason        string     `json:"reason"`
	From          *Reference `json:"from,omitempty"`
	PrincipalName string     `json:"principalName"`
	CreatedAt     time.Time  `json:"createdAt"`
}

// VersionSetEntry is the version of one artifact source in a set.
type VersionSetEntry struct {
	Service Reference `json:"service"`
	Version Version   `json:"version"`
}

// Version is one artifact, pinned by digest.
type Version struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// DigestSeen reports whether the digest was found in the registry; nil if unknown.
	DigestSeen *bool `json:"digestSeen,omitempty"`
	// DeletedAt is when the registry reported that the image, or its last tag, was deleted; nil while it exists.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	Reference string     `json:"reference"`
	CreatedAt time.Time  `json:"createdAt,omitzero"`
}

// Environment is a place to deploy to.
type Environment struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// DisplayName is what people see, and may write in place of the name; empty if the server does not know of it.
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	// Labels are what chains, policies and notifications select by; Owner answers for it, and Links are kept with it.
	Labels          map[string]string `json:"labels,omitempty"`
	Owner           string            `json:"owner,omitempty"`
	Links           []Link            `json:"links,omitempty"`
	Tier            string            `json:"tier"`
	Readiness       string            `json:"readiness"`
	ReadinessReason string            `json:"readinessReason,omitempty"`
	CreatedAt       time.Time         `json:"createdAt,omitzero"`
	DriverBindings  []DriverBinding   `json:"driverBindings,omitempty"`
	// Approval is the approval that the environment requires; nil for none.
	Approval *EnvironmentApproval `json:"approval,omitempty"`
	// Checks are those that the environment requires, with active and proposed; nil for none.
	Checks any `json:"checks,omitempty"`
	// Contact reports whether its agent is reachable; nil if it has never been seen.
	Contact *Contact `json:"contact,omitempty"`
}

// Contact reports whether the agent of an environment is reachable, and since when.
type Contact struct {
	Reachable bool      `json:"reachable"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
}

// DriverBinding is the driver of an environment and its configuration.
type DriverBinding struct {
	ID           string `json:"id"`
	Version      int    `json:"version"`
	DriverRef    string `json:"driverRef"`
	DriverConfig any    `json:"driverConfig,omitempty"`
	// Fleet is which agents the targets are, and in which waves they are deployed.
	Fleet any `json:"fleet,omitempty"`
}

// Rollout promotes a version set through environments.
type Rollout struct {
	ID          string     `json:"id"`
	Application Reference  `json:"application"`
	VersionSet  VersionSet `json:"versionSet"`
	State       string     `json:"state"`
	// Status is the state for people: it includes aborted.
	Status           string     `json:"status"`
	WorkflowRef      string     `json:"workflowRef,omitempty"`
	IsRollback       bool       `json:"isRollback"`
	AwaitingApproval bool       `json:"awaitingApproval"`
	PauseRequested   bool       `json:"pauseRequested"`
	OpenGates        []Gate     `json:"openGates,omitempty"`
	CreatedAt        time.Time  `json:"createdAt,omitzero"`
	StartedAt        *time.Time `json:"startedAt,omitempty"`
	FinishedAt       *time.Time `json:"finishedAt,omitempty"`
	// Strategy is QUICK or PIPELINE, and StrategyReason why; both are empty for a rollout of a release that did not plan.
	Strategy       string `json:"strategy,omitempty"`
	StrategyReason string `json:"strategyReason,omitempty"`
	// Inputs are what it was given when it was created.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// WaitingOn lists everything that it waits for, in the order of promotion.
	WaitingOn []Wait `json:"waitingOn,omitempty"`
	// RollbackOf is the rollout that it rolls back, and RolledBackBy the newest one that rolls it back.
	RollbackOf   *Reference `json:"rollbackOf,omitempty"`
	RolledBackBy *Reference `json:"rolledBackBy,omitempty"`
	// Causes are the rows of journals that led to it, the first cause first, and last its own first row; only if they were asked for.
	Causes []Transition `json:"causes,omitempty"`
	// AutomaticRollback is the rollback scheduled by the application's policy; nil for none.
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// BreakGlass is set if its approvals were bypassed.
	BreakGlass *BreakGlass `json:"breakGlass,omitempty"`
	// Skipped are the environments of its pipeline that it skips.
	Skipped []SkippedEnvironment `json:"skippedEnvironments,omitempty"`
	// Deadlines are those of the whole, of environments, and of aborts.
	Deadlines    []RolloutDeadline    `json:"deadlines,omitempty"`
	Environments []RolloutEnvironment `json:"environments,omitempty"`
	Journal      []Transition         `json:"journal,omitempty"`
}

// Over reports whether the rollout has ended.
func (r Rollout) Over() bool {
	return r.State == "COMPLETED" || r.State == "FAILED" || r.State == "CANCELLED"
}

// Breach is the row of the journal with which the rollout failed as a breach; false if there is none.
func (r Rollout) Breach() (Transition, bool) {
	for _, row := range r.Journal {
		if row.Breach {
			return row, true
		}
	}
	return Transition{}, false
}

// Wait is one thing that a rollout waits for.
type Wait struct {
	// Kind is HAND_OVER, APPROVAL, PAUSE, SOAK, HEALTH, ENVIRONMENT, AGENT, FREEZE, VETO, PIN, CHECK or POLICY.
	Kind string `json:"kind"`
	// Status is PENDING, FAILED, STOPPED or UNSATISFIABLE; empty from servers that do not report it.
	Status string `json:"status,omitempty"`
	// Subject is what it is about: a gate, the key of a check, a freeze, …; empty for the whole rollout.
	Subject string `json:"subject,omitempty"`
	// Passage is the requested passage that needs it.
	Passage string `json:"passage,omitempty"`
	// Requirements is what an approval needs, and Approvers the first members who can still give it.
	Requirements []GateRequirement `json:"requirements,omitempty"`
	Approvers    []Reference       `json:"approvers,omitempty"`
	// Link is where the status of a check was reported from.
	Link string `json:"link,omitempty"`
	// Detail describes it for people, and Resolver who or what can end it.
	Detail   string     `json:"detail"`
	Resolver string     `json:"resolver"`
	Since    *time.Time `json:"since,omitempty"`
	// Until is when it ends automatically.
	Until       *time.Time `json:"until,omitempty"`
	GateID      string     `json:"gateId,omitempty"`
	Environment *Reference `json:"environment,omitempty"`
	Service     *Reference `json:"service,omitempty"`
}

// AutomaticRollback is a rollback started by a policy.
type AutomaticRollback struct {
	// State is DUE, STARTED or DROPPED, and Cause FAILED or DEGRADED.
	State string `json:"state"`
	Cause string `json:"cause"`
	// DueAt is when it starts; nil unless it is due.
	DueAt *time.Time `json:"dueAt,omitempty"`
	Why   string     `json:"why"`
	// Outcome is why it was dropped.
	Outcome string `json:"outcome,omitempty"`
	// Rollout is the rollback that it has started.
	Rollout *Reference `json:"rollout,omitempty"`
}

// BreakGlass is who has bypassed the approvals of a rollout, and why.
type BreakGlass struct {
	Principal *Reference `json:"principal,omitempty"`
	Reason    string     `json:"reason"`
	At        time.Time  `json:"at"`
}

// SkippedEnvironment is an environment that a rollout skips.
type SkippedEnvironment struct {
	Environment Reference `json:"environment"`
	// Cause is UNCHANGED or EXCLUDED.
	Cause string `json:"cause"`
}

// Gate is an open request for approval.
type Gate struct {
	GateID      string    `json:"gateId"`
	Reason      string    `json:"reason"`
	RequestedAt time.Time `json:"requestedAt"`
	// Requirements is everything that has to be met; empty from servers that report only the first, as Quorum and Group.
	Requirements []GateRequirement `json:"requirements,omitempty"`
	// Quorum is how many different people the first requirement needs.
	Quorum int `json:"quorum,omitempty"`
	// Group is the group of the first requirement; empty for any.
	Group     string     `json:"group,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// OnExpiry is APPROVE or REJECT.
	OnExpiry  string         `json:"onExpiry,omitempty"`
	Approvals []GateApproval `json:"approvals,omitempty"`
}

// GateRequirement is a number of approvals that a gate needs.
type GateRequirement struct {
	// Group is the group whose members count; empty for anybody with the permission or, beside groups, for people of any of those.
	Group  string `json:"group,omitempty"`
	Quorum int    `json:"quorum"`
	// Given is how many approvals count for it so far.
	Given int `json:"given"`
}

// GateApproval is one person's approval of an open gate.
type GateApproval struct {
	PrincipalType string    `json:"principalType"`
	PrincipalID   int64     `json:"principalId,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	ApprovedAt    time.Time `json:"approvedAt"`
}

// EnvironmentApproval is the approval that an environment requires of every rollout, independent of its pipeline.
type EnvironmentApproval struct {
	Reason              string `json:"reason"`
	Quorum              int    `json:"quorum"`
	Group               string `json:"group,omitempty"`
	RequesterMayApprove bool   `json:"requesterMayApprove"`
	ExpiresAfterSeconds int    `json:"expiresAfterSeconds"`
	// OnExpiry is APPROVE or REJECT.
	OnExpiry string `json:"onExpiry"`
}

// RolloutEnvironment is a rollout in one environment.
type RolloutEnvironment struct {
	ID                 string        `json:"id"`
	Environment        Reference     `json:"environment"`
	Position           int           `json:"position"`
	State              string        `json:"state"`
	Status             string        `json:"status"`
	DriverBinding      DriverBinding `json:"driverBinding,omitzero"`
	DriverDigest       string        `json:"driverDigest,omitempty"`
	PreviousVersionSet *Reference    `json:"previousVersionSet,omitempty"`
	StartedAt          *time.Time    `json:"startedAt,omitempty"`
	FinishedAt         *time.Time    `json:"finishedAt,omitempty"`
	Deployments        []Deployment  `json:"deployments"`
}

// Deployment is one service of a rollout in one environment.
type Deployment struct {
	ID       string    `json:"id"`
	Service  Reference `json:"service"`
	State    string    `json:"state"`
	Status   string    `json:"status"`
	Versions []Version `json:"versions,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Link is what it is outside of Lockstep, such as a pull request.
	Link *DeploymentLink `json:"link,omitempty"`
	// Gates are those that it has reached, in order.
	Gates []DeploymentGate `json:"gates,omitempty"`
}

// DeploymentGate is a gate of a deployment, from the journal.
type DeploymentGate struct {
	GateID    string     `json:"gateId"`
	Weight    int        `json:"weight"`
	ReachedAt *time.Time `json:"reachedAt,omitempty"`
	PassedAt  *time.Time `json:"passedAt,omitempty"`
}

// DeploymentLink is what a deployment is outside of Lockstep.
type DeploymentLink struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	URL       string `json:"url,omitempty"`
	Status    string `json:"status,omitempty"`
}

// Snapshot is exactly what was deployed.
type Snapshot struct {
	CommitSHA      string `json:"commitSha"`
	ManifestDigest string `json:"manifestDigest"`
	// Earlier are those of other attempts, in the order in which they were kept.
	Earlier []Attempt `json:"earlier,omitempty"`
}

// Attempt is what an earlier attempt of a deployment had committed.
type Attempt struct {
	CommitSHA      string    `json:"commitSha"`
	ManifestDigest string    `json:"manifestDigest"`
	CommittedAt    time.Time `json:"committedAt"`
}

// Transition is one row of a journal.
type Transition struct {
	Subject string `json:"subject"`
	// Environment and Service are set where they apply, in the organization's journal.
	Environment   *Reference `json:"environment,omitempty"`
	Service       *Reference `json:"service,omitempty"`
	FromState     string     `json:"fromState,omitempty"`
	ToState       string     `json:"toState"`
	Event         string     `json:"event"`
	GateID        string     `json:"gateId,omitempty"`
	PrincipalType string     `json:"principalType"`
	PrincipalID   int64      `json:"principalId,omitempty"`
	// Principal is set if it is a member.
	Principal   *Reference `json:"principal,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	TriggeredBy string     `json:"triggeredBy,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	// Conditions is what satisfied or stopped a passage, in the journal of a rollout.
	Conditions []PassageCondition `json:"conditions,omitempty"`
	// Breach is set if the rollout failed because its program reported to be beyond a passage that was never granted.
	Breach bool `json:"breach,omitempty"`
}

// PassageCondition is a condition of a passage, as the journal keeps it.
type PassageCondition struct {
	// Kind is APPROVAL, SKIPPED_WEIGHT, NOTHING_ASKED, FREEZE, VETO, PIN, CHECK, PASSAGE or POLICY.
	Kind    string `json:"kind"`
	Subject string `json:"subject,omitempty"`
	// Status is APPROVED, EXPIRED, BREAK_GLASS, SUCCESS, SKIPPED, NOT_NEEDED, STOPPED, BYPASSED or NOT_GRANTED.
	Status      string               `json:"status"`
	Environment *Reference           `json:"environment,omitempty"`
	By          []PassageConditionBy `json:"by,omitempty"`
	// SoakSeconds is the soak time that is omitted with a skipped weight, and Cause why it is skipped.
	SoakSeconds int        `json:"soakSeconds,omitempty"`
	Cause       string     `json:"cause,omitempty"`
	Until       *time.Time `json:"until,omitempty"`
}

// PassageConditionBy is a principal who satisfied a condition.
type PassageConditionBy struct {
	PrincipalType string     `json:"principalType"`
	PrincipalID   int64      `json:"principalId,omitempty"`
	Principal     *Reference `json:"principal,omitempty"`
	At            time.Time  `json:"at"`
	Groups        []string   `json:"groups,omitempty"`
}

// What returns the subject for people: names, or the identifier of what has none.
func (t Transition) What() string {
	switch {
	case t.Service != nil && t.Environment != nil:
		return t.Service.Name + " in " + t.Environment.Name
	case t.Environment != nil:
		return t.Environment.Name
	default:
		return t.Subject
	}
}

// Who returns who did it, for people.
func (t Transition) Who() string { return who(t.Principal, t.PrincipalType, t.PrincipalID) }

// who returns a member by name, and anything else by its kind, with its number if it has one.
func who(member *Reference, kind string, id int64) string {
	switch {
	case member != nil:
		return member.Name
	case id != 0:
		return fmt.Sprintf("%s %d", kind, id)
	default:
		return kind
	}
}
