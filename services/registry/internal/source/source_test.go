package source_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

const (
	structured = "application/cloudevents+json"
	batch      = "application/cloudevents-batch+json"
	plain      = "application/json"
)

func format(tb testing.TB, name string) source.Format {
	tb.Helper()
	for _, f := range source.Formats() {
		if f.Name == name {
			return f
		}
	}
	tb.Fatalf("no format %s", name)
	return source.Format{}
}

func headers(pairs ...string) http.Header {
	h := http.Header{"Content-Type": {plain}}
	for pair := range slices.Chunk(pairs, 2) {
		h.Add(pair[0], pair[1])
	}
	return h
}

func binaryHeaders() http.Header {
	return headers("ce-specversion", "1.0", "ce-id", "1", "ce-source", "/ci", "ce-type", "com.gitlab.cd.artifact.published",
		"ce-organizationid", "3")
}

const data = `{"image":"r.example.com/shop/api","digest":"` + digest +
	`","tag":"1.4.0","published_at":"2026-03-25T10:00:00Z","more":{"a":[1]}}`

func attributes(more string) string {
	return `{"specversion":"1.0","id":"1","source":"/ci","type":"com.gitlab.cd.artifact.published"` + more + `}`
}

func want() core.Notification {
	return core.Notification{
		Source: "/ci", ID: "1", Image: "r.example.com/shop/api", Digest: digest, Tag: "1.4.0",
		PublishedAt: "2026-03-25T10:00:00Z",
	}
}

