package core

import (
	"strings"
	"time"
)

// syncPause is how long to wait for Argo CD to recover after a sync of ours ended for a passing reason.
const syncPause = 5 * time.Second

// passing lists messages of Argo CD and the Kubernetes client about something that was unreachable. A sync that ended with one of them is
// not a verdict on what was synced (D11): the same sync may succeed later. Everything else, such as an invalid manifest or one that the
// cluster refuses, is final.
//
// They are texts because Argo CD reports the end of a sync as text, in the status of the Application: there, the errors that it met have no
// types. Errors that the relay meets itself are classified by their types (internal/cluster/error.go).
//
// After a restart of the API server Argo CD ends the running syncs as Error, because it could not compare ("Failed to load live state: …");
// failures of the repository server are gRPC codes inside "Failed to load target state".
func passing() []string {
	return []string{
		"connection refused", "connection reset", "broken pipe", "no route to host", "network is unreachable", "unexpected eof", ": eof",
		"i/o timeout", "tls handshake timeout", "context deadline exceeded", "context canceled", "client.timeout exceeded", "request canceled",
		"the server is currently unable to handle the request", "the server was unable to return a response in the time allotted",
		"apiserver not ready", "apiserver is shutting down", "too many requests", "etcdserver: ", "http2: ", "no such host", "server misbehaving",
		"code = unavailable", "code = deadlineexceeded", "code = canceled", "code = resourceexhausted",
		"the object has been modified", "controller is shutting down",
		"referencing project", // of a controller that has not read its projects yet after a restart
		"error synchronizing cache state", "failed to get cluster info", "failed to get server version",
		"failed to initialize dynamic client", "failed to initialize discovery client", "unable to retrieve the complete list of server apis",
	}
}

// settled lists messages that make a failure final although they occur inside one of the above: invalid credentials are reported with the
// same "failed to get cluster info" as an unreachable cluster.
func settled() []string {
	return []string{"forbidden", "unauthorized", "credentials", "x509: ", "permission denied", "can not be managed when in namespaced mode"}
}

// isPassing reports whether a finished operation ended because something was unreachable: an Error with such a message, or a failed
// comparison, or a Failed of which every failed resource has such a message.
func isPassing(state Object) bool {
	switch state.text("phase") {
	case "Error":
		message := strings.ToLower(state.text("message"))
		return !contains(message, settled()) && (contains(message, passing()) || strings.Contains(message, "failed to load live state"))
	case "Failed":
		return failedInPassing(state)
	default:
		return false
	}
}

// failedInPassing checks the resources that were not applied: one that the cluster has refused makes the failure final.
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
		message := strings.ToLower(resource.text("message"))
		if contains(message, settled()) || !contains(message, passing()) {
			return false
		}
	}
	return failed > 0
}

func contains(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
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
