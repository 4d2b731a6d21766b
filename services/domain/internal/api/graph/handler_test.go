package graph_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const viewer = `{"query":"{viewer{organization{name}}}"}`
	get := func(query string) string { return "/graphql?" + url.Values{"query": {query}}.Encode() }
	tests := []struct {
		name                              string
		nobody                            bool
		method, target, contentType, body string
		status                            int
		part                              string
	}{
		{name: "POST", body: viewer, status: 200, part: `{"data":{"viewer":{"organization":{"name":"ours"}}}}`},
		{name: "GET", method: "GET", target: get("{viewer{organization{name}}}"), status: 200, part: `"name":"ours"`},
		{name: "GET with variables", method: "GET", target: "/graphql?" + url.Values{
			"query":     {"query($n:String!){application(name:$n){id}}"},
			"variables": {`{"n":"x"}`},
		}.Encode(), status: 200, part: `{"application":null}`},
		{name: "charset", contentType: "application/json; charset=utf-8", body: viewer, status: 200, part: `"data"`},
		{name: "nobody", nobody: true, body: viewer, status: 401, part: "UNAUTHENTICATED"},
		{
			name: "mutation by GET", method: "GET", target: get(`mutation{cancelRollout(input:{rolloutId:"1"}){errors{code}}}`), status: 405,
			part: "found GET; expected POST for a mutation",
		},
		{name: "GET without query", method: "GET", status: 400, part: "query: missing"},
		{name: "other method", method: "PUT", body: viewer, status: 405, part: "found PUT"},
		{name: "content type of a form", contentType: "text/plain", body: viewer, status: 415, part: `found \"text/plain\"`},
		{name: "other charset", contentType: "application/json; charset=latin1", body: viewer, status: 415, part: "UTF-8"},
		{name: "not JSON", body: `{"query":`, status: 400, part: "unexpected end"},
		{name: "wrong type", body: `{"query":7}`, status: 400, part: "body.query: found number; expected {"},
		{name: "a list of requests", body: `[]`, status: 400, part: "body: found array; expected {"},
		{name: "wrong variables", body: `{"query":"{viewer{principalType}}","variables":[]}`, status: 400, part: "variables"},
		{name: "no query", body: `{}`, status: 400, part: "found no query"},
		{name: "two documents", body: viewer + viewer, status: 400, part: "body"},
		{name: "too large", body: `{"query":"` + strings.Repeat(" ", 1<<20) + `"}`, status: 413, part: "at most 1048576 bytes"},
		{name: "syntax error", body: `{"query":"{viewer"}`, status: 400, part: "GRAPHQL_PARSE_FAILED"},
		{name: "unknown field", body: `{"query":"{viewer{password}}"}`, status: 400, part: `Cannot query field \"password\"`},
		{name: "wrong argument", body: `{"query":"{applications(first:\"x\"){nodes{id}}}"}`, status: 400, part: "GRAPHQL_VALIDATION_FAILED"},
		{name: "missing variable", body: `{"query":"query($n:String!){application(name:$n){id}}"}`, status: 400, part: "must be defined"},
		{name: "wrong enum in a variable", body: `{"query":"query($s:[RolloutState!]){rollouts(states:$s){nodes{id}}}","variables":{"s":["LOST"]}}`, status: 400, part: "LOST is not a valid RolloutState; expected one of PENDING, IN_PROGRESS, "},
		{
			name: "number that does not fit", body: `{"query":"{applications(first:99999999999999999999){nodes{id}}}"}`, status: 400,
			part: "non 32-bit",
		},
		{
			name: "endless cursor", body: `{"query":"{applications(after:\"` + strings.Repeat("x", 600) + `\"){nodes{id}}}"}`, status: 200,
			part: "expected a cursor of this list",
		},
	}
	for _, tt := range tests {
		method, target, contentType := tt.method, tt.target, tt.contentType
		if method == "" {
			method = http.MethodPost
		}
		if target == "" {
			target = "/graphql"
		}
		if contentType == "" {
			contentType = "application/json"
		}
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", contentType)
		organization := int64(ours)
		if tt.nobody {
			organization = 0
		}
		response, body := f.serve(organization, r)
		if response.StatusCode != tt.status || !strings.Contains(string(body), tt.part) {
			t.Errorf("%s: answered %d %.300s, want %d with %s", tt.name, response.StatusCode, body, tt.status, tt.part)
		}
		if media := response.Header.Get("Content-Type"); media != "application/graphql-response+json" {
			t.Errorf("%s: content type is %q", tt.name, media)
		}
		if !json.Valid(body) {
			t.Errorf("%s: body is not JSON: %.300s", tt.name, body)
		}
	}
}

