// Package graph is the domain's public API: GraphQL over HTTP, schema first. The files in schema, one for each noun, are
// the contract; gqlgen generates package exec and a part of package model from them.
//
// It decides nothing: it parses identifiers, calls the core within the caller's organization, and maps the result to the schema. The
// caller has been authenticated before (core.WithActor).
package graph

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/exec"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

//go:generate go tool gqlgen generate

// Domain is the use cases that the API calls, by the package of core that has them.
type Domain struct {
	Access      Access
	Setup       Setup
	Intake      Intake
	Rollouts    Rollouts
	Freezes     Freezes
	Policies    Policies
	Origins     Origins
	Checks      Checks
	Triggers    Triggers
	Notify      Notify
	Forges      Forges
	Feeds       Feeds
	Chats       Chats
	Credentials Credentials
	Workflows   Workflows
	View        View
	Evidence    Evidence
	Reconcile   Reconcile
	Retention   Retention
	Control     Control
}

// Access is what the API needs of package access.
type Access interface {
	BeginRequest(ctx context.Context, a core.Actor, r access.Request) (answer []byte, first bool, err error)
	EndRequest(ctx context.Context, a core.Actor, key string, answer []byte) error
	VisibleTokens(ctx context.Context, a core.Actor, members []int64) (map[int64][]core.AccessToken, error)
	CreateMember(ctx context.Context, a core.Actor, n access.NewMember) (core.Member, error)
	SetMemberRole(ctx context.Context, a core.Actor, member int64, role core.Role) (core.Member, error)
	RemoveMember(ctx context.Context, a core.Actor, member int64) (core.Member, error)
	GrantPermissions(ctx context.Context, a core.Actor, n access.NewGrant) (core.Grant, error)
	RevokeGrant(ctx context.Context, a core.Actor, grant int64, reason string) (core.Grant, error)
	CreateGroup(ctx context.Context, a core.Actor, name string, members []int64) (core.Group, error)
	SetGroupMembers(ctx context.Context, a core.Actor, group int64, members []int64) (core.Group, error)
	CreateToken(ctx context.Context, a core.Actor, n access.NewToken) (core.AccessToken, string, error)
	RevokeToken(ctx context.Context, a core.Actor, token int64) (core.AccessToken, error)
	OrganizationsOf(ctx context.Context, a core.Actor) ([]core.Organization, error)
	OrganizationsFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.Organization], error)
	CountOrganizationsFor(ctx context.Context, a core.Actor) (int, error)
	CreateOrganization(ctx context.Context, a core.Actor, n access.NewOrganization) (core.Organization, string, error)
	RenameOrganization(ctx context.Context, a core.Actor, organization int64, name string) (core.Organization, error)
	AccessChangesFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.AccessChange], error)
	CountAccessChangesFor(ctx context.Context, a core.Actor) (int, error)
	SetAgentLabels(ctx context.Context, a core.Actor, agent int64, set map[string]string, unset ...string) (core.Agent, error)
	RegisterAgent(ctx context.Context, a core.Actor, name string) (core.Agent, string, error)
	RotateAgent(ctx context.Context, a core.Actor, r access.Rotation) (core.Agent, string, error)
	RevokeAgent(ctx context.Context, a core.Actor, agent int64) (core.Agent, error)
	RevokeAgentKey(ctx context.Context, a core.Actor, key int64) (core.Agent, error)
}

