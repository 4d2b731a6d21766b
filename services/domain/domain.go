// Package domain is the domain service: it owns the tables of continuous delivery and the journal, receives the events of
// registries and workflows, serves the API, and hands rollouts over to the workflow service.
//
// It runs no rollout itself, and does not know how a deployment is performed: that is a driver's program in the workflow
// service (R1).
package domain

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/autoflow"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/cdevents"
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
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

const (
	name = "domain"
	// receiver is who must not miss what the domain publishes: the outbox waits for its receipt, and for no other.
	receiver = "workflow"
	// stopWithin is how long the parts have to come to an end. It is longer than one call of the engine.
	stopWithin = 15 * time.Second
	// ownerOrganization and owner are who the bootstrap token stands for.
	ownerOrganization = 1
	owner             = 1
	ownerName         = "owner"
)

// Run is the service until ctx ends. The API is served as soon as the database is available; bus and workflow service may
// come later, and go away meanwhile.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	log.InfoContext(ctx, "starting", telemetry.KeyConfiguration, config.Redacted(c))
	stopTracing, err := telemetry.StartTracing(ctx, name, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if c.BootstrapToken == "" {
		log.WarnContext(ctx, "no bootstrap token is configured: every request will be refused")
	}
	if c.BootstrapToken != "" && isWeak(c.BootstrapToken) {
		log.WarnContext(ctx, "the bootstrap token is weak: expected at least 32 random characters, such as those of openssl rand -hex 32")
	}
	// Before anything is changed: a folder that is broken stops the start, and with it the upgrade.
	drivers, err := givenDrivers(ctx, c, log)
	if err != nil {
		return err
	}
	if err := migrate(ctx, c, log); err != nil {
		return err
	}
	pool, err := pg.Open(ctx, database(c, log))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()
	engine, err := rpc.Dial(rpc.ClientConfig{
		Address: c.WorkflowAddress, ServerName: c.WorkflowServerName, Token: c.WorkflowToken, CAFile: c.WorkflowCAFile,
		CertFile: c.WorkflowCertFile, KeyFile: c.WorkflowKeyFile, Insecure: !c.WorkflowTLS,
	})
	if err != nil {
		return fmt.Errorf("reach the workflow service: %w", err)
	}
	defer func() { _ = engine.Close() }()

	nats := c.Config(name, c.NATSUser)
	nats.Background, nats.Layout = true, c.Layout
	conn, err := bus.Connect(ctx, nats, log)
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer conn.Close()
	workflows := autoflow.New(engine)
	s, err := assemble(pool, conn, drivers, workflows, clock.System(), c, log)
	if err != nil {
		return err
	}
	// What was pulled before is available at once, even if its registry is not.
	if err := s.drivers.Load(ctx); err != nil {
		return fmt.Errorf("load drivers: %w", err)
	}
	if err := s.bootstrap(ctx, c); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := s.recordConfiguration(ctx, c); err != nil {
		return fmt.Errorf("record the configuration: %w", err)
	}
	if c.DatabaseStandbyURL != "" {
		if s.standby, err = openStandby(ctx, c, pool, log); err != nil {
			return err
		}
		defer s.standby.Close()
	}
	handler, err := s.handler(c)
	if err != nil {
		return err
	}
	api, err := rpc.HTTPPart("http", c.HTTPAddress, c.httpTLS(), log, handler)
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return run.Parts(ctx, log, stopWithin, s.parts(c, conn, workflows, api)...)
}