// TestAnswersOfRequestsThatAreNotCarriedOut: media types and statuses as the specification of GraphQL over HTTP has
// them (the audits 572B, FDE2, 7B9B, D586 and 5E5B).
func TestAnswersOfRequestsThatAreNotCarriedOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const (
		response = "application/graphql-response+json"
		plain    = "application/json"
	)
	subscription := `{"query":"subscription{journal{cursor}}"}`
	mutation := "/graphql?" + url.Values{"query": {`mutation{cancelRollout(input:{rolloutId:"1"}){errors{code}}}`}}.Encode()
	tests := []struct {
		name, method, target, accept, body string
		status                             int
		media, allow, part                 string
	}{
		{
			name: "a subscription without a stream", accept: plain, body: subscription, status: 406, media: response,
			part: `accept: found \"application/json\"; expected text/event-stream for a subscription`,
		},
		{name: "a subscription of any type", accept: "*/*", body: subscription, status: 406, media: response, part: "expected text/event-stream"},
		{
			name: "a subscription in parts", accept: "multipart/mixed", body: subscription, status: 406, media: response,
			part: "expected text/event-stream",
		},
		{
			name: "a subscription of GraphQL's type", accept: response, body: subscription, status: 406, media: response,
			part: "expected text/event-stream",
		},
		{
			name: "a subscription by GET", method: "GET", target: "/graphql?" + url.Values{"query": {"subscription{journal{cursor}}"}}.Encode(),
			status: 406, media: response, part: "expected text/event-stream",
		},
		{
			name: "a mutation by GET", method: "GET", target: mutation, accept: plain, status: 405, media: response, allow: "POST",
			part: "expected POST",
		},
		{
			name: "a mutation by GET as a stream", method: "GET", target: mutation, accept: "text/event-stream", status: 405, media: response,
			allow: "POST", part: "expected POST",
		},
		{name: "no document", accept: response, body: `{"query":"{"}`, status: 400, media: response, part: "GRAPHQL_PARSE_FAILED"},
		{name: "no document for an older client", accept: plain, body: `{"query":"{"}`, status: 200, media: plain, part: "GRAPHQL_PARSE_FAILED"},
		{name: "no such field", accept: response, body: `{"query":"{nothing}"}`, status: 400, media: response, part: "Cannot query field"},
		{
			name: "no such field for an older client", accept: plain + ", */*", body: `{"query":"{nothing}"}`, status: 200, media: plain,
			part: "Cannot query field",
		},
		{
			name: "a bad variable for an older client", accept: plain,
			body: `{"query":"query($n:String!){application(name:$n){id}}","variables":{"n":{}}}`, status: 200, media: plain, part: "n",
		},
		{
			name: "several operations", body: `{"query":"query a{viewer{principalType}} query b{viewer{principalType}}"}`, status: 400,
			media: response, part: "operationName: found none; expected the one of the document's operations that is to be carried out: a, b",
		},
		{
			name: "another operation", body: `{"query":"query a{viewer{principalType}} query b{viewer{principalType}}","operationName":"c"}`,
			status: 400, media: response, part: `operationName: found \"c\"; expected`,
		},
		{
			name: "many errors", body: `{"query":"{viewer{principalType` + strings.Repeat(" @x", 4000) + `}}"}`, status: 400, media: response,
			part: "more errors",
		},
	}
	for _, tt := range tests {
		method, target := tt.method, tt.target
		if method == "" {
			method = http.MethodPost
		}
		if target == "" {
			target = "/graphql"
		}
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/json")
		if tt.accept != "" {
			r.Header.Set("Accept", tt.accept)
		}
		answer, body := f.serve(ours, r)
		if answer.StatusCode != tt.status || !strings.Contains(string(body), tt.part) || strings.Contains(string(body), `"data"`) ||
			len(body) > 20_000 {
			t.Errorf("%s: answered %d, %d bytes, %.300s; want %d with %s, without data", tt.name, answer.StatusCode, len(body),
				body, tt.status, tt.part)
		}
		if media, allow := answer.Header.Get("Content-Type"), answer.Header.Get("Allow"); media != tt.media || allow != tt.allow {
			t.Errorf("%s: type %q, Allow %q; want %q and %q", tt.name, media, allow, tt.media, tt.allow)
		}
	}
}

