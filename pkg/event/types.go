package event

// The names of the types. Each payload returns its own from EventType.
const (
	TypeArtifactPublished                = "com.gitlab.cd.artifact.published"
	TypeArtifactDeleted                  = "com.gitlab.cd.artifact.deleted"
	TypePullRequestReported              = "com.gitlab.cd.pull_request.reported"
	TypePullRequestCommented             = "com.gitlab.cd.pull_request.commented"
	TypePullRequestReviewed              = "com.gitlab.cd.pull_request.reviewed"
	TypePullRequestRead                  = "com.gitlab.cd.pull_request.read"
	TypeCommitStatusReported             = "com.gitlab.cd.commit_status.reported"
	TypeFunctionCalled                   = "com.gitlab.cd.function.called"
	TypeFunctionCompleted                = "com.gitlab.cd.function.completed"
	TypeArgoRolloutStatusChanged         = "com.gitlab.cd.argo.rollout.status_changed"
	TypeWatchesWanted                    = "com.gitlab.cd.watches.wanted"
	TypeObjectChanged                    = "com.gitlab.cd.object.changed"
	TypeAgentHeartbeat                   = "com.gitlab.cd.agent.heartbeat"
	TypeRolloutStarted                   = "com.gitlab.cd.rollout.started"
	TypeRolloutGateReached               = "com.gitlab.cd.rollout.gate_reached"
	TypeRolloutEnvironmentJobStarted     = "com.gitlab.cd.rollout_environment.job_started"
	TypeRolloutEnvironmentJobEnded       = "com.gitlab.cd.rollout_environment.job_ended"
	TypeRolloutEnvironmentTargetEnded    = "com.gitlab.cd.rollout_environment.target_ended"
	TypeRolloutPassageRequested          = "com.gitlab.cd.rollout.passage_requested" //nolint:gosec // no password
	TypeRolloutPassageGranted            = "com.gitlab.cd.rollout.passage_granted"   //nolint:gosec // no password
	TypeRolloutPassagesRevoked           = "com.gitlab.cd.rollout.passages_revoked"  //nolint:gosec // no password
	TypeRolloutAbortRequested            = "com.gitlab.cd.rollout.abort_requested"
	TypeRolloutAborted                   = "com.gitlab.cd.rollout.aborted"
	TypeRolloutRetryRequested            = "com.gitlab.cd.rollout.retry_requested"
	TypeRolloutPreviewed                 = "com.gitlab.cd.rollout.previewed"
	TypeRolloutHealthy                   = "com.gitlab.cd.rollout.healthy"
	TypeRolloutFailed                    = "com.gitlab.cd.rollout.failed"
	TypeRolloutEnvironmentStarted        = "com.gitlab.cd.rollout_environment.started"
	TypeRolloutEnvironmentHealthy        = "com.gitlab.cd.rollout_environment.healthy"
	TypeRolloutEnvironmentFailed         = "com.gitlab.cd.rollout_environment.failed"
	TypeDeploymentStarted                = "com.gitlab.cd.deployment.started"
	TypeDeploymentCommitted              = "com.gitlab.cd.deployment.committed"
	TypeDeploymentProposed               = "com.gitlab.cd.deployment.proposed"
	TypeDeploymentNudged                 = "com.gitlab.cd.deployment.nudged"
	TypeDeploymentSubmitted              = "com.gitlab.cd.deployment.submitted"
	TypeDeploymentGateReached            = "com.gitlab.cd.deployment.gate_reached"
	TypeDeploymentAdvance                = "com.gitlab.cd.deployment.advance"
	TypeDeploymentHealthy                = "com.gitlab.cd.deployment.healthy"
	TypeDeploymentDegraded               = "com.gitlab.cd.deployment.degraded"
	TypeDeploymentFailed                 = "com.gitlab.cd.deployment.failed"
	TypeEnvironmentReady                 = "com.gitlab.cd.environment.ready"
	TypeEnvironmentNotReady              = "com.gitlab.cd.environment.not_ready"
	TypeApplicationEnvironmentReady      = "com.gitlab.cd.application_environment.ready"
	TypeApplicationEnvironmentNotReady   = "com.gitlab.cd.application_environment.not_ready"
	TypeServiceHealthObserved            = "com.gitlab.cd.service.health_observed"
	TypeApplicationEnvironmentReconciled = "com.gitlab.cd.application_environment.reconciled"
	TypeEnvironmentPlacesChanged         = "com.gitlab.cd.environment.places_changed"
	TypeEnvironmentContactChanged        = "com.gitlab.cd.environment.contact_changed"
	TypeApprovalRequested                = "com.gitlab.cd.approval.requested"
	TypeApprovalResolved                 = "com.gitlab.cd.approval.resolved"
	TypeCheckReported                    = "com.gitlab.cd.check.reported"
	TypeCheckNudged                      = "com.gitlab.cd.check.nudged"
	TypePolicySetChanged                 = "com.gitlab.cd.policy_set.changed"
	TypeCredentialChanged                = "com.gitlab.cd.credential.changed" //nolint:gosec // a name
	TypeCallDecided                      = "com.gitlab.cd.call.decided"
	TypeCallAnswered                     = "com.gitlab.cd.call.answered"
	TypeWorkflowCompleted                = "com.gitlab.cd.workflow.completed"
	TypeWorkflowFailed                   = "com.gitlab.cd.workflow.failed"
	TypeWorkflowCancelled                = "com.gitlab.cd.workflow.cancelled"
)

