package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// strict returns limits of which each forbids something.
func strict() Limits {
	return Limits{
		Projects: []string{"team-*", "!team-root"}, ApplicationNamespaces: []string{"argocd"},
		DestinationNamespaces: []string{"*", "!kube-*"}, DestinationServers: []string{inCluster},
		Repositories: []string{"https://git.example.com/*"}, ClusterKinds: []string{"/Namespace"},
	}
}

// shelf is a cluster with a few objects. It counts writes.
type shelf struct {
	objects map[string]Object
	denied  string
	writes  int
	// dry is the error of a dry run.
	dry error
}

func (s *shelf) Get(_ context.Context, ref Ref) (Object, error) {
	if s.denied == ref.Kind.Kind {
		return nil, fault.New(fault.Denied, "no right to get %s", ref)
	}
	if o := s.objects[ref.String()]; o != nil {
		return o, nil
	}
	return nil, fault.New(fault.NotFound, "%s does not exist", ref)
}

func (s *shelf) List(context.Context, Selection, int) ([]Object, bool, error) {
	return slices.Collect(maps.Values(s.objects)), false, nil
}

func (s *shelf) Create(_ context.Context, ref Ref, o Object) error {
	s.writes++
	s.objects[ref.String()] = o
	return nil
}

func (s *shelf) Patch(context.Context, Ref, Object, bool) error {
	s.writes++
	return nil
}

func (s *shelf) DryCreate(_ context.Context, _ Ref, o Object) (Object, error) { return o, s.dry }

func (*shelf) AwaitChange(ctx context.Context, _ Ref, _ string, atMost time.Duration) {
	_ = clock.Sleep(ctx, clock.System(), atMost)
}

func (s *shelf) run(t *testing.T, l Limits, function, args string) Answer {
	t.Helper()
	return s.runIn(t, s, l, function, args)
}

// runIn is run in another cluster than the shelf itself, such as one around it.
func (*shelf) runIn(t *testing.T, in Cluster, l Limits, function, args string) Answer {
	t.Helper()
	r := NewRunner(RunnerDeps{Cluster: in, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: l})
	return r.Run(t.Context(), Call{
		ID: callID, Function: function, Args: json.RawMessage(args),
		Deadline: clock.System().Now().Add(time.Minute), Organization: "7",
	})
}

