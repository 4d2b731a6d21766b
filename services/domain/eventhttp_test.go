package domain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// sent posts an event with a token, and returns the answer.
func (w winter) sent(method, token string, header map[string]string, body string) (code int, answer string) {
	w.t.Helper()
	none := http.NotFoundHandler()
	h := api.NewHandler(api.Deps{
		GraphQL: none, Console: none, Access: w.access, Triggers: w.triggers, Clock: w.now,
		Tokens: api.Tokens{
			"deploys": {Organization: org, Type: core.PrincipalAgent, ID: 2, Name: "cd", Permissions: core.RoleDeployer.Permissions()},
			"reads":   {Organization: org, Type: core.PrincipalAgent, ID: 3, Name: "look", Permissions: core.PermissionsOf(core.MayRead)},
			"other":   {Organization: 2, Type: core.PrincipalAgent, ID: 1, Name: "ci", Permissions: core.RoleOwner.Permissions()},
		},
	})
	r := httptest.NewRequestWithContext(w.t.Context(), method, api.EventsPath, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code, strings.TrimSpace(rec.Body.String())
}

// D58: a system without a client of ours sends a CloudEvent over HTTP, in either form of its binding; the event counts once.
func TestAnEventOverHTTPBeginsOneRollout(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["build.*"],"data":{"build.branch":"main"}}`)
	const data = `{"build":{"branch":"main"}}`
	inHeaders := map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/ci", "Ce-Type": "build.passed",
		"Content-Type": "application/json",
	}
	inBody := map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}
	for name, one := range map[string]struct {
		token, body, want string
		header            map[string]string
	}{
		"in headers": {"deploys", data, `{"triggers":1,"full":0}`, inHeaders},
		"in the body": {
			"deploys", `{"data":` + data +
				`,"type":"build.passed","source":"/ci","id":"1","specversion":"1.0","team":"shop","time":"2027-01-15T08:00:00Z"}`,
			`{"triggers":1,"full":0}`, inBody,
		},
		"in base64": {
			"deploys", `{"specversion":"1.0","type":"build.passed","source":"/ci","id":"1","datacontenttype":"application/vnd.ci+json",` +
				`"data_base64":"eyJidWlsZCI6eyJicmFuY2giOiJtYWluIn19"}`,
			`{"triggers":1,"full":0}`, inBody,
		},
		"of another type": {
			"deploys", `{"specversion":"1.0","type":"test.passed","source":"/ci","id":"1"}`, `{"triggers":0,"full":0}`,
			inBody,
		},
		"another organization": {"other", data, `{"triggers":0,"full":0}`, inHeaders},
	} {
		if code, answer := w.sent(http.MethodPost, one.token, one.header, one.body); code != http.StatusAccepted || answer != one.want {
			t.Errorf("%s: found %d %s; expected %s", name, code, answer, one.want)
		}
	}
	w.want(len(w.decide()), 1)
	w.want(w.rolloutCount(), 1)
}

// D58: an event is known by its source and its id, however its attributes are written, and two are never one.
func TestEventsOfTwoSourcesAreTwo(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["*"]}`)
	inHeaders := func(source, id string) map[string]string {
		return map[string]string{"Ce-Specversion": "1.0", "Ce-Id": id, "Ce-Source": source, "Ce-Type": "t"}
	}
	for _, header := range []map[string]string{
		inHeaders("/ci", "shop/1"), inHeaders("/ci", "shop%2F1"), inHeaders("/ci", `"shop/1"`), // one
		inHeaders("/ci/shop", "1"), inHeaders("/ci", "shop%252F1"), inHeaders("/ci", "caf%C3%A9"),
		inHeaders("/ci", strings.Repeat("/", 256)), inHeaders("/ci", strings.Repeat("/", 255)),
	} {
		if code, answer := w.sent(http.MethodPost, "deploys", header, ""); code != http.StatusAccepted || answer != `{"triggers":1,"full":0}` {
			t.Errorf("%v: found %d %s", header, code, answer)
		}
	}
	rows, err := w.pool.Query(t.Context(), `SELECT cause FROM cd_trigger_signals ORDER BY id`)
	w.ok(err)
	causes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.ok(err)
	w.want(causes[:4], []string{"event:/ci/shop%2F1", "event:/ci/shop/1", "event:/ci/shop%252F1", "event:/ci/café"})
	w.want(len(causes), 6)
}

