package event

import "encoding/json"

// The payloads are flat records in snake_case, with identifiers as JSON numbers, as the contract requires. A tag `jsonschema` holds the
// constraints of the generated schema. The reference is written from the comments: what a payload means follows its type's name.

// ArtifactPublished is com.gitlab.cd.artifact.published: an artifact exists. A commit of a Git repository
// is an artifact too: its image is git:<host>/<path>#<branch>, its digest the SHA of the commit.
type ArtifactPublished struct {
	// Image is the repository without a tag: registry.example.com/shop/api.
	Image string `json:"image" jsonschema:"minLength=1,maxLength=1024"`
	// Digest is the digest of the image, or the SHA of the commit.
	Digest string `json:"digest" jsonschema:"pattern=^(?:[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32\\,}|[0-9a-f]{40}|[0-9a-f]{64})$"`
	// Tag is the tag under which it was published.
	Tag string `json:"tag,omitempty" jsonschema:"maxLength=256"`
	// PublishedAt is when it was published.
	PublishedAt string `json:"published_at,omitempty" jsonschema:"format=date-time"`
	// DigestSeen is true if the registry service found the digest at the registry itself, false if it has access and did not find it, and
	// absent if it has no access or is an older release. An event with false may be followed by one with true for the same image, tag and
	// digest, never the other way round.
	DigestSeen *bool `json:"digest_seen,omitempty"`
	// CommitMessage is the beginning of a commit's message, as the registry service has read it from the repository, never as a sender has it.
	CommitMessage string `json:"commit_message,omitempty" jsonschema:"maxLength=4096"`
	// ChangedSince is the newest commit of the source before this one; absent if it is not known what has changed since.
	ChangedSince string `json:"changed_since,omitempty" jsonschema:"maxLength=64"`
	// ChangedFiles are the files of the source that differ between the two.
	ChangedFiles []string `json:"changed_files,omitempty" jsonschema:"maxItems=500"`
	// ChangedMessages are the beginnings of the messages of all commits after changed_since up to this one, with those of merged branches,
	// in no order; absent if not all are known.
	ChangedMessages []string `json:"changed_messages,omitempty" jsonschema:"maxItems=100"`
}

// ArtifactDeleted is com.gitlab.cd.artifact.deleted: an artifact, or a tag of it, is no longer at its registry. At least one of digest and
// tag is set. A digest alone: the image is gone, with every tag that named it. A tag alone: the tag is gone, whatever it named. Both: the
// tag no longer names that digest. An image that is published again later exists again.
type ArtifactDeleted struct {
	// Image is the repository, without tag and digest.
	Image string `json:"image" jsonschema:"minLength=1,maxLength=1024"`
	// Digest is that of the image.
	Digest string `json:"digest,omitempty" jsonschema:"pattern=^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32\\,}$"`
	// Tag is the tag that was deleted.
	Tag string `json:"tag,omitempty" jsonschema:"maxLength=256"`
	// DeletedAt is when the registry deleted it; without it, it is the time of the event.
	DeletedAt string `json:"deleted_at,omitempty" jsonschema:"format=date-time"`
}

// CommitStatusReported is com.gitlab.cd.commit_status.reported: a forge has a status of a commit. Of several statuses of one context the
// one that was observed last counts, of those at one instant that with the highest sequence; of runs that with the highest sequence.
type CommitStatusReported struct {
	// Hook is the key of the organization's hook that received it.
	Hook string `json:"hook" jsonschema:"minLength=1,maxLength=64"`
	// Repository is the address of the repository.
	Repository string `json:"repository" jsonschema:"minLength=1,maxLength=1024"`
	// Commit is the full ID of the commit.
	Commit string `json:"commit" jsonschema:"pattern=^(?:[0-9a-f]{40}|[0-9a-f]{64})$"`
	// Kind is status, or run for a check run or a job. One of each kind may have the same context; both count. Absent in events of older
	// releases.
	Kind string `json:"kind,omitempty" jsonschema:"enum=status,enum=run"`
	// Context is what the forge calls it: the context of a status, or the name of a check run or a job.
	Context string `json:"context" jsonschema:"minLength=1,maxLength=255"`
	// Phase is pending, success or failure.
	Phase string `json:"phase" jsonschema:"enum=pending,enum=success,enum=failure"`
	// Description is what it says for people.
	Description string `json:"description,omitempty" jsonschema:"maxLength=1000"`
	// Link is an http or https address.
	Link string `json:"link,omitempty" jsonschema:"maxLength=2000"`
	// ObservedAt is when the forge had it.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
	// Sequence is the forge's number of it, which rises.
	Sequence int64 `json:"sequence" jsonschema:"minimum=0"`
}

