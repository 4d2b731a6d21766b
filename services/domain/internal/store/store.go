// Package store keeps the domain in PostgreSQL: the tables with the rules that protect them (migrations), the queries
// (queries, generated into package query), and what the packages of core declare as Store and Tx.
//
// It decides nothing: what a change means is core's. What it adds is that every statement of an organization runs in a
// transaction that has entered that organization, and that errors have a class.
package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/feed"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/trigger"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations are the domain's own; the outbox has its own set.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the embedded folder's name is a constant
	}
	return sub
}

// Protect walls every table off by organization, and gives the role that the service works as what it needs and no more:
// to be run by the owner of the tables after every migration. Without a role it works for the owner alone.
func Protect(ctx context.Context, owner pg.Config, role string) error {
	pool, err := pg.Open(ctx, owner)
	if err != nil {
		return err
	}
	defer pool.Close()
	if role == "" {
		role = pool.Config().ConnConfig.User
	}
	return pg.InTx(ctx, pool, func(tx pgx.Tx) error {
		q := query.New(tx)
		// Replicas that start together would change the same privileges at the same moment, which PostgreSQL refuses.
		if err := q.LockProtection(ctx); err != nil {
			return pg.Classify(err, "lock the protection of the tables")
		}
		return pg.Classify(q.Protect(ctx, role), "protect the tables for role %s", role)
	})
}

// Deps is what a Store needs.
type Deps struct {
	Pool *pgxpool.Pool
	// Claim takes an event for a transaction; false when it was applied before.
	Claim func(ctx context.Context, tx pgx.Tx, e event.Event) (bool, error)
	// ClaimAll is Claim for several events, in their order.
	ClaimAll func(ctx context.Context, tx pgx.Tx, events []event.Event) ([]bool, error)
	// Applied reports which of several events were claimed before.
	Applied func(ctx context.Context, tx pgx.Tx, events []event.Event) ([]bool, error)
	// Installation are the policy sets that the operator has given.
	Installation []core.PolicySet
	// AgentsOf are the agents that the configuration of a driver names; none for a driver that is not installed.
	AgentsOf func(driver string, config json.RawMessage) ([]int64, error)
	// Publish adds events to the outbox of a transaction.
	Publish func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
}

// Store keeps the domain in PostgreSQL. Package view reads it as it is; the methods For… give the other packages of core what each has
// declared.
type Store struct {
	reader
	deps Deps
}

// New is a store over a pool whose search path is the domain's schema.
func New(d Deps) *Store {
	s := &Store{deps: d}
	s.reader = reading(s.view)
	return s
}

// controls is the number of the newest control that this release knows: 4 for freezes by label (migration 1540).
const controls = "4"

// in runs fn in one transaction of an organization; 0 enters none, and finds nothing but what belongs to nobody.
func (s *Store) in(ctx context.Context, organization int64, fn func(context.Context, *tx) error) error {
	return s.inOrganization(ctx, organization, func(t pgx.Tx, _ *query.Queries) error { return s.inside(ctx, t, organization, fn) })
}

// inside runs fn in a transaction that has entered an organization, up to the last statement.
func (s *Store) inside(ctx context.Context, t pgx.Tx, organization int64, fn func(context.Context, *tx) error) error {
	line := &pipeline{tx: t}
	q := query.New(line)
	inside := &tx{
		reader:        within(q, organization),
		Writes:        control.Writes{Q: q, Entered: organization, Installation: s.deps.Installation, AgentsOf: s.deps.AgentsOf},
		triggerWrites: triggerWrites{Q: q, Entered: organization}, notifyWrites: notifyWrites{Q: q, Entered: organization},
		credentialWrites: credentialWrites{Q: q, Entered: organization}, forgeWrites: forgeWrites{Q: q, Entered: organization},
		chatWrites: chatWrites{Q: q, Entered: organization}, feedWrites: feedWrites{Q: q, Entered: organization},
		pgx: t, line: line, q: q, organization: organization, traces: map[int64]string{}, deps: s.deps,
	}
	if err := fn(ctx, inside); err != nil {
		return err
	}
	return line.flush(ctx)
}

