package core

import (
	"slices"
)

// Machine is a state machine as a table: from a state, by a verb, to a state. Requests for approval and their answers are
// not in it: they change no state (D17).
type Machine map[State]map[Verb]State

// rolloutMachine is the life cycle of rollouts and of rollout environments (R35).
func rolloutMachine() Machine {
	const (
		pending, inProgress, paused  = State(RolloutPending), State(RolloutInProgress), State(RolloutPaused)
		completed, failed, cancelled = State(RolloutCompleted), State(RolloutFailed), State(RolloutCancelled)
	)
	return Machine{
		pending:    {VerbStart: inProgress, VerbFail: failed, VerbCancel: cancelled},
		inProgress: {VerbPause: paused, VerbComplete: completed, VerbFail: failed, VerbCancel: cancelled},
		paused:     {VerbResume: inProgress, VerbFail: failed, VerbCancel: cancelled},
	}
}

// deploymentMachine is the life cycle of deployments (R36).
func deploymentMachine() Machine {
	const (
		pending, deploying = State(DeploymentPending), State(DeploymentDeploying)
		healthy, degraded  = State(DeploymentHealthy), State(DeploymentDegraded)
		failed, cancelled  = State(DeploymentFailed), State(DeploymentCancelled)
	)
	return Machine{
		pending:   {VerbStart: deploying, VerbFail: failed, VerbCancel: cancelled},
		deploying: {VerbComplete: healthy, VerbDegrade: degraded, VerbFail: failed, VerbCancel: cancelled},
	}
}

// MachineOf is the life cycle of a kind of subject.
func MachineOf(kind SubjectKind) Machine {
	if kind == SubjectDeployment {
		return deploymentMachine()
	}
	return rolloutMachine()
}

// Move is one change of state.
type Move struct {
	From, To State
	Verb     Verb
}

// Path is how a verb is applied in a state: mostly one move; two when the verb implies one that has not been seen (healthy
// before started implies start, completed while paused implies resume); none when the state absorbs the verb, because it
// is terminal or there already (D16).
func (m Machine) Path(from State, verb Verb) []Move {
	if to, ok := m[from][verb]; ok {
		return []Move{{from, to, verb}}
	}
	// No start follows from a resume in the tables, so a report that work below a paused rollout continues does not lift
	// its pause. Only an end does: complete, by way of resume.
	for _, implied := range []Verb{VerbStart, VerbResume} {
		via, ok := m[from][implied]
		if !ok {
			continue
		}
		if to, ok := m[via][verb]; ok && to != from {
			return []Move{{from, via, implied}, {via, to, verb}}
		}
	}
	return nil
}

// Legal reports whether a row is a request, which changes no state (D17), or a move of the life cycle.
func Legal(row Transition) bool {
	requests := []Verb{
		VerbRequestApproval, VerbApprove, VerbReject, VerbExpire, VerbReachGate, VerbPassGate, VerbRequestPassage, VerbAbort, VerbRetry,
		VerbPause, VerbResume,
		VerbPlan, VerbSkip, VerbBreakGlass, VerbStopRollback, VerbStopPassage, VerbBypassFreeze, VerbStartJob, VerbEndJob,
		VerbPauseWave, VerbResumeWave,
	}
	if row.From == row.To {
		return slices.Contains(requests, row.Verb)
	}
	to, ok := MachineOf(row.Subject.Kind)[row.From][row.Verb]
	return ok && to == row.To
}
