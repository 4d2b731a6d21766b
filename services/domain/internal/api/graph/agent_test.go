package graph_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// agentAnswer is what the mutations of agents answer.
type agentAnswer struct {
	Agent *struct {
		ID        string
		Number    int64
		Name      string
		RevokedAt *string
		Connected bool
		Keys      []struct {
			ID, PublicKey        string
			ExpiresAt, RevokedAt *string
		}
		ViewerCan []struct {
			Action  string
			Allowed bool
		}
		Environments []struct{ Name string }
	}
	Seed   string
	Errors []userError
}

const agentFields = `agent { id number name revokedAt connected keys { id publicKey expiresAt revokedAt } viewerCan { action allowed } environments { name } } errors { field code message }`

// agents asks for one of their mutations in the name of an organization.
func (f *fixture) agents(organization int64, mutation, input string, in map[string]any, more string) agentAnswer {
	f.t.Helper()
	var data struct{ It agentAnswer }
	f.ask(organization, "mutation($in: "+input+"!) { it: "+mutation+"(input: $in) { "+more+" "+agentFields+" } }",
		map[string]any{"in": in}).into(f.t, &data)
	return data.It
}

func (f *fixture) register(organization int64, name string) agentAnswer {
	f.t.Helper()
	return f.agents(organization, "registerAgent", "RegisterAgentInput", map[string]any{"name": name}, "seed")
}

func TestAnAgentIsRegisteredRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	made := f.register(ours, "production")
	if len(made.Errors) > 0 || made.Agent.Name != "production" || !strings.HasPrefix(made.Seed, "SU") || len(made.Agent.Keys) != 1 ||
		made.Agent.Connected {
		t.Fatalf("registered: %+v", made)
	}
	// Each organization has names of its own, and numbers are nobody else's.
	if again, other := f.register(ours, "production"), f.register(theirs, "production"); len(again.Errors) != 1 ||
		again.Errors[0].Code != "CONFLICT" || len(other.Errors) > 0 || other.Agent.Number == made.Agent.Number {
		t.Errorf("registered twice: %+v, by another organization: %+v", again.Errors, other)
	}
	rotated := f.agents(ours, "rotateAgent", "RotateAgentInput", map[string]any{"agentId": made.Agent.ID, "overlapSeconds": 3600}, "seed")
	if len(rotated.Errors) > 0 || rotated.Seed == made.Seed || len(rotated.Agent.Keys) != 2 || rotated.Agent.Keys[0].ExpiresAt != nil ||
		rotated.Agent.Keys[1].ExpiresAt == nil {
		t.Fatalf("rotated: %+v", rotated)
	}
	third := f.agents(ours, "rotateAgent", "RotateAgentInput", map[string]any{"agentId": made.Agent.ID}, "seed")
	if len(third.Errors) != 1 || third.Errors[0].Code != "REFUSED" || third.Seed != "" {
		t.Errorf("a third key: %+v", third)
	}
	old := f.agents(ours, "revokeAgentKey", "RevokeAgentKeyInput", map[string]any{"keyId": rotated.Agent.Keys[1].ID}, "")
	if len(old.Errors) > 0 || old.Agent.Keys[1].RevokedAt == nil || old.Agent.Keys[0].RevokedAt != nil {
		t.Errorf("the key before, revoked: %+v", old)
	}
	at := f.agents(ours, "rotateAgent", "RotateAgentInput", map[string]any{"agentId": made.Agent.ID, "overlapSeconds": 0}, "seed")
	if len(at.Errors) > 0 || at.Agent.Keys[1].ExpiresAt == nil {
		t.Errorf("rotated at once: %+v", at)
	}
	gone := f.agents(ours, "revokeAgent", "RevokeAgentInput", map[string]any{"agentId": made.Agent.ID}, "")
	if len(gone.Errors) > 0 || gone.Agent.RevokedAt == nil {
		t.Errorf("revoked: %+v", gone)
	}
	for _, can := range gone.Agent.ViewerCan {
		if can.Allowed {
			t.Errorf("of a revoked agent the viewer can %s", can.Action)
		}
	}
	var data struct {
		Agents, All struct{ Nodes []struct{ Name string } }
		Agent       *struct{ Name string }
	}
	f.ask(ours, `{ agents { nodes { name } } all: agents(withRevoked: true) { nodes { name } } agent(name: "production") { name } }`,
		nil).into(t, &data)
	if len(data.Agents.Nodes) != 0 || len(data.All.Nodes) != 1 || data.Agent != nil {
		t.Errorf("after revocation: %+v", data)
	}
	// The name is free again.
	if again := f.register(ours, "production"); len(again.Errors) > 0 || again.Agent.Number == made.Agent.Number {
		t.Errorf("registered anew: %+v", again)
	}
}

