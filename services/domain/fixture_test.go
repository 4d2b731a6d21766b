package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
	"github.com/lockstep-cd/lockstep/services/domain/internal/storetest"
)

// long is for tests that take longer than most others together; `make check` leaves them out.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: make test runs it")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, bustest.Leftovers()...) }

const (
	org  = 1
	role = storetest.Role
)

func user() core.Actor {
	return core.Actor{Organization: org, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
}

// fixture is the service over a real database, with an engine that only takes notes.
type fixture struct {
	*service
	log    *logBuffer
	t      *testing.T
	pool   *pgxpool.Pool
	db     pg.Config
	on     *events.Handlers
	engine *engine
	mu     sync.Mutex
	count  int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return setupAt(t, clock.System())
}

// setupAt is a fixture whose domain goes by a clock of the test's.
func setupAt(t *testing.T, now clock.Clock) *fixture {
	t.Helper()
	return setupWith(t, now, Config{DriverDir: filepath.Join("testdata", "drivers")})
}

// setupWith is a fixture with the drivers of a configuration.
func setupWith(t *testing.T, now clock.Clock, c Config) *fixture {
	t.Helper()
	pool, db := pgtest.New(t, storetest.EarlierRelease()...)
	drivers, err := givenDrivers(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// The service works as its own role, behind the walls (R5); pool is the owner's, for looking at what it did.
	service := pgtest.As(t, db, role)
	log := &logBuffer{}
	assembled, err := assemble(service, noBus{}, drivers, nil, now, c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{service: assembled, log: log, t: t, pool: pool, db: db, engine: &engine{}}
	f.on = events.New(f.intake, f.rollouts, f.forges, f.chats, f.inbox)
	for id, organization := range map[int64]string{org: "default", 2: "other"} {
		if err := f.store.EnsureOrganization(t.Context(), id, organization); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// guarded is a shop whose rollouts advance nowhere without a passage (D46).
func guarded(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.enforced()
	return s
}

// enforced has the rollouts from now on be those of this release.
func (s *shop) enforced() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `DROP TRIGGER earlier_release ON cd_rollouts`)
	s.ok(err)
}

// unlike are the differences between journal and states. That nothing was let past a gate is no concern of tests whose rollouts are those
// of earlier releases.
func unlike(check rollout.JournalCheck) []rollout.JournalDifference {
	return slices.DeleteFunc(check.Differences, func(d rollout.JournalDifference) bool { return d.Breach })
}

// engine is a handoff.Engine with scripted answers.
type engine struct {
	mu      sync.Mutex
	started []handoff.Workflow
	cancels []string
	agents  []core.AgentOwner
	answer  error
}

func (e *engine) DeclareAgents(_ context.Context, agents []core.AgentOwner) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answer != nil {
		return e.answer
	}
	e.agents = agents
	return nil
}

func (e *engine) Start(_ context.Context, w handoff.Workflow) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answer != nil {
		return "", e.answer
	}
	e.started = append(e.started, w)
	return "run-of-" + w.ID, nil
}

func (e *engine) Cancel(_ context.Context, _ int64, workflowID, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answer != nil {
		return e.answer
	}
	e.cancels = append(e.cancels, workflowID)
	return nil
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("%v (%v)", err, fault.ClassOf(err))
	}
}

// handOver sends the engine everything that is due.
func (f *fixture) handOver() {
	f.t.Helper()
	for {
		_, worked, err := f.handoffs.HandOver(f.t.Context(), f.engine)
		f.ok(err)
		if !worked {
			return
		}
	}
}

// emit makes an event as the workflow service would, and does not send it. Without a workflow it is that of the row that the event is
// about.
func (f *fixture) emit(data event.Data, workflow string) event.Event {
	f.t.Helper()
	if workflow == "" {
		workflow = f.runFor(data)
	}
	f.mu.Lock()
	f.count++
	id := fmt.Sprintf("%s/%d", f.t.Name(), f.count)
	f.mu.Unlock()
	e, err := event.New(event.Header{
		ID: id, Source: "/services/workflow", Organization: org, Correlation: workflow,
		Time: time.Unix(1_800_000_000, 0),
	}, data)
	f.ok(err)
	return e
}