// appArgs returns edited arguments of argo.sync.
func appArgs(edit func(args, source map[string]any)) string {
	source := map[string]any{
		"repo_url": "https://git.example.com/shop", "path": "staging", "project": "team-shop",
		"destination_namespace": "shop",
	}
	args := map[string]any{"app_name": "shop", "app_namespace": "argocd", "revision": revision, "wait": "start", "source": source}
	edit(args, source)
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Every Function has a call that its guard refuses, without any change: a Function without a guard fails here.
func TestEveryFunctionIsGuarded(t *testing.T) {
	t.Parallel()
	outside := appArgs(func(_, source map[string]any) { source["destination_namespace"] = "kube-system" })
	rollout := `{"rollout_namespace":"kube-system","rollout_name":"api"`
	refused := map[string]string{
		FunctionGet:       `{"kind":"Secret","namespace":"shop","name":"token"}`,
		FunctionList:      `{"kind":"Secret","fields":["data"]}`,
		FunctionCheck:     strings.Replace(strings.Replace(outside, `"revision":"`+revision+`",`, "", 1), `,"wait":"start"`, "", 1),
		FunctionSync:      outside,
		FunctionTerminate: `{"app_namespace":"elsewhere","app_name":"shop","operation":"x"}`,
		FunctionPromote:   rollout + `,"step_index":1}`,
		FunctionAbort:     rollout + `}`,
		FunctionRetry:     rollout + `}`,

		FunctionSubmitWorkflow:    `{"namespace":"kube-system","workflow":{"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow","metadata":{"name":"x"}}}`,
		FunctionStopWorkflow:      `{"namespace":"kube-system","name":"x"}`,
		FunctionTerminateWorkflow: `{"namespace":"kube-system","name":"x"}`,
		FunctionWorkflowLogs:      `{"namespace":"kube-system","name":"x"}`,
		FunctionRunJob:            `{"namespace":"kube-system","job":{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"}}}`,
		FunctionStopJob:           `{"namespace":"kube-system","name":"x"}`,
		FunctionJobLogs:           `{"namespace":"kube-system","name":"x"}`,
		FunctionAnalyze:           `{"namespace":"kube-system","templates":[{"name":"x"}]}`,
		FunctionEndAnalysis:       `{"namespace":"kube-system","name":"x"}`,
		FunctionApply:             `{"objects":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"token","namespace":"shop"}}]}`,
		FunctionPatch:             `{"api_version":"v1","kind":"Secret","namespace":"shop","name":"token","patch":{"data":{}}}`,
		FunctionDelete:            `{"api_version":"v1","kind":"Namespace","name":"shop"}`,
		FunctionLogs:              `{"namespace":"shop","pod":"api"}`,
		FunctionHealth:            `{"objects":[{"api_version":"v1","kind":"Secret","namespace":"shop","name":"token"}]}`,
		FunctionRequest:           `{"url":"http://api.shop.svc/health"}`,
	}
	for _, function := range slices.Sorted(maps.Keys(duties())) {
		args, ok := refused[function]
		if !ok || duties()[function].guard == "" {
			t.Errorf("%s: found no call that its guard refuses, expected one in this table, and in duties() what is compared with the limits",
				function)
			continue
		}
		world := &shelf{objects: map[string]Object{
			"Rollout kube-system/api": {
				"metadata": map[string]any{"name": "api"},
				"status":   map[string]any{"abort": true, "currentPodHash": "a", "stableRS": "b"},
			},
			"Secret shop/token":            {"data": map[string]any{"password": "x"}},
			"Application elsewhere/shop":   {"operation": map[string]any{"initiatedBy": map[string]any{"username": "lockstep:x"}}},
			"AppProject argocd/team-shop":  {"metadata": map[string]any{"name": "team-shop"}},
			"AppProject argocd/team-other": {"metadata": map[string]any{"name": "team-other"}},
		}}
		answer := world.run(t, strict(), function, args)
		if answer.Err == nil || (answer.Err.Code != CodeForbidden && answer.Err.Code != CodeInvalid) || world.writes > 0 {
			t.Errorf("%s(%s): answer %+v after %d writes, expected a refusal", function, args, answer, world.writes)
		}
	}
}

// limitCase is a sync that strict limits, edited, allow, or refuse with want.
type limitCase struct {
	name, args, app, want string
	project               Object
	denied                string
	limits                func(*Limits)
}

// confined returns an AppProject that allows no more than strict limits do.
func confined() Object {
	return Object{"metadata": map[string]any{"name": "team-shop"}, "spec": map[string]any{
		"destinations": []any{map[string]any{"server": inCluster, "namespace": "shop*"}},
	}}
}

// check runs the case as argo.check, which never writes, and a refused one as argo.sync as well.
func (tc limitCase) check(t *testing.T) {
	t.Helper()
	world := &shelf{objects: map[string]Object{"AppProject argocd/team-shop": confined()}, denied: tc.denied}
	if tc.project != nil {
		world.objects["AppProject argocd/team-shop"] = tc.project
	}
	limits := strict()
	if tc.limits != nil {
		tc.limits(&limits)
	}
	if tc.app != "" {
		world.objects["Application argocd/shop"] = object(t, tc.app)
	}
	args := strings.Replace(strings.Replace(tc.args, `"revision":"`+revision+`",`, "", 1), `,"wait":"start"`, "", 1)
	answer := world.run(t, limits, FunctionCheck, args)
	switch {
	case tc.want == "" && answer.Err != nil:
		t.Errorf("refused: %v", answer.Err)
	case tc.want != "" && (answer.Err == nil || answer.Err.Code != CodeForbidden || !strings.Contains(answer.Err.Message, tc.want)):
		t.Errorf("answer %+v, want forbidden: %s", answer, tc.want)
	}
	if world.writes > 0 {
		t.Errorf("argo.check has written %d times", world.writes)
	}
	if tc.want == "" {
		return
	}
	if answer := world.run(t, limits, FunctionSync, tc.args); answer.Err == nil || answer.Err.Code != CodeForbidden || world.writes > 0 {
		t.Errorf("argo.sync: answer %+v after %d writes, want forbidden", answer, world.writes)
	}
}

func TestAnApplicationOutsideOfTheLimitsIsRefused(t *testing.T) {
	t.Parallel()
	application := func(text string) string {
		return `{"metadata":{"name":"shop"` + text + `},"spec":{"project":"team-shop","destination":{"server":"` +
			inCluster + `","namespace":"shop"},
			"source":{"repoURL":"https://git.example.com/shop","path":"staging"}}}`
	}
	for _, tc := range []limitCase{
		{name: "inside", args: appArgs(func(_, _ map[string]any) {})},
		{name: "another project", args: appArgs(func(_, s map[string]any) { s["project"] = "default" }), want: `project: found "default"`},
		{
			name: "a project that is taken away", args: appArgs(func(_, s map[string]any) { s["project"] = "team-root" }),
			want: `project: found "team-root"`,
		},
		{
			name: "the project that is meant without one", args: appArgs(func(_, s map[string]any) { delete(s, "project") }),
			want: `project: found "default"`,
		},
		{
			name: "another repository", args: appArgs(func(_, s map[string]any) { s["repo_url"] = "https://evil.example.com/x" }),
			want: "allow_repositories",
		},
		{
			name: "a repository that only contains the allowed one",
			args: appArgs(func(_, s map[string]any) { s["repo_url"] = "https://evil.example.com/?https://git.example.com/x" }),
			want: "allow_repositories",
		},
		{
			name: "a system namespace", args: appArgs(func(_, s map[string]any) { s["destination_namespace"] = "kube-public" }),
			want: "this relay's allow_destination_namespaces",
		},
		{
			name: "Argo CD's own namespace", args: appArgs(func(_, s map[string]any) { s["destination_namespace"] = "argocd" }),
			want: "allow_destination_namespaces",
		},
		{
			name: "another namespace of Applications", args: appArgs(func(a, _ map[string]any) { a["app_namespace"] = "elsewhere" }),
			want: "allow_application_namespaces",
		},
		{name: "handed over", args: appArgs(func(_, _ map[string]any) {}), app: application(`,"annotations":{"lockstep.dev/authorized":"3, 7"}`)},
		{
			name: "handed over to all", args: appArgs(func(_, _ map[string]any) {}),
			app: application(`,"annotations":{"lockstep.dev/authorized":"*"}`),
		},
		{
			name: "created by Lockstep", args: appArgs(func(_, _ map[string]any) {}),
			app: application(`,"labels":{"app.kubernetes.io/managed-by":"lockstep"}`),
		},
		{
			name: "not handed over", args: appArgs(func(_, _ map[string]any) {}), app: application(``),
			want: "kubectl -n argocd annotate --overwrite application shop lockstep.dev/authorized=7",
		},
		{
			name: "handed over to others", args: appArgs(func(_, _ map[string]any) {}),
			app: application(`,"annotations":{"lockstep.dev/authorized":"70,17"}`), want: `found "70,17"`,
		},
		{
			name: "created by Lockstep for others", args: appArgs(func(_, _ map[string]any) {}), want: `found "3"`,
			app: application(`,"labels":{"app.kubernetes.io/managed-by":"lockstep"},"annotations":{"lockstep.dev/authorized":"3"}`),
		},
		{
			name:   "in a namespace of its own, its project with Argo CD",
			args:   appArgs(func(a, s map[string]any) { a["app_namespace"], s["destination_namespace"] = "team", "team" }),
			limits: func(l *Limits) { l.ApplicationNamespaces, l.Home = nil, "argocd" },
		},
		{
			name: "a project that is nowhere", args: appArgs(func(_, s map[string]any) { s["project"] = "team-gone" }),
			want: `AppProject "team-gone", which says what its Applications may deploy, is in none of the namespaces argocd`,
		},
		{
			name: "nobody asks for it", args: appArgs(func(_, _ map[string]any) {}), app: application(``),
			limits: func(l *Limits) { l.Unauthorized = true },
		},
		{
			name: "what the environment's owner does not allow", want: "expected one that the environment's destination_namespaces allows: team-*",
			args: appArgs(func(a, _ map[string]any) { a["allowed"] = map[string]any{"destination_namespaces": []any{"team-*"}} }),
		},
		{
			name: "an Application that deploys what the environment's owner does not allow",
			app:  application(`,"labels":{"app.kubernetes.io/managed-by":"lockstep"}`), want: "the environment's projects",
			args: appArgs(func(a, s map[string]any) {
				a["allowed"], s["project"] = map[string]any{"projects": []any{"team-blog"}}, "team-blog"
			}),
		},
		{
			name: "inside of what the environment's owner allows",
			args: appArgs(func(a, _ map[string]any) {
				a["allowed"] = map[string]any{"projects": []any{"team-*"}, "repositories": []any{}}
			}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// An AppProject that allows more than the limits would let an Application within the limits deploy what they forbid.
func TestAnAppProjectWiderThanTheLimitsIsRefused(t *testing.T) {
	t.Parallel()
	project := func(edit func(spec map[string]any)) Object {
		spec := maps.Clone(map[string]any(confined().object("spec")))
		edit(spec)
		return Object{"metadata": map[string]any{"name": "team-shop"}, "spec": spec}
	}
	destinations := func(all ...string) func(map[string]any) {
		return func(spec map[string]any) {
			var list []any
			for _, each := range all {
				server, namespace, _ := strings.Cut(each, " ")
				list = append(list, map[string]any{"server": server, "namespace": namespace})
			}
			spec["destinations"] = list
		}
	}
	for _, tc := range []limitCase{
		{
			name: "the stock project", args: appArgs(func(_, _ map[string]any) {}),
			project: project(destinations("* *")), want: "allows the destination server *",
		},
		{
			name: "a project of every namespace", args: appArgs(func(_, _ map[string]any) {}),
			project: project(destinations(inCluster + " *")), want: `allows the destination namespace * without denying "kube-*"`,
		},
		{
			name: "a project that denies too little", args: appArgs(func(_, _ map[string]any) {}),
			project: project(destinations(inCluster+" *", "* !kube-system", "* !argocd")), want: `without denying "kube-*"`,
		},
		{
			name: "a project that denies the same", args: appArgs(func(_, _ map[string]any) {}),
			project: project(destinations(inCluster+" *", "* !kube-*", "* !argocd")),
		},
		{
			name: "a project of cluster-scoped kinds", args: appArgs(func(_, _ map[string]any) {}),
			want: "allows the cluster-scoped kind rbac.authorization.k8s.io/ClusterRole",
			project: project(func(spec map[string]any) {
				spec["clusterResourceWhitelist"] = []any{
					map[string]any{"group": "", "kind": "Namespace"},
					map[string]any{"group": "rbac.authorization.k8s.io", "kind": "ClusterRole"},
				}
			}),
		},
		{
			name: "a project of all kinds", args: appArgs(func(_, _ map[string]any) {}), want: "allows the cluster-scoped kind */*",
			project: project(func(spec map[string]any) {
				spec["clusterResourceWhitelist"] = []any{map[string]any{"group": "*", "kind": "*"}}
			}),
		},
		{
			name: "a project that cannot be read", args: appArgs(func(_, _ map[string]any) {}), denied: "AppProject",
			want: "grant the relay get on appprojects.argoproj.io",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}

// During an upgrade a control plane of an earlier release, which reports no organization, continues what a new one has begun.
func TestAnEarlierControlPlaneSyncsWhatLockstepCreated(t *testing.T) {
	t.Parallel()
	app := func(labels map[string]any) Object {
		return Object{"metadata": map[string]any{"labels": labels, "annotations": map[string]any{annotationAuthorized: "3"}}}
	}
	if err := (Limits{}).checkAuthorization(SyncRequest{}, app(map[string]any{"app.kubernetes.io/managed-by": "lockstep"})); err != nil {
		t.Errorf("created by Lockstep: %v", err)
	}
	if err := (Limits{}).checkAuthorization(SyncRequest{}, app(nil)); err == nil {
		t.Error("created by others: expected a refusal")
	}
}
