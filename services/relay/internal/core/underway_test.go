package core

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// operationOf returns the JSON of an operation of ours.
func operationOf(id string) string {
	return `{"initiatedBy":{"username":"lockstep:` + id + `"},"info":[{"name":"lockstep.dev/call","value":"` + id +
		`"}],"sync":{"revision":"` + revision + `"}}`
}

// stateOf returns the JSON of the operationState of an operation of ours.
func stateOf(id, phase, more string) string {
	return `"status":{"operationState":{"phase":"` + phase + `","operation":` + operationOf(id) + more + `}}`
}

// A call that starts a sync returns while the sync is running, whatever that waits for: the Rollout that Argo CD waits for becomes healthy
// only when it is promoted.
func TestStartingASyncDoesNotWaitForItsEnd(t *testing.T) {
	t.Parallel()
	const rollout = `{"group":"argoproj.io","kind":"Rollout","namespace":"shop","name":"api","status":"Synced"}`
	result := func(at string) string { return `,"syncResult":{"revision":"` + at + `","resources":[` + rollout + `]}` }
	applied := []any{map[string]any{"namespace": "shop", "name": "api"}}
	for _, tc := range []struct {
		name, app, phase, message string
		rollouts                  []any
	}{
		{"queued", `{` + spec + `,"operation":` + operationOf(callID) + `}`, "Pending", "its sync to " + revision, []any{}},
		{
			"begun", `{` + spec + `,"operation":` + operationOf(callID) + `,` + stateOf(callID, "Running", "") + `}`, "Running",
			"its sync to " + revision,
			[]any{},
		},
		{
			"waits for a hook", `{` + spec + `,` + stateOf(callID, "Running", `,"message":"waiting for completion of hook batch/Job/migrate"`) + `}`,
			"Running", "waiting for completion of hook batch/Job/migrate",
			[]any{},
		},
		{
			"has applied the Rollout", `{` + spec + `,` +
				stateOf(callID, "Running", `,"message":"waiting for healthy state of argoproj.io/Rollout/api"`+result(revision)) + `}`,
			"Running", "waiting for healthy state of argoproj.io/Rollout/api", applied,
		},
		{
			"shows the result of the operation before", `{` + spec + `,` + stateOf(callID, "Running", result(older)) + `}`, "Running",
			"its sync to",
			[]any{},
		},
		{
			"another actor's runs", `{` + spec + `,"operation":{"initiatedBy":{"username":"ann"}}}`, "Pending",
			"another sync of it, started by ann",
			[]any{},
		},
		{
			"another of Lockstep's runs", `{` + spec + `,` + stateOf("exec-0/0.1", "Running", "") + `}`, "Pending",
			"another sync of it, started by lockstep:exec-0/0.1",
			[]any{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := syncRequest()
			want.Start = true
			got, err := NextSync(want, object(t, tc.app))
			if err != nil || got.Action != Done {
				t.Fatalf("decision %+v, error %v; want an answer", got, err)
			}
			if message, _ := got.Value["message"].(string); got.Value["phase"] != tc.phase || !strings.Contains(message, tc.message) {
				t.Errorf("answer %v, want phase %s and message %q", got.Value, tc.phase, tc.message)
			}
			if diff := cmp.Diff(tc.rollouts, got.Value["rollouts"]); diff != "" {
				t.Errorf("rollouts (-want +got):\n%s", diff)
			}
		})
	}
}

// A sync of an earlier rollout that waits for a Rollout that nobody promotes would otherwise run until the deadline.
func TestAnObsoleteSyncOfOursIsSuperseded(t *testing.T) {
	t.Parallel()
	before := "exec-0/0.1"
	terminating := Object{
		"metadata": map[string]any{"resourceVersion": "4"},
		"status":   map[string]any{"operationState": map[string]any{"phase": "Terminating"}},
	}
	meta := `"metadata":{"resourceVersion":"4"},`
	for _, tc := range []struct {
		name, app string
		want      Action
		body      Object
	}{
		{"it runs", `{` + meta + spec + `,"operation":` + operationOf(before) + `,` + stateOf(before, "Running", "") + `}`, Patch, terminating},
		{
			"it is being terminated", `{` + meta + spec + `,"operation":` + operationOf(before) + `,` + stateOf(before, "Terminating", "") + `}`,
			Wait, nil,
		},
		{"it is queued", `{` + meta + spec + `,"operation":` + operationOf(before) + `}`, Patch, nil},
		{"another actor's runs", `{` + meta + spec + `,"operation":{"initiatedBy":{"username":"ann"}}}`, Wait, nil},
		{
			"another actor's is queued behind the record of ours",
			`{` + meta + spec + `,"operation":{"initiatedBy":{"username":"ann"}},` + stateOf(before, "Failed", "") + `}`, Wait, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := syncRequest()
			want.Supersede = true
			got, err := NextSync(want, object(t, tc.app))
			if err != nil || got.Action != tc.want {
				t.Fatalf("decision %+v, error %v; want action %d", got, err, tc.want)
			}
			if diff := cmp.Diff(tc.body, got.Body); tc.body != nil && diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextTerminate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, app string
		want      Action
		phase     any
		body      string
	}{
		{"absent", "", Done, "None", ""},
		{
			"it runs", `{"metadata":{"resourceVersion":"4"},"operation":` + operationOf(callID) + `,` + stateOf(callID, "Running", "") + `}`, Patch,
			nil, `{"metadata":{"resourceVersion":"4"},"status":{"operationState":{"phase":"Terminating"}}}`,
		},
		{"it is being terminated", `{` + stateOf(callID, "Terminating", "") + `}`, Wait, nil, ""},
		{
			"it is queued", `{"metadata":{"resourceVersion":"4"},"operation":` + operationOf(callID) + `}`, Patch, nil,
			`{"metadata":{"resourceVersion":"4"},"operation":null}`,
		},
		{"it has ended", `{` + stateOf(callID, "Succeeded", "") + `}`, Done, "Succeeded", ""},
		{
			"another one of Lockstep's runs", `{"operation":` + operationOf("exec-0/0.1") + `,` + stateOf("exec-0/0.1", "Running", "") + `}`, Done,
			"None", "",
		},
		{"another actor's runs", `{"operation":{"initiatedBy":{"username":"ann"}},"status":{"operationState":{"phase":"Running","operation":{"initiatedBy":{"username":"ann"}}}}}`, Done, "None", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := NextTerminate(TerminateRequest{Ref: Ref{Kind: applicationKind, Namespace: "argocd", Name: "shop"}, Operation: callID},
				object(t, tc.app))
			if err != nil || got.Action != tc.want || got.Value["phase"] != tc.phase {
				t.Fatalf("decision %+v, error %v; want action %d, phase %v", got, err, tc.want, tc.phase)
			}
			if tc.body != "" {
				if body, err := json.Marshal(got.Body); err != nil || string(body) != tc.body {
					t.Errorf("patch %s, %v; want %s", body, err, tc.body)
				}
			}
		})
	}
}
