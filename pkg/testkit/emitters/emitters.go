// Package emitters is the table of who may emit what (D47), as tests expect it, and the walk of every place where events enter: catalogue
// by emitter. It is written apart from the catalogue, so that neither changes without the other: a type that is missing here fails each
// test of a place.
package emitters

import (
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// table returns who may emit each type.
func table() map[string][]event.Emitter {
	program, domain := []event.Emitter{event.EmitterProgram}, []event.Emitter{event.EmitterDomain}
	engine, relay := []event.Emitter{event.EmitterEngine}, []event.Emitter{event.EmitterRelay}
	observer := []event.Emitter{event.EmitterObserver}
	registry := []event.Emitter{event.EmitterRegistry, event.EmitterCaller}
	return map[string][]event.Emitter{
		// What was published is reported by anybody with a token, and emitted by the registry service.
		event.TypeArtifactPublished:    registry,
		event.TypeArtifactDeleted:      registry,
		event.TypeCommitStatusReported: {event.EmitterRegistry},
		event.TypePullRequestReported:  {event.EmitterRegistry},
		event.TypePullRequestCommented: {event.EmitterRegistry},
		event.TypePullRequestReviewed:  {event.EmitterRegistry},

		event.TypeFunctionCalled:           engine,
		event.TypeFunctionCompleted:        relay,
		event.TypeArgoRolloutStatusChanged: relay,
		event.TypeObjectChanged:            relay,
		event.TypeWatchesWanted:            engine,
		event.TypeAgentHeartbeat:           relay,

		// Answers to programs, which must be nobody else's.
		event.TypeRolloutPassageGranted: domain,
		event.TypeRolloutAbortRequested: domain,
		event.TypeRolloutRetryRequested: domain,
		event.TypeApprovalResolved:      domain,
		event.TypeCheckNudged:           domain,
		event.TypeDeploymentNudged:      domain,
		// What may be changed where, which the engine enforces.
		event.TypeRolloutPassagesRevoked:   domain,
		event.TypeEnvironmentPlacesChanged: domain,
		event.TypePolicySetChanged:         domain,
		event.TypeCredentialChanged:        domain,
		event.TypeCallAnswered:             domain,
		event.TypeCallDecided:              engine,

		event.TypeRolloutStarted:                 program,
		event.TypeRolloutGateReached:             program,
		event.TypeRolloutEnvironmentJobStarted:   program,
		event.TypeRolloutEnvironmentJobEnded:     program,
		event.TypeRolloutEnvironmentTargetEnded:  program,
		event.TypeRolloutPassageRequested:        program,
		event.TypeRolloutAborted:                 program,
		event.TypeRolloutPreviewed:               program,
		event.TypeCheckReported:                  program,
		event.TypePullRequestRead:                program,
		event.TypeRolloutHealthy:                 program,
		event.TypeRolloutFailed:                  program,
		event.TypeRolloutEnvironmentStarted:      program,
		event.TypeRolloutEnvironmentHealthy:      program,
		event.TypeRolloutEnvironmentFailed:       program,
		event.TypeDeploymentStarted:              program,
		event.TypeDeploymentCommitted:            program,
		event.TypeDeploymentSubmitted:            program,
		event.TypeDeploymentProposed:             engine,
		event.TypeDeploymentGateReached:          program,
		event.TypeDeploymentAdvance:              program,
		event.TypeDeploymentHealthy:              program,
		event.TypeDeploymentDegraded:             program,
		event.TypeDeploymentFailed:               program,
		event.TypeEnvironmentReady:               program,
		event.TypeEnvironmentNotReady:            program,
		event.TypeApplicationEnvironmentReady:    program,
		event.TypeApplicationEnvironmentNotReady: program,
		event.TypeApprovalRequested:              program,

		event.TypeServiceHealthObserved:            observer,
		event.TypeApplicationEnvironmentReconciled: observer,
		event.TypeEnvironmentContactChanged:        observer,

		event.TypeWorkflowCompleted: engine,
		event.TypeWorkflowFailed:    engine,
		event.TypeWorkflowCancelled: engine,
	}
}

// Walk calls try with every type of the catalogue and every emitter, and whether the emitter may emit the type. Paths narrows it; none is
// all of them. A type without a row in the table fails the test, and so does a row without a type.
func Walk(t *testing.T, try func(d event.Definition, by event.Emitter, may bool), paths ...event.Path) {
	t.Helper()
	expected := table()
	for _, d := range event.Catalogue() {
		row, known := expected[d.Type]
		delete(expected, d.Type)
		if !known {
			t.Errorf("%s: who may emit it has no row in pkg/testkit/emitters, found %v in the catalogue", d.Type, d.EmittedBy)
			continue
		}
		if len(paths) > 0 && !slices.Contains(paths, d.Path) {
			continue
		}
		for _, by := range event.Emitters() {
			try(d, by, slices.Contains(row, by))
		}
	}
	for eventType := range expected {
		t.Errorf("%s: found a row in pkg/testkit/emitters, but no type of the catalogue", eventType)
	}
}

// Source is the source of an emitter's events.
func Source(by event.Emitter) string {
	switch by {
	case event.EmitterDomain:
		return event.SourceDomain
	case event.EmitterProgram, event.EmitterEngine, event.EmitterObserver:
		return event.SourceWorkflow
	case event.EmitterRegistry:
		return event.SourceRegistry
	case event.EmitterRelay:
		return event.AgentSource(42)
	case event.EmitterCaller:
		return "/ci"
	default:
		panic("emitters: not an emitter: " + string(by))
	}
}

// SourceOf returns a source that an event of the type may have on the bus; "/test" for types that the catalogue does not have.
func SourceOf(eventType string) string {
	if d, known := event.Lookup(eventType); known {
		return Source(d.EmittedBy[0])
	}
	return "/test"
}
