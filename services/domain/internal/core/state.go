package core

import (
	"strings"
)

// State is a state of what has a journal, as journal, tables and API spell it: a RolloutState or a DeploymentState.
type State string

// StatePending is the first state of every subject.
const StatePending State = "pending"

// RolloutState is where a rollout, or a rollout environment, stands (R35).
type RolloutState State

// The states of a rollout. Awaiting approval is not one: it is derived from the journal (R38).
const (
	RolloutPending    RolloutState = "pending"
	RolloutInProgress RolloutState = "in_progress"
	RolloutPaused     RolloutState = "paused"
	RolloutCompleted  RolloutState = "completed"
	RolloutFailed     RolloutState = "failed"
	RolloutCancelled  RolloutState = "cancelled"
)

// DeploymentState is where a deployment stands (R36).
type DeploymentState State

// The states of a deployment. The last four are terminal: a deployment never tracks later health.
const (
	DeploymentPending   DeploymentState = "pending"
	DeploymentDeploying DeploymentState = "deploying"
	DeploymentHealthy   DeploymentState = "healthy"
	DeploymentDegraded  DeploymentState = "degraded"
	DeploymentFailed    DeploymentState = "failed"
	DeploymentCancelled DeploymentState = "cancelled"
)

// Words is the state for people.
func (s RolloutState) Words() string { return strings.ReplaceAll(string(s), "_", " ") }

// RolloutStatus is where a rollout, or a part of one, is for people: its state, or that it has been aborted, which the journal says.
type RolloutStatus string

// The statuses that are no states.
const (
	// StatusAborting means that it was aborted, and is being taken back.
	StatusAborting RolloutStatus = "aborting"
	// StatusAborted means that it has been taken back, and waits to be retried, rolled back or cancelled.
	StatusAborted RolloutStatus = "aborted"
)

// Terminal states absorb every later event (D16).
func (s RolloutState) Terminal() bool { return State(s).Terminal() }

// Terminal states absorb every later event (D16).
func (s DeploymentState) Terminal() bool { return State(s).Terminal() }

// Terminal states absorb every later event (D16). No name is terminal for one kind of subject and not for another.
func (s State) Terminal() bool {
	switch s {
	case State(RolloutCompleted), State(DeploymentHealthy), State(DeploymentDegraded), State(RolloutFailed), State(RolloutCancelled):
		return true
	default:
		return false
	}
}

// Verb is what happened, or was asked for, in a journal row (R40).
type Verb string

// The verbs. Those about approval record requests and leave the state as it is (D17, R41).
const (
	VerbCreate Verb = "create"
	// VerbPlan records whether the rollout stops at weights, and why.
	VerbPlan            Verb = "plan"
	VerbStart           Verb = "start"
	VerbPause           Verb = "pause"
	VerbResume          Verb = "resume"
	VerbRequestApproval Verb = "request_approval"
	VerbApprove         Verb = "approve"
	VerbReject          Verb = "reject"
	// VerbExpire closes a gate that was not answered in time; what that means is its rule's (D24).
	VerbExpire   Verb = "expire"
	VerbComplete Verb = "complete"
	VerbDegrade  Verb = "degrade"
	VerbFail     Verb = "fail"
	VerbCancel   Verb = "cancel"
	// VerbAbort and VerbRetry ask the workflow to take back what is under way, and to begin again (D18).
	VerbAbort Verb = "abort"
	VerbRetry Verb = "retry"
	// VerbReachGate and VerbPassGate are about a gate, and leave the state as it is, too: a gate of a deployment, or one of
	// the rollout, which reaches it when all its deployments have.
	VerbReachGate Verb = "reach_gate"
	VerbPassGate  Verb = "pass_gate"
	// VerbSkip is an environment of the pipeline that a rollout does not go to, or a pause or a job that it leaves out.
	VerbSkip Verb = "skip"
	// VerbBreakGlass passes approvals by break-glass: without a gate it is the claim, and with one the gate that is passed by it.
	VerbBreakGlass Verb = "break_glass"
	// VerbStopRollback calls off the automatic rollback of a rollout, mostly of one that is over.
	VerbStopRollback Verb = "stop_rollback"
	// VerbRequestPassage is a rollout that waits at a gate because it is held.
	VerbRequestPassage Verb = "request_passage"
	// VerbStopPassage is a requested passage that a freeze, a veto or a pin keeps closed.
	VerbStopPassage Verb = "stop_passage"
	// VerbBypassFreeze lets the rollout past freezes that are in force.
	VerbBypassFreeze Verb = "bypass_freeze"
	// VerbStartJob and VerbEndJob are an attempt at a job of the pipeline (D54); its place is named like a gate.
	VerbStartJob Verb = "start_job"
	VerbEndJob   Verb = "end_job"
	// VerbPauseWave and VerbResumeWave hold a wave of a fleet and those behind it (D61); the gate is that of the wave.
	VerbPauseWave  Verb = "pause_wave"
	VerbResumeWave Verb = "resume_wave"
)
