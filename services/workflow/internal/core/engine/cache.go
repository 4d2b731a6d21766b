package engine

import (
	"container/list"
)

// cache keeps parked executions whose programs still stand in memory, the ones used last, within a number of bytes.
type cache struct {
	limit, bytes int64
	// order has *run in it, the latest first.
	order *list.List
	byID  map[int64]*list.Element
}

func newCache(limit int64) cache {
	return cache{limit: max(0, limit), order: list.New(), byID: map[int64]*list.Element{}}
}

// put adds one and answers those that have to go for it, perhaps itself.
func (c *cache) put(r *run) (evicted []*run) {
	c.byID[r.loaded.ID] = c.order.PushFront(r)
	c.bytes += r.size()
	for c.bytes > c.limit {
		oldest, _ := c.order.Back().Value.(*run)
		evicted = append(evicted, c.take(oldest.loaded.ID))
	}
	return evicted
}

func (c *cache) take(execution int64) *run {
	at, known := c.byID[execution]
	if !known {
		return nil
	}
	r, _ := c.order.Remove(at).(*run)
	delete(c.byID, execution)
	c.bytes -= r.size()
	return r
}

func (c *cache) clear() (all []*run) {
	for c.order.Len() > 0 {
		r, _ := c.order.Back().Value.(*run)
		all = append(all, c.take(r.loaded.ID))
	}
	return all
}

// closeAll frees what the programs of executions hold. It is done without the lock of places: a program unwinds.
func closeAll(runs []*run) {
	for _, r := range runs {
		r.machine.Close()
	}
}
