package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store/query"
)

//go:generate sqlc generate -f ../../sqlc.yaml

//go:embed migrations/*.sql
var hookMigrations embed.FS

// HookMigrations are the migrations of the tables of hooks. HookMigrationName is the name that their version is stored under in the
// database: with another one, every migration would run again.
func HookMigrations() fs.FS {
	sub, err := fs.Sub(hookMigrations, "migrations")
	if err != nil {
		panic(err) // the name of the embedded folder is a constant
	}
	return sub
}

// HookMigrationName names the set of migrations.
const HookMigrationName = "hooks"

// Hooks stores the reports of hooks: artifacts as events in the outbox, and hints until they have become artifacts.
type Hooks struct {
	pool     *pgxpool.Pool
	encode   func(core.Artifact) (event.Sealed, error)
	status   func(core.CommitStatus) (event.Sealed, error)
	pull     func(core.PullRequest) (event.Sealed, error)
	comment  func(core.PullComment) (event.Sealed, error)
	now      func() time.Time
	wake     func()
	wakeHint func()
}

var (
	_ core.Hints        = (*Hooks)(nil)
	_ core.HintQueue    = (*Hooks)(nil)
	_ core.StatusOutbox = (*Hooks)(nil)
)

// HooksDeps are the dependencies of Hooks.
type HooksDeps struct {
	Pool *pgxpool.Pool
	// Encode returns the event for an artifact.
	Encode func(core.Artifact) (event.Sealed, error)
	// EncodeStatus returns the event for a status of a commit.
	EncodeStatus func(core.CommitStatus) (event.Sealed, error)
	// EncodePull returns the event for a pull request.
	EncodePull func(core.PullRequest) (event.Sealed, error)
	// EncodeComment returns the event for a comment with a command.
	EncodeComment func(core.PullComment) (event.Sealed, error)
	Now           func() time.Time
	// Wake is called after events were committed, WakeHint after hints were.
	Wake, WakeHint func()
}

// NewHooks returns a store of hooks.
func NewHooks(d HooksDeps) *Hooks {
	return &Hooks{
		pool: d.Pool, encode: d.Encode, status: d.EncodeStatus, pull: d.EncodePull, comment: d.EncodeComment, now: d.Now, wake: d.Wake,
		wakeHint: d.WakeHint,
	}
}

// Take stores a delivery in one transaction: after an error the sender repeats all of it. It sorts hints in place.
func (s *Hooks) Take(ctx context.Context, hook string, artifacts []core.Artifact, hints []core.Hint, refusals []core.Refusal) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.publish(ctx, tx, hook, artifacts); err != nil {
			return err
		}
		if err := s.hint(ctx, tx, hook, hints); err != nil {
			return err
		}
		return s.refuse(ctx, tx, hook, refusals)
	})
	if err != nil {
		return fmt.Errorf("take %d artifacts, %d hints and %d refusals: %w", len(artifacts), len(hints), len(refusals), err)
	}
	if len(artifacts) > 0 {
		s.wake()
	}
	if len(hints) > 0 {
		s.wakeHint()
	}
	return nil
}

// hint stores hints, which it sorts in place.
func (s *Hooks) hint(ctx context.Context, tx pgx.Tx, hook string, hints []core.Hint) error {
	q := query.New(tx)
	slices.SortFunc(hints, func(a, b core.Hint) int { return strings.Compare(a.ID, b.ID) }) // concurrent deliveries lock in the same order
	for _, h := range hints {
		if h.Notification.TraceParent == "" { // the later lookup continues this trace
			h.Notification.TraceParent = telemetry.RecordedTrace(ctx)
		}
		raw, err := json.Marshal(h.Notification)
		if err != nil {
			return fmt.Errorf("encode hint %s: %w", h.ID, err)
		}
		n := h.Notification
		err = q.Hint(ctx, query.HintParams{
			ID: h.ID, Hook: hook, Notification: raw,
			Reference: reference(n.Image, n.Tag, n.Digest), HeardAt: s.now(),
		})
		if err != nil {
			return pg.Classify(err, "store hint %s of hook %s", h.ID, hook)
		}
	}
	return nil
}

// keepRefusals is how many refusals of each sender are kept: the latest.
const keepRefusals = 20

