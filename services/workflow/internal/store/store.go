// Package store keeps executions, histories, events and waits in PostgreSQL. It implements core.Store; that interface's
// comments say where transactions begin and end.
//
// It is not where anything is decided: it knows no program and calls no Function.
package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations are the tables of this service, for pg.Migrate; the outbox's are not among them.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrations // the folder is embedded above, so this cannot be
	}
	return sub
}

// Settings are parameters of PostgreSQL for the connections of a Store. All of its statements find rows one by one, by an
// index. The planner thinks otherwise while a table is short or its statistics are old, and keeps a plan long after: one
// that reads a whole table or index makes every commit as dear as there are workflows. What has to read a whole table all the
// same is thought to cost so much then that it would be compiled first. As there is one way to do each, each is planned once
// for a connection: for few rows PostgreSQL would take a plan made for these very rows to be worth its making, every time.
func Settings() map[string]string {
	return map[string]string{
		"enable_seqscan": "off", "enable_indexonlyscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off",
		"jit": "off", "plan_cache_mode": "force_generic_plan",
	}
}

// Deps are what a Store works with.
type Deps struct {
	Pool *pgxpool.Pool
	// Encode makes the wire form of what is emitted in a trace (W3C form; "" for none).
	Encode func(e core.Emit, trace string) (event.Sealed, error)
	// Add puts events into the outbox of the transaction.
	Add func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
	// AddNew is Add for events that have not been there, as nearly all: for one that was, the transaction fails (outbox.AddNew).
	AddNew func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
	// ClaimEvent says whether an event from another service's outbox is seen for the first time; nil if none come.
	ClaimEvent func(ctx context.Context, tx pgx.Tx, e event.Event) (bool, error)
	// Committed is called after events were put into the outbox.
	Committed func()
	// Met is called after an event was stored that has met a flow's handler; nil: nobody is to be told.
	Met func()
	// Woken is called after an execution was given something to go on with, or was ended by somebody else; nil: nobody
	// is to be told, and finds out by looking.
	Woken func(core.Woken)
	// Generations is core.Settings.Generations.
	Generations int
	Clock       clock.Clock
	Log         *slog.Logger
}

// Store implements core.Store.
type Store struct {
	Deps
	queries *query.Queries
	// starts, begins and turns gather what is to be committed. They are several because a start touches no row of others: the
	// transactions overlap, and never wait for each other's rows.
	starts group[start]
	begins group[beginning]
	turns  group[work]
	// loads and looks gather what is to be read.
	loads group[load]
	looks group[look]
	// lease is what Acquire got: the owner of what this process wakes.
	lease    atomic.Pointer[core.Lease]
	programs digests
	sources  sources
	shapes   shapes
	awaited  awaitedTypes
	filters  filters
}

var _ core.Store = (*Store)(nil)

// New makes a Store over a pool whose schema has been migrated.
func New(d Deps) *Store {
	if d.Met == nil {
		d.Met = func() {}
	}
	s := &Store{Deps: d, queries: query.New(d.Pool)}
	s.starts.commit, s.begins.commit, s.turns.commit = s.createAll, s.beginAll, s.commitAll
	s.starts.tenant = func(n *start) int64 { return n.Organization }
	s.begins.tenant = func(b *beginning) int64 { return b.Organization }
	s.turns.tenant = (*work).organization
	shared := new(company)
	s.starts.company, s.begins.company, s.turns.company = shared, shared, shared
	s.loads = group[load]{commit: s.loadAll, most: readMost, lanes: readLanes}
	s.looks = group[look]{commit: s.lookAll, most: readMost, lanes: readLanes}
	return s
}

// tx runs fn in a transaction. It may run fn several times (pg.InTx): fn first resets whatever it assigns outside.
func (s *Store) tx(ctx context.Context, fn func(pgx.Tx, *query.Queries) error) error {
	return pg.InTx(ctx, s.Pool, func(tx pgx.Tx) error { return fn(tx, s.queries.WithTx(tx)) })
}

// pipelined is tx for the transactions that everybody waits for (pg.InPipeline): statements that answer nothing travel with
// the next one that does.
func (s *Store) pipelined(ctx context.Context, fn func(pgx.Tx, *query.Queries) error) error {
	return pg.InPipeline(ctx, s.Pool, func(tx pgx.Tx) error { return fn(tx, s.queries.WithTx(tx)) })
}

// Get finds an execution.
func (s *Store) Get(ctx context.Context, organization int64, workflow string) (core.Execution, error) {
	row, err := s.queries.FindExecution(ctx, query.FindExecutionParams{Organization: organization, Workflow: workflow})
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Execution{}, fault.New(fault.NotFound, "there is no workflow %q in organization %d", workflow, organization)
	}
	if err != nil {
		return core.Execution{}, pg.Classify(err, "find workflow %q", workflow)
	}
	return execution(row)
}

