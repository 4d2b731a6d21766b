package domain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// postStatus reports a status over HTTP with a token.
func (c checked) postStatus(token, kind, body string) (code int, answer string) {
	c.t.Helper()
	return c.post(api.ChecksPath, token, kind, body)
}

// post sends a request with a token, and more headers.
func (c checked) post(path, token, kind, body string, headers ...string) (code int, answer string) {
	c.t.Helper()
	none := http.NotFoundHandler()
	h := api.NewHandler(api.Deps{
		GraphQL: none, Console: none, Access: c.access, Checks: c.checks, Evaluations: c.rollouts, Deployments: c.rollouts, Clock: c.now,
		Tokens: api.Tokens{
			"reports": {Organization: org, Type: core.PrincipalAgent, ID: 1, Name: "ci", Permissions: core.PermissionsOf(core.MayRead, core.MayReport)},
			"nudges":  {Organization: org, Type: core.PrincipalAgent, ID: 3, Name: "argo", Permissions: core.PermissionsOf(core.MayRead, core.MayNudge)},
			"deploys": {Organization: org, Type: core.PrincipalAgent, ID: 2, Name: "cd", Permissions: core.RoleDeployer.Permissions()},
			"other":   {Organization: 2, Type: core.PrincipalAgent, ID: 1, Name: "ci", Permissions: core.RoleOwner.Permissions()},
		},
	})
	r := httptest.NewRequestWithContext(c.t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	c.review()
	return w.Code, w.Body.String()
}

// R3-08: a tool without a client of ours reports over HTTP. It is idempotent, and what was observed earlier changes nothing any more.
func TestAStatusIsReportedOverHTTP(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	body := func(phase string, at time.Duration) string {
		return fmt.Sprintf(`{"application":%q,"environment":"dev","version_set":"versionset_%d","key":"healthy","phase":%q,"link":"https://ci.test/7","observed_at":%q}`,
			c.application.Name, c.set.ID, phase, c.now.Now().Add(at).UTC().Format(time.RFC3339))
	}
	for i, one := range []struct {
		phase, counts string
		at            time.Duration
		rows          int
	}{
		{"pending", "pending", -time.Minute, 1},
		{"pending", "pending", -time.Minute, 1},
		{"success", "pending", -time.Hour, 1}, // late
		{"failure", "failure", -30 * time.Second, 2},
	} {
		code, answer := c.postStatus("reports", "application/json; charset=utf-8", body(one.phase, one.at))
		var got struct{ Phase, Reporter string }
		if err := json.Unmarshal([]byte(answer), &got); err != nil || code != http.StatusOK || got.Phase != one.counts || got.Reporter != "ci" {
			t.Errorf("%d: found %d %s; expected %s", i, code, answer, one.counts)
		}
		c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), one.rows)
	}
	c.want(c.granted(), []string{"dev"})
	c.postStatus("reports", "application/json", body("success", 0))
	c.want(c.granted(), []string{"dev", "test"})
}

// R3-08, D48: a status is reported by a CloudEvent as well, with its attributes beside the data or in headers.
func TestAStatusIsReportedByACloudEvent(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	const inBody, status = "application/cloudevents+json", "com.lockstep.check.status.v1"
	data := fmt.Sprintf(`{"application":%q,"environment":"dev","version_set":"versionset_%d","key":"healthy","phase":"success"}`, c.application.Name, c.set.ID)
	event := func(kind, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"7","source":"/ci","type":%q,"data":%s}`, kind, data)
	}
	for _, one := range []struct {
		name, token, body string
		code              int
		text              string
	}{
		{"another type", "reports", event("com.gitlab.cd.check.reported", data), 400, `/type: found \"com.gitlab.cd.check.reported\"; expected ` + status},
		{"no source", "reports", `{"specversion":"1.0","id":"7","type":"` + status + `","data":` + data + `}`, 400, "/source: found nothing"},
		{"no data", "reports", `{"specversion":"1.0","id":"7","source":"/ci","type":"` + status + `"}`, 400, "expected one JSON object"},
		{"a field that does not exist", "reports", event(status, `{"sha":"abc"}`), 400, `unknown field \"sha\"`},
		{"no right", "deploys", event(status, data), 403, `\"report\"`},
		{"no token", "", event(status, data), 401, "bearer token"},
	} {
		if code, answer := c.postStatus(one.token, inBody, one.body); code != one.code || !strings.Contains(answer, one.text) {
			t.Errorf("%s: found %d %s; expected %d with %s", one.name, code, answer, one.code, one.text)
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 0)
	for range 2 {
		code, answer := c.postStatus("reports", inBody, event(status, data))
		c.want(code, http.StatusOK)
		c.want(strings.Contains(answer, `"phase":"success"`), true)
	}
	c.want(c.granted(), []string{"dev", "test"})
	code, answer := c.post(api.ChecksPath, "reports", "application/json", strings.Replace(data, "success", "failure", 1),
		"Ce-Specversion", "1.0", "Ce-Id", "8", "Ce-Source", "/ci", "Ce-Type", status)
	c.want(code, http.StatusOK)
	c.want(strings.Contains(answer, `"phase":"failure"`), true)
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 2)
}

