package graph_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
	"github.com/lockstep-cd/lockstep/services/domain/internal/storetest"
)

// Two organizations: ours has everything, theirs is the one from which nothing of it may be seen.
const (
	ours   = 1
	theirs = 2
)

func digest(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// fixture is the API over a real core and a real store.
type fixture struct {
	// seen is what a client that follows says to have seen; empty for one that does not say.
	seen     string
	t        *testing.T
	access   *access.UseCases
	handoffs *handoff.UseCases
	setup    *setup.UseCases
	intake   *intake.UseCases
	rollouts *rollout.UseCases
	freezes  *freeze.UseCases
	policies *policy.UseCases
	origins  *origin.UseCases
	checks   *check.UseCases
	triggers *trigger.UseCases
	notify   *notify.UseCases
	feeds    *feed.UseCases
	forges   *forge.UseCases
	chats    *chat.UseCases
	sealer   *keyset.Keyset
	// credentials are sealed with a keyset of the test.
	credentials *credential.UseCases
	view        *view.UseCases
	evidence    *evidence.UseCases
	control     *control.UseCases
	handler     http.Handler
	log         *bytes.Buffer
	queries     *counter
	store       *store.Store
	watch       *watch
	runs        *runs
	// owner is the owner's connection to the tables.
	owner  *pgxpool.Pool
	events int
	// as holds the permissions of the caller.
	as core.Permissions
}

// counter counts the statements of our own; what a transaction adds is the same for each. Those of reads travel as batches.
type counter struct {
	n     atomic.Int64
	names sync.Map
}

// of is how often a statement was asked.
func (c *counter) of(name string) int64 {
	n, _ := c.names.LoadOrStore(name, &atomic.Int64{})
	return n.(*atomic.Int64).Load()
}

func (c *counter) count(sql string) {
	if strings.Contains(sql, "-- name: ") && !strings.Contains(sql, "EnterOrganization") && !strings.Contains(sql, "PlanForValues") {
		c.n.Add(1)
		n, _ := c.names.LoadOrStore(strings.Fields(sql)[2], &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
	}
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.count(d.SQL)
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		c.count(q.SQL)
	}
	return ctx
}

func (*counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// domain is the use cases as the handler takes them.
func (f *fixture) domain() graph.Domain {
	return graph.Domain{
		Access: f.access, Setup: f.setup, Intake: f.intake, Rollouts: f.rollouts, Freezes: f.freezes, Policies: f.policies, Checks: f.checks,
		Triggers: f.triggers, Notify: f.notify, Forges: f.forges, Feeds: f.feeds, Chats: f.chats,
		Credentials: f.credentials,
		Origins:     f.origins,
		Workflows:   f.handoffs, View: f.view, Evidence: f.evidence, Control: f.control,
		Retention: retention.New(f.store.ForRetention()),
		Reconcile: reconcile.New(reconcile.Deps{
			Store: f.store.ForReconcile(), Engine: known{f.runs}, Rollouts: f.rollouts, Clock: clock.System(), Wake: func() {},
			Received: func(context.Context, string, []string) (map[string]bool, error) { return nil, nil },
		}),
	}
}

// derives gives hooks secrets, as the registry service does.
type derives struct{}

func (derives) ForgeRefusals(_ context.Context, _ int64, keys []string) (map[string][]forge.Refusal, error) {
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	return map[string][]forge.Refusal{keys[0]: {{What: "check_run.conclusion", Reason: "found \"perfect\"", Times: 2, FirstAt: at, LastAt: at}}}, nil
}

func (derives) ForgeHook(_ context.Context, organization int64, key, of string) (path, secret string, err error) {
	return fmt.Sprintf("/v1/forge/%s/%d-%s", of, organization, key), "secret", nil
}

func (derives) Changed() {}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	owner, db := pgtest.New(t, storetest.EarlierRelease()...)
	f := &fixture{
		t: t, watch: &watch{}, runs: &runs{}, log: &bytes.Buffer{}, queries: &counter{}, owner: owner,
		as: core.RoleOwner.Permissions(),
	}
	plain := pgtest.As(t, db, storetest.Role)
	config := plain.Config()
	config.ConnConfig.Tracer = f.queries
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	drivers, err := bundle.New(bundle.Deps{BuiltIn: set})
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Deps{
		Pool: pool, Publish: outbox.Add,
		Claim: func(context.Context, pgx.Tx, event.Event) (bool, error) { return true, nil },
		ClaimAll: func(_ context.Context, _ pgx.Tx, all []event.Event) ([]bool, error) {
			return slices.Repeat([]bool{true}, len(all)), nil
		},
		Applied: func(_ context.Context, _ pgx.Tx, all []event.Event) ([]bool, error) {
			return make([]bool, len(all)), nil
		},
	})
	f.store = s
	for id, name := range map[int64]string{ours: "ours", theirs: "theirs"} {
		if err := s.EnsureOrganization(t.Context(), id, name); err != nil {
			t.Fatal(err)
		}
	}
	now := clock.System()
	f.access = access.New(access.Deps{Store: s.ForAccess(), Keys: &pairs{}, Clock: now})
	f.setup = setup.New(setup.Deps{
		Store: s.ForSetup(), Drivers: drivers, Flows: bundle.Flows{}, Sources: bundle.Sources{}, Status: f.watch, Clock: now,
	})
	f.intake = intake.New(intake.Deps{Store: s.ForIntake(), Matcher: bundle.Sources{}, Clock: now})
	f.rollouts = rollout.New(rollout.Deps{Store: s.ForRollout(), Drivers: drivers, Flows: bundle.Flows{}, Readiness: f.setup, Clock: now})
	f.evidence = evidence.New(evidence.Deps{Store: s.ForEvidence(), States: f.rollouts, Clock: now})
	f.policies = policy.New(s.ForPolicy(), &policy.Engine{}, now, func() {})
	f.origins = origin.New(s.ForOrigin(), reports{}, now, func() {})
	f.view = view.New(view.Deps{Reads: s, Drivers: drivers, Flows: bundle.Flows{}, Clock: now})
	f.checks = check.New(s.ForCheck(), bundle.Flows{}, now, func() {})
	f.sealer = keysetOf(t)
	f.notify = notify.New(notify.Deps{Store: s.ForNotify(), Clock: now})
	f.feeds = feed.New(s.ForFeed(), now, "https://cd.example.com", bundle.Flows{})
	f.forges = forge.New(forge.Deps{Store: s.ForForge(), Checks: f.view, Secrets: derives{}, Clock: now})
	f.credentials = credential.New(credential.Deps{
		Store: s.ForCredential(), Sealer: f.sealer, Clock: now, Settings: sealing.Settings{
			References: []sealing.Allowance{{Prefix: "env:SHOP_", Organizations: []int64{ours}}},
		},
	})
	f.chats = chat.New(chat.Deps{
		Store: s.ForChat(), Rollouts: f.rollouts, Calls: f.policies, Secrets: f.credentials, Sealer: f.sealer, Clock: now,
		URL: "https://cd.example.com",
	})
	f.triggers = trigger.New(trigger.Deps{
		Store: s.ForTrigger(), Rollouts: f.rollouts, Ranges: bundle.Ranges{}, Sources: bundle.Repositories{}, Clock: now,
	})
	f.freezes = freeze.New(s.ForFreeze(), now, func() {})
	f.control = control.New(control.Deps{
		Store: s.ForControl(), Replays: control.Replays(f.access, f.setup, f.rollouts, f.freezes, f.policies), Clock: now,
	})
	f.handoffs = handoff.New(handoff.Deps{Store: s.ForHandoff(), Programs: drivers, Workflows: f.runs, Rollouts: f.rollouts, Clock: now})
	// A wide window, so that reads that can be joined are, however busy the machine is.
	f.handler = graph.NewHandler(graph.Deps{
		Domain: f.domain(), Clock: now, Log: slog.New(slog.NewTextHandler(f.log, nil)), Window: 40 * time.Millisecond,
	})
	return f
}