// FunctionCalled is com.gitlab.cd.function.called: a relay is to execute a Function.
type FunctionCalled struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// CallID is the idempotency key: the same for every attempt at the same activity.
	CallID string `json:"call_id" jsonschema:"minLength=1"`
	// Function is the name of the Function.
	Function string `json:"function" jsonschema:"minLength=1"`
	// Arguments are its arguments.
	Arguments json.RawMessage `json:"arguments" jsonschema:"type=object"`
	// Attempt counts the times that the call was sent, from 1.
	Attempt int `json:"attempt" jsonschema:"minimum=1"`
	// Deadline is when the caller stops waiting for the answer.
	Deadline string `json:"deadline" jsonschema:"format=date-time"`
	// HeldWeights are the weights, in percent, that an Argo Rollout must not leave, because their passages have not been granted. Relays of
	// earlier releases ignore them.
	HeldWeights []int `json:"held_weights,omitempty" jsonschema:"minimum=1,maximum=100"`
	// Owner is whose objects the call may change: the value of their label lockstep.dev/owner. Absent for calls that only read.
	Owner string `json:"owner,omitempty" jsonschema:"maxLength=63,pattern=^[a-z0-9][a-z0-9.-]*$"`
	// Installation distinguishes the caller from other installations in the same cluster: the value of the label lockstep.dev/installation.
	// Absent where owner is.
	Installation string `json:"installation,omitempty" jsonschema:"maxLength=63,pattern=^[a-z0-9][a-z0-9.-]*$"`
}

// FunctionCompleted is com.gitlab.cd.function.completed: a relay has executed a Function.
type FunctionCompleted struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// CallID is that of the call.
	CallID string `json:"call_id" jsonschema:"minLength=1"`
	// Attempt is the attempt that is answered.
	Attempt int `json:"attempt" jsonschema:"minimum=1"`
	// Value is the answer; absent if the Function failed.
	Value json.RawMessage `json:"value,omitempty" jsonschema:"type=object"`
	// Error is why the Function failed; absent if it did not.
	Error *CallError `json:"error,omitempty"`
}

