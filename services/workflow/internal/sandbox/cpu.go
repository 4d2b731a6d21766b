package sandbox

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// slice is how long a program computes at least before it is stopped in favor of another organization's.
	slice = 10 * time.Millisecond
	// credit is how much an organization that was idle may compute ahead of those that were not.
	credit = 100 * time.Millisecond
	// patience is how long an organization computes with the usual priority before its children make room for everything else, beyond
	// the part of one processor that it may use permanently: one in thrift.
	patience = 100 * time.Millisecond
	thrift   = 20
	// accounts bounds how many organizations are remembered that have nothing to compute.
	accounts = 1024
)

// cpu shares the processors among organizations. At most slots programs compute at a time; the others wait, or are stopped where they are.
// The organization that has computed least goes first, and takes the place of the one that has computed most, in the middle of a program if
// need be: however long the programs of one organization compute, and however many there are, another one's wait for a slice at the most.
// Nobody starves, because a task that waits does not compute.
//
// Organizations that have computed a lot of late (load) share the slots of heavyMost processors, which leaves one for everything else on
// the machine: a program that wakes up, the service, the database. Otherwise a slot is empty only while nobody waits.
//
// Time is charged by the clock while a program has a slot. It is safe for concurrent use.
type cpu struct {
	clock clock.Clock
	// slots is how many tasks compute at a time, heavyMost how many of them may be of organizations that have computed a lot of late.
	slots, heavyMost int

	mu sync.Mutex
	// running have a slot; waiting have none, the oldest first.
	running, waiting []*task
	// used is the time that organizations have computed, on one scale for all. One that is not in it has floor.
	used map[int64]time.Duration
	// recent is what organizations have computed of late beyond their part of a processor. One that is not in it has computed nothing.
	recent map[int64]*load
	// floor is the least that an organization with something to compute has used. It never goes down: time in which an organization is idle is
	// not saved up, but for the credit.
	floor time.Duration
	// ticking is set while a check after the next slice is scheduled.
	ticking bool
}

// stoppable is what computes: a child process.
type stoppable interface {
	pause()
	resume()
	// yield says whether it makes room for whatever else wants a processor. It costs nothing where that has not changed.
	yield(bool)
}

// load is a leaky bucket: what was computed goes in, and a part of the time that passes goes out.
type load struct {
	level time.Duration
	at    time.Time
}

// add puts in what was computed until now, and reports whether that is more than patience. It keeps no more than twice that, so that an
// organization that stops computing has its priority back soon.
func (l *load) add(computed time.Duration, now time.Time) bool {
	l.level = min(max(0, l.level-now.Sub(l.at)/thrift)+computed, 2*patience)
	l.at = now
	return l.level > patience
}

// task is one request to a child.
type task struct {
	organization int64
	child        stoppable
	// granted is closed when it gets a slot for the first time.
	granted chan struct{}
	begun   bool
	// since is until when it has been charged, or since when it has been stopped. stopped is how long that was, in all.
	since   time.Time
	stopped time.Duration
}

func newCPU(slots, heavyMost int, c clock.Clock) *cpu {
	return &cpu{clock: c, slots: slots, heavyMost: heavyMost, used: map[int64]time.Duration{}, recent: map[int64]*load{}}
}

// enter waits for a slot.
func (c *cpu) enter(organization int64, child stoppable) *task {
	t := &task{organization: organization, child: child, granted: make(chan struct{})}
	c.mu.Lock()
	t.since = c.clock.Now()
	if !c.active(organization) {
		c.used[organization] = max(c.used[organization], c.floor-credit)
	}
	c.waiting = append(c.waiting, t)
	c.schedule()
	c.mu.Unlock()
	<-t.granted
	return t
}

// leave gives the slot to the next.
func (c *cpu) leave(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.charge(c.clock.Now())
	if i := slices.Index(c.running, t); i >= 0 {
		c.running = slices.Delete(c.running, i, i+1)
	} else if i := slices.Index(c.waiting, t); i >= 0 { // it was done when it was stopped
		c.waiting = slices.Delete(c.waiting, i, i+1)
		t.child.resume()
	}
	if !c.active(t.organization) {
		c.floor = max(c.floor, c.least(c.used[t.organization]))
		c.forget(t.organization)
	}
	c.schedule()
}

// stoppedFor is how long a task has been stopped so far.
func (c *cpu) stoppedFor(t *task) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.waiting, t) {
		return t.stopped + c.clock.Now().Sub(t.since)
	}
	return t.stopped
}

// active reports whether an organization has something to compute.
func (c *cpu) active(organization int64) bool {
	is := func(t *task) bool { return t.organization == organization }
	return slices.ContainsFunc(c.running, is) || slices.ContainsFunc(c.waiting, is)
}

