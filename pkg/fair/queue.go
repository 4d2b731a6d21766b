// Package fair shares a scarce resource between tenants, so that one with much work does not delay the others: tenants with queued items
// take turns (round robin), and capacity that the others do not need is available to everyone.
//
// It works in memory, for one process, without weights: a turn counts the same however long it lasts. Tenants without queued items take no
// memory.
package fair

import "container/list"

// Queue queues items by tenant: first in, first out within a tenant, and round robin between tenants. Every operation takes constant time.
// The zero value is empty and ready to use. It is not safe for concurrent use.
type Queue[T any] struct {
	// tenants maps the numbers of the tenants with queued items; turns lists them in the order of their turns, the next one first.
	tenants map[int64]*tenant[T]
	turns   list.List
	length  int
}

// tenant is a tenant with queued items.
type tenant[T any] struct {
	number int64
	// items holds *Place[T], the oldest first.
	items list.List
	turn  *list.Element
}

// Place is the position of a queued item.
type Place[T any] struct {
	item   T
	tenant *tenant[T]
	at     *list.Element
}

// Push queues an item behind those of the same tenant. A tenant that had none queued takes its turn after all others.
func (q *Queue[T]) Push(number int64, item T) *Place[T] {
	t := q.tenants[number]
	if t == nil {
		if q.tenants == nil {
			q.tenants = map[int64]*tenant[T]{}
		}
		t = &tenant[T]{number: number}
		t.turn = q.turns.PushBack(t)
		q.tenants[number] = t
	}
	p := &Place[T]{item: item, tenant: t}
	p.at = t.items.PushBack(p)
	q.length++
	return p
}

// Pop removes and returns the oldest item of the tenant whose turn it is. It reports false if nothing is queued.
func (q *Queue[T]) Pop() (item T, ok bool) {
	first := q.turns.Front()
	if first == nil {
		return item, false
	}
	t, _ := first.Value.(*tenant[T])
	p, _ := t.items.Front().Value.(*Place[T])
	q.Remove(p)
	if t.items.Len() > 0 {
		q.turns.MoveToBack(first)
	}
	return p.item, true
}

// Remove removes an item that has not been popped; for any other it is a no-op.
func (q *Queue[T]) Remove(p *Place[T]) {
	if p.at == nil {
		return
	}
	p.tenant.items.Remove(p.at)
	p.at = nil
	q.length--
	if p.tenant.items.Len() == 0 {
		q.turns.Remove(p.tenant.turn)
		delete(q.tenants, p.tenant.number)
	}
}

// Len returns the number of queued items.
func (q *Queue[T]) Len() int { return q.length }

// Tenants returns the number of tenants with queued items.
func (q *Queue[T]) Tenants() int { return q.turns.Len() }

// Of returns the number of queued items of a tenant.
func (q *Queue[T]) Of(number int64) int {
	if t := q.tenants[number]; t != nil {
		return t.items.Len()
	}
	return 0
}
