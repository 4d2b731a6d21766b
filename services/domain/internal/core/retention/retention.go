// Package retention deletes settled rows after a time that each organization sets for each kind (D65). By default only
// calls are deleted that policies were tried out on, and nothing while a legal hold is in force. The journals, and the rows that they refer
// to, are never deleted.
package retention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Kind is a kind of settled rows.
type Kind string

// The kinds.
const (
	// Requests are the stored answers to idempotency keys.
	Requests Kind = "requests"
	// Handoffs are starts and cancellations that the workflow service has received, with the inputs of the run. Those of rollouts under way
	// are kept.
	Handoffs Kind = "handoffs"
	// Closings are the notes by which failed rollouts were closed.
	Closings Kind = "closings"
	// SignIns are sessions, and the tokens that signing in made, that have expired.
	SignIns Kind = "sign_ins"
	// TriedCalls are calls of Functions that only policies which are tried out would not have permitted, and the sample of those that all
	// policies permit.
	TriedCalls Kind = "tried_calls"
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Requests, Handoffs, Closings, SignIns, TriedCalls} }

// DefaultDays is how long a kind is kept without a rule; 0 for as long as the organization exists. The store's function that deletes has
// the same (migration 1445).
func (k Kind) DefaultDays() int {
	if k == TriedCalls {
		return 30
	}
	return 0
}

// days are those of the rule of a kind, or its default.
func days(rules map[Kind]int, k Kind) int {
	if set, is := rules[k]; is {
		return set
	}
	return k.DefaultDays()
}

// The bounds of a rule. A shorter time would delete rows in use, such as the answer to a request that a client repeats.
const (
	LeastDays = 7
	MostDays  = 3650
)

// Rule is how long a kind is kept.
type Rule struct {
	Kind Kind
	// KeepDays is 0 for as long as the organization exists.
	KeepDays int
	// Due is how many rows are older, up to MostDue: what is deleted next, unless a legal hold is in force.
	Due int
}

// MostDue is the limit up to which due rows are counted.
const MostDue = 10000

// Retention is what an organization has set.
type Retention struct {
	Rules []Rule
	// Hold is the reason of the legal hold; empty if none is in force.
	Hold string
}

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	AllOrganizations(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Organization], error)
	Organization(ctx context.Context, organization int64) (core.Organization, error)
	// ArchivedObjects are up to so many objects of the archive whose rows of a kind were deleted, in the order of their names, behind one.
	ArchivedObjects(ctx context.Context, organization int64, kind Kind, after string, most int) ([]Object, error)
	// InstallationID is the random id of this installation.
	InstallationID(ctx context.Context) (string, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	// RetentionRules are the days by kind; no key for a kind without a rule.
	RetentionRules(ctx context.Context) (map[Kind]int, error)
	SaveRetentionRule(ctx context.Context, kind Kind, days int) error
	// LegalHold is the reason of the one in force; empty for none.
	LegalHold(ctx context.Context) (string, error)
	// SaveLegalHold puts one into force, or ends it with an empty reason.
	SaveLegalHold(ctx context.Context, reason string) error
	// CountSettled is how many rows of a kind the organization's rule does not keep, up to most, whether or not a hold is in force.
	CountSettled(ctx context.Context, kind Kind, most int) (int, error)
	// DeleteSettled deletes the oldest rows of a kind that the organization's rule does not keep, and answers how many; none while a legal
	// hold is in force.
	DeleteSettled(ctx context.Context, kind Kind, most int) (int, error)
	// SettledRows are what DeleteSettled would delete, of the kinds that are archived: up to so many bytes, but at least one.
	SettledRows(ctx context.Context, kind Kind, most, bytes int) ([]Row, error)
	// DeleteSettledRows deletes those of some rows that DeleteSettled would delete, and records the object that has them.
	DeleteSettledRows(ctx context.Context, kind Kind, ids []int64, object Object) (int, error)
	// Installation is the random id of this installation.
	Installation(ctx context.Context) (string, error)
}

