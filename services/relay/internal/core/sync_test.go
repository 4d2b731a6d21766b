package core

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	revision = "1111111111111111111111111111111111111111"
	older    = "2222222222222222222222222222222222222222"
	callID   = "exec-1/0.7"
)

// object decodes JSON as a cluster's response is decoded, so that cases can be written as Kubernetes shows them.
func object(t *testing.T, s string) Object {
	t.Helper()
	if s == "" {
		return nil
	}
	var o Object
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		t.Fatalf("bad fixture %s: %v", s, err)
	}
	return o
}

func syncRequest() SyncRequest {
	return SyncRequest{
		Operation: callID, Revision: revision, Mode: ModeManaged,
		Ref:    Ref{Kind: applicationKind, Namespace: "argocd", Name: "shop"},
		Source: &Source{RepoURL: "http://git/shop.git", Path: "staging", Project: "default", DestinationNamespace: "shop-staging"},
	}
}

const spec = `"spec":{"source":{"repoURL":"http://git/shop.git","path":"staging","targetRevision":"` + revision + `"}}`

func TestNextSync(t *testing.T) {
	t.Parallel()
	ours := `"operation":{"info":[{"name":"lockstep.dev/call","value":"` + callID + `"}],"sync":{"revision":"` + revision + `"}}`
	theirs := `"operation":{"initiatedBy":{"username":"ann"},"sync":{"revision":"` + older + `"}}`
	for _, tc := range []struct {
		name, app string
		mode      string
		want      Action
		waiting   string
		code      string
	}{
		{name: "absent and managed", want: Create},
		{name: "absent and existing", mode: ModeExisting, code: CodeNotFound},
		{name: "never synced", app: `{` + spec + `}`, want: Patch},
		{name: "ours is queued", app: `{` + spec + `,` + ours + `}`, want: Wait, waiting: "not started yet"},
		{
			name: "ours is queued behind the record of another actor's failed one",
			app:  `{` + spec + `,` + ours + `,"status":{"operationState":{"phase":"Failed",` + theirs + `}}}`,
			want: Wait, waiting: "not started yet",
		},
		{
			name: "ours runs",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Running","message":"waiting for hooks",` + ours + `}}}`,
			want: Wait, waiting: "phase Running: waiting for hooks",
		},
		{
			name: "ours has succeeded",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + revision + `"},` + ours + `}}}`,
			want: Done,
		},
		{
			name: "ours has succeeded at another revision, after a restart of Argo CD",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + older + `"},` + ours + `}}}`,
			want: Patch,
		},
		{
			name: "ours has failed",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Failed","message":"one or more objects failed",` + ours + `}}}`,
			code: CodeSyncFailed,
		},
		{
			name: "ours ended because the API server was away, a while ago",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Error","finishedAt":"2026-01-01T00:00:00Z","message":"ComparisonError: Failed to load live state: Get \"https://10.0.0.1\": EOF",` + ours + `}}}`,
			want: Patch,
		},
		{
			name: "ours has just ended because the API server was away",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Error","finishedAt":"2026-01-01T11:59:58Z","message":"ComparisonError: Failed to load live state: dial tcp: connection refused",` + ours + `}}}`,
			want: Wait, waiting: "Argo CD to recover",
		},
		{
			name: "ours ended because of an outage, and another actor has started another",
			app: `{` + spec + `,` + theirs + `,"status":{"operationState":{"phase":"Error","message":"rpc error: code = Unavailable desc = EOF",` +
				ours + `}}}`,
			want: Wait, waiting: "another sync of it, started by ann",
		},
		{
			name: "ours ended as Error for a reason that stays",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Error","message":"ComparisonError: Failed to load target state: rpc error: code = Unknown desc = Manifest generation error",` + ours + `}}}`,
			code: CodeSyncFailed,
		},
		{
			name: "another actor's has failed, which does not count",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Failed",` + theirs + `}}}`,
			want: Patch,
		},
		{
			name: "another actor's waits", app: `{` + spec + `,` + theirs + `}`, want: Wait, waiting: "another sync of it, started by ann",
		},
		{
			name: "Argo CD's own runs",
			app:  `{` + spec + `,"status":{"operationState":{"phase":"Running","operation":{"initiatedBy":{"automated":true}}}}}`,
			want: Wait, waiting: "Argo CD itself",
		},
		{
			name: "another actor's has brought it to our revision",
			app: `{` + spec + `,"status":{"sync":{"status":"Synced","revision":"` + revision + `"},
				"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + revision + `"},"operation":{"sync":{}}}}}`,
			want: Done,
		},
		{
			name: "another actor's has brought a part of it to our revision",
			app: `{` + spec + `,"status":{"sync":{"status":"Synced","revision":"` + revision + `"},
				"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + revision +
				`"},"operation":{"sync":{"resources":[{"name":"api"}]}}}}}`,
			want: Patch,
		},
		{
			name: "it was at our revision and has drifted",
			app: `{` + spec + `,"status":{"sync":{"status":"OutOfSync","revision":"` + revision + `"},
				"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + revision + `"},"operation":{"sync":{}}}}}`,
			want: Patch,
		},
		{
			name: "ours is in the history, and a later one has come",
			app: `{` + spec + `,"status":{"history":[{"revision":"` + revision + `","initiatedBy":{"username":"lockstep:` + callID + `"}}],
				"operationState":{"phase":"Succeeded","syncResult":{"revision":"` + older + `"},"operation":{"sync":{}}}}}`,
			want: Done,
		},
		{name: "auto-sync", app: `{"spec":{"syncPolicy":{"automated":{}}}}`, code: CodeAutoSync},
		{name: "auto-sync enabled", app: `{"spec":{"syncPolicy":{"automated":{"enabled":true}}}}`, code: CodeAutoSync},
		{name: "auto-sync switched off", app: `{"spec":{"syncPolicy":{"automated":{"enabled":false}},"source":{"repoURL":"http://git/shop","path":"./staging/"}}}`, want: Patch},
		{name: "of an ApplicationSet", app: `{"metadata":{"ownerReferences":[{"kind":"ApplicationSet","name":"all"}]}}`, code: CodeOwned},
		{name: "of an app of apps", app: `{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"root:argoproj.io/Application:argocd/shop"}}}`, code: CodeOwned},
		{name: "of an app of apps, older mark", app: `{"metadata":{"labels":{"app.kubernetes.io/instance":"root"}}}`, code: CodeOwned},
		{name: "of a Helm release", app: `{"metadata":{"labels":{"app.kubernetes.io/instance":"root","app.kubernetes.io/managed-by":"Helm"}},` +
			spec + `}`, want: Patch},
		{name: "being deleted", app: `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, code: CodeConflict},
		{name: "several sources", app: `{"spec":{"sources":[{}]}}`, code: CodeConflict},
		{name: "another repository", app: `{"spec":{"source":{"repoURL":"http://git/other.git","path":"staging"}}}`, code: CodeConflict},
		{name: "another repository, existing", mode: ModeExisting, app: `{"spec":{"source":{"repoURL":"http://git/other.git"}}}`, want: Patch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := syncRequest()
			want.Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			if tc.mode != "" {
				want.Mode = tc.mode
			}
			got, err := NextSync(want, object(t, tc.app))
			check(t, got, err, tc.want, tc.waiting, tc.code)
		})
	}
}

// TestEachSyncRuleDecidesOnce has one case for each rule, which reads like the table: the first that applies decides.
func TestEachSyncRuleDecidesOnce(t *testing.T) {
	t.Parallel()
	operation := func(username, phase string) string {
		return `"status":{"operationState":{"phase":"` + phase + `","message":"connection refused",` +
			`"operation":{"initiatedBy":{"username":"` + username + `"},"sync":{}},"syncResult":{"revision":"` + revision + `"}}}`
	}
	deployed := `"status":{"history":[{"revision":"` + revision + `","initiatedBy":{"username":"lockstep:` + callID + `"}}]}`
	decided := map[string]bool{}
	for _, tc := range []struct {
		rule, status string
		change       func(*SyncRequest)
	}{
		{rule: "a check only answers", status: operation("lockstep:"+callID, "Running"), change: func(r *SyncRequest) { r.Check = true }},
		{rule: "ours is queued or running", status: operation("lockstep:"+callID, "Running")},
		{rule: "ours has ended", status: operation("lockstep:"+callID, "Succeeded")},
		{rule: "ours has to be repeated", status: operation("lockstep:"+callID, "Error")},
		{
			rule: "an earlier one of Lockstep's is replaced", status: operation("lockstep:exec-0/0.1", "Running"),
			change: func(r *SyncRequest) { r.Supersede = true },
		},
		{rule: "another actor's is queued or running", status: operation("ann", "Running")},
		{rule: "the revision is deployed", status: deployed},
		{rule: "", status: operation("ann", "Failed")}, // none: the sync is started
	} {
		want := syncRequest()
		if tc.change != nil {
			tc.change(&want)
		}
		c, got := caseOf(want, object(t, `{`+spec+`,`+tc.status+`}`)), ""
		for _, rule := range syncRules() {
			if rule.applies(c) {
				got = rule.name
				break
			}
		}
		if got != tc.rule {
			t.Errorf("%s: found the rule %q, expected %q", tc.status, got, tc.rule)
		}
		decided[got] = true
	}
	for _, rule := range syncRules() {
		if !decided[rule.name] {
			t.Errorf("no case of the rule %q", rule.name)
		}
	}
}

func check(t *testing.T, got Decision, err error, want Action, waiting, code string) {
	t.Helper()
	if code != "" {
		var e *Error
		if !errors.As(err, &e) || e.Code != code {
			t.Fatalf("decision %+v, error %v; want code %q", got, err, code)
		}
		return
	}
	if err != nil {
		t.Fatalf("unexpected error %v", err)
	}
	if got.Action != want || !strings.Contains(got.Waiting, waiting) {
		t.Fatalf("decision %+v, want action %d waiting for %q", got, want, waiting)
	}
}

func TestCreatedApplicationHasNoSyncPolicyAndOurLabel(t *testing.T) {
	t.Parallel()
	got, err := NextSync(syncRequest(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application",
		"metadata":{"name":"shop","namespace":"argocd","labels":{"app.kubernetes.io/managed-by":"lockstep"}},
		"spec":{"project":"default",
			"source":{"repoURL":"http://git/shop.git","path":"staging","targetRevision":"`+revision+`"},
			"destination":{"server":"https://kubernetes.default.svc","namespace":"shop-staging"}}}`)
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("application (-want +got):\n%s", diff)
	}
}