// view is how reads outside of a use case run. The organization is entered on the same journey as the first query: a page
// makes a score of reads, and each would wait for two journeys more. Where the request allows it, a standby is read.
func (s *Store) view(ctx context.Context, organization int64, fn func(*query.Queries) error) error {
	return pg.Read(ctx, s.deps.Pool, func(t pgx.Tx) error {
		return entered(ctx, t, organization, func(_ pgx.Tx, q *query.Queries) error { return fn(q) })
	})
}

func (s *Store) inOrganization(ctx context.Context, organization int64, fn func(pgx.Tx, *query.Queries) error) error {
	pg.Leave(ctx) // what is read beside a use case is as new as what that reads
	settings := map[string]string{"lockstep.organization": strconv.FormatInt(organization, 10), "lockstep.controls": controls}
	return pg.InTxWith(ctx, s.deps.Pool, settings, func(t pgx.Tx) error { return fn(t, query.New(t)) })
}

// entered runs fn in a transaction that enters an organization.
func entered(ctx context.Context, t pgx.Tx, organization int64, fn func(pgx.Tx, *query.Queries) error) error {
	q := query.New(t)
	// For this transaction only: the pooled connection forgets it at the end, so the next one begins outside again.
	if err := q.EnterOrganization(ctx, strconv.FormatInt(organization, 10), controls); err != nil {
		return pg.Classify(err, "enter organization %d", organization)
	}
	return fn(t, q)
}

// EnsureOrganization makes an organization of a given id, unless it exists, whatever its name has become.
func (s *Store) EnsureOrganization(ctx context.Context, id int64, name string) error {
	return s.inOrganization(ctx, id, func(_ pgx.Tx, q *query.Queries) error {
		if err := q.EnsureOrganization(ctx, id, name); err != nil {
			return pg.Classify(err, "ensure organization %d", id)
		}
		// The id was given by hand, so the table's own counter has not moved; it would give out the same one.
		return pg.Classify(q.AdvanceOrganizationIDs(ctx, id), "advance organization ids")
	})
}

// OrganizationsWithSources implements intake.Store.
func (s *Store) OrganizationsWithSources(ctx context.Context, matchKeys []string) (map[string][]int64, error) {
	rows, err := query.New(s.deps.Pool).OrganizationsWithSources(ctx, matchKeys)
	found := make(map[string][]int64, len(rows))
	for _, r := range rows {
		found[r.MatchKey] = append(found[r.MatchKey], r.OrganizationID)
	}
	return found, pg.Classify(err, "find organizations with sources of %d artifacts", len(matchKeys))
}

// SourcesAfter implements setup.Store.
func (s *Store) SourcesAfter(ctx context.Context, id int64, most int) ([]setup.PlacedSource, error) {
	rows, err := query.New(s.deps.Pool).SourcesAfter(ctx, id, int32(most))
	return convertAll(rows, func(r query.SourcesAfterRow) setup.PlacedSource {
		return setup.PlacedSource{
			ArtifactSource: core.ArtifactSource{ID: r.ID, Ref: r.SourceRef, Config: r.SourceConfig}, OrganizationID: r.OrganizationID,
		}
	}), pg.Classify(err, "read sources behind %d", id)
}

// OrganizationsWithDueSignals implements trigger.Store.
func (s *Store) OrganizationsWithDueSignals(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueSignals(ctx, at)
	return ids, pg.Classify(err, "find organizations with due triggers")
}

// OrganizationsWithDueHandoffs implements handoff.Store.
func (s *Store) OrganizationsWithDueHandoffs(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueHandoffs(ctx, at)
	return ids, pg.Classify(err, "find organizations with due hand-overs")
}

