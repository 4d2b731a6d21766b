package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
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

// RolloutStatus is where a rollout, or a part of one, is for people: its state, or that it is planned, or has
// been aborted, which the journal says.
type RolloutStatus string

// The statuses that are no states.
const (
	// StatusPlanned means that it has its plan, and has not started (R4-01).
	StatusPlanned RolloutStatus = "planned"
	// StatusAborting means that it was aborted, and is being taken back.
	StatusAborting RolloutStatus = "aborting"
	// StatusAborted means that it has been taken back, and waits to be retried, rolled back or cancelled.
	StatusAborted RolloutStatus = "aborted"
)

// Status is its state for people.
func (r Rollout) Status() RolloutStatus {
	switch {
	case r.Aborted && r.State == RolloutPaused:
		return StatusAborted
	case r.Aborted && !r.State.Terminal():
		return StatusAborting
	case r.State == RolloutPending && r.Plan.Strategy != "":
		return StatusPlanned
	default:
		return RolloutStatus(r.State)
	}
}

// StatusWithin is the status of one of its environments, which has a state like its own: what was under way is aborted with it.
func (r Rollout) StatusWithin(e RolloutState) RolloutStatus {
	if r.Aborted && !r.State.Terminal() && (e == RolloutInProgress || e == RolloutPaused) {
		return r.Status()
	}
	return RolloutStatus(e)
}

// StatusOf is the status of one of its deployments.
func (r Rollout) StatusOf(d DeploymentState) RolloutStatus {
	if r.Aborted && !r.State.Terminal() && d == DeploymentDeploying {
		return r.Status()
	}
	return RolloutStatus(d)
}

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

// QueuedState is how a rollout that was put into the queue of its application stands.
type QueuedState string

// The states. A rollout that was cancelled in the queue was dropped by a member.
const (
	QueuedPending QueuedState = "pending"
	QueuedStarted QueuedState = "started"
	QueuedDropped QueuedState = "dropped"
)

// ReplacedInQueue is why a rollout left the queue when another one was asked for.
const ReplacedInQueue = "another rollout was asked for meanwhile, and took its place in the queue"

// QueueWait is what a rollout in the queue waits for.
type QueueWait string

// What it may wait for. The end of the active rollout comes first: until then, nothing is compared for it.
const (
	WaitsForRollout    QueueWait = "rollout"
	WaitsForComparison QueueWait = "comparison"
	// WaitsForTurn is one that waits for nothing any more: it begins in a moment.
	WaitsForTurn QueueWait = "turn"
)

// QueuedRollout is a rollout that waits before it begins: for the active one to be over, or for the drivers to compare its manifests.
type QueuedRollout struct {
	ID, ApplicationID, VersionSetID int64
	Requester                       Principal
	Reason                          string
	RequestedAt                     time.Time
	// Environments is where it goes, by name; empty for the whole pipeline.
	Environments []string
	// TriggerID is the trigger that asked for it, and Cause what made it; zero values for none.
	TriggerID int64
	Cause     string
	// Strategy is what the requester has chosen.
	Strategy planner.Choice
	// Inputs are what the requester has given, an object of JSON.
	Inputs json.RawMessage
	// ComparisonID is what its drivers were asked to compare first, and ComparesUntil how long it waits for that; zero values for nothing.
	ComparisonID  int64
	ComparesUntil *time.Time
	State         QueuedState
	// MadeRolloutID or Outcome is what came of it, and EndedAt when; zero values while it waits.
	MadeRolloutID int64
	Outcome       string
	EndedAt       *time.Time
	// CancelledBy is the member who has taken it out of the queue; the zero value for nobody.
	CancelledBy Principal
}

// Cancelled reports whether a member has taken it out of the queue.
func (q QueuedRollout) Cancelled() bool { return q.CancelledBy.Type != "" }

// WaitsFor is what it waits for, and that in one sentence, while a rollout of its application is active; its ID is 0 for none.
func (q QueuedRollout) WaitsFor(active Rollout) (QueueWait, string) {
	switch {
	case active.ID != 0:
		return WaitsForRollout, fmt.Sprintf("it waits for the end of rollout_%d, which is %s", active.ID, active.State.Words())
	case q.ComparesUntil != nil:
		return WaitsForComparison, "it waits for the drivers to compare its manifests"
	default:
		return WaitsForTurn, "it is next, and begins in a moment"
	}
}

// MayCancel is nil when an actor may take it out of the queue. targets are those of its application.
func (q QueuedRollout) MayCancel(a Actor, targets []Target) error {
	if len(q.Environments) > 0 {
		var own []Target
		for _, t := range targets {
			if slices.Contains(q.Environments, t.Environment) {
				own = append(own, t)
			}
		}
		if len(own) > 0 { // nothing is left of its environments where the pipeline has changed
			targets = own
		}
	}
	if err := a.MayIn(ActionCancelQueuedRollout, targets...); err != nil {
		return err
	}
	switch {
	case q.State == QueuedStarted:
		return fault.New(fault.Refused, "it waits no longer: it has begun as rollout_%d, which can be cancelled", q.MadeRolloutID)
	case q.State == QueuedDropped && !q.Cancelled():
		return fault.New(fault.Refused, "it waits no longer, and does not begin: %s", q.Outcome)
	}
	return nil
}