func TestOnlyOwnersRegisterAgentsAndReadTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	made := f.register(ours, "production")
	f.as = core.RoleMaintainer.Permissions()
	for mutation, in := range map[string]map[string]any{
		"registerAgent": {"name": "another"}, "rotateAgent": {"agentId": made.Agent.ID}, "revokeAgent": {"agentId": made.Agent.ID},
		"revokeAgentKey": {"keyId": made.Agent.Keys[0].ID},
	} {
		if a := f.agents(ours, mutation, strings.ToUpper(mutation[:1])+mutation[1:]+"Input", in, ""); len(a.Errors) != 1 ||
			a.Errors[0].Code != "DENIED" {
			t.Errorf("%s by a maintainer: %+v", mutation, a.Errors)
		}
	}
	if a := f.ask(ours, `{ accessChanges { nodes { action } } }`, nil); len(a.Errors) == 0 {
		t.Errorf("a maintainer reads the log: %s", a.Data)
	}
}

func TestTheLogNamesWhoGaveOrTookWhoseAccess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	member, token, _ := f.grant("alice@example.com", "DEPLOYER", map[string]any{"name": "laptop", "scopes": []string{"DEPLOY"}})
	f.change(ours, "setMemberRole", "member", "role", map[string]any{"memberId": member, "role": "VIEWER"})
	f.change(ours, "createGroup", "group", "id", map[string]any{"name": "release", "members": []string{member}})
	for range 2 { // the second time is a no-op, and is not logged
		f.change(ours, "revokeToken", "accessToken", "id", map[string]any{"tokenId": token})
	}
	made := f.register(ours, "production")
	f.agents(ours, "revokeAgent", "RevokeAgentInput", map[string]any{"agentId": made.Agent.ID}, "")
	f.change(ours, "removeMember", "member", "id", map[string]any{"memberId": member})
	type row struct {
		Action, Subject, SubjectName, Detail, PrincipalType string
		PrincipalID                                         int64
	}
	var data struct {
		AccessChanges struct{ Nodes []row }
	}
	f.ask(ours, `{ accessChanges { nodes { action subject subjectName detail principalType principalId } } }`, nil).into(t, &data)
	var got []string
	for _, n := range data.AccessChanges.Nodes {
		if n.PrincipalType != "user" || n.PrincipalID != 7 {
			t.Errorf("%s was done by %s %d", n.Action, n.PrincipalType, n.PrincipalID)
		}
		if n.Action == "createToken" && !strings.Contains(n.Detail, "read deploy, until ") {
			t.Errorf("the token was good for %q", n.Detail)
		}
		got = append(got, n.Action+" "+n.Subject+" "+n.SubjectName)
	}
	want := []string{
		"removeMember " + member + " alice@example.com", "revokeAgent " + made.Agent.ID + " production",
		"registerAgent " + made.Agent.ID + " production",
		"revokeToken " + token + " laptop", "createGroup group_1 release", "setMemberRole " + member + " alice@example.com",
		"createToken " + token + " laptop", "createMember " + member + " alice@example.com",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	// Another organization's log is its own.
	data.AccessChanges.Nodes = nil
	f.ask(theirs, `{ accessChanges { nodes { action } } }`, nil).into(t, &data)
	if len(data.AccessChanges.Nodes) != 0 {
		t.Errorf("another organization reads %+v", data.AccessChanges.Nodes)
	}
}

