package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// kept is what the domain service has reported, in memory.
type kept struct {
	run         Run
	territories []Territory
	err         error
	reads       int
}

func (k *kept) Guarded(context.Context, int64, string, ...int64) (Run, error) { return k.run, k.err }

func (k *kept) Territories(context.Context, int64) (int64, []Territory, error) {
	k.reads++
	return k.run.Version, k.territories, k.err
}

// act is a Function whose arguments are the place that it touches.
type act struct {
	name   string
	effect activity.Effect
}

func (a act) Name() string              { return a.name }
func (act) Location() activity.Location { return activity.Cluster }
func (a act) Effect() activity.Effect   { return a.effect }
func (act) Call(context.Context, activity.Call) (any, error) {
	return nil, errors.New("a relay executes it")
}

func (act) Touches(args map[string]any) (touched []activity.Place) {
	text, _ := json.Marshal(args)
	var p activity.Place
	if json.Unmarshal(text, &p) == nil && p != (activity.Place{}) {
		touched = append(touched, p)
	}
	return touched
}

var noon = time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)

const (
	staging    = 3
	production = 5
	repository = "https://git.example.com/deploy"
)

// everywhere is an organization with two environments in one cluster and one repository.
func everywhere() *kept {
	return &kept{run: Run{Version: 1}, territories: []Territory{
		{Environment: staging, Name: "staging", Places: []activity.Place{
			{Agent: 7, Namespace: "staging"}, {Agent: 7, Application: "argocd/staging"}, {Repository: repository, Branch: "main", Path: "."},
		}},
		{Environment: production, Name: "production", Protected: true, Places: []activity.Place{
			{Agent: 7, Namespace: "production"},
			{Agent: 7, Application: "argocd/production"},
			{Repository: repository, Branch: "main", Path: "production"},
			{Agent: 7, Namespace: "shared", Name: "api"},
		}},
	}}
}

func (k *kept) granted(environments ...int64) *kept {
	for _, e := range environments {
		k.run.Passages = append(k.run.Passages, Passage{Environment: e, At: noon})
	}
	return k
}

func (k *kept) admit(t *testing.T, workflow, function, place string) error {
	t.Helper()
	functions, err := activity.NewFunctions(act{"look", activity.Reads}, act{"change", activity.Changes}, act{"undo", activity.TakesBack})
	if err != nil {
		t.Fatal(err)
	}
	g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
	call := agent.OutgoingCall{Organization: 1, Workflow: workflow, Function: function, Args: json.RawMessage(place)}
	err = g.Admit(t.Context(), &call)
	if refused := err != nil && k.err == nil; refused != (g.Forbidden() == 1) {
		t.Errorf("%s %s: counted %d", function, place, g.Forbidden())
	}
	return err
}

