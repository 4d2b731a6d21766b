// Package evidence makes the journals provable (D50): it seals their rows into a chain of blocks for each organization, checks the
// chain, and exports it. The use cases that write rows have no part in it, and are not slowed down by it.
package evidence

import (
	"context"
	"crypto/ed25519"
	"math"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

const (
	// blockRows is how many rows a block has at most.
	blockRows = 1000
	// sealedAtOnce is how many blocks of an organization are sealed before it is the next one's turn.
	sealedAtOnce = 20
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	// AllOrganizations is a page of every organization.
	AllOrganizations(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Organization], error)
	Organization(ctx context.Context, organization int64) (core.Organization, error)
	// SealHorizon is how far all journals of an organization can be seen, and which transactions are under way.
	SealHorizon(ctx context.Context, organization int64) (core.Horizon, error)
	// SealedRows are the rows of all journals behind one position, up to another one, in order: at most so many.
	SealedRows(ctx context.Context, organization, above, upTo int64, most int) ([]Row, error)
	// LastBlock is false where an organization has none.
	LastBlock(ctx context.Context, organization int64) (Block, bool, error)
	// Blocks are those behind a number, in order: at most so many.
	Blocks(ctx context.Context, organization, after int64, most int) ([]Block, error)
	// Audit is newest first, where no other order is asked for.
	Audit(ctx context.Context, organization int64, f Filter, p core.Page) (core.Slice[Entry], error)
	CountAudit(ctx context.Context, organization int64, f Filter) (int, error)
	// CheckOf is what the schedule found last; false before its first check.
	CheckOf(ctx context.Context, organization int64) (Check, bool, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	// AddBlock is a Conflict where the organization has a block of that number.
	AddBlock(ctx context.Context, b Block) error
	SaveCheck(ctx context.Context, c Check) error
}

// States compares the states of rollouts with their journals.
type States interface {
	CheckJournal(ctx context.Context, a core.Actor, p core.Page) (rollout.JournalCheck, error)
}

// UseCases seals, checks and exports. It is safe for concurrent use.
type UseCases struct {
	store  Store
	states States
	clock  clock.Clock
	key    func(ctx context.Context) (ed25519.PrivateKey, error)

	mu sync.Mutex
	// pending has, by organization, the last look at the journals that has not settled yet.
	pending map[int64]core.Horizon
}

// Deps is what UseCases needs.
type Deps struct {
	Store  Store
	States States
	Clock  clock.Clock
	// Key is what exports are signed with; nil where there are none.
	Key func(ctx context.Context) (ed25519.PrivateKey, error)
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	return &UseCases{store: d.Store, states: d.States, clock: d.Clock, key: d.Key, pending: map[int64]core.Horizon{}}
}

// settled is a position up to which no row of an organization can appear any more; false where that is not known of any new one. A
// position is given out before the commit, so one that can be seen has settled once every transaction has ended that was under way when
// it was seen.
func (u *UseCases) settled(ctx context.Context, organization int64) (int64, bool, error) {
	seen, err := u.store.SealHorizon(ctx, organization)
	if err != nil {
		return 0, false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if seen.Oldest == seen.Next { // nothing is under way
		delete(u.pending, organization)
		return seen.Position, true, nil
	}
	before, known := u.pending[organization]
	if !known || seen.Oldest >= before.Next {
		u.pending[organization] = seen
	}
	return before.Position, known && seen.Oldest >= before.Next, nil
}

// Seal seals what has settled of an organization's journals and is not sealed yet, up to some blocks: how many rows that were, and whether
// there are more. It rests behind each full block. Rows that another process seals at the same moment are a Conflict, and nothing is lost.
func (u *UseCases) Seal(ctx context.Context, organization int64) (sealed int, more bool, err error) {
	upTo, ok, err := u.settled(ctx, organization)
	if err != nil || !ok {
		return 0, false, err
	}
	last, known, err := u.store.LastBlock(ctx, organization)
	if err != nil {
		return 0, false, err
	}
	if !known {
		last.UpTo = math.MinInt64 // a row before the first would be a change of history as well
	}
	for range sealedAtOnce {
		if last.UpTo >= upTo {
			return sealed, false, nil
		}
		began := u.clock.Now()
		rows, err := u.store.SealedRows(ctx, organization, last.UpTo, upTo, blockRows)
		if err != nil || len(rows) == 0 {
			return sealed, false, err
		}
		next := Block{
			OrganizationID: organization, Number: last.Number + 1, Above: last.UpTo, UpTo: rows[len(rows)-1].ID, Rows: len(rows),
			Previous: last.Digest, SealedAt: u.clock.Now().UTC().Truncate(time.Microsecond),
		}
		if next.Digest, err = next.digestOf(rows); err != nil {
			return sealed, false, err
		}
		err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error { return tx.AddBlock(ctx, next) })
		if err != nil {
			return sealed, false, err
		}
		sealed += len(rows)
		last = next
		if len(rows) < blockRows {
			continue
		}
		if err := clock.Rest(ctx, u.clock, began); err != nil {
			return sealed, false, err
		}
	}
	return sealed, last.UpTo < upTo, nil
}

// SealAll is Seal for every organization until none has more; each gets its turn, however much another one has.
func (u *UseCases) SealAll(ctx context.Context) (sealed int, err error) {
	for again := true; again && err == nil; {
		again = false
		err = u.each(ctx, func(organization int64) error {
			n, more, err := u.Seal(ctx, organization)
			sealed, again = sealed+n, again || more
			if fault.Is(err, fault.Conflict) { // another leader, for a moment
				return nil
			}
			return err
		})
	}
	return sealed, err
}

// each does something for every organization.
func (u *UseCases) each(ctx context.Context, do func(organization int64) error) error {
	for p := (core.Page{First: 500}); ; {
		all, err := u.store.AllOrganizations(ctx, core.OperatorOrganization, p)
		if err != nil {
			return err
		}
		for _, o := range all.Nodes {
			if err := do(o.ID); err != nil {
				return err
			}
		}
		if p.After = all.EndCursor(); !all.HasNext {
			return nil
		}
	}
}
