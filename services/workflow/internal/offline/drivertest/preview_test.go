package drivertest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// previews are the inputs of a preview: a rollout's, with services in place of deployments.
func previews(version int, edit func(in, environment object)) object {
	in := inputs(version, edit)
	in["preview"] = object{"id": 5}
	delete(in, "pipeline")
	return in
}

// preview runs a preview, and returns what it reports of its one environment.
func preview(t *testing.T, w *world, in object) event.PreviewedEnvironment {
	t.Helper()
	if failure := w.run(driver.Preview, in); failure != "" {
		t.Fatal(failure)
	}
	all := w.previews
	if len(all) != 1 || len(all[0].Environments) != 1 || all[0].PreviewID != 5 {
		t.Fatalf("found %+v, expected one preview of one environment", all)
	}
	return all[0].Environments[0]
}

// lines are those of a diff that come and go.
func lines(diff string) []string {
	var changed []string
	for line := range strings.Lines(diff) {
		if (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	return changed
}

// TestAPreviewIsWhatADeployCommits: the same changes as the deploy reports afterwards, and the preview changes nothing.
func TestAPreviewIsWhatADeployCommits(t *testing.T) {
	t.Parallel()
	for _, layout := range []struct {
		name string
		of   func(*testing.T) (*world, func(in, environment object))
	}{
		{"manifest", func(t *testing.T) (*world, func(in, environment object)) { t.Helper(); return shop(t), nil }},
		{"kustomize", kustomized},
	} {
		t.Run(layout.name, func(t *testing.T) {
			t.Parallel()
			w, edit := layout.of(t)
			before := w.head
			got := preview(t, w, previews(2, edit))
			if got.Reason != "" || len(got.Changes) == 0 || w.head != before || w.looks > 1 {
				t.Fatalf("preview: %+v, head %s after %s, %d looks at the cluster; expected changes, and one look at what runs",
					got, w.head, before, w.looks)
			}
			if failure := w.run(driver.Deploy, inputs(2, edit)); failure != "" {
				t.Fatal(failure)
			}
			committed := map[string]event.FileChange{}
			for _, c := range w.committed {
				for _, change := range c.Changes {
					committed[change.Path] = change
				}
			}
			foretold := map[string]event.FileChange{}
			for _, change := range got.Changes {
				foretold[change.Path] = change
			}
			if d := cmp.Diff(foretold, committed); d != "" {
				t.Errorf("foretold, and committed (-foretold +committed):\n%s", d)
			}
		})
	}
}

func TestAPreviewOfTheLiveVersionIsEmpty(t *testing.T) {
	t.Parallel()
	w := shop(t)
	if failure := w.run(driver.Deploy, inputs(2, nil)); failure != "" {
		t.Fatal(failure)
	}
	if got := preview(t, w, previews(2, nil)); got.Reason != "" || len(got.Changes) != 0 {
		t.Errorf("found %+v, expected no change", got)
	}
}

func TestAPreviewReportsWhyItFailed(t *testing.T) {
	t.Parallel()
	w := shop(t)
	w.fail = failing("git.read_file", "unauthorized", "the credentials are refused")
	if got := preview(t, w, previews(2, nil)); got.Reason != "read staging/api.yaml: the credentials are refused" ||
		len(got.Changes) != 0 {
		t.Errorf("found %+v, expected the reason", got)
	}
}

// TestParametersAreComparedWithThoseOfTheApplication: E45's other way commits nothing.
func TestParametersAreComparedWithThoseOfTheApplication(t *testing.T) {
	t.Parallel()
	w, edit := kustomized(t)
	w.objects["Application argocd/shop-staging"] = object{"spec": object{"source": object{
		"path": "staging", "kustomize": object{"images": []any{"api=" + image("api", 1), "worker=" + image("worker", 2)}, "patches": []any{}},
	}}}
	got := preview(t, w, previews(2, func(in, environment object) {
		edit(in, environment)
		configOf(environment)["version_setting"] = "parameters"
		environment["gates"] = []any{}
	}))
	if got.Reason != "" || len(got.Changes) != 1 || got.Changes[0].Path != "Application parameters" {
		t.Fatalf("found %+v, expected the parameters of the Application", got)
	}
	changed := strings.Join(lines(got.Changes[0].Diff), "\n")
	for _, want := range []string{`-"api=` + image("api", 1) + `",`, `+"api=` + image("api", 2) + `",`} {
		if !strings.Contains(strings.ReplaceAll(changed, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("found %s\nexpected %s", changed, want)
		}
	}
	w.fail = func(name string, _ object) *history.FunctionError {
		if name != "k8s.get" {
			return nil
		}
		return &history.FunctionError{Code: history.CodeTimeout, Message: "agent 42 did not answer"}
	}
	w.previews = nil
	got = preview(t, w, previews(2, func(in, environment object) {
		edit(in, environment)
		configOf(environment)["version_setting"] = "parameters"
	}))
	if got.Reason != "Application argocd/shop-staging: agent 42 did not answer" {
		t.Errorf("found %+v, expected why it cannot be shown", got)
	}
}
