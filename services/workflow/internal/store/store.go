package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/payloads"
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
// index. While a table is short or its statistics are old, the planner prefers to read whole tables and indexes, and keeps such a
// plan: every commit would then cost as much as there are workflows. So scans and joins of whole tables are disabled. JIT is disabled
// because a sequential scan that is needed all the same gets a huge cost, which would trigger it. Generic plans are forced because
// every statement has one sensible plan, and PostgreSQL would otherwise plan anew for each execution.
func Settings() map[string]string {
	return map[string]string{
		"enable_seqscan": "off", "enable_indexonlyscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off",
		"jit": "off", "plan_cache_mode": "force_generic_plan",
	}
}

// Deps are what a Store works with.
type Deps struct {
	Pool *pgxpool.Pool
	// Encode makes the wire form of an emitted event, in a trace (W3C form; "" for none).
	Encode func(e history.Emit, trace string) (event.Sealed, error)
	// Add puts events into the outbox of the transaction.
	Add func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
	// AddNew is Add for new events, as nearly all are: an event that was added before is an error (outbox.AddNew).
	AddNew func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
	// ClaimEvent reports whether an event from another service's outbox is received for the first time; nil if there are no such events.
	ClaimEvent func(ctx context.Context, tx pgx.Tx, e event.Event) (bool, error)
	// Committed is called after events were put into the outbox.
	Committed func()
	// Tally is called with the number of runs of an organization that have begun, or have ended if it is negative; may be nil.
	Tally func(organization, runs int64)
	// Met is called after an event was stored that starts a run of a flow; may be nil.
	Met func()
	// Woken is called after an execution has been woken, or has been ended from outside. It may be nil: executions that can continue are also
	// polled.
	Woken func(engine.Woken)
	// Generations is engine.Settings.Generations.
	Generations int
	// Large is the size in bytes above which values are stored by digest; 0 is payloads.Threshold. Tests lower it.
	Large int
	Clock clock.Clock
	Log   *slog.Logger
}

// Store implements engine.Store.
type Store struct {
	Deps
	queries *query.Queries
	// starts, begins and commits gather what is to be committed. They are several because a start touches no row of others: the
	// transactions overlap, and never wait for each other's rows.
	starts  group[start]
	begins  group[item]
	commits group[item]
	// loads and looks gather reads.
	loads  group[load]
	looks  group[look]
	owning owning
	// installation is known once it was read.
	installation atomic.Pointer[string]
	// byDigest is set if large values are stored by digest: every live process can read them.
	byDigest atomic.Bool
	programs digests
	sources  sources
	shapes   shapes
	filters  knownFilters
}

var (
	_ engine.Store    = (*Store)(nil)
	_ control.Store   = (*Store)(nil)
	_ agent.CallStore = (*Store)(nil)
)

// New makes a Store over a pool whose schema has been migrated.
func New(d Deps) *Store {
	if d.Met == nil {
		d.Met = func() {}
	}
	if d.Tally == nil {
		d.Tally = func(int64, int64) {}
	}
	if d.Large == 0 {
		d.Large = payloads.Threshold
	}
	s := &Store{Deps: d, queries: query.New(d.Pool)}
	s.starts.commit, s.begins.commit, s.commits.commit = s.createAll, s.beginAll, s.commitAll
	s.starts.tenant = func(n *start) int64 { return n.Organization }
	s.begins.tenant, s.commits.tenant = (*item).organization, (*item).organization
	shared := new(tenants)
	s.starts.tenants, s.begins.tenants, s.commits.tenants = shared, shared, shared
	s.loads = group[load]{commit: s.loadAll, most: readMost, lanes: readLanes}
	s.looks = group[look]{commit: s.lookAll, most: readMost, lanes: readLanes}
	return s
}

// owning is the lease in whose name transactions make this process the owner of executions: from Acquire until Release, which waits for
// those under way. What is committed afterwards has no owner, and any process may claim it at once.
type owning struct {
	mu       sync.Mutex
	lease    *engine.Lease
	released bool
	// underWay are the transactions that began before the release; over is closed at the end of the last one.
	underWay int
	over     chan struct{}
}

// enter begins a transaction. Its result is for leave.
func (o *owning) enter() (counted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.released {
		o.underWay++
	}
	return !o.released
}

func (o *owning) leave(counted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !counted {
		return
	}
	if o.underWay--; o.underWay == 0 && o.over != nil {
		close(o.over)
		o.over = nil
	}
}

func (o *owning) acquire(l engine.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lease, o.released = &l, false
}

