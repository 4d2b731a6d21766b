package store

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// group commits the items of concurrent callers in one transaction. No item waits for others: while one transaction is in progress, the
// items of the next one gather, and an item that arrives alone is committed alone. Reads are grouped in the same way.
type group[T any] struct {
	// commit commits items in one transaction. It writes each outcome into the item; its error is that of all items.
	commit func(ctx context.Context, items []*T) error
	// tenant is the organization of an item; nil if items have none. If more items wait than fit into a transaction, organizations alternate.
	// tenants is shared by groups that wait for one another; it is set if tenant is.
	tenant  func(item *T) int64
	tenants *tenants
	// most is how many items a transaction has, 0: groupMost. lanes is the number of concurrent transactions, 0: one.
	most, lanes int

	mu      sync.Mutex
	waiting []*member[T]
	// busy is the number of transactions in progress.
	busy int
}

type member[T any] struct {
	item *T
	err  error
	done chan struct{}
}

const (
	// groupMost bounds a transaction, because every item waits for all others.
	groupMost = 512
	// groupShared bounds a transaction while several organizations have items (tenants): the items of a quiet one wait for the transaction in
	// progress, at least for the order of the outbox, and a busy one determines how long that is.
	groupShared = 128
	// groupWithin bounds the time of a transaction. A server that hangs is treated as unavailable, and runs continue from what is stored.
	groupWithin = 30 * time.Second
)

// do commits an item and returns the outcome. After an error of the class Unavailable the outcome is unknown: the commit may have been
// applied. The item belongs to the group from then on, even if ctx ends first.
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

// run commits until no item waits.
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
	if g.tenant != nil && g.tenants.several(g.organizations()) {
		most = min(most, groupShared)
	}
	n := min(len(g.waiting), most)
	if n < len(g.waiting) && g.tenant != nil {
		g.waiting = g.alternating(n)
	}
	members := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return members
}

// organizations are those of the waiting items.
func (g *group[T]) organizations() []int64 {
	all := make([]int64, len(g.waiting))
	for i, m := range g.waiting {
		all[i] = g.tenant(m.item)
	}
	return all
}

// alternating returns the waiting items, with the n next ones first: one item of each organization, then another, as far as they have any.
// Both parts are in their order of arrival.
func (g *group[T]) alternating(n int) []*member[T] {
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

// settle commits members together. If the database refuses one of them, it refuses all, so each is then tried alone. If the database is
// unavailable, none is retried here, because the commit may have been applied.
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
