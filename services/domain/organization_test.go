package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/oidc/oidctest"
)

// graphql asks with a bearer token.
func (v *visitor) graphql(token, query string) string {
	v.t.Helper()
	body, _ := json.Marshal(map[string]string{"query": query})
	return v.send(http.MethodPost, v.origin+"/graphql", string(body),
		map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + token}).Body.String()
}

const (
	whereAmI   = `{ viewer { organization { id name } organizations { name } member { name role } } }`
	myWhere    = `{"query":"` + whereAmI + `"}`
	allOfThem  = `{ organizations { nodes { id name } totalCount } }`
	theJournal = `{ accessChanges { nodes { action subject subjectName detail principalType principal { name } } } }`
)

// createOrganization makes one as the operator, and answers its owner's token.
func (v *visitor) createOrganization(name, owner string) (id, token string) {
	v.t.Helper()
	var answer struct {
		Data struct {
			CreateOrganization struct {
				Organization struct{ ID string }
				Token        string
			}
		}
	}
	text := v.graphql(bootstrapToken, fmt.Sprintf(`mutation { createOrganization(input: {name: %q, owner: %q}) { organization { id } token errors { field message code } } }`, name, owner))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Data.CreateOrganization.Token == "" {
		v.t.Fatalf("found %s", text)
	}
	return answer.Data.CreateOrganization.Organization.ID, answer.Data.CreateOrganization.Token
}