// UseCases sets rules and applies them. It is safe for concurrent use.
type UseCases struct {
	store Store
	// archive is nil where none is configured: what is deleted is gone.
	archive Archive
	counted func(outcome string, rows int)
	// readers are the organizations that read the archive, each once at a time, and reading has a place for each of all readers.
	readers fair.Shares[int64]
	reading *fair.Slots
	// patience is how long one waits for others who read.
	patience time.Duration
}

// New makes the use cases over a store.
func New(store Store) *UseCases {
	return &UseCases{store: store, reading: fair.NewSlots(mostReaders), patience: readerWaits}
}

// Waiting sets how long one waits for others who read the archive.
func (u *UseCases) Waiting(patience time.Duration) *UseCases {
	u.patience = patience
	return u
}

// Retention returns the rules of the actor's organization, and the rows that are due by them. It deletes nothing: it is the dry run.
func (u *UseCases) Retention(ctx context.Context, a core.Actor) (r Retention, err error) {
	if err := a.May(core.ActionAccessChanges); err != nil {
		return r, err
	}
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		r, err = u.read(ctx, tx)
		return err
	})
	return r, err
}

func (u *UseCases) read(ctx context.Context, tx Tx) (r Retention, err error) {
	if r.Hold, err = tx.LegalHold(ctx); err != nil {
		return r, err
	}
	rules, err := tx.RetentionRules(ctx)
	if err != nil {
		return r, err
	}
	for _, kind := range Kinds() {
		rule := Rule{Kind: kind, KeepDays: days(rules, kind)}
		if rule.KeepDays > 0 {
			if rule.Due, err = tx.CountSettled(ctx, kind, MostDue); err != nil {
				return r, err
			}
		}
		r.Rules = append(r.Rules, rule)
	}
	return r, nil
}

// Set sets how long a kind is kept; 0 days for as long as the organization exists.
func (u *UseCases) Set(ctx context.Context, a core.Actor, kind Kind, keep int, reason string) (Retention, error) {
	var found []fault.Field
	if !slices.Contains(Kinds(), kind) {
		found = append(found, fault.Field{Name: "/kind", Problem: fmt.Sprintf("found %.40q, expected one of %v", kind, Kinds())})
	}
	if keep != 0 && (keep < LeastDays || keep > MostDays) {
		found = append(found, fault.Field{
			Name: "/keepDays", Problem: fmt.Sprintf("found %d, expected 0, or %d to %d", keep, LeastDays, MostDays),
		})
	}
	if len(found) > 0 {
		return Retention{}, fault.InvalidFields(found...)
	}
	return u.change(ctx, a, core.ActionSetRetention, reason, func(ctx context.Context, tx Tx) (before, after any, err error) {
		rules, err := tx.RetentionRules(ctx)
		if err != nil {
			return nil, nil, err
		}
		state := func(days int) any { return map[string]any{"kind": kind, "keep_days": days} }
		return state(days(rules, kind)), state(keep), tx.SaveRetentionRule(ctx, kind, keep)
	})
}

// SetHold puts a legal hold into force, for which a reason is required, or ends it.
func (u *UseCases) SetHold(ctx context.Context, a core.Actor, on bool, reason string) (Retention, error) {
	if strings.TrimSpace(reason) == "" {
		return Retention{}, fault.InvalidFields(fault.Field{Name: "/reason", Problem: "found none, expected why"})
	}
	return u.change(ctx, a, core.ActionSetLegalHold, reason, func(ctx context.Context, tx Tx) (before, after any, err error) {
		was, err := tx.LegalHold(ctx)
		if err != nil {
			return nil, nil, err
		}
		hold := ""
		if on {
			hold = reason
		}
		state := func(why string) any { return map[string]any{"in_force": why != "", "reason": why} }
		return state(was), state(hold), tx.SaveLegalHold(ctx, hold)
	})
}