// parts is everything that runs as long as the service does.
func (s *service) parts(c Config, conn *bus.Conn, workflows autoflow.Engine, api run.Part) []run.Part {
	// Any number of replicas may run all of these: hand-overs and rollbacks are claimed row by row, the outbox has one
	// active sender, and the bus gives an event to one of them.
	parts := []run.Part{
		{Name: "listener", Run: func(ctx context.Context, ready func()) error { return s.listen(ctx, conn, ready) }},
		{Name: "policies", Run: s.attend},
		{Name: "reviews", Run: s.reviewPassages},
		{Name: "triggers", Run: s.decideAll},
		{Name: "notifications", Run: s.notifyAll},
		{Name: "forges", Run: s.publishAll},
		run.Loop("provenance", s.lookUpVersions),
		{Name: "authority", Run: func(ctx context.Context, ready func()) error { return s.admit(ctx, c, ready) }},
		run.Loop("agents", func(ctx context.Context) error { return s.declareAgents(ctx, workflows) }),
		{Name: "dispatcher", Run: func(ctx context.Context, ready func()) error {
			return s.dispatch(ctx, workflows, ready)
		}},
		run.Loop("places", func(ctx context.Context) error {
			return pg.AsLeader(ctx, s.pool, "places", clock.System(), s.announcePlaces)
		}),
		run.Loop("drift", func(ctx context.Context) error {
			return s.lookForDrift(ctx, rollout.DriftPace{Every: c.DriftEvery, Window: c.DriftWindow}, c.DriftPerMinute)
		}),
		run.Loop("policy sets", s.keepPolicies),
		run.Loop("credentials", func(ctx context.Context) error {
			return pg.AsLeader(ctx, s.pool, "credentials", clock.System(), s.keepCredentials)
		}),
		run.Loop("retention", func(ctx context.Context) error {
			return pg.AsLeader(ctx, s.pool, "retention", clock.System(), s.deleteSettled)
		}),
		run.Loop("drivers", func(ctx context.Context) error {
			s.drivers.Run(ctx)
			return nil
		}),
		api,
	}
	if s.standby != nil {
		parts = append(parts, run.Loop("standby", s.standby.Run))
	}
	if !c.Journal.Unsealed {
		parts = append(parts, run.Loop("journal", func(ctx context.Context) error {
			return pg.AsLeader(ctx, s.pool, "journal", clock.System(), func(ctx context.Context) error { return s.prove(ctx, c.Journal) })
		}))
	}
	if c.HealthAddress != "" {
		// Only the database: without the bus the API and the console answer all the same, and a service that reports itself
		// unready would have both taken away.
		checks := map[string]func(context.Context) error{"database": s.pool.Ping}
		delivery := &telemetry.Delivery{}
		parts = append(parts, rpc.PlainHTTPPart("health", c.HealthAddress, s.log, telemetry.Health(checks, exposition{
			conn: func() *bus.Conn { return conn }, pool: s.pool, standby: s.standby,
			breakGlass: s.store.BrokenGlass, breaches: s.store.Breaches, bypasses: s.store.FreezeBypasses,
			journal:  s.store.JournalHealth,
			delivery: delivery, streams: s.streams, decisions: s.triggers.Decisions, comparisons: s.rollouts.Comparisons,
			drifts: s.rollouts.DriftLooks,
			edits:  s.triggers.Edits, skips: s.rollouts.Skips, archived: s.archivedRows,
			notifications: s.notify.Counts, forges: s.forges.Counts, deployments: s.forges.DeploymentCounts, plans: s.forges.PullCounts,
			renderings: s.forges.RenderCounts,
			reported:   s.forges.Reported,
			latencies:  s.rollouts.CheckLatencies,
			feeds:      s.feeds.Counts, presses: s.chats.Counts, commands: s.chats.CommandCounts, credentials: s.credentials.Expiring,
			backlog:  s.store.NotificationBacklog,
			comments: s.chats.CommentCounts, answers: s.forges.AnswerCounts,
		}.collectors()...)))
		if len(c.DeliveryMetrics.Environments) > 0 {
			parts = append(parts, run.Loop("delivery metrics",
				func(ctx context.Context) error { return s.showDelivery(ctx, c.DeliveryMetrics, delivery) }))
		}
	}
	return parts
}

// bootstrap makes the first organization, its owner and the configured agents, where they do not exist yet.
func (s *service) bootstrap(ctx context.Context, c Config) error {
	if err := s.store.EnsureOrganization(ctx, ownerOrganization, c.BootstrapOrganization); err != nil {
		return err
	}
	if err := s.store.EnsureOwner(ctx, ownerOrganization, owner, ownerName); err != nil {
		return err
	}
	for _, a := range c.BootstrapAgents {
		if err := s.store.EnsureAgent(ctx, ownerOrganization, a.Number, a.Name, a.PublicKey); err != nil {
			return err
		}
	}
	return nil
}

