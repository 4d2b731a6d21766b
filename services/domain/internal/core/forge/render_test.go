package forge

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// R4-27, D60: overlays and charts are those that the configuration of an environment names, whatever its driver; where Argo CD or Flux have
// them in their own objects, nothing is guessed.
func TestWhatEnvironmentsAreDeployedFrom(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	for name, c := range map[string]struct {
		config string
		want   []target
	}{
		"kubernetes, an overlay": {
			`{"kustomize": {"path": "overlays/staging/"}, "namespace": "shop"}`,
			[]target{{Near: []string{"overlays/staging"}, Under: []string{""}, Kustomize: m{"path": "overlays/staging"}}},
		},
		"kubernetes, an overlay with a root": {
			`{"kustomize": {"path": "a/staging", "root": "a"}}`,
			[]target{{Near: []string{"a/staging"}, Under: []string{"a"}, Kustomize: m{"path": "a/staging", "root": "a"}}},
		},
		"kubernetes, a chart": {
			`{"helm": {"path": "chart", "value_files": ["staging.yaml"], "skip_hooks": true}, "namespace": "shop", "services": [{"service": "api"}]}`,
			[]target{{Near: []string{"chart", "staging.yaml"}, Under: []string{"chart", "staging.yaml"}, Helm: m{
				"path": "chart", "value_files": []string{"staging.yaml"}, "skip_hooks": true, "release": "api", "namespace": "shop",
			}}},
		},
		"kubernetes, a chart of a registry with values of the repository": {
			`{"helm": {"chart": "oci://r.test/api", "version": "1.0.0", "release": "x", "value_files": ["v.yaml"]}, "namespace": "shop"}`,
			[]target{{Near: []string{"v.yaml"}, Under: []string{"v.yaml"}, Helm: m{
				"chart": "oci://r.test/api", "version": "1.0.0", "value_files": []string{"v.yaml"}, "release": "x", "namespace": "shop",
			}}},
		},
		"kubernetes, a chart with values": {
			`{"helm": {"path": "chart", "values": "password: x"}}`, []target{{Near: []string{"chart"}, Under: []string{"chart"}, Not: hasValues}},
		},
		"kubernetes, a chart with a credential": {
			`{"helm": {"chart": "oci://r.test/api", "version": "1.0.0", "credential": "charts", "value_files": ["v.yaml"]}}`,
			[]target{{Near: []string{"v.yaml"}, Under: []string{"v.yaml"}, Not: hasCredential}},
		},
		"kubernetes, a chart with APIs": {
			`{"helm": {"path": "chart", "api_versions": ["x/v1"]}}`, []target{{Near: []string{"chart"}, Under: []string{"chart"}, Not: hasSettings}},
		},
		"kubernetes, a chart of a registry alone": {`{"helm": {"chart": "oci://r.test/api", "version": "1.0.0"}}`, nil},
		"files": {`{"files": ["a.yaml"], "services": [{"service": "api"}]}`, nil},
		"argo-rollouts, an overlay and a chart": {
			`{"path": "deploy", "application": "shop", "destination_namespace": "ns", "services": [{"format": "kustomize"}, {"format": "helm"}, {"format": "manifest"}]}`,
			[]target{{Near: []string{"deploy"}, Under: []string{""}, Kustomize: m{"path": "deploy"}}},
		},
		"argo-rollouts, a chart": {
			`{"path": "deploy", "application": "shop", "destination_namespace": "ns", "services": [{"format": "helm"}]}`,
			[]target{{Near: []string{"deploy"}, Under: []string{"deploy"}, Helm: m{"path": "deploy", "release": "shop", "namespace": "ns"}}},
		},
		"git and flux": {
			`{"services": [{"file": "o/kustomization.yaml", "image_name": "api"}, {"file": "o/kustomization.yaml", "image_name": "web"}, {"file": "v.yaml", "field": "image"}]}`,
			[]target{{Near: []string{"o"}, Under: []string{""}, Kustomize: m{"path": "o"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d deployed
			if err := json.Unmarshal([]byte(c.config), &d); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, d.targets(), cmpopts.IgnoreUnexported(target{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// R4-27: what a change touches comes first, by its files: those of which an environment is made, then those that it may refer to. Of the
// whole repository that is no text for people.
func TestWhatAChangeTouches(t *testing.T) {
	t.Parallel()
	all := []target{
		{Environment: "far", Branch: "main", Near: []string{"overlays/far"}, Under: []string{""}},
		{Environment: "near", Branch: "main", Near: []string{"overlays/near"}, Under: []string{"overlays"}},
		{Environment: "chart", Branch: "main", Near: []string{"chart", "values/eu.yaml"}, Under: []string{"chart", "values/eu.yaml"}},
		{Environment: "other", Branch: "release", Near: []string{"overlays/near"}, Under: []string{""}},
	}
	for name, c := range map[string]struct {
		r    reading
		want []string
	}{
		"words":                    {reading{Paths: []string{"README.md", "docs/chart", "main.go"}}, nil},
		"a base":                   {reading{Paths: []string{"base/api.yaml"}}, []string{"far"}},
		"its own file":             {reading{Paths: []string{"overlays/near/kustomization.yaml"}}, []string{"near", "far"}},
		"a name that begins alike": {reading{Paths: []string{"overlays/nearby", "chart2/x"}}, []string{"near"}},
		"a file of values":         {reading{Paths: []string{"values/eu.yaml"}}, []string{"chart", "far"}},
		"not all known":            {reading{Paths: []string{"chart/README.md"}, More: true}, []string{"chart", "far", "near"}},
		"deep":                     {reading{Paths: []string{"chart" + strings.Repeat("/a", 2000)}}, []string{"chart"}},
	} {
		c.r.Into = "main"
		var got []string
		for _, one := range touched(all, c.r) {
			got = append(got, one.Environment)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var many []target
	for i := range 40 {
		one := target{ApplicationID: 7, Environment: fmt.Sprint("e", i), Branch: "main", Near: []string{"chart"}, Under: []string{"chart"}}
		if i%2 == 0 {
			one.Not = hasValues
		}
		many = append(many, one)
	}
	r := reading{Base: "b", Into: "main", Paths: []string{"chart/values.yaml"}}
	render := chosen(touched(many, r))
	if len(render) != mostRendered || render[0].Environment != "e1" {
		t.Errorf("found %d, first %+v; want those that are rendered at all", len(render), render[0])
	}
	for _, one := range render {
		r.Rendered = append(r.Rendered, rendered{ApplicationID: 7, Environment: one.Environment, Resources: []string{"added Pod a"}})
	}
	r = r.withTargets(many)
	text := comment(r, nil, false)
	if r.Unrendered != 10 || len(r.Withheld) != 20 || strings.Count(text, "not rendered: "+hasValues) != 10 ||
		!strings.Contains(text, "There are 10 more environments that are not rendered because of") || !strings.Contains(text, "There are 10 more environments whose") {
		t.Errorf("found %d and %d in %s; want each counted once", r.Unrendered, len(r.Withheld), text)
	}
}

// R4-27, D60: whatever the sizes are, what was rendered is in the comment, or its number is.
func TestNothingRenderedVanishes(t *testing.T) {
	t.Parallel()
	for try := range 300 {
		g := rand.New(rand.NewPCG(uint64(try), 1)) //nolint:gosec // sizes, the same each time
		r := reading{Head: "abc", Unrendered: try % 3, Broken: try % 2}
		for i := range 10 {
			one := rendered{Application: "shop", Environment: fmt.Sprint("e", i)}
			for j := range 24 + g.IntN(7) {
				one.Resources = append(one.Resources, fmt.Sprintf("changed Deployment %s/%s-%d", strings.Repeat("n", 20+g.IntN(43)), strings.Repeat("d", 20+g.IntN(230)), j))
				one.Diffs = append(one.Diffs, diff{Object: one.Resources[j], Diff: "@@ -1 +1 @@\n-a\n+b" + strings.Repeat("y", 200) + "\n"})
			}
			r.Rendered = append(r.Rendered, one)
		}
		text := comment(r, nil, false)
		shown := strings.Count(text, "text\nshop, e")
		if left := 10 - shown; len(text) > maxComment || shown < 5 || left > 0 && !strings.Contains(text, fmt.Sprintf("There are %d more environments, for which there is no room", left)) {
			t.Fatalf("try %d: found %d bytes with %d environments", try, len(text), shown)
		}
		for _, room := range []int{100, 300, 1000, 2000} {
			if got := renderedBlocks(r, room); len(got) > room || !strings.Contains(got, "environments") {
				t.Fatalf("room %d: found %q; want a number at least", room, got)
			}
		}
	}
	// With applications that take all the room there is.
	full := reading{Rendered: []rendered{{Application: "shop", Environment: "eu", Resources: []string{"added Pod a"}}}}
	for range 300 {
		full.Resources = append(full.Resources, "added Pod "+strings.Repeat("x", 160))
	}
	many := make([]trigger.Touched, 500)
	for i := range many {
		many[i].Application.Name = strings.Repeat("a", 63)
	}
	if text := comment(full, many, true); len(text) > maxComment || !strings.Contains(text, "Overlays and charts") {
		t.Errorf("found %d bytes; want what was rendered, or its number", len(text))
	}
}

// R4-27, D60: what policies forbid, or takes too long, is no reason for a comment, and has words of its own in the status.
func TestFailuresAreNoDifferences(t *testing.T) {
	t.Parallel()
	r := reading{Rendered: []rendered{{Environment: "a", Why: "policies do not permit it"}, {Environment: "b", Why: "it took too long"}}}
	if got := summary(r, nil, false); got != "touches no application; not rendered: 2" || r.differing() != 0 {
		t.Errorf("found %q and %d that differ", got, r.differing())
	}
	if got := comment(r, nil, false); !strings.Contains(got, "The change touches no application.") || !strings.Contains(got, "not rendered: policies do not permit it") {
		t.Errorf("found %s", got)
	}
	r.Rendered = append(r.Rendered, rendered{Environment: "c", Resources: []string{"added Pod a"}})
	if got := summary(r, nil, false); got != "touches no application; environments whose overlays or charts differ: 1; not rendered: 2" {
		t.Errorf("found %q", got)
	}
}

// R4-27: what cannot be rendered before the change, and neither after it, is not about the change; the outcome has what became of the rest.
func TestWhatBecameOfRenderings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    rendered
		want bool
	}{
		{rendered{}, false},
		{rendered{Why: "broken", Before: "broken"}, false},
		{rendered{Why: "broken"}, true},
		{rendered{Before: "broken"}, true},
		{rendered{Resources: []string{"added Pod a"}}, true},
	} {
		if got := c.r.matters(); got != c.want {
			t.Errorf("%+v: found %v", c.r, got)
		}
	}
	got := renderings([]byte(`{"rendered": [{"environment": "a"}, {"environment": "b", "why": "it took too long"}], "unrendered": 2, "withheld": [{}]}`)).words()
	if want := "; environments rendered: 1; not rendered: 1, the first because it took too long; left out: 3"; got != want {
		t.Errorf("found %q; want %q", got, want)
	}
	if got := renderings(nil).words(); got != "" {
		t.Errorf("found %q; want nothing", got)
	}
	many := reading{Head: "abc"}
	for range 10 {
		one := rendered{Application: "shop`", Environment: "@all", Resources: []string{"added Pod a"}}
		for range 30 {
			one.Diffs = append(one.Diffs, diff{Object: "added Pod a", Diff: "@@ -0,0 +1 @@\n+```" + strings.Repeat("x", 500) + "\n/merge\n"})
		}
		many.Rendered = append(many.Rendered, one)
	}
	text := comment(many, nil, false)
	if len(text) > maxComment || strings.Count(text, "shop', @all\n") != 10 || strings.Count(text, "# shop', @all: added Pod a") < 50 ||
		strings.Contains(text, "\n/merge") || strings.Contains(text, "+```") {
		t.Errorf("found %d bytes: %.2000s", len(text), text)
	}
}