// refuse records refusals; a repeated one updates its row. It comes last in a transaction: it waits for other deliveries of the same
// sender, which must not wait for this one.
func (s *Hooks) refuse(ctx context.Context, tx pgx.Tx, sender string, refusals []core.Refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	p := query.RefuseParams{Sender: sender, At: s.now()}
	seen := map[[2]string]bool{}
	for _, r := range refusals {
		what, reason := bounded(r.What), bounded(r.Reason)
		if key := [2]string{what, reason}; !seen[key] {
			seen[key] = true
			p.Whats, p.Reasons = append(p.Whats, what), append(p.Reasons, reason)
		}
	}
	q := query.New(tx)
	if err := q.LockRefusals(ctx, sender); err != nil {
		return pg.Classify(err, "lock the refusals of %s", sender)
	}
	if err := q.Refuse(ctx, p); err != nil {
		return pg.Classify(err, "note %d refusals of %s", len(refusals), sender)
	}
	return pg.Classify(q.TrimRefusals(ctx, query.TrimRefusalsParams{Sender: sender, Most: keepRefusals}), "drop old refusals of %s", sender)
}

// publish puts those artifacts into the outbox that have not been recorded before. Record and event are in one transaction, or a crash in
// between would lose the event permanently: a repeated report would count as a duplicate.
func (s *Hooks) publish(ctx context.Context, tx pgx.Tx, hook string, artifacts []core.Artifact) error {
	if len(artifacts) == 0 {
		return nil
	}
	p := query.RecordReportedParams{Hook: hook, ReportedAt: s.now()}
	for _, a := range artifacts {
		p.Ids = append(p.Ids, a.ID)
		p.Refs = append(p.Refs, Reference(a))
		p.Lines = append(p.Lines, a.Line)
	}
	fresh, err := query.New(tx).RecordReported(ctx, p)
	if err != nil {
		return pg.Classify(err, "note %d events of hook %s", len(artifacts), hook)
	}
	var events []event.Sealed
	for _, a := range artifacts {
		if !slices.Contains(fresh, a.ID) {
			continue
		}
		e, err := s.encode(traced(ctx, a))
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	if err := outbox.Add(ctx, tx, events...); err != nil {
		return fmt.Errorf("add %d events of hook %s: %w", len(events), hook, err)
	}
	return nil
}

// PutStatuses implements core.StatusOutbox. What has been recorded before is no event again.
func (s *Hooks) PutStatuses(ctx context.Context, sender string, d core.ForgeDelivery, refusals []core.Refusal) error {
	many := len(d.Statuses) + len(d.PullRequests) + len(d.Comments)
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		p := query.RecordReportedParams{Hook: sender, ReportedAt: s.now()}
		events := map[string]func() (event.Sealed, error){}
		note := func(id, what string, encode func() (event.Sealed, error)) {
			p.Ids, p.Refs, p.Lines = append(p.Ids, id), append(p.Refs, bounded(what)), append(p.Lines, "")
			events[id] = encode
		}
		for _, one := range d.Statuses {
			note(one.ID, one.Commit+" "+one.Context, func() (event.Sealed, error) { return s.status(one) })
		}
		for _, one := range d.PullRequests {
			note(one.ID, fmt.Sprintf("pull request %d of %s", one.Number, one.Repository), func() (event.Sealed, error) { return s.pull(one) })
		}
		for _, one := range d.Comments {
			note(one.ID, fmt.Sprintf("%s on pull request %d of %s", id.OfComment(one.CommentID), one.Number, one.Repository), func() (event.Sealed, error) {
				return s.comment(one)
			})
		}
		fresh, err := query.New(tx).RecordReported(ctx, p)
		if err != nil {
			return pg.Classify(err, "note %d reports of %s", many, sender)
		}
		for _, id := range p.Ids {
			if !slices.Contains(fresh, id) || events[id] == nil {
				continue
			}
			e, err := events[id]()
			if err != nil {
				return err
			}
			delete(events, id)
			if err := outbox.Add(ctx, tx, e); err != nil {
				return fmt.Errorf("add a report of %s: %w", sender, err)
			}
		}
		return s.refuse(ctx, tx, sender, refusals)
	})
	if err != nil {
		return fmt.Errorf("put %d reports and %d refusals: %w", many, len(refusals), err)
	}
	if many > 0 {
		s.wake()
	}
	return nil
}