// D58: a trigger that has too much to decide about does not keep an event from others, and the sender learns of it.
func TestAFullTriggerDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["t"]}`)
	header := map[string]string{"Content-Type": "application/cloudevents+json"}
	body := func(kind, id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","type":%q,"source":"/ci","id":%q}`, kind, id)
	}
	send := func(id string, code int, want string) {
		t.Helper()
		if found, answer := w.sent(http.MethodPost, "deploys", header, body("t", id)); found != code || !strings.Contains(answer, want) {
			t.Errorf("found %d %s; expected %d %s", found, answer, code, want)
		}
	}
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at, state)
		SELECT organization_id, id, 'event:/ci/full-' || n, now(), now(), 'pending' FROM cd_triggers, generate_series(1, 500) n WHERE kind =
			'event'`)
	w.ok(err)
	send("1", http.StatusTooManyRequests, "500 events to decide about")
	_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "other", Kind: core.TriggerEvent, Config: json.RawMessage(`{"types":["t"]}`), Enabled: true,
	})
	w.ok(err)
	send("1", http.StatusAccepted, `{"triggers":1,"full":1}`)
}

// D58: each malformed event has an error of its own, and none reaches a trigger.
func TestABadEventOverHTTPIsRefused(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["*"]}`)
	structured := func(body string) (map[string]string, string) {
		return map[string]string{"Content-Type": "application/cloudevents+json"}, body
	}
	headers := func(change ...string) map[string]string {
		all := map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/ci", "Ce-Type": "t", "Content-Type": "application/json"}
		for pair := range slices.Chunk(change, 2) {
			if all[pair[0]] = pair[1]; pair[1] == "" {
				delete(all, pair[0])
			}
		}
		return all
	}
	for _, one := range []struct {
		name, token, body string
		header            map[string]string
		code              int
		text              string
	}{
		{"no token", "", `{}`, headers(), 401, "bearer token"},
		{"a token that proves nothing", "guessed", `{}`, headers(), 401, "authorization"},
		{"no right", "reads", `{}`, headers(), 403, "deploy"},
		{"no version", "deploys", `{}`, headers("Ce-Specversion", ""), 400, `found ce-specversion \"\"`},
		{"another version", "deploys", `{}`, headers("Ce-Specversion", "0.3"), 400, "expected ce-specversion 1.0"},
		{"no id", "deploys", `{}`, headers("Ce-Id", ""), 400, "/id: found 0 bytes"},
		{"data that is no JSON", "deploys", `{`, headers(), 400, "/data: found no JSON object"},
		{"data that is a list", "deploys", `[]`, headers(), 400, "/data: found no JSON object"},
		{"data of another type", "deploys", `a,b`, headers("Content-Type", "text/csv"), 400, `/datacontenttype: found \"text/csv\"`},
		{
			"a content type that cannot be read", "deploys", `{"specversion":"1.0","type":"t","source":"/ci","id":"1"}`,
			headers("Content-Type", "application/cloudevents+json; =", "Ce-Id", "", "Ce-Source", "", "Ce-Type", ""), 400, "found content type",
		},
		{"data without a content type", "deploys", `{}`, headers("Content-Type", ""), 400, "/datacontenttype: found no content type"},
		{"a broken percent", "deploys", `{}`, headers("Ce-Id", "100%"), 400, "expected %25"},
		{"a zero byte", "deploys", `{}`, headers("Ce-Id", "a%00b"), 400, "/id: found"},
		{"no UTF-8", "deploys", `{}`, headers("Ce-Id", "\xff"), 400, "/id: found"},
		{"another binding", "deploys", `[]`, headers("Content-Type", "application/cloudevents+avro"), 400, "application/cloudevents+json"},
		{"too much", "deploys", `{"a":"` + strings.Repeat("a", 1<<20) + `"}`, headers(), 400, "found more than 131072 bytes"},
		{"too much data", "deploys", `{"a":"` + strings.Repeat("a", 70_000) + `"}`, headers(), 400, "/data: found 70008 bytes"},
	} {
		if code, answer := w.sent(http.MethodPost, one.token, one.header, one.body); code != one.code || !strings.Contains(answer, one.text) {
			t.Errorf("%s: found %d %s; expected %d with %s", one.name, code, answer, one.code, one.text)
		}
	}
	for body, text := range map[string]string{
		``:     "found no JSON object",
		`null`: "found no JSON object",
		`[{}]`: "found no JSON object",
		`{"specversion":"1.0","id":7,"source":"/ci","type":"t"}`:                                              "/id: found 7; expected a text",
		`{"specversion":"0.3","id":"7","source":"/ci","type":"t"}`:                                            "/specversion: found",
		`{"specversion":"1.0","id":"7","source":"/ci"}`:                                                       "/type: found 0 bytes",
		`{"specversion":"1.0","id":"7","source":"/ci","type":"t","data":"text"}`:                              "/data: found no JSON object",
		`{"specversion":"1.0","id":"7","source":"/ci","type":"t","data":{},"data_base64":"e30="}`:             "/data_base64: found beside data",
		`{"specversion":"1.0","id":"7","source":"/ci","type":"t","data_base64":"%"}`:                          "/data_base64: found no base64",
		`{"specversion":"1.0","id":"7","source":"/ci","type":"t","datacontenttype":"text/xml","data":"<a/>"}`: "/datacontenttype: found",
	} {
		header, body := structured(body)
		if code, answer := w.sent(http.MethodPost, "deploys", header, body); code != 400 || !strings.Contains(answer, text) {
			t.Errorf("%s: found %d %s; expected 400 with %s", body, code, answer, text)
		}
	}
	if code, _ := w.sent(http.MethodGet, "deploys", headers(), ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: found %d", code)
	}
	w.want(len(w.decide()), 0)
	w.want(w.rolloutCount(), 0)
}

