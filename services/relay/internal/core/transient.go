package core

import (
	"slices"
	"strings"
	"time"
)

// syncPause is how long to wait for Argo CD to recover after a sync of ours ended for a passing reason.
const syncPause = 5 * time.Second

// reason classifies why a sync, or one resource of it, has failed.
//
// Argo CD reports the end of a sync as text only, in the status of the Application: the errors that it met have no types there. This file
// is the one place where such a text becomes a type. Errors that the relay meets itself have types (internal/cluster/error.go).
type reason int

const (
	// reasonVerdict is any reason that is not listed, such as an invalid manifest or one that the cluster refuses. It is final.
	reasonVerdict reason = iota
	// reasonDenied means invalid credentials or missing rights. It is final, too.
	reasonDenied
	// reasonUnreachable means that the API server, the repository server or the forge could not be reached, or did not answer in time.
	reasonUnreachable
	// reasonOverloaded means that one of them had no capacity.
	reasonOverloaded
	// reasonRaced means that an object was changed by another actor meanwhile.
	reasonRaced
	// reasonStarting means that Argo CD was starting or stopping, and had not read its projects, or the state of the cluster, yet.
	reasonStarting
)

// passes reports whether the same sync may succeed later: the failure is not a verdict on what was synced (D11).
func (r reason) passes() bool { return r >= reasonUnreachable }

// signs lists the texts, in lower case, by which a reason is recognized: messages of Argo CD, of the Kubernetes client and of gRPC.
//
// The first row with a text that occurs decides. reasonDenied is first because Argo CD wraps it: invalid credentials are reported with
// the same "failed to get cluster info" as an unreachable cluster.
func signs() []sign {
	return []sign{
		{reasonDenied, []string{
			"forbidden", "unauthorized", "credentials", "x509: ", "permission denied", "can not be managed when in namespaced mode",
		}},
		{reasonUnreachable, []string{
			"connection refused", "connection reset", "broken pipe", "no route to host", "network is unreachable", "unexpected eof", ": eof",
			"i/o timeout", "tls handshake timeout", "context deadline exceeded", "context canceled", "client.timeout exceeded", "request canceled",
			"the server was unable to return a response in the time allotted", "etcdserver: ", "http2: ", "no such host", "server misbehaving",
			"code = unavailable", "code = deadlineexceeded", "code = canceled",
		}},
		{reasonOverloaded, []string{"the server is currently unable to handle the request", "too many requests", "code = resourceexhausted"}},
		{reasonRaced, []string{"the object has been modified"}},
		{reasonStarting, []string{
			"apiserver not ready", "apiserver is shutting down", "controller is shutting down",
			"referencing project", // of a controller that has not read its projects yet after a restart
			"error synchronizing cache state", "failed to get cluster info", "failed to get server version",
			"failed to initialize dynamic client", "failed to initialize discovery client", "unable to retrieve the complete list of server apis",
		}},
	}
}

// sign is a row of signs.
type sign struct {
	reason reason
	texts  []string
}

// reasonOf classifies a message.
func reasonOf(message string) reason {
	message = strings.ToLower(message)
	for _, s := range signs() {
		if slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(message, text) }) {
			return s.reason
		}
	}
	return reasonVerdict
}

// isPassing reports whether a finished operation ended for a passing reason: as Error with such a message, or as Failed where every failed
// resource has one.
func isPassing(state Object) bool {
	switch state.text("phase") {
	case "Error":
		r := reasonOf(state.text("message"))
		// After a restart of the API server Argo CD ends running syncs as Error because it could not compare, sometimes without a reason.
		return r.passes() || r == reasonVerdict && strings.Contains(strings.ToLower(state.text("message")), "failed to load live state")
	case "Failed":
		return failedInPassing(state)
	default:
		return false
	}
}

// failedInPassing checks the resources that were not applied: one that failed for a final reason makes the failure final.
func failedInPassing(state Object) bool {
	failed := 0
	for _, r := range state.list("syncResult", "resources") {
		m, _ := r.(map[string]any)
		resource := Object(m)
		if resource.text("hookPhase") == "Failed" && resource.text("hookType") != "" {
			return false // a hook that ran and failed is a verdict
		}
		if resource.text("status") != "SyncFailed" {
			continue
		}
		failed++
		if !reasonOf(resource.text("message")).passes() {
			return false
		}
	}
	return failed > 0
}

// isStray reports whether our own operation has succeeded at another revision than requested. That happens if Argo CD is restarted during
// the operation: the new process resumes it with the revision of the previous operation, which is still in the status. It is not a success
// (D11), and another operation for the right revision is started.
func isStray(want SyncRequest, state Object) bool {
	return state.text("phase") == "Succeeded" && state.text("syncResult", "revision") != want.Revision
}

// again handles our own operation that ended for a passing reason, or astray: it starts another one, after a pause. The call's deadline
// ends this, with the last reason in its message.
func again(want SyncRequest, observed, state Object) Decision {
	finished, err := time.Parse(time.RFC3339, state.text("finishedAt"))
	// A clock that differs from the cluster's must not delay the call: only a time just past counts.
	if since := want.Now.Sub(finished); err == nil && since >= 0 && since < syncPause {
		return wait("Argo CD to recover: its sync to %s ended as %s at %q: %s",
			want.Revision, state.text("phase"), state.text("syncResult", "revision"), failure(state))
	}
	return Decision{Action: Patch, Body: startOperation(want, observed)}
}