// EventType is com.gitlab.cd.artifact.published.
func (ArtifactPublished) EventType() string { return TypeArtifactPublished }

// EventType is com.gitlab.cd.artifact.deleted.
func (ArtifactDeleted) EventType() string { return TypeArtifactDeleted }

// EventType implements Data.
func (CommitStatusReported) EventType() string { return TypeCommitStatusReported }

// EventType is com.gitlab.cd.pull_request.reported.
func (PullRequestReported) EventType() string { return TypePullRequestReported }

// EventType is com.gitlab.cd.pull_request.commented.
func (PullRequestCommented) EventType() string { return TypePullRequestCommented }

// EventType returns TypePullRequestReviewed.
func (PullRequestReviewed) EventType() string { return TypePullRequestReviewed }

// EventType is com.gitlab.cd.pull_request.read.
func (PullRequestRead) EventType() string { return TypePullRequestRead }

// EventType is com.gitlab.cd.function.called.
func (FunctionCalled) EventType() string { return TypeFunctionCalled }

// EventType is com.gitlab.cd.function.completed.
func (FunctionCompleted) EventType() string { return TypeFunctionCompleted }

// EventType is com.gitlab.cd.argo.rollout.status_changed.
func (ArgoRolloutStatusChanged) EventType() string { return TypeArgoRolloutStatusChanged }

// EventType is com.gitlab.cd.watches.wanted.
func (WatchesWanted) EventType() string { return TypeWatchesWanted }

// EventType is com.gitlab.cd.object.changed.
func (ObjectChanged) EventType() string { return TypeObjectChanged }

// EventType is com.gitlab.cd.agent.heartbeat.
func (AgentHeartbeat) EventType() string { return TypeAgentHeartbeat }

// EventType is com.gitlab.cd.rollout.started.
func (RolloutStarted) EventType() string { return TypeRolloutStarted }

// EventType is com.gitlab.cd.rollout.gate_reached.
func (RolloutGateReached) EventType() string { return TypeRolloutGateReached }

// EventType is com.gitlab.cd.rollout_environment.job_started.
func (RolloutEnvironmentJobStarted) EventType() string { return TypeRolloutEnvironmentJobStarted }

// EventType is com.gitlab.cd.rollout_environment.job_ended.
func (RolloutEnvironmentJobEnded) EventType() string { return TypeRolloutEnvironmentJobEnded }

// EventType is com.gitlab.cd.rollout_environment.target_ended.
func (RolloutEnvironmentTargetEnded) EventType() string { return TypeRolloutEnvironmentTargetEnded }

// EventType is com.gitlab.cd.rollout.passage_requested.
func (RolloutPassageRequested) EventType() string { return TypeRolloutPassageRequested }

// EventType is com.gitlab.cd.rollout.passage_granted.
func (RolloutPassageGranted) EventType() string { return TypeRolloutPassageGranted }

// EventType is com.gitlab.cd.rollout.passages_revoked.
func (RolloutPassagesRevoked) EventType() string { return TypeRolloutPassagesRevoked }

// EventType is com.gitlab.cd.environment.places_changed.
func (EnvironmentPlacesChanged) EventType() string { return TypeEnvironmentPlacesChanged }

