package client

import (
	"fmt"
	"time"
)

// What follows has the names and shapes of the schema; fields that were not asked for are left out.

// Application is a group of services that ship together.
type Application struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	CreatedAt   time.Time  `json:"createdAt,omitzero"`
	Services    []Service  `json:"services,omitempty"`
	Active      *Reference `json:"activeRollout,omitempty"`
	// RollbackPolicy is what it does by itself about a rollout that fails.
	RollbackPolicy RollbackPolicy `json:"rollbackPolicy,omitzero"`
	RolloutPolicy  RolloutPolicy  `json:"rolloutPolicy,omitzero"`
	// Queued is what begins when the active rollout is over.
	Queued *QueuedRollout `json:"queuedRollout,omitempty"`
	// Environments are those that the pipeline deploys to.
	Environments []ApplicationEnvironment `json:"environments,omitempty"`
}

// RollbackPolicy says when an application rolls back by itself.
type RollbackPolicy struct {
	OnFailed             bool `json:"onFailed"`
	OnDegraded           bool `json:"onDegraded"`
	DegradedAfterSeconds int  `json:"degradedAfterSeconds"`
	// InFull promotes a way back without the gates by weight.
	InFull bool `json:"inFull"`
}

// RolloutPolicy says how an application's rollouts deal with failures and with each other.
type RolloutPolicy struct {
	// OnFailure is STOP, ABORT or ROLLBACK.
	OnFailure string `json:"onFailure"`
	// OnNewer is REFUSE, QUEUE or SUPERSEDE.
	OnNewer string `json:"onNewer"`
}

// QueuedRollout begins when the active rollout is over.
type QueuedRollout struct {
	VersionSet  Reference `json:"versionSet"`
	Reason      string    `json:"reason,omitempty"`
	RequestedAt time.Time `json:"requestedAt"`
}

// Reference is an object of which only the identifier, and the name where it has one, were asked for.
type Reference struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// ServiceReference is a service, with the application that it is one of: services of different applications may have the same name.
type ServiceReference struct {
	Reference
	Application Reference `json:"application"`
}

// Service is one service of an application.
type Service struct {
	ID              string           `json:"id"`
	Name            string           `json:"name"`
	ArtifactSources []ArtifactSource `json:"artifactSources,omitempty"`
}

// ArtifactSource says where a service's images come from.
type ArtifactSource struct {
	ID           string `json:"id"`
	SourceRef    string `json:"sourceRef"`
	SourceConfig any    `json:"sourceConfig"`
}

// ApplicationEnvironment is an application in an environment.
type ApplicationEnvironment struct {
	ID              string    `json:"id"`
	Environment     Reference `json:"environment"`
	Readiness       string    `json:"readiness"`
	ReadinessReason string    `json:"readinessReason,omitempty"`
}