// Program is the service's program. Its subcommands: migrate, which updates the tables; restored, which leaves a gap in all numbers after a
// restore; pgbouncer, which writes the entry of a pooler's configuration to out; and policy-off, which switches a policy set of an
// organization off.
func Program(out io.Writer) config.Program[Config] {
	return config.Program[Config]{Service: name, Run: Run, Subcommands: map[string]func(context.Context, Config) error{
		"migrate": Migrate, "restored": Restored,
		"pgbouncer": func(_ context.Context, c Config) error { return database(c.withDefaults(), nil).WritePoolerEntry(out) },
	}, Commands: map[string]config.Command[Config]{
		"policy-off": {Arguments: []string{"ORGANIZATION", "POLICY-SET", "REASON"}, Run: PolicyOff},
		"archived": {Arguments: []string{"ORGANIZATION", "KIND"}, Run: func(ctx context.Context, c Config, arguments []string) error {
			return ReadArchived(ctx, c, arguments, out)
		}},
	}}
}

// Migrate brings the tables up to date and returns: the subcommand migrate. Run does the same at its start, so it is
// only needed where the service's own account may not change tables.
func Migrate(ctx context.Context, c Config) error {
	return migrate(ctx, c.withDefaults(), telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name))
}

// Restored leaves a gap in all numbers that the service gives, and returns: the subcommand restored, for a database that was restored to an
// earlier time, before the service runs on it.
func Restored(ctx context.Context, c Config) error {
	c = c.withDefaults()
	log := telemetry.Logger(os.Stderr, c.LogLevel).With(telemetry.KeyService, name)
	owner := database(c, log)
	owner.URL, owner.DirectURL = c.OwnerDatabaseURL, ""
	return outbox.AfterRestore(ctx, owner, log)
}

// Tables are the sets of migrations of the service's schema, by the names that their versions are kept under.
func Tables() map[string]fs.FS {
	return map[string]fs.FS{"outbox": outbox.Migrations(), name: store.Migrations()}
}

func migrate(ctx context.Context, c Config, log *slog.Logger) error {
	owner := database(c, log)
	owner.URL, owner.DirectURL, owner.Role = c.OwnerDatabaseURL, "", ""
	// Two sets with a history each, so that the outbox may gain a migration without the domain's being renumbered.
	if err := pg.Migrate(ctx, owner, "outbox", outbox.Migrations()); err != nil {
		return fmt.Errorf("migrate outbox of schema %s: %w", c.Schema, err)
	}
	if err := pg.Migrate(ctx, owner, name, store.Migrations()); err != nil {
		return fmt.Errorf("migrate schema %s: %w", c.Schema, err)
	}
	role := database(c, log).Role
	if err := pg.EnsureRole(ctx, owner, role, c.DatabaseURL); err != nil {
		return fmt.Errorf("make the role of schema %s: %w", c.Schema, err)
	}
	if err := store.Protect(ctx, owner, role); err != nil {
		return fmt.Errorf("protect schema %s: %w", c.Schema, err)
	}
	return nil
}

// noRole is the database_role of a service that works as the account it signs in with.
const noRole = "none"

func database(c Config, log *slog.Logger) pg.Config {
	p := pg.Config{
		URL: c.DatabaseURL, DirectURL: c.DatabaseDirectURL, Schema: c.Schema, Role: c.DatabaseRole, MaxConns: c.MaxConnections,
		TLS: c.Database.Certificates(), Log: log,
		// Each statement has one sensible plan, and PostgreSQL would otherwise plan most of them anew for each execution, which takes
		// longer than they do. Those of lists are planned with their values in sight (PlanForValues).
		Settings: map[string]string{"jit": "off", "plan_cache_mode": "force_generic_plan"},
	}
	if p.Role == noRole {
		p.Role = ""
	}
	return p
}

// openStandby is the standby that queries may be read from.
func openStandby(ctx context.Context, c Config, primary *pgxpool.Pool, log *slog.Logger) (*pg.Standby, error) {
	there := database(c, log)
	there.URL, there.DirectURL = c.DatabaseStandbyURL, ""
	s, err := pg.OpenStandby(ctx, there, primary, c.DatabaseStandbyStaleness, clock.System())
	if err != nil {
		return nil, fmt.Errorf("database_standby_url: %w", err)
	}
	return s, nil
}