// Setup is what the API needs of package setup.
type Setup interface {
	Drivers() []core.Driver
	CheckKinds() []core.InstalledCheckKind
	DriverOrigins() []core.DriverOrigin
	ValidateDriverConfig(ref string, kind setup.DriverConfigKind, config json.RawMessage) ([]fault.Field, error)
	CreateApplication(ctx context.Context, a core.Actor, n setup.NewApplication) (core.Application, error)
	SourceKinds() []setup.SourceKind
	ArtifactSenders(ctx context.Context, a core.Actor) ([]setup.ArtifactSender, error)
	SourceStates(ctx context.Context, organization int64, sources []int64) (map[int64]setup.SourceState, error)
	AddArtifactSource(ctx context.Context, a core.Actor, service int64, n setup.NewArtifactSource) (core.ArtifactSource, error)
	SetArtifactSourceConfig(ctx context.Context, a core.Actor, source int64, config json.RawMessage) (core.ArtifactSource, error)
	DisableArtifactSource(ctx context.Context, a core.Actor, source int64, reason string) (core.ArtifactSource, error)
	EnableArtifactSource(ctx context.Context, a core.Actor, source int64, reason string) (core.ArtifactSource, error)
	RemoveArtifactSource(ctx context.Context, a core.Actor, source int64, reason string) (core.ArtifactSource, error)
	ReplaceArtifactSource(ctx context.Context, a core.Actor, source int64, n setup.NewArtifactSource, reason string) (core.ArtifactSource,
		error)
	AddService(ctx context.Context, a core.Actor, application int64, n setup.NewService, reason string) (core.Service, error)
	RetireService(ctx context.Context, a core.Actor, service int64, reason string) (core.Service, error)
	RestoreService(ctx context.Context, a core.Actor, service int64, reason string) (core.Service, error)
	LookAtArtifactSource(ctx context.Context, a core.Actor, source int64) (setup.SourceSight, error)
	TryArtifactSource(ctx context.Context, a core.Actor, n setup.NewArtifactSource) (setup.SourceSight, error)
	CreateEnvironment(ctx context.Context, a core.Actor, n setup.NewEnvironment) (core.Environment, error)
	UpdateEnvironment(ctx context.Context, a core.Actor, n setup.ChangedEnvironment) (core.Environment, error)
	SetLabels(ctx context.Context, a core.Actor, n setup.ChangedLabels) error
	SetDetails(ctx context.Context, a core.Actor, n setup.ChangedDetails) error
	RenameApplication(ctx context.Context, a core.Actor, n setup.Renaming) (core.Application, error)
	RenameEnvironment(ctx context.Context, a core.Actor, n setup.Displaying) (core.Environment, error)
	RenameService(ctx context.Context, a core.Actor, n setup.Displaying) (core.Service, error)
	RetryOnboarding(ctx context.Context, a core.Actor, environment int64) (core.Environment, error)
	CreateFlowDefinition(ctx context.Context, a core.Actor, n setup.NewFlowDefinition) (core.FlowDefinition, error)
	RetrySetup(ctx context.Context, a core.Actor, applicationEnvironment int64) (core.ApplicationEnvironment, error)
	SetChangeControl(ctx context.Context, a core.Actor, environment int64, on bool, reason string) (core.Environment, error)
	SetDirectChanges(ctx context.Context, a core.Actor, environment int64, allowed bool, reason string) (core.Environment, error)
	ChecksSchema() (json.RawMessage, error)
	DefinitionSchema() (json.RawMessage, error)
	SetEnvironmentChecks(ctx context.Context, a core.Actor, environment int64, checks json.RawMessage) (core.Environment, error)
	SetEnvironmentApproval(ctx context.Context, a core.Actor, environment int64, n *core.EnvironmentApproval) (core.Environment, error)
	ArchiveApplication(ctx context.Context, a core.Actor, application int64, reason string) (core.Application, error)
	ArchiveEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
	RestoreApplication(ctx context.Context, a core.Actor, application int64, reason string) (core.Application, error)
	RestoreEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
	CheckFlowDefinition(ctx context.Context, a core.Actor, definition json.RawMessage) ([]fault.Field, error)
}

// Intake is what the API needs of package intake.
type Intake interface {
	CreateVersionSet(ctx context.Context, a core.Actor, n intake.NewCurated) (core.VersionSet, error)
}

// Evidence is what the API needs of package evidence.
type Evidence interface {
	Audit(ctx context.Context, a core.Actor, f evidence.Filter, p core.Page) (core.Slice[evidence.Entry], error)
	CountAudit(ctx context.Context, a core.Actor, f evidence.Filter) (int, error)
	CheckChain(ctx context.Context, a core.Actor, after int64, most int) (evidence.Chain, error)
	LastCheck(ctx context.Context, a core.Actor) (evidence.Check, bool, error)
}