func TestOlderClientsGetJSON(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", strings.NewReader(`{"query":"{viewer{principalType}}"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	response, _ := f.serve(ours, r)
	if media := response.Header.Get("Content-Type"); media != "application/json" {
		t.Errorf("content type is %q", media)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	nest := func(levels int) string { // application { rollouts { nodes { application { … } } } }
		q := "id"
		for range levels {
			q = "application { activeRollout { " + q + " } }"
		}
		return "{ rollouts(first: 1) { nodes { " + q + " } } }"
	}
	var bomb strings.Builder // each fragment uses the next twice: 2⁴⁰ fields
	bomb.WriteString("{ ...f0 }")
	for i := range 40 {
		fmt.Fprintf(&bomb, " fragment f%d on Query { ...f%d ...f%d }", i, i+1, i+1)
	}
	bomb.WriteString(" fragment f40 on Query { viewer { principalType } }")
	deliveries := func(n int) (q string) {
		for i := range n {
			q += fmt.Sprintf(` d%d: deliveryMetrics(application: "nobody") { deployments }`, i)
		}
		return q
	}
	plans := func(n int) (q string) {
		for i := range n {
			q += fmt.Sprintf(` p%d: planPreview(input: {repository: "git.test/shop/config", branch: "main", paths: ["a"]}) { more }`, i)
		}
		return q
	}
	templates := func(n int) (q string) {
		for i := range n {
			q += fmt.Sprintf(` t%d: notificationPreview(channel: "nowhere", event: DRIFT) { title }`, i)
		}
		return q
	}
	channels := func(n int) (q string) {
		for i := range n {
			q += fmt.Sprintf(` c%d: putNotificationChannel(input: {name: "-", kind: SLACK, config: {}}) { errors { message } }`, i)
		}
		return q
	}
	tests := []struct{ name, query, want string }{
		{"too many templates", "{" + templates(51) + "}", "ask for smaller pages"},
		{"some templates", "{" + templates(2) + "}", "does not exist"},
		{"too many channels", "mutation {" + channels(51) + "}", "ask for smaller pages"},
		{"some channels", "mutation {" + channels(2) + "}", ""},
		{"deep but useful", nest(3), ""},
		{"too deep", nest(8), "selections nest"},
		{
			"too much", `{ applications(first: 200) { nodes { rollouts(first: 200) { nodes { journal(first: 200) { nodes { event } } } } } } }`,
			"ask for smaller pages",
		},
		{"too much by variable", `query($n: Int = 200) { applications(first: $n) { nodes { rollouts(first: $n) { nodes { environments { id } } } } } }`, "ask for smaller pages"},
		{"too many causes", `{ rollouts(first: 100) { nodes { causes { event } } } }`, "ask for smaller pages"},
		{"the causes of a page", `{ rollouts { nodes { causes { event principal { name } } } } }`, ""},
		{"too many metrics", "{" + deliveries(23) + "}", "ask for smaller pages"},
		{"some metrics", "{" + deliveries(2) + "}", "does not exist"},
		{"too many plans", "{" + plans(5) + "}", "ask for smaller pages"},
		{"some plans", "{" + plans(4) + "}", ""},
		{"fragments that explode", bomb.String(), "more than 10000 fields"},
		{"too many words", "{" + strings.Repeat(" a: drivers { ref }", 10_000) + "}", "token"},
		{
			"introspection that explodes", `{ __schema { types { fields { type { fields { type { fields { type { fields { name } } } } } } } } } }`,
			"introspection",
		},
		{"introspection of tools", introspection, ""},
	}
	for _, tt := range tests {
		a := f.ask(ours, tt.query, nil)
		switch {
		case tt.want == "" && len(a.Errors) > 0:
			t.Errorf("%s: refused: %v", tt.name, a.Errors)
		case tt.want != "" && (len(a.Errors) == 0 || !strings.Contains(strings.ToLower(a.Errors[0].Message), tt.want)):
			t.Errorf("%s: answered %.200s %v, want %q", tt.name, a.Data, a.Errors, tt.want)
		}
	}
}

// introspection is the query with which GraphiQL and code generators begin.
const introspection = `query IntrospectionQuery {
  __schema { queryType { name } mutationType { name } subscriptionType { name } types { ...FullType } directives { name description locations args { ...InputValue } } }
}
fragment FullType on __Type {
  kind name description
  fields(includeDeprecated: true) { name description args { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
  inputFields { ...InputValue } interfaces { ...TypeRef } enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef }
}
fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue }
fragment TypeRef on __Type {
  kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } }
}`

func TestPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 5 {
		f.application(ours, fmt.Sprintf("a%d", i), "api")
	}
	var names []string
	var after any
	for range 10 {
		var data struct {
			Applications struct {
				Nodes    []struct{ Name string }
				PageInfo struct {
					HasNextPage bool
					EndCursor   *string
				}
			}
		}
		f.ask(ours, `query($after: String) { applications(first: 2, after: $after) { nodes { name } pageInfo { hasNextPage endCursor } } }`,
			map[string]any{"after": after}).into(t, &data)
		for _, n := range data.Applications.Nodes {
			names = append(names, n.Name)
		}
		if !data.Applications.PageInfo.HasNextPage {
			break
		}
		after = *data.Applications.PageInfo.EndCursor
	}
	if got := strings.Join(names, " "); got != "a0 a1 a2 a3 a4" {
		t.Errorf("pages show %s", got)
	}
	var data struct {
		Applications struct{ Nodes []struct{ Name string } }
	}
	f.ask(ours, `{ applications(first: 1000) { nodes { name } } }`, nil).into(t, &data)
	if len(data.Applications.Nodes) != 5 {
		t.Errorf("a page that is asked to be too large shows %d", len(data.Applications.Nodes))
	}
}