// pairs are keys that look like keys, and open nothing.
type pairs struct{ n atomic.Int64 }

func (p *pairs) New() (public, seed string, err error) {
	n := p.n.Add(1)
	number := strings.NewReplacer("0", "A", "1", "B", "8", "C", "9", "D").Replace(fmt.Sprintf("%055d", n))
	return "U" + number, "SU" + number + "A", nil
}

// answer is what GraphQL answers.
type answer struct {
	Data   json.RawMessage `json:"data"`
	Errors []graphError    `json:"errors"`
}

type graphError struct {
	Message    string `json:"message"`
	Path       []any  `json:"path"`
	Extensions struct {
		Code   string           `json:"code"`
		Fields []map[string]any `json:"fields"`
	} `json:"extensions"`
}

// into decodes the data.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if len(a.Errors) > 0 {
		t.Fatalf("answer has errors: %+v", a.Errors)
	}
	if err := json.Unmarshal(a.Data, v); err != nil {
		t.Fatalf("%v: %s", err, a.Data)
	}
}

// ask sends a query as the owner of an organization.
func (f *fixture) ask(organization int64, query string, variables map[string]any) answer {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		f.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/graphql", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	_, text := f.serve(organization, r)
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		f.t.Fatalf("%v: %s", err, text)
	}
	return a
}