// OrganizationsWithDueNotifications implements notify.Store.
func (s *Store) OrganizationsWithDueNotifications(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueNotifications(ctx, at)
	return ids, pg.Classify(err, "find organizations with due notifications")
}

// NotificationBacklog is how many messages wait to be sent or are being sent, of all organizations, and for how long the oldest is due.
func (s *Store) NotificationBacklog(ctx context.Context) (waiting int64, oldest time.Duration, err error) {
	row, err := query.New(s.deps.Pool).NotificationBacklog(ctx)
	return row.Waiting, time.Duration(row.OldestSeconds * float64(time.Second)), pg.Classify(err, "count messages that wait")
}

// WarnOfCredentials implements notify.Store.
func (s *Store) WarnOfCredentials(ctx context.Context, at time.Time) error {
	return notify.WarnOfCredentials(ctx, query.New(s.deps.Pool), at)
}

// OrganizationsWithDueForge implements forge.Store.
func (s *Store) OrganizationsWithDueForge(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueForge(ctx, at)
	return ids, pg.Classify(err, "find organizations with due statuses of commits")
}

// forgeWrites has a name of its own, as triggerWrites has.
type forgeWrites = forge.Writes

// notifyWrites has a name of its own, as triggerWrites has.
type notifyWrites = notify.Writes

// credentialWrites has a name of its own, as triggerWrites has.
type credentialWrites = credential.Writes

// chatWrites has a name of its own, too.
type chatWrites = chat.Writes

// feedWrites has a name of its own, too.
type feedWrites = feed.Writes

// triggerWrites has a name of its own, since an embedded field is called like its type.
type triggerWrites = trigger.Writes

// tx is a transaction with the methods of every Tx that the packages of core declare.
type tx struct {
	reader
	control.Writes
	triggerWrites
	notifyWrites
	forgeWrites
	credentialWrites
	chatWrites
	feedWrites
	pgx  pgx.Tx
	line *pipeline
	q    *query.Queries
	// organization is the one that was entered; every statement names it.
	organization int64
	// traces are those of the rollouts that were locked.
	traces map[int64]string
	deps   Deps
}

// Together implements rollout.Tx.
func (t *tx) Together(ctx context.Context, reads ...func(context.Context) error) error {
	return t.line.together(ctx, reads...)
}

// Claim implements rollout.Tx.
func (t *tx) Claim(ctx context.Context, in core.Inbound) (bool, error) {
	e, ok := in.Envelope.(event.Event)
	if !ok {
		return false, errors.New("claim: the envelope is no event")
	}
	return t.deps.Claim(ctx, t.pgx, e)
}

// ClaimAll implements intake.Tx and rollout.Tx.
func (t *tx) ClaimAll(ctx context.Context, all []core.Inbound) ([]bool, error) {
	events, err := envelopes(all)
	if err != nil {
		return nil, err
	}
	return t.deps.ClaimAll(ctx, t.pgx, events)
}

// Applied implements intake.Tx.
func (t *tx) Applied(ctx context.Context, all []core.Inbound) ([]bool, error) {
	events, err := envelopes(all)
	if err != nil {
		return nil, err
	}
	return t.deps.Applied(ctx, t.pgx, events)
}

func envelopes(all []core.Inbound) ([]event.Event, error) {
	events := make([]event.Event, len(all))
	for i, in := range all {
		e, ok := in.Envelope.(event.Event)
		if !ok {
			return nil, errors.New("claim: the envelope is no event")
		}
		events[i] = e
	}
	return events, nil
}

// missing makes the absence of a row a NotFound that names it, and classes everything else.
func missing(err error, what string, id any) error {
	// What belongs to another organization is missing too: nobody learns that it exists.
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.Because(err, fault.NotFound, "%s %v does not exist", what, id)
	}
	return pg.Classify(err, "read %s %v", what, id)
}