// runFor is the run that may emit an event (D47): that of the row that the event is about.
func (f *fixture) runFor(data event.Data) string {
	f.t.Helper()
	var about struct {
		Rollout                int64  `json:"rollout_id"`
		Deployment             int64  `json:"deployment_id"`
		Preview                int64  `json:"preview_id"`
		CheckRun               int64  `json:"check_run_id"`
		Environment            int64  `json:"environment_id"`
		ApplicationEnvironment int64  `json:"application_environment_id"`
		Workflow               string `json:"workflow_id"`
		PullRequest            int64  `json:"pull_request_id"`
	}
	text, err := json.Marshal(data)
	f.ok(err)
	f.ok(json.Unmarshal(text, &about))
	attempt := func(query string, row int64) int {
		var n int
		if err := f.pool.QueryRow(f.t.Context(), query, row).Scan(&n); err != nil {
			return 1 // it does not exist
		}
		return max(n, 1)
	}
	switch d, _ := event.Lookup(data.EventType()); {
	case slices.Contains(d.EmittedBy, event.EmitterObserver):
		return "observer/test"
	case about.Workflow != "":
		return about.Workflow
	case about.Rollout != 0:
		return id.RolloutRun(about.Rollout)
	case about.Preview != 0:
		return id.PreviewRun(about.Preview)
	case about.CheckRun != 0:
		return id.CheckRun(about.CheckRun)
	case about.PullRequest != 0:
		read, _ := data.(event.PullRequestRead)
		return id.ForgePullRun(about.PullRequest, read.Run)
	case about.Deployment != 0:
		return id.RolloutRun(int64(attempt(`SELECT e.rollout_id FROM cd_deployments d JOIN cd_rollout_environments e ON e.id = d.rollout_environment_id WHERE d.id = $1`, about.Deployment)))
	case about.ApplicationEnvironment != 0:
		return id.SetupRun(about.ApplicationEnvironment,
			attempt(`SELECT setup_attempt FROM cd_application_environments WHERE id = $1`, about.ApplicationEnvironment))
	default:
		return id.OnboardingRun(about.Environment, attempt(`SELECT onboarding_attempt FROM cd_environments WHERE id = $1`, about.Environment))
	}
}

// deliver brings events to the domain consumer's handler, as many as there are at once.
func (f *fixture) deliver(all ...event.Event) {
	f.t.Helper()
	batch := make([]bus.Delivery, len(all))
	for i, e := range all {
		batch[i] = bus.Delivery{Event: e, Attempt: 1}
	}
	for _, err := range f.on.Domain(f.t.Context(), batch) {
		f.ok(err)
	}
}

// say emits and delivers.
func (f *fixture) report(data event.Data) {
	f.t.Helper()
	f.deliver(f.emit(data, ""))
}

func digestOf(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// artifact makes a registry event.
func (f *fixture) artifact(image, tag string, digest int, published time.Time) event.Event {
	f.t.Helper()
	f.mu.Lock()
	f.count++
	id := fmt.Sprintf("%s/artifact/%d", f.t.Name(), f.count)
	f.mu.Unlock()
	data := event.ArtifactPublished{Image: image, Digest: digestOf(digest), Tag: tag}
	if !published.IsZero() {
		data.PublishedAt = published.UTC().Format(time.RFC3339)
	}
	e, err := event.New(event.Header{ID: id, Source: "/services/registry", Time: time.Unix(1_700_000_000, 0)}, data)
	f.ok(err)
	return e
}

func (f *fixture) publish(all ...event.Event) {
	f.t.Helper()
	for _, e := range all {
		f.ok(f.receive(e)[0])
	}
}

// receive hands events to the domain together.
func (f *fixture) receive(all ...event.Event) []error {
	f.t.Helper()
	deliveries := make([]bus.Delivery, len(all))
	for i, e := range all {
		deliveries[i] = bus.Delivery{Event: e, Attempt: 1}
	}
	return f.on.Registry(f.t.Context(), deliveries)
}

func ociSource(image string) setup.NewArtifactSource {
	return setup.NewArtifactSource{Ref: source.OCIImage, Config: json.RawMessage(fmt.Sprintf(`{"image":%q}`, image))}
}

// application makes an application with services of one source each: registry.test/<application>/<service>.
func (f *fixture) application(name string, services ...string) core.Application {
	f.t.Helper()
	n := setup.NewApplication{Name: name}
	for _, s := range services {
		n.Services = append(n.Services, setup.NewService{
			Name:            s,
			ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/" + name + "/" + s)},
		})
	}
	a, err := f.setup.CreateApplication(f.t.Context(), user(), n)
	f.ok(err)
	return a
}

// paper is a driver that knows no cluster: the domain must not either (R1).
const paper = "paper@1"

func (f *fixture) environment(name string, tier core.Tier) core.Environment {
	f.t.Helper()
	e, err := f.setup.CreateEnvironment(f.t.Context(), user(), setup.NewEnvironment{
		Name: name, Tier: tier, DriverRef: paper, DriverConfig: json.RawMessage(`{"drawer":3}`),
	})
	f.ok(err)
	return e
}

func appEnvConfig(folder string) string {
	return fmt.Sprintf(`{"folder":%q,"colour":"red"}`, folder)
}

// pipeline is a definition with one gate in each environment and an approval before the last.
func pipeline(environments ...string) json.RawMessage {
	var steps []string
	for i, e := range environments {
		approval := ""
		if i > 0 && i == len(environments)-1 {
			approval = `"approval":{"reason":"release"},`
		}
		steps = append(steps, fmt.Sprintf(`{"type":"deploy","environment":%q,%s"gates":[{"weight":25,"soak_duration":5}],"config":%s}`,
			e, approval, appEnvConfig(e)))
	}
	return json.RawMessage(`{"steps":[` + join(steps) + `]}`)
}

func join(parts []string) string {
	out := ""
	for i, p := range parts {
		if i > 0 {
			out += ","
		}
		out += p
	}
	return out
}

// shop is an application of two services that is ready in two environments, with a version set.
type shop struct {
	*fixture
	application core.Application
	staging     core.Environment
	production  core.Environment
	set         core.VersionSet
}

func newShop(t *testing.T) *shop {
	t.Helper()
	return shopOf(newFixture(t))
}

// shopOf opens the shop in a fixture.
func shopOf(f *fixture) *shop {
	t := f.t
	t.Helper()
	s := &shop{fixture: f, application: f.application("shop", "api", "web")}
	s.staging, s.production = f.environment("staging", core.TierStaging), f.environment("production", core.TierProduction)
	_, err := f.setup.CreateFlowDefinition(t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: pipeline("staging", "production")})
	f.ok(err)
	s.makeReady()
	s.set = s.release(1)
	return s
}