// release waits for the transactions under way, or until ctx ends.
func (o *owning) release(ctx context.Context) {
	o.mu.Lock()
	o.lease, o.released = nil, true
	if o.underWay == 0 {
		o.mu.Unlock()
		return
	}
	over := make(chan struct{})
	o.over = over
	o.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// ofWoken is the owner of executions that are woken; nil for none.
func (o *owning) ofWoken() (instance *string, epoch *int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil {
		return nil, nil
	}
	return &o.lease.Instance, &o.lease.Epoch
}

// ofStart is the owner of a start that wants one; empty for none.
func (o *owning) ofStart(wanted *engine.Lease) (instance string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if wanted == nil || o.released {
		return "", 0
	}
	return wanted.Instance, wanted.Epoch
}

// tx runs fn in a transaction. It may run fn several times (pg.InTx), so fn first resets what it assigns outside.
func (s *Store) tx(ctx context.Context, fn func(pgx.Tx, *query.Queries) error) error {
	defer s.owning.leave(s.owning.enter())
	return pg.InTx(ctx, s.Pool, func(tx pgx.Tx) error { return fn(tx, s.queries.WithTx(tx)) })
}

// pipelined is tx for the transactions that many callers wait for (pg.InPipeline): statements without a result are sent with
// the next one that has one.
func (s *Store) pipelined(ctx context.Context, fn func(pgx.Tx, *query.Queries) error) error {
	defer s.owning.leave(s.owning.enter())
	run := func() error {
		return pg.InPipeline(ctx, s.Pool, func(tx pgx.Tx) error { return fn(tx, s.queries.WithTx(tx)) })
	}
	err := run()
	if payloads.Swept(err) {
		err = run()
	}
	return err
}

// hastily is pipelined for what a crash of the database may lose: its commit does not wait for the disk.
func (s *Store) hastily(ctx context.Context, fn func(pgx.Tx, *query.Queries) error) error {
	return s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) error {
		if err := q.Hasten(ctx); err != nil {
			return pg.Classify(err, "begin")
		}
		return fn(tx, q)
	})
}

// Get finds an execution.
func (s *Store) Get(ctx context.Context, organization int64, workflow string) (execution.Execution, error) {
	row, err := s.queries.FindExecution(ctx, query.FindExecutionParams{Organization: organization, Workflow: workflow})
	if errors.Is(err, pgx.ErrNoRows) {
		return execution.Execution{}, fault.New(fault.NotFound, "there is no workflow %q in organization %d", workflow, organization)
	}
	if err != nil {
		return execution.Execution{}, pg.Classify(err, "find workflow %q", workflow)
	}
	return executionOf(row)
}

// executionOf decodes a row.
func executionOf(row query.FindExecutionRow) (execution.Execution, error) {
	e := execution.Execution{
		ID: row.ID, Ref: row.Ref, Organization: row.Organization, Workflow: row.Workflow,
		State: execution.Named(row.State), Error: row.Error, Program: program.Hex(digest(row.Program)), CreatedAt: row.CreatedAt,
		LastSeq: row.LastSeq, UpdatedAt: row.UpdatedAt, Attempt: int(row.Attempt),
		Generation: int(row.Generation), Base: row.BaseSeq,
	}
	if row.EndedAt != nil {
		e.EndedAt = *row.EndedAt
	}
	if err := json.Unmarshal(row.Labels, &e.Labels); err != nil {
		return execution.Execution{}, fmt.Errorf("labels of workflow %q: %w", row.Workflow, err)
	}
	return e, nil
}

// common is what all filters of an array have.
func common(array string) (history.Filter, error) {
	var filters []history.Filter
	if err := json.Unmarshal([]byte(array), &filters); err != nil {
		return nil, fmt.Errorf("read the filters of a wait: %w", err)
	}
	if len(filters) == 0 {
		return nil, nil
	}
	shared := filters[0]
	for _, other := range filters[1:] {
		maps.DeleteFunc(shared, func(path, value string) bool {
			found, has := other[path]
			return !has || found != value
		})
	}
	return shared, nil
}

// Waiting reads the open operations of an execution.
func (s *Store) Waiting(ctx context.Context, execution int64) ([]control.Waiting, error) {
	rows, err := s.queries.Waiting(ctx, execution)
	if err != nil {
		return nil, pg.Classify(err, "read what execution %d waits for", execution)
	}
	waiting := make([]control.Waiting, len(rows))
	for i, row := range rows {
		w := control.Waiting{Op: ref(row.Branch, row.Op), Kind: history.KindSleep, Since: row.OpenedAt, Due: row.Due}
		// A timer without a call or a wait is a sleep.
		switch {
		case row.Function != nil:
			w.Kind, w.Name = history.KindRun, *row.Function
			w.Location, w.Agent, w.Attempt = activity.Location(*row.Location), *row.Agent, int(*row.Attempt)
			w.Tries = decodeTries([]byte(row.Tries))
		case len(row.Types) > 0:
			w.Kind, w.Types = history.KindWait, row.Types
			if row.Types[0] == history.TypeMessage {
				w.Kind, w.Types = history.KindReceive, nil
				break // its filter is the token, which not everyone may know who may read the run
			}
			if w.Filter, err = common(row.Filters); err != nil {
				return nil, fmt.Errorf("filters of a wait of execution %d: %w", execution, err)
			}
		}
		if row.Polled != nil { // during a round it has a call, too
			w.Kind, w.Name, w.Round, w.Due = history.KindPoll, *row.Polled, int(*row.Round), *row.Deadline
		}
		waiting[i] = w
	}
	held, err := s.queries.HeldBack(ctx, query.HeldBackParams{Execution: execution, Now: s.Clock.Now()})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, pg.Classify(err, "read until when execution %d is held back", execution)
	default:
		waiting = append(waiting, control.Waiting{Kind: history.KindContinue, Since: held.BeganAt, Due: held.HeldUntil})
	}
	return waiting, nil
}