// least is the least that anybody with something to compute has used, or else otherwise.
func (c *cpu) least(otherwise time.Duration) time.Duration {
	all := slices.Concat(c.running, c.waiting)
	if len(all) == 0 {
		return otherwise
	}
	least := c.used[all[0].organization]
	for _, t := range all[1:] {
		least = min(least, c.used[t.organization])
	}
	return least
}

// forget drops what is known of an organization that has nothing to compute, where it makes no difference, and everything of such ones
// where there are too many.
func (c *cpu) forget(organization int64) {
	if c.used[organization] <= c.floor-credit {
		delete(c.used, organization)
	}
	if len(c.used) > accounts {
		maps.DeleteFunc(c.used, func(known int64, _ time.Duration) bool { return !c.active(known) })
	}
	if len(c.recent) > accounts {
		maps.DeleteFunc(c.recent, func(known int64, _ *load) bool { return !c.active(known) })
	}
}

// heavy adds what an organization has computed until now, and reports whether it computes so much that its children yield.
func (c *cpu) heavy(organization int64, computed time.Duration, now time.Time) bool {
	l := c.recent[organization]
	if l == nil {
		l = &load{at: now}
		c.recent[organization] = l
	}
	return l.add(computed, now)
}

// charge adds the time since it was called last to the organizations of those that compute.
func (c *cpu) charge(now time.Time) {
	for _, t := range c.running {
		c.used[t.organization] += now.Sub(t.since)
		if c.heavy(t.organization, now.Sub(t.since), now) {
			t.child.yield(true)
		}
		t.since = now
	}
	c.floor = max(c.floor, c.least(c.floor))
}

// schedule fills the slots, and stops those that have to make room.
func (c *cpu) schedule() {
	now := c.clock.Now()
	c.charge(now)
	heavy := func(t *task) bool { return c.heavy(t.organization, 0, now) }
	light := func(t *task) bool { return !heavy(t) }
	for c.count(heavy) > c.heavyMost {
		c.stop(c.last(heavy), now)
	}
	for placed := true; placed; {
		placed = c.place(c.next(anyTask), heavy, now) || c.place(c.next(light), heavy, now)
	}
	if len(c.waiting) > 0 && !c.ticking {
		c.ticking = true
		go c.tick()
	}
}

func anyTask(*task) bool { return true }

// place gives a task a slot, if need be that of one whose organization has computed more. It reports whether it did.
func (c *cpu) place(next *task, heavy func(*task) bool, now time.Time) bool {
	if next == nil {
		return false
	}
	rivals := anyTask
	switch {
	case heavy(next) && c.count(heavy) >= c.heavyMost:
		rivals = heavy
	case len(c.running) < c.slots:
		c.grant(next, now)
		return true
	}
	last := c.last(rivals)
	if c.used[next.organization]+slice > c.used[last.organization] {
		return false
	}
	c.stop(last, now)
	c.grant(next, now)
	return true
}

// count is how many running tasks qualify.
func (c *cpu) count(qualifies func(*task) bool) (n int) {
	for _, t := range c.running {
		if qualifies(t) {
			n++
		}
	}
	return n
}

// next is the task that has waited longest, of the organization that has used least and has the fewest slots; nil: none that waits
// qualifies.
func (c *cpu) next(qualifies func(*task) bool) *task {
	var first *task
	for _, t := range c.waiting {
		if qualifies(t) && (first == nil || c.before(t, first)) {
			first = t
		}
	}
	return first
}

// before reports whether the organization of a is served before that of b.
func (c *cpu) before(a, b *task) bool {
	if d := c.used[a.organization] - c.used[b.organization]; d != 0 {
		return d < 0
	}
	return c.slotsOf(a.organization) < c.slotsOf(b.organization)
}

// last is the running task that has to make room first, of those that qualify.
func (c *cpu) last(qualifies func(*task) bool) (last *task) {
	for _, t := range c.running {
		if qualifies(t) && (last == nil || c.used[t.organization] > c.used[last.organization]) {
			last = t
		}
	}
	return last
}

func (c *cpu) slotsOf(organization int64) int {
	return c.count(func(t *task) bool { return t.organization == organization })
}

func (c *cpu) stop(t *task, now time.Time) {
	c.running = slices.DeleteFunc(c.running, func(r *task) bool { return r == t })
	c.waiting = append(c.waiting, t)
	t.since = now
	t.child.pause()
}

func (c *cpu) grant(t *task, now time.Time) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w *task) bool { return w == t })
	c.running = append(c.running, t)
	t.child.yield(c.heavy(t.organization, 0, now))
	if t.begun {
		t.stopped += now.Sub(t.since)
		t.child.resume()
	} else {
		t.begun = true
		close(t.granted)
	}
	t.since = now
}

// tick looks again after each slice for as long as anybody waits.
func (c *cpu) tick() {
	for {
		timer := c.clock.NewTimer(slice)
		<-timer.C()
		c.mu.Lock()
		c.schedule()
		c.ticking = len(c.waiting) > 0
		more := c.ticking
		c.mu.Unlock()
		if !more {
			return
		}
	}
}
