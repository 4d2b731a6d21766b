package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// serve answers the requests with bodies, one after the other, and records them.
func serve(t *testing.T, status int, bodies ...string) (*client.Client, *[]map[string]any) {
	t.Helper()
	var asked []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization: got %q", got)
		}
		body, _ := io.ReadAll(r.Body)
		var request struct{ Variables map[string]any }
		if err := json.Unmarshal(body, &request); err != nil {
			t.Errorf("request: %v", err)
		}
		asked = append(asked, request.Variables)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, bodies[(len(asked)-1)%len(bodies)])
	}))
	t.Cleanup(server.Close)
	return client.New(client.Config{Endpoint: server.URL, Token: "secret"}), &asked
}

func TestReadsFollowPages(t *testing.T) {
	t.Parallel()
	c, asked := serve(t, http.StatusOK,
		`{"data":{"rollout":{"id":"rollout_1","state":"COMPLETED","journal":{"nodes":[{"event":"start"}],"pageInfo":{"hasNextPage":true,"endCursor":"c1"}}}}}`,
		`{"data":{"rollout":{"id":"rollout_1","state":"COMPLETED","journal":{"nodes":[{"event":"complete"}],"pageInfo":{"hasNextPage":false}}}}}`)
	got, err := c.Rollout(t.Context(), "rollout_1")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Journal) != 2 || got.Journal[0].Event != "start" || got.Journal[1].Event != "complete" || !got.Over() {
		t.Errorf("got %+v, want both pages of the journal", got)
	}
	want := []map[string]any{{"id": "rollout_1", "first": 100., "after": nil}, {"id": "rollout_1", "first": 100., "after": "c1"}}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestCausesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	c, asked := serve(t, http.StatusOK,
		`{"data":{"rollout":{"id":"rollout_1","causes":[{"event":"create"}],"journal":{"nodes":[{"event":"start"}],"pageInfo":{"hasNextPage":true,"endCursor":"c1"}}}}}`,
		`{"data":{"rollout":{"id":"rollout_1","journal":{"nodes":[{"event":"complete"}],"pageInfo":{"hasNextPage":false}}}}}`)
	got, err := c.RolloutWithCauses(t.Context(), "rollout_1")
	if err != nil || len(got.Journal) != 2 || len(got.Causes) != 1 || len(*asked) != 2 {
		t.Errorf("got %+v, %v; want two pages of the journal, and the causes of the first answer", got, err)
	}
}

func TestListsEndAtTheirLimit(t *testing.T) {
	t.Parallel()
	c, asked := serve(t, http.StatusOK, `{"data":{"rollouts":{"nodes":[{"id":"rollout_2"},{"id":"rollout_1"}],"pageInfo":{"hasNextPage":true,"endCursor":"c"}}}}`)
	got, err := c.Rollouts(t.Context(), client.Filter{Application: "shop", States: []string{"FAILED"}, Limit: 2})
	if err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v; want two rollouts", got, err)
	}
	want := []map[string]any{{"first": 2., "after": nil, "application": "shop", "states": []any{"FAILED"}}}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

// A server that answers the same cursor again and again does not keep the command line busy for ever, nor does it pass for the end.
func TestPagesHaveToAdvance(t *testing.T) {
	t.Parallel()
	c, asked := serve(t, http.StatusOK, `{"data":{"members":{"nodes":[],"pageInfo":{"hasNextPage":true,"endCursor":"c"}},
		"archivedObjects":{"objects":[],"next":"c"},"recordDifferences":{"differences":[],"next":"c"}}}`)
	_, members := c.Members(t.Context())
	_, archived := c.ArchivedObjects(t.Context(), "handoffs")
	_, differences := c.RecordDifferences(t.Context(), time.Unix(1_800_000_000, 0))
	for name, err := range map[string]error{"members": members, "archived objects": archived, "differences": differences} {
		if err == nil || !strings.Contains(err.Error(), "found the cursor of the page before") {
			t.Errorf("%s: found %v; want them refused", name, err)
		}
	}
	if len(*asked) != 6 {
		t.Errorf("asked %d times; want twice for each", len(*asked))
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		body   string
		class  fault.Class
		text   string
	}{
		{"null", 200, `{"data":{"application":null}}`, fault.NotFound, `application "shop"`},
		{
			"graph error", 200, `{"data":null,"errors":[{"message":"no such field","path":["application"],"extensions":{"code":"DENIED"}}]}`,
			fault.Denied, "application: no such field",
		},
		{
			"validation", 422, `{"errors":[{"message":"Cannot query field","extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`, fault.Invalid,
			"Cannot query field",
		},
		{"not GraphQL", 401, "no token\n", fault.Unauthenticated, "no token"},
		{"a proxy", 502, "<html>", fault.Unavailable, "502 Bad Gateway"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, tt.status, tt.body)
			_, err := c.Application(t.Context(), "shop")
			if !fault.Is(err, tt.class) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v (%v), want class %v with %q", err, fault.ClassOf(err), tt.class, tt.text)
			}
		})
	}
}