// service is the assembled parts that the loops and the API share.
type service struct {
	log  *slog.Logger
	pool *pgxpool.Pool
	// standby takes reads of the API; nil for none.
	standby *pg.Standby
	store   *store.Store
	inbox   *outbox.Inbox
	sender  *outbox.Sender
	// The use cases, by the package of core that has them.
	access   *access.UseCases
	setup    *setup.UseCases
	intake   *intake.UseCases
	rollouts *rollout.UseCases
	freezes  *freeze.UseCases
	policies *policy.UseCases
	origins  *origin.UseCases
	checks   *check.UseCases
	handoffs *handoff.UseCases
	view     *view.UseCases
	evidence *evidence.UseCases
	control  *control.UseCases
	// reconcile compares the record with what others know.
	reconcile *reconcile.UseCases
	triggers  *trigger.UseCases
	// notify sends notifications.
	notify *notify.UseCases
	// feeds serves what is read without signing in.
	feeds *feed.UseCases
	// forges publishes statuses of commits.
	forges      *forge.UseCases
	credentials *credential.UseCases
	// chats takes answers from chats.
	chats     *chat.UseCases
	retention *retention.UseCases
	// archivedRows counts those that retention has archived.
	archivedRows *prometheus.CounterVec
	// drivers are the domain's, which follow their registries.
	drivers *bundle.Drivers
	// streams counts the open subscriptions of the API; nil before its handler is made.
	streams *transport.Streams
	// due holds one wake-up for the dispatchers, chore one for what is done by time, and review one for those who evaluate passages again.
	due, chore, review chan struct{}
	// decide holds one wake-up for those who have triggers decide.
	decide chan struct{}
	// edits are the calls for edits of files that are under way, and editing holds one value for each.
	edits   sync.WaitGroup
	editing chan struct{}
	// notifiers holds one wake-up for those who send notifications.
	notifiers chan struct{}
	// publishers holds one wake-up for those who publish statuses of commits.
	publishers chan struct{}
	// barred is signalled when an agent key may have expired, undeclared when the engine may not know an agent.
	barred, undeclared chan struct{}
}

// eventBus is what the service needs of the bus before it listens to it.
type eventBus interface {
	outbox.Publisher
	outbox.Hinter
	events.Asker
}

// engineReads is what the service needs of the engine beside starts and cancellations.
type engineReads interface {
	handoff.Workflows
	notify.Engine
	reconcile.Engine
}

// stuck logs an approval that nobody can give.
func stuck(log *slog.Logger) func(context.Context, rollout.Stuck) {
	return func(ctx context.Context, r rollout.Stuck) {
		log.WarnContext(
			ctx, "requested approval cannot be met: too few eligible approvers", slog.Int64(telemetry.KeyOrganization, r.Organization),
			slog.Int64(telemetry.KeyRollout, r.RolloutID), slog.String("gate", r.GateID), slog.String("problem", r.Problem),
		)
	}
}