// Rollouts is what the API needs of package rollout.
type Rollouts interface {
	DecideCheck(ctx context.Context, a core.Actor, n rollout.CheckNamed, phase core.CheckPhase, reason string) (core.Rollout, error)
	EvaluateCheck(ctx context.Context, a core.Actor, n rollout.CheckNamed) (core.Rollout, error)
	CreateRollout(ctx context.Context, a core.Actor, n rollout.NewRollout) (rollout.Promotion, error)
	PreviewRollout(ctx context.Context, a core.Actor, n rollout.NewPreview) (core.Preview, error)
	ApproveGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error)
	RejectGate(ctx context.Context, a core.Actor, r rollout.Resolution) (core.Rollout, error)
	CancelRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	CancelQueued(ctx context.Context, a core.Actor, queued int64, reason string) (core.QueuedRollout, error)
	CancelThen(ctx context.Context, a core.Actor, n rollout.Cancellation) (core.Rollout, error)
	CheckJournal(ctx context.Context, a core.Actor, p core.Page) (rollout.JournalCheck, error)
	AbortRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	RetryRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	SetRolloutPolicy(ctx context.Context, a core.Actor, p core.RolloutPolicy) (core.Application, error)
	SetRollbackPolicy(ctx context.Context, a core.Actor, p core.RollbackPolicy) (core.Application, error)
	PauseWave(ctx context.Context, a core.Actor, w rollout.WaveHold) (core.Rollout, error)
	ResumeWave(ctx context.Context, a core.Actor, w rollout.WaveHold) (core.Rollout, error)
	PauseRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	ResumeRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	RollbackRollout(ctx context.Context, a core.Actor, n rollout.Rollback) (core.Rollout, error)
	BreakGlass(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	BypassFreeze(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
	StopAutomaticRollback(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error)
}

// Checks is what the API needs of package check.
type Checks interface {
	ReportCheck(ctx context.Context, a core.Actor, r check.Report) (core.CheckReport, error)
}

// Freezes is what the API needs of package freeze.
type Freezes interface {
	StartFreeze(ctx context.Context, a core.Actor, n freeze.NewFreeze) (core.Freeze, error)
	ExtendFreeze(ctx context.Context, a core.Actor, id int64, end time.Time, reason string) (core.Freeze, error)
	EndFreeze(ctx context.Context, a core.Actor, id int64, reason string) (core.Freeze, error)
	VetoVersion(ctx context.Context, a core.Actor, n freeze.NewVeto) (core.Veto, error)
	LiftVeto(ctx context.Context, a core.Actor, id int64, reason string) (core.Veto, error)
	PinEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
	UnpinEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
}

// Workflows is what the API needs of package handoff.
type Workflows interface {
	Workflows(ctx context.Context, a core.Actor, f handoff.WorkflowFilter, p core.Page) (core.Slice[handoff.WorkflowRun], error)
	Workflow(ctx context.Context, a core.Actor, id string) (handoff.WorkflowRun, error)
	WorkflowHistory(ctx context.Context, a core.Actor, id string, p core.Page) (core.Slice[handoff.WorkflowEntry], error)
	Schedules(ctx context.Context, a core.Actor, p core.Page) (core.Slice[handoff.Schedule], error)
	Schedule(ctx context.Context, a core.Actor, name string) (handoff.Schedule, error)
	ChangeSchedule(ctx context.Context, a core.Actor, action core.Action, name, reason string) (handoff.Schedule, string, error)
	Functions(ctx context.Context, a core.Actor) ([]handoff.Function, error)
	ScheduleContent(ctx context.Context, a core.Actor, name string) (handoff.ScheduleContent, error)
	RegisterSchedule(ctx context.Context, a core.Actor, r handoff.ScheduleRegistration) (handoff.Schedule, error)
	BackfillSchedule(
		ctx context.Context, a core.Actor, name, reason string, b handoff.Backfill,
	) (handoff.Schedule, handoff.Backfilled, error)
	CountWorkflows(ctx context.Context, a core.Actor, f handoff.WorkflowFilter) (handoff.WorkflowCount, error)
	WorkflowLogs(ctx context.Context, a core.Actor, id string, p core.Page) (core.Slice[handoff.WorkflowLine], error)
	WorkflowTimeline(ctx context.Context, a core.Actor, id string, first int, before int64) (handoff.WorkflowTimeline, error)
	RetryWorkflow(ctx context.Context, a core.Actor, id, reason string, from int64) (handoff.WorkflowRun, error)
	CancelWorkflow(ctx context.Context, a core.Actor, id, reason string) (handoff.WorkflowRun, error)
}

// View is what the API needs of package view.
type View interface {
	view.Reads
	// Now is the time that reads go by.
	Now() time.Time
	DeliveryMetrics(ctx context.Context, organization int64, w view.DeliveryWindow) ([]view.DeliveryMetrics, error)
	Matrix(ctx context.Context, organization int64, f core.MatrixFilter, p core.Page) (rows core.Slice[core.Application],
		environments []int64, err error)
	CountMatrix(ctx context.Context, organization int64, f core.MatrixFilter) (int, error)
	GatesOfStops(ctx context.Context, organization int64, stops []int64) (map[int64][]core.Gate, error)
	Standings(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.Standing, error)
	EnvironmentStandings(ctx context.Context, organization int64, environments []int64) (map[int64]core.EnvironmentStanding, error)
	ApplicationStandings(ctx context.Context, organization int64, applications []int64) (map[int64]core.ApplicationStanding, error)
	UnanswerableRules(ctx context.Context, organization int64, of view.RulesOf) ([]view.UnanswerableRule, error)
	GatesFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.Gate], error)
	CountGatesFor(ctx context.Context, a core.Actor) (int, error)
	JournalOf(ctx context.Context, organization int64, p core.Page) (core.Slice[core.JournalEntry], error)
	Present(ctx context.Context, organization int64) (int64, error)
	Follow(ctx context.Context, a core.Actor, after, rollout int64, send func(view.Followed) bool) error
	Waits(ctx context.Context, organization int64, rollouts []int64) (map[int64][]view.Wait, error)
	RolloutChecks(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CheckState, error)
	RolloutDeadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]view.Deadline, error)
	RollbackOutlooks(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.RollbackOutlook, error)
}

