package crash

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// secrets are the canaries of a stack by what they are for: each has a value of its own that stands nowhere else.
type secrets map[string]string

// These are shown to servers that send them back.
const (
	atProvider = "secret at the identity provider"
	sentBack   = "git password that a server sends back"
	sealedOwn  = "sealed credential of an organization"
)

// add makes one more.
func (s secrets) add(name string) string {
	s[name] = rand.Text()
	return s[name]
}

// TestSecretsAreNowhere has a whole stack use every kind of secret there is, by file, environment, Vault and configuration, for rollouts
// that complete, and for all that is refused: a wrong password, a revoked token, a server that says the password back. Then no value is in
// any table, stream, log, span, metric, answer, argument of a process, commit or object of the cluster (D27).
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	canaries := secrets{}
	spans := newCollector(t)
	ctx, w := startIn(t, stack.Config{
		Dir: t.TempDir(), DatabaseURL: withPassword(t, canaries), Fast: true,
		Environment: []string{
			"CANARY_GIT=" + canaries.add("git password that is refused"), "CANARY_PULL=" + canaries.add("registry password"),
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + spans.address, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_TRACES_SAMPLER=parentbased_always_on",
		},
	}, oneStage())
	w.putCanaries(ctx, t, canaries)
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"1.0.0", "2.0.0"} {
		set, err := w.Push(ctx, tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.roll(ctx, t, set, nil)
	}
	answers := w.provoke(ctx, t, canaries)
	places := w.places(ctx, t, spans, canaries)
	for _, service := range []string{"registry", "domain", "workflow", "relay"} {
		documented(t, service, places[service+"/metrics"])
	}
	maps.Copy(places, answers)
	if len(places) < 100 {
		t.Errorf("looked at %d places, want at least 100", len(places))
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		for name, value := range canaries {
			for _, form := range forms(value) {
				if i := strings.Index(places[place], form); i >= 0 {
					text := places[place]
					t.Errorf("%s has the %s: …%s[here]%s…", place, name, text[max(0, i-200):i], text[i+len(form):min(len(text), i+len(form)+60)])
				}
			}
		}
	}
}

// withPassword is the server of the tests with a password in its URL. A server that asks for none takes any.
func withPassword(t *testing.T, canaries secrets) string {
	t.Helper()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if password, given := u.User.Password(); given {
		canaries["database password"] = password
		return u.String()
	}
	u.User = url.UserPassword(u.User.Username(), canaries.add("database password"))
	return u.String()
}

// putCanaries gives every secret of the stack a value of its own, and starts what uses it again.
func (w *world) putCanaries(ctx context.Context, t *testing.T, canaries secrets) {
	t.Helper()
	e := w.stack.Endpoints()
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte(canaries.add(name)), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	git := canaries.add("git password")
	vault := vaultOf(t, file, canaries, map[string]string{"git": git})
	issuer := issuerOf(t, canaries)
	sealed := map[string]any{"keyset_ref": keysetOf(t, dir, canaries)}
	repositories, err := url.Parse(e.Git)
	if err != nil {
		t.Fatal(err)
	}
	user := repositories.User.Username()
	repositories.User = nil
	canaries["bootstrap token"] = e.Token
	for _, user := range []string{"registry", "domain", "workflow"} {
		_, _, canaries["NATS password of "+user] = w.stack.Account(user)
	}
	engine, ci := canaries.add("token of the workflow service"), canaries.add("token of the registry service")
	hook := file("secret of a hook")
	w.configure(ctx, t, map[string]map[string]any{
		"git": {"password": git}, "simcluster": {"git_password": git},
		"oci": {"notify_token": ci},
		"registry": {
			"tokens": []string{ci}, "vault": vault,
			"hooks": []map[string]any{{"name": "harbor", "source": "harbor", "secrets": []string{hook}}},
			"registries": []map[string]any{
				{"host": e.OCI, "insecure": true, "username": "puller", "password": "env:CANARY_PULL"},
				{"host": repositories.Host, "username": user, "password": "vault:kv/data/lockstep#git"},
			},
		},
		"workflow": {
			"token": engine, "vault": vault, "credentials": sealed,
			"git_credentials": []map[string]any{
				{"url_prefix": repositories.String() + "/", "username": "lockstep", "password_ref": "vault:kv/data/lockstep#git"},
				{"url_prefix": repositories.String() + "/refused/", "username": "lockstep", "password_ref": "env:CANARY_GIT"},
				{"url_prefix": issuer, "username": "lockstep", "password_ref": file(sentBack)},
			},
		},
		"domain": {
			"workflow_token": engine, "credentials": sealed, "public_url": strings.TrimSuffix(e.Console, "/"),
			"oidc": map[string]any{"issuer": issuer, "client_id": "lockstep", "client_secret": canaries.add(atProvider)},
		},
	})
	canaries["seed of who lets agents in"], _ = w.configuration(t, "domain")["nats_authority_seed"].(string)
	seed, err := os.ReadFile(filepath.Join(w.dir(), "config", "relay-key"))
	if err != nil {
		t.Fatal(err)
	}
	canaries["key of the relay"] = strings.TrimSpace(string(seed))
}

