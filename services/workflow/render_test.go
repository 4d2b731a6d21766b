package workflow_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/render"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
)

// renderer renders in child processes of this binary (TestMain).
func renderer(t *testing.T, limits sandbox.Limits) *render.Renderer {
	t.Helper()
	all := tasks(t, limits)
	return render.New(all.Do, all.Preview)
}

func tasks(t *testing.T, limits sandbox.Limits) *sandbox.Tasks {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := sandbox.NewTasks(sandbox.TasksConfig{
		Command: []string{self, workflow.RenderCommand}, Processes: 2, Limits: limits, Clock: clock.System(),
	})
	t.Cleanup(all.Close)
	return all
}

func chart(template string) activity.HelmRequest {
	return activity.HelmRequest{Organization: 1, Release: "shop", Namespace: "prod", Files: map[string][]byte{
		"Chart.yaml": []byte("apiVersion: v2\nname: shop\nversion: 1.0.0\n"), "templates/a.yaml": []byte(template),
	}}
}

// D53, D45: overlays and charts are rendered in confined children with the limits that operators set by default, and hostile ones end
// there.
func TestManifestsAreRenderedInChildren(t *testing.T) {
	t.Parallel()
	r := renderer(t, sandbox.Limits{Memory: 256 << 20, CPU: 2 * time.Second})
	out, err := r.Helm(t.Context(), chart("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n"))
	if err != nil || !strings.Contains(out.Text, "name: shop") {
		t.Fatalf("a chart: found %+v, %v", out, err)
	}
	out, err = r.Kustomize(t.Context(), activity.KustomizeRequest{Organization: 1, Path: "a", Files: map[string][]byte{
		"a/kustomization.yaml": []byte("resources: [x.yaml]\nnamePrefix: shop-\n"),
		"a/x.yaml":             []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"),
	}})
	if err != nil || !strings.Contains(out.Text, "name: shop-x") {
		t.Fatalf("an overlay: found %+v, %v", out, err)
	}
	bomb := "{{- $x := \"0123456789abcdef\" }}{{- range until 30 }}{{- $x = print $x $x }}{{- end }}a: {{ $x }}"
	for name, c := range map[string]struct {
		q     activity.HelmRequest
		class fault.Class
		want  string
	}{
		"a template without end": {chart("{{- range until 100000 }}{{- range until 100000 }}{{- end }}{{- end }}"), fault.Refused, "computed for longer than it may"},
		"a text without bound":   {chart(bomb), fault.Refused, "took more memory than it may"},
		"too long an answer":     {chart("a: {{ repeat 5000000 \"x\" }}"), fault.Invalid, "expected at most"},
		"endless recursion":      {chart("{{ define \"x\" }}{{ include \"x\" . }}{{ end }}a: {{ include \"x\" . }}"), fault.Invalid, "calling include"},
		"an archive that is a bomb": {activity.HelmRequest{
			Organization: 1, Release: "a", Namespace: "b", Archive: zeros(t, 200<<20),
		}, fault.Invalid, "load the chart"},
		"an alias bomb": {chart("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"), fault.Invalid, "templates/a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := r.Helm(t.Context(), c.q)
			if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %.300v, expected one of class %v with %q", err, c.class, c.want)
			}
		})
	}
}

// A rendering that nobody awaits any more ends, long before its own limit.
func TestARenderingEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	r := renderer(t, sandbox.Limits{Memory: 256 << 20, CPU: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := r.Helm(ctx, chart("{{- range until 100000 }}{{- range until 100000 }}{{- end }}{{- end }}"))
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v, expected Unavailable", err)
	}
}

// zeros are n bytes, packed.
func zeros(t *testing.T, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
