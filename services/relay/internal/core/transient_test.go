package core

import (
	"strings"
	"testing"
)

// The messages are Argo CD's own (D11).
func TestWhichFailuresOfASyncAreRetried(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, state string
		want        bool
	}{
		{"success", `{"phase":"Succeeded","message":"successfully synced"}`, false},
		{"still running", `{"phase":"Running","message":"connection refused"}`, false},
		{"API server restarted while comparing", `{"phase":"Error","message":"ComparisonError: Failed to load live state: failed to get cluster info for \"https://kubernetes.default.svc\": error synchronizing cache state : Get \"https://10.96.0.1/version\": dial tcp 10.96.0.1:443: connect: connection refused"}`, true},
		{
			"comparing failed without a reason", `{"phase":"Error","message":"ComparisonError: Failed to load live state: the cache is not ready"}`,
			true,
		},
		{"repository server restarted", `{"phase":"Error","message":"ComparisonError: Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial tcp 10.0.0.7:8081: connect: connection refused\""}`, true},
		{"forge did not answer in time", `{"phase":"Error","message":"ComparisonError: Failed to load target state: rpc error: code = Unknown desc = failed to fetch: Get \"https://git/shop.git\": context deadline exceeded"}`, true},
		{"manifest cannot be made", `{"phase":"Error","message":"ComparisonError: Failed to load target state: rpc error: code = Unknown desc = Manifest generation error (cached): kustomize build failed"}`, false},
		{"revision does not exist", `{"phase":"Error","message":"ComparisonError: Failed to load target state: rpc error: code = Unknown desc = Unable to resolve '111' to a commit SHA"}`, false},
		{"wrong credentials of the cluster", `{"phase":"Error","message":"ComparisonError: Failed to load live state: failed to get cluster info: failed to get server version: the server has asked for the client to provide credentials"}`, false},
		{"no rights", `{"phase":"Error","message":"ComparisonError: Failed to load live state: rollouts.argoproj.io is forbidden"}`, false},
		{
			"namespaced Argo CD, object of the cluster",
			`{"phase":"Error","message":"ComparisonError: Failed to load live state: cluster level ClusterRole \"x\" can not be managed when in namespaced mode"}`, false,
		},
		{
			"controller restarted, and its projects not read yet",
			`{"phase":"Error","message":"InvalidSpecError: Application referencing project default which does not exist"}`, true,
		},
		{"project does not permit it", `{"phase":"Error","message":"InvalidSpecError: application destination is not permitted in project 'default'"}`, false},
		{"applied while the API server restarted", `{"phase":"Failed","message":"one or more objects failed to apply","syncResult":{"resources":[{"status":"Synced"},{"status":"SyncFailed","message":"Patch \"https://10.96.0.1\": dial tcp: connect: connection refused"}]}}`, true},
		{"one of two was refused", `{"phase":"Failed","message":"one or more objects failed to apply","syncResult":{"resources":[{"status":"SyncFailed","message":"connection refused"},{"status":"SyncFailed","message":"spec.replicas: Invalid value"}]}}`, false},
		{"a hook failed", `{"phase":"Failed","message":"one or more synchronization tasks completed unsuccessfully","syncResult":{"resources":[{"hookType":"PreSync","hookPhase":"Failed","message":"Job has reached the specified backoff limit: connection refused"}]}}`, false},
		{"failed, nobody says which", `{"phase":"Failed","message":"connection refused"}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := isPassing(object(t, tc.state)); got != tc.want {
				t.Errorf("tried again: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestReasonsOfFailures(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]reason{
		`spec.replicas: Invalid value: -1`:                                            reasonVerdict,
		`rollouts.argoproj.io is forbidden`:                                           reasonDenied,
		`failed to get cluster info: x509: certificate signed by unknown authority`:   reasonDenied, // not reasonStarting
		`dial tcp 10.96.0.1:443: connect: Connection refused`:                         reasonUnreachable,
		`rpc error: code = ResourceExhausted desc = trying to send message too large`: reasonOverloaded,
		`the object has been modified; please apply your changes to the latest one`:   reasonRaced,
		`application referencing project default which does not exist`:                reasonStarting,
	} {
		if got := reasonOf(message); got != want {
			t.Errorf("%s: found reason %d, expected %d", message, got, want)
		}
	}
	for _, s := range signs() {
		for _, text := range s.texts {
			if text != strings.ToLower(text) || reasonOf(text) != s.reason {
				t.Errorf("%q: expected lower case, and no earlier row that decides it", text)
			}
		}
	}
}