// CallError is why a Function failed.
type CallError struct {
	// Code is a stable token: not_found, forbidden, unreachable, conflict, invalid …
	Code string `json:"code" jsonschema:"minLength=1"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// Retryable is true if another attempt may succeed.
	Retryable bool `json:"retryable,omitempty"`
}

// WatchesWanted is com.gitlab.cd.watches.wanted: all that a relay is to watch. It replaces the set before.
type WatchesWanted struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// AsOf orders the sets by the clock of the sender.
	AsOf string `json:"as_of" jsonschema:"format=date-time"`
	// LeaseSeconds is how long the set is valid unless it is sent again.
	LeaseSeconds int `json:"lease_seconds" jsonschema:"minimum=1"`
	// Watches are all watches of the agent.
	Watches []Watch `json:"watches"`
}

// Watch selects one object, or all objects with certain labels, for a workflow.
type Watch struct {
	// Watch is its id. Every observation carries it.
	Watch string `json:"watch" jsonschema:"minLength=1"`
	// Kind is the kind of the objects, such as Pod.
	Kind string `json:"kind" jsonschema:"minLength=1"`
	// APIVersion is their group and version; absent for kinds that the relay knows.
	APIVersion string `json:"api_version,omitempty"`
	// Namespace is theirs; absent for cluster-scoped kinds.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of a single object.
	Name string `json:"name,omitempty"`
	// Labels is a label selector, as kubectl takes it, for objects without a given name.
	Labels string `json:"labels,omitempty"`
	// Fields are the dotted paths that are observed and reported.
	Fields []string `json:"fields"`
	// Report requests an interpretation in place of the fields: argo.health, or argo.reconciliation with ExpectedRevision.
	Report string `json:"report,omitempty"`
	// ExpectedRevision is the commit that should be in effect.
	ExpectedRevision string `json:"expected_revision,omitempty"`
}

// ObjectChanged is com.gitlab.cd.object.changed: the state of a watched object. Exactly one of these holds:
// object or report is present; found is false; error is present.
type ObjectChanged struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// Watch is the id of the watch.
	Watch string `json:"watch" jsonschema:"minLength=1"`
	// Kind is the kind of the object.
	Kind string `json:"kind" jsonschema:"minLength=1"`
	// Namespace is its namespace.
	Namespace string `json:"namespace,omitempty"`
	// Name is its name.
	Name string `json:"name,omitempty"`
	// Found is false if the object does not exist.
	Found bool `json:"found"`
	// Object has the watched fields.
	Object json.RawMessage `json:"object,omitempty" jsonschema:"type=object"`
	// Report is the requested interpretation of the object.
	Report json.RawMessage `json:"report,omitempty" jsonschema:"type=object"`
	// Error is why the object cannot be watched.
	Error *CallError `json:"error,omitempty"`
	// ObservedAt is when the relay observed it.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
}

// ArgoRolloutStatusChanged is com.gitlab.cd.argo.rollout.status_changed: the status of a watched Argo Rollout has changed.
type ArgoRolloutStatusChanged struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// RolloutName is the name of the Argo Rollout.
	RolloutName string `json:"rollout_name" jsonschema:"minLength=1"`
	// Namespace is its namespace.
	Namespace string `json:"namespace" jsonschema:"minLength=1"`
	// Phase is its status.phase.
	Phase string `json:"phase"`
	// CurrentStepIndex is its status.currentStepIndex.
	CurrentStepIndex int `json:"current_step_index"`
	// StableRS is its status.stableRS.
	StableRS string `json:"stable_rs"`
	// CurrentPodHash is its status.currentPodHash.
	CurrentPodHash string `json:"current_pod_hash"`
	// PauseConditions are its status.pauseConditions.
	PauseConditions []PauseCondition `json:"pause_conditions"`
	// Abort is its status.abort.
	Abort bool `json:"abort"`
	// Watch is the id of the watch.
	Watch string `json:"watch,omitempty"`
	// Object has the watched fields.
	Object json.RawMessage `json:"object,omitempty" jsonschema:"type=object"`
	// ObservedAt is when the relay observed it.
	ObservedAt string `json:"observed_at,omitempty" jsonschema:"format=date-time"`
}

// PauseCondition says why an Argo Rollout is paused.
type PauseCondition struct {
	// Reason is the reason, as Argo Rollouts gives it.
	Reason string `json:"reason"`
}

// AgentHeartbeat is com.gitlab.cd.agent.heartbeat: a relay is running, and whether its cluster can be reached.
type AgentHeartbeat struct {
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// Version is the release of the relay.
	Version string `json:"version"`
	// StartedAt is when the process started.
	StartedAt string `json:"started_at" jsonschema:"format=date-time"`
	// ObservedAt is when the heartbeat was sent.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
	// ClusterReachable is false if the API server does not answer.
	ClusterReachable bool `json:"cluster_reachable"`
	// Message is the version of Kubernetes or, if the cluster is unreachable, the error.
	Message string `json:"message,omitempty"`
	// Watching is the digest of the current set of watches; absent for none.
	Watching string `json:"watching,omitempty"`
	// LeaseSeconds is how long that set remains valid.
	LeaseSeconds int `json:"lease_seconds,omitempty"`
}

// RolloutStarted is com.gitlab.cd.rollout.started: the rollout is in progress.
type RolloutStarted struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
}

// RolloutEnvironmentJobStarted is com.gitlab.cd.rollout_environment.job_started: an attempt at a job of the pipeline begins.
type RolloutEnvironmentJobStarted struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Job is the name of the job.
	Job string `json:"job" jsonschema:"minLength=1,maxLength=40,pattern=^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"`
	// When is the part of the pipeline that has the job.
	When string `json:"when" jsonschema:"enum=before,enum=after,enum=on_failure,enum=step"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" jsonschema:"minimum=1,maximum=1000000"`
}

