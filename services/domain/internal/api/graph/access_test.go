package graph_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// grant makes a member with a token of its own, by the API alone.
func (f *fixture) grant(name, role string, token map[string]any) (member, id, secret string) {
	f.t.Helper()
	var data struct {
		Member struct {
			Member struct{ ID string }
			Errors []userError
		}
		Token struct {
			AccessToken struct{ ID string }
			Token       string
			Errors      []userError
		}
	}
	f.ask(ours, `mutation($in: CreateMemberInput!) { member: createMember(input: $in) { member { id } errors { code message } } }`,
		map[string]any{"in": map[string]any{"name": name, "role": role}}).into(f.t, &data)
	token["memberId"] = data.Member.Member.ID
	f.ask(ours, `mutation($in: CreateTokenInput!) { token: createToken(input: $in) { accessToken { id } token errors { code message } } }`,
		map[string]any{"in": token}).into(f.t, &data)
	if len(data.Member.Errors)+len(data.Token.Errors) > 0 {
		f.t.Fatalf("grant: %+v", data)
	}
	return data.Member.Member.ID, data.Token.AccessToken.ID, data.Token.Token
}

// signedIn is what a token allows; 0 when it is good for nothing.
func (f *fixture) signedIn(secret string) core.Permissions {
	f.t.Helper()
	a, err := f.access.Authenticate(f.t.Context(), secret, false)
	if err != nil && !fault.Is(err, fault.Unauthenticated) {
		f.t.Fatal(err)
	}
	return a.Permissions
}

func TestATokenAllowsWhatRoleAndScopesBothDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	member, id, secret := f.grant("alice@example.com", "DEPLOYER", map[string]any{"name": "laptop"})
	if !strings.HasPrefix(secret, "lockstep_") || len(secret) < 60 {
		t.Errorf("the token is %q; want it to say what it is, and to be beyond guessing", secret)
	}
	if got := f.signedIn(secret); got != core.RoleDeployer.Permissions() {
		t.Errorf("a token for everything allows %v", got.List())
	}
	_, _, narrow := f.grant("bob@example.com", "MAINTAINER", map[string]any{"name": "dashboard", "scopes": []string{"APPROVE"}})
	if got := f.signedIn(narrow); got != core.PermissionsOf(core.MayRead, core.MayApprove) {
		t.Errorf("a narrow token allows %v", got.List())
	}
	// The role is looked at each time: tokens follow it at once.
	if p := f.change(ours, "setMemberRole", "member", "role", map[string]any{"memberId": member, "role": "VIEWER"}); len(p.Errors) > 0 {
		t.Fatal(p.Errors)
	}
	if got := f.signedIn(secret); got != core.PermissionsOf(core.MayRead) {
		t.Errorf("after the role was taken away the token allows %v", got.List())
	}
	if p := f.change(ours, "revokeToken", "accessToken", "id revokedAt", map[string]any{"tokenId": id}); len(p.Errors) > 0 ||
		p.Object["revokedAt"] == nil {
		t.Fatal(p)
	}
	if f.signedIn(secret) != 0 || f.signedIn("lockstep_nobodys") != 0 || f.signedIn("") != 0 {
		t.Error("a token that is revoked, or none, is good for something")
	}
}

func TestSessionsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, id, secret := f.grant("alice", "VIEWER", map[string]any{"name": "laptop", "lifetimeSeconds": 3600})
	session, until, err := f.access.StartSession(t.Context(), secret)
	if err != nil || until.After(time.Now().Add(time.Hour)) {
		t.Fatalf("until %v, %v; want a session no longer than its token", until, err)
	}
	if _, err := f.access.Authenticate(t.Context(), session, true); err != nil {
		t.Error(err)
	}
	if f.signedIn(session) != 0 {
		t.Error("a session is good as a token")
	}
	if _, err := f.access.Authenticate(t.Context(), secret, true); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a token is good as a session: %v", err)
	}
	must(f.access.RevokeToken(t.Context(), actor(ours), numberOf(id)))(t)
	if _, err := f.access.Authenticate(t.Context(), session, true); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the session outlives its token: %v", err)
	}
}

func numberOf(global string) (n int64) {
	for _, r := range global[strings.LastIndexByte(global, '_')+1:] {
		n = n*10 + int64(r-'0')
	}
	return n
}