// execution is a row as core knows it.
func execution(row query.FindExecutionRow) (core.Execution, error) {
	e := core.Execution{
		ID: row.ID, Ref: row.Ref, Organization: row.Organization, Workflow: row.Workflow,
		State: core.State(row.State), Error: row.Error, Program: core.Hex(digest(row.Program)), CreatedAt: row.CreatedAt,
		LastSeq: row.LastSeq, UpdatedAt: row.UpdatedAt, Attempt: int(row.Attempt),
		Generation: int(row.Generation), Base: row.BaseSeq,
	}
	if row.EndedAt != nil {
		e.EndedAt = *row.EndedAt
	}
	if err := json.Unmarshal(row.Labels, &e.Labels); err != nil {
		return core.Execution{}, fmt.Errorf("labels of workflow %q: %w", row.Workflow, err)
	}
	return e, nil
}

// Waiting reads what the execution has open.
func (s *Store) Waiting(ctx context.Context, execution int64) ([]core.Waiting, error) {
	rows, err := s.queries.Waiting(ctx, execution)
	if err != nil {
		return nil, pg.Classify(err, "read what execution %d waits for", execution)
	}
	waiting := make([]core.Waiting, len(rows))
	for i, row := range rows {
		w := core.Waiting{Op: ref(row.Branch, row.Op), Kind: core.KindSleep, Since: row.OpenedAt, Due: row.Due}
		// What has neither a call nor a wait beside its timer is a sleep.
		switch {
		case row.Function != nil:
			w.Kind, w.Name = core.KindRun, *row.Function
			w.Location, w.Agent, w.Attempt = core.Location(*row.Location), *row.Agent, int(*row.Attempt)
		case len(row.Types) > 0:
			w.Kind, w.Types = core.KindWait, row.Types
			if row.Types[0] == core.TypeMessage {
				w.Kind, w.Types = core.KindReceive, nil
				break // its filter is the token, which is not for everybody who may look at the run
			}
			if err := json.Unmarshal([]byte(row.Filter), &w.Filter); err != nil {
				return nil, fmt.Errorf("filter of a wait of execution %d: %w", execution, err)
			}
		}
		if row.Polled != nil { // in a round it has a call, too
			w.Kind, w.Name, w.Round, w.Due = core.KindPoll, *row.Polled, int(*row.Round), *row.Deadline
		}
		waiting[i] = w
	}
	held, err := s.queries.HeldBack(ctx, query.HeldBackParams{Execution: execution, Now: s.Clock.Now()})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, pg.Classify(err, "read until when execution %d is held back", execution)
	default:
		waiting = append(waiting, core.Waiting{Kind: core.KindContinue, Since: held.BeganAt, Due: held.HeldUntil})
	}
	return waiting, nil
}

// History reads a page of a history, over all generations that are kept.
func (s *Store) History(ctx context.Context, execution, after int64, limit int) ([]core.Entry, error) {
	entries, err := s.entries(ctx, execution, after, limit)
	if err != nil {
		return nil, err
	}
	return entries, s.generations(ctx, execution, entries)
}

// entries reads a page of a history without saying of which generations it is.
func (s *Store) entries(ctx context.Context, execution, after int64, limit int) ([]core.Entry, error) {
	rows, err := s.queries.History(ctx, query.HistoryParams{Execution: execution, Seq: after, Limit: int32(limit)})
	if err != nil {
		return nil, pg.Classify(err, "read history of execution %d", execution)
	}
	entries := make([]core.Entry, len(rows))
	for i, row := range rows {
		if entries[i], err = entry(row); err != nil {
			return nil, &undecodable{err}
		}
	}
	return entries, nil
}

// undecodable is a row that was read and says nothing: no process makes more of it by reading it again, as it may of one that could not be read.
type undecodable struct{ error }

// Unwrap is what is wrong with it.
func (u *undecodable) Unwrap() error { return u.error }

// entry is a row as core knows it.
func entry(row query.Entry) (core.Entry, error) {
	e := core.Entry{
		Seq: row.Seq, Op: ref(row.Branch, row.Op), Kind: core.Kind(row.Kind), Name: row.Name,
		Hash: uint64(row.Hash), Value: row.Value, At: row.RecordedAt,
	}
	if row.Event != nil {
		e.Event = *row.Event
	}
	var err error
	if e.Error, err = decodeError(row.Error); err != nil {
		return e, fmt.Errorf("entry %d of execution %d: %w", row.Seq, row.Execution, err)
	}
	return e, nil
}

