package domain

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

func TestARolloutFromRequestToHealthy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.handOver()
	if got := s.reload(r); got.WorkflowRef != "run-of-rollout-1" || got.State != core.RolloutPending {
		t.Fatalf("after the hand-over: %+v", got)
	}
	s.succeed(r)
	want := []string{
		"rollout create →pending",
		"rolloutenvironment create →pending", "deployment create →pending", "deployment create →pending",
		"rolloutenvironment create →pending", "deployment create →pending", "deployment create →pending",
		"rollout start pending→in_progress",
		"rolloutenvironment start pending→in_progress",
		"deployment start pending→deploying", "deployment complete deploying→healthy",
		"deployment start pending→deploying", "deployment complete deploying→healthy",
		"rolloutenvironment complete in_progress→completed",
		"rolloutenvironment start pending→in_progress",
		"deployment start pending→deploying", "deployment complete deploying→healthy",
		"deployment start pending→deploying", "deployment complete deploying→healthy",
		"rolloutenvironment complete in_progress→completed",
		"rollout complete in_progress→completed",
	}
	if diff := cmp.Diff(want, s.story(r)); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	if got := s.reload(r); got.State != core.RolloutCompleted || got.StartedAt == nil || got.FinishedAt == nil {
		t.Errorf("at the end: %+v", got)
	}
}

func TestDuplicatesAndLateEventsChangeNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	healthy := s.emit(event.DeploymentHealthy{DeploymentID: d.ID}, "")
	s.deliver(healthy, healthy) // never said to have started, and twice
	s.report(event.DeploymentStarted{DeploymentID: d.ID})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "no more"})
	s.close()
	before := s.story(r)
	s.report(event.RolloutHealthy{RolloutID: r.ID})
	s.report(event.DeploymentDegraded{DeploymentID: s.deployments(s.stops(r)[0])[1].ID})
	s.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "late"})
	if diff := cmp.Diff(before, s.story(r)); diff != "" {
		t.Errorf("late events changed the journal (-before +after):\n%s", diff)
	}
	want := []string{
		"rollout start pending→in_progress", "rolloutenvironment start pending→in_progress",
		"deployment start pending→deploying", "deployment complete deploying→healthy",
		"rollout fail in_progress→failed",
		"rolloutenvironment cancel in_progress→cancelled", "deployment cancel pending→cancelled",
		"rolloutenvironment cancel pending→cancelled", "deployment cancel pending→cancelled", "deployment cancel pending→cancelled",
	}
	if diff := cmp.Diff(want, before[7:]); diff != "" {
		t.Errorf("journal after the creation (-want +got):\n%s", diff)
	}
}

// TestStateIsTheJournalWhateverTheOrder delivers a rollout's events shuffled and doubled, and rebuilds every state.
func TestStateIsTheJournalWhateverTheOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for n := range 8 {
		r := s.rollout(s.set)
		var all []event.Event
		add := func(data event.Data) { all = append(all, s.emit(data, "")) }
		add(event.RolloutStarted{RolloutID: r.ID})
		for _, e := range s.stops(r) {
			add(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
			for _, d := range s.deployments(e) {
				add(event.DeploymentStarted{DeploymentID: d.ID})
				add(event.DeploymentGateReached{DeploymentID: d.ID, Weight: 25})
				add(event.DeploymentHealthy{DeploymentID: d.ID})
			}
			add(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		}
		if n%2 == 0 {
			add(event.RolloutHealthy{RolloutID: r.ID})
		} else {
			add(event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "boom"})
		}
		all = append(all, all...)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // any order will do
		s.deliver(all...)
		s.verifyJournal(r)
		if got := s.reload(r).State; !got.Terminal() {
			t.Errorf("round %d ends %s", n, got)
		}
	}
}

// verifyJournal rebuilds every state of a rollout from the journal.
func (s *shop) verifyJournal(r core.Rollout) {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	rebuilt := map[core.Subject]core.State{}
	for _, row := range j.Nodes {
		before, known := rebuilt[row.Subject]
		if known != (row.From != "") || known && before != row.From {
			s.t.Fatalf("row %+v does not follow from state %s", row, before)
		}
		rebuilt[row.Subject] = row.To
	}
	cached := map[core.Subject]core.State{{Kind: core.SubjectRollout, ID: r.ID}: core.State(s.reload(r).State)}
	for _, e := range s.stops(r) {
		cached[core.Subject{Kind: core.SubjectRolloutEnvironment, ID: e.ID}] = core.State(e.State)
		for _, d := range s.deployments(e) {
			cached[core.Subject{Kind: core.SubjectDeployment, ID: d.ID}] = core.State(d.State)
		}
	}
	if diff := cmp.Diff(rebuilt, cached); diff != "" {
		s.t.Errorf("states (-journal +cache):\n%s", diff)
	}
}

func TestOneActiveRolloutUnderConcurrentRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var wg sync.WaitGroup
	outcomes := make([]error, 6)
	for i := range outcomes {
		wg.Go(func() {
			_, outcomes[i] = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range outcomes {
		switch {
		case err == nil:
			made++
		case !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "active rollout"):
			t.Errorf("refused with %v (%v)", err, fault.ClassOf(err))
		}
	}
	if made != 1 {
		t.Errorf("%d rollouts were made, want 1", made)
	}
}

func TestRolloutsAreRefusedBeforeEverythingIsReady(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	check := func(want string) {
		t.Helper()
		_, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
		if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want Refused with %q", err, want)
		}
	}
	s.report(event.EnvironmentNotReady{EnvironmentID: s.production.ID, Reason: "argo-rollouts controller not found"})
	check(`environment "production" is not ready: argo-rollouts controller not found`)
	s.report(event.EnvironmentReady{EnvironmentID: s.production.ID})
	known, err := s.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	s.report(event.ApplicationEnvironmentNotReady{ApplicationEnvironmentID: known[s.application.ID][0].ID, Reason: "container mismatch"})
	check(`application "shop" is not ready in environment "staging": container mismatch`)
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: 999})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown set: %v, want NotFound", err)
	}
	_, err = s.rollouts.CreateRollout(t.Context(), core.Actor{
		Organization: 2, Type: core.PrincipalUser,
		ID: 9, Permissions: core.RoleOwner.Permissions(),
	}, rollout.NewRollout{VersionSetID: s.set.ID})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's set: %v, want NotFound", err)
	}
}

func TestRollingBackIsARolloutOfAnEarlierSet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.rollout(s.set)
	s.succeed(first)
	bad := s.rollout(s.release(2))
	if e := s.stops(bad)[0]; e.PreviousVersionSetID != s.set.ID {
		t.Errorf("from = %d, want %d", e.PreviousVersionSetID, s.set.ID)
	}
	s.report(event.DeploymentDegraded{DeploymentID: s.deployments(s.stops(bad)[0])[0].ID, Reason: "ProgressDeadlineExceeded"})
	s.report(event.RolloutEnvironmentFailed{RolloutID: bad.ID, EnvironmentID: s.staging.ID, Reason: "api is degraded"})
	s.report(event.RolloutFailed{RolloutID: bad.ID, Reason: "staging: api is degraded"})
	back := s.rollout(s.set)
	s.succeed(back)
	for _, r := range []core.Rollout{first, bad, back} {
		if got, want := s.reload(r).IsRollback, r.ID == back.ID; got != want {
			t.Errorf("rollout %d is a rollback: %v, want %v", r.ID, got, want)
		}
	}
}

// TestADeploymentCarriesTheVersionsOfAllItsSources is the Pod with containers from two places (R10, R16).
func TestADeploymentCarriesTheVersionsOfAllItsSources(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, err := f.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "shop", Services: []setup.NewService{{
		Name: "api", ArtifactSources: []setup.NewArtifactSource{ociSource("registry.test/shop/api"), ociSource("registry.test/shop/proxy")},
	}}})
	f.ok(err)
	e := f.environment("staging", core.TierStaging)
	_, err = f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: pipeline("staging")})
	f.ok(err)
	f.report(event.EnvironmentReady{EnvironmentID: e.ID})
	f.report(event.ApplicationEnvironmentReady{ApplicationEnvironmentID: 1})
	at := time.Unix(1_700_000_000, 0)
	f.publish(f.artifact("registry.test/shop/api", "1", 1, at), f.artifact("registry.test/shop/proxy", "7", 2, at))
	s := &shop{fixture: f, application: a}
	r := s.rollout(s.sets()[0])
	d := s.deployments(s.stops(r)[0])
	versions, err := f.view.VersionsByDeployment(t.Context(), org, []int64{d[0].ID})
	f.ok(err)
	if got := versions[d[0].ID]; len(d) != 1 || len(got) != 2 || got[0].Name != "1" || got[1].Name != "7" {
		t.Errorf("deployments %+v carry %+v", d, got)
	}
}

func TestGates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.report(event.RolloutStarted{RolloutID: r.ID})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", Reason: "release"})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", Reason: "release"}) // open already
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging/25", Reason: "look"})
	if got := s.reload(r); !got.AwaitingApproval || got.State != core.RolloutInProgress {
		t.Errorf("with open gates: %+v", got)
	}
	_, err := s.rollouts.ApproveGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: "prod"})
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "open: production, staging/25") {
		t.Errorf("approving an unknown gate: %v", err)
	}
	for _, gate := range []string{"staging/25", "production"} {
		if _, err := s.rollouts.ApproveGate(t.Context(), person(2),
			rollout.Resolution{RolloutID: r.ID, GateID: gate, Reason: "fine"}); err != nil {
			t.Errorf("approve %s: %v", gate, err)
		}
	}
	if _, err := s.rollouts.ApproveGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: "production"}); !fault.Is(err,
		fault.Refused) {
		t.Errorf("approving twice: %v, want Refused", err)
	}
	var announced []string
	rows, err := s.pool.Query(t.Context(), `SELECT event->'data'->>'gate_id' || ' ' || (event->'data'->>'resolution') FROM outbox WHERE event->>'type' = $1 ORDER BY 1`, event.TypeApprovalResolved)
	s.ok(err)
	for rows.Next() {
		var line string
		s.ok(rows.Scan(&line))
		announced = append(announced, line)
	}
	s.ok(rows.Err())
	if diff := cmp.Diff([]string{"production approved", "staging/25 approved"}, announced); diff != "" {
		t.Errorf("in the outbox (-want +got):\n%s", diff)
	}
	if s.reload(r).AwaitingApproval {
		t.Error("still awaiting approval")
	}
}