func TestNobodyMakesAnotherPersonsToken(t *testing.T) { // D50
	t.Parallel()
	f := newFixture(t)
	alice, _, first := f.grant("alice", "APPROVER", map[string]any{"name": "x", "scopes": []string{"APPROVE"}})
	if f.signedIn(first) == 0 {
		t.Error("the first token of a new person is good for nothing")
	}
	another := access.NewToken{Name: "another", MemberID: numberOf(alice)}
	_, _, err := f.access.CreateToken(t.Context(), actor(ours), another)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "nobody makes another person's tokens; alice has had a token") {
		t.Errorf("a second one: found %v; want it denied", err)
	}
	if _, err := f.owner.Exec(t.Context(), `UPDATE cd_access_tokens SET revoked_at = now()`); err != nil {
		t.Fatal(err)
	}
	if _, _, err = f.access.CreateToken(t.Context(), actor(ours), another); !fault.Is(err, fault.Denied) {
		t.Errorf("after the first one was revoked: found %v; want it denied", err)
	}
	bob, err := f.access.CreateMember(t.Context(), actor(ours), access.NewMember{Name: "bob", Kind: core.PrincipalUser, Role: core.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := f.access.CreateToken(t.Context(), actor(ours), access.NewToken{Name: "x", MemberID: bob.ID})
	if err != nil || time.Until(made.ExpiresAt) > 7*24*time.Hour {
		t.Errorf("a first token: %+v, %v", made, err)
	}
	ci, err := f.access.CreateMember(t.Context(), actor(ours),
		access.NewMember{Name: "ci", Kind: core.PrincipalAgent, Role: core.RoleDeployer})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a machine's are an owner's to make
		if _, _, err := f.access.CreateToken(t.Context(), actor(ours), access.NewToken{Name: "x", MemberID: ci.ID}); err != nil {
			t.Error(err)
		}
	}
	maintainer := actor(ours)
	maintainer.Permissions = core.RoleMaintainer.Permissions()
	if _, _, err := f.access.CreateToken(t.Context(), maintainer, access.NewToken{Name: "x", MemberID: ci.ID}); !fault.Is(err, fault.Denied) {
		t.Errorf("a machine's by a maintainer: found %v; want it denied", err)
	}
}

func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	alice, _, _ := f.grant("alice", "OWNER", map[string]any{"name": "x"})
	bob, bobs, _ := f.grant("bob", "MAINTAINER", map[string]any{"name": "x"})
	as := func(member string, role core.Role) core.Actor {
		return core.Actor{Organization: ours, Type: core.PrincipalUser, ID: numberOf(member), Permissions: role.Permissions()}
	}
	denied := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: found %v; want it denied", what, err)
		}
	}
	_, _, err := f.access.CreateToken(t.Context(), as(bob, core.RoleMaintainer),
		access.NewToken{Name: "up", Scopes: core.PermissionsOf(core.MayAdminister)})
	denied("a scope beyond one's own", err)
	_, _, err = f.access.CreateToken(t.Context(), as(bob, core.RoleMaintainer), access.NewToken{Name: "other", MemberID: numberOf(alice)})
	denied("a token for another member", err)
	_, err = f.access.SetMemberRole(t.Context(), as(bob, core.RoleMaintainer), numberOf(bob), core.RoleOwner)
	denied("promoting oneself", err)
	if _, err := f.access.RevokeToken(t.Context(), as("member_999", core.RoleViewer), numberOf(bobs)); !fault.Is(err, fault.NotFound) {
		t.Errorf("another member's token: found %v; want NotFound", err)
	}
	if p := f.change(ours, "removeMember", "member", "id", map[string]any{"memberId": alice}); len(p.Errors) != 1 ||
		p.Errors[0].Code != "REFUSED" {
		t.Errorf("the only owner leaves: %+v", p)
	}
	// What others may see of tokens: nothing.
	f.as = core.RoleMaintainer.Permissions()
	var data struct {
		Members struct{ Nodes []struct{ Tokens []any } }
	}
	f.ask(ours, `{ members { nodes { name tokens { id } } } }`, nil).into(t, &data)
	for _, m := range data.Members.Nodes {
		if m.Tokens != nil {
			t.Errorf("a maintainer sees tokens of others: %+v", data)
		}
	}
	var found struct{ Node *struct{ Name string } }
	f.ask(ours, `query($id: ID!) { node(id: $id) { ... on AccessToken { name } } }`, map[string]any{"id": bobs}).into(t, &found)
	if found.Node != nil {
		t.Errorf("a maintainer finds a token of another member: %+v", found.Node)
	}
	f.as = core.RoleOwner.Permissions()
	f.ask(ours, `query($id: ID!) { node(id: $id) { ... on AccessToken { name } } }`, map[string]any{"id": bobs}).into(t, &found)
	if found.Node == nil {
		t.Errorf("an owner does not find %s", bobs)
	}
}

func TestGroupsDecideWhoAnswersAGate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	alice, _, secret := f.grant("alice", "APPROVER", map[string]any{"name": "x"})
	p := f.change(ours, "createGroup", "group", "id members { name }", map[string]any{"name": "release", "members": []string{alice}})
	if len(p.Errors) > 0 || len(p.Object["members"].([]any)) != 1 {
		t.Fatalf("%+v", p)
	}
	a, err := f.access.Authenticate(t.Context(), secret, false)
	if err != nil || len(a.Groups) != 1 || a.Groups[0] != "release" {
		t.Errorf("alice is in %v, %v", a.Groups, err)
	}
	if p := f.change(ours, "setGroupMembers", "group", "members { name }",
		map[string]any{"groupId": p.Object["id"], "members": []string{}}); len(p.Errors) > 0 || len(p.Object["members"].([]any)) != 0 {
		t.Fatalf("%+v", p)
	}
	if a, err = f.access.Authenticate(t.Context(), secret, false); err != nil || len(a.Groups) != 0 {
		t.Errorf("alice is still in %v, %v", a.Groups, err)
	}
}