// D58: many events are sent at once: each is decided about as if it came by itself, also one that occurs twice, or comes again in another
// batch.
func TestABatchOfEventsIsDecidedAboutOneByOne(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["build.*"],"data":{"branch":"main"}}`)
	_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "tests", Kind: core.TriggerEvent, Config: json.RawMessage(`{"types":["test.*"]}`), Enabled: true,
	})
	w.ok(err)
	one := func(kind, id, branch string) string {
		return fmt.Sprintf(`{"specversion":"1.0","type":%q,"source":"/ci","id":%q,"data":{"branch":%q}}`, kind, id, branch)
	}
	send := func(want string, all ...string) {
		t.Helper()
		header := map[string]string{"Content-Type": "application/cloudevents-batch+json; charset=utf-8"}
		code, answer := w.sent(http.MethodPost, "deploys", header, "["+strings.Join(all, ",")+"]")
		if code != http.StatusAccepted || answer != want {
			t.Errorf("found %d %s; expected %s", code, answer, want)
		}
	}
	const reached, not = `{"triggers":1,"full":0}`, `{"triggers":0,"full":0}`
	// What one event has of a pattern, and another one of the other, does not make either match.
	send(`{"events":[`+strings.Join([]string{reached, not, reached, reached, not}, ",")+`]}`,
		one("build.passed", "1", "main"), one("build.passed", "2", "mine"), one("test.passed", "3", "mine"), one("build.passed", "1", "main"),
		one("deploy.passed", "4", "main"))
	send(`{"events":[`+reached+`,`+reached+`]}`, one("build.passed", "1", "main"), one("build.failed", "5", "main"))
	send(`{"events":[`+not+`]}`, one("build.passed", "2", "mine"))
	rows, err := w.pool.Query(t.Context(), `SELECT t.name || ' ' || s.cause FROM cd_trigger_signals s JOIN cd_triggers t ON t.id = s.trigger_id
		WHERE t.kind = 'event' ORDER BY t.id, s.cause`)
	w.ok(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.ok(err)
	w.want(len(found), 3)
	for i, end := range []string{" event:/ci/1", " event:/ci/5", "tests event:/ci/3"} {
		if !strings.HasSuffix(found[i], end) {
			t.Errorf("found %q; expected it to end with %q", found[i], end)
		}
	}
}

// D58: the events of a batch are decided about in the order of the batch, whatever their ids and types are: the last one is what counts.
func TestABatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["build.*"]}`)
	var all, want []string
	for i, id := range []string{"9", "10", "8", "b", "a"} {
		all = append(all, fmt.Sprintf(`{"specversion":"1.0","type":"build.%d","source":"/ci","id":%q}`, i%2, id))
		want = append(want, "event:/ci/"+id)
	}
	header := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	if code, answer := w.sent(http.MethodPost, "deploys", header, "["+strings.Join(all, ",")+"]"); code != http.StatusAccepted {
		t.Fatalf("found %d %s", code, answer)
	}
	var found []string
	w.ok(w.pool.QueryRow(t.Context(), `SELECT array_agg(cause ORDER BY id) FROM cd_trigger_signals WHERE cause LIKE 'event:%'`).Scan(&found))
	w.want(found, want)
}