// Acquire takes over the instance's name.
func (s *Store) Acquire(ctx context.Context, instance string, now time.Time, length time.Duration) (int64, error) {
	epoch, err := s.queries.AcquireLease(ctx, query.AcquireLeaseParams{Instance: instance, Until: now.Add(length)})
	if err != nil {
		return 0, pg.Classify(err, "acquire lease of %q", instance)
	}
	s.lease.Store(&core.Lease{Instance: instance, Epoch: epoch})
	return epoch, nil
}

// Due is one statement, which changes nothing where the lease is not extended.
func (s *Store) Due(ctx context.Context, r core.Round) (core.Due, error) {
	p := query.DueParams{Instance: r.Lease.Instance, Epoch: r.Lease.Epoch, Now: r.Now, Soon: r.Soon, Here: notNull(r.Here)}
	if !r.Until.IsZero() {
		p.Until = &r.Until
	}
	row, err := s.queries.Due(ctx, p)
	if err != nil {
		return core.Due{}, pg.Classify(err, "look for work of %q", r.Lease.Instance)
	}
	if !row.Ours {
		return core.Due{}, fmt.Errorf("lease of %q: %w", r.Lease.Instance, core.ErrFenced)
	}
	return core.Due{Executions: row.Executions, Timers: row.Timers, Calls: row.Calls, Flows: row.Flows}, nil
}

// notNull is a list as a parameter: none would be NULL, and a comparison with that is true of no row.
func notNull(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}

// Claim takes executions that can go on.
func (s *Store) Claim(ctx context.Context, c core.Claim) ([]core.Claimed, error) {
	rows, err := s.queries.Claim(ctx, query.ClaimParams{
		Instance: c.Lease.Instance, Epoch: c.Lease.Epoch, Now: c.Now, Here: notNull(c.Here), Most: int32(c.Limit),
		Suspected: c.Suspected, Suspicious: int32(c.Suspicious),
	})
	if err != nil {
		return nil, pg.Classify(err, "claim executions")
	}
	claimed := make([]core.Claimed, len(rows))
	for i, row := range rows {
		claimed[i] = core.Claimed{
			Woken:        core.Woken{ID: row.ID, Turn: row.Turn, Organization: row.Organization, Ours: true},
			Organization: row.Organization, Workflow: row.Workflow, Crashes: int(row.Crashes),
		}
	}
	return claimed, nil
}

// Absolve forgets the crashes of an execution that the process has had in hand for long.
func (s *Store) Absolve(ctx context.Context, l core.Lease, execution int64) error {
	return pg.Classify(s.queries.Absolve(ctx, query.AbsolveParams{ID: execution, Owner: &l.Instance, OwnerEpoch: &l.Epoch}), "absolve execution %d", execution)
}

// Exonerate is one statement, which finds nothing where the process before has ended in order or had a suspect in hand.
func (s *Store) Exonerate(ctx context.Context, l core.Lease, suspicious int, now time.Time) error {
	p := query.ExonerateParams{Suspicious: int32(suspicious), Now: now, Instance: l.Instance, Epoch: l.Epoch}
	return pg.Classify(s.queries.Exonerate(ctx, p), "exonerate suspects after a death of %q", l.Instance)
}

// Try notes which suspect the process has in hand.
func (s *Store) Try(ctx context.Context, l core.Lease, execution int64) error {
	p := query.TryExecutionParams{Instance: l.Instance, Epoch: l.Epoch}
	if execution != 0 {
		p.Execution = &execution
	}
	return pg.Classify(s.queries.TryExecution(ctx, p), "note that execution %d is tried", execution)
}

// Release gives up what the process has in hand: others may claim it at once.
func (s *Store) Release(ctx context.Context, l core.Lease) error {
	if err := s.queries.Release(ctx, query.ReleaseParams{Owner: &l.Instance, OwnerEpoch: &l.Epoch}); err != nil {
		return pg.Classify(err, "release the executions of %q", l.Instance)
	}
	return pg.Classify(s.queries.EndLease(ctx, query.EndLeaseParams{Instance: l.Instance, Epoch: l.Epoch}), "end the lease of %q", l.Instance)
}

// ref is an operation as two columns name it.
func ref(branch, op int32) core.OpRef { return core.OpRef{Branch: int(branch), Index: int(op)} }

// digest is a column of 32 bytes.
func digest(b []byte) (d [32]byte) {
	copy(d[:], b)
	return d
}

// decodeError and encodeError are the columns error of entries and deliveries; NULL is success.
func decodeError(data []byte) (*core.FunctionError, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // most results are no errors
	}
	e := new(core.FunctionError)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("decode error: %w", err)
	}
	return e, nil
}

func encodeError(e *core.FunctionError) ([]byte, error) {
	if e == nil {
		return nil, nil
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode error: %w", err)
	}
	return b, nil
}