// Every way around the gates that D46 names, decided below the program.
func TestWhatARunMayChange(t *testing.T) {
	t.Parallel()
	const (
		inStaging    = `{"agent_id": 7, "namespace": "staging", "name": "api"}`
		inProduction = `{"agent_id": 7, "namespace": "production", "name": "api"}`
		shared       = `{"agent_id": 7, "namespace": "shared", "name": "api"}`
		elsewhere    = `{"agent_id": 7, "namespace": "tools", "name": "api"}`
		stranger     = `{"agent_id": 7, "application": "argocd/stranger"}`
		otherCluster = `{"agent_id": 8, "application": "argocd/stranger"}`
		file         = `{"repository": "` + repository + `", "branch": "main", "path": "production/api.yaml"}`
		base         = `{"repository": "` + repository + `", "branch": "main", "path": "base.yaml"}`
		branch       = `{"repository": "` + repository + `", "branch": "next", "path": "production/api.yaml"}`
	)
	suspended := func(k *kept) { k.run.AbortedAt = noon.Add(time.Minute) }
	retried := func(k *kept) { suspended(k); k.run.RetriedAt = noon.Add(2 * time.Minute) }
	revoked := func(k *kept) { k.run.Revoked = true }
	exempt := func(k *kept) { k.run.Exempt = true }
	unreported := func(k *kept) { k.run.Version = 0 }
	for _, tt := range []struct {
		name            string
		workflow        string
		function, place string
		granted         []int64
		with            func(*kept)
		want            string
	}{
		{name: "a read", workflow: "rollout-1", function: "look", place: inProduction},
		{
			name: "no passage", workflow: "rollout-1", function: "change", place: inProduction,
			want: "forbidden: passage production has not been granted",
		},
		{name: "the passage", workflow: "rollout-1", function: "change", place: inProduction, granted: []int64{production}},
		{
			name: "another environment's passage", workflow: "rollout-1", function: "change", place: inProduction, granted: []int64{staging},
			want: "passage production",
		},
		{name: "its own environment", workflow: "rollout-1", function: "change", place: inStaging, granted: []int64{staging}},
		{
			name: "a file within another environment's folder", workflow: "rollout-1", function: "change", place: file, granted: []int64{staging},
			want: "passage production",
		},
		{name: "a file of the environment", workflow: "rollout-1", function: "change", place: file, granted: []int64{production}},
		{
			name: "another branch", workflow: "rollout-1", function: "change", place: branch, granted: []int64{production},
			want: "no passage of the rollout opens",
		},
		{
			name: "a place of nobody", workflow: "rollout-1", function: "change", place: elsewhere, granted: []int64{production},
			want: "no passage of the rollout opens",
		},
		{
			name: "an Application of nobody", workflow: "rollout-1", function: "change", place: stranger, granted: []int64{staging, production},
			want: "no passage",
		},
		{
			name: "no place at all", workflow: "rollout-1", function: "change", place: `{}`, granted: []int64{production},
			want: "do not name what it changes",
		},
		{
			name: "a Function that does not exist here", workflow: "rollout-1", function: "unknown", place: inProduction,
			granted: []int64{production}, want: "does not state",
		},
		{
			name: "after an abort", workflow: "rollout-1", function: "change", place: inProduction, granted: []int64{production}, with: suspended,
			want: "is being aborted",
		},
		{
			name: "taken back after an abort", workflow: "rollout-1", function: "undo", place: inProduction,
			granted: []int64{production}, with: suspended,
		},
		{
			name: "taken back without a passage", workflow: "rollout-1", function: "undo", place: inProduction, with: suspended,
			want: "passage production",
		},
		{name: "after a retry", workflow: "rollout-1", function: "change", place: inProduction, granted: []int64{production}, with: retried},
		{
			name: "after the end", workflow: "rollout-1", function: "change", place: inProduction, granted: []int64{production}, with: revoked,
			want: "has ended",
		},
		{
			name: "taken back after the end", workflow: "rollout-1", function: "undo", place: inProduction, granted: []int64{production},
			with: revoked, want: "has ended",
		},
		{name: "in progress at the upgrade", workflow: "rollout-1", function: "change", place: inProduction, with: exempt},
		{
			name: "no places were reported, no passage", workflow: "rollout-1", function: "change", place: inProduction, with: unreported,
			want: "no passage of the rollout opens",
		},
		{name: "no places were reported, no rollout", workflow: "nightly", function: "change", place: inProduction, with: unreported},
		{
			name: "no rollout, a protected environment", workflow: "nightly", function: "change", place: inProduction,
			want: "environment production is protected",
		},
		{name: "no rollout, its file", workflow: "nightly", function: "change", place: file, want: "environment production is protected"},
		{
			name: "no rollout, its Application", workflow: "nightly", function: "change",
			place: `{"agent_id": 7, "application": "argocd/production"}`, want: "protected",
		},
		{name: "no rollout, its object in a shared namespace", workflow: "nightly", function: "change", place: shared, want: "protected"},
		{name: "no rollout, a preview of production", workflow: "preview-4", function: "change", place: inProduction, want: "protected"},
		{name: "no rollout, an id that resembles one", workflow: "rollout-01", function: "change", place: inProduction, want: "protected"},
		{name: "no rollout, an environment that is not protected", workflow: "nightly", function: "change", place: inStaging},
		{name: "no rollout, a file beside", workflow: "nightly", function: "change", place: base},
		{name: "no rollout, a namespace of nobody", workflow: "nightly", function: "change", place: elsewhere},
		{name: "no rollout, an Application of nobody", workflow: "nightly", function: "change", place: stranger, want: "production is protected"},
		{name: "no rollout, another cluster", workflow: "nightly", function: "change", place: otherCluster},
		{name: "no rollout, taken back", workflow: "nightly", function: "undo", place: inProduction, want: "protected"},
	} {
		k := everywhere().granted(tt.granted...)
		if tt.with != nil {
			tt.with(k)
		}
		err := k.admit(t, tt.workflow, tt.function, tt.place)
		refusal, _ := errors.AsType[*history.FunctionError](err)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && err == nil:
			t.Errorf("%s: found %v, want %q", tt.name, err, tt.want)
		case tt.want != "" && (refusal == nil || refusal.Code != history.CodeForbidden || refusal.Retryable ||
			!strings.Contains(refusal.Error(), tt.want)):
			t.Errorf("%s: found %v, want a refusal with %q", tt.name, err, tt.want)
		}
	}
}

// What a rollout has pinned decides, also after the environment has moved; a narrower place of another environment stays closed.
func TestAPassageOpensWhatTheRolloutHasPinned(t *testing.T) {
	t.Parallel()
	k := everywhere()
	k.run.Passages = []Passage{{Environment: staging, At: noon, Places: []activity.Place{{Agent: 7}, {Repository: activity.AnyRepository}}}}
	for place, want := range map[string]bool{
		`{"agent_id": 7, "namespace": "former", "name": "api"}`:                                 true,
		`{"agent_id": 7, "namespace": "production", "name": "api"}`:                             false,
		`{"repository": "https://git.example.com/former", "branch": "main", "path": "a"}`:       true,
		`{"repository": "` + repository + `", "branch": "main", "path": "production/api.yaml"}`: false,
		`{"agent_id": 8, "namespace": "former"}`:                                                false,
	} {
		if err := k.admit(t, "rollout-1", "change", place); (err == nil) != want {
			t.Errorf("%s: found %v", place, err)
		}
	}
}

