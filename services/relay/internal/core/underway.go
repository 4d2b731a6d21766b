package core

import (
	"encoding/json"
	"strings"
)

// The phases of an unfinished sync, beside those of Argo CD.
const (
	phasePending     = "Pending"
	phaseTerminating = "Terminating"
)

// underWay returns the answer about a sync that has not ended. Argo CD ends the sync of an Application with hooks or waves only once its
// Rollouts are healthy, which requires that they are promoted: the caller that promotes them cannot wait for the sync first.
func underWay(want SyncRequest, observed Object, waiting Decision) Decision {
	state := observed.object("status", "operationState")
	value := map[string]any{"revision": want.Revision, "phase": phasePending, "message": waiting.Waiting, "rollouts": []any{}}
	if isOurs(state.object("operation"), want) {
		value["rollouts"] = appliedRollouts(want, state)
		if !isFinished(state.text("phase")) {
			value["phase"] = state.text("phase")
			if message := state.text("message"); message != "" {
				value["message"] = message
			}
		}
	}
	return Decision{Action: Done, Value: value}
}

// appliedRollouts returns the Rollouts that the sync has applied so far. A result at another revision, or with other parameters, is that of
// the previous operation: Argo CD leaves it there until it has a new one.
func appliedRollouts(want SyncRequest, state Object) []any {
	applied := []any{}
	if state.text("syncResult", "revision") != want.Revision || !want.Overrides.hold(state.object("syncResult", "source")) {
		return applied
	}
	for _, r := range state.list("syncResult", "resources") {
		m, _ := r.(map[string]any)
		resource := Object(m)
		if resource.text("kind") == rolloutKind.Kind && resource.text("group") == "argoproj.io" && resource.text("status") == "Synced" {
			applied = append(applied, map[string]any{"namespace": resource.text("namespace"), "name": resource.text("name")})
		}
	}
	return applied
}

// isLockstep reports whether the operation in progress was started by a call of Lockstep's.
func isLockstep(pending, state Object, finished bool) bool {
	operation := pending
	if operation == nil && !finished {
		operation = state.object("operation")
	}
	return strings.HasPrefix(operation.text("initiatedBy", "username"), username(""))
}

// supersede makes room for our operation: one that Argo CD has not started is replaced, a running one is terminated first.
func supersede(want SyncRequest, observed, pending, state Object) Decision {
	if isFinished(state.text("phase")) || state == nil {
		return Decision{Action: Patch, Body: startOperation(want, observed)}
	}
	return terminate(observed, pending, state)
}

// terminate asks Argo CD to end the running operation, in the way of Argo CD's own command: running hooks are deleted, and the operation
// ends as failed.
func terminate(observed, pending, state Object) Decision {
	if state.text("phase") == phaseTerminating {
		return wait("the sync started by %s to end, which is being terminated", initiator(pending, state))
	}
	return Decision{Action: Patch, Body: Object{
		"metadata": observed.precondition(),
		"status":   map[string]any{"operationState": map[string]any{"phase": phaseTerminating}},
	}}
}

// TerminateRequest holds the arguments of argo.terminate.
type TerminateRequest struct {
	Ref Ref
	// Operation is the id that the sync was started with.
	Operation string
}

// parseTerminate parses the arguments of argo.terminate.
func parseTerminate(raw json.RawMessage) (TerminateRequest, error) {
	a, err := readArgs(raw)
	if err != nil {
		return TerminateRequest{}, err
	}
	a.known["agent_id"] = true
	want := TerminateRequest{Ref: Ref{Kind: applicationKind, Namespace: a.name("app_namespace", true), Name: a.name("app_name", true)}}
	if want.Operation = a.operation(""); want.Operation == "" {
		a.problem("operation", "missing, expected the id that the sync was started with")
	}
	a.rest()
	return want, a.err()
}

// NextTerminate decides how to end a sync of ours, and no other: a queued one is removed, a running one is terminated and waited for,
// because Argo CD may still apply something until it has ended. The answer is its final phase.
func NextTerminate(want TerminateRequest, observed Object) (Decision, error) {
	state, pending := observed.object("status", "operationState"), observed.object("operation")
	sync := SyncRequest{Operation: want.Operation}
	begun := isOurs(state.object("operation"), sync)
	switch {
	case begun && !isFinished(state.text("phase")):
		return terminate(observed, pending, state), nil
	case pending != nil && isOurs(pending, sync):
		return Decision{Action: Patch, Body: Object{"metadata": observed.precondition(), "operation": nil}}, nil
	case begun:
		return Decision{Action: Done, Value: map[string]any{"phase": state.text("phase")}}, nil
	default:
		return Decision{Action: Done, Value: map[string]any{"phase": "None"}}, nil
	}
}
