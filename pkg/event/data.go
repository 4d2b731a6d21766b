package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// The payloads are flat records in snake_case with identifiers as JSON numbers, as the contract has them. A tag
// `jsonschema` carries the constraints that the generated schema checks.

// ArtifactPublished is com.gitlab.cd.artifact.published: an artifact exists. A commit of a Git repository is one too:
// its image is git:<host>/<path>#<branch>, its digest the commit's SHA.
//
// DigestSeen says whether the registry service found the digest at the artifact's registry itself. Absent: unknown, because the service has no
// access to that registry or is an older release. False: it has access, but has not found the digest there. True: it has. An event with
// false may be followed by one with true for the same image, tag and digest, never the other way round.
type ArtifactPublished struct {
	Image       string `json:"image" jsonschema:"minLength=1,maxLength=1024"`
	Digest      string `json:"digest" jsonschema:"pattern=^(?:[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32\\,}|[0-9a-f]{40}|[0-9a-f]{64})$"`
	Tag         string `json:"tag,omitempty" jsonschema:"maxLength=256"`
	PublishedAt string `json:"published_at,omitempty" jsonschema:"format=date-time"`
	DigestSeen  *bool  `json:"digest_seen,omitempty"`
}

// FunctionCalled is com.gitlab.cd.function.called: a relay is to carry out a Function.
type FunctionCalled struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// CallID is the idempotency key: the same for every attempt at the same activity.
	CallID    string          `json:"call_id" jsonschema:"minLength=1"`
	Function  string          `json:"function" jsonschema:"minLength=1"`
	Arguments json.RawMessage `json:"arguments" jsonschema:"type=object"`
	Attempt   int             `json:"attempt" jsonschema:"minimum=1"`
	Deadline  string          `json:"deadline" jsonschema:"format=date-time"`
}

// FunctionCompleted is com.gitlab.cd.function.completed: a relay has carried out a Function.
type FunctionCompleted struct {
	AgentID int64           `json:"agent_id" jsonschema:"minimum=1"`
	CallID  string          `json:"call_id" jsonschema:"minLength=1"`
	Attempt int             `json:"attempt" jsonschema:"minimum=1"`
	Value   json.RawMessage `json:"value,omitempty" jsonschema:"type=object"`
	Error   *CallError      `json:"error,omitempty"`
}

// CallError says why a Function did not do what it was asked to.
type CallError struct {
	// Code is a stable token: not_found, forbidden, unreachable, conflict, invalid …
	Code      string `json:"code" jsonschema:"minLength=1"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
}

// WatchesWanted is com.gitlab.cd.watches.wanted: everything that a relay is to watch, in place of what it has been told
// before.
type WatchesWanted struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// AsOf orders sets by the sender's clock. LeaseSeconds is how long the set holds unless it is sent again.
	AsOf         string  `json:"as_of" jsonschema:"format=date-time"`
	LeaseSeconds int     `json:"lease_seconds" jsonschema:"minimum=1"`
	Watches      []Watch `json:"watches"`
}

// Watch is one object, or the objects with certain labels, of which a workflow wants to be told.
type Watch struct {
	// Watch is its id; what is observed carries it.
	Watch      string `json:"watch" jsonschema:"minLength=1"`
	Kind       string `json:"kind" jsonschema:"minLength=1"`
	APIVersion string `json:"api_version,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Labels is a selector as kubectl writes it, where there is no name.
	Labels string `json:"labels,omitempty"`
	// Fields are the dotted paths whose changes matter, and all that is told.
	Fields []string `json:"fields"`
	// Report asks for what the object means in place of fields: argo.health, or argo.reconciliation with ExpectedRevision.
	Report           string `json:"report,omitempty"`
	ExpectedRevision string `json:"expected_revision,omitempty"`
}

// ObjectChanged is com.gitlab.cd.object.changed: the state of a watched object. Exactly one of these holds: object is
// its projection; found is false; error says why it cannot be watched. A watch that asks for a report has report in place
// of object.
type ObjectChanged struct {
	AgentID    int64           `json:"agent_id" jsonschema:"minimum=1"`
	Watch      string          `json:"watch" jsonschema:"minLength=1"`
	Kind       string          `json:"kind" jsonschema:"minLength=1"`
	Namespace  string          `json:"namespace,omitempty"`
	Name       string          `json:"name,omitempty"`
	Found      bool            `json:"found"`
	Object     json.RawMessage `json:"object,omitempty" jsonschema:"type=object"`
	Report     json.RawMessage `json:"report,omitempty" jsonschema:"type=object"`
	Error      *CallError      `json:"error,omitempty"`
	ObservedAt string          `json:"observed_at" jsonschema:"format=date-time"`
}