// VersionSet is one version of every artifact source of an application.
type VersionSet struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	Entries   []VersionSetEntry `json:"entries,omitempty"`
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
	// DigestSeen is whether the digest was seen at the registry; nil where that is not known.
	DigestSeen *bool     `json:"digestSeen,omitempty"`
	Reference  string    `json:"reference"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
}

// Environment is a place to deploy to.
type Environment struct {
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Description     string          `json:"description,omitempty"`
	Tier            string          `json:"tier"`
	Readiness       string          `json:"readiness"`
	ReadinessReason string          `json:"readinessReason,omitempty"`
	CreatedAt       time.Time       `json:"createdAt,omitzero"`
	DriverBindings  []DriverBinding `json:"driverBindings,omitempty"`
	// Approval is what it asks by itself; nil for nothing.
	Approval *EnvironmentApproval `json:"approval,omitempty"`
	// Contact is whether its agent is there; nil before anybody was heard of.
	Contact *Contact `json:"contact,omitempty"`
}

// Contact is whether somebody who acts in an environment can be reached, and since when it has been so.
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
}

// Rollout promotes a version set through environments.
type Rollout struct {
	ID          string     `json:"id"`
	Application Reference  `json:"application"`
	VersionSet  VersionSet `json:"versionSet"`
	State       string     `json:"state"`
	// Status is the state for people: it knows that a rollout has been aborted.
	Status           string     `json:"status"`
	WorkflowRef      string     `json:"workflowRef,omitempty"`
	IsRollback       bool       `json:"isRollback"`
	AwaitingApproval bool       `json:"awaitingApproval"`
	PauseRequested   bool       `json:"pauseRequested"`
	OpenGates        []Gate     `json:"openGates,omitempty"`
	CreatedAt        time.Time  `json:"createdAt,omitzero"`
	StartedAt        *time.Time `json:"startedAt,omitempty"`
	FinishedAt       *time.Time `json:"finishedAt,omitempty"`
	// WaitingOn is everything that it waits for, in the order of promotion.
	WaitingOn []Wait `json:"waitingOn,omitempty"`
	// RollbackOf is the rollout that it takes back, and RolledBackBy the newest one that takes it back.
	RollbackOf   *Reference `json:"rollbackOf,omitempty"`
	RolledBackBy *Reference `json:"rolledBackBy,omitempty"`
	// AutomaticRollback is what the application's policy has scheduled; nil for nothing.
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// BreakGlass is who has passed its approvals; nil for nobody.
	BreakGlass *BreakGlass `json:"breakGlass,omitempty"`
	// Skipped are the environments of its pipeline that it does not go to.
	Skipped      []SkippedEnvironment `json:"skippedEnvironments,omitempty"`
	Environments []RolloutEnvironment `json:"environments,omitempty"`
	Journal      []Transition         `json:"journal,omitempty"`
}

// Over reports whether the rollout has ended, one way or another.
func (r Rollout) Over() bool {
	return r.State == "COMPLETED" || r.State == "FAILED" || r.State == "CANCELLED"
}

// Wait is one thing that a rollout waits for.
type Wait struct {
	// Kind is HAND_OVER, APPROVAL, PAUSE, SOAK, HEALTH, ENVIRONMENT or AGENT.
	Kind string `json:"kind"`
	// Detail says it for people, and Resolver who or what can end it.
	Detail   string     `json:"detail"`
	Resolver string     `json:"resolver"`
	Since    *time.Time `json:"since,omitempty"`
	// Until is when it ends without anybody's doing.
	Until       *time.Time `json:"until,omitempty"`
	GateID      string     `json:"gateId,omitempty"`
	Environment *Reference `json:"environment,omitempty"`
	Service     *Reference `json:"service,omitempty"`
}

// AutomaticRollback is a rollback that a policy begins.
type AutomaticRollback struct {
	// State is DUE, STARTED or DROPPED, and Cause FAILED or DEGRADED.
	State string `json:"state"`
	Cause string `json:"cause"`
	// DueAt is when it begins; nil unless it is due.
	DueAt *time.Time `json:"dueAt,omitempty"`
	Why   string     `json:"why"`
	// Outcome is why it was dropped.
	Outcome string `json:"outcome,omitempty"`
	// Rollout is the one that it has begun.
	Rollout *Reference `json:"rollout,omitempty"`
}

// BreakGlass is who has passed the approvals of a rollout, and why.
type BreakGlass struct {
	Principal *Reference `json:"principal,omitempty"`
	Reason    string     `json:"reason"`
	At        time.Time  `json:"at"`
}

// SkippedEnvironment is one that a rollout leaves out.
type SkippedEnvironment struct {
	Environment Reference `json:"environment"`
	// Cause is UNCHANGED or EXCLUDED.
	Cause string `json:"cause"`
}

// Gate is a request for approval that is not answered yet.
type Gate struct {
	GateID      string    `json:"gateId"`
	Reason      string    `json:"reason"`
	RequestedAt time.Time `json:"requestedAt"`
	// Quorum is how many different people have to approve it.
	Quorum int `json:"quorum,omitempty"`
	// Group is the group they belong to; empty for anybody.
	Group     string     `json:"group,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// OnExpiry is APPROVE or REJECT.
	OnExpiry  string         `json:"onExpiry,omitempty"`
	Approvals []GateApproval `json:"approvals,omitempty"`
}

// GateApproval is one person's agreement to an open gate.
type GateApproval struct {
	PrincipalType string    `json:"principalType"`
	PrincipalID   int64     `json:"principalId,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	ApprovedAt    time.Time `json:"approvedAt"`
}

// EnvironmentApproval is what an environment asks of every rollout, whatever its pipeline says.
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
	// Gates are those that it has come to, in order.
	Gates []DeploymentGate `json:"gates,omitempty"`
}

// DeploymentGate is what the journal says of one gate of a deployment.
type DeploymentGate struct {
	GateID    string     `json:"gateId"`
	Weight    int        `json:"weight"`
	ReachedAt *time.Time `json:"reachedAt,omitempty"`
	PassedAt  *time.Time `json:"passedAt,omitempty"`
}

// Snapshot is what exactly was deployed.
type Snapshot struct {
	CommitSHA      string `json:"commitSha"`
	ManifestDigest string `json:"manifestDigest"`
}

// Transition is one row of a journal.
type Transition struct {
	Subject string `json:"subject"`
	// Environment is where that is, and Service what is deployed there; each only where there is one, and in the organization's journal.
	Environment   *Reference `json:"environment,omitempty"`
	Service       *Reference `json:"service,omitempty"`
	FromState     string     `json:"fromState,omitempty"`
	ToState       string     `json:"toState"`
	Event         string     `json:"event"`
	GateID        string     `json:"gateId,omitempty"`
	PrincipalType string     `json:"principalType"`
	PrincipalID   int64      `json:"principalId,omitempty"`
	// Principal is the member that was, where it was one.
	Principal   *Reference `json:"principal,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	TriggeredBy string     `json:"triggeredBy,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
}

// What it is about, for people: names, or the identifier of what has none.
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

// Who did it, for people.
func (t Transition) Who() string { return who(t.Principal, t.PrincipalType, t.PrincipalID) }

// who is a member by name, and anything else by what it is, with its number where it has one.
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
