package crash

import (
	"context"
	"crypto/rand"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// route is where a pattern that a service registers is asked for: a server and paths there.
type route struct {
	server string
	paths  []string
	// open are the methods that anybody may use; what they answer names nothing of anybody.
	open []string
}

// routes are all patterns that our services register at HTTP servers, by file and expression. One that is not here fails the test.
func routes() map[string]route {
	look := []string{http.MethodGet, http.MethodHead}
	const domain, registry, health = "services/domain/internal/api/handler.go ", "services/registry/internal/api/api.go ",
		"pkg/telemetry/health.go "
	session := route{"domain", []string{"/session"}, append(look, http.MethodDelete)} // a caller without a session is signed out
	return map[string]route{
		domain + `"/graphql"`:             {"domain", []string{"/graphql", "/graphql?stream"}, nil},
		domain + `ExportPath`:             {"domain", []string{"/journal/export", "/journal/export?since=2026-01-01T00:00:00Z"}, nil},
		domain + `OrganizationExportPath`: {"domain", []string{"/organization/export"}, nil},
		domain + `ArchivedPath`:           {"domain", []string{"/retention/archived", "/retention/archived?kind=handoffs"}, nil},
		domain + `ChecksPath`:             {"domain", []string{"/v1/checks"}, nil},
		domain + `EvaluateCheckPath`:      {"domain", []string{"/v1/checks/evaluate"}, nil},
		domain + `ReportDeploymentPath`:   {"domain", []string{"/v1/deployments/report"}, nil},
		domain + `EventsPath`:             {"domain", []string{"/v1/triggers/events"}, nil},
		// A chat proves its presses by its secret, and nobody else is answered. Other methods get a page of the console.
		domain + `"POST " + ChatPath + "{organization}/{channel}"`: {
			"domain", []string{"/chat/organization_1/guessed", "/chat/organization_9/guessed"}, look,
		},
		domain + `"POST " + ChatPath + "{organization}/{channel}" + CommandPath`: {
			"domain", []string{"/chat/organization_1/guessed/command", "/chat/organization_9/guessed/command"}, look,
		},
		// A feed proves its readers by the token in its address, and a badge is shown for what was opted in: others find neither.
		domain + `"GET " + feed.FeedPath + "{organization}/{token}/{file}"`: {
			"domain", []string{"/feeds/organization_1/guessed/production-changes.atom", "/feeds/organization_9/guessed/freezes.ics"}, nil,
		},
		domain + `"GET " + feed.BadgePath + "{organization}/{application}/{file}"`: {
			"domain", []string{"/badges/organization_1/shop/production.svg", "/badges/organization_9/shop/production.svg"}, nil,
		},
		domain + `"POST /session"`:       session,
		domain + `"DELETE /session"`:     session,
		domain + `"GET /session"`:        session,
		domain + `"GET " + signOnPath`:   {"domain", []string{"/session/oidc"}, look},
		domain + `"GET " + callbackPath`: {"domain", []string{"/session/oidc/callback", "/session/oidc/callback?code=x&state=y"}, look},
		// An identity provider shows no credential: its token is signed, and without one the answer is that it is invalid.
		domain + `"POST " + logoutPath`: {"domain", []string{"/session/oidc/logout"}, append(look, http.MethodPost)},
		domain + `"GET " + DocsPath`:    {"domain", []string{"/docs", "/docs/", "/docs/site.js", "/docs/none.html"}, look},
		domain + `"/"`: {
			"domain",
			[]string{"/", "/rollouts/rollout_1", "/rollouts/rollout_999", "/assets/none.js", "/metrics", "/readyz", "/debug/pprof/"},
			look,
		},
		registry + `f.Path`:              {"registry", []string{"/v1/events", "/v1/notifications/distribution"}, nil},
		registry + `"/"`:                 {"registry", []string{"/", "/v1/nothing", "/metrics", "/readyz", "/debug/pprof/"}, nil},
		registry + `"GET " + StatusPath`: {"registry", []string{"/v1/hooks"}, nil},
		registry + `StatusPath`:          {"registry", []string{"/v1/hooks"}, nil},
		registry + `HookPath`:            {"registry", []string{"/v1/hooks/", "/v1/hooks/harbor/guessed"}, nil},
		registry + `ForgeHookPath`:       {"registry", []string{"/v1/forge/", "/v1/forge/github/1-0123456789abcdef"}, nil},
		health + `"GET /healthz"`:        {"health", []string{"/healthz", "/debug/pprof/", "/"}, look},
		health + `"GET /readyz"`:         {"health", []string{"/readyz"}, look},
		health + `"GET /version"`:        {"health", []string{"/version"}, look},
		health + `"GET /metrics"`:        {"health", []string{"/metrics"}, look},
	}
}

// registered are the patterns that the code has, as routes names them.
func registered(t *testing.T) []string {
	t.Helper()
	const root = "../../.."
	var found []string
	for _, dir := range []string{"services", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(filepath.Dir(path), "test") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil || !imports(file, "net/http") {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 2 {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Handle" || s.Sel.Name == "HandleFunc") {
						found = append(found, name+" "+types.ExprString(call.Args[0]))
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func imports(file *ast.File, path string) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
}

// TestNobodyGetsInByHTTP asks every server of every service, by every route that the code registers and with every method, without
// credentials and with every kind that is not valid there. Only public routes answer, their answers name nothing of any organization, and
// wrong credentials cannot be distinguished from each other, nor what exists from what does not.
func TestNobodyGetsInByHTTP(t *testing.T) {
	t.Parallel()
	canary := rand.Text()
	ctx, w := doors(t, canary)
	table, patterns := routes(), registered(t)
	for _, pattern := range patterns {
		if _, known := table[pattern]; !known {
			t.Errorf("no probe asks for %s: say in routes where it is, and what is open there", pattern)
		}
	}
	shown := w.credentials(ctx, t, canary)
	for pattern, r := range table {
		servers := []string{r.server}
		if r.server == "health" {
			servers = []string{"domain-health", "registry-health", "workflow-health", "relay-health"}
		}
		for _, server := range servers {
			for _, path := range r.paths {
				for _, method := range []string{
					http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
					http.MethodOptions,
				} {
					w.knock(ctx, t, knock{server, path, method, slices.Contains(r.open, method)}, shown, canary)
				}
			}
		}
		if !slices.Contains(patterns, pattern) {
			t.Errorf("nobody registers %s any more", pattern)
		}
	}
}

// doors is a stack with more servers and names than it needs, all of which have the canary in them.
func doors(t *testing.T, canary string) (context.Context, *world) {
	t.Helper()
	ctx, w := startIn(t, stack.Config{
		Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true,
		Set: []string{"domain.bootstrap_organization=org-" + canary},
	}, oneStage())
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, []byte("secret-of-a-hook-"+canary), 0o600); err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { discovery(rw, issuer.URL) }))
	t.Cleanup(issuer.Close)
	e := w.stack.Endpoints()
	// Each probe is a failed authentication, and there are hundreds: that the others are slowed down is shown elsewhere.
	unslowed := map[string]any{"off": true}
	w.configure(ctx, t, map[string]map[string]any{
		"workflow": {"token": "engine-" + canary, "failed_authentication": unslowed},
		"registry": {
			"failed_authentication": unslowed, "tokens": []string{"ci-" + canary},
			"hooks": []map[string]any{{"name": "hook-" + strings.ToLower(canary), "source": "harbor", "secrets": []string{"file:" + hook}}},
		},
		"domain": {
			"failed_authentication": unslowed, "workflow_token": "engine-" + canary, "public_url": strings.TrimSuffix(e.Console, "/"),
			"oidc": map[string]any{"issuer": issuer.URL, "client_id": "lockstep", "client_secret": "oidc-" + canary},
		},
	})
	if _, err := w.API.CreateApplication(ctx, "app-"+strings.ToLower(canary), canary,
		[]client.ServiceInput{{Name: "svc", Image: "r.example.com/" + strings.ToLower(canary)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.API.CreateMember(ctx, "member-"+canary, "USER", "OWNER"); err != nil {
		t.Fatal(err)
	}
	return ctx, w
}

// credential is a header that a caller sends.
type credential struct{ name, header, value string }

// credentials are all that is not good anywhere that it is shown: none at all, made up, ended, and good somewhere else.
func (w *world) credentials(ctx context.Context, t *testing.T, canary string) []credential {
	t.Helper()
	api := func(token string) *client.Client {
		return client.New(client.Config{Endpoint: w.stack.Endpoints().GraphQL, Token: token})
	}
	member, err := w.API.CreateMember(ctx, "leaver-"+canary, "USER", "OWNER")
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]client.AccessToken{}
	for _, name := range []string{"revoked", "of one who left", "expired"} {
		in := client.TokenInput{Name: name, Lifetime: time.Hour}
		if name == "of one who left" {
			in.Member = member.ID
		}
		made, err := w.API.CreateToken(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api(made.Token).Self(ctx); err != nil {
			t.Fatalf("a token that is good yet: %v", err)
		}
		ended[name] = made
	}
	session := w.session(ctx, t, ended["revoked"].Token)
	if _, err := w.API.RevokeToken(ctx, ended["revoked"].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.API.RemoveMember(ctx, member.ID); err != nil {
		t.Fatal(err)
	}
	w.expire(ctx, t, ended["expired"].ID)
	agent, err := w.API.RegisterAgent(ctx, "agent-"+strings.ToLower(canary))
	if err != nil {
		t.Fatal(err)
	}
	const header = "Authorization"
	all := []credential{
		{"nothing", "", ""},
		{"an empty token", header, "Bearer "},
		{"another scheme", header, "Basic " + w.stack.Endpoints().Token},
		{"a token that nobody has", header, "Bearer made-up-" + rand.Text()},
		{"an agent's seed", header, "Bearer " + agent.Seed},
		{"the session of a revoked token", "Cookie", session},
		{"the hook's secret", header, "Bearer secret-of-a-hook-" + canary},
	}
	for name, made := range ended {
		all = append(all, credential{"a token that is " + name, header, "Bearer " + made.Token})
	}
	return append(all, credential{"registry's", header, "Bearer ci-" + canary}, credential{"workflow's", header, "Bearer engine-" + canary},
		credential{"domain's", header, "Bearer " + w.stack.Endpoints().Token})
}

// session signs in as a browser does, and answers its cookie.
func (w *world) session(ctx context.Context, t *testing.T, secret string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.stack.Endpoints().Console+"session",
		strings.NewReader(`{"token":"`+secret+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Lockstep-Csrf", "1")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if len(response.Cookies()) != 1 {
		t.Fatalf("sign-in: %s, %d cookies", response.Status, len(response.Cookies()))
	}
	return response.Cookies()[0].Name + "=" + response.Cookies()[0].Value
}

// expire ends a token by its time, which the service lets nobody change.
func (w *world) expire(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, w.stack.Endpoints().Database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	table := pgx.Identifier{w.stack.Schema("domain"), "cd_access_tokens"}.Sanitize()
	_, number, _ := strings.Cut(id, "_")
	for _, statement := range []string{
		"ALTER TABLE " + table + " DISABLE TRIGGER USER",
		"UPDATE " + table + " SET expires_at = now() - interval '1 second' WHERE id = " + number,
		"ALTER TABLE " + table + " ENABLE TRIGGER USER",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// knock is one thing to try.
type knock struct {
	server, path, method string
	open                 bool
}

// knock tries a path with every credential.
func (w *world) knock(ctx context.Context, t *testing.T, k knock, shown []credential, canary string) {
	t.Helper()
	addresses := map[string]string{"domain": strings.TrimSuffix(w.stack.Endpoints().Console, "/"), "registry": w.stack.Endpoints().Registry}
	base := addresses[k.server]
	if service, health := strings.CutSuffix(k.server, "-health"); health {
		base = w.stack.Health(service)
	}
	first := ""
	for _, c := range shown {
		if k.server == strings.TrimSuffix(c.name, "'s") {
			continue // there it is good
		}
		body := `{"query":"{ applications(first: 10) { nodes { id name } } }","token":"` + strings.TrimPrefix(c.value, "Bearer ") + `"}`
		r, err := http.NewRequestWithContext(ctx, k.method, base+k.path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Lockstep-Csrf", "1")
		if strings.HasSuffix(k.path, "?stream") {
			r.Header.Set("Accept", "text/event-stream")
		}
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		response, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
		if err != nil {
			t.Fatalf("%s %s with %s: %v", k.method, base+k.path, c.name, err)
		}
		response.Header.Del("Date")
		status, answer := response.StatusCode, dump(t, response)
		where := k.method + " " + k.server + k.path + " with " + c.name
		if !k.open && (status < http.StatusBadRequest || status >= http.StatusInternalServerError) {
			t.Errorf("%s: answered %s", where, answer)
		}
		for _, form := range forms(canary) {
			if strings.Contains(strings.ToLower(answer), strings.ToLower(form)) {
				t.Errorf("%s: names what belongs to an organization: %s", where, answer)
			}
		}
		if k.open || status == http.StatusTooManyRequests || !strings.HasPrefix(c.value, "Bearer ") {
			continue
		}
		if first == "" {
			first = answer
		} else if answer != first {
			t.Errorf("%s: answered\n%s\nand with another one that is not good\n%s", where, answer, first)
		}
	}
}

// TestNothingListensThatNoProbeKnows: each service listens where its configuration says, and nowhere else.
func TestNothingListensThatNoProbeKnows(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what a process listens on is read from /proc")
	}
	_, w := start(t, oneStage())
	e := w.stack.Endpoints()
	doors := map[string][]string{"domain": {e.GraphQL}, "registry": {e.Registry}, "workflow": {"grpc://" + e.GRPC}, "relay": nil}
	for part, addresses := range doors {
		var known []string
		for _, address := range append(addresses, w.stack.Health(part)) {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			known = append(known, u.Port())
		}
		pid, err := w.stack.Process(part)
		if err != nil {
			t.Fatal(err)
		}
		found := listening(t, pid)
		slices.Sort(known)
		if !slices.Equal(found, known) {
			t.Errorf("%s listens on %v, the probes know %v", part, found, known)
		}
	}
}

// listening are the TCP ports on which a process listens, sorted as texts.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	own := map[string]bool{}
	links, err := filepath.Glob(filepath.Join(proc, "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil { // else it was closed meanwhile
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	var ports []string
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(filepath.Join(proc, "net", family))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			const local, state, inode, listens = 1, 3, 9, "0A"
			fields := strings.Fields(line)
			if len(fields) <= inode || fields[state] != listens || !own[fields[inode]] {
				continue
			}
			_, hex, _ := strings.Cut(fields[local], ":")
			number, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			ports = append(ports, strconv.FormatUint(number, 10))
		}
	}
	slices.Sort(ports)
	return ports
}
