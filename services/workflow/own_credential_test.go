package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// vault is a service whose organizations have credentials of their own, and a server that says what it was sent.
type vault struct {
	*service
	keyset *keyset.Keyset
	// file is where the keyset is, secret where a secret is that organization 1 may refer to.
	file, secret string
	server       *httptest.Server

	mu   sync.Mutex
	seen []string
	runs int
	sent int
}

func newVault(t *testing.T, change func(*vault, *workflow.Config)) *vault {
	t.Helper()
	v := &vault{file: filepath.Join(t.TempDir(), "keyset.json"), secret: filepath.Join(t.TempDir(), "shop", "token")}
	v.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		v.seen = append(v.seen, r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		v.mu.Unlock()
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound) //nolint:gosec // the test says where to
			return
		}
		if strings.HasSuffix(r.URL.Path, "/info/refs") && strings.HasPrefix(r.URL.Path, "/moved/") {
			http.Redirect(w, r, "/elsewhere/x.git/info/refs?service=git-upload-pack", http.StatusFound)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/info/refs") && r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, "you said ", r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
	}))
	t.Cleanup(v.server.Close)
	v.put(v.file, made(t)(keyset.Create()))
	if err := os.MkdirAll(filepath.Dir(v.secret), 0o700); err != nil {
		t.Fatal(err)
	}
	v.put(v.secret, "by-reference")
	v.keyset = keyset.New(nil, "file:"+v.file)
	v.service = startWith(t, func(c *workflow.Config) {
		c.HTTPAllowNetworks, c.GitAllowNetworks = []string{"127.0.0.1"}, []string{"127.0.0.1"}
		c.Credentials = sealing.Settings{KeysetRef: "file:" + v.file, References: []sealing.Allowance{
			{Prefix: "file:" + filepath.Dir(v.secret) + "/", Organizations: []int64{1}},
		}}
		change(v, c)
	})
	return v
}