// What is deployed in an archived environment keeps running there: it stays closed to others, until an environment of its name succeeds
// it.
func TestAnArchivedEnvironmentStaysProtected(t *testing.T) {
	t.Parallel()
	const object = `{"agent_id": 7, "namespace": "production", "name": "api"}`
	const successor = 9
	archived := func() *kept {
		k := everywhere()
		k.territories[1].Archived = true
		k.territories = Together(k.territories)
		k.run.Passages = []Passage{{Environment: staging, At: noon, Places: []activity.Place{{Agent: 7}}}}
		return k
	}
	for _, workflow := range []string{"nightly", "rollout-1"} {
		if err := archived().admit(t, workflow, "change", object); err == nil ||
			!strings.Contains(err.Error(), "production is protected and archived") {
			t.Errorf("%s: found %v, want it refused", workflow, err)
		}
	}
	open := archived()
	open.territories = append(open.territories, Territory{Environment: successor, Name: "production"})
	open.run.Passages = []Passage{{Environment: successor, At: noon, Places: []activity.Place{{Agent: 7}}}}
	if err := open.admit(t, "rollout-1", "change", object); err != nil {
		t.Errorf("the environment that was made under its name: %v", err)
	}
	direct := everywhere()
	direct.territories[1].Archived, direct.territories[1].Protected = true, false
	if direct.territories = Together(direct.territories); len(direct.territories) != 1 {
		t.Errorf("archived, and open to direct changes: found %+v", direct.territories)
	}
}

// A URL that a server may read as a place of an environment is refused, although the guard reads it as another one (D46).
func TestAURLInAnotherSpelling(t *testing.T) {
	t.Parallel()
	k := everywhere()
	k.territories[1].Places = append(k.territories[1].Places, activity.Place{URL: "https://api.example.com/production"})
	for place, want := range map[string]string{
		`{"url": "https://api.example.com/production/x"}`:            "production is protected",
		`{"url": "https://api.example.com/x/%252e%252e/production"}`: "several ways",
		`{"url": "http://203.0.113.7/production"}`:                   "by its address",
		`{"url": "https://api.example.com/staging"}`:                 "",
		`{"url": "https://other.example.com/a%2Fb"}`:                 "",
	} {
		if err := k.admit(t, "nightly", "change", place); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, want %q", place, err, want)
		}
	}
	k.run.Passages = []Passage{{Environment: staging, At: noon, Places: []activity.Place{{URL: "https://api.example.com/staging"}}}}
	for place, want := range map[string]string{
		`{"url": "https://api.example.com/staging/x"}`:             "",
		`{"url": "https://api.example.com/staging%2Fx"}`:           "several ways",
		`{"url": "https://api.example.com/staging/%2e%2e/public"}`: "no passage",
	} {
		if err := k.admit(t, "rollout-1", "change", place); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a rollout, %s: found %v, want %q", place, err, want)
		}
	}
}

// The relay receives the weights whose passages are missing; those granted before an abort have ended with it.
func TestHeldWeights(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		passages []Passage
		aborted  time.Time
		want     []int
	}{
		{"none pinned", []Passage{{Environment: production}}, time.Time{}, nil},
		{"none granted", []Passage{{Environment: production, Pinned: []int{25, 50}}}, time.Time{}, []int{25, 50}},
		{
			"one granted",
			[]Passage{{Environment: production, Pinned: []int{25, 50}}, {Environment: production, Weight: 25, At: noon}},
			time.Time{},
			[]int{50},
		},
		{
			"another environment's",
			[]Passage{{Environment: production, Pinned: []int{25}}, {Environment: staging, Weight: 25, At: noon}},
			time.Time{},
			[]int{25},
		},
		{
			"before an abort",
			[]Passage{{Environment: production, Pinned: []int{25}}, {Environment: production, Weight: 25, At: noon}},
			noon.Add(time.Second),
			[]int{25},
		},
		{
			"after an abort",
			[]Passage{{Environment: production, Pinned: []int{25}}, {Environment: production, Weight: 25, At: noon}},
			noon.Add(-time.Second), nil,
		},
	} {
		run := Run{Passages: tt.passages, AbortedAt: tt.aborted}
		held, _, problem := run.opensAll(everywhere().territories, []activity.Place{{Agent: 7, Namespace: "production", Name: "api"}})
		if problem != "" || !slices.Equal(held, tt.want) {
			t.Errorf("%s: found %v %q, want %v", tt.name, held, problem, tt.want)
		}
	}
}