// makeReady reports everything that the pipeline needs as present.
func (s *shop) makeReady() {
	s.t.Helper()
	s.report(event.EnvironmentReady{EnvironmentID: s.staging.ID})
	s.report(event.EnvironmentReady{EnvironmentID: s.production.ID})
	known, err := s.view.ApplicationEnvironmentsByApplication(s.t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	for _, ae := range known[s.application.ID] {
		s.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: ae.ID, RolloutName: "api", RolloutNamespace: "shop"})
	}
}

// release publishes both images and answers the set they make.
func (s *shop) release(n int) core.VersionSet {
	s.t.Helper()
	at := time.Unix(1_700_000_000+int64(n), 0)
	s.publish(
		s.artifact("registry.test/shop/api", fmt.Sprintf("1.%d", n), 10*n, at),
		s.artifact("registry.test/shop/web", fmt.Sprintf("1.%d", n), 10*n+1, at),
	)
	return s.sets()[0]
}

// sets are the version sets, newest first.
func (s *shop) sets() []core.VersionSet {
	s.t.Helper()
	sets, err := s.view.VersionSetsByApplication(s.t.Context(), org, []int64{s.application.ID}, core.Page{})
	s.ok(err)
	return sets[s.application.ID].Nodes
}

func (s *shop) rollout(set core.VersionSet) core.Rollout {
	s.t.Helper()
	r, err := s.rollouts.CreateRollout(s.t.Context(), user(), rollout.NewRollout{VersionSetID: set.ID, Reason: "test", Again: true})
	s.ok(err)
	return *r.Rollout
}

func (s *shop) reload(r core.Rollout) core.Rollout {
	s.t.Helper()
	found, err := s.view.RolloutsByID(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	return found[r.ID]
}

func (s *shop) stops(r core.Rollout) []core.RolloutEnvironment {
	s.t.Helper()
	found, err := s.view.RolloutEnvironmentsByRollout(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	return found[r.ID]
}

func (s *shop) deployments(e core.RolloutEnvironment) []core.Deployment {
	s.t.Helper()
	found, err := s.view.DeploymentsByRolloutEnvironment(s.t.Context(), org, []int64{e.ID})
	s.ok(err)
	return found[e.ID]
}

// story is the journal as "subject verb from→to", oldest first, without the plan, which follows every creation (plan_test.go).
func (s *shop) story(r core.Rollout) []string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	var lines []string
	for _, row := range j.Nodes {
		if row.Verb == core.VerbPlan {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s→%s", row.Subject.Kind, row.Verb, row.From, row.To))
	}
	return lines
}

// close lets the time pass in which events about ended rollouts are still accepted.
func (s *shop) close() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `UPDATE cd_rollout_closings SET due_at = 'epoch'`)
	s.ok(err)
	for {
		_, worked, err := s.rollouts.CloseDue(s.t.Context())
		s.ok(err)
		if !worked {
			return
		}
	}
}

// pass requests passages and approves what they need.
func (s *shop) pass(r core.Rollout, gates ...string) {
	s.t.Helper()
	for _, gate := range gates {
		s.report(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate})
		for id, open := range s.gates(r) {
			for n := range open.Quorum {
				var groups []string
				if open.Group != "" {
					groups = []string{open.Group}
				}
				s.ok(s.approve(person(int64(90+n), groups...), r, id))
			}
		}
	}
}

// succeed plays a whole rollout.
func (s *shop) succeed(r core.Rollout) {
	s.t.Helper()
	s.report(event.RolloutStarted{RolloutID: r.ID})
	for _, e := range s.stops(r) {
		s.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for _, d := range s.deployments(e) {
			s.report(event.DeploymentStarted{DeploymentID: d.ID})
			s.report(event.DeploymentHealthy{DeploymentID: d.ID})
		}
		s.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	}
	s.report(event.RolloutHealthy{RolloutID: r.ID})
}

// noBus is a bus that cannot be reached.
type noBus struct{}

func (noBus) PublishAll(context.Context, []event.Sealed, []string) []error {
	return []error{errNoBus}
}

func (noBus) Connected() bool { return false }

func (noBus) OnHint(context.Context, string, func([]byte)) error { return errNoBus }

func (noBus) Hint(string, []byte) {}

func (noBus) Ask(context.Context, string, []byte) ([]byte, error) { return nil, errNoBus }

var errNoBus = fault.New(fault.Unavailable, "the event bus is away")

// logBuffer is what a service has logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