// RolloutEnvironmentJobEnded is com.gitlab.cd.rollout_environment.job_ended: an attempt at a job of the pipeline has ended.
type RolloutEnvironmentJobEnded struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Job is the name of the job.
	Job string `json:"job" jsonschema:"minLength=1,maxLength=40,pattern=^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"`
	// When is the part of the pipeline that has the job.
	When string `json:"when" jsonschema:"enum=before,enum=after,enum=on_failure,enum=step"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" jsonschema:"minimum=1,maximum=1000000"`
	// Result is how it ended. An aborted job begins again if its rollout is retried.
	Result string `json:"result" jsonschema:"enum=succeeded,enum=failed,enum=aborted"`
	// Reason is why; may be empty for a job that has succeeded.
	Reason string `json:"reason,omitempty" jsonschema:"maxLength=1000"`
	// Log is the end of what it has printed, without what looks like a secret; empty if there is none.
	Log string `json:"log,omitempty" jsonschema:"maxLength=8000"`
}

// RolloutEnvironmentTargetEnded is com.gitlab.cd.rollout_environment.target_ended: a target of a fleet is healthy, or has failed.
type RolloutEnvironmentTargetEnded struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// AgentID is the number of the agent of the target.
	AgentID int64 `json:"agent_id" jsonschema:"minimum=1"`
	// Attempt is that of the wave, as the grant of its passage has it.
	Attempt int `json:"attempt" jsonschema:"minimum=1,maximum=1000000"`
	// Result is how it ended. Of several reports about one attempt the first counts.
	Result string `json:"result" jsonschema:"enum=healthy,enum=failed"`
	// Reason is why it has failed.
	Reason string `json:"reason,omitempty" jsonschema:"maxLength=1000"`
}

// RolloutGateReached is com.gitlab.cd.rollout.gate_reached: all deployments of the environment have reached the gate.
type RolloutGateReached struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Weight is the traffic weight of the gate in percent.
	Weight int `json:"weight" jsonschema:"minimum=0,maximum=100"`
}

// RolloutPassageRequested is com.gitlab.cd.rollout.passage_requested: the rollout waits for permission to pass the gate.
type RolloutPassageRequested struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	// GateID is <environment> for entering an environment, <environment>/<weight> for leaving a weight in it, and the name of a step between
	// environments.
	GateID string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	// SkipsWeights are the weights of the environment, in percent, at which the program will not stop this time; only at its entrance. Their
	// approvals are then requested there.
	SkipsWeights []int `json:"skips_weights,omitempty" jsonschema:"minimum=1,maximum=100"`
}

// RolloutPassageGranted is com.gitlab.cd.rollout.passage_granted: the rollout may pass the gate.
type RolloutPassageGranted struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// GateID is the gate of the request.
	GateID string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	// EnvironmentID is the environment that the rollout's run may change from now on; absent if the gate opens none, as a step between
	// environments, and in events of earlier releases.
	EnvironmentID int64 `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	// ApplicationID is the application of the rollout; absent in events of earlier releases.
	ApplicationID int64 `json:"application_id,omitempty" jsonschema:"minimum=1"`
	// Weight is the weight, in percent, that the run may leave in that environment; absent for the environment's entrance.
	Weight int `json:"weight,omitempty" jsonschema:"minimum=1,maximum=100"`
	// Wave is the wave of a fleet whose targets the run may change from now on; only for the gate of a wave.
	Wave int `json:"wave,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// PinnedWeights are the weights of that environment, in percent, that each need a passage of their own; only at its entrance.
	PinnedWeights []int `json:"pinned_weights,omitempty" jsonschema:"minimum=1,maximum=100"`
	// Places are what the rollout may change in that environment, as it has pinned them; only at its entrance and for a wave. Without them,
	// the entrance lets the run change whatever belongs to the environment, and a wave opens nothing.
	Places []Place `json:"places,omitempty"`
	// Attempt counts how often the wave of a fleet was let begin; only for the gate of a wave.
	Attempt int `json:"attempt,omitempty" jsonschema:"minimum=1,maximum=1000000"`
}