func TestOperationCarriesTheCallAndThePrecondition(t *testing.T) {
	t.Parallel()
	app := object(t, `{"metadata":{"resourceVersion":"7","labels":{"app.kubernetes.io/managed-by":"lockstep"}},
		"spec":{"syncPolicy":{"syncOptions":["ServerSideApply=true"]},"source":{"repoURL":"http://git/shop","path":"staging","targetRevision":"main"}}}`)
	got, err := NextSync(syncRequest(), app)
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"metadata":{"resourceVersion":"7"},"spec":{"source":{"targetRevision":"`+revision+`"}},
		"status":{"operationState":null},
		"operation":{"initiatedBy":{"username":"lockstep:`+callID+`"},"info":[{"name":"lockstep.dev/call","value":"`+callID+`"}],
			"sync":{"revision":"`+revision+`","prune":false,"syncStrategy":{"hook":{}},
				"syncOptions":["ServerSideApply=true","CreateNamespace=true"]}}}`)
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if n := len(app.list("spec", "syncPolicy", "syncOptions")); n != 1 {
		t.Errorf("the observed object was changed: %d options", n)
	}
}

func TestFailedSyncNamesTheResource(t *testing.T) {
	t.Parallel()
	_, err := NextSync(syncRequest(), object(t, `{`+
		spec+`,"status":{"operationState":{"phase":"Failed","message":"one or more objects failed to apply",
		"operation":{"info":[{"name":"lockstep.dev/call","value":"`+callID+`"}]},
		"syncResult":{"resources":[{"kind":"Service","status":"Synced"},
			{"kind":"Rollout","namespace":"shop","name":"api","status":"SyncFailed","message":"spec.replicas: Invalid value"}]}}}}`))
	if err == nil || !strings.Contains(err.Error(), "Rollout shop/api: spec.replicas: Invalid value") {
		t.Errorf("error %v does not name the resource that failed", err)
	}
}