// TestOrganizationsThroughTheAPI makes a second and a third organization, and tries to reach from one into the other.
func TestOrganizationsThroughTheAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	v := browserOf(t, f, Config{BootstrapToken: bootstrapToken})
	books, alice := v.createOrganization("books", "alice@example.com")
	games, bob := v.createOrganization("games", "bob@example.com")
	if got := v.graphql(alice, whereAmI); !strings.Contains(got, `"id":"`+books+`","name":"books"`) ||
		!strings.Contains(got, `"role":"OWNER"`) || strings.Contains(got, "games") {
		t.Errorf("found %s", got)
	}
	if got := v.graphql(bootstrapToken, allOfThem); !strings.Contains(got, books) || !strings.Contains(got, games) ||
		!strings.Contains(got, `"totalCount":4`) {
		t.Errorf("the operator sees %s", got)
	}
	// Walls: an owner of another organization operates nothing, and sees nothing of the others.
	for _, query := range []string{
		allOfThem, `mutation { createOrganization(input: {name: "more", owner: "x"}) { organization { id } errors { code message } } }`,
		`mutation { renameOrganization(input: {organizationId: "` + games + `", name: "mine"}) { organization { id } errors { code message } } }`,
		`mutation { renameOrganization(input: {organizationId: "` + books + `", name: "mine"}) { organization { id } errors { code message } } }`,
	} {
		if got := v.graphql(alice, query); !strings.Contains(got, "those who operate the installation") || strings.Contains(got, "games") {
			t.Errorf("%s: found %s", query, got)
		}
	}
	if got := v.graphql(alice, `mutation { createApplication(input: {name: "shelf", services: [{name: "api", artifactSources: [{sourceRef: "oci-image@1", sourceConfig: {image: "registry.test/shelf/api"}}]}]}) { application { id } errors { message } } }`); !strings.Contains(got, "application_") {
		t.Fatalf("found %s", got)
	}
	for who, token := range map[string]string{"bob": bob, "the operator": bootstrapToken} {
		if got := v.graphql(token, `{ application(name: "shelf") { id } node(id: "`+books+
			`") { id } members { nodes { name } } }`); !strings.Contains(got, `"application":null,"node":null`) || strings.Contains(got, "alice") {
			t.Errorf("%s sees %s", who, got)
		}
	}
	// A role of less than an owner, or a token for less, operates nothing in the first organization either.
	_, less, err := f.access.CreateToken(t.Context(), user(), access.NewToken{Name: "less", Scopes: core.PermissionsOf(core.MayConfigure)})
	f.ok(err)
	if got := v.graphql(less, allOfThem); !strings.Contains(got, `"code":"DENIED"`) {
		t.Errorf("found %s", got)
	}

	for input, want := range map[string]string{
		`{name: "books", owner: "carol"}`: `"field":["name"]`, `{name: "", owner: "carol"}`: `"field":["name"]`,
		`{name: "a b", owner: ""}`: `"field":["owner"]`,
	} {
		if got := v.graphql(bootstrapToken, `mutation { createOrganization(input: `+input+
			`) { organization { id } token errors { field code } } }`); !strings.Contains(got, want) || !strings.Contains(got, `"token":null`) {
			t.Errorf("%s: found %s", input, got)
		}
	}
	rename := func(id, name string) string {
		return v.graphql(bootstrapToken, `mutation { renameOrganization(input: {organizationId: "`+id+`", name: "`+
			name+`"}) { organization { name } errors { field code message } } }`)
	}
	if got := rename(books, "library"); !strings.Contains(got, `"name":"library"`) {
		t.Errorf("found %s", got)
	}
	if got := rename(books, "library"); !strings.Contains(got, `"name":"library"`) {
		t.Errorf("again: found %s", got)
	}
	if got := rename(books, "games"); !strings.Contains(got, `"CONFLICT"`) {
		t.Errorf("a name that is taken: found %s", got)
	}
	if got := rename("organization_999", "x"); !strings.Contains(got, `"field":["organizationId"]`) || !strings.Contains(got, "NOT_FOUND") {
		t.Errorf("one that does not exist: found %s", got)
	}
	// The first one keeps its new name over a restart.
	rename("organization_1", "shop")
	f.ok(f.store.EnsureOrganization(t.Context(), ownerOrganization, "default"))
	if got := v.graphql(bootstrapToken, whereAmI); !strings.Contains(got, `"name":"shop"`) {
		t.Errorf("found %s", got)
	}
	got := v.graphql(bootstrapToken, theJournal)
	for _, want := range []string{
		`"createOrganization","subject":"` + books + `","subjectName":"books","detail":"owner alice@example.com`,
		`"renameOrganization","subject":"` + books + `","subjectName":"library","detail":"before books"`, `"principal":{"name":"owner"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the operator's log lacks %s: %s", want, got)
		}
	}
	if strings.Count(got, "renameOrganization") != 2 {
		t.Errorf("what is a no-op is logged: %s", got)
	}
	if got := v.graphql(alice, theJournal); !strings.Contains(got, `"renameOrganization"`) || strings.Contains(got, "games") {
		t.Errorf("the log of the organization itself: %s", got)
	}
}

// TestSigningInToOneOfSeveralOrganizations is about a person who belongs to more than one.
func TestSigningInToOneOfSeveralOrganizations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	provider := oidctest.New(t)
	config := Config{BootstrapToken: bootstrapToken, PublicURL: "http://127.0.0.1:8080", OIDC: OIDC{
		Issuer: provider.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		Roles: []string{"shop=deployer", "books=owner@2", "books=viewer", "ghosts=owner@77"},
	}}
	v := browserOf(t, f, config)
	in := func(what, organization, claims string) {
		t.Helper()
		if got := v.asks(myWhere); !strings.Contains(got, `"organization":{"id":"`+organization+`"`) || !strings.Contains(got, claims) {
			t.Errorf("%s: found %s", what, got)
		}
	}
	choose := func(organization string) string {
		begun := v.get(v.origin + "/session/oidc?return=/rollouts&organization=" + organization)
		if at := begun.Header().Get("Location"); strings.HasPrefix(at, "/") {
			return at
		}
		return v.get(v.atProvider(begun)).Header().Get("Location")
	}
	provider.SignInAs(claimsOf("alice@example.com", "books"))
	v.signIn("/")
	in("without a choice: the first", "organization_1",
		`"organizations":[{"name":"default"},{"name":"other"}],"member":{"name":"alice@example.com","role":"VIEWER"}`)
	if at := choose("2"); at != "/rollouts" {
		t.Errorf("found %q", at)
	}
	in("chosen", "organization_2", `"role":"OWNER"`)
	// Groups that reach the second organization only.
	provider.SignInAs(claimsOf("bob@example.com", "ghosts", "shop"))
	v.signIn("/")
	in("one that is not there is none", "organization_1", `"role":"DEPLOYER"`)
	for _, elsewhere := range []string{"2", "77", "x", "-1"} {
		if at := choose(elsewhere); at != "/?sign-in=no-access" {
			t.Errorf("organization %s: found %q", elsewhere, at)
		}
	}
	// Who leaves the group of one organization leaves its sessions there, and keeps the others.
	provider.SignInAs(claimsOf("alice@example.com", "books"))
	choose("organization_2")
	second := v.cookies
	v.cookies = map[string]*http.Cookie{}
	provider.SignInAs(claimsOf("alice@example.com", "shop"))
	v.signIn("/")
	in("in the first", "organization_1", `"role":"DEPLOYER"`)
	v.cookies = second
	if got := v.asks(myWhere); !strings.Contains(got, "UNAUTHENTICATED") {
		t.Errorf("in the second, whose group was left: %s", got)
	}

	// Where no groups are configured, one belongs where one was added.
	config.OIDC.Roles = nil
	w := browserOf(t, f, config)
	f.ok(f.store.ForAccess().In(t.Context(), 2, func(ctx context.Context, tx access.Tx) error {
		_, err := tx.AddMember(ctx, core.Member{Name: "dora@example.com", Kind: core.PrincipalUser, Role: core.RoleApprover})
		return err
	}))
	provider.SignInAs(claimsOf("dora@example.com"))
	w.signIn("/")
	if got := w.asks(myWhere); !strings.Contains(got, `"organization":{"id":"organization_2"`) || !strings.Contains(got, `"role":"APPROVER"`) {
		t.Errorf("added to the second only: found %s", got)
	}
	// An owner elsewhere who adds the name invites, and does not decide where its bearer signs in.
	f.ok(f.store.ForAccess().In(t.Context(), 1, func(ctx context.Context, tx access.Tx) error {
		_, err := tx.AddMember(ctx, core.Member{Name: "dora@example.com", Kind: core.PrincipalUser, Role: core.RoleViewer})
		return err
	}))
	w.cookies = map[string]*http.Cookie{}
	w.signIn("/")
	if got := w.asks(myWhere); !strings.Contains(got, `"organization":{"id":"organization_2"`) || strings.Contains(got, `{"name":"default"}`) {
		t.Errorf("added elsewhere: found %s, want organization_2 alone", got)
	}
	begun := w.get(w.origin + "/session/oidc?return=/&organization=1")
	if at := begun.Header().Get("Location"); !strings.HasPrefix(at, "/") {
		w.get(w.atProvider(begun))
	}
	if got := w.asks(myWhere); !strings.Contains(got, `"organization":{"id":"organization_1"`) || !strings.Contains(got, `"role":"VIEWER"`) {
		t.Errorf("chosen: found %s, want organization_1", got)
	}
	unverified := claimsOf("erna@example.com")
	unverified["email_verified"] = false
	f.ok(f.store.ForAccess().In(t.Context(), 2, func(ctx context.Context, tx access.Tx) error {
		_, err := tx.AddMember(ctx, core.Member{Name: "erna@example.com", Kind: core.PrincipalUser, Role: core.RoleApprover})
		return err
	}))
	provider.SignInAs(unverified)
	if at := w.signIn("/"); at != "/?sign-in=no-access" {
		t.Errorf("a name that the provider does not vouch for: found %q", at)
	}
}