// ArgoRolloutStatusChanged is com.gitlab.cd.argo.rollout.status_changed.
type ArgoRolloutStatusChanged struct {
	AgentID          int64            `json:"agent_id" jsonschema:"minimum=1"`
	RolloutName      string           `json:"rollout_name" jsonschema:"minLength=1"`
	Namespace        string           `json:"namespace" jsonschema:"minLength=1"`
	Phase            string           `json:"phase"`
	CurrentStepIndex int              `json:"current_step_index"`
	StableRS         string           `json:"stable_rs"`
	CurrentPodHash   string           `json:"current_pod_hash"`
	PauseConditions  []PauseCondition `json:"pause_conditions"`
	Abort            bool             `json:"abort"`
	// Watch, Object and ObservedAt are as in ObjectChanged.
	Watch      string          `json:"watch,omitempty"`
	Object     json.RawMessage `json:"object,omitempty" jsonschema:"type=object"`
	ObservedAt string          `json:"observed_at,omitempty" jsonschema:"format=date-time"`
}

// PauseCondition says why an Argo Rollout is paused.
type PauseCondition struct {
	Reason string `json:"reason"`
}

// AgentHeartbeat is com.gitlab.cd.agent.heartbeat: a relay is alive, and whether its cluster is.
type AgentHeartbeat struct {
	AgentID          int64  `json:"agent_id" jsonschema:"minimum=1"`
	Version          string `json:"version"`
	StartedAt        string `json:"started_at" jsonschema:"format=date-time"`
	ObservedAt       string `json:"observed_at" jsonschema:"format=date-time"`
	ClusterReachable bool   `json:"cluster_reachable"`
	Message          string `json:"message,omitempty"`
	// Watching is the digest (WatchDigest) of the watches held, "" for none; LeaseSeconds is what is left of their lease.
	Watching     string `json:"watching,omitempty"`
	LeaseSeconds int    `json:"lease_seconds,omitempty"`
}

// WatchDigest identifies a set of watches by their ids, in whatever order.
func WatchDigest(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(ids)), "\n")))
	return hex.EncodeToString(sum[:8])
}

// RolloutStarted is com.gitlab.cd.rollout.started.
type RolloutStarted struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
}

// RolloutGateReached is com.gitlab.cd.rollout.gate_reached: all deployments of the environment stand at the weight.
type RolloutGateReached struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	Weight        int   `json:"weight" jsonschema:"minimum=0,maximum=100"`
}

// RolloutPassageRequested is com.gitlab.cd.rollout.passage_requested: may the rollout go past the gate?
type RolloutPassageRequested struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	// GateID is <environment> for the way in, <environment>/<weight> for a gate within.
	GateID string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
}

// RolloutPassageGranted is com.gitlab.cd.rollout.passage_granted: it may.
type RolloutPassageGranted struct {
	RolloutID int64  `json:"rollout_id" jsonschema:"minimum=1"`
	GateID    string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
}

// RolloutAbortRequested is com.gitlab.cd.rollout.abort_requested: back to what is stable, and stay there.
type RolloutAbortRequested struct {
	RolloutID int64  `json:"rollout_id" jsonschema:"minimum=1"`
	Reason    string `json:"reason,omitempty"`
}

// RolloutAborted is com.gitlab.cd.rollout.aborted: it is back, and stays there.
type RolloutAborted struct {
	RolloutID     int64  `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64  `json:"environment_id" jsonschema:"minimum=1"`
	Reason        string `json:"reason,omitempty"`
}

// RolloutRetryRequested is com.gitlab.cd.rollout.retry_requested: once more from the first gate.
type RolloutRetryRequested struct {
	RolloutID int64  `json:"rollout_id" jsonschema:"minimum=1"`
	Reason    string `json:"reason,omitempty"`
}

// RolloutHealthy is com.gitlab.cd.rollout.healthy.
type RolloutHealthy struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
}

// RolloutFailed is com.gitlab.cd.rollout.failed.
type RolloutFailed struct {
	RolloutID int64  `json:"rollout_id" jsonschema:"minimum=1"`
	Reason    string `json:"reason" jsonschema:"minLength=1"`
}

// RolloutEnvironmentStarted is com.gitlab.cd.rollout_environment.started.
type RolloutEnvironmentStarted struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// RolloutEnvironmentHealthy is com.gitlab.cd.rollout_environment.healthy.
type RolloutEnvironmentHealthy struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// RolloutEnvironmentFailed is com.gitlab.cd.rollout_environment.failed.
type RolloutEnvironmentFailed struct {
	RolloutID     int64  `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64  `json:"environment_id" jsonschema:"minimum=1"`
	Reason        string `json:"reason" jsonschema:"minLength=1"`
}

// DeploymentStarted is com.gitlab.cd.deployment.started.
type DeploymentStarted struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
}

// DeploymentGateReached is com.gitlab.cd.deployment.gate_reached.
type DeploymentGateReached struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	Weight       int   `json:"weight" jsonschema:"minimum=0,maximum=100"`
}

// DeploymentAdvance is com.gitlab.cd.deployment.advance: past the gate named, never "the next one".
type DeploymentAdvance struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	Weight       int   `json:"weight,omitempty" jsonschema:"minimum=0,maximum=100"`
}

