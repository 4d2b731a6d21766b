package evidence

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Check is how far the chain of an organization was checked.
type Check struct {
	OrganizationID int64
	// Block is the last one that is right, Head its digest, and UpTo its last position; zero for none.
	Block int64
	Head  string
	UpTo  int64
	// Problem is the first thing that is wrong; empty for nothing.
	Problem   string
	CheckedAt time.Time
}

// Chain is what came of checking a stretch of a chain.
type Chain struct {
	Check
	// Blocks and Rows are how many were read.
	Blocks, Rows int
	// More reports whether the chain continues behind the stretch. A chain is checked up to its first problem.
	More bool
}

// CheckChain recomputes the digests of an organization's blocks behind one of a number, at most so many, for an actor who administers: 0
// for the first. It changes nothing.
func (u *UseCases) CheckChain(ctx context.Context, a core.Actor, after int64, most int) (Chain, error) {
	if err := a.May(core.ActionCheckJournal); err != nil {
		return Chain{}, err
	}
	from := Check{OrganizationID: a.Organization}
	if after > 0 {
		known, err := u.store.Blocks(ctx, a.Organization, after-1, 1)
		if err != nil {
			return Chain{}, err
		}
		from.Block = after
		if len(known) == 1 {
			from.Head, from.UpTo = known[0].Digest, known[0].UpTo
		}
	}
	return u.check(ctx, from, most)
}

// LastCheck is what the schedule found last in the actor's organization; false before its first check.
func (u *UseCases) LastCheck(ctx context.Context, a core.Actor) (Check, bool, error) {
	if err := a.May(core.ActionCheckJournal); err != nil {
		return Check{}, false, err
	}
	return u.store.CheckOf(ctx, a.Organization)
}

// check continues a check: the block where it begins must still be what it was.
func (u *UseCases) check(ctx context.Context, from Check, most int) (Chain, error) {
	found := Chain{Check: from}
	found.Problem, found.CheckedAt = "", u.clock.Now()
	first := max(from.Block-1, 0)
	blocks, err := u.store.Blocks(ctx, from.OrganizationID, first, most+2)
	if err != nil {
		return found, err
	}
	if from.Block > 0 {
		if len(blocks) == 0 || blocks[0].Number != from.Block || blocks[0].Digest != from.Head {
			found.Problem = fmt.Sprintf("block %d, which was right, is no longer present or is another one", from.Block)
			return found, nil
		}
		blocks = blocks[1:]
	}
	for i, b := range blocks {
		if i == most {
			found.More = true
			break
		}
		problem, rows, err := u.checkBlock(ctx, found.Check, b)
		if err != nil {
			return found, err
		}
		found.Blocks++
		found.Rows += rows
		if problem != "" {
			found.Problem = problem
			return found, nil
		}
		found.Block, found.Head, found.UpTo = b.Number, b.Digest, b.UpTo
	}
	return found, nil
}

// checkBlock compares a block with the one before it and with its rows.
func (u *UseCases) checkBlock(ctx context.Context, before Check, b Block) (problem string, rows int, err error) {
	at := fmt.Sprintf("block %d, sealed at %s", b.Number, b.SealedAt.UTC().Format(time.RFC3339))
	if b.Number != before.Block+1 || b.Previous != before.Head || before.Block > 0 && b.Above != before.UpTo {
		return fmt.Sprintf("%s, does not follow block %d", at, before.Block), 0, nil
	}
	// One more than it may have, so that a row that was put in between is seen.
	content, err := u.store.SealedRows(ctx, b.OrganizationID, b.Above, b.UpTo, b.Rows+1)
	if err != nil {
		return "", 0, err
	}
	if len(content) != b.Rows {
		return fmt.Sprintf("%s, was sealed with %d rows up to position %d; found %s", at, b.Rows, b.UpTo,
			atLeast(len(content), b.Rows)), len(content), nil
	}
	digest, err := b.digestOf(content)
	if err != nil {
		return "", 0, err
	}
	if digest != b.Digest {
		return fmt.Sprintf(
			"%s: the rows from position %d to %d, or the block, are not what was sealed", at, content[0].ID, content[len(content)-1].ID,
		), len(content), nil
	}
	return "", len(content), nil
}

func atLeast(found, sealed int) string {
	if found > sealed {
		return fmt.Sprintf("at least %d", found)
	}
	return strconv.Itoa(found)
}

const (
	// checkedAtOnce is how many blocks are read together; checkedAtRest is how many the schedule checks before it rests.
	checkedAtOnce = 100
	checkedAtRest = 5
	// statesChecked is how many pages of rollouts, newest first, the schedule compares with their journals. A page is small, for the schedule
	// rests behind each.
	statesChecked = 50
	statesPage    = 20
)

// CheckDue checks every organization that was not checked for as long as every says: the blocks that are new since then, and the states
// of its newest rollouts. What is wrong is answered, and stays wrong until a later check finds it right.
func (u *UseCases) CheckDue(ctx context.Context, every time.Duration) (checked []Check, err error) {
	err = u.each(ctx, func(organization int64) error {
		known, _, err := u.store.CheckOf(ctx, organization)
		if err != nil || known.CheckedAt.Add(every).After(u.clock.Now()) {
			return err
		}
		known.OrganizationID = organization
		now, err := u.checkOrganization(ctx, known)
		if err == nil {
			checked = append(checked, now)
		}
		return err
	})
	return checked, err
}

func (u *UseCases) checkOrganization(ctx context.Context, from Check) (Check, error) {
	for {
		began := u.clock.Now()
		stretch, err := u.check(ctx, from, checkedAtRest)
		if err != nil {
			return from, err
		}
		from = stretch.Check
		if !stretch.More || from.Problem != "" {
			break
		}
		if err := clock.Rest(ctx, u.clock, began); err != nil {
			return from, err
		}
	}
	if from.Problem == "" {
		problem, err := u.checkStates(ctx, from.OrganizationID)
		if err != nil {
			return from, err
		}
		from.Problem = problem
	}
	return from, u.store.In(ctx, from.OrganizationID, func(ctx context.Context, tx Tx) error { return tx.SaveCheck(ctx, from) })
}

// checkStates compares the states of the newest rollouts with their journals.
func (u *UseCases) checkStates(ctx context.Context, organization int64) (string, error) {
	own := core.Actor{Organization: organization, Type: core.PrincipalSystem, Permissions: core.PermissionsOf(core.MayAdminister)}
	p := core.Page{First: statesPage}
	for range statesChecked {
		began := u.clock.Now()
		page, err := u.states.CheckJournal(ctx, own, p)
		if err != nil {
			return "", err
		}
		// Breaches of passages are no difference: they have a metric and an alert of their own, and stay in the record.
		page.Differences = slices.DeleteFunc(page.Differences, func(d rollout.JournalDifference) bool { return d.Breach })
		if len(page.Differences) > 0 {
			d := page.Differences[0]
			return fmt.Sprintf("%d states differ from the journal, first %s %d: %s", len(page.Differences),
				d.Subject.Kind, d.Subject.ID, d.Problem), nil
		}
		if p.After = page.Next; p.After == "" {
			break
		}
		if err := clock.Rest(ctx, u.clock, began); err != nil {
			return "", err
		}
	}
	return "", nil
}