// keysetOf is a keyset in a file, whose key is a canary.
func keysetOf(t *testing.T, dir string, canaries secrets) string {
	t.Helper()
	text, err := keyset.Create()
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Key []struct {
			KeyData struct{ Value string }
		}
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Key) != 1 || len(all.Key[0].KeyData.Value) < 20 {
		t.Fatal("the keyset has another form", err)
	}
	canaries["key of the keyset"] = all.Key[0].KeyData.Value
	path := filepath.Join(dir, "keyset")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

// vaultOf is as much of Vault as services ask for: one entry, for callers with its token.
func vaultOf(t *testing.T, file func(name string) string, canaries secrets, entry map[string]string) map[string]any {
	t.Helper()
	const name = "token of Vault"
	token := file(name)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/kv/data/lockstep" || r.Header.Get("X-Vault-Token") != canaries[name] {
			http.Error(w, "no access with "+r.Header.Get("X-Vault-Token"), http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"data": entry}})
	}))
	t.Cleanup(server.Close)
	return map[string]any{"address": server.URL, "token_ref": token}
}

// issuerOf is an identity provider, and a Git server, that refuse everybody and say back what they were shown. In the end they must have
// been shown what is theirs.
func issuerOf(t *testing.T, canaries secrets) string {
	t.Helper()
	var shown sync.Map
	t.Cleanup(func() {
		for _, name := range []string{atProvider, sentBack, sealedOwn} {
			if _, ok := shown.Load(canaries[name]); !ok {
				t.Errorf("the %s was never used", name)
			}
		}
	})
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/openid-configuration" {
			discovery(w, server.URL)
			return
		}
		user, password, given := r.BasicAuth()
		shown.Store(password, true)
		shown.Store(r.FormValue("client_secret"), true)
		if !given && r.URL.Path != "/token" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		http.Error(w, "no access for "+user+" with "+password+" "+r.FormValue("client_secret"), http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// discovery says where an identity provider has what.
func discovery(w http.ResponseWriter, issuer string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"issuer": issuer, "authorization_endpoint": issuer + "/auth", "token_endpoint": issuer + "/token", "jwks_uri": issuer + "/keys",
	})
}

// dir is the stack's folder.
func (w *world) dir() string { return filepath.Dir(filepath.Dir(w.stack.LogFile("domain"))) }

// configuration is what the stack has written for a part.
func (w *world) configuration(t *testing.T, part string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir(), "config", part+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	return settings
}

// configure changes the configuration of parts, and starts them again.
func (w *world) configure(ctx context.Context, t *testing.T, changes map[string]map[string]any) {
	t.Helper()
	starts := map[string]int{}
	for part, change := range changes {
		settings := w.configuration(t, part)
		maps.Copy(settings, change)
		text, err := yaml.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir(), "config", part+".yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if starts[part], err = w.stack.Kill(part); err != nil {
			t.Fatal(err)
		}
	}
	for part, n := range starts {
		if err := w.stack.AwaitRestart(ctx, part, n); err != nil {
			t.Fatal(err)
		}
	}
}

