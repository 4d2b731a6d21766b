package domain

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// lists are what the pages of the console read first.
var lists = []string{
	"viewer { principalId member { name } }", "members(first: 5) { nodes { name role } }", "agents(first: 5) { nodes { name } }",
	"applications(first: 5) { totalCount nodes { name services { name } } }", "environments(first: 5) { nodes { name } }",
	"rollouts(first: 5) { totalCount nodes { id state } }", "journal(last: 5) { nodes { __typename } }", "audit(first: 5) { nodes { __typename } }",
	"freezes(first: 5) { nodes { id } }", "gatesForMe(first: 5) { totalCount nodes { __typename } }", "journalCursor",
	"matrix(first: 5) { nodes { application { id name } newest { id name } } }",
}

// at asks a document with what the client has seen, and answers the body, the position of the answer and the status.
func (r *running) at(document, seen string) (body, position string, status int) {
	r.t.Helper()
	text, err := json.Marshal(map[string]any{"query": document})
	if err != nil {
		r.t.Fatal(err)
	}
	request := http0(r.t, http.MethodPost, r.url+"/graphql", string(text), token)
	if seen != "" {
		request.Header.Set("Lockstep-Position", seen)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(answer), response.Header.Get("Lockstep-Position"), response.StatusCode
}

// Requirement D65: lists and journal are read from a standby by clients that say what they have seen, and every one sees what it has done.
func TestTheAPIReadsFromAStandby(t *testing.T) {
	t.Parallel()
	var ports [2]string
	for i := range ports {
		_, number, err := net.SplitHostPort(porttest.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = number
	}
	pair, err := postgres.StartPair(t.Context(), t.TempDir(), ports, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	health := porttest.FreeAddress(t)
	r := start(t, pg.Config{URL: pair.URL(), Schema: "domain"}, func(c *Config) {
		c.DatabaseStandbyURL, c.HealthAddress = pair.StandbyURL(), health
	})
	served := regexp.MustCompile(`(?m)^lockstep_database_reads_total{server="(\w+)"} (\d+)$`)
	reads := func() (standby, primary string) {
		metrics, err := r.request(http0(t, http.MethodGet, "http://"+health+"/metrics", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range served.FindAllStringSubmatch(metrics, -1) {
			if m[1] == "standby" {
				standby = m[2]
			} else {
				primary = m[2]
			}
		}
		return standby, primary
	}

	if _, position, _ := r.at("{ viewer { principalId } }", ""); position != "" {
		t.Errorf("an answer to a client that does not ask for it: position %q, expected none", position)
	}
	wait.For(t, "the standby takes reads", func() bool {
		before, _ := reads()
		_, position, status := r.at("{ viewer { principalId } }", pg.Now)
		after, _ := reads()
		return status == http.StatusOK && position != "" && before != after
	})

	seen := pg.Now
	for i := range 20 { // what was just made is found, wherever it is read
		name := fmt.Sprintf("shop-%d", i)
		body, position, _ := r.at(fmt.Sprintf(`mutation { createApplication(input: {name: %q, services: [{name: "api", artifactSources: [
			{sourceRef: "oci-image@1", sourceConfig: {image: "registry.test/shop/api-%d"}}]}]}) { application { id } errors { message } } }`,
			name, i), seen)
		if !strings.Contains(body, `"id"`) || position == "" {
			t.Fatalf("made %s: answered %s, position %q", name, body, position)
		}
		seen = position
		if body, seen, _ = r.at(fmt.Sprintf("{ application(name: %q) { name } }", name), seen); !strings.Contains(body, name) || seen == "" {
			t.Fatalf("read after the position of what was made: found %s, position %q", body, seen)
		}
	}

	_, before := reads()
	wait.For(t, "the standby has all of it", func() bool {
		_, _, _ = r.at("{ viewer { principalId } }", seen)
		_, now := reads()
		settled := now == before
		before = now
		return settled
	})
	for _, list := range lists {
		body, _, status := r.at("{ "+list+" }", seen)
		if status != http.StatusOK || strings.Contains(body, `"errors"`) {
			t.Errorf("%s: answered %d %s", list, status, body)
		}
	}
	if _, now := reads(); now != before {
		t.Errorf("found %s reads on the primary after the lists, expected %s as before: one of them cannot be read on a standby", now, before)
	}

	if body, _, status := r.at("{ viewer { principalId } }", "yesterday"); status != http.StatusBadRequest ||
		!strings.Contains(body, `Lockstep-Position: found \"yesterday\"; expected a position of the database`) {
		t.Errorf("a malformed position: answered %d %s", status, body)
	}
	if err := pair.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if body, _, status := r.at("{ applications(first: 1) { totalCount } }", seen); status != http.StatusOK || !strings.Contains(body, `"totalCount":20`) {
		t.Errorf("with a standby that is silent: answered %d %s", status, body)
	}
}
