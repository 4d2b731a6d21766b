package function

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// forge returns the configured answers, and keeps what it was asked.
type forge struct {
	content []byte
	err     error
	commit  activity.CommitRequest
	// tree is what was asked for last, files the answer.
	tree  activity.TreeRequest
	files map[string][]byte
	// proposed and merged are what was asked for last, proposal and statuses the answers.
	proposed   activity.ProposalRequest
	merged     activity.MergeRequest
	proposal   activity.Proposal
	statuses   []activity.CommitStatus
	set        activity.StatusRequest
	deployed   activity.DeploymentRequest
	deployment activity.DeploymentReport
	report     activity.StatusReport
	// asked and noted are what was asked for last, change and written the answers.
	asked   activity.ChangeRequest
	noted   activity.CommentRequest
	change  activity.Change
	written activity.CommentReport
}

func (f *forge) ReadChange(_ context.Context, r activity.ChangeRequest) (activity.Change, error) {
	f.asked = r
	return f.change, f.err
}

func (f *forge) Comment(_ context.Context, r activity.CommentRequest) (activity.CommentReport, error) {
	f.noted = r
	return f.written, f.err
}

func (f *forge) ReadFile(_ context.Context, _ int64, _, ref, _ string) ([]byte, string, error) {
	return f.content, "sha-of-" + ref, f.err
}

func (f *forge) ReadTree(_ context.Context, r activity.TreeRequest) (map[string][]byte, string, error) {
	f.tree = r
	return f.files, "sha-of-" + r.Ref, f.err
}

func (f *forge) ReadDifference(_ context.Context, r activity.DifferenceRequest) (activity.Difference, error) {
	return activity.Difference{Base: r.Base, Head: "b", Files: []activity.ChangedFile{{
		Path:   r.Under + "/api.yaml",
		Before: []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 1, template: {spec: {containers: [{name: a, image: a:1}]}}}\n"),
		After:  []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 2, template: {spec: {containers: [{name: a, image: a:1}]}}}\n"),
	}}}, nil
}

func (*forge) FindCommit(context.Context, int64, string, string, string, string) (activity.CommitInfo, error) {
	return activity.CommitInfo{}, nil
}

func (f *forge) ReadCommit(_ context.Context, _ int64, _, ref string) (activity.CommitInfo, error) {
	return activity.CommitInfo{SHA: "sha-of-" + ref, Message: string(f.content), Author: activity.Signature{Name: "Ada", At: time.Unix(0, 0).UTC()}}, f.err
}

func (f *forge) Commit(_ context.Context, c activity.CommitRequest) (string, error) {
	f.commit = c
	return "sha", f.err
}

func (f *forge) Propose(_ context.Context, p activity.ProposalRequest) (activity.Proposal, error) {
	f.proposed = p
	return f.proposal, f.err
}

func (f *forge) Merge(_ context.Context, r activity.MergeRequest) (activity.Proposal, error) {
	f.merged = r
	return f.proposal, f.err
}

func (f *forge) ReadProposal(_ context.Context, _ int64, _ string, number int64) (activity.Proposal, error) {
	return activity.Proposal{Number: number, State: f.proposal.State}, f.err
}

func (f *forge) Withdraw(_ context.Context, _ int64, _, branch string, number int64) (activity.Proposal, error) {
	return activity.Proposal{Number: number, Branch: branch}, f.err
}

func (f *forge) ReadBranch(_ context.Context, p activity.BranchProposal) (activity.Proposal, error) {
	return activity.Proposal{Branch: p.Branch, Into: p.Into, Head: p.Head, State: f.proposal.State}, f.err
}

func (f *forge) WithdrawBranch(_ context.Context, p activity.BranchProposal) (activity.Proposal, error) {
	return activity.Proposal{Branch: p.Branch, Head: p.Head, State: activity.ProposalClosed}, f.err
}

