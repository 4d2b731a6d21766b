package domain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// rendering is reviewing with environments that are deployed from an overlay and from a chart.
func rendering(t *testing.T) reviewed {
	t.Helper()
	r := reviewing(t)
	// The configuration is not that of the driver of the test, which has none of it.
	_, err := r.pool.Exec(t.Context(), `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition)
		SELECT organization_id, application_id, version + 1, replace(replace(definition, $1, $2), $3, $4)
		FROM cd_application_flow_definitions ORDER BY version DESC LIMIT 1`,
		`"folder":"staging"`, `"folder":"staging","repository_url":"https://git.test/Shop/config","kustomize":{"path":"overlays/staging"}`,
		`"folder":"production"`, `"folder":"production","repository_url":"https://git.test/Shop/config","branch":"release",`+
			`"helm":{"path":"chart","release":"shop"},"namespace":"shop"`)
	r.ok(err)
	return r
}

// R4-27, D60: the run that reads a pull request learns which overlays and charts of the repository environments are deployed from; what
// differs once they are rendered is in the comment, by environment, folded and as text, and what became of them is in the outcome.
func TestACommentShowsWhatIsRendered(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	r.at.reads.Rendered = []event.RenderedChange{
		{
			ApplicationID: r.application.ID, Environment: "staging", Resources: []string{"changed Deployment shop/api", "@all ```"},
			Diffs: []event.ResourceDiff{{Object: "changed Deployment shop/api", Diff: "@@ -1 +1 @@\n-replicas: 1\n+replicas: 2\n/merge ```\n"}},
		},
		{ApplicationID: r.application.ID, Environment: "production", Why: "helm: [a](javascript:b)\n```\n/merge"},
		{ApplicationID: r.application.ID, Environment: "broken", Why: "broken", Before: "broken"},
		{ApplicationID: r.application.ID + 1000, Environment: "others", Resources: []string{"changed Deployment others/api"}},
	}
	r.at.reads.Unrendered = 2
	r.pushes(3, "")
	r.work()
	in := r.at.inputs[r.at.order[0]]
	if in.Render == nil {
		t.Fatal("the run does not learn what to render")
	}
	slices.SortFunc(in.Render.Targets, func(a, b map[string]any) int {
		return strings.Compare(fmt.Sprint(a["environment"]), fmt.Sprint(b["environment"]))
	})
	application := float64(r.application.ID)
	want := []map[string]any{
		{
			"application_id": application, "environment": "production", "branch": "release", "near": []any{"chart"}, "under": []any{"chart"},
			"helm": map[string]any{"path": "chart", "release": "shop", "namespace": "shop"},
		},
		{
			"application_id": application, "environment": "staging", "branch": "main", "near": []any{"overlays/staging"}, "under": []any{""},
			"kustomize": map[string]any{"path": "overlays/staging"},
		},
	}
	if diff := cmp.Diff(want, in.Render.Targets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, app := r.at.comments[3], r.application.Name
	for _, want := range []string{
		"\nOverlays and charts, rendered before and after the change:\n\n```text\n" + app + ", staging\n  changed Deployment shop/api\n  @all '''\n```\n",
		"```text\n" + app + ", production\n  not rendered: helm: [a](javascript:b) ''' /merge\n```\n",
		"\nThere are 2 more environments whose overlays or charts the change may touch, which are not shown.\n",
		"<details><summary>What differs</summary>\n\n```diff\n# " + app + ", staging: changed Deployment shop/api\n@@ -1 +1 @@\n-replicas: 1\n+replicas: 2\n /merge '''\n```\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s; want %q", got, want)
		}
	}
	for _, not := range []string{"others", "broken"} {
		if strings.Contains(got, not) {
			t.Errorf("found %s; want nothing of %s", got, not)
		}
	}
	r.want(r.pulls()[0].Outcome, "its comment has the plan; environments rendered: 2; not rendered: 1, the first because helm: [a](javascript:b) ''' /merge; left out: 2")
	r.want(r.forges.RenderCounts(), map[string]int64{"rendered": 2, "failed": 1, "left_out": 2})
	// A push meanwhile: what an earlier run has rendered is dropped.
	late := r.at.reads
	late.PullRequestID, late.Run = r.pulls()[0].ID, 1
	late.Rendered = []event.RenderedChange{{ApplicationID: r.application.ID, Environment: "stale", Resources: []string{"changed Deployment shop/api"}}}
	r.at.reads.Rendered, r.at.reads.Unrendered = nil, 0
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.deliver(r.emit(late, id.ForgePullRun(late.PullRequestID, late.Run)))
	r.work()
	if got := r.at.comments[3]; strings.Contains(got, "stale") || strings.Contains(got, "rendered before") {
		t.Errorf("found %s; want nothing of an earlier run", got)
	}
}

// R4-27, D60: a pull request is also planned if no version comes from its repository, and environments are deployed from it. It gets a
// comment if something differs there.
func TestAPullRequestOfAnOverlayAlone(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	_, err := r.pool.Exec(t.Context(), `UPDATE cd_artifact_sources SET removed_at = now() WHERE match_key LIKE 'git:%'`)
	r.ok(err)
	r.pushes(3, "")
	r.work()
	r.want([]any{len(r.at.order), len(r.at.comments), r.pulls()[0].Outcome}, []any{2, 0, "it touches no application"})
	r.at.reads.Rendered = []event.RenderedChange{{ApplicationID: r.application.ID, Environment: "staging", Resources: []string{"changed Deployment shop/api"}}}
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	if got := r.at.comments[3]; !strings.Contains(got, ", staging\n  changed Deployment shop/api\n") || strings.Contains(got, "touches no application") {
		t.Errorf("found %s; want what differs", got)
	}
	// An application that is left out of plans is neither rendered nor shown.
	off := false
	_, err = r.forges.PutMirror(t.Context(), user(), forge.NewMirror{Application: r.application.Name, Plans: &off, Reason: "private"})
	r.ok(err)
	r.now.Advance(time.Minute)
	r.pushes(3, "")
	r.work()
	r.want(r.forges.PullCounts()["ignored"], int64(1))
}