// D58: a batch with an event that is wrong reaches no trigger, and the error says which it is.
func TestABatchIsTakenOrRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["t"]}`)
	const right = `{"specversion":"1.0","type":"t","source":"/ci","id":"1"}`
	member := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"m%d":1`, i)
		}
		return fmt.Sprintf(`{"specversion":"1.0","type":"t","source":"/ci","id":"1","data":{%s}}`, strings.Join(all, ","))
	}
	header := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	for body, text := range map[string]string{
		``:                  "found no JSON list",
		`null`:              "found no JSON list",
		right:               "found no JSON list",
		`[]`:                "found 0 events; expected 1 to 100",
		`[` + right + `,`:   "found no JSON list",
		`[` + right + `,7]`: "/1: found no JSON object",
		`[{"specversion":"1.0","type":"t","source":"/ci","id":""}]`:                           "/0/id: found 0 bytes",
		`[` + right + `,{"specversion":"0.3","type":"t","source":"/ci","id":"2"}]`:            "/1/specversion: found",
		`[` + right + `,{"specversion":"1.0","type":"t","source":"/ci","id":""}]`:             "/1/id: found 0 bytes",
		`[` + right + `,{"specversion":"1.0","type":"t","source":"/ci","id":"2","data":[1]}]`: "/1/data: found no JSON object",
		`[` + strings.Repeat(right+",", 100) + right + `]`:                                    "found 101 events; expected 1 to 100",
		`[` + right + `,` + member(2001) + `]`:                                                "/1/data: found more than 2000 members",
		`[` + right + `,` + member(1900) + `,` + member(1900) + `,` + member(1900) + `]`:      "in the first 4 events; send fewer at once",
		`[` + right + `,"` + strings.Repeat("a", 1<<20) + `"]`:                                "found more than 1048576 bytes",
	} {
		if code, answer := w.sent(http.MethodPost, "deploys", header, body); code != 400 || !strings.Contains(answer, text) {
			t.Errorf("%.200s: found %d %.300s; expected 400 with %s", body, code, answer, text)
		}
	}
	if code, answer := w.sent(http.MethodPost, "reads", header, `[`+right+`]`); code != http.StatusForbidden {
		t.Errorf("without the right: found %d %s", code, answer)
	}
	w.want(len(w.decide()), 0)
	w.want(w.rolloutCount(), 0)
}