// Places are read again when their version has changed, and only then. What cannot be read now admits nothing.
func TestTheGuardReadsPlacesOnce(t *testing.T) {
	t.Parallel()
	k := everywhere()
	functions, err := activity.NewFunctions(act{"change", activity.Changes})
	if err != nil {
		t.Fatal(err)
	}
	g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
	change := func() error {
		return g.Admit(t.Context(), &agent.OutgoingCall{
			Organization: 1, Workflow: "nightly", Function: "change",
			Args: json.RawMessage(`{"agent_id": 7, "namespace": "staging"}`),
		})
	}
	for range 3 {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	if k.reads != 1 {
		t.Errorf("read %d times, want once", k.reads)
	}
	k.run.Version, k.territories[0].Protected = 2, true
	if err := change(); err == nil || k.reads != 2 {
		t.Errorf("after a change: %v, read %d times", err, k.reads)
	}
	k.err = fmt.Errorf("away")
	_, refused := errors.AsType[*history.FunctionError](change())
	if err := change(); err == nil || refused {
		t.Errorf("while nothing can be read: %v", err)
	}
}

// owning is a Function whose calls change objects of an owner.
type owning struct{ act }

func (owning) Owned() bool { return true }

// Whose objects a call changes follows from the passage that opens it, never from what the program says. Cluster-scoped objects
// belong to every environment of the cluster, so no run changes them past a protected one.
func TestTheOwnerOfObjects(t *testing.T) {
	t.Parallel()
	const cluster = `{"agent_id": 7}`
	inProduction, inStaging := `{"agent_id": 7, "namespace": "production", "name": "api"`,
		`{"agent_id": 7, "namespace": "staging", "name": "api"}`
	whole := func(k *kept) { k.run.Passages[0].Places = []activity.Place{{Agent: 7}} }
	both := func(k *kept) {
		for i := range k.run.Passages {
			k.run.Passages[i].Places = []activity.Place{{Agent: 7, Namespace: "production"}}
		}
	}
	for _, tt := range []struct {
		name, workflow, function, args string
		granted                        []int64
		with                           func(*kept)
		owner, want                    string
	}{
		{name: "the passage", workflow: "rollout-1", args: inProduction + `}`, granted: []int64{production}, owner: "o1.e5.a12"},
		{name: "no passage", workflow: "rollout-1", args: inProduction + `}`, granted: []int64{staging}, want: "passage production"},
		{name: "one of two", workflow: "rollout-1", args: inStaging, granted: []int64{staging, production}, owner: "o1.e3.a12"},
		{
			name: "two environments in one namespace", workflow: "rollout-1", args: inProduction + `}`, granted: []int64{staging, production},
			with: both, want: "expected environment_id",
		},
		{
			name: "one of them, named", workflow: "rollout-1", args: inProduction + `, "environment_id": 3}`, granted: []int64{staging, production},
			with: both, owner: "o1.e3.a12",
		},
		{
			name: "an environment of another rollout", workflow: "rollout-1", args: inProduction + `, "environment_id": 9}`,
			granted: []int64{production}, want: "no passage of environment 9",
		},
		{name: "another Function", workflow: "rollout-1", function: "change", args: inProduction + `}`, granted: []int64{production}},
		{
			name: "cluster-scoped, with a passage for a namespace", workflow: "rollout-1", args: cluster, granted: []int64{production},
			want: "no passage of the rollout opens cluster-scoped objects",
		},
		{
			name: "cluster-scoped, with a passage for the cluster", workflow: "rollout-1", args: cluster, granted: []int64{staging}, with: whole,
			owner: "o1.e3.a12",
		},
		{name: "no rollout, cluster-scoped", workflow: "nightly", args: cluster, want: "environment production is protected"},
		{name: "no rollout, cluster-scoped, another cluster", workflow: "nightly", args: `{"agent_id": 8}`, owner: "o1.direct"},
		{name: "no rollout", workflow: "nightly", args: inStaging, owner: "o1.direct"},
		{
			name: "no rollout, an environment that it names", workflow: "nightly",
			args: `{"agent_id": 7, "namespace": "staging", "name": "api", "environment_id": 5}`, owner: "o1.direct",
		},
		{name: "no rollout, no place", workflow: "nightly", args: `{}`, want: "do not name what it changes"},
		{
			name: "a rollout of an earlier release", workflow: "rollout-1", args: inProduction + `}`, with: func(k *kept) { k.run.Exempt = true },
			owner: "o1.direct",
		},
	} {
		k := everywhere().granted(tt.granted...)
		k.run.Application = 12
		if tt.with != nil {
			tt.with(k)
		}
		functions, err := activity.NewFunctions(owning{act{"apply", activity.Changes}}, act{"change", activity.Changes})
		if err != nil {
			t.Fatal(err)
		}
		call := agent.OutgoingCall{Organization: 1, Workflow: tt.workflow, Function: "apply", Args: json.RawMessage(tt.args)}
		if tt.function != "" {
			call.Function = tt.function
		}
		err = New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler)).Admit(t.Context(), &call)
		if call.Owner != tt.owner || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: owner %q, %v, want %q %q", tt.name, call.Owner, err, tt.owner, tt.want)
		}
	}
}

