package forge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			`{"helm": {"path": "chart", "value_files": ["staging.yaml"], "values": "a: b", "skip_hooks": true}, "namespace": "shop", "services": [{"service": "api"}]}`,
			[]target{{Near: []string{"chart", "staging.yaml"}, Under: []string{"chart", "staging.yaml"}, Helm: m{
				"path": "chart", "value_files": []string{"staging.yaml"}, "values": "a: b", "skip_hooks": true, "release": "api", "namespace": "shop",
			}}},
		},
		"kubernetes, a chart of a registry with values of the repository": {
			`{"helm": {"chart": "oci://r.test/api", "version": "1.0.0", "credential": "charts", "release": "x", "value_files": ["v.yaml"]}, "namespace": "shop"}`,
			[]target{{Near: []string{"v.yaml"}, Under: []string{"v.yaml"}, Helm: m{
				"chart": "oci://r.test/api", "version": "1.0.0", "chart_credential": "charts", "value_files": []string{"v.yaml"}, "release": "x", "namespace": "shop",
			}}},
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
			if diff := cmp.Diff(c.want, d.targets()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// R4-27: the repository of an environment is that of the pull request, however either is spelled.
func TestTheSameRepository(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"https://git.test/Shop/config.git": true, "https://git.test/shop/config/": true, "ssh://git@git.test:2222/shop/config.git": true,
		"https://git.test/shop/config2": false, "https://other.test/shop/config": false, "https://git.test:8443/shop/config": false, "": false,
	} {
		if got := sameRepository(address, "git.test/shop/config"); got != want {
			t.Errorf("%s: found %v", address, got)
		}
	}
	if !sameRepository("ssh://git@git.test:2222/shop/config.git", "git.test:3000/shop/config") {
		t.Error("over SSH the port of the pages does not count")
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
	got := renderings([]byte(`{"rendered": [{"environment": "a"}, {"environment": "b", "why": "it took too long"}], "unrendered": 3}`)).words()
	if want := "; environments rendered: 1; not rendered: 1, the first because it took too long; left out: 3"; got != want {
		t.Errorf("found %q; want %q", got, want)
	}
	if got := renderings(nil).words(); got != "" {
		t.Errorf("found %q; want nothing", got)
	}
	many := reading{Head: "abc"}
	for range 10 {
		one := rendered{application: "shop`", Environment: "@all", Resources: []string{"added Pod a"}}
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