// D58: a batch in which one event finds its trigger full delivers the others, and says which one has to be sent again. What a trigger has
// already takes no room: what was answered once is answered again.
func TestABatchFillsATriggerUpToItsLimit(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["t"]}`)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at, state)
		SELECT organization_id, id, 'event:/ci/full-' || n, now(), now(), 'pending' FROM cd_triggers, generate_series(1, 497) n WHERE kind =
			'event'`)
	w.ok(err)
	header := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	one := func(id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","type":"t","source":"/ci","id":%q}`, id)
	}
	send := func(code int, want string, ids ...string) {
		t.Helper()
		all := make([]string, len(ids))
		for i, id := range ids {
			all[i] = one(id)
		}
		found, answer := w.sent(http.MethodPost, "deploys", header, "["+strings.Join(all, ",")+"]")
		if found != code || !strings.Contains(answer, want) {
			t.Errorf("%v: found %d %s; expected %d %s", ids, found, answer, code, want)
		}
	}
	const reached = `{"triggers":1,"full":0}`
	send(202, `{"events":[`+reached+`,`+reached+`]}`, "a", "b")
	send(202, `{"events":[`+reached+`,`+reached+`]}`, "a", "b")
	send(202, `{"events":[`+reached+`,`+reached+`,`+reached+`,`+reached+`]}`, "c", "c", "a", "c")
	send(429, "/2: each of the 1 triggers", "c", "b", "d")
	send(202, `{"events":[`+reached+`,`+reached+`]}`, "a", "c")
	if code, answer := w.sent(http.MethodPost, "deploys", map[string]string{"Content-Type": "application/cloudevents+json"}, one("b")); code != 202 {
		t.Errorf("one that it has: found %d %s", code, answer)
	}
	var kept []string
	w.ok(w.pool.QueryRow(t.Context(), `SELECT array_agg(cause ORDER BY id) FROM cd_trigger_signals WHERE cause ~ '^event:/ci/.$'`).Scan(&kept))
	w.want(kept, []string{"event:/ci/a", "event:/ci/b", "event:/ci/c"})
}

// D58: the room of a trigger is one for events of all types in a batch: what it has takes none of it, also if another type takes the rest.
func TestTypesOfABatchShareTheRoomOfATrigger(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["*"]}`)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at, state)
		SELECT organization_id, id, 'event:/ci/' || n, now(), now(), 'pending' FROM cd_triggers, generate_series(1, 499) n WHERE kind = 'event'`)
	w.ok(err)
	header := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	const two = `[{"specversion":"1.0","type":"a","source":"/ci","id":"new"},{"specversion":"1.0","type":"b","source":"/ci","id":"7"}]`
	const reached = `{"triggers":1,"full":0}`
	for range 2 {
		code, answer := w.sent(http.MethodPost, "deploys", header, two)
		if want := `{"events":[` + reached + `,` + reached + `]}`; code != http.StatusAccepted || answer != want {
			t.Errorf("found %d %s; expected 202 %s", code, answer, want)
		}
	}
}

// D58: what a batch makes is bounded by what it makes, not only by what is in it; one event reaches as many triggers as it matches.
func TestABatchThatReachesTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerEvent, `{"types":["t"]}`)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_triggers
			(organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
		SELECT organization_id, application_id, 'other-' || n, kind, config, enabled, principal_type, principal_id, principal_name, changed_at
		FROM cd_triggers, generate_series(1, 119) n WHERE kind = 'event'`)
	w.ok(err)
	send := func(n, code int, want string) {
		t.Helper()
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"specversion":"1.0","type":"t","source":"/ci","id":"%d"}`, i)
		}
		found, answer := w.sent(http.MethodPost, "deploys", map[string]string{"Content-Type": "application/cloudevents-batch+json"},
			"["+strings.Join(all, ",")+"]")
		if found != code || !strings.Contains(answer, want) {
			t.Errorf("%d events: found %d %.300s; expected %d %s", n, found, answer, code, want)
		}
	}
	count := func(want int) {
		t.Helper()
		var n int
		w.ok(w.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'event:%'`).Scan(&n))
		w.want(n, want)
	}
	send(17, 400, "reach more than 2000 triggers together; send fewer at once")
	count(0)
	send(16, 202, `{"triggers":120,"full":0}`)
	count(16 * 120)
}