func TestRejectingAGateCancels(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	s.handOver()
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", Reason: "release"})
	got, err := s.rollouts.RejectGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: "production", Reason: "not today"})
	s.ok(err)
	if got.State != core.RolloutCancelled || got.AwaitingApproval {
		t.Errorf("after the rejection: %+v", got)
	}
	s.handOver()
	if diff := cmp.Diff([]string{"rollout-1"}, s.engine.cancels); diff != "" {
		t.Errorf("cancelled workflows (-want +got):\n%s", diff)
	}
	s.verifyJournal(r)
}

func TestFlowDefinitionsAreCheckedWhereTheyAreWrong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	f.environment("staging", core.TierStaging)
	tests := []struct{ name, definition, field string }{
		{"unsupported step", `{"steps":[{"type":"deploy","environment":"staging","config":` + appEnvConfig("x") +
			`},{"type":"analysis","name":"a"}]}`, "/definition/steps/1/type"},
		{
			"unknown environment", `{"steps":[{"type":"deploy","environment":"prod","config":` + appEnvConfig("x") + `}]}`,
			"/definition/steps/0/environment",
		},
		{
			"wrong blob", `{"steps":[{"type":"deploy","environment":"staging","config":{"folder":"x","colour":"green"}}]}`,
			"/definition/steps/0/config/colour",
		},
		{"not JSON", `{"steps":`, "/definition"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := f.setup.CreateFlowDefinition(t.Context(), user(),
				setup.NewFlowDefinition{ApplicationID: a.ID, Definition: json.RawMessage(tt.definition)})
			fields := fault.FieldsOf(err)
			if !fault.Is(err, fault.Invalid) || len(fields) == 0 || !strings.HasPrefix(fields[0].Name, tt.field) {
				t.Errorf("error = %v, fields %v; want Invalid at %s", err, fields, tt.field)
			}
		})
	}
}

// What applications may use in an environment is for its owner to say; a pipeline that does not fit is refused where it is written.
func TestAPipelineFitsWhatItsEnvironmentsAllow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.application("shop", "api")
	_, err := f.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
		Name: "staging", Tier: core.TierStaging, DriverRef: paper,
		DriverConfig: json.RawMessage(`{"drawer":3,"folders":["shop-*","!shop-secret"]}`),
	})
	f.ok(err)
	for folder, allowed := range map[string]bool{"shop-staging": true, "shop-secret": false, "kube-system": false} {
		_, err := f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: json.RawMessage(
			`{"steps":[{"type":"deploy","environment":"staging","config":` + appEnvConfig(folder) + `}]}`)})
		fields := fault.FieldsOf(err)
		switch {
		case allowed && err != nil:
			t.Errorf("%s: %v", folder, err)
		case !allowed && (!fault.Is(err, fault.Invalid) || len(fields) == 0 || fields[0].Name != "/definition/steps/0/config/folder"):
			t.Errorf("%s: error %v, fields %v; want Invalid at the folder", folder, err, fields)
		}
	}
}

// Workflows that others run on the engine are not rollouts: events about their ends are accepted and ignored, so they neither raise the
// alert on events that were given up nor appear in doctor.
func TestTheEndOfAnotherCallersWorkflowIsIgnored(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []string{"mine", "rollout-", "rollout-1-again", "preview-x"} {
		for _, e := range []event.Event{
			s.emit(event.WorkflowFailed{WorkflowID: id, Error: "x"}, ""), s.emit(event.WorkflowCompleted{WorkflowID: id}, ""),
		} {
			if err := s.on.Domain(t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]; err != nil {
				t.Errorf("%s of %s: found %v, expected nothing", e.Type(), id, err)
			}
		}
	}
}

func TestBadDomainEventsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tests := []struct {
		name string
		e    event.Event
		want fault.Class
	}{
		{"unknown rollout", s.emit(event.RolloutStarted{RolloutID: 77}, ""), fault.NotFound},
		{"unknown deployment", s.emit(event.DeploymentHealthy{DeploymentID: 77}, ""), fault.NotFound},
		{"an event of another path", s.emit(event.AgentHeartbeat{
			AgentID: 1, StartedAt: "2026-01-01T00:00:00Z",
			ObservedAt: "2026-01-01T00:00:00Z",
		}, ""), fault.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := s.on.Domain(t.Context(), []bus.Delivery{{Event: tt.e, Attempt: 1}})[0]
			if !fault.Is(err, tt.want) || fault.Describe(fault.ClassOf(err)).Consumer != fault.Terminate {
				t.Errorf("error = %v (%v), want %v", err, fault.ClassOf(err), tt.want)
			}
		})
	}
}