// serve answers a request in the name of an organization; 0 for nobody.
func (f *fixture) serve(organization int64, r *http.Request) (*http.Response, []byte) {
	f.t.Helper()
	if organization != 0 {
		a := actor(organization)
		a.Permissions = f.as
		r = r.WithContext(core.WithActor(r.Context(), a))
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	response := w.Result()
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response, body
}

func actor(organization int64) core.Actor {
	return core.Actor{Organization: organization, Type: core.PrincipalUser, ID: 7, Permissions: core.RoleOwner.Permissions()}
}

// must fails the test on an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// clusterOf is the number of the agent of an organization, which is registered on the first call.
func (f *fixture) clusterOf(organization int64) int64 {
	f.t.Helper()
	number := 41 + organization
	_, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_agents (id, organization_id, name) VALUES ($1, $2, 'its-cluster') ON CONFLICT DO NOTHING`, number, organization)
	if err != nil {
		f.t.Fatal(err)
	}
	return number
}

// environment makes one that is ready.
func (f *fixture) environment(organization int64, name string, tier core.Tier) core.Environment {
	f.t.Helper()
	e := must(f.setup.CreateEnvironment(f.t.Context(), actor(organization), setup.NewEnvironment{
		Name: name, Tier: tier, DriverRef: "argo-rollouts@1",
		DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, f.clusterOf(organization))),
	}))(f.t)
	f.apply(organization, rollout.EnvironmentReadiness{EnvironmentID: e.ID, Ready: true})
	return e
}

// application makes one whose services each have an image, and one version of it.
func (f *fixture) application(organization int64, name string, services ...string) core.Application {
	f.t.Helper()
	n := setup.NewApplication{Name: name, Description: name + " for everybody"}
	for _, s := range services {
		n.Services = append(n.Services, setup.NewService{Name: s, ArtifactSources: []setup.NewArtifactSource{{
			Ref: "oci-image@1", Config: json.RawMessage(fmt.Sprintf(`{"image":"r.example.com/%s/%s"}`, name, s)),
		}}})
	}
	a := must(f.setup.CreateApplication(f.t.Context(), actor(organization), n))(f.t)
	for i, s := range services {
		f.publish(organization, name+"/"+s, "1.0", i+1)
	}
	return a
}

// publish delivers the event of a published image.
func (f *fixture) publish(organization int64, image, tag string, n int) {
	f.t.Helper()
	errs := f.intake.PublishArtifacts(f.t.Context(), []intake.Publication{{
		In:       f.inbound(organization, "com.gitlab.cd.artifact.published"),
		Artifact: intake.Artifact{Image: "r.example.com/" + image, Digest: digest(n), Tag: tag},
	}})
	if err := errs[0]; err != nil {
		f.t.Fatal(err)
	}
}

// pipeline gives an application one through environments, in which it is then ready.
func (f *fixture) pipeline(organization int64, a core.Application, environments ...core.Environment) core.FlowDefinition {
	f.t.Helper()
	var steps []map[string]any
	for _, e := range environments {
		steps = append(steps, map[string]any{
			"type": "deploy", "environment": e.Name, "gates": []map[string]any{{"weight": 25}},
			"config": map[string]any{
				"namespace": "argocd", "application": a.Name + "-" + e.Name, "rollout_strategy": "canary", "use_load_balancing": false,
				"repository_url": "https://git.example.com/shop.git", "path": e.Name, "destination_namespace": a.Name,
				"services": []map[string]any{{"service": "api", "file": e.Name + "/api.yaml", "container": "api"}},
			},
		})
	}
	definition, err := json.Marshal(map[string]any{"steps": steps})
	if err != nil {
		f.t.Fatal(err)
	}
	d := must(f.setup.CreateFlowDefinition(f.t.Context(), actor(organization),
		setup.NewFlowDefinition{ApplicationID: a.ID, Definition: definition}))(f.t)
	all := must(f.view.ApplicationEnvironmentsByApplication(f.t.Context(), organization, []int64{a.ID}))(f.t)
	for _, ae := range all[a.ID] {
		f.apply(organization, rollout.ApplicationEnvironmentReadiness{
			ApplicationEnvironmentID: ae.ID, Ready: true, Discovered: json.RawMessage(`{"services":{}}`),
		})
	}
	return d
}

// rollout begins one of the newest version set.
func (f *fixture) rollout(organization int64, a core.Application) core.Rollout {
	f.t.Helper()
	sets := must(f.view.VersionSetsByApplication(f.t.Context(), organization, []int64{a.ID}, core.Page{First: 1}))(f.t)
	return *must(f.rollouts.CreateRollout(f.t.Context(), actor(organization),
		rollout.NewRollout{VersionSetID: sets[a.ID].Nodes[0].ID, Reason: "time to"}))(f.t).Rollout
}

// apply applies a change that a workflow reports.
func (f *fixture) apply(organization int64, ch rollout.Change) {
	f.t.Helper()
	in := f.inbound(organization, "com.gitlab.cd.example")
	in.Correlation = f.runFor(ch)
	if err := f.rollouts.Apply(f.t.Context(), in, ch); err != nil {
		f.t.Fatal(err)
	}
}

// runFor is the run that may report a change (D47).
func (f *fixture) runFor(ch rollout.Change) string {
	f.t.Helper()
	var about struct {
		RolloutID, DeploymentID, PreviewID, EnvironmentID, ApplicationEnvironmentID int64
		WorkflowID                                                                  string
	}
	text, err := json.Marshal(ch)
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	// one reads a number, which is 1 where there is no such row.
	one := func(query string, row int64) int64 {
		n := int64(1)
		_ = f.owner.QueryRow(f.t.Context(), query, row).Scan(&n)
		return n
	}
	switch ch.(type) {
	case rollout.HealthSeen, rollout.Reconciled, rollout.ContactSeen:
		return "observer/test"
	case rollout.EnvironmentReadiness:
		return id.OnboardingRun(about.EnvironmentID,
			int(one(`SELECT onboarding_attempt FROM cd_environments WHERE id = $1`, about.EnvironmentID)))
	case rollout.ApplicationEnvironmentReadiness:
		attempt := one(`SELECT setup_attempt FROM cd_application_environments WHERE id = $1`, about.ApplicationEnvironmentID)
		return id.SetupRun(about.ApplicationEnvironmentID, int(attempt))
	case rollout.Previewed:
		return id.PreviewRun(about.PreviewID)
	case rollout.WorkflowEnded:
		return about.WorkflowID
	}
	if about.DeploymentID != 0 {
		about.RolloutID = one(`SELECT e.rollout_id FROM cd_deployments d
			JOIN cd_rollout_environments e ON e.id = d.rollout_environment_id WHERE d.id = $1`, about.DeploymentID)
	}
	return id.RolloutRun(about.RolloutID)
}

func (f *fixture) inbound(organization int64, eventType string) core.Inbound {
	f.events++
	return core.Inbound{Organization: organization, ID: fmt.Sprintf("event-%d", f.events), Type: eventType, Envelope: event.Event{}}
}

// pressed is a link for linking a chat account: of a user who has pressed a button.
func (f *fixture) pressed() string {
	f.t.Helper()
	_, err := f.owner.Exec(f.t.Context(), `
		INSERT INTO cd_members (organization_id, id, name, kind, role) OVERRIDING SYSTEM VALUE VALUES ($1, 7, 'seven', 'user', 'owner') ON
			CONFLICT DO NOTHING`, ours)
	if err != nil {
		f.t.Fatal(err)
	}
	var press int64
	err = f.owner.QueryRow(f.t.Context(), `
		WITH c AS (
			INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name,
				changed_at)
			VALUES ($1, 'chat', 'slack', '{}', 20, false, 'user', 7, 'seven', now()) RETURNING organization_id, id
		) INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at)
		SELECT organization_id, id, sha256('1'), 'T1', 'U1', 'bob', sha256('2'), now() FROM c RETURNING id`, ours).Scan(&press)
	if err != nil {
		f.t.Fatal(err)
	}
	sealed, err := f.sealer.SealFor(f.t.Context(), sealing.UseChatAccount,
		fmt.Sprintf(`{"organization":%d,"press":%d,"expires":%d}`, ours, press, time.Now().Add(time.Minute).Unix()))
	if err != nil {
		f.t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed)
}