// change applies a change of the rules or of the hold, and records it.
func (u *UseCases) change(
	ctx context.Context, a core.Actor, action core.Action, reason string,
	do func(ctx context.Context, tx Tx) (before, after any, err error),
) (r Retention, err error) {
	if err := a.May(action); err != nil {
		return r, err
	}
	if err := core.CheckReason(reason); err != nil {
		return r, err
	}
	of, err := u.store.Organization(ctx, a.Organization)
	if err != nil {
		return r, err
	}
	err = core.By(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		before, after, err := do(ctx, tx)
		if err != nil {
			return err
		}
		err = core.Record(ctx, tx, a, core.Change{
			Action: action, Subject: core.AccessSubject{Kind: core.AccessOrganization, ID: of.ID, Name: of.Name}, Reason: reason,
		}, before, after)
		if err != nil {
			return err
		}
		r, err = u.read(ctx, tx)
		return err
	})
	return r, err
}

// atOnce is how many rows one transaction deletes.
const atOnce = 1000

// Deleted is what was deleted of an organization.
type Deleted struct {
	Organization int64
	Kind         Kind
	Rows         int
}

// mostFailures is how many failures in a row mean that the database, or the archive, is away: what is left is for the next time. It is also
// how many of the errors are reported.
const mostFailures = 10

// run is one of DeleteDue.
type run struct {
	all      []Deleted
	errs     []error
	failures int
	// inARow is how many transactions have failed in a row, notArchived how many attempts to archive.
	inARow, notArchived int
}

// away reports whether a turn is left for the next time.
func (r *run) away(ctx context.Context, t Deleted, archives bool) bool {
	return ctx.Err() != nil || r.inARow >= mostFailures || archives && t.Kind.Archived() && r.notArchived >= mostFailures
}

func (r *run) failed(err error) {
	if r.failures++; len(r.errs) < mostFailures {
		r.errs = append(r.errs, err)
	}
}

func (r *run) err() error {
	if more := r.failures - len(r.errs); more > 0 {
		return errors.Join(append(r.errs, fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(r.errs...)
}

// DeleteDue deletes the due rows of every organization, up to a thousand in each transaction, and where there is an archive after it has
// kept them. Organizations and kinds take turns of one transaction, in random order, so that none has to wait for the end of another.
// What fails is left for the next time, and does not stop the others. If something fails, it also returns what it has deleted.
func (u *UseCases) DeleteDue(ctx context.Context) ([]Deleted, error) {
	turns, err := u.turns(ctx)
	if err != nil {
		return nil, err
	}
	var r run
	for len(turns) > 0 {
		var left []Deleted
		for _, t := range turns {
			more := false
			if !r.away(ctx, t, u.archive != nil) {
				more = u.turn(ctx, &t, &r)
			}
			if more {
				left = append(left, t)
			} else if t.Rows > 0 {
				r.all = append(r.all, t)
			}
		}
		turns = left
	}
	if err := ctx.Err(); err != nil {
		r.failed(err)
	}
	return r.all, r.err()
}

// turns are all organizations with all kinds.
func (u *UseCases) turns(ctx context.Context) (turns []Deleted, err error) {
	for p := (core.Page{First: 500}); ; {
		organizations, err := u.store.AllOrganizations(ctx, core.OperatorOrganization, p)
		if err != nil {
			return nil, err
		}
		for _, o := range organizations.Nodes {
			for _, kind := range Kinds() {
				turns = append(turns, Deleted{Organization: o.ID, Kind: kind})
			}
		}
		if p.After = organizations.EndCursor(); !organizations.HasNext {
			rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] }) //nolint:gosec // whose turn is first is no secret
			return turns, nil
		}
	}
}

// turn deletes some due rows of a kind. It reports whether there may be others.
func (u *UseCases) turn(ctx context.Context, t *Deleted, r *run) (more bool) {
	if u.archive != nil && t.Kind.Archived() {
		return u.archiveSome(ctx, t, r)
	}
	n := 0
	err := u.store.In(ctx, t.Organization, func(ctx context.Context, tx Tx) (err error) {
		n, err = tx.DeleteSettled(ctx, t.Kind, atOnce)
		return err
	})
	if err != nil {
		r.inARow++
		r.failed(err)
		return false
	}
	r.inARow = 0
	t.Rows += n
	return n == atOnce
}