// assemble puts the service together over its database. now stamps domain records; background loops use the system
// clock. drivers is complete except for Kept, which is set here. While the bus is not connected, publishing is
// Unavailable, and the outbox keeps what is due.
func assemble(
	pool *pgxpool.Pool, conn eventBus, drivers bundle.Deps, workflows engineReads, now clock.Clock, c Config, log *slog.Logger,
) (*service, error) {
	s := &service{
		log: log, pool: pool, due: make(chan struct{}, 1), chore: make(chan struct{}, 1), review: make(chan struct{}, 1),
		barred: make(chan struct{}, 1), editing: make(chan struct{}, edits),
		undeclared: make(chan struct{}, 1), decide: make(chan struct{}, 1), notifiers: make(chan struct{}, 1), publishers: make(chan struct{}, 1),
	}
	s.inbox = outbox.NewInbox(outbox.InboxDeps{Pool: pool, Bus: conn, Clock: clock.System(), Log: log, Name: name})
	s.sender = outbox.NewSender(outbox.SenderDeps{
		Pool: pool, Bus: conn, Clock: clock.System(), Log: log, Name: name, Receivers: []string{receiver},
	})
	installation, err := c.installation()
	if err != nil {
		return nil, err
	}
	s.store = store.New(store.Deps{
		Installation: installation, AgentsOf: s.agentsOf,
		Pool: pool, Claim: s.inbox.Claim, ClaimAll: s.inbox.ClaimAll, Applied: s.inbox.Applied, Publish: outbox.Add,
	})
	drivers.Kept = s.store
	if s.drivers, err = bundle.New(drivers); err != nil {
		return nil, fmt.Errorf("load drivers: %w", err)
	}
	flows, sources := bundle.Flows{}, bundle.Sources{}
	s.setup = setup.New(setup.Deps{
		Store: s.store.ForSetup(), Drivers: s.drivers, Flows: flows, Sources: sources, Status: events.NewRegistry(conn),
		Clock: now, Wake: s.wake,
	})
	s.access = access.New(access.Deps{
		Store: s.store.ForAccess(), Keys: agentKeys{}, Clock: now, SessionLife: c.SessionLifetime, IdentitySessionLife: c.OIDC.SessionLifetime,
		AgentsChanged: s.agentsChanged, Fleets: s.setup,
	})
	s.intake = intake.New(intake.Deps{Store: s.store.ForIntake(), Matcher: sources, Clock: now})
	decide := &policy.Engine{}
	s.policies = policy.New(s.store.ForPolicy(), decide, now, s.wakeChores).With(installation).WithDrivers(s.driverRefs)
	s.origins = origin.New(s.store.ForOrigin(), events.NewRegistry(conn), now, func() { s.wakeChores(); s.wakeTriggers() })
	s.rollouts = rollout.New(rollout.Deps{
		Policies: decide, Store: s.store.ForRollout(), Drivers: s.drivers, Flows: flows, Readiness: s.setup, Clock: now, Wake: s.wake,
		Stuck: stuck(log), URL: c.PublicURL,
		Breached: func(ctx context.Context, b rollout.Breach) {
			log.ErrorContext(
				ctx, "rollout advanced beyond a passage that was not granted", slog.Int64(telemetry.KeyOrganization, b.Organization),
				slog.Int64(telemetry.KeyRollout, b.RolloutID), slog.String("gate", b.GateID), slog.String("reason", b.Reason),
			)
		},
		Bypassed: func(ctx context.Context, b rollout.Bypass) {
			log.WarnContext(
				ctx, "freeze bypassed", slog.Int64(telemetry.KeyOrganization, b.Organization), slog.Int64(telemetry.KeyRollout, b.RolloutID),
				slog.Any("freezes", b.Freezes), slog.String("principal", b.By), slog.String("reason", b.Reason),
			)
		},
	})
	s.triggers = trigger.New(trigger.Deps{
		Store: s.store.ForTrigger(), Rollouts: s.rollouts, Ranges: bundle.Ranges{}, Sources: bundle.Repositories{}, Engine: workflows, Clock: now,
		Aside: s.editAside, Wake: s.wakeTriggers, Began: s.wake,
	})
	s.setup.Chaining(func(ctx context.Context, tx setup.Tx, organization, of int64) error {
		return asTrigger(tx, func(within trigger.Tx) error { return s.triggers.RefuseCircles(ctx, within, organization, of) })
	})
	s.setup.Following(func(ctx context.Context, tx setup.Tx, a core.Actor, of core.Application, reason string) error {
		return asTrigger(tx, func(within trigger.Tx) error { return s.triggers.Follow(ctx, within, a, of, reason) })
	})
	secrets, err := secret.New(c.Vault, now, log)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	sealer := keyset.New(secrets, c.Credentials.KeysetRef)
	s.credentials = credential.New(credential.Deps{
		Store: s.store.ForCredential(), Sealer: sealer, References: secrets, Settings: c.Credentials,
		Changed: events.NewRegistry(conn).Changed, Clock: now,
	})
	s.notify = notify.New(notify.Deps{
		Store: s.store.ForNotify(), Engine: workflows, Clock: now, URL: c.PublicURL, Sealer: sealer,
		Secrets: s.credentials, Events: cdevents.Writer{}, Wake: s.wakeNotifiers, Unwarned: s.unwarned,
	})
	s.freezes = freeze.New(s.store.ForFreeze(), now, s.wakeChores)
	s.checks = check.New(s.store.ForCheck(), flows, now, s.wakeChores)
	s.handoffs = handoff.New(handoff.Deps{
		Store: s.store.ForHandoff(), Programs: s.drivers, Workflows: workflows, Rollouts: s.rollouts, Clock: now,
	})
	key, err := c.exportKey(log)
	if err != nil {
		return nil, err
	}
	s.control = control.New(control.Deps{
		Store: s.store.ForControl(), Replays: control.Replays(s.access, s.setup, s.rollouts, s.freezes, s.policies), Clock: now,
	})
	s.evidence = evidence.New(evidence.Deps{Store: s.store.ForEvidence(), States: s.rollouts, Clock: now, Key: key})
	s.reconcile = reconcile.New(reconcile.Deps{
		Store: s.store.ForReconcile(), Engine: workflows, Rollouts: s.rollouts, Received: s.inbox.Received, Wake: s.wake, Clock: now,
	})
	if err := s.retains(c, secrets, now, log); err != nil {
		return nil, err
	}
	s.view = view.New(view.Deps{Reads: s.store, Drivers: s.drivers, Flows: flows, Clock: now})
	s.publishes(c, conn, workflows, now)
	s.chats, err = s.chatAnswers(c, sealer, now)
	return s, err
}