// confirmed publishes an artifact that its registry has just confirmed. Within a line it is published unless it equals the latest one: the
// tag may have moved back to it. One that is to be repeated is published all the same, under an ID of its own. Two concurrent confirmations
// may each see the other's as the latest; the next lookup corrects that.
func (s *Hooks) confirmed(ctx context.Context, tx pgx.Tx, hook string, a core.Artifact, repeat bool) error {
	if a.Line != "" {
		last, err := query.New(tx).LastOfLine(ctx, &a.Line)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return pg.Classify(err, "look up the latest event of %s", a.Image)
		case last.Reference == Reference(a):
			if !repeat {
				return nil
			}
			a = a.After(last.ID)
		default:
			old, err := query.New(tx).Superseded(ctx, []string{a.ID})
			if err != nil {
				return pg.Classify(err, "look up event %s", a.ID)
			}
			if len(old) > 0 {
				a = a.After(last.ID)
			}
		}
	}
	return s.publish(ctx, tx, hook, []core.Artifact{a})
}

// Superseded implements core.Hints.
func (s *Hooks) Superseded(ctx context.Context, artifacts []core.Artifact) ([]string, error) {
	ids := make([]string, len(artifacts))
	for i, a := range artifacts {
		ids[i] = a.ID
	}
	old, err := query.New(s.pool).Superseded(ctx, ids)
	return old, pg.Classify(err, "look up %d events", len(ids))
}

// Claim implements core.HintQueue.
func (s *Hooks) Claim(ctx context.Context, now, until time.Time, most int) ([]core.Hint, error) {
	rows, err := query.New(s.pool).Claim(ctx, query.ClaimParams{Now: now, Until: until, Most: int32(most)})
	if err != nil {
		return nil, pg.Classify(err, "claim %d hints", most)
	}
	hints := make([]core.Hint, len(rows))
	for i, row := range rows {
		hints[i] = core.Hint{ID: row.ID, Hook: row.Hook, Heard: int(row.Heard), Attempts: int(row.Attempts)}
		if err := json.Unmarshal(row.Notification, &hints[i].Notification); err != nil {
			return nil, fmt.Errorf("decode hint %s: %w", row.ID, err)
		}
	}
	return hints, nil
}

// Settle replaces a hint by an event. It is idempotent, also after the lease has expired: the event has been recorded.
func (s *Hooks) Settle(ctx context.Context, h core.Hint, a core.Artifact) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.confirmed(ctx, tx, h.Hook, a, false); err != nil {
			return err
		}
		// If it was reported again during the query, the response may be older than the report: the hint stays and is due at once.
		q := query.New(tx)
		if err := q.Settle(ctx, query.SettleParams{ID: h.ID, Heard: int32(h.Heard)}); err != nil {
			return pg.Classify(err, "remove hint %s", h.ID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle hint %s: %w", h.ID, err)
	}
	s.wake()
	return nil
}

// Drop implements core.HintQueue.
func (s *Hooks) Drop(ctx context.Context, h core.Hint, why core.Refusal) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := query.New(tx).Settle(ctx, query.SettleParams{ID: h.ID, Heard: int32(h.Heard)}); err != nil {
			return pg.Classify(err, "remove hint %s", h.ID)
		}
		return s.refuse(ctx, tx, h.Hook, []core.Refusal{why})
	})
	if err != nil {
		return fmt.Errorf("drop hint %s: %w", h.ID, err)
	}
	return nil
}

// Publish publishes an artifact that its registry has not confirmed, unless it has been published before.
func (s *Hooks) Publish(ctx context.Context, h core.Hint, a core.Artifact) error {
	if err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return s.publish(ctx, tx, h.Hook, []core.Artifact{a}) }); err != nil {
		return fmt.Errorf("publish unconfirmed hint %s: %w", h.ID, err)
	}
	s.wake()
	return nil
}

// Later implements core.HintQueue.
func (s *Hooks) Later(ctx context.Context, h core.Hint, reason string, at *time.Time) error {
	err := query.New(s.pool).Later(ctx, query.LaterParams{ID: h.ID, Heard: int32(h.Heard), LastError: bounded(reason), NextAt: at})
	return pg.Classify(err, "put hint %s back", h.ID)
}

// Forget deletes old records of events, given-up hints and refusals.
func (s *Hooks) Forget(ctx context.Context, reported, hints time.Time) error {
	q := query.New(s.pool)
	if err := q.Forget(ctx, reported); err != nil {
		return pg.Classify(err, "forget old events of hooks")
	}
	if err := q.ForgetHints(ctx, hints); err != nil {
		return pg.Classify(err, "forget old hints")
	}
	return pg.Classify(q.ForgetRefusals(ctx, hints), "forget old refusals")
}
