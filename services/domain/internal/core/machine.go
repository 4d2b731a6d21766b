package core

import (
	"slices"
)

// Machine is a state machine as a table: from a state, by a verb, to a state. Requests for approval and their answers are
// not in it: they change no state (D17).
type Machine map[int16]map[Verb]int16

// rolloutMachine is the life cycle of rollouts and of rollout environments (R35).
func rolloutMachine() Machine {
	const (
		pending, inProgress, paused  = int16(RolloutPending), int16(RolloutInProgress), int16(RolloutPaused)
		completed, failed, cancelled = int16(RolloutCompleted), int16(RolloutFailed), int16(RolloutCancelled)
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
		pending, deploying = int16(DeploymentPending), int16(DeploymentDeploying)
		healthy, degraded  = int16(DeploymentHealthy), int16(DeploymentDegraded)
		failed, cancelled  = int16(DeploymentFailed), int16(DeploymentCancelled)
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
	From, To int16
	Verb     Verb
}

// Path is how a verb is applied in a state: mostly one move; two when the verb implies one that has not been seen (healthy
// before started implies start, completed while paused implies resume); none when the state absorbs the verb, because it
// is terminal or there already (D16).
func (m Machine) Path(from int16, verb Verb) []Move {
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

// Legal is whether a row is a request, which changes no state (D17), or a move of the life cycle.
func Legal(row Transition) bool {
	requests := []Verb{
		VerbRequestApproval, VerbApprove, VerbReject, VerbExpire, VerbReachGate, VerbPassGate, VerbRequestPassage, VerbAbort, VerbRetry,
		VerbPause, VerbResume,
		VerbSkip, VerbBreakGlass, VerbStopRollback, VerbStopPassage, VerbBypassFreeze, VerbStartJob, VerbEndJob,
	}
	if *row.From == row.To {
		return slices.Contains(requests, row.Verb)
	}
	to, ok := MachineOf(row.Subject.Kind)[*row.From][row.Verb]
	return ok && to == row.To
}

// Terminal is whether a subject of a kind has ended in a state.
func Terminal(kind SubjectKind, state int16) bool {
	if kind == SubjectDeployment {
		return DeploymentState(state).Terminal()
	}
	return RolloutState(state).Terminal()
}
