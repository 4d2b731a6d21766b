package workflow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	functions "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/render"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
)

// trees is a repository of which only files can be read, by commit.
type trees struct {
	activity.Forge
	of   map[string]map[string]string
	away bool
	// large is the commit of which too much would have to be read.
	large string
}

func (f trees) ReadTree(_ context.Context, q activity.TreeRequest) (map[string][]byte, string, error) {
	if f.away {
		return nil, "", fault.New(fault.Unavailable, "the server does not answer")
	}
	found := map[string][]byte{}
	commit, is := f.of[q.Ref]
	switch {
	case !q.Alone:
		return nil, "", fault.New(fault.Invalid, "the whole history of a repository is not for previews")
	case !is:
		return nil, "", fault.New(fault.NotFound, "commit %s does not exist in %s", q.Ref, q.RepoURL)
	case q.Ref == f.large:
		return nil, "", fault.New(fault.Refused, "there are more than 2000 files")
	}
	for _, at := range q.Paths {
		is := false
		for name, text := range commit {
			if at == "" || name == at || strings.HasPrefix(name, at+"/") {
				found[name], is = []byte(text), true
			}
		}
		if !is {
			return nil, "", fault.Because(activity.NoPathError{}, fault.NotFound, "path %q does not exist in %s", at, q.RepoURL)
		}
	}
	return found, q.Ref, nil
}

func comparing(t *testing.T, f trees) func(args map[string]any) (map[string]any, error) {
	t.Helper()
	r := render.New(func(context.Context, int64, []byte) ([]byte, error) {
		return nil, fault.New(fault.Invalid, "rendered like what is deployed")
	}, tasks(t, sandbox.Limits{Memory: 256 << 20, CPU: 2 * time.Second}).Preview)
	for _, one := range functions.All(f, nil, r) {
		if compare, is := one.(*functions.Function); is && one.Name() == "manifest.compare_rendered" {
			return func(args map[string]any) (map[string]any, error) {
				all := map[string]any{"repo_url": "https://git.test/shop", "base": "base", "ref": "head"}
				for key, value := range args {
					all[key] = value
				}
				if err := compare.Check(all); err != nil {
					return nil, err
				}
				answer, err := compare.Call(t.Context(), activity.Call{Organization: 1, Args: all})
				found, _ := answer.(map[string]any)
				return found, err
			}
		}
	}
	t.Fatal("manifest.compare_rendered is not registered")
	return nil
}

// R4-27, D60: what an overlay of Kustomize and a chart of Helm make of a commit is compared with what they make of another one, also where
// a base or a file of values has changed and no manifest has; the secrets that they generate have no values.
func TestOverlaysAndChartsAreComparedRendered(t *testing.T) {
	t.Parallel()
	commit := func(replicas int, password string) map[string]string {
		return map[string]string{
			"base/kustomization.yaml": "resources: [api.yaml]\n",
			"base/api.yaml": fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: %d, template: {spec: {containers: [{name: api, image: api}]}}}\n",
				replicas),
			"overlays/staging/kustomization.yaml": "resources: [../../base]\nnamespace: shop\nnamePrefix: staging-\nsecretGenerator:\n- name: login\n  literals: [password=" +
				password + "]\n",
			"chart/Chart.yaml":         "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/values.yaml":        "replicas: 1\n",
			"chart/templates/api.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\nspec:\n  replicas: {{ .Values.replicas }}\n",
			"chart/templates/key.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: key\ndata:\n  key: {{ \"" + password + "\" | b64enc }}\n",
			"staging.yaml":             fmt.Sprintf("replicas: %d\n", replicas),
		}
	}
	compare := comparing(t, trees{of: map[string]map[string]string{"base": commit(1, "hunter2"), "head": commit(3, "hunter3")}})
	for name, c := range map[string]struct {
		args map[string]any
		want []string
	}{
		"an overlay": {map[string]any{"kustomize": map[string]any{"path": "overlays/staging"}}, []string{
			"changed Deployment shop/staging-api", "added Secret shop/staging-login-", "removed Secret shop/staging-login-", "-  replicas: 1\n+  replicas: 3\n",
		}},
		"a chart": {
			map[string]any{"helm": map[string]any{"path": "chart", "value_files": []any{"staging.yaml"}, "release": "api", "namespace": "shop"}},
			[]string{"changed Deployment shop/api", "changed Secret key", "-  replicas: 1\n+  replicas: 3\n", "-  key: (hidden, as it was)\n+  key: (hidden, as it will be)\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := compare(c.args)
			text := fmt.Sprint(got["resources"], got["diffs"])
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("found %s, %v; want %q", text, err, want)
				}
			}
			if strings.Contains(text, "hunter") || strings.Contains(text, "aHVudGVy") || got["why"] != "" || got["before"] != "" {
				t.Errorf("found %v; want no value of a secret", got)
			}
		})
	}
}

