package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ worker.Store = (*Store)(nil)

// TakeOffers implements worker.Store. It does not wait for the disk: where a crash of the database loses who has a call, the call is
// offered again, as after the loss of its worker, whose answer is refused.
func (s *Store) TakeOffers(ctx context.Context, t worker.Taking) ([]worker.Call, error) {
	var rows []query.TakeOffersRow
	err := s.hastily(ctx, func(tx pgx.Tx, q *query.Queries) (err error) {
		pg.Last(tx)
		rows, err = q.TakeOffers(ctx, query.TakeOffersParams{
			Session: t.Session, Until: &t.Until, Organization: t.Organization, Functions: t.Functions, Now: &t.Now, Most: int32(t.Most),
		})
		return pg.Classify(err, "take calls for a worker")
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b query.TakeOffersRow) int { return strings.Compare(a.ID, b.ID) })
	calls := make([]worker.Call, len(rows))
	for i, row := range rows {
		calls[i] = worker.Call{
			ID: row.ID, Execution: row.Execution, Organization: t.Organization, Workflow: row.Workflow, Function: row.Function, Args: row.Args,
			Attempt:  int(row.Attempt),
			Deadline: row.Deadline, Trace: row.Trace,
		}
	}
	return calls, nil
}

// SecretsOf implements worker.Store.
func (s *Store) SecretsOf(ctx context.Context, execution int64) (secrets map[string]string, err error) {
	encoded, err := s.queries.SecretsOf(ctx, execution)
	if err != nil {
		return nil, pg.Classify(err, "read the secrets of execution %d", execution)
	}
	if err := json.Unmarshal(encoded, &secrets); err != nil {
		return nil, fmt.Errorf("the secrets of execution %d: %w", execution, err)
	}
	return secrets, nil
}

// ExtendOffers implements worker.Store.
func (s *Store) ExtendOffers(ctx context.Context, session string, ids []string, until time.Time) ([]string, error) {
	kept, err := s.queries.ExtendOffers(ctx, query.ExtendOffersParams{Until: &until, Ids: ids, Session: session})
	if err != nil {
		return nil, pg.Classify(err, "extend calls of a worker")
	}
	missing := except(ids, kept)
	if len(missing) == 0 {
		return nil, nil
	}
	held, err := s.queries.HeldOffers(ctx, query.HeldOffersParams{Ids: missing, Session: session})
	return except(missing, held), pg.Classify(err, "read calls of a worker")
}

func except(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// ReleaseOffers implements worker.Store.
func (s *Store) ReleaseOffers(ctx context.Context, session string, ids []string, now time.Time) error {
	_, err := s.queries.ReleaseOffers(ctx, query.ReleaseOffersParams{Now: &now, Ids: ids, Session: session})
	return pg.Classify(err, "release calls of a worker")
}

// AnswerOffer implements worker.Store.
func (s *Store) AnswerOffer(ctx context.Context, a worker.Answer) (accepted bool, err error) {
	var woken []engine.Woken
	err = s.pipelined(ctx, func(tx pgx.Tx, q *query.Queries) (err error) {
		woken = nil
		// An execution is locked before the rows that belong to it. From then on only TakeOffers could give the call to another worker, which
		// takes what is due, and a call that is answered is no longer offered.
		if err := q.LockExecution(ctx, a.Execution); err != nil {
			return pg.Classify(err, "lock execution %d", a.Execution)
		}
		if a.Error != nil && a.Error.Retryable {
			var again bool
			if accepted, again, err = s.postpone(ctx, q, a); err != nil || again || !accepted {
				return err
			}
		}
		woken, accepted, err = s.deliver(ctx, tx, q, agent.Answer{Call: a.Call, Value: a.Value, Error: a.Error}, &a.Session)
		return err
	})
	if err == nil {
		s.wake(woken)
	}
	return accepted, err
}

// postpone offers a call again later, after an error that may be tried again; again is false if the program gets the error.
func (s *Store) postpone(ctx context.Context, q *query.Queries, a worker.Answer) (accepted, again bool, err error) {
	call, err := q.FindCall(ctx, a.Call)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && call.Holder != a.Session {
		return false, false, nil
	}
	if err != nil || call.NoRetry {
		return true, false, pg.Classify(err, "find call %q", a.Call)
	}
	policy := new(history.RetryPolicy)
	if call.Retry != nil {
		if policy, err = decodeRetry(call.Retry); err != nil {
			return true, false, fmt.Errorf("call %q: %w", a.Call, err)
		}
	}
	pause, again := policy.Pause(int(call.Refused)+1, a.Error.Code)
	now := s.Clock.Now()
	at := now.Add(max(pause, a.Error.After))
	// If no time is left for another attempt, the program gets this error and not a timeout.
	if !again || !at.Before(call.Deadline) {
		return true, false, nil
	}
	tries, err := triedAgain(call, a.Began, now, at, a.Error)
	if err != nil {
		return true, false, err
	}
	p := query.PostponeOfferParams{ID: a.Call, OfferAt: &at, Tries: tries}
	return true, true, pg.Classify(q.PostponeOffer(ctx, p), "postpone call %q", a.Call)
}

// SaveDeclarations implements worker.Store.
func (s *Store) SaveDeclarations(ctx context.Context, r worker.Registration) error {
	p := query.SaveWorkerFunctionsParams{
		Organization: r.Organization, Now: r.Now,
		Principal: r.By.Principal, Worker: r.By.Worker, Version: r.By.Version,
	}
	for _, d := range r.All {
		encoded, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("encode the declaration of %s: %w", d.Name, err)
		}
		p.Names, p.Declarations = append(p.Names, d.Name), append(p.Declarations, string(encoded))
	}
	return s.tx(ctx, func(_ pgx.Tx, q *query.Queries) error {
		if err := q.LockWorkerFunctions(ctx, r.Organization); err != nil {
			return pg.Classify(err, "lock the functions of workers")
		}
		if err := q.EndWorkerFunctions(ctx, query.EndWorkerFunctionsParams{Organization: r.Organization, Before: r.Before}); err != nil {
			return pg.Classify(err, "end functions of workers")
		}
		rows, err := q.WorkerFunctions(ctx, r.Organization)
		if err != nil {
			return pg.Classify(err, "read the functions of workers")
		}
		known, err := kept(rows)
		if err != nil {
			return err
		}
		if err := r.Admit(known); err != nil {
			return err
		}
		if err := q.SaveWorkerFunctions(ctx, p); err != nil {
			return pg.Classify(err, "save functions of workers")
		}
		count, err := q.CountWorkerFunctions(ctx, r.Organization)
		if err != nil {
			return pg.Classify(err, "count functions of workers")
		}
		if count > int64(r.Most) {
			return fault.New(fault.Limited, "the organization would have %d functions of workers; expected at most %d", count, r.Most)
		}
		return nil
	})
}