// R3-08, R3-10: the time of a CloudEvent is when its status was observed, unless its data says: one that comes late or again opens nothing.
func TestACloudEventThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	r := c.rollout(c.set)
	c.enter(r, "dev", "test")
	c.complete(r, "dev")
	const inBody, status = "application/cloudevents+json", "com.lockstep.check.status.v1"
	start := c.now.Now()
	at := func(ago time.Duration) string { return start.Add(-ago).UTC().Format(time.RFC3339Nano) }
	data := func(phase, more string) string {
		return fmt.Sprintf(`{"application":%q,"environment":"dev","version_set":"versionset_%d","key":"healthy","phase":%q%s}`, c.application.Name, c.set.ID, phase, more)
	}
	beside := func(phase, time, more string) (int, string) {
		return c.postStatus("reports", inBody, fmt.Sprintf(
			`{"specversion":"1.0","id":"7","source":"/ci","type":%q,"time":%q,"data":%s}`, status, time, data(phase, more)))
	}
	before := func(phase, time, more string) (int, string) {
		return c.post(api.ChecksPath, "reports", "application/json", data(phase, more),
			"Ce-Specversion", "1.0", "Ce-Id", "8", "Ce-Source", "/ci", "Ce-Type", status, "Ce-Time", time)
	}
	observed := func(ago time.Duration) string { return fmt.Sprintf(`,"observed_at":%q`, at(ago)) }
	for i, one := range []struct {
		send              func(phase, time, more string) (int, string)
		phase, time, more string
		code              int
		text              string
		rows              int
	}{
		{beside, "failure", at(time.Minute), "", 200, `"phase":"failure"`, 1},
		{beside, "success", at(2 * time.Minute), "", 200, `"phase":"failure"`, 1},
		{before, "success", at(2 * time.Minute), "", 200, `"phase":"failure"`, 1},
		{before, "success", at(0), observed(2 * time.Minute), 200, `"phase":"failure"`, 1}, // the data says
		{beside, "success", at(time.Minute), "", 200, `"phase":"failure"`, 1},              // of the same time
		{beside, "failure", at(time.Minute), "", 200, `"phase":"failure"`, 1},
		{beside, "success", "yesterday", "", 400, `/time: found \"yesterday\"`, 1},
		{before, "success", at(-2 * time.Minute), "", 400, "which is in the future", 1},
		{before, "success", at(31 * 24 * time.Hour), "", 400, "expected a time of the last 30 days", 1},
		{before, "pending", at(30*time.Second + 300), "", 200, `"phase":"pending"`, 2},
	} {
		code, answer := one.send(one.phase, one.time, one.more)
		if code != one.code || !strings.Contains(answer, one.text) {
			t.Errorf("%d: found %d %s; expected %d with %s", i, code, answer, one.code, one.text)
		}
		c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), one.rows)
	}
	c.want(c.granted(), []string{"dev"})
	for range 2 { // nanoseconds that are not stored make no other time
		code, answer := before("success", at(30*time.Second+300), "")
		c.want(code, http.StatusOK)
		c.want(strings.Contains(answer, `"phase":"success"`), true)
		c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 3)
	}
	c.want(c.granted(), []string{"dev", "test"})
}