var (
	_ Access    = (*access.UseCases)(nil)
	_ Setup     = (*setup.UseCases)(nil)
	_ Rollouts  = (*rollout.UseCases)(nil)
	_ Freezes   = (*freeze.UseCases)(nil)
	_ Checks    = (*check.UseCases)(nil)
	_ Workflows = (*handoff.UseCases)(nil)
	_ View      = (*view.UseCases)(nil)
)

// Deps is what the handler needs.
type Deps struct {
	Domain Domain
	Clock  clock.Clock
	Log    *slog.Logger
	// Window is how long reads of one request wait for each other; 0 means 1 ms.
	Window time.Duration
	// Streams counts subscriptions; nil for a limit of its own.
	Streams *transport.Streams
	// Reads is where queries read of clients that say what they have seen; nil for the database alone.
	Reads transport.Reads
}

// cachedQueries is how many parsed queries are kept. Clients send the same few.
const cachedQueries = 200

// NewHandler serves GraphQL over HTTP: POST with a JSON body, and GET for queries. Requests come with an actor in their
// context; one without is answered 401.
func NewHandler(d Deps) http.Handler {
	if d.Window <= 0 {
		d.Window = time.Millisecond
	}
	if d.Streams == nil {
		d.Streams = transport.NewStreams(0)
	}
	schema := weighed{exec.NewExecutableSchema(exec.Config{Resolvers: resolvers{d.Domain, d.Log}})}
	s := handler.New(schema)
	s.AddTransport(transport.NewStream(d.Clock, d.Streams, d.Reads))
	s.AddTransport(transport.Exchange{Reads: d.Reads})
	s.SetQueryCache(lru.New[*ast.QueryDocument](cachedQueries))
	s.SetParserTokenLimit(maxTokens)
	s.SetErrorPresenter(presenter(d.Log, schema.Schema()))
	s.SetRecoverFunc(recovered)
	s.Use(extension.Introspection{})
	s.Use(&limits{})
	s.AroundResponses(observe(d.Log, d.Clock))
	return transport.Check(withLoadersFor(d, transport.Once(d.Domain.Access, d.Log, s)))
}

// withLoadersFor makes the loaders of each request.
func withLoadersFor(d Deps, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, _ := core.ActorFrom(r.Context()) // transport.Check refuses a request without one
		next.ServeHTTP(w, r.WithContext(withLoaders(r.Context(), newLoaders(d.Domain, actor, d.Clock, d.Window))))
	})
}

// observe writes one line for each operation: never its variables.
func observe(log *slog.Logger, c clock.Clock) graphql.ResponseMiddleware {
	return func(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
		response := next(ctx)
		if graphql.HasOperationContext(ctx) && graphql.GetOperationContext(ctx).Operation != nil &&
			graphql.GetOperationContext(ctx).Operation.Operation == ast.Subscription && (response == nil || len(response.Errors) == 0) {
			return response // a line for each event would be the journal once more
		}
		attrs := []slog.Attr{}
		if graphql.HasOperationContext(ctx) {
			o := graphql.GetOperationContext(ctx)
			attrs = append(attrs, slog.String(telemetry.KeyMethod, operationName(o)),
				telemetry.Milliseconds(telemetry.KeyDuration, c.Now().Sub(o.Stats.OperationStart)))
		}
		if l, ok := ctx.Value(loadersKey{}).(*loaders); ok {
			attrs = append(attrs, slog.Int64(telemetry.KeyOrganization, l.actor.Organization),
				slog.String(telemetry.KeyCaller, string(l.actor.Type)))
		}
		if response != nil && len(response.Errors) > 0 {
			attrs = append(attrs, slog.Int(telemetry.KeyCount, len(response.Errors)))
			// The library repeats what it could not read, which may be the value of a credential.
			if !graphql.HasOperationContext(ctx) || !transport.BearsSecret([]byte(graphql.GetOperationContext(ctx).RawQuery)) {
				attrs = append(attrs, slog.String(telemetry.KeyError, response.Errors.Error()))
			}
		}
		log.LogAttrs(ctx, slog.LevelInfo, "graphql operation", attrs...)
		return response
	}
}

// operationName is what an operation is called, or else its root fields.
func operationName(o *graphql.OperationContext) string {
	if o.Operation == nil {
		return "unreadable"
	}
	name := string(o.Operation.Operation)
	if o.Operation.Name != "" {
		return name + " " + o.Operation.Name
	}
	for _, selection := range o.Operation.SelectionSet {
		if f, ok := selection.(*ast.Field); ok {
			name += " " + f.Name
		}
	}
	const most = 200
	return name[:min(len(name), most)]
}