func TestTheSeedOfAKeyIsKeptNowhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	body, err := json.Marshal(map[string]any{"query": `mutation { it: registerAgent(input: {name: "production"}) { seed errors { code } } }`})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "once")
	_, text := f.serve(ours, r)
	var a struct {
		Data struct{ It struct{ Seed string } }
	}
	if err := json.Unmarshal(text, &a); err != nil || a.Data.It.Seed == "" {
		t.Fatalf("%v: %s", err, text)
	}
	var kept int
	if err := f.owner.QueryRow(t.Context(), `SELECT count(*) FROM cd_requests WHERE encode(answer, 'escape') LIKE '%' || $1 || '%'`,
		a.Data.It.Seed).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("the answer is kept with the seed (%d, %v)", kept, err)
	}
}

func TestARevokedAgentTakesItsEnvironmentsOutOfUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	made := f.register(ours, "production")
	create := func(organization int64, name string) payload {
		return f.change(organization, "createEnvironment", "environment", "id readiness readinessReason", map[string]any{
			"name": name, "tier": "PRODUCTION", "driverRef": "argo-rollouts@1",
			"driverConfig": map[string]any{"cluster_agent_id": made.Agent.Number},
		})
	}
	if p := create(ours, "production"); len(p.Errors) > 0 {
		t.Fatalf("%+v", p)
	}
	if p := create(theirs, "production"); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "does not exist") {
		t.Errorf("another organization names the agent: %+v", p)
	}
	gone := f.agents(ours, "revokeAgent", "RevokeAgentInput", map[string]any{"agentId": made.Agent.ID}, "")
	if len(gone.Agent.Environments) != 1 || gone.Agent.Environments[0].Name != "production" {
		t.Errorf("the environments of the agent: %+v", gone.Agent.Environments)
	}
	e := must(f.view.EnvironmentByName(t.Context(), ours, "production"))(t)
	if e.Readiness != core.ReadinessNot || !strings.Contains(e.ReadinessReason, "was revoked") {
		t.Errorf("the environment is %s: %s", e.Readiness, e.ReadinessReason)
	}
	if _, err := f.setup.RetryOnboarding(t.Context(), actor(ours), e.ID); !fault.Is(err, fault.Invalid) {
		t.Errorf("onboarded again: %v", err)
	}
	if p := create(ours, "another"); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "was revoked") {
		t.Errorf("another environment of it: %+v", p)
	}
}

func TestAnEnvironmentOfARevokedAgentIsNotRestored(t *testing.T) { // R51
	t.Parallel()
	f := newFixture(t)
	e := f.environment(ours, "staging", core.TierStaging)
	must(f.setup.ArchiveEnvironment(t.Context(), actor(ours), e.ID, "moved"))(t)
	must(f.access.RevokeAgent(t.Context(), actor(ours), f.clusterOf(ours)))(t)
	var data struct {
		RestoreEnvironment struct{ Errors []userError }
	}
	f.ask(ours, `mutation($id: ID!) { restoreEnvironment(input: {environmentId: $id}) { errors { field message code } } }`,
		map[string]any{"id": fmt.Sprintf("environment_%d", e.ID)}).into(t, &data)
	errs := data.RestoreEnvironment.Errors
	if len(errs) != 1 || errs[0].Code != "REFUSED" ||
		!strings.Contains(errs[0].Message, `environment "staging" cannot be restored: agent "its-cluster" was revoked`) {
		t.Errorf("answered %+v; expected that the agent was revoked", errs)
	}
	var seen struct {
		Environment struct {
			ArchivedAt *string
			Archivings []struct {
				Archived bool
				Reason   string
			}
		}
	}
	f.ask(ours, `{ environment(name: "staging") { archivedAt archivings { archived reason principal { name } } } }`, nil).into(t, &seen)
	if e := seen.Environment; e.ArchivedAt == nil || len(e.Archivings) != 1 || !e.Archivings[0].Archived || e.Archivings[0].Reason != "moved" {
		t.Errorf("found %+v; expected it archived, once, with the reason", e)
	}
}