// EventType is com.gitlab.cd.rollout.abort_requested.
func (RolloutAbortRequested) EventType() string { return TypeRolloutAbortRequested }

// EventType is com.gitlab.cd.rollout.aborted.
func (RolloutAborted) EventType() string { return TypeRolloutAborted }

// EventType is com.gitlab.cd.rollout.retry_requested.
func (RolloutRetryRequested) EventType() string { return TypeRolloutRetryRequested }

// EventType is com.gitlab.cd.rollout.healthy.
func (RolloutHealthy) EventType() string { return TypeRolloutHealthy }

// EventType is com.gitlab.cd.rollout.failed.
func (RolloutFailed) EventType() string { return TypeRolloutFailed }

// EventType is com.gitlab.cd.rollout_environment.started.
func (RolloutEnvironmentStarted) EventType() string { return TypeRolloutEnvironmentStarted }

// EventType is com.gitlab.cd.rollout_environment.healthy.
func (RolloutEnvironmentHealthy) EventType() string { return TypeRolloutEnvironmentHealthy }

// EventType is com.gitlab.cd.rollout_environment.failed.
func (RolloutEnvironmentFailed) EventType() string { return TypeRolloutEnvironmentFailed }

// EventType is com.gitlab.cd.deployment.started.
func (DeploymentStarted) EventType() string { return TypeDeploymentStarted }

// EventType is com.gitlab.cd.deployment.committed.
func (DeploymentCommitted) EventType() string { return TypeDeploymentCommitted }

// EventType is com.gitlab.cd.deployment.gate_reached.
func (DeploymentGateReached) EventType() string { return TypeDeploymentGateReached }

// EventType is com.gitlab.cd.deployment.advance.
func (DeploymentAdvance) EventType() string { return TypeDeploymentAdvance }

// EventType is com.gitlab.cd.deployment.healthy.
func (DeploymentHealthy) EventType() string { return TypeDeploymentHealthy }

// EventType is com.gitlab.cd.deployment.degraded.
func (DeploymentDegraded) EventType() string { return TypeDeploymentDegraded }

// EventType is com.gitlab.cd.deployment.failed.
func (DeploymentFailed) EventType() string { return TypeDeploymentFailed }

// EventType is com.gitlab.cd.environment.ready.
func (EnvironmentReady) EventType() string { return TypeEnvironmentReady }

// EventType is com.gitlab.cd.environment.not_ready.
func (EnvironmentNotReady) EventType() string { return TypeEnvironmentNotReady }

// EventType is com.gitlab.cd.application_environment.ready.
func (ApplicationEnvironmentReady) EventType() string { return TypeApplicationEnvironmentReady }

// EventType is com.gitlab.cd.application_environment.not_ready.
func (ApplicationEnvironmentNotReady) EventType() string { return TypeApplicationEnvironmentNotReady }

// EventType is com.gitlab.cd.service.health_observed.
func (ServiceHealthObserved) EventType() string { return TypeServiceHealthObserved }

// EventType is com.gitlab.cd.application_environment.reconciled.
func (ApplicationEnvironmentReconciled) EventType() string {
	return TypeApplicationEnvironmentReconciled
}

// EventType is com.gitlab.cd.environment.contact_changed.
func (EnvironmentContactChanged) EventType() string { return TypeEnvironmentContactChanged }

// EventType is com.gitlab.cd.approval.requested.
func (ApprovalRequested) EventType() string { return TypeApprovalRequested }

// EventType is com.gitlab.cd.approval.resolved.
func (ApprovalResolved) EventType() string { return TypeApprovalResolved }

// EventType is com.gitlab.cd.check.reported.
func (CheckReported) EventType() string { return TypeCheckReported }

// EventType is com.gitlab.cd.check.nudged.
func (CheckNudged) EventType() string { return TypeCheckNudged }

// EventType is com.gitlab.cd.workflow.completed.
func (WorkflowCompleted) EventType() string { return TypeWorkflowCompleted }

// EventType is com.gitlab.cd.workflow.failed.
func (WorkflowFailed) EventType() string { return TypeWorkflowFailed }

// EventType is com.gitlab.cd.workflow.cancelled.
func (WorkflowCancelled) EventType() string { return TypeWorkflowCancelled }