func TestMutationsNameTheFieldAtFault(t *testing.T) {
	t.Parallel()
	c, asked := serve(t, http.StatusOK, `{"data":{"createRollout":{"rollout":null,"errors":[{"field":["input","versionSetId"],"message":"found a rollout in progress","code":"CONFLICT"}]}}}`)
	_, err := c.CreateRollout(t.Context(), client.NewRollout{VersionSet: "version_set_1", Reason: "why"})
	if !fault.Is(err, fault.Conflict) || err.Error() != "input.versionSetId: found a rollout in progress" {
		t.Errorf("got %v (%v)", err, fault.ClassOf(err))
	}
	want := []map[string]any{{"input": map[string]any{"versionSetId": "version_set_1", "reason": "why"}}}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	c := client.New(client.Config{Endpoint: "http://127.0.0.1:1/graphql"})
	if _, err := c.Applications(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v, want Unavailable with the address", err)
	}
}

// D56: during an upgrade, credentials are listed at a domain service that knows no GitHub Apps.
func TestCredentialsOfAnOlderServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"data":{"credentials":[{"name":"manifests"}]}}`
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "githubApp") {
			answer = `{"errors":[{"message":"Cannot query field \"githubApp\" on type \"Credential\"."}]}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	found, err := client.New(client.Config{Endpoint: server.URL, Token: "secret"}).Credentials(t.Context())
	if err != nil || len(found) != 1 || found[0].Name != "manifests" {
		t.Errorf("found %v, %v; want one credential", found, err)
	}
}

// R4-25: a server that lacks only the latest fields is asked for all others; one that is older still is asked without the newer ones.
func TestARolloutOfAnOlderServer(t *testing.T) {
	t.Parallel()
	for name, lacks := range map[string][]string{"latest": {"atWork"}, "newer": {"atWork", "deadlines"}} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, string(body))
			for _, field := range lacks {
				if strings.Contains(string(body), field) {
					_, _ = io.WriteString(w, `{"errors":[{"message":"Cannot query field \"`+field+`\" on type \"Any\"."}]}`)
					return
				}
			}
			_, _ = io.WriteString(w, `{"data":{"rollout":{"id":"rollout_7"}, "planPreview":{"applications":[{"environments":[{}]}]}}}`)
		}))
		t.Cleanup(server.Close)
		c := client.New(client.Config{Endpoint: server.URL, Token: "secret"})
		if found, err := c.Rollout(t.Context(), "rollout_7"); err != nil || found.ID != "rollout_7" {
			t.Errorf("%s: found %v, %v; want the rollout", name, found, err)
		}
		if last := asked[len(asked)-1]; strings.Contains(last, "deadlines {") != (name == "latest") {
			t.Errorf("%s: asked for %s", name, last)
		}
		if found, err := c.PlanPreview(t.Context(), client.Change{Repository: "git.test/a"}); err != nil || len(found.Applications) != 1 {
			t.Errorf("%s: found %v, %v; want the plan", name, found, err)
		}
		if last := asked[len(asked)-1]; !strings.Contains(last, "approvers } }") || strings.Contains(last, "atWork") {
			t.Errorf("%s: asked for %s", name, last)
		}
	}
}

// D57: a server that knows no display names is asked without them, and its environments and services are shown by their names.
func TestNamesOfAnOlderServer(t *testing.T) {
	t.Parallel()
	knows := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		shown := ""
		switch {
		case knows:
			shown = `,"displayName":"live"`
		case strings.Contains(string(body), "displayName"):
			_, _ = io.WriteString(w, `{"errors":[{"message":"Cannot query field \"displayName\" on type \"Environment\"."}]}`)
			return
		}
		place := `{"id":"environment_2","name":"production"` + shown + `}`
		_, _ = io.WriteString(w, `{"data":{"environment":`+place+`,"application":{"id":"application_1","name":"shop","environments":[{"environment":`+place+`}],
			"services":[{"id":"service_1","name":"api"}]}}}`)
	}))
	t.Cleanup(server.Close)
	c := client.New(client.Config{Endpoint: server.URL, Token: "secret"})
	for _, want := range []string{"live (production)", "production"} {
		e, err := c.Environment(t.Context(), "production")
		if err != nil || e.Shown() != want {
			t.Errorf("found %q, %v; want %q", e.Shown(), err, want)
		}
		a, err := c.Application(t.Context(), "shop")
		if err != nil || a.Environments[0].Environment.Shown() != want || a.Services[0].Shown() != "api" {
			t.Errorf("found %+v, %v; want %q", a, err, want)
		}
		if at := a.Environments[0].Environment; at.Called("live") != knows || !at.Called("production") || at.Called("") || a.Services[0].Called("") {
			t.Errorf("%s: it goes by other names", want)
		}
		knows = false
	}
}
