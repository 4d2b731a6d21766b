package graph_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// keyed sends a mutation under an idempotency key.
func (f *fixture) keyed(organization int64, key, body string) (int, string) {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	response, text := f.serve(organization, r)
	return response.StatusCode, string(text)
}

func member(name string) string {
	return `{"query":"mutation { createMember(input: {name: \"` + name + `\", role: VIEWER}) { member { id name } errors { code } } }"}`
}

func TestTheSameKeyIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	status, first := f.keyed(ours, "k1", member("alice"))
	if status != http.StatusOK || !strings.Contains(first, `"name":"alice"`) {
		t.Fatalf("%d %s", status, first)
	}
	if status, again := f.keyed(ours, "k1", member("alice")); status != http.StatusOK || again != first {
		t.Errorf("again: %d %s; want the first answer, not that the name is taken", status, again)
	}
	if status, text := f.keyed(ours, "k1", member("bob")); status != http.StatusConflict ||
		!strings.Contains(text, "used for another request") {
		t.Errorf("another request under the key: %d %s", status, text)
	}
	// Keys are one's own: another organization's are others.
	if status, text := f.keyed(theirs, "k1", member("alice")); status != http.StatusOK || !strings.Contains(text, `"name":"alice"`) {
		t.Errorf("another organization: %d %s", status, text)
	}
	if status, text := f.keyed(ours, strings.Repeat("x", 201), member("carol")); status != http.StatusBadRequest {
		t.Errorf("a key that is too long: %d %s", status, text)
	}
}

func TestASecretIsNotKeptToBeAnsweredAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ci, err := f.access.CreateMember(t.Context(), actor(ours),
		access.NewMember{Name: "ci", Kind: core.PrincipalAgent, Role: core.RoleDeployer})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("member_%d", ci.ID)
	body := `{"query":"mutation { createToken(input: {name: \"ci\", memberId: \"` + id + `\"}) { token errors { code } } }"}`
	if status, text := f.keyed(ours, "k", body); status != http.StatusOK || !strings.Contains(text, "lockstep_") {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := f.keyed(ours, "k", body); status != http.StatusConflict || strings.Contains(text, "lockstep_") ||
		!strings.Contains(text, "not kept") {
		t.Errorf("again: %d %s", status, text)
	}
	var kept int
	if err := f.owner.QueryRow(t.Context(), `SELECT count(*) FROM cd_requests WHERE position('lockstep_'::bytea in answer) > 0`).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("%d answers have a token in them, %v", kept, err)
	}
}

func TestManyAtOnceAreOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		all.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", strings.NewReader(member("alice")))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", "k")
			response, text := f.serve(ours, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case response.StatusCode == http.StatusOK && strings.Contains(string(text), `"name":"alice"`):
				made++
			case response.StatusCode == http.StatusConflict && strings.Contains(string(text), "is being carried out"):
			default:
				t.Errorf("%d %s", response.StatusCode, text)
			}
		})
	}
	all.Wait()
	var members int
	if err := f.owner.QueryRow(t.Context(), `SELECT count(*) FROM cd_members WHERE name = 'alice'`).Scan(&members); err != nil ||
		members != 1 || made == 0 {
		t.Errorf("%d members, %d answers, %v", members, made, err)
	}
}
