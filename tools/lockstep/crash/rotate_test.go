package crash

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// accounts are those that services sign in to PostgreSQL with, at a server that asks for passwords.
type accounts struct {
	// owner is the server's URL for who looks after it.
	owner, address string
}

// The account that services have at first, and the one beside it.
const (
	accountBefore = "lockstep_before"
	accountAfter  = "lockstep_after"
)

// TestPasswordsAreReplacedUnderARollout replaces the passwords of every service at NATS and PostgreSQL and the token between domain and
// workflow as docs/how-to/rotate-credentials.md says, with a rollout under way on two replicas: no call of the API fails, the workflow
// service refuses none of the domain service's, the rollout ends as if nothing had been, and what was replaced is refused.
func TestPasswordsAreReplacedUnderARollout(t *testing.T) {
	t.Parallel()
	database := newAccounts(t)
	ctx, w := startIn(t, stack.Config{Dir: t.TempDir(), DatabaseURL: database.url(t, accountBefore, rand.Text()), Fast: true}, oneStage())
	// The stack tidies up by the account that it was started with.
	t.Cleanup(func() { database.execute(ctx, t, "ALTER ROLE "+accountBefore+" LOGIN") })
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	var sets []client.VersionSet
	for _, tag := range []string{"1.0.0", "2.0.0"} {
		set, err := w.Push(ctx, tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	w.roll(ctx, t, sets[0], nil)

	in := w.install(ctx, t, database)
	r := w.roll(ctx, t, sets[1], func(_ context.Context, r client.Rollout) error {
		if _, err := w.API.PauseRollout(ctx, r.ID, "passwords"); err != nil {
			return err
		}
		calls := w.callWithoutEnd(ctx, r.ID)
		in.takeBothTokens(ctx, t)
		in.replacePasswords(ctx, t, r)
		in.takeOneToken(ctx, t)
		n, err := calls()
		t.Logf("%d calls meanwhile", n)
		return err
	})
	w.expectAllGates(t, r)
	check, err := w.API.CheckJournal(ctx, func(client.JournalCheck) {})
	if err != nil || len(check.Differences) > 0 || check.Rollouts != len(sets) {
		t.Errorf("the journal: got %+v, %v; want no differences in %d rollouts", check, err, len(sets))
	}
	in.expectNoRefusal(t)
	in.expectRefused(ctx, t)
}

// installation is two replicas of domain and workflow and one of registry, in place of those of the stack.
type installation struct {
	*world

	database accounts
	service  *balancer
	pairs    []*pair
	registry *replica
	// Tokens between domain and workflow, and the database's URL, before and after.
	tokens, urls [2]string
	// users are at NATS, by service: the password before and the one after.
	users map[string][2]string
}

func (w *world) install(ctx context.Context, t *testing.T, database accounts) *installation {
	t.Helper()
	e := w.stack.Endpoints()
	in := &installation{
		world: w, database: database, service: newBalancer(t), pairs: []*pair{w.pair(t, "a"), w.pair(t, "b")},
		// At the address of the stack's own, which the image registry notifies of pushes.
		registry: w.replica(t, "registry", "a", strings.TrimPrefix(e.Registry, "http://"), nil),
		tokens:   [2]string{e.Token, rand.Text()}, urls: [2]string{e.Database, ""}, users: map[string][2]string{},
	}
	for _, part := range []string{"registry", "domain", "workflow"} {
		_, _, password := w.stack.Account(part)
		in.users[part] = [2]string{password, rand.Text()}
		if err := w.stack.Disconnect(part); err != nil {
			t.Fatal(err)
		}
	}
	in.registry.start(ctx, t)
	for i, p := range in.pairs {
		// Crosswise, as any may call any in a cluster: a domain service with the new token meets a workflow service that does not have it
		// yet, and the other way round.
		p.domain.configure(t, map[string]any{"workflow_address": in.pairs[1-i].workflow.address})
		p.start(ctx, t)
		in.service.add(p.domain.address)
	}
	w.API = client.New(client.Config{Endpoint: in.service.url + "/graphql", Token: e.Token})
	return in
}

// takeBothTokens has the workflow service take the token to come beside the one that there is.
func (in *installation) takeBothTokens(ctx context.Context, t *testing.T) {
	t.Helper()
	var tokens []map[string]any
	for i, name := range []string{"before", "after"} {
		sum := sha256.Sum256([]byte(in.tokens[i]))
		tokens = append(tokens, map[string]any{"name": name, "scope": "admin", "sha256": hex.EncodeToString(sum[:])})
	}
	for _, p := range in.pairs {
		p.workflow.configure(t, map[string]any{"tokens": tokens})
		p.workflow.restart(ctx, t)
		for i, token := range in.tokens {
			if got := ask(ctx, t, p.workflow.address, token); got != codes.NotFound {
				t.Errorf("the workflow service, which takes both tokens, asked with number %d for what there is not: got %s, want NotFound", i, got)
			}
		}
	}
}

// replacePasswords changes the Secret, and what it is for, and then has each service start with it. The rollout is held until the first
// half has; from there on it runs on both.
func (in *installation) replacePasswords(ctx context.Context, t *testing.T, r client.Rollout) {
	t.Helper()
	in.urls[1] = in.database.beside(ctx, t)
	secret := func(part string) map[string]any {
		return map[string]any{"database_url": in.urls[1], "nats_password": in.users[part][1]}
	}
	in.registry.configure(t, secret("registry"))
	for _, p := range in.pairs {
		p.workflow.configure(t, secret("workflow"))
		p.workflow.configure(t, map[string]any{"token": in.tokens[1]})
		p.domain.configure(t, secret("domain"))
		p.domain.configure(t, map[string]any{"workflow_token": in.tokens[1]})
	}
	var users []map[string]any
	for part, passwords := range in.users {
		users = append(users, map[string]any{"name": part, "password": passwords[1]})
	}
	in.configure(ctx, t, map[string]map[string]any{"nats": {"users": users}})
	for _, p := range in.pairs {
		// It is let in no more, and says so; where the API is requests are sent still.
		in.await(ctx, t, "NATS to refuse the former password", p.workflow, http.StatusServiceUnavailable)
		in.await(ctx, t, "the domain service to be ready without NATS", p.domain, http.StatusOK)
	}
	in.registry.restart(ctx, t)
	for i, p := range in.pairs {
		in.service.remove(p.domain.address)
		p.stop(t)
		p.start(ctx, t)
		in.service.add(p.domain.address)
		if i > 0 {
			continue
		}
		if _, err := in.API.ResumeRollout(ctx, r.ID, "half of it is done"); err != nil {
			t.Fatal(err)
		}
	}
	in.database.close(ctx, t, in.world)
}

// await waits for what a replica answers a probe.
func (in *installation) await(ctx context.Context, t *testing.T, what string, r *replica, want int) {
	t.Helper()
	err := in.Await(ctx, what, func() (string, bool, error) {
		got, err := r.readiness(ctx)
		return fmt.Sprintf("%d, %v", got, err), err == nil && got == want, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// takeOneToken has the workflow service forget the token that there was.
func (in *installation) takeOneToken(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range in.pairs {
		p.workflow.configure(t, map[string]any{"tokens": nil})
		p.workflow.restart(ctx, t)
	}
}

// expectNoRefusal looks whether the workflow service has refused the domain service.
func (in *installation) expectNoRefusal(t *testing.T) {
	t.Helper()
	called := 0
	for _, p := range in.pairs {
		text, err := os.ReadFile(p.workflow.log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var call struct{ Status, Method string }
			if err := json.Unmarshal([]byte(line), &call); err != nil {
				t.Errorf("log of the workflow service: %v: %s", err, line)
			}
			switch {
			case call.Status == codes.Unauthenticated.String():
				t.Errorf("the workflow service has refused a call: %s", line)
			case call.Status == codes.OK.String() && call.Method == autoflowv1.AutoFlow_StartWorkflow_FullMethodName:
				called++
			}
		}
	}
	if called == 0 {
		t.Error("the logs have no workflow that the domain service has started")
	}
}

// expectRefused shows every server what was replaced.
func (in *installation) expectRefused(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range in.pairs {
		for i, want := range []codes.Code{codes.Unauthenticated, codes.NotFound} {
			if got := ask(ctx, t, p.workflow.address, in.tokens[i]); got != want {
				t.Errorf("the workflow service, asked with token %d for what there is not: got %s, want %s", i, got, want)
			}
		}
	}
	for part, passwords := range in.users {
		for i, refused := range []bool{true, false} {
			nc, err := signIn(ctx, in.stack.Endpoints().NATS, nats.UserInfo(part, passwords[i]))
			if err == nil {
				nc.Close()
			}
			if errors.Is(err, nats.ErrAuthorization) != refused {
				t.Errorf("NATS, %s with password %d: got %v; want that it is refused: %v", part, i, err, refused)
			}
		}
	}
	if got := login(ctx, in.urls[0]); got != "28000" { // invalid_authorization_specification: the account may not sign in
		t.Errorf("PostgreSQL, signed in to as before: got %q, want 28000", got)
	}
}

// ask asks a workflow service with a token for a workflow that does not exist.
func ask(ctx context.Context, t *testing.T, address, token string) codes.Code {
	t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: address, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = autoflowv1.NewAutoFlowClient(conn).GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: "nothing"})
	return status.Code(err)
}

// newAccounts starts a server with an account that may do what an installation's has to, and no more.
func newAccounts(t *testing.T) accounts {
	t.Helper()
	a := accounts{}
	a.owner, a.address = pgtest.NewChecked(t)
	a.execute(t.Context(), t, "CREATE ROLE lockstep_domain NOLOGIN", "CREATE ROLE "+accountBefore+" LOGIN IN ROLE lockstep_domain",
		"GRANT CREATE ON DATABASE postgres TO "+accountBefore)
	return a
}

// url gives an account a password, and is where it signs in with that. The server asks for it from then on.
func (a accounts) url(t *testing.T, account, password string) string {
	t.Helper()
	a.execute(t.Context(), t, "ALTER ROLE "+account+" PASSWORD '"+password+"'")
	url := "postgres://" + account + ":%s@" + a.address + "/postgres"
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for login(ctx, fmt.Sprintf(url, "guessed")) != "28P01" { // invalid_password
		if err := clock.Sleep(ctx, clock.System(), 50*time.Millisecond); err != nil {
			t.Fatalf("PostgreSQL does not ask %s for a password: %v", account, err)
		}
	}
	return fmt.Sprintf(url, password)
}

// beside makes another account that works as the one there is, and answers its URL.
func (a accounts) beside(ctx context.Context, t *testing.T) string {
	t.Helper()
	a.execute(ctx, t, "CREATE ROLE "+accountAfter+" LOGIN IN ROLE "+accountBefore, "ALTER ROLE "+accountAfter+" SET role = "+accountBefore)
	return a.url(t, accountAfter, rand.Text())
}

// close keeps the former account out, as soon as nobody is signed in with it any more.
func (a accounts) close(ctx context.Context, t *testing.T, w *world) {
	t.Helper()
	conn, err := pgx.Connect(ctx, a.owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = w.Await(ctx, "all services to have signed in with the new account", func() (string, bool, error) {
		var n int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, accountBefore).Scan(&n)
		return fmt.Sprint(n), n == 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.execute(ctx, t, "ALTER ROLE "+accountBefore+" NOLOGIN")
}

// execute runs statements as the server's administrator.
func (a accounts) execute(ctx context.Context, t *testing.T, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // at the end of the test as well
	defer cancel()
	conn, err := pgx.Connect(ctx, a.owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// login is PostgreSQL's code for why one may not sign in; empty if it may, and for a server that cannot be reached.
func login(ctx context.Context, url string) string {
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		_ = conn.Close(ctx)
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}