// Place is where something can be changed: a part of a cluster, with agent_id, of a repository, with repository, or of a server, with
// url. Members that are absent mean all of them.
type Place struct {
	// AgentID is the agent of the cluster.
	AgentID int64 `json:"agent_id,omitempty" jsonschema:"minimum=1"`
	// Application is an Argo CD Application, as namespace/name.
	Application string `json:"application,omitempty"`
	// Namespace is a namespace of the cluster.
	Namespace string `json:"namespace,omitempty"`
	// Name is an object in the namespace.
	Name string `json:"name,omitempty"`
	// Repository is the URL of a Git repository; * for all of them.
	Repository string `json:"repository,omitempty"`
	// Branch is a branch of the repository.
	Branch string `json:"branch,omitempty"`
	// Path is a file, or a folder with everything in it.
	Path string `json:"path,omitempty"`
	// URL is a URL of a server with everything below its path; * for all of them.
	URL string `json:"url,omitempty"`
}

// RolloutPassagesRevoked is com.gitlab.cd.rollout.passages_revoked: the rollout has ended, or a wave of a fleet may never
// begin, and its run may change nothing any more.
type RolloutPassagesRevoked struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// Cancelled is true if the rollout was cancelled: for an hour, the program cancelled of its drivers may take back what it has begun.
	Cancelled bool `json:"cancelled,omitempty"`
	// EnvironmentIDs are, for a rollout that was cancelled, the environments that it has entered and not completed.
	EnvironmentIDs []int64 `json:"environment_ids,omitempty" jsonschema:"minimum=1"`
}

// EnvironmentPlacesChanged is com.gitlab.cd.environment.places_changed: what belongs to an environment, or to one application in it,
// completely. Of events with the same environment and application, that with the highest sequence counts.
type EnvironmentPlacesChanged struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Name is the environment's name.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=255"`
	// ApplicationID is the application whose places these are; absent for what the environment has by itself.
	ApplicationID int64 `json:"application_id,omitempty" jsonschema:"minimum=1"`
	// Sequence rises with every event.
	Sequence int64 `json:"sequence" jsonschema:"minimum=1"`
	// Protected is set if only its own rollouts may change the environment; not in events about an application.
	Protected bool `json:"protected,omitempty"`
	// Archived is set if the environment is no longer used; not in events about an application.
	Archived bool `json:"archived,omitempty"`
	// Places are what belongs to the environment, or to the application in it.
	Places []Place `json:"places"`
	// Fleet is set if the environment has many clusters; not in events about an application.
	Fleet *FleetPlaces `json:"fleet,omitempty"`
}

// FleetPlaces are the clusters of an environment of many: what belongs to it in one of its own clusters belongs to it in each target, too.
type FleetPlaces struct {
	// AgentIDs are the agents of its own clusters, which its places name.
	AgentIDs []int64 `json:"agent_ids"`
	// TargetIDs are the agents that its selector selects now.
	TargetIDs []int64 `json:"target_ids"`
}

// RolloutAbortRequested is com.gitlab.cd.rollout.abort_requested: the rollout is to return to the stable version.
type RolloutAbortRequested struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// Reason is why, as the person who requested it has given it.
	Reason string `json:"reason,omitempty"`
}

// RolloutAborted is com.gitlab.cd.rollout.aborted: the rollout has returned to the stable version, and waits there.
type RolloutAborted struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Reason is why.
	Reason string `json:"reason,omitempty"`
}

