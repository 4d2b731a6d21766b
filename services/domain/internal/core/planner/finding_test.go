package planner_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// R4-19, R4-15 [E]: what a driver's comparison means, in the order of the requirement, and what contradicts what is known leaves the
// pipeline in force.
func TestWhatAComparisonMeans(t *testing.T) {
	t.Parallel()
	image := planner.Thing{Kind: planner.Image, Action: "changed", Object: "Deployment/api", Detail: "api:1 → api:2"}
	replicas := planner.Thing{Kind: planner.Replicas, Action: "changed", Object: "Deployment/api", Detail: "2 → 4"}
	config := planner.Thing{Kind: planner.ConfigMap, Action: "added", Object: "ConfigMap/api"}
	service := planner.Thing{Kind: planner.Other, Action: "changed", Object: "Service/api"}
	in := func(workloads int, things ...planner.Thing) planner.Compared {
		return planner.Compared{Environment: "staging", Workloads: workloads, Things: things}
	}
	for name, c := range map[string]struct {
		all   []planner.Compared
		added []string
		want  planner.Strategy
		why   string
	}{
		"no workload":        {[]planner.Compared{in(0)}, nil, planner.Quick, "the manifests have no workload"},
		"an image":           {[]planner.Compared{in(1, replicas, image)}, []string{"api:2"}, planner.Pipeline, "image of Deployment/api: api:1 → api:2"},
		"a pod template":     {[]planner.Compared{in(1, planner.Thing{Kind: planner.PodTemplate, Action: "changed", Object: "Deployment/api"})}, nil, planner.Pipeline, "pod template Deployment/api changed"},
		"a config map":       {[]planner.Compared{in(1, replicas, config)}, nil, planner.Pipeline, "config map ConfigMap/api added"},
		"a secret":           {[]planner.Compared{in(1, planner.Thing{Kind: planner.Secret, Action: "removed", Object: "SealedSecret/api"})}, nil, planner.Pipeline, "secret SealedSecret/api removed"},
		"replicas only":      {[]planner.Compared{in(1, replicas, service)}, nil, planner.Quick, "to scale: only replicas change (replicas of Deployment/api: 2 → 4)"},
		"another object":     {[]planner.Compared{in(1, service)}, nil, planner.Quick, "no workload and no configuration changes"},
		"nothing":            {[]planner.Compared{in(1)}, nil, planner.Quick, "no workload and no configuration changes"},
		"an error":           {[]planner.Compared{{Environment: "staging", Reason: "no such file"}}, nil, planner.Pipeline, "the manifests of staging could not be compared: no such file"},
		"no answer":          {nil, nil, planner.Pipeline, "the driver has not compared the manifests of staging"},
		"another's answer":   {[]planner.Compared{{Environment: "production", Workloads: 1}}, nil, planner.Pipeline, "has not compared the manifests of staging"},
		"a hidden new image": {[]planner.Compared{in(1, replicas)}, []string{"api:2"}, planner.Pipeline, "api:2 is new, and the driver lists no image that changes"},
		"no workload, and a new image": {
			[]planner.Compared{in(0)}, []string{"api:2"}, planner.Pipeline, "api:2 is new, and the driver lists no image that changes",
		},
		"an unknown kind": {[]planner.Compared{in(1, planner.Thing{Kind: "harmless"})}, nil, planner.Pipeline, `unknown kind "harmless"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := planner.Find([]string{"staging"}, c.all, c.added)
			if got.Strategy != c.want || !strings.Contains(got.Summary, c.why) {
				t.Errorf("found %+v; want %s: %s", got, c.want, c.why)
			}
		})
	}
}

// The platform is asked only where nothing before decides, and where the pipeline wants it (R4-17, R4-19).
func TestThePlatformIsAskedLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*planner.Facts)
		want   bool
	}{
		"nothing decides":         {func(f *planner.Facts) { f.Rules.Compare = true }, true},
		"switched off":            {func(*planner.Facts) {}, false},
		"known already":           {func(f *planner.Facts) { f.Rules.Compare, f.Finding = true, &planner.Finding{Strategy: planner.Quick} }, false},
		"a person has chosen":     {func(f *planner.Facts) { f.Rules.Compare, f.Choice = true, planner.ChooseQuick }, false},
		"always by the pipeline":  {func(f *planner.Facts) { f.Rules.Compare, f.Rules.Always = true, true }, false},
		"nothing is deployed yet": {func(f *planner.Facts) { f.Rules.Compare, f.Deployed = true, false }, false},
		"a choice that is refused": {
			func(f *planner.Facts) { f.Rules.Compare, f.Choice, f.Weights = true, planner.ChoosePipeline, false }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := planner.Asks(usual(c.change)); got != c.want {
				t.Errorf("found %t, want %t", got, c.want)
			}
		})
	}
}