// ends is a Function that stops what an operation has started.
type ends struct{ act }

func (ends) Ends(args map[string]any) string {
	operation, _ := args["operation"].(string)
	return operation
}

// After its end, a rollout's run only ends what it has started itself (D46, D54).
func TestARunEndsItsOwnAfterTheRollout(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		`{"agent_id": 7, "namespace": "production", "operation": "rollout-1.migrate"}`:  true,
		`{"agent_id": 7, "namespace": "production", "operation": "rollout-12.migrate"}`: false,
		`{"agent_id": 7, "namespace": "production", "operation": "rollout-1"}`:          false,
		`{"agent_id": 7, "namespace": "production"}`:                                    false,
	} {
		k := everywhere()
		k.run.Revoked = true
		functions, err := activity.NewFunctions(ends{act{"stop", activity.TakesBack}}, ends{act{"change", activity.Changes}})
		if err != nil {
			t.Fatal(err)
		}
		g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
		for function, allowed := range map[string]bool{"stop": want, "change": false} {
			call := agent.OutgoingCall{Organization: 1, Workflow: "rollout-1", Function: function, Args: json.RawMessage(args)}
			if err := g.Admit(t.Context(), &call); (err == nil) != allowed {
				t.Errorf("%s %s: found %v, expected allowed %t", function, args, err, allowed)
			}
		}
	}
}

// confined is a Function that takes something back only at places of a path.
type confined struct{ act }

func (confined) TakesBackAt(opened, _ activity.Place) bool {
	return strings.HasSuffix(opened.URL, "/workflows/shop")
}

// During an abort, a call that takes something back only at some places is executed only where a passage opens one of them (R2-34).
func TestWhatIsTakenBackOnlyWhereItIsDeclared(t *testing.T) {
	t.Parallel()
	const stop = "https://argo.example.com/workflows/shop/deploy/stop"
	functions, err := activity.NewFunctions(confined{act{"stop", activity.TakesBack}}, act{"undo", activity.TakesBack})
	if err != nil {
		t.Fatal(err)
	}
	for opened, want := range map[string]string{
		"https://argo.example.com/workflows/shop":  "",
		"https://argo.example.com":                 "does not declare",
		activity.AnyURL:                            "does not declare",
		"https://argo.example.com/workflows/other": "no passage of the rollout opens",
	} {
		for function, want := range map[string]string{"stop": want, "undo": strings.ReplaceAll(want, "does not declare", "")} {
			k := &kept{run: Run{Version: 1, AbortedAt: noon.Add(time.Minute), Passages: []Passage{
				{Environment: staging, At: noon, Places: []activity.Place{{Agent: 7}, {URL: opened}}},
			}}}
			call := agent.OutgoingCall{Organization: 1, Workflow: "rollout-1", Function: function, Args: json.RawMessage(`{"url": "` + stop + `"}`)}
			err := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler)).Admit(t.Context(), &call)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s with a passage of %s: found %v, expected %q", function, opened, err, want)
			}
			k.run.RetriedAt = noon.Add(2 * time.Minute)
			g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
			if err := g.Admit(t.Context(), &call); want == "does not declare" && err != nil {
				t.Errorf("%s with a passage of %s, retried: found %v", function, opened, err)
			}
		}
	}
}