// RolloutRetryRequested is com.gitlab.cd.rollout.retry_requested: the aborted rollout is to restart from its first gate.
type RolloutRetryRequested struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// Reason is why, as the person who requested it has given it.
	Reason string `json:"reason,omitempty"`
}

// RolloutHealthy is com.gitlab.cd.rollout.healthy: the rollout is completed.
type RolloutHealthy struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
}

// RolloutFailed is com.gitlab.cd.rollout.failed: the rollout has failed.
type RolloutFailed struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// Reason is why.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// RolloutEnvironmentStarted is com.gitlab.cd.rollout_environment.started: the rollout has entered an environment.
type RolloutEnvironmentStarted struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// RolloutEnvironmentHealthy is com.gitlab.cd.rollout_environment.healthy: every deployment of the environment is healthy.
type RolloutEnvironmentHealthy struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// RolloutEnvironmentFailed is com.gitlab.cd.rollout_environment.failed: the environment does not become healthy in this rollout.
type RolloutEnvironmentFailed struct {
	RolloutID     int64 `json:"rollout_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Reason is why.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// DeploymentStarted is com.gitlab.cd.deployment.started: the deployment of a service to an environment begins.
type DeploymentStarted struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
}

// DeploymentGateReached is com.gitlab.cd.deployment.gate_reached: the deployment has reached a gate.
type DeploymentGateReached struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Weight is the traffic weight of the gate in percent.
	Weight int `json:"weight" jsonschema:"minimum=0,maximum=100"`
}

// DeploymentAdvance is com.gitlab.cd.deployment.advance: the deployment may pass the gate with this weight.
type DeploymentAdvance struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Weight is the traffic weight of the gate in percent.
	Weight int `json:"weight,omitempty" jsonschema:"minimum=0,maximum=100"`
}

// DeploymentHealthy is com.gitlab.cd.deployment.healthy: the service is healthy with the new version.
type DeploymentHealthy struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
}

// DeploymentDegraded is com.gitlab.cd.deployment.degraded: the new version of the service is degraded.
type DeploymentDegraded struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Reason is why.
	Reason string `json:"reason,omitempty"`
}

// DeploymentFailed is com.gitlab.cd.deployment.failed: the service could not be deployed.
type DeploymentFailed struct {
	DeploymentID int64 `json:"deployment_id" jsonschema:"minimum=1"`
	// Reason is why.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// EnvironmentReady is com.gitlab.cd.environment.ready: the environment can be deployed to.
type EnvironmentReady struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
}

// EnvironmentNotReady is com.gitlab.cd.environment.not_ready: the environment cannot be deployed to.
type EnvironmentNotReady struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Reason is what is missing.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// ServiceHealthObserved is com.gitlab.cd.service.health_observed: the health of a service in an environment, with or without a rollout.
type ServiceHealthObserved struct {
	ServiceID     int64 `json:"service_id" jsonschema:"minimum=1"`
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Health is the observed health.
	Health string `json:"health" jsonschema:"enum=unknown,enum=healthy,enum=progressing,enum=degraded"`
	// Reason is why; absent if the service is healthy.
	Reason string `json:"reason,omitempty"`
	// ObservedAt is when it was observed.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
}

// ApplicationEnvironmentReconciled is com.gitlab.cd.application_environment.reconciled: the commit in effect for an application in an
// environment, compared with the one that was deployed last.
type ApplicationEnvironmentReconciled struct {
	ApplicationEnvironmentID int64 `json:"application_environment_id" jsonschema:"minimum=1"`
	// Revision is the commit in effect; empty if it is unknown.
	Revision string `json:"revision"`
	// ExpectedRevision is the commit that was deployed last; empty if it is unknown.
	ExpectedRevision string `json:"expected_revision"`
	// Automatic is true if Argo CD syncs the application automatically, which Lockstep did not configure.
	Automatic bool `json:"automatic"`
	// Drift is the difference from what was deployed last, in words; empty if there is none.
	Drift string `json:"drift"`
	// Objects are what differs; absent if there is no difference, or from a relay of an earlier release, which has it in words only.
	Objects []DriftedObject `json:"objects,omitempty" jsonschema:"maxItems=200"`
	// ObservedAt is when it was observed.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
}

// EnvironmentContactChanged is com.gitlab.cd.environment.contact_changed: whether the agent of an environment can be reached.
type EnvironmentContactChanged struct {
	EnvironmentID int64 `json:"environment_id" jsonschema:"minimum=1"`
	// Reachable is whether the agent and its cluster can be reached.
	Reachable bool `json:"reachable"`
	// Reason is why not.
	Reason string `json:"reason,omitempty"`
	// ObservedAt is since when.
	ObservedAt string `json:"observed_at" jsonschema:"format=date-time"`
}

// ApplicationEnvironmentReady is com.gitlab.cd.application_environment.ready: the application can be deployed to the environment.
type ApplicationEnvironmentReady struct {
	ApplicationEnvironmentID int64 `json:"application_environment_id" jsonschema:"minimum=1"`
	// RolloutName is the name of the Argo Rollout.
	RolloutName string `json:"rollout_name,omitempty"`
	// RolloutNamespace is its namespace.
	RolloutNamespace string `json:"rollout_namespace,omitempty"`
	// Discovered is what the driver found and needs again at every deployment. Only the driver interprets it.
	Discovered json.RawMessage `json:"discovered,omitempty" jsonschema:"type=object"`
}

// ApplicationEnvironmentNotReady is com.gitlab.cd.application_environment.not_ready: the application cannot be deployed to the environment.
type ApplicationEnvironmentNotReady struct {
	ApplicationEnvironmentID int64 `json:"application_environment_id" jsonschema:"minimum=1"`
	// Reason is why not.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// ApprovalRequested is com.gitlab.cd.approval.requested: a gate waits for an approval.
type ApprovalRequested struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// GateID identifies the gate within the rollout.
	GateID        string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	EnvironmentID int64  `json:"environment_id,omitempty" jsonschema:"minimum=1"`
	// Weight is the traffic weight of the gate in percent.
	Weight int `json:"weight,omitempty" jsonschema:"minimum=0,maximum=100"`
	// Reason is why an approval is needed, as the pipeline says.
	Reason string `json:"reason,omitempty"`
}

// ApprovalResolved is com.gitlab.cd.approval.resolved: a gate was approved or rejected.
type ApprovalResolved struct {
	RolloutID int64 `json:"rollout_id" jsonschema:"minimum=1"`
	// GateID is the gate of the request.
	GateID string `json:"gate_id" jsonschema:"minLength=1,maxLength=255"`
	// Resolution is the outcome.
	Resolution string `json:"resolution" jsonschema:"enum=approved,enum=rejected"`
	// PrincipalType is who has resolved it.
	PrincipalType string `json:"principal_type" jsonschema:"enum=user,enum=agent,enum=policy,enum=schedule,enum=system"`
	// PrincipalID is the number of the member.
	PrincipalID int64 `json:"principal_id,omitempty"`
	// Reason is why, as they have given it.
	Reason string `json:"reason,omitempty"`
}

// WorkflowCompleted is com.gitlab.cd.workflow.completed: the program ran to its end.
type WorkflowCompleted struct {
	// WorkflowID is the id that the caller has given to the workflow.
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
}

// WorkflowFailed is com.gitlab.cd.workflow.failed: the run has failed.
type WorkflowFailed struct {
	// WorkflowID is the id that the caller has given to the workflow.
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	// Error is why it failed.
	Error string `json:"error" jsonschema:"minLength=1"`
}

// WorkflowCancelled is com.gitlab.cd.workflow.cancelled: the run was cancelled.
type WorkflowCancelled struct {
	// WorkflowID is the id that the caller has given to the workflow.
	WorkflowID string `json:"workflow_id" jsonschema:"minLength=1"`
	// Reason is why, as the caller has given it.
	Reason string `json:"reason,omitempty"`
}