// asTrigger has f use a transaction of setup as one of triggers.
func asTrigger(tx setup.Tx, f func(trigger.Tx) error) error {
	within, is := tx.(trigger.Tx)
	if !is {
		return fmt.Errorf("found %T, which knows no triggers", tx)
	}
	return f(within)
}

// publishes puts together what readers elsewhere see: feeds, and statuses at forges.
func (s *service) publishes(c Config, conn eventBus, workflows engineReads, now clock.Clock) {
	s.feeds = feed.New(s.store.ForFeed(), now, c.PublicURL, bundle.Flows{})
	s.forges = forge.New(forge.Deps{
		Store: s.store.ForForge(), Engine: workflows, Checks: s.view, Plans: s.triggers, Pipelines: bundle.Flows{},
		Secrets: events.NewRegistry(conn), Clock: now, URL: c.PublicURL, Wake: s.wakePublishers, Review: s.wakeChores,
	})
}

// wake signals that something was committed that is to be handed over or published. A wake-up that is lost costs dispatchPoll; the table
// is what says what is due (D44).
func (s *service) wake() {
	s.sender.Wake()
	s.wakeOne()
	s.wakeNotifiers()
	s.wakePublishers()
}

// wakePublishers signals that there may be a status to publish.
func (s *service) wakePublishers() {
	select {
	case s.publishers <- struct{}{}:
	default: // one is waiting already
	}
}

// wakeNotifiers signals that there may be something to notify of.
func (s *service) wakeNotifiers() {
	select {
	case s.notifiers <- struct{}{}:
	default: // one is waiting already
	}
}

// wakeChores signals that something is due now that is otherwise found within chorePoll: passages to be evaluated again.
func (s *service) wakeChores() {
	s.wakeReviewer()
	select {
	case s.chore <- struct{}{}:
	default: // one is waiting already
	}
}

// wakeTriggers signals that a trigger has something to decide about.
func (s *service) wakeTriggers() {
	select {
	case s.decide <- struct{}{}:
	default: // one is waiting already
	}
}

// listen reads both event paths and publishes the outbox. It is ready before the bus is: the API needs only the database.
func (s *service) listen(ctx context.Context, conn *bus.Conn, ready func()) error {
	ready()
	// Before the outbox is sent: an event that is published without its stream would find none.
	if err := conn.Apply(ctx, events.Topology()); err != nil {
		return fmt.Errorf("make streams and consumers: %w", err)
	}
	h := events.New(s.intake, s.rollouts, s.forges, s.chats, s.inbox)
	return run.Parts(ctx, s.log, stopWithin,
		run.Loop("outbox", s.sender.Run),
		run.Loop("inbox", s.inbox.Run),
		run.Loop("sources", func(ctx context.Context) error { return s.answerSources(ctx, conn) }),
		run.Loop("registry events", func(ctx context.Context) error {
			return conn.ConsumeInOrder(ctx, events.RegistryConsumer(), h.Registry, h.Rejected)
		}),
		run.Loop("domain events", func(ctx context.Context) error {
			// One replica at a time, because the events of a rollout have to be published in their order.
			return pg.AsLeader(ctx, s.pool, "domain events", clock.System(), func(ctx context.Context) error {
				return conn.ConsumeInOrder(ctx, events.DomainConsumer(), h.Domain, h.Rejected)
			})
		}),
	)
}