// History reads a page of a history, over all generations that are kept.
func (s *Store) History(ctx context.Context, execution, after int64, limit int) ([]history.Entry, error) {
	entries, err := s.entries(ctx, execution, after, limit)
	if err != nil {
		return nil, err
	}
	return entries, s.generations(ctx, execution, entries)
}

// entries reads a page of a history, without the generations of its entries.
func (s *Store) entries(ctx context.Context, execution, after int64, limit int) ([]history.Entry, error) {
	rows, err := s.queries.History(ctx, query.HistoryParams{Execution: execution, Seq: after, Limit: int32(limit)})
	if err != nil {
		return nil, pg.Classify(err, "read history of execution %d", execution)
	}
	entries := make([]history.Entry, len(rows))
	for i, row := range rows {
		if entries[i], err = entry(row); err != nil {
			return nil, &undecodable{err}
		}
	}
	return entries, s.wholeEntries(ctx, entries)
}

// wholeEntries completes the values of entries that are not stored in their rows.
func (s *Store) wholeEntries(ctx context.Context, entries []history.Entry) error {
	var large payloads.Columns
	var missing error
	for i := range entries {
		if e := &entries[i]; !asIs(e.Kind) {
			large.Add(e.Value, func(whole []byte) { e.Value = whole }, func(err error) {
				missing = &undecodable{fmt.Errorf("entry %d: %w", e.Seq, err)}
			})
		}
	}
	if err := large.Read(ctx, s.queries); err != nil {
		return err
	}
	return missing
}

// whole completes the value of a column.
func (s *Store) whole(ctx context.Context, value *[]byte) error {
	var large payloads.Columns
	var missing error
	large.Add(*value, func(whole []byte) { *value = whole }, func(err error) { missing = err })
	if err := large.Read(ctx, s.queries); err != nil {
		return err
	}
	return missing
}

// undecodable is the error for a row that was read and cannot be decoded: unlike a failed read, it does not help to retry.
type undecodable struct{ error }

// Unwrap returns the decoding error.
func (u *undecodable) Unwrap() error { return u.error }