var ignoreNames = cmpopts.IgnoreFields(core.Notification{}, "Names")

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	first, third := want(), want()
	third.Organization = 3
	second := core.Notification{Source: "/ci", ID: "2", Image: "a/b", Digest: digest}
	tests := []struct {
		name, media string
		header      http.Header
		body        string
		want        []core.Notification
	}{
		{"structured", structured, nil, attributes(`,"data":` + data), []core.Notification{first}},
		{"data before everything else", structured, nil, `{"data":` + data + `,` + attributes("")[1:], []core.Notification{first}},
		{
			"specversion last", structured, nil, `{"data":` + data +
				`,"datacontenttype":"application/json","id":"1","source":"/ci","type":"com.gitlab.cd.artifact.published","specversion":"1.0"}`,
			[]core.Notification{first},
		},
		{"base64", structured, nil, `{"data_base64": "eyJpbWFnZSI6ImEvYiIsImRpZ2VzdCI6InNoYTI1Njo5Zjg2ZDA4MTg4NGM3ZDY1OWEyZmVhYTBjNTVhZDAxNWEzYmY0ZjFiMmIwYjgyMmNkMTVkNmMxNWIwZjAwYTA4In0=", "specversion":"1.0","id":"2","source":"/ci","type":"com.gitlab.cd.artifact.published"}`, []core.Notification{second}},
		{"null is absent", structured, nil, attributes(`,"subject":null,"data":` + data), []core.Notification{first}},
		{"batch", batch, nil, "[" + attributes(`,"data":`+data) +
			`,{"specversion":"1.0","id":"2","source":"/ci","type":"com.gitlab.cd.artifact.published","data":{"image":"a/b","digest":"` + digest +
			`"}}]`, []core.Notification{first, second}},
		{"empty batch", batch, nil, `[]`, []core.Notification{}},
		{"binary", plain, binaryHeaders(), data, []core.Notification{third}},
		{
			"JSON of another name", structured, nil, attributes(`,"datacontenttype":"application/x+json","data":` + data),
			[]core.Notification{first},
		},
		{
			"another type", structured, nil, strings.Replace(attributes(`,"data":{}`), "artifact.published", "rollout.started", 1),
			[]core.Notification{{
				Foreign: `found "com.gitlab.cd.rollout.started"; expected "com.gitlab.cd.artifact.published" or "com.gitlab.cd.artifact.deleted", the only types taken here`,
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := format(t, "cloudevents").Parse(tt.header, tt.media, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, ignoreNames); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCloudEventsRefused(t *testing.T) {
	t.Parallel()
	with := func(name, value string) http.Header { h := binaryHeaders(); h.Set(name, value); return h }
	without := func(name string) http.Header { h := binaryHeaders(); h.Del(name); return h }
	twice := binaryHeaders()
	twice.Add("ce-id", "2")
	tests := []struct {
		name, media string
		header      http.Header
		body        string
		want        []string // field and parts of its problem
	}{
		{"empty body", structured, nil, ``, []string{"body", "empty"}},
		{"truncated", structured, nil, `{"specversion":"1.0","id`, []string{"body", "ends too early"}},
		{"truncated between tokens", structured, nil, `{"specversion":"1.0"`, []string{"body", "ends too early"}},
		{"not JSON", structured, nil, `<xml/>`, []string{"body", "not JSON at byte 1"}},
		{"two documents", structured, nil, attributes(`,"data":`+data) + `{}`, []string{"body", "a second document"}},
		{"a key twice", structured, nil, attributes(`,"id":"2","data":` + data), []string{"body", `key "id" twice`}},
		{"not UTF-8", structured, nil, "{\"id\":\"\xff\"}", []string{"body", "not UTF-8"}},
		{
			"too deep", structured, nil, attributes(`,"data":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)),
			[]string{"body", "nested more than 32"},
		},
		{"very deep", structured, nil, strings.Repeat("[", 100_000), []string{"body", "nested more than 32"}},
		{"an array", structured, nil, `[]`, []string{"body", "found an array; expected an object"}},
		{"an object as batch", batch, nil, `{}`, []string{"body", "found an object; expected an array"}},
		{"not an event in a batch", batch, nil, `[7]`, []string{"body[0]", "found 7; expected an object"}},
		{"no specversion", structured, nil, `{"id":"1"}`, []string{"specversion", "missing"}},
		{"old specversion", structured, nil, `{"specversion":"0.3","id":"1"}`, []string{"specversion", `found "0.3"; expected "1.0"`}},
		{"number as id", structured, nil, `{"specversion":"1.0","id":1}`, []string{"id", "found 1; expected a string"}},
		{"number as data_base64", structured, nil, attributes(`,"data_base64":1`), []string{"data_base64", "found 1; expected a string"}},
		{"data and data_base64", structured, nil, attributes(`,"data_base64":"e30=","data":{}`), []string{"data_base64", "beside data"}},
		{"not base64", structured, nil, attributes(`,"data_base64":"*"`), []string{"event", "not a CloudEvent"}},
		{
			"too deep in base64", structured, nil, attributes(`,"data_base64":"W1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tb"`),
			[]string{"data_base64", "nested more than 32"},
		},
		{"no type", structured, nil, `{"specversion":"1.0","id":"1","source":"/ci","data":{}}`, []string{"type", "missing"}},
		{"no data", structured, nil, attributes(``), []string{"data", "missing"}},
		{"text as data", structured, nil, attributes(`,"data":"x"`), []string{"data", `found "x"; expected an object`}},
		{
			"data of another kind", structured, nil, attributes(`,"datacontenttype":"text/plain","data":"x"`),
			[]string{"datacontenttype", `found "text/plain"`},
		},
		{
			"number as digest", structured, nil, attributes(`,"data":{"image":"a","digest":7}`),
			[]string{"data.digest", "found 7; expected a string"},
		},
		{
			"wrong organization", structured, nil, attributes(`,"organizationid":"acme","data":` + data),
			[]string{"organizationid", `found "acme"`},
		},
		{"wrong time", structured, nil, attributes(`,"time":"noon","data":` + data), []string{"event", "noon"}},
		{
			"wrong digest in a batch", batch, nil, "[" + attributes(`,"data":`+data) + "," + attributes(`,"data":{"image":"a","digest":7}`) + "]",
			[]string{"[1].data.digest", "found 7"},
		},
		{"binary without attributes", plain, headers(), data, []string{"ce-specversion", "missing"}},
		{"binary with an old version", plain, with("ce-specversion", "0.3"), data, []string{"ce-specversion", `found "0.3"`}},
		{"binary with a header twice", plain, twice, data, []string{"ce-id", "found 2 times"}},
		{"binary without type", plain, without("ce-type"), data, []string{"ce-type", "missing"}},
		{"binary with a wrong time", plain, with("ce-time", "noon"), data, []string{"event", "noon"}},
		{"binary, number as image", plain, binaryHeaders(), `{"image":7}`, []string{"data.image", "found 7"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := format(t, "cloudevents").Parse(tt.header, tt.media, []byte(tt.body))
			refused(t, err, tt.want)
		})
	}
}

// refused checks that err is about one field and describes its problem.
func refused(t *testing.T, err error, want []string) {
	t.Helper()
	fields := fault.FieldsOf(err)
	if !fault.Is(err, fault.Invalid) || len(fields) != 1 {
		t.Fatalf("error = %v, want an invalid one about one field", err)
	}
	if fields[0].Name != want[0] {
		t.Errorf("field is %q, want %q", fields[0].Name, want[0])
	}
	for _, part := range want[1:] {
		if !strings.Contains(fields[0].Problem, part) {
			t.Errorf("problem %q does not say %q", fields[0].Problem, part)
		}
	}
}

func TestDistribution(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile(filepath.Join("testdata", "distribution.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := format(t, "distribution").Parse(nil, "application/vnd.docker.distribution.events.v2+json", body)
	if err != nil {
		t.Fatal(err)
	}
	want := []core.Notification{
		{
			Source: "/distribution/registry.example.com:5000", ID: "320678d8-ca14-430f-8bb6-4ca139cd83f7",
			Place: "http://registry.example.com:5000", Image: "shop/api", Digest: digest, Tag: "1.4.0",
			PublishedAt: "2026-03-25T10:00:00.402973972Z",
			Manifest:    core.Manifest{MediaType: "application/vnd.docker.distribution.manifest.v2+json"},
		},
		{Source: "/distribution/", ID: "delete", Image: "shop/api", Tag: "1.3.0", PublishedAt: "2026-03-25T10:00:03Z", Deleted: true},
	}
	if diff := cmp.Diff(want, got, ignoreNames); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

func TestDistributionRefused(t *testing.T) {
	t.Parallel()
	push := func(target, rest string) string {
		return fmt.Sprintf(`{"events":[{"id":"1","action":"push","target":{"mediaType":"application/vnd.oci.image.manifest.v1+json"%s}%s}]}`,
			target, rest)
	}
	tests := []struct {
		name, body string
		want       []string
	}{
		{"no events", `{}`, []string{"events", "missing; expected an array"}},
		{"events of the wrong type", `{"events":{}}`, []string{"events", "found an object"}},
		{"not an object", `[]`, []string{"body", "found an array"}},
		{"truncated", `{"events":[`, []string{"body", "ends too early"}},
		{"event of the wrong type", `{"events":["x"]}`, []string{"events[0]", `found "x"`}},
		{"action of the wrong type", `{"events":[{"action":1}]}`, []string{"events[0].action", "found 1"}},
		{"push of nothing", `{"events":[{"action":"push"}]}`, []string{"events[0].target", "missing; expected an object"}},
		{"digest of the wrong type", push(`,"digest":1`, `,"request":{"host":"r"}`), []string{"events[0].target.digest", "found 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := format(t, "distribution").Parse(nil, "", []byte(tt.body))
			refused(t, err, tt.want)
		})
	}
}
