package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
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
		`"folder":"production"`, `"folder":"production","repository_url":"https://git.test/Shop/config",`+
			`"helm":{"path":"chart","release":"shop"},"namespace":"shop"`)
	r.ok(err)
	r.at.reads.Base, r.at.reads.Paths = shaOf(6), []string{"deploy/api.yaml", "chart/values.yaml"}
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
	r.pushes(3, "")
	r.work()
	r.want(len(r.at.order), 3)
	in := r.at.inputs[r.at.order[1]]
	if in.Render == nil || in.Reading == nil || in.Reading.Base != shaOf(6) || in.Render.RepoURL != "https://git.test/shop/config.git" {
		t.Fatalf("found %+v; want the run to learn what to render", in)
	}
	slices.SortFunc(in.Render.Targets, func(a, b map[string]any) int {
		return strings.Compare(fmt.Sprint(a["environment"]), fmt.Sprint(b["environment"]))
	})
	application := float64(r.application.ID)
	want := []map[string]any{
		{
			"application_id": application, "environment": "production", "branch": "main", "near": []any{"chart"}, "under": []any{"chart"},
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
		"\nEnvironments that cannot be rendered, before the change either: 1.\n",
		"<details><summary>What differs</summary>\n\n```diff\n# " + app + ", staging: changed Deployment shop/api\n@@ -1 +1 @@\n-replicas: 1\n+replicas: 2\n /merge '''\n```\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s; want %q", got, want)
		}
	}
	for _, not := range []string{"others", "broken", "more environments"} {
		if strings.Contains(got, not) {
			t.Errorf("found %s; want nothing of %s", got, not)
		}
	}
	r.want(r.pulls()[0].Outcome, "its comment has the plan; environments rendered: 1; not rendered: 2, the first because helm: [a](javascript:b) ''' /merge")
	r.want(r.forges.RenderCounts(), map[string]int64{"rendered": 1, "failed": 2, "left_out": 0})
	// A push meanwhile: what an earlier run has rendered is dropped.
	late := r.at.reads
	late.PullRequestID, late.Run = r.pulls()[0].ID, 1
	late.Rendered = []event.RenderedChange{{ApplicationID: r.application.ID, Environment: "stale", Resources: []string{"changed Deployment shop/api"}}}
	r.at.reads.Rendered = []event.RenderedChange{
		{ApplicationID: r.application.ID, Environment: "staging"}, {ApplicationID: r.application.ID, Environment: "production"},
	}
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
	r.want([]any{len(r.at.order), len(r.at.comments), r.pulls()[0].Outcome}, []any{3, 0, "it touches no application"})
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

// reads counts how many pipelines are read.
type reads struct {
	bundle.Flows
	n *atomic.Int64
}

func (r reads) Read(definition json.RawMessage) (core.Flow, error) {
	r.n.Add(1)
	return r.Flows.Read(definition)
}