func (f *forge) SetStatus(_ context.Context, r activity.StatusRequest) (activity.StatusReport, error) {
	f.set = r
	return f.report, f.err
}

func (f *forge) SetDeployment(_ context.Context, r activity.DeploymentRequest) (activity.DeploymentReport, error) {
	f.deployed = r
	return f.deployment, f.err
}

func (f *forge) ReadStatus(context.Context, int64, string, string) ([]activity.CommitStatus, error) {
	return f.statuses, f.err
}

func named(t *testing.T, f activity.Forge, name string) *Function {
	t.Helper()
	for _, each := range All(f, nil, nil) {
		if each.Name() == name {
			found, ok := each.(*Function)
			if !ok {
				t.Fatalf("%s is a %T", name, each)
			}
			return found
		}
	}
	t.Fatalf("no function %s", name)
	return nil
}

type m = map[string]any

func TestAllAreRegistered(t *testing.T) {
	t.Parallel()
	r, err := activity.NewFunctions(All(&forge{}, nil, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"argo.abort", "argo.analyze", "argo.check", "argo.end_analysis", "argo.promote", "argo.retry", "argo.sync", "argo.terminate",
		"checkpoint", "expression.evaluate", "git.comment", "git.commit", "git.compare", "git.merge", "git.propose", "git.read_change", "git.read_commit", "git.read_file", "git.read_proposal",
		"git.read_status", "git.set_deployment", "git.set_status", "git.withdraw", "http.request", "job.logs", "job.run", "job.stop", "k8s.apply",
		"k8s.delete", "k8s.get", "k8s.health", "k8s.list",
		"k8s.logs", "k8s.patch", "mail.send", "manifest.compare", "manifest.compare_rendered", "manifest.diff", "manifest.edit", "manifest.helm", "manifest.kustomize", "manifest.pin", "manifest.pin_kustomization", "manifest.pin_values", "manifest.redact", "nats.publish", "template.render",
		"workflow.logs", "workflow.stop", "workflow.submit", "workflow.terminate",
	}
	if diff := cmp.Diff(want, r.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestArgumentsAreRefusedByName(t *testing.T) {
	t.Parallel()
	read := m{"repo_url": "https://git/x", "ref": "main", "path": "a"}
	with := func(base m, key string, v any) m {
		out := m{}
		for k, b := range base {
			out[k] = b
		}
		out[key] = v
		return out
	}
	commit := m{"repo_url": "https://git/x", "branch": "main", "message": "x"}
	sync := m{"agent_id": int64(42), "app_name": "a", "app_namespace": "b", "revision": "c"}
	for _, tc := range []struct {
		name string
		args m
		want string // "" for none
	}{
		{"git.read_file", read, ""},
		{"git.read_file", m{}, "git.read_file: repo_url: missing, expected a non-empty string; ref: missing, expected a non-empty string; path: missing, expected a non-empty string"},
		{"git.read_file", with(read, "ref", int64(7)), "git.read_file: ref: found 7, expected a non-empty string"},
		{"git.read_file", with(read, "reff", "x"), "reff: unknown, expected only repo_url, ref, path, credential"},
		{"git.commit", with(commit, "files", []any{m{"path": "a"}}), "files[0].content: missing, expected a string"},
		{"git.commit", with(commit, "files", []any{"a"}), `files[0]: found "a", expected an object`},
		{"git.commit", with(commit, "trailers", m{"A": 1.5}), "trailers.A: found 1.5, expected a string"},
		{"git.commit", with(commit, "trailers", "x"), `trailers: found "x", expected an object of strings`},
		{"k8s.get", m{"agent_id": "42", "kind": "Pod", "name": "x"}, `agent_id: found "42", expected a whole number of at least 1`},
		{"k8s.get", m{"agent_id": int64(42), "kind": "Pod", "name": "x", "namespace": nil}, ""},
		{"argo.sync", sync, ""},
		{"argo.sync", with(sync, "mode", "fast"), `mode: found "fast", expected one of managed, existing`},
		{"argo.sync", with(sync, "prune", "yes"), `prune: found "yes", expected true or false`},
		{"argo.sync", with(sync, "source", m{"repo_url": "x", "path": "y"}), "source.destination_namespace: missing"},
		{"argo.sync", with(sync, "overrides", m{"helm": m{"valuesObject": m{"a": m{"b": 1.0}}}}), ""},
		{
			"argo.sync", with(sync, "overrides", m{"helm": m{"valuesObject": "x"}}),
			`overrides.helm.valuesObject: found "x", expected an object of any fields`,
		},
		{"argo.sync", with(sync, "overrides", m{"directory": m{}}), "overrides.directory: unknown, expected only kustomize, helm"},
		{
			"manifest.pin",
			m{"content": "x", "images": []any{}, "strategy": "recreate"},
			`strategy: found "recreate", expected one of canary, blue_green`,
		},
		{"manifest.pin_values", m{"content": "x", "values": []any{m{"path": "a", "gates": []any{"x"}}}}, `values[0].gates[0]: found "x"`},
		{
			"argo.promote",
			m{"agent_id": int64(42), "rollout_name": "a", "rollout_namespace": "b", "step_index": -1.0},
			"step_index: found -1, expected a whole number of at least 0",
		},
		{"argo.abort", m{"agent_id": int64(42), "rollout_name": "a", "rollout_namespace": "b"}, ""},
		{
			"argo.retry",
			m{"agent_id": int64(42), "rollout_name": "a", "rollout_namespace": ""},
			`rollout_namespace: found "", expected a non-empty string`,
		},
		{
			"manifest.pin",
			m{"content": "x", "images": []any{}, "gates": []any{int64(0)}},
			"gates[0]: found 0, expected a whole number of at least 1",
		},
		{"manifest.pin", m{"content": "x", "images": m{}}, "images: found {}, expected a list"},
	} {
		err := named(t, &forge{}, tc.name).Check(tc.args)
		var e *history.FunctionError
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s %v: %v", tc.name, tc.args, err)
		case tc.want != "" && (!errors.As(err, &e) || e.Code != history.CodeInvalid || !strings.Contains(e.Message, tc.want)):
			t.Errorf("%s %v: %v, want %s", tc.name, tc.args, err, tc.want)
		}
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	args := m{"repo_url": "https://git/x", "ref": "main", "path": "a"}
	got, err := named(t, &forge{content: []byte("x: ü\n")}, "git.read_file").Call(t.Context(), activity.Call{Args: args})
	if diff := cmp.Diff(any(m{"content": "x: ü\n", "sha": "sha-of-main"}), got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = named(t, &forge{content: []byte("\xff\xfe")}, "git.read_file").Call(t.Context(), activity.Call{Args: args})
	if history.AsFunctionError(err).Code != history.CodeInvalid {
		t.Errorf("binary: %v", err)
	}
	for _, tc := range []struct {
		err  error
		want history.FunctionError
	}{
		{fault.New(fault.NotFound, "gone"), history.FunctionError{Code: "not_found", Message: "gone"}},
		{fault.New(fault.Unauthenticated, "who"), history.FunctionError{Code: "unauthorized", Message: "who"}},
		{fault.New(fault.Denied, "no"), history.FunctionError{Code: "unauthorized", Message: "no"}},
		{fault.New(fault.Conflict, "moved"), history.FunctionError{Code: "conflict", Message: "moved"}},
		{fault.New(fault.Refused, "hook"), history.FunctionError{Code: "refused", Message: "hook"}},
		{fault.New(fault.Unavailable, "away"), history.FunctionError{Code: "unreachable", Message: "away", Retryable: true}},
		{errors.New("secret detail"), history.FunctionError{
			Code:    "internal",
			Message: "the function did not finish; the service's log says why",
		}},
	} {
		_, err := named(t, &forge{err: tc.err}, "git.read_file").Call(t.Context(), activity.Call{Args: args})
		if diff := cmp.Diff(&tc.want, history.AsFunctionError(err)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.err, diff)
		}
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	base := m{"repo_url": "https://git/x", "branch": "main", "message": "Deploy", "trailers": m{"Lockstep-Rollout": "12"}}
	add := func(more m) m {
		for k, v := range base {
			more[k] = v
		}
		return more
	}
	want := activity.CommitRequest{
		Organization: 7, RepoURL: "https://git/x", Branch: "main", Message: "Deploy", Activity: "exec/0.1",
		Files: map[string][]byte{"a": []byte("x")}, Trailers: map[string]string{"Lockstep-Rollout": "12"},
	}
	for _, args := range []m{add(m{"path": "a", "content": "x"}), add(m{"files": []any{m{"path": "a", "content": "x"}}})} {
		f := &forge{}
		got, err := named(t, f, "git.commit").Call(t.Context(), activity.Call{ID: "exec/0.1", Organization: 7, Args: args})
		if diff := cmp.Diff(want, f.commit); diff != "" || err != nil || got != "sha" {
			t.Errorf("%v, %v (-want +got):\n%s", got, err, diff)
		}
	}
	twice := []any{m{"path": "a", "content": "x"}, m{"path": "a", "content": "y"}}
	for _, args := range []m{
		add(m{}), add(m{"path": "a"}), add(m{"files": []any{}}), add(m{"files": twice}),
		add(m{"path": "a", "content": "x", "files": twice}),
	} {
		_, err := named(t, &forge{}, "git.commit").Call(t.Context(), activity.Call{Args: args})
		if history.AsFunctionError(err).Code != history.CodeInvalid {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestPin(t *testing.T) {
	t.Parallel()
	const before = `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: api, namespace: shop}
spec: {template: {spec: {containers: [{name: api, image: old}]}}}
`
	got, err := named(t, &forge{}, "manifest.pin").Call(t.Context(), activity.Call{Args: m{
		"content": before, "images": []any{m{"container": "api", "reference": "new:1"}}, "gates": nil,
	}})
	if err != nil {
		t.Fatal(err)
	}
	value, _ := got.(m)
	delete(value, "digest")
	want := m{
		"content": strings.Replace(before, "old", "new:1", 1), "changed": true,
		"rollout_name": "api", "rollout_namespace": "shop", "containers": []string{"api"}, "workload": "",
		"steps": []any{},
	}
	if diff := cmp.Diff(want, value); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
	got, err = named(t, &forge{}, "manifest.pin").Call(t.Context(),
		activity.Call{Args: m{"content": before, "images": []any{}, "gates": []any{int64(50)}}})
	value, _ = got.(m)
	if content, _ := value["content"].(string); err != nil || !strings.Contains(content, `"setWeight": 50`) {
		t.Errorf("steps: %v, %v", got, err)
	}
	_, err = named(t, &forge{}, "manifest.pin").Call(t.Context(), activity.Call{Args: m{
		"content": before, "images": []any{m{"container": "web", "reference": "new:1"}},
	}})
	if e := history.AsFunctionError(err); e.Code != history.CodeInvalid ||
		!strings.Contains(e.Message, `has the containers api, expected one "web"`) {
		t.Errorf("missing container: %v", err)
	}
}

func TestPinOverlays(t *testing.T) {
	t.Parallel()
	const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	for _, tc := range []struct {
		name string
		args m
		want string
	}{
		{
			"manifest.pin_kustomization",
			m{"content": "images:\n- name: api\n", "images": []any{m{"name": "api", "reference": "r/api@" + digest}}},
			"images:\n- name: api\n  newName: r/api\n  digest: " + digest + "\n",
		},
		{
			"manifest.pin_values",
			m{"content": "image: {tag: old}\nsteps: []\n", "values": []any{
				m{"path": "image", "reference": "r/api@" + digest, "tag": "v2"}, m{"path": "steps", "gates": []any{int64(50)}},
			}},
			"image: {tag: v2@" + digest + "}\nsteps: [{\"setWeight\": 50}, {\"pause\": {}}]\n",
		},
	} {
		got, err := named(t, &forge{}, tc.name).Call(t.Context(), activity.Call{Args: tc.args})
		if value, _ := got.(m); err != nil || value["content"] != tc.want || value["changed"] != true {
			t.Errorf("%s: found %v, %v; expected %q", tc.name, got, err, tc.want)
		}
	}
}

func TestCheckpointAnswersItsState(t *testing.T) {
	t.Parallel()
	got, err := checkpoint().Call(t.Context(), activity.Call{Args: map[string]any{"state": map[string]any{"at": int64(3)}}})
	if diff := cmp.Diff(any(map[string]any{"at": int64(3)}), got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// What each Function changes is a decision, so a new one has to be added here (D46).
func TestEveryFunctionStatesWhatItChanges(t *testing.T) {
	t.Parallel()
	args := map[string]any{
		"agent_id": int64(4), "app_namespace": "argocd", "app_name": "shop", "rollout_namespace": "shop", "rollout_name": "api",
		"source": map[string]any{"destination_namespace": "shop"}, "repo_url": "https://git.example.com/shop", "branch": "main",
		"path": "a.yaml", "content": "a", "url": "https://deploy.example.com/shop?a=b", "server": "smtp://mail.example.com:587", "subject": "cd.shop", "namespace": "work", "name": "migrate", "prune": true,
		"objects": []any{map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "api"}}},
	}
	got := map[string]string{}
	for _, f := range append(All(&forge{}, nil, nil), Watching(WatchDeps{})...) {
		var touched []string
		for _, p := range f.(activity.Toucher).Touches(args) {
			touched = append(touched, p.String())
		}
		if f.Effect() != activity.Reads || len(touched) > 0 {
			got[f.Name()] = f.Effect().String() + ": " + strings.Join(touched, ", ")
		}
	}
	want := map[string]string{
		"argo.sync":          "changes: Application argocd/shop, namespace shop",
		"argo.terminate":     "takes back: Application argocd/shop, namespace shop",
		"argo.promote":       "changes: shop/api",
		"argo.retry":         "changes: shop/api",
		"argo.abort":         "takes back: shop/api",
		"git.commit":         "changes: a.yaml on branch main of https://git.example.com/shop",
		"git.merge":          "changes: a.yaml on branch main of https://git.example.com/shop",
		"git.propose":        "proposes: . on branch lockstep/proposals/ of https://git.example.com/shop",
		"git.withdraw":       "proposes: . on branch lockstep/proposals/ of https://git.example.com/shop",
		"git.set_status":     "publishes: . on branch  of https://git.example.com/shop",
		"git.set_deployment": "publishes: . on branch  of https://git.example.com/shop",
		"git.comment":        "publishes: . on branch  of https://git.example.com/shop",
		"http.request":       "changes: cluster-scoped objects", // from inside the cluster of an agent, at no service of a namespace
		"mail.send":          "changes: mail.example.com:587/",
		"nats.publish":       "changes: mail.example.com:587/cd.shop",

		"argo.analyze":       "changes: work/migrate",
		"argo.end_analysis":  "takes back: work/migrate",
		"job.run":            "changes: work/migrate",
		"job.stop":           "takes back: work/migrate",
		"workflow.submit":    "changes: work/migrate",
		"workflow.stop":      "takes back: work/migrate",
		"workflow.terminate": "takes back: work/migrate",
		"k8s.apply":          "changes: work/api, namespace work",
		"k8s.delete":         "changes: work/migrate",
		"k8s.patch":          "changes: work/migrate",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A dry run only reads; the object of a call that creates one is named as far as it is known (R2-35, D46).
func TestWhatATaskTouches(t *testing.T) {
	t.Parallel()
	f := named(t, &forge{}, "workflow.submit")
	for name, want := range map[string]string{"name": "work/migrate", "generateName": "namespace work"} {
		args := m{"agent_id": int64(4), "namespace": "work", "workflow": m{"metadata": m{name: "migrate"}}}
		if places := f.Touches(args); len(places) != 1 || places[0].String() != want || f.EffectOf(args) != activity.Changes {
			t.Errorf("%s: %v, expected a change of %s", name, places, want)
		}
		args["dry_run"] = true
		if f.EffectOf(args) != activity.Reads {
			t.Errorf("%s: a dry run is %s, expected that it reads", name, f.EffectOf(args))
		}
	}
	if places := f.Touches(m{"workflow": m{}}); places != nil {
		t.Errorf("without a namespace: %v, expected no place, so that it is refused", places)
	}
}

// R2-17: each stage has a code of its own.
func TestTemplateRender(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"a {[ .x ]}": "", "{[": CodeTemplateParse, `{[ fail "x" ]}`: CodeTemplateExecute,
	} {
		value, err := named(t, &forge{}, "template.render").Call(t.Context(), activity.Call{Args: m{"template": template, "data": m{"x": int64(1)}}})
		failed, _ := errors.AsType[*history.FunctionError](err)
		switch {
		case want == "" && (err != nil || value.(m)["text"] != "a 1"):
			t.Errorf("%s: %v, %v", template, value, err)
		case want != "" && (failed == nil || failed.Code != want || failed.Retryable):
			t.Errorf("%s: %v, expected %s", template, err, want)
		}
	}
}

// TestCommitsAreRead: what git.read_commit makes of messages as people write them.
func TestCommitsAreRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		message, subject, body string
		trailers               m
	}{
		"one line":           {"fix it\n", "fix it", "", m{}},
		"a wrapped subject":  {"fix\nit\n\nbecause\n", "fix it", "because", m{}},
		"trailers":           {"fix\n\nbody\n\nReviewed-by: Bob\nReviewed-by:  Eve \nRefs: #1\r\n", "fix", "body\n\nReviewed-by: Bob\nReviewed-by:  Eve \nRefs: #1", m{"Reviewed-by": []any{"Bob", "Eve"}, "Refs": []any{"#1"}}},
		"a continued one":    {"fix\n\nNote: one\n  two\n", "fix", "Note: one\n  two", m{"Note": []any{"one two"}}},
		"a subject is none":  {"Fix: it", "Fix: it", "", m{}},
		"a sentence is none": {"fix\n\nNote: this\nis text", "fix", "Note: this\nis text", m{}},
		"no text":            {"a\xff", "a\uFFFD", "", m{}},
		"empty":              {"", "", "", m{}},
	} {
		f := &forge{content: []byte(tt.message)}
		value, err := named(t, f, "git.read_commit").Call(t.Context(), activity.Call{Args: m{"repo_url": "https://git.test/a", "ref": "main"}})
		if err != nil {
			t.Fatal(err)
		}
		want := m{
			"sha": "sha-of-main", "subject": tt.subject, "body": tt.body, "trailers": tt.trailers,
			"author":    m{"name": "Ada", "email": "", "time": "1970-01-01T00:00:00Z"},
			"committer": m{"name": "", "email": "", "time": "0001-01-01T00:00:00Z"},
		}
		if diff := cmp.Diff(any(want), value); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// D51: policies may name every Function that programs can run, and no other name is known to them as the engine's.
func TestPoliciesKnowTheFunctions(t *testing.T) {
	t.Parallel()
	r, err := activity.NewFunctions(append(All(&forge{}, nil, nil), Watching(WatchDeps{})...)...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Names(), policy.Functions()); diff != "" {
		t.Errorf("found other names in pkg/policy (-want +got):\n%s", diff)
	}
}