// entry decodes a row.
func entry(row query.Entry) (history.Entry, error) {
	e := history.Entry{
		Seq: row.Seq, Op: ref(row.Branch, row.Op), Kind: history.Kind(row.Kind), Name: row.Name,
		Hash: uint64(row.Hash), Value: row.Value, At: row.RecordedAt, Tries: decodeTries(row.Tries),
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

// Acquire takes over the lease of the instance's name.
func (s *Store) Acquire(ctx context.Context, instance string, now time.Time, length time.Duration) (int64, error) {
	row, err := s.queries.AcquireLease(ctx, query.AcquireLeaseParams{Instance: instance, Until: now.Add(length), Now: now})
	if err != nil {
		return 0, pg.Classify(err, "acquire lease of %q", instance)
	}
	s.owning.acquire(engine.Lease{Instance: instance, Epoch: row.Epoch})
	s.byDigest.Store(!row.Older)
	return row.Epoch, nil
}

// Due is one statement. It writes nothing unless it extends the lease.
func (s *Store) Due(ctx context.Context, r engine.Round) (engine.Due, error) {
	p := query.DueParams{Instance: r.Lease.Instance, Epoch: r.Lease.Epoch, Now: r.Now, Soon: r.Soon, Here: notNull(r.Here)}
	if !r.Until.IsZero() {
		p.Until = &r.Until
	}
	row, err := s.queries.Due(ctx, p)
	if err != nil {
		return engine.Due{}, pg.Classify(err, "look for work of %q", r.Lease.Instance)
	}
	if !row.Ours {
		return engine.Due{}, fmt.Errorf("lease of %q: %w", r.Lease.Instance, engine.ErrFenced)
	}
	s.byDigest.Store(!row.Older)
	return engine.Due{Executions: row.Executions, Timers: row.Timers, Calls: row.Calls, Flows: row.Flows, Orphans: row.Orphans}, nil
}

// notNull is a list as a parameter: nil would be NULL, and a comparison with that is true for no row.
func notNull(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}

// Claim takes ownership of executions that can continue.
func (s *Store) Claim(ctx context.Context, c engine.Claim) ([]engine.Claimed, error) {
	rows, err := s.queries.Claim(ctx, query.ClaimParams{
		Instance: c.Lease.Instance, Epoch: c.Lease.Epoch, Now: c.Now, Here: notNull(c.Here), Most: int32(c.Limit),
		Suspected: c.Suspected, Suspicious: int32(c.Suspicious),
	})
	if err != nil {
		return nil, pg.Classify(err, "claim executions")
	}
	claimed := make([]engine.Claimed, len(rows))
	for i, row := range rows {
		claimed[i] = engine.Claimed{
			Woken:        engine.Woken{ID: row.ID, Turn: row.Turn, Organization: row.Organization, Ours: true},
			Organization: row.Organization, Workflow: row.Workflow, Crashes: int(row.Crashes),
		}
	}
	return claimed, nil
}

// Hold is one statement for all.
func (s *Store) Hold(ctx context.Context, l engine.Lease, holdings []engine.Holding) ([]engine.Holding, error) {
	p := query.HoldParams{Instance: l.Instance, Epoch: l.Epoch}
	untils := make(map[int64]engine.Holding, len(holdings))
	for _, h := range holdings {
		untils[h.Execution] = h
		until := h.Until
		if until.IsZero() {
			until = time.Unix(0, 0)
		}
		p.Executions, p.Untils = append(p.Executions, h.Execution), append(p.Untils, until)
	}
	held, err := s.queries.Hold(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "hold %d executions", len(holdings))
	}
	done := make([]engine.Holding, len(held))
	for i, execution := range held {
		done[i] = untils[execution]
	}
	return done, nil
}

// Absolve resets the crashes of an execution that the process has owned for long.
func (s *Store) Absolve(ctx context.Context, l engine.Lease, execution int64) error {
	p := query.AbsolveParams{ID: execution, Owner: &l.Instance, OwnerEpoch: &l.Epoch}
	return pg.Classify(s.queries.Absolve(ctx, p), "absolve execution %d", execution)
}

// Exonerate is one statement. It is a no-op if the previous process shut down cleanly or owned a suspect when it died.
func (s *Store) Exonerate(ctx context.Context, l engine.Lease, suspicious int, now time.Time) error {
	p := query.ExonerateParams{Suspicious: int32(suspicious), Now: now, Instance: l.Instance, Epoch: l.Epoch}
	return pg.Classify(s.queries.Exonerate(ctx, p), "exonerate suspects after a death of %q", l.Instance)
}

// Try records which suspect the process is about to run.
func (s *Store) Try(ctx context.Context, l engine.Lease, execution int64) error {
	p := query.TryExecutionParams{Instance: l.Instance, Epoch: l.Epoch}
	if execution != 0 {
		p.Execution = &execution
	}
	return pg.Classify(s.queries.TryExecution(ctx, p), "note that execution %d is tried", execution)
}

// waitsAtMost is how long Release waits for transactions under way. It leaves time to release what is known.
const waitsAtMost = time.Second

// Release gives up everything that the process owns: others may claim it immediately. Other parts of the process may still wake and start
// executions; those get no owner.
func (s *Store) Release(ctx context.Context, l engine.Lease) error {
	wait, cancel := context.WithTimeout(ctx, waitsAtMost)
	defer cancel()
	s.owning.release(wait)
	if err := s.queries.Release(ctx, query.ReleaseParams{Owner: &l.Instance, OwnerEpoch: &l.Epoch}); err != nil {
		return pg.Classify(err, "release the executions of %q", l.Instance)
	}
	return pg.Classify(s.queries.EndLease(ctx, query.EndLeaseParams{Instance: l.Instance, Epoch: l.Epoch}), "end the lease of %q", l.Instance)
}

// ref is an operation, from its two columns.
func ref(branch, op int32) history.OpRef { return history.OpRef{Branch: int(branch), Index: int(op)} }

// digest is a digest, from its column.
func digest(b []byte) (d [32]byte) {
	copy(d[:], b)
	return d
}

// decodeError and encodeError convert the columns error of entries and deliveries; NULL is success.
func decodeError(data []byte) (*history.FunctionError, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // most results are no errors
	}
	e := new(history.FunctionError)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("decode error: %w", err)
	}
	return e, nil
}

func encodeError(e *history.FunctionError) ([]byte, error) {
	if e == nil {
		return nil, nil
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode error: %w", err)
	}
	return b, nil
}
