// Package fair lets many tenants share what there is not enough of, so that one with much to do does not keep the others waiting: whoever has
// something queued has a turn for each turn of everybody else who has, and what nobody else wants is anybody's.
//
// It is in memory, for one process, and knows no weights: a turn is a turn, however long it lasts. What it holds is what waits, and
// nothing of a tenant with nothing to do.
package fair

import "container/list"

// Queue has items wait by tenant: first come first served among those of one tenant, and turn by turn between tenants. Every operation takes the
// same time, however many wait. The zero value is empty and ready to use. It is not safe for concurrent use.
type Queue[T any] struct {
	// tenants have something queued, by their numbers; turns has them in the order of their turns, the next one first.
	tenants map[int64]*tenant[T]
	turns   list.List
	length  int
}

// tenant is one that has something queued.
type tenant[T any] struct {
	number int64
	// items has *Place[T] in it, the oldest first.
	items list.List
	turn  *list.Element
}

// Place is where an item waits.
type Place[T any] struct {
	item   T
	tenant *tenant[T]
	at     *list.Element
}

// Push has an item wait behind those of the same tenant. A tenant that had nothing queued has its turn behind everybody else who has.
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

// Pop takes the oldest item of the tenant whose turn it is; false: nothing is queued.
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

// Remove takes an item out that has not been popped; one that is not there any more is left alone.
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

// Len is how many items wait, and Tenants those of how many tenants.
func (q *Queue[T]) Len() int { return q.length }

// Tenants is how many tenants have something queued.
func (q *Queue[T]) Tenants() int { return q.turns.Len() }

// Of is how many items of a tenant wait.
func (q *Queue[T]) Of(number int64) int {
	if t := q.tenants[number]; t != nil {
		return t.items.Len()
	}
	return 0
}