// Each bad input has an error of its own, and changes nothing (R3-08, R3-10).
func TestABadStatusOverHTTPIsRefused(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	good := map[string]any{
		"application": c.application.Name, "environment": "dev", "version_set": fmt.Sprintf("versionset_%d", c.set.ID), "key": "healthy",
		"phase": "success",
	}
	for _, one := range []struct {
		name, token, kind string
		change            map[string]any
		code              int
		text              string
	}{
		{"no token", "", "application/json", nil, 401, "bearer token"},
		{"a token that proves nothing", "guessed", "application/json", nil, 401, "authorization"},
		{"no right", "deploys", "application/json", nil, 403, `\"report\"`},
		{"another organization", "other", "application/json", nil, 404, "does not exist"},
		{"a form", "reports", "application/x-www-form-urlencoded", nil, 400, "expected application/json"},
		{"no application", "reports", "application/json", map[string]any{"application": ""}, 400, "/application: found nothing"},
		{"no environment", "reports", "application/json", map[string]any{"environment": nil}, 400, "/environment: found nothing"},
		{"an environment that does not exist", "reports", "application/json", map[string]any{"environment": "mars"}, 404, "mars"},
		{"a version set without its form", "reports", "application/json", map[string]any{"version_set": "set-7"}, 400, `/version_set: found \"set-7\"; expected versionset_7`},
		{"no subject", "reports", "application/json", map[string]any{"version_set": ""}, 400, "/version_set: expected a version set, a commit or a digest"},
		{"an unknown key", "reports", "application/json", map[string]any{"key": "healty"}, 400, "which no check of the application in that environment has"},
		{"an unknown commit", "reports", "application/json", map[string]any{"version_set": "", "commit": strings.Repeat("a", 40)}, 400, "no deployment of the application"},
		{"a link of a script", "reports", "application/json", map[string]any{"link": "javascript:alert(1)"}, 400, "expected an http or https address"},
		{"a clock ahead", "reports", "application/json", map[string]any{"observed_at": "2027-01-15T08:01:01Z"}, 400, "/observed_at: found 2027-01-15T08:01:01Z, which is in the future"},
		{"no time", "reports", "application/json", map[string]any{"observed_at": "yesterday"}, 400, "yesterday"},
		{"a long description", "reports", "application/json", map[string]any{"description": strings.Repeat("d", 1001)}, 400, "/description: found 1001 bytes"},
		{"a megabyte", "reports", "application/json", map[string]any{"description": strings.Repeat("d", 1<<20)}, 400, "found more than 65536 bytes"},
		{"a field that does not exist", "reports", "application/json", map[string]any{"sha": "abc"}, 400, `unknown field \"sha\"`},
		{"a number for a word", "reports", "application/json", map[string]any{"phase": 1}, 400, "/phase: found a number; expected a string"},
		{"a phase that does not exist", "reports", "application/json", map[string]any{"phase": "green"}, 400, "expected pending, success or failure"},
	} {
		in := map[string]any{}
		for _, all := range []map[string]any{good, one.change} {
			for name, value := range all {
				in[name] = value
			}
		}
		body, err := json.Marshal(in)
		c.ok(err)
		if code, answer := c.postStatus(one.token, one.kind, string(body)); code != one.code || !strings.Contains(answer, one.text) {
			t.Errorf("%s: found %d %s; expected %d with %s", one.name, code, answer, one.code, one.text)
		}
	}
	for _, body := range []string{``, `[]`, `{} {}`, `{`, `null`} {
		if code, answer := c.postStatus("reports", "application/json", body); code != 400 {
			t.Errorf("%q: found %d %s; expected 400", body, code, answer)
		}
	}
	c.want(c.countOf(`SELECT count(*) FROM cd_check_statuses`), 0)
}

// R3-49: a system asks over HTTP for a check to be evaluated now, of the active rollout of an application; each mistake has its own error.
func TestACheckIsEvaluatedOverHTTP(t *testing.T) {
	t.Parallel()
	c, r := gauged(t)
	ask := func(token, body string) (int, string) {
		return c.post(api.EvaluateCheckPath, token, "application/json", body)
	}
	ticket := fmt.Sprintf(`{"application":%q,"environment":"prod","key":"ticket"}`, c.application.Name)
	nudges := func(want int) {
		t.Helper()
		c.want(c.countOf(`SELECT count(*) FROM outbox WHERE event->>'type' = 'com.gitlab.cd.check.nudged'`), want)
	}
	if code, answer := ask("reports", ticket); code != http.StatusConflict && code != http.StatusBadRequest {
		t.Errorf("before its passage is requested: %d %s", code, answer)
	}
	c.enter(r, "dev")
	c.enter(r, "prod")
	for _, one := range []struct {
		token, body string
		code        int
		text        string
	}{
		{"", ticket, 401, "bearer token"},
		{"deploys", ticket, 403, `\"report\"`},
		{"other", ticket, 404, "does not exist"},
		{"reports", `{}`, 400, "/application: found nothing"},
		{"reports", `{"application":"shop","environment":"prod","key":"ticket","rollout":7}`, 400, "unknown field"},
		{"reports", strings.Replace(ticket, "ticket", "tickets", 1), 0, "waits for a check"},
		{"reports", strings.Replace(ticket, "prod", "mars", 1), 404, "mars"},
	} {
		code, answer := ask(one.token, one.body)
		if one.code != 0 && code != one.code || code == http.StatusAccepted || !strings.Contains(answer, one.text) {
			t.Errorf("%s as %q: found %d %s; expected %d with %s", one.body, one.token, code, answer, one.code, one.text)
		}
	}
	nudges(0)
	if code, answer := ask("reports", ticket); code != http.StatusAccepted {
		t.Errorf("found %d %s", code, answer)
	}
	nudges(1)
}