// R4-27, D60: only a commit that was read, and has nothing that can be rendered, means that all is new. Of one that cannot be read, or
// takes more than it may, the answer has only why it is not compared, and what is configured for an environment is in no reason.
func TestWhatIsNotKnownIsNotCompared(t *testing.T) {
	t.Parallel()
	chart := func(template string) map[string]string {
		return map[string]string{
			"c/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "c/templates/a.yaml": template, "c/values.yaml": "a: b\n",
		}
	}
	const (
		plain   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
		endless = "{{- range until 100000 }}{{- range until 100000 }}{{- end }}{{- end }}"
	)
	for name, c := range map[string]struct {
		of          map[string]map[string]string
		large       string
		before, why string
		resources   int
	}{
		"no path before":        {map[string]map[string]string{"base": {"README.md": "x"}, "head": chart(plain)}, "", "does not exist in", "", 1},
		"no path afterwards":    {map[string]map[string]string{"base": chart(plain), "head": {"README.md": "x"}}, "", "", "path \"c\" does not exist in", 0},
		"broken before":         {map[string]map[string]string{"base": chart("{{ nothing }}"), "head": chart(plain)}, "", "not defined", "", 1},
		"no commit before":      {map[string]map[string]string{"head": chart(plain)}, "", "", "before the change: commit base does not exist", 0},
		"no commit afterwards":  {map[string]map[string]string{"base": chart(plain)}, "", "", "commit head does not exist", 0},
		"too large before":      {map[string]map[string]string{"base": chart(plain), "head": chart(plain)}, "base", "", "before the change: there are more than 2000 files", 0},
		"too long before":       {map[string]map[string]string{"base": chart(endless), "head": chart(plain)}, "", "", "before the change: what was asked for computed for longer", 0},
		"too many documents":    {map[string]map[string]string{"base": chart(plain), "head": chart("{{- range until 2001 }}\n---\na: b\n{{- end }}")}, "", "", "more than 2000 documents", 0},
		"what is configured":    {map[string]map[string]string{"base": chart(plain), "head": chart("{{ fail .Values.code }}")}, "", "", "(configured)", 0},
		"characters of control": {map[string]map[string]string{"base": chart(plain), "head": chart("{{ fail \"a\\x00b\\x1bc\" }}")}, "", "", "abc", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := comparing(t, trees{of: c.of, large: c.large})(map[string]any{"helm": map[string]any{
				"path": "c", "release": "a", "namespace": "b", "values": "code: wonderland-7\n",
			}})
			before, _ := got["before"].(string)
			why, _ := got["why"].(string)
			resources, _ := got["resources"].([]any)
			if err != nil || !strings.Contains(before, c.before) || (before == "") != (c.before == "") || !strings.Contains(why, c.why) ||
				(why == "") != (c.why == "") || len(resources) != c.resources || strings.ContainsAny(why, "\x00\x1b") || strings.Contains(why, "wonderland") {
				t.Errorf("found %v, %v; want %q, %q and %d objects", got, err, c.before, c.why, c.resources)
			}
		})
	}
}

// R4-27, D53: what cannot be rendered is a reason, within the limits of a deploy: what a pull request has is by anybody who may push.
func TestHostileOverlaysAndChartsEndAsReasons(t *testing.T) {
	t.Parallel()
	chart := func(template string) map[string]string {
		return map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "templates/a.yaml": template}
	}
	helm := map[string]any{"helm": map[string]any{"path": "", "release": "a", "namespace": "b"}}
	kustomize := map[string]any{"kustomize": map[string]any{"path": "o"}}
	for name, c := range map[string]struct {
		base, head map[string]string
		args       map[string]any
		before     string
		why        string
		resources  string
	}{
		"a template without end": {
			base: chart("a: b"), head: chart("{{- range until 100000 }}{{- range until 100000 }}{{- end }}{{- end }}"), args: helm, why: "computed for longer than it may",
		},
		"a text without bound": {base: chart("a: b"), head: chart("a: {{ repeat 5000000 \"x\" }}"), args: helm, why: "expected at most"},
		"a remote base": {
			base: map[string]string{"o/kustomization.yaml": "resources: []\n"}, args: kustomize, why: "found the remote base",
			head: map[string]string{"o/kustomization.yaml": "resources: [\"https://evil.test/x?ref=main\"]\n"},
		},
		"a reason with a secret": {base: chart("a: b"), head: chart("{{ fail \"password: hunter2\" }}"), args: helm, why: "password: [redacted]"},
		"an overlay that is new": {
			base: map[string]string{"README.md": "x"}, args: kustomize, before: "does not exist", resources: "added ConfigMap a",
			head: map[string]string{"o/kustomization.yaml": "resources: [a.yaml]\n", "o/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := comparing(t, trees{of: map[string]map[string]string{"base": c.base, "head": c.head}})(c.args)
			before, _ := got["before"].(string)
			why, _ := got["why"].(string)
			if err != nil || !strings.Contains(why, c.why) || (c.why == "") != (why == "") || !strings.Contains(before, c.before) ||
				(c.before == "") != (before == "") || !strings.Contains(fmt.Sprint(got["resources"]), c.resources) || strings.Contains(why, "hunter2") {
				t.Errorf("found %v, %v; want %q and %q", got, err, c.before, c.why)
			}
		})
	}
	if _, err := comparing(t, trees{away: true})(kustomize); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("found %v; want that a server which is away is no reason", err)
	}
	if _, err := comparing(t, trees{})(map[string]any{}); err == nil || !strings.Contains(err.Error(), "expected either kustomize or helm") {
		t.Errorf("found %v; want either", err)
	}
	if _, err := comparing(t, trees{})(map[string]any{"helm": map[string]any{"release": "a", "namespace": "b"}}); err == nil ||
		!strings.Contains(err.Error(), "expected either chart or path") {
		t.Errorf("found %v; want a chart", err)
	}
}