// D55: a proposal needs no passage, in whichever run. It is refused once the rollout has ended, and where an environment is deployed
// from a branch of proposals, however that is written.
func TestProposals(t *testing.T) {
	t.Parallel()
	functions, err := activity.NewFunctions(act{"propose", activity.Proposes})
	if err != nil {
		t.Fatal(err)
	}
	const proposal = `{"repository": "https://git.example.com/Deploy.git", "branch": "lockstep/proposals/", "path": "."}`
	with := func(p activity.Place) func(*kept) {
		return func(k *kept) {
			k.territories = append(k.territories, Territory{Environment: 9, Name: "other", Places: []activity.Place{p}})
		}
	}
	for name, tt := range map[string]struct {
		workflow, place string
		with            func(*kept)
		want            string
	}{
		"a rollout without a passage": {workflow: "rollout-1", place: proposal},
		"another run":                 {workflow: "nightly", place: proposal},
		"during an abort":             {workflow: "rollout-1", place: proposal, with: func(k *kept) { k.run.AbortedAt = noon }},
		"after its end":               {workflow: "rollout-1", place: proposal, with: func(k *kept) { k.run.Revoked = true }, want: "has ended"},
		"no place":                    {workflow: "rollout-1", place: `{}`, want: "do not name what"},
		"an environment of any branch": {
			workflow: "rollout-1", place: proposal, with: with(activity.Place{Repository: repository, Path: "."}),
		},
		"another repository": {
			workflow: "rollout-1", place: proposal, with: with(activity.Place{Repository: repository + "2", Branch: "lockstep/proposals/o1/a/b"}),
		},
		"an environment of such a branch": {
			workflow: "nightly", place: proposal, with: with(activity.Place{Repository: repository, Branch: "Lockstep/proposals/o1/a/b"}),
			want: "an environment is deployed from branch Lockstep/proposals/o1/a/b",
		},
		"a passage for such a branch": {
			workflow: "rollout-1", place: proposal, with: func(k *kept) {
				k.run.Passages = []Passage{{Environment: staging, At: noon, Places: []activity.Place{
					{Repository: activity.AnyRepository, Branch: "refs/heads/lockstep/proposals/x"},
				}}}
			}, want: "an environment is deployed from branch",
		},
	} {
		k := everywhere()
		if tt.with != nil {
			tt.with(k)
		}
		g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
		err := g.Admit(t.Context(), &agent.OutgoingCall{
			Organization: 1, Workflow: tt.workflow, Function: "propose", Args: json.RawMessage(tt.place),
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// entering is a Function of which all calls are executed in the runs of rollouts alone.
type entering struct{ act }

func (entering) Entered(map[string]any) bool { return true }

// D55, D46: the branch of a proposal is merged over Git's protocol, with an account that may push to the branch that is deployed. So a
// program gets there in the run of a rollout alone, with the passage of the environment that has the files; also where no environment was
// reported, in a run from before, for files that belong to none, and for environments that accept direct changes.
func TestWhoMergesABranchAlone(t *testing.T) {
	t.Parallel()
	functions, err := activity.NewFunctions(entering{act{"merge", activity.Changes}})
	if err != nil {
		t.Fatal(err)
	}
	file := func(branch, path string) string {
		return `{"repository": "` + repository + `", "branch": "` + branch + `", "path": "` + path + `"}`
	}
	const onlyRollouts = "only the run of a rollout does this"
	for name, tt := range map[string]struct {
		workflow, place string
		granted         []int64
		with            func(*kept)
		want            string
	}{
		"the passage":                      {workflow: "rollout-1", place: file("main", "production/api.yaml"), granted: []int64{production}},
		"no passage":                       {workflow: "rollout-1", place: file("main", "production/api.yaml"), want: "passage production has not been granted"},
		"another environment's passage":    {workflow: "rollout-1", place: file("main", "production/api.yaml"), granted: []int64{staging}, want: "passage production"},
		"a file of no passage":             {workflow: "rollout-1", place: file("main", "README.md"), granted: []int64{production}, want: "passage staging has not been granted"},
		"another branch":                   {workflow: "rollout-1", place: file("next", "production/api.yaml"), granted: []int64{production}, want: "no passage of the rollout opens"},
		"a branch of proposals":            {workflow: "rollout-1", place: file("lockstep/proposals/o1/rollout-2/x", "a"), granted: []int64{production}, want: "no passage of the rollout opens"},
		"another run":                      {workflow: "nightly", place: file("main", "production/api.yaml"), want: onlyRollouts},
		"another run, direct changes":      {workflow: "nightly", place: file("main", "staging/api.yaml"), want: onlyRollouts},
		"another run, a file of none":      {workflow: "nightly", place: file("next", "x"), want: onlyRollouts},
		"another run, nothing is reported": {workflow: "nightly", place: file("main", "x"), with: func(k *kept) { k.run.Version = 0 }, want: onlyRollouts},
		"a child of another run":           {workflow: "child", place: file("next", "x"), with: func(k *kept) { k.run.Root = "nightly" }, want: onlyRollouts},
		"a rollout from before":            {workflow: "rollout-1", place: file("main", "x"), with: func(k *kept) { k.run.Exempt = true }, want: onlyRollouts},
		"after the end":                    {workflow: "rollout-1", place: file("main", "production/api.yaml"), granted: []int64{production}, with: func(k *kept) { k.run.Revoked = true }, want: "has ended"},
		"during an abort":                  {workflow: "rollout-1", place: file("main", "production/api.yaml"), granted: []int64{production}, with: func(k *kept) { k.run.AbortedAt = noon.Add(1) }, want: "is being aborted"},
		"after a cancellation": {
			workflow: id.CancelledRun(1), place: file("main", "production/api.yaml"), granted: []int64{production},
			with: func(k *kept) { k.run.Revoked, k.run.CancelledAt = true, noon }, want: "only calls that take back",
		},
	} {
		k := everywhere().granted(tt.granted...)
		if tt.with != nil {
			tt.with(k)
		}
		g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
		err := g.Admit(t.Context(), &agent.OutgoingCall{
			Organization: 1, Workflow: tt.workflow, Function: "merge", Args: json.RawMessage(tt.place),
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// R3-09: a status can be what a forge requires for a merge, so only the domain service's own runs publish one: no rollout, no other run,
// and no child of such a run, whatever passages there are.
func TestPublications(t *testing.T) {
	t.Parallel()
	functions, err := activity.NewFunctions(act{"publish", activity.Publishes})
	if err != nil {
		t.Fatal(err)
	}
	child, err := id.ChildRun(id.ForgeStatusRun(4, 1), "key", "")
	if err != nil {
		t.Fatal(err)
	}
	for workflow, want := range map[string]bool{
		id.ForgeStatusRun(4, 1): true, id.ForgePullRun(4, 1): true, "forge-pull-4": false, "forge-pull-04-1": false, "rollout-1": false, "nightly": false, "forge-status-4": false, "forge-status-04-1": false,
		"x-forge-status-4-1": false, child: false, id.NotificationRun(4, 1): false,
	} {
		for _, exempt := range []bool{false, true} {
			k := everywhere()
			k.run.Exempt = exempt
			g := New(k, functions, clocktest.New(noon), slog.New(slog.DiscardHandler))
			f, _ := functions.Lookup("publish")
			err := g.Check(t.Context(), f, activity.Call{Organization: 1, Workflow: workflow, Function: "publish", Args: map[string]any{}})
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "only the domain service publishes") {
				t.Errorf("%s: found %v; want allowed %t", workflow, err, want)
			}
		}
	}
}

// D61, D46: what belongs to an environment of many clusters belongs to it in the cluster of each target, and nobody else changes it there.
func TestTheTargetsOfAFleetAreProtected(t *testing.T) {
	t.Parallel()
	k := &kept{run: Run{Version: 1}, territories: Together([]Territory{
		{Environment: 9, Name: "edge", Protected: true, Fleet: &Fleet{Agents: []int64{7}, Targets: []int64{51, 52}}},
		{Environment: 9, Application: 1, Name: "edge", Places: []activity.Place{{Agent: 7, Namespace: "shop"}, {Agent: 8, Namespace: "other"}}},
	})}
	for place, refused := range map[string]bool{
		`{"agent_id": 7, "namespace": "shop", "name": "api"}`:  true,
		`{"agent_id": 51, "namespace": "shop", "name": "api"}`: true,
		`{"agent_id": 52, "namespace": "shop"}`:                true,
		`{"agent_id": 52, "application": "argocd/stranger"}`:   true,
		`{"agent_id": 51, "namespace": "tools"}`:               false,
		`{"agent_id": 51, "namespace": "other"}`:               false,
		`{"agent_id": 53, "namespace": "shop"}`:                false,
		`{"agent_id": 53, "application": "argocd/stranger"}`:   false,
	} {
		if err := k.admit(t, "adhoc", "change", place); refused != (err != nil) {
			t.Errorf("a run of no rollout changes %s: %v, want refused %t", place, err, refused)
		}
	}
	// A rollout to another environment that has the whole cluster needs the passage of the fleet for its part of it.
	k.run.Passages = []Passage{{Environment: 5, At: noon, Places: []activity.Place{{Agent: 51}}}}
	if err := k.admit(t, "rollout-1", "change", `{"agent_id": 51, "namespace": "shop"}`); err == nil ||
		!strings.Contains(err.Error(), "passage edge") {
		t.Errorf("another environment's rollout: %v", err)
	}
	k.granted(9)
	k.run.Passages[1].Places = []activity.Place{{Agent: 7, Namespace: "shop"}, {Agent: 51, Namespace: "shop"}}
	if err := k.admit(t, "rollout-1", "change", `{"agent_id": 51, "namespace": "shop"}`); err != nil {
		t.Errorf("with the passage of the fleet: %v", err)
	}
}

// The guard keeps the targets once for an environment, so what a call costs does not grow with them.
func BenchmarkACallInAFleet(b *testing.B) {
	fleet := &Fleet{Agents: []int64{7}}
	for i := range int64(1000) {
		fleet.Targets = append(fleet.Targets, 100+i)
	}
	t := Territory{Environment: 9, Name: "edge", Fleet: fleet, Places: []activity.Place{{Agent: 7, Namespace: "shop"}}}
	for b.Loop() {
		if t.covers(activity.Place{Agent: 600, Namespace: "shop"}) == 0 {
			b.Fatal("not covered")
		}
	}
}

// stops is a Function that takes something back at places that are declared for that only, as a stop of a Workflow at an Argo Server does.
type stops struct{ act }

func (stops) TakesBackAt(opened, touched activity.Place) bool {
	return opened.URL != activity.AnyURL && opened.Covers(touched) > 0
}

// D53, R2-34: the run that stops what a cancelled rollout has left behind takes back, for an hour, what the passages of the rollout opened,
// and nothing else. Until the end of the rollout has arrived its calls are tried again, and the rollout's own run changes nothing more.
func TestAfterACancellation(t *testing.T) {
	t.Parallel()
	functions, err := activity.NewFunctions(
		act{"look", activity.Reads}, act{"change", activity.Changes}, act{"undo", activity.TakesBack}, act{"propose", activity.Proposes},
		stops{act{"stop", activity.TakesBack}}, ends{act{"end", activity.TakesBack}},
	)
	if err != nil {
		t.Fatal(err)
	}
	const (
		inProduction = `{"agent_id": 7, "namespace": "production", "name": "api"}`
		inStaging    = `{"agent_id": 7, "namespace": "staging", "name": "api"}`
		workflows    = "https://argo.example.com/api/v1/workflows/shop"
		atServer     = `{"url": "` + workflows + `/deploy-api/stop"}`
		elsewhere    = `{"url": "https://argo.example.com/api/v1/workflows/other/x/stop"}`
		own          = `{"agent_id": 7, "namespace": "production", "name": "api", "operation": "rollout-1.deployment-2.1"}`
		ofNext       = `{"agent_id": 7, "namespace": "production", "name": "api", "operation": "rollout-12.deployment-3.1"}`
	)
	ofRollout := id.CancelledRun(1)
	child, err := id.ChildRun(ofRollout, "key", "")
	if err != nil {
		t.Fatal(err)
	}
	overtaken := func(k *kept) { k.run.Passages[0].Overtaken = true }
	forbidden := func(problem string) string { return "forbidden: " + problem }
	for name, tt := range map[string]struct {
		workflow, function, place string
		with                      func(*kept)
		after                     time.Duration
		want                      string
	}{
		"takes back":                  {function: "undo", place: inProduction},
		"takes back at a server":      {function: "stop", place: atServer},
		"ends its own":                {function: "end", place: own},
		"ends its own, overtaken":     {function: "end", place: own, with: overtaken},
		"ends that of the next":       {function: "end", place: ofNext, want: forbidden("the rollout was cancelled, and the call does not state an operation that begins with rollout-1.")},
		"ends without an operation":   {function: "end", place: inProduction, want: forbidden("the rollout was cancelled, and the call does not state")},
		"takes back, overtaken":       {function: "undo", place: inProduction, with: overtaken, want: forbidden("another rollout has entered the environment since")},
		"at a server, overtaken":      {function: "stop", place: atServer, with: overtaken, want: forbidden("another rollout has entered the environment since")},
		"a child takes back":          {workflow: child, function: "undo", place: inProduction},
		"reads":                       {function: "look", place: inProduction},
		"changes":                     {function: "change", place: inProduction, want: forbidden("the rollout was cancelled; only calls that take back")},
		"proposes":                    {function: "propose", place: inProduction, want: forbidden("the rollout has ended, and it proposes nothing more")},
		"what was not opened":         {function: "undo", place: inStaging, want: forbidden("passage staging has not been granted")},
		"another place at the server": {function: "stop", place: elsewhere, want: "forbidden: "},
		"at the last moment":          {function: "undo", place: inProduction, after: TakesBackFor - time.Second},
		"too late":                    {function: "undo", place: inProduction, after: TakesBackFor, want: forbidden("the rollout was cancelled more than 1h0m0s ago")},
		"the end has not arrived": {
			function: "undo", place: inProduction, with: func(k *kept) { k.run.Revoked, k.run.CancelledAt = false, time.Time{} },
			want: `the end of the rollout of "rollout-1-cancelled" has not arrived yet`,
		},
		"completed": {
			function: "undo", place: inProduction, with: func(k *kept) { k.run.CancelledAt = time.Time{} }, want: forbidden("the rollout was not cancelled"),
		},
		"without passages":         {function: "undo", place: inProduction, with: func(k *kept) { k.run.Passages = nil }, want: "forbidden: passage production"},
		"the rollout's own run":    {workflow: "rollout-1", function: "undo", place: inProduction, want: forbidden("the rollout has ended")},
		"a name that is like it":   {workflow: "rollout-1-cancelled-2", function: "undo", place: inProduction, want: forbidden("environment production is protected")},
		"a retry before the abort": {function: "undo", place: inProduction, with: func(k *kept) { k.run.RetriedAt = noon.Add(time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := everywhere()
			k.run.Passages = []Passage{{Environment: production, At: noon, Places: []activity.Place{
				{Agent: 7, Namespace: "production"}, {URL: workflows},
			}}}
			k.run.Revoked, k.run.CancelledAt = true, noon
			workflow := ofRollout
			if tt.workflow != "" {
				workflow = tt.workflow
			}
			if workflow == child || workflow == ofRollout {
				k.run.Root = ofRollout
			}
			if tt.with != nil {
				tt.with(k)
			}
			g := New(k, functions, clocktest.New(noon.Add(tt.after)), slog.New(slog.DiscardHandler))
			err := g.Admit(t.Context(), &agent.OutgoingCall{
				Organization: 1, Workflow: workflow, Function: tt.function, Args: json.RawMessage(tt.place),
			})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			var refused *history.FunctionError
			if isRefusal := errors.As(err, &refused); isRefusal != strings.HasPrefix(tt.want, "forbidden: ") {
				t.Errorf("%v: a refusal %t, expected that a call is tried again only while the end has not arrived", err, isRefusal)
			}
		})
	}
}