// provoke has everything refused that can be, and returns the answers by what was asked.
func (w *world) provoke(ctx context.Context, t *testing.T, canaries secrets) map[string]string {
	t.Helper()
	answers := map[string]string{}
	w.workflows(ctx, t, canaries, answers)

	made, err := w.API.CreateToken(ctx, client.TokenInput{Name: "ci", Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	canaries["access token"] = made.Token
	theirs := client.New(client.Config{Endpoint: w.stack.Endpoints().GraphQL, Token: made.Token})
	if _, err := theirs.Self(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.API.RevokeToken(ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	if _, err = theirs.Self(ctx); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a revoked token: got %v, want Unauthenticated", err)
	}
	answers["refusal of a token"] = err.Error()
	agent, err := w.API.RegisterAgent(ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	canaries["key of another agent"] = agent.Seed

	e := w.stack.Endpoints()
	_, err = nats.Connect(e.NATS, nats.UserInfo("workflow", canaries.add("NATS password that is wrong")), nats.NoReconnect())
	if err == nil {
		t.Error("NATS takes a wrong password")
	}
	answers["refusal of NATS"] = fmt.Sprint(err)
	for name, send := range map[string]struct{ url, token, body string }{
		"an event with a wrong token":  {e.Registry + "/v1/events", canaries.add("token that is wrong"), `{}`},
		"a malformed event":            {e.Registry + "/v1/events", canaries["token of the registry service"], `{"data":`},
		"GraphQL with a wrong token":   {e.GraphQL, canaries["token that is wrong"], `{"query":"{__typename}"}`},
		"GraphQL with a wrong request": {e.GraphQL, canaries["bootstrap token"], `{"query":"{nothing}"}`},
		"a hook that does not exist":   {e.Registry + "/v1/hooks/" + canaries["secret of a hook"], "", `{}`},
	} {
		answers[name] = exchange(ctx, t, send.url, send.token, send.body)
	}
	w.signOn(ctx, t, answers)
	w.strangers(ctx, t, canaries, answers)
	return answers
}

// workflows runs programs with secrets of every kind, and the token of the engine. What they are for refuses them.
func (w *world) workflows(ctx context.Context, t *testing.T, canaries secrets, answers map[string]string) {
	t.Helper()
	settings := w.configuration(t, "workflow")
	credentials, _ := settings["git_credentials"].([]any)
	var urls []string
	for _, c := range credentials {
		prefix, _ := c.(map[string]any)["url_prefix"].(string)
		urls = append(urls, strings.TrimSuffix(prefix, "/")+"/nothing.git")
	}
	conn, err := rpc.Dial(rpc.ClientConfig{
		Address: w.stack.Endpoints().GRPC,
		Token:   canaries["token of the workflow service"], Insecure: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	engine := autoflowv1.NewAutoFlowClient(conn)
	own := strings.TrimSuffix(urls[2], "/nothing.git") + "/own"
	made, err := w.API.CreateCredential(ctx, client.Credential{Name: "own", Kind: "GIT", URLPrefixes: []string{own}, Username: "lockstep"},
		client.CredentialValue{Value: canaries.add(sealedOwn)}, "for the test")
	if err != nil {
		t.Fatal(err)
	}
	answers["CreateCredential"] = fmt.Sprint(made)
	_, err = w.API.RotateCredential(ctx, "own", client.CredentialValue{Value: canaries[sealedOwn], Reference: "env:" + canaries[sealedOwn]}, "")
	answers["RotateCredential, refused"] = fmt.Sprint(err)
	program := "urls = " + fmt.Sprintf("[%q, %q, %q]", urls[0], urls[1], urls[2]) + `
for url in urls:
    r = run("git.read_file", {"repo_url": url, "ref": "main", "path": "a"}, retry = False, on_error = "return")
    print(r.ok, r.code, r.error)
for attempt in range(60):
    r = run("git.read_file", {"repo_url": "` + own + `/nothing.git", "ref": "main", "path": "a", "credential": "own"}, retry = False, on_error = "return")
    print(r.ok, r.code, r.error)
    if "has no credential" not in r.error:
        break
    sleep(1)
fail("; ".join(urls))
`
	_, err = engine.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
		OrganizationId: 1, WorkflowId: "canary", Starlark: []byte(program),
		Secrets: map[string]string{"a": "env:CANARY_GIT", "b": "vault:kv/data/lockstep#git", "c": "file:/run/secrets/lockstep/git"},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Await(ctx, "the workflow to fail", func() (string, bool, error) {
		got, err := engine.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "canary"})
		answers["GetWorkflow"] = fmt.Sprint(got)
		return got.String(), got.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED, err
	})
	if err != nil {
		t.Fatal(err)
	}
	history, err := engine.GetHistory(ctx, &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "canary"})
	answers["GetHistory"] = fmt.Sprint(history, err)
	logs, err := engine.GetLogs(ctx, &autoflowv1.GetLogsRequest{OrganizationId: 1, WorkflowId: "canary"})
	answers["GetLogs"] = fmt.Sprint(logs, err)
}

// signOn goes to the identity provider and comes back with a code, which the provider refuses.
func (w *world) signOn(ctx context.Context, t *testing.T, answers map[string]string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	console := strings.TrimSuffix(w.stack.Endpoints().Console, "/")
	var state string
	for _, path := range []string{"/session/oidc", "/session/oidc/callback?code=stolen&state="} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, console+path+state, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answers["GET "+path] = dump(t, response)
		if to, err := response.Location(); err == nil && state == "" {
			state = url.QueryEscape(to.Query().Get("state"))
		}
	}
	if state == "" {
		t.Errorf("sign-in did not begin: %s", answers["GET /session/oidc"])
	}
}

// strangers starts services with credentials that are wrong, and answers what they say until they are ended.
func (w *world) strangers(ctx context.Context, t *testing.T, canaries secrets, answers map[string]string) {
	t.Helper()
	for part, change := range map[string]map[string]any{
		"registry": {"nats_password": canaries.add("NATS password of a stranger")},
		"workflow": {"database_url": "postgres://lockstep:" + canaries.add("database password of a stranger") + "@127.0.0.1:1/postgres"},
		"domain":   {"database_url": "postgres://lockstep:" + canaries.add("database password that is no URL's") + "@127.0.0.1:port/postgres"},
	} {
		r := w.replica(t, part, "stranger", "127.0.0.1:0", change)
		var out []byte
		// A machine that does much else as well takes longer to the first line.
		for patience := 3 * time.Second; len(bytes.TrimSpace(out)) == 0 && patience < time.Minute; patience *= 4 {
			within, cancel := context.WithTimeout(ctx, patience)
			command := exec.CommandContext(within, os.Args[0], "serve", part, "--config", r.config)
			command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") })
			out, _ = command.CombinedOutput() // it ends with an error, or is ended
			cancel()
		}
		if len(bytes.TrimSpace(out)) == 0 {
			t.Errorf("%s with wrong credentials says nothing", part)
		}
		answers["log of a strange "+part] = string(out)
	}
}
