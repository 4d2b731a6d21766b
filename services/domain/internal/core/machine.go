package core

// machine is a state machine as a table: from a state, by a verb, to a state. Requests for approval and their answers are
// not in it: they change no state (D17).
type machine map[int16]map[Verb]int16

// rolloutMachine is the life cycle of rollouts and of rollout environments (R35).
func rolloutMachine() machine {
	const (
		pending, inProgress, paused  = int16(RolloutPending), int16(RolloutInProgress), int16(RolloutPaused)
		completed, failed, cancelled = int16(RolloutCompleted), int16(RolloutFailed), int16(RolloutCancelled)
	)
	return machine{
		pending:    {VerbStart: inProgress, VerbFail: failed, VerbCancel: cancelled},
		inProgress: {VerbPause: paused, VerbComplete: completed, VerbFail: failed, VerbCancel: cancelled},
		paused:     {VerbResume: inProgress, VerbFail: failed, VerbCancel: cancelled},
	}
}

// deploymentMachine is the life cycle of deployments (R36).
func deploymentMachine() machine {
	const (
		pending, deploying = int16(DeploymentPending), int16(DeploymentDeploying)
		healthy, degraded  = int16(DeploymentHealthy), int16(DeploymentDegraded)
		failed, cancelled  = int16(DeploymentFailed), int16(DeploymentCancelled)
	)
	return machine{
		pending:   {VerbStart: deploying, VerbFail: failed, VerbCancel: cancelled},
		deploying: {VerbComplete: healthy, VerbDegrade: degraded, VerbFail: failed, VerbCancel: cancelled},
	}
}

// machineOf is the life cycle of a kind of subject.
func machineOf(kind SubjectKind) machine {
	if kind == SubjectDeployment {
		return deploymentMachine()
	}
	return rolloutMachine()
}

// move is one change of state.
type move struct {
	from, to int16
	verb     Verb
}

// path is how a verb is applied in a state: mostly one move; two when the verb implies one that has not been seen (healthy
// before started implies start, completed while paused implies resume); none when the state absorbs the verb, because it
// is terminal or there already (D16).
func (m machine) path(from int16, verb Verb) []move {
	if to, ok := m[from][verb]; ok {
		return []move{{from, to, verb}}
	}
	// No start follows from a resume in the tables, so the word that work goes on below a paused rollout does not lift
	// its pause. Only an end does: complete, by way of resume.
	for _, implied := range []Verb{VerbStart, VerbResume} {
		via, ok := m[from][implied]
		if !ok {
			continue
		}
		if to, ok := m[via][verb]; ok && to != from {
			return []move{{from, via, implied}, {via, to, verb}}
		}
	}
	return nil
}