// saves saves a pipeline with the configuration of staging in place of another, as a replica of an earlier release does: in its table only.
func (r reviewed) saves(config string) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition)
		SELECT organization_id, application_id, version + 1, regexp_replace(definition, $1, $2)
		FROM cd_application_flow_definitions ORDER BY version DESC LIMIT 1`, `"folder":"staging"[^{}]*(,"(kustomize|helm)":\{[^{}]*\}[^{}]*)?\}`, `"folder":"staging"`+config+`}`)
	r.ok(err)
}

// R4-27, D60: which repositories environments are deployed from is known by the exact name without reading a pipeline when a pull request
// is reported or begun; pipelines are read once, whatever release has saved them, and the newest counts.
func TestReportsReadNoPipelines(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	var n atomic.Int64
	r.forges = forge.New(forge.Deps{
		Store: r.store.ForForge(), Engine: r.at, Checks: r.view, Plans: r.triggers, Pipelines: reads{n: &n}, Secrets: derives{}, Clock: r.now,
	})
	r.on = events.New(r.intake, r.rollouts, r.forges, r.chats, r.inbox)
	_, err := r.pool.Exec(t.Context(), `UPDATE cd_artifact_sources SET removed_at = now() WHERE match_key LIKE 'git:%'`)
	r.ok(err)
	taken := func() int {
		r.t.Helper()
		_, err := r.pool.Exec(t.Context(), `DELETE FROM cd_forge_pulls`)
		r.ok(err)
		r.pushes(3, "")
		return len(r.pulls())
	}
	r.want([]any{taken(), n.Load()}, []any{1, int64(0)}) // until the pipelines were read it may be deployed from
	r.work()
	first := n.Load()
	r.want([]any{taken(), n.Load() > 0, r.countOf(`SELECT count(*) FROM cd_forge_unread`)}, []any{1, true, 0})
	r.work()
	r.want(n.Load(), first)
	for config, want := range map[string]int{
		`,"repository_url":"https://git.test/Shop/config.git/","kustomize":{"path":"a"}`:       1,
		`,"repository_url":"ssh://git@git.test:2222/shop/config.git","kustomize":{"path":"a"}`: 1,
		`,"repository_url":"https://git.test/shop/config2","kustomize":{"path":"a"}`:           0,
		`,"repository_url":"https://git.test:8443/shop/config","kustomize":{"path":"a"}`:       0,
		`,"repository_url":"https://git.test/shop/config","files":["shop/config"]`:             0,
	} {
		_, err := r.pool.Exec(t.Context(), `INSERT INTO cd_application_flow_definitions (organization_id, application_id, version, definition)
			SELECT organization_id, application_id, version + 1, replace(definition, '"folder":"production","repository_url"', '"folder":"production","was"')
			FROM cd_application_flow_definitions ORDER BY version DESC LIMIT 1`)
		r.ok(err)
		r.saves(config)
		r.work()
		if got := taken(); got != want {
			t.Errorf("%s: found %d taken; want %d", config, got, want)
		}
	}
}

// R4-27, D60: what a pipeline says that was replaced while it was read is not stored: a crash or another worker in between loses nothing.
func TestAPipelineThatWasReplacedIsReadAgain(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	var old, version int
	r.ok(r.pool.QueryRow(t.Context(), `SELECT version FROM cd_forge_unread WHERE application_id = $1`, r.application.ID).Scan(&old))
	r.saves(`,"repository_url":"https://git.test/shop/new","kustomize":{"path":"a"}`)
	r.ok(r.store.ForForge().In(t.Context(), org, func(ctx context.Context, tx forge.Tx) error {
		return tx.SaveForgePlaces(ctx, forge.Pipeline{ApplicationID: r.application.ID, Version: old}, []forge.Place{
			{Environment: "stale", Repository: "git.test/stale", Target: json.RawMessage(`{}`)},
		})
	}))
	r.ok(r.pool.QueryRow(t.Context(), `SELECT version FROM cd_forge_unread WHERE application_id = $1`, r.application.ID).Scan(&version))
	r.want([]any{version, r.countOf(`SELECT count(*) FROM cd_forge_places`)}, []any{old + 1, 0})
	r.work()
	r.want([]any{
		r.countOf(`SELECT count(*) FROM cd_forge_unread`), r.countOf(`SELECT count(*) FROM cd_forge_places WHERE repository = 'git.test/shop/new'`),
	}, []any{0, 1})
}

// R4-27, D60: a pipeline that says what cannot be stored keeps nothing of its organization waiting: the environment is counted.
func TestAPipelineThatCannotBeStoredStopsNothing(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	for _, config := range []string{
		`,"repository_url":"https://git.test/shop/config","kustomize":{"path":"a\\u0000b"}`,
		`,"repository_url":"https://git.test/shop/config","branch":"ma\\u0000in","kustomize":{"path":"a"}`,
		`,"repository_url":"https://git.test/shop/config","kustomize":{"path":"` + strings.Repeat("a", 20_000) + `"}`,
	} {
		r.saves(config)
		r.work()
		r.want([]any{
			r.countOf(`SELECT count(*) FROM cd_forge_unread`), r.countOf(`SELECT count(*) FROM cd_forge_places WHERE target ->> 'not' <> ''`),
		}, []any{0, 1})
	}
}

// R4-27, D60: what the configuration gives to templates is rendered for nobody who sees a pull request; texts for people render nothing.
func TestValuesAreNotRendered(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	r.saves(`,"repository_url":"https://git.test/shop/config","helm":{"path":"deploy","values":"password: S3CR3T"}`)
	r.pushes(3, "")
	r.work()
	for _, in := range r.at.inputs {
		text, err := json.Marshal(in)
		r.ok(err)
		if strings.Contains(string(text), "S3CR3T") {
			t.Errorf("found %s; want no values", text)
		}
	}
	if got := r.at.comments[3]; !strings.Contains(got, ", staging\n  not rendered: its configuration has values\n") {
		t.Errorf("found %s; want why it is not rendered", got)
	}
	r.want(r.pulls()[0].Outcome, "its comment has the plan; left out: 2") // nothing was rendered of production
	r.at.reads.Paths = []string{"README.md"}
	r.now.Advance(time.Minute)
	begun := len(r.at.order)
	r.pushes(3, "")
	r.work()
	got := r.at.comments[3]
	if len(r.at.order)-begun != 2 || strings.Contains(got, "environments whose") || strings.Contains(got, "rendered") {
		t.Errorf("found %d runs and %s; want nothing rendered", len(r.at.order)-begun, got)
	}
}

// R4-27, D60: if what renders ends without saying anything, the plan is written all the same, and says how many were not rendered. What was
// read has no control characters.
func TestAPlanWithoutRenderings(t *testing.T) {
	t.Parallel()
	r := rendering(t)
	r.at.reads.Resources = []string{"changed Deployment shop/a\x00pi"}
	r.at.reads.Diffs = []event.ResourceDiff{{Object: "a", Diff: "@@ -1 +1 @@\n-\x00\n+\tb\x1b\n"}}
	r.at.answer = func(in pullInputs) map[string]any {
		switch {
		case in.Reading != nil:
			return map[string]any{"outcome": "refused", "why": "invalid: too large"}
		case in.Comment != nil:
			return map[string]any{"outcome": "sent", "link": "https://git.test/shop/config/pulls/3#1"}
		}
		return map[string]any{"outcome": "read"}
	}
	r.pushes(3, "")
	r.work()
	got := r.at.comments[3]
	for _, want := range []string{
		"changed Deployment shop/a pi\n", "\n- \n+ b \n", "\nThere are 2 more environments whose overlays or charts the change may touch, which are not shown.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s; want %q", got, want)
		}
	}
	r.want([]any{r.pulls()[0].State, r.pulls()[0].Outcome}, []any{forge.Sent, "its comment has the plan; left out: 2"})
}
