package store

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// group commits what many callers have at the same time in one transaction. Nobody waits for company: while one
// transaction is under way the next one's items come together, and an item that comes alone is committed alone. What is to be read
// is gathered in the same way.
type group[T any] struct {
	// commit does items in one transaction. What it finds out about each it writes into the item; its error is everybody's.
	commit func(ctx context.Context, items []*T) error
	// tenant is the organization of an item, nil: items have none. Where more wait than a transaction has room for, organizations take turns.
	// company is what groups share that keep each other waiting; it is there where tenant is.
	tenant  func(item *T) int64
	company *company
	// most is how many items a transaction has, 0: groupMost; lanes how many may be under way at a time, 0: one.
	most, lanes int

	mu      sync.Mutex
	waiting []*member[T]
	// busy is how many are under way.
	busy int
}

type member[T any] struct {
	item *T
	err  error
	done chan struct{}
}

const (
	// groupMost bounds a transaction: a long one makes everybody wait for the slowest statement.
	groupMost = 512
	// groupShared bounds one where several organizations are there (company): whoever has little to do waits for the transaction under
	// way, for the order of the outbox if for nothing else, and that is as long as somebody else makes it.
	groupShared = 128
	// groupWithin bounds a transaction in time. A server that hangs is as good as gone, and what was to be committed is
	// done again from what is stored.
	groupWithin = 30 * time.Second
)

// do commits an item and returns when that is done. After an error nothing is known of the item, unless the error's class
// says that it was refused: a commit may have been applied although nobody could be told. An item belongs to the group
// from then on, also when ctx ends first.
func (g *group[T]) do(ctx context.Context, item *T) error {
	m := &member[T]{item: item, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	if g.busy < max(g.lanes, 1) {
		g.busy++
		go g.run(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return fault.Because(ctx.Err(), fault.Unavailable, "the commit's outcome was not waited for")
	}
}

// run commits until nothing waits any more.
func (g *group[T]) run(ctx context.Context) {
	for {
		members := g.take()
		if members == nil {
			return
		}
		g.settle(ctx, members)
	}
}

func (g *group[T]) take() []*member[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.busy--
		g.waiting = nil
		return nil
	}
	most := cmp.Or(g.most, groupMost)
	if g.tenant != nil {
		for _, m := range g.waiting {
			g.company.met(g.tenant(m.item))
		}
		if g.company.several() {
			most = min(most, groupShared)
		}
	}
	n := min(len(g.waiting), most)
	if n < len(g.waiting) && g.tenant != nil {
		g.waiting = g.inTurns(n)
	}
	members := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return members
}

// inTurns is what waits, the next n before the others: an item of each organization and then another, as far as they have any. Both parts
// are in the order in which they came.
func (g *group[T]) inTurns(n int) []*member[T] {
	var queue fair.Queue[int]
	for i, m := range g.waiting {
		queue.Push(g.tenant(m.item), i)
	}
	if queue.Tenants() == 1 {
		return g.waiting
	}
	next := make([]bool, len(g.waiting))
	for range n {
		i, _ := queue.Pop()
		next[i] = true
	}
	ordered := make([]*member[T], 0, len(g.waiting))
	for _, wanted := range []bool{true, false} {
		for i, m := range g.waiting {
			if next[i] == wanted {
				ordered = append(ordered, m)
			}
		}
	}
	return ordered
}

// settle commits members together. When the database refuses what one of them holds, it refuses all, so each is tried
// alone: the others must not suffer. When it is away, none is tried again here: whether it was applied is not known.
func (g *group[T]) settle(ctx context.Context, members []*member[T]) {
	err := g.attempt(ctx, members)
	if err != nil && len(members) > 1 && !fault.Is(err, fault.Unavailable) {
		for _, m := range members {
			m.err = g.attempt(ctx, []*member[T]{m})
			close(m.done)
		}
		return
	}
	for _, m := range members {
		m.err = err
		close(m.done)
	}
}

func (g *group[T]) attempt(ctx context.Context, members []*member[T]) error {
	ctx, cancel := context.WithTimeout(ctx, groupWithin)
	defer cancel()
	items := make([]*T, len(members))
	for i, m := range members {
		items[i] = m.item
	}
	return g.commit(ctx, items)
}