func made(t *testing.T) func(string, error) string {
	t.Helper()
	return func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func (v *vault) put(file, text string) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// terms are those of a credential for the server's path /a.
func (v *vault) terms(organization int64, name string, version int) sealing.Terms {
	return sealing.Terms{
		Organization: organization, Name: name, Version: version, Kind: sealing.HTTP, URLPrefixes: []string{v.server.URL + "/a"},
	}
}

// sealed is the report of a credential as the domain service makes it.
func (v *vault) sealed(terms sealing.Terms, value string, sequence int64) event.CredentialChanged {
	v.t.Helper()
	blob, _, err := v.keyset.Seal(v.t.Context(), value, terms)
	if err != nil {
		v.t.Fatal(err)
	}
	return event.CredentialChanged{
		Name: terms.Name, Sequence: sequence, Version: terms.Version, Kind: string(terms.Kind), URLPrefixes: terms.URLPrefixes,
		Username: terms.Username, Header: terms.Header, Forge: terms.Forge, Sealed: blob,
	}
}

// report sends reports about an organization, and waits until the service has the last of them. A number is sent with each, so that one may
// be sent twice.
func (v *vault) report(organization int64, reports ...event.CredentialChanged) {
	v.t.Helper()
	js := v.bus.JetStream(v.t, "domain")
	for _, r := range append(reports, event.CredentialChanged{
		Name: fmt.Sprint("end-", v.sent), Sequence: 1, Version: 1, Kind: "http", URLPrefixes: []string{"https://x.example/"}, Revoked: true,
	}) {
		v.sent++
		e, err := event.New(event.Header{
			ID: fmt.Sprint("credential-", v.sent), Source: event.SourceDomain, Organization: organization, Time: clock.System().Now(),
		}, r)
		if err != nil {
			v.t.Fatal(err)
		}
		text, err := json.Marshal(e)
		if err != nil {
			v.t.Fatal(err)
		}
		subject := fmt.Sprintf("cd.domain.%d.credential.changed", organization)
		for range 2 { // events arrive at least once
			if _, err := js.PublishMsg(v.t.Context(), &nats.Msg{Subject: subject, Data: text}); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	conn, err := pgx.Connect(v.t.Context(), v.config.DatabaseURL)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(v.t.Context())) }()
	// Several are taken at once, in no order.
	names, sequences := []string{fmt.Sprint("end-", v.sent-len(reports)-1)}, []int64{1}
	for _, r := range reports {
		names, sequences = append(names, r.Name), append(sequences, r.Sequence)
	}
	v.eventually("the service has the reports", func(ctx context.Context) bool {
		var missing int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM unnest($2::text[], $3::bigint[]) r (name, sequence) WHERE NOT EXISTS (
			SELECT FROM `+pgx.Identifier{v.config.Schema}.Sanitize()+`.credential c
			WHERE c.organization = $1 AND c.name = r.name AND c.sequence >= r.sequence)`, organization, names, sequences).Scan(&missing)
		return err == nil && missing == 0
	})
}

// call has a program of an organization call a Function, and answers what the server was sent, and how the call ended.
func (v *vault) call(organization int64, function, arguments string) (seen []string, outcome string) {
	v.t.Helper()
	v.mu.Lock()
	v.seen = nil
	v.mu.Unlock()
	v.runs++
	id := fmt.Sprint("call-", v.runs)
	_, err := v.StartWorkflow(v.t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: id, Starlark: []byte(`
r = run("` + function + `", ` + arguments + `, retry = False, on_error = "return")
fail(r.code + " " + r.error if not r.ok else "fine")
`),
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.eventually("the run ends", func(ctx context.Context) bool {
		resp, err := v.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: id})
		outcome = resp.GetWorkflow().GetError()
		return err == nil && resp.GetWorkflow().GetFinishedAt() != nil
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen, outcome
}

// get is call for a request with a credential.
func (v *vault) get(organization int64, url, credential string) (seen, outcome string) {
	v.t.Helper()
	all, outcome := v.call(organization, "http.request", fmt.Sprintf(`{"url": %q, "credential": %q}`, url, credential))
	return strings.Join(all, " | "), outcome
}

func (v *vault) expect(organization int64, url, credential, wantSeen, wantOutcome string) {
	v.t.Helper()
	seen, outcome := v.get(organization, url, credential)
	if seen != wantSeen || !strings.Contains(outcome, wantOutcome) {
		v.t.Errorf("organization %d, %s with %s: the server was sent %q, outcome %q; expected %q and …%s…", organization, url, credential, seen,
			outcome, wantSeen, wantOutcome)
	}
}

// D56: a credential is its organization's, goes to its places only, and is what was reported last, whatever came when.
func TestACredentialOfAnOrganization(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(v *vault, c *workflow.Config) {
		operators := filepath.Join(filepath.Dir(v.file), "operators")
		v.put(operators, "of-the-operator")
		c.HTTPCredentials = []workflow.HTTPCredential{
			{Name: "api", URLPrefixes: []string{v.server.URL + "/a"}, Ref: "file:" + operators, Organizations: []int64{1, 2}},
		}
	})
	a := v.server.URL + "/a/x"
	v.expect(1, a, "api", "/a/x Bearer of-the-operator", "fine")

	first := v.sealed(v.terms(1, "api", 1), "first", 10)
	v.report(1, first)
	v.expect(1, a, "api", "/a/x Bearer first", "fine")
	v.expect(2, a, "api", "/a/x Bearer of-the-operator", "fine")
	v.expect(1, v.server.URL+"/b", "api", "", "is not for this URL")
	v.expect(1, strings.Replace(a, "127.0.0.1", "localhost", 1), "api", "", "is not for this URL")
	v.expect(1, v.server.URL+"/a?to=/a/y", "api", "/a Bearer first | /a/y Bearer first", "fine")
	v.expect(1, v.server.URL+"/a?to=/b", "api", "/a Bearer first | /b ", "fine")
	other := httptest.NewServer(v.server.Config.Handler)
	t.Cleanup(other.Close)
	v.expect(1, v.server.URL+"/a?to="+other.URL+"/a/z", "api", "/a Bearer first | /a/z ", "fine")

	// Rotated, and the old report once more: the next use gets the new value.
	second := v.sealed(v.terms(1, "api", 2), "second", 20)
	v.report(1, second, first)
	v.expect(1, a, "api", "/a/x Bearer second", "fine")

	// A copied ciphertext opens nowhere else: for another organization, name, place or version.
	stolen := second
	v.report(2, stolen)
	v.expect(2, a, "api", "", "was sealed for another credential")
	stolen.Name = "mine"
	stolen.Sequence = 30
	v.report(1, stolen)
	v.expect(1, a, "mine", "", "was sealed for another credential")
	stolen.URLPrefixes = []string{v.server.URL + "/"}
	stolen.Name, stolen.Sequence = "api", 31
	v.report(1, stolen)
	v.expect(1, v.server.URL+"/b", "api", "", "was sealed for another credential")
	old := first
	old.Version, old.Sequence = 2, 32
	v.report(1, old)
	v.expect(1, a, "api", "", "was sealed for another credential")

	// Revoked: the call fails, and the operator's credential of the name does not take its place.
	v.report(1, event.CredentialChanged{Name: "api", Sequence: 40, Version: 2, Kind: "http", URLPrefixes: second.URLPrefixes, Revoked: true}, second)
	v.expect(1, a, "api", "", `the credential "api" was revoked`)

	// A process that starts anew has all of it.
	v.report(1, v.sealed(v.terms(1, "again", 1), "third", 1))
	v.down()
	v.up()
	v.expect(1, a, "api", "", `the credential "api" was revoked`)
	v.expect(1, a, "again", "/a/x Bearer third", "fine")
}

// D56: the keyset is rotated while the service runs; without the key of a value the call fails and says so, and nothing of the value is
// seen.
func TestAKeysetOfCredentialsIsRotated(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(*vault, *workflow.Config) {})
	a := v.server.URL + "/a"
	terms := v.terms(1, "api", 1)
	terms.Header = "X-Api-Key"
	v.report(1, v.sealed(terms, "kept", 1))
	before, err := os.ReadFile(v.file)
	if err != nil {
		t.Fatal(err)
	}
	added := made(t)(keyset.Add(string(before)))
	all, err := keyset.List(added)
	if err != nil {
		t.Fatal(err)
	}
	promoted := made(t)(keyset.Promote(added, all[1].ID))
	for _, text := range []string{added, promoted} {
		v.put(v.file, text)
		v.expect(1, a, "api", "/a kept", "fine")
	}
	v.put(v.file, made(t)(keyset.Remove(promoted, all[0].ID)))
	v.expect(1, a, "api", "", "which the keyset of this service does not have")
	v.report(1, v.sealed(terms, "kept", 2)) // as the domain service does by itself
	v.expect(1, a, "api", "/a kept", "fine")
	v.put(v.file, made(t)(keyset.Create()))
	v.expect(1, a, "api", "", "which the keyset of this service does not have")
	if err := os.Remove(v.file); err != nil {
		t.Fatal(err)
	}
	v.expect(1, a, "api", "", "the keyset cannot be read")
}

// D56: without a keyset nothing opens, and references work as an operator allows them, checked at each use.
func TestAReferenceIsCheckedWhereItIsUsed(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(_ *vault, c *workflow.Config) { c.Credentials.KeysetRef = "" })
	a := v.server.URL + "/a"
	v.report(1, v.sealed(v.terms(1, "sealed", 1), "x", 1))
	v.expect(1, a, "sealed", "", "no keyset is configured")
	reference := func(name, ref string) event.CredentialChanged {
		return event.CredentialChanged{Name: name, Sequence: 1, Version: 1, Kind: "http", URLPrefixes: []string{a}, Username: "u", Reference: ref}
	}
	v.report(1, reference("ours", "file:"+v.secret), reference("wide", "file:"+v.file), reference("up", "file:"+filepath.Dir(v.secret)+"/../x"))
	v.report(2, reference("ours", "file:"+v.secret))
	v.expect(1, a, "ours", "/a Basic dTpieS1yZWZlcmVuY2U=", "fine")
	v.expect(1, a, "wide", "", "is a reference that this organization may not use")
	v.expect(1, a, "up", "", "is a reference that this organization may not use")
	v.expect(2, a, "ours", "", "is a reference that this organization may not use")
}

// D56: Git servers get the credential of their organization, by longest prefix or by name, and no other place does after a redirect.
func TestAGitCredentialOfAnOrganization(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(*vault, *workflow.Config) {})
	git := func(name string, version int, places ...string) sealing.Terms {
		terms := v.terms(1, name, version)
		terms.Kind, terms.Username, terms.URLPrefixes = sealing.Git, "bot", nil
		for _, place := range places {
			terms.URLPrefixes = append(terms.URLPrefixes, v.server.URL+place)
		}
		return terms
	}
	read := func(organization int64, path, credential string) (string, string) {
		arguments := fmt.Sprintf(`{"repo_url": %q, "ref": "main", "path": "f"}`, v.server.URL+path)
		if credential != "" {
			arguments = strings.Replace(arguments, "{", fmt.Sprintf(`{"credential": %q, `, credential), 1)
		}
		seen, outcome := v.call(organization, "git.read_file", arguments)
		return strings.Join(seen, " | "), outcome
	}
	v.report(1, v.sealed(git("team", 1, "/team", "/moved"), "one", 1), v.sealed(git("special", 1, "/team/special"), "two", 1),
		v.sealed(v.terms(1, "web", 1), "x", 1))
	const one, two = "Basic Ym90Om9uZQ==", "Basic Ym90OnR3bw=="
	for _, tt := range []struct {
		organization                    int64
		path, credential, seen, outcome string
	}{
		{1, "/team/x.git", "", "/team/x.git/info/refs " + one, ""},
		{1, "/team/special/x.git", "", "/team/special/x.git/info/refs " + two, ""},
		{1, "/team/special/x.git", "team", "/team/special/x.git/info/refs " + one, ""},
		{1, "/teammate/x.git", "", "/teammate/x.git/info/refs ", "wants credentials"},
		{1, "/teammate/x.git", "team", "", "has no credential"},
		{1, "/team/../other/x.git", "team", "", "has no credential"},
		{1, "/team/x.git", "web", "", "is of kind http; expected one of kind git"},
		{2, "/team/x.git", "", "/team/x.git/info/refs ", "wants credentials"},
		{2, "/team/x.git", "team", "", "has no credential"},
		{1, "/moved/x.git", "", "/moved/x.git/info/refs " + one + " | /elsewhere/x.git/info/refs ", "wants credentials"},
	} {
		seen, outcome := read(tt.organization, tt.path, tt.credential)
		outcome = strings.ReplaceAll(outcome, "does not accept the configured credentials", "wants credentials")
		if seen != tt.seen || !strings.Contains(outcome, tt.outcome) {
			t.Errorf("organization %d, %s with %q: the server was sent %q, outcome %q; expected %q and …%s…", tt.organization, tt.path, tt.credential,
				seen, outcome, tt.seen, tt.outcome)
		}
	}
	v.report(1, event.CredentialChanged{
		Name: "special", Sequence: 2, Version: 1, Kind: "git", URLPrefixes: []string{v.server.URL + "/team/special"}, Revoked: true,
	})
	if seen, outcome := read(1, "/team/special/x.git", ""); seen != "" || !strings.Contains(outcome, `"special" was revoked`) {
		t.Errorf("revoked: the server was sent %q, outcome %q", seen, outcome)
	}
}

// D56: a sealed value that was used, and said back by its server, is nowhere at rest, in no answer and in no log.
func TestASealedValueLeavesNoTrace(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(*vault, *workflow.Config) {})
	const canary = "kx7f3ab9-never-in-clear"
	v.report(1, v.sealed(v.terms(1, "api", 1), canary, 1))
	v.expect(1, v.server.URL+"/a", "api", "/a Bearer "+canary, "fine")
	history, err := v.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: 1, WorkflowId: "call-1"})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the history": history.String()}
	tables(t, v.service, places)
	v.down()
	v.bus.Stop(t)
	files(t, filepath.Dir(filepath.Dir(v.file)), v.file, places)
	if len(places) < 20 {
		t.Errorf("looked at %d places only", len(places))
	}
	for place, text := range places {
		if strings.Contains(text, canary) {
			t.Errorf("%s has the value", place)
		}
	}
}