// DeploymentHealthy is com.gitlab.cd.deployment.healthy.
type DeploymentHealthy struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
}

// DeploymentDegraded is com.gitlab.cd.deployment.degraded.
type DeploymentDegraded struct {
	DeploymentID int64  `json:"deployment_id" jsonschema:"minimum=1"`
	Reason       string `json:"reason,omitempty"`
}

// DeploymentFailed is com.gitlab.cd.deployment.failed.
type DeploymentFailed struct {
	DeploymentID int64  `json:"deployment_id" jsonschema:"minimum=1"`
	Reason       string `json:"reason" jsonschema:"minLength=1"`
}

// EnvironmentReady is com.gitlab.cd.environment.ready.
type EnvironmentReady struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// EnvironmentNotReady is com.gitlab.cd.environment.not_ready.
type EnvironmentNotReady struct {
	EnvironmentID int64  `json:"environment_id" jsonschema:"minimum=1"`
	Reason        string `json:"reason" jsonschema:"minLength=1"`
}

// ServiceHealthObserved is com.gitlab.cd.service.health_observed: how a service does, rollout or not.
type ServiceHealthObserved struct {
	ServiceID     int64  `json:"service_id" jsonschema:"minimum=1"`
	EnvironmentID int64  `json:"environment_id" jsonschema:"minimum=1"`
	Health        string `json:"health" jsonschema:"enum=unknown,enum=healthy,enum=progressing,enum=degraded"`
	Reason        string `json:"reason,omitempty"`
	ObservedAt    string `json:"observed_at" jsonschema:"format=date-time"`
}

// ApplicationEnvironmentReconciled is com.gitlab.cd.application_environment.reconciled: what is in force, beside what was
// deployed last.
type ApplicationEnvironmentReconciled struct {
	ApplicationEnvironmentID int64 `json:"application_environment_id" jsonschema:"minimum=1"`
	// Revision is in force, ExpectedRevision was deployed last; empty where nobody says.
	Revision         string `json:"revision"`
	ExpectedRevision string `json:"expected_revision"`
	// Automatic is that the reconciler moves by itself.
	Automatic bool `json:"automatic"`
	// Drift says what differs from what was deployed; empty for nothing.
	Drift      string `json:"drift"`
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
}

// EnvironmentContactChanged is com.gitlab.cd.environment.contact_changed: whether anybody can be reached who acts in the
// environment, since observed_at.
type EnvironmentContactChanged struct {
	EnvironmentID int64  `json:"environment_id" jsonschema:"minimum=1"`
	Reachable     bool   `json:"reachable"`
	Reason        string `json:"reason,omitempty"`
	ObservedAt    string `json:"observed_at" jsonschema:"format=date-time"`
}

// ApplicationEnvironmentReady is com.gitlab.cd.application_environment.ready.
type ApplicationEnvironmentReady struct {
	ApplicationEnvironmentID int64  `json:"application_environment_id" jsonschema:"minimum=1"`
	RolloutName              string `json:"rollout_name,omitempty"`
	RolloutNamespace         string `json:"rollout_namespace,omitempty"`
	// Discovered is what the driver found and wants back at every deploy; opaque to everybody else.
	Discovered json.RawMessage `json:"discovered,omitempty" jsonschema:"type=object"`
}

// ApplicationEnvironmentNotReady is com.gitlab.cd.application_environment.not_ready.
type ApplicationEnvironmentNotReady struct {
	ApplicationEnvironmentID int64  `json:"application_environment_id" jsonschema:"minimum=1"`
	Reason                   string `json:"reason" jsonschema:"minLength=1"`
}

// ApprovalRequested is com.gitlab.cd.approval.requested.
type ApprovalRequested struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// GateID names the gate within the rollout; approve and reject name it again.
	GateID        string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	EnvironmentID int64  `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	Weight        int    `json:"weight,omitempty" jsonschema:"minimum=0,maximum=100"`
	Reason        string `json:"reason,omitempty"`
}

// ApprovalResolved is com.gitlab.cd.approval.resolved.
type ApprovalResolved struct {
	RolloutID     int64  `json:"rollout_id" jsonschema:"minimum=1"`
	GateID        string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	Resolution    string `json:"resolution" jsonschema:"enum=approved,enum=rejected"`
	PrincipalType string `json:"principal_type" jsonschema:"enum=user,enum=agent,enum=policy,enum=schedule,enum=system"`
	PrincipalID   int64  `json:"principal_id,omitempty"`
	Reason        string `json:"reason,omitempty"`
}

// WorkflowCompleted is com.gitlab.cd.workflow.completed.
type WorkflowCompleted struct {
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
}

// WorkflowFailed is com.gitlab.cd.workflow.failed.
type WorkflowFailed struct {
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	Error      string `json:"error" jsonschema:"minLength=1"`
}

// WorkflowCancelled is com.gitlab.cd.workflow.cancelled.
type WorkflowCancelled struct {
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	Reason     string `json:"reason,omitempty"`
}