// SeeDeclarations implements worker.Store.
func (s *Store) SeeDeclarations(ctx context.Context, organization int64, names []string, now time.Time) error {
	err := s.queries.SeeWorkerFunctions(ctx, query.SeeWorkerFunctionsParams{Now: now, Organization: organization, Names: names})
	return pg.Classify(err, "note functions of workers")
}

// Declarations implements worker.Store.
func (s *Store) Declarations(ctx context.Context, organization int64) ([]worker.Kept, error) {
	rows, err := s.queries.WorkerFunctions(ctx, organization)
	if err != nil {
		return nil, pg.Classify(err, "read the functions of workers")
	}
	return kept(rows)
}

// orEmpty is a text that may be missing.
func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// kept are declarations as they are stored.
func kept(rows []query.WorkerFunctionsRow) ([]worker.Kept, error) {
	all := make([]worker.Kept, len(rows))
	for i, row := range rows {
		all[i].RegisteredAt, all[i].SeenAt = row.RegisteredAt, row.SeenAt
		all[i].By = worker.Registrar{
			Principal: orEmpty(row.RegisteredBy), Worker: orEmpty(row.RegisteredByWorker), Version: orEmpty(row.RegisteredByVersion),
		}
		if err := json.Unmarshal(row.Declaration, &all[i].Declaration); err != nil {
			return nil, fmt.Errorf("decode the declaration of %s: %w", row.Name, err)
		}
	}
	return all, nil
}

// NotifyOffers implements worker.Store.
func (s *Store) NotifyOffers(ctx context.Context) error {
	return s.hastily(ctx, func(_ pgx.Tx, q *query.Queries) error {
		return pg.Classify(q.NotifyOffers(ctx), "notify other replicas")
	})
}

// ListenOffers implements worker.Store. It holds a connection of its own.
func (s *Store) ListenOffers(ctx context.Context, notified func()) error {
	conn, err := pg.Session(ctx, s.Pool)
	if err != nil {
		return err
	}
	own := conn.Hijack() // a connection that listens does not go back to the others
	defer func() { _ = own.Close(context.WithoutCancel(ctx)) }()
	if err := query.New(own).ListenOffers(ctx); err != nil {
		return pg.Classify(err, "listen for calls of workers")
	}
	schema, err := query.New(own).CurrentSchema(ctx)
	if err != nil {
		return pg.Classify(err, "read the schema")
	}
	notified() // of what came before
	for {
		n, err := own.WaitForNotification(ctx)
		if err != nil {
			return pg.Classify(err, "listen for calls of workers")
		}
		if n.Payload == schema {
			notified()
		}
	}
}
