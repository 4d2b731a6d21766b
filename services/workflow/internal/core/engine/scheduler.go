package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// rest frees the place of a run, which stays in this process, and returns when to ask for it.
func (p *scheduler) rest(r *run, rest resting) (ask time.Time) {
	p.mu.Lock()
	var evicted []*run
	if p.drive != nil {
		if r.woken.Taken() { // it may have been cancelled
			rest.ask, rest.read = time.Time{}, time.Time{}
		}
		p.resting[r.loaded.ID] = rest
	}
	if r.machine != nil {
		evicted = []*run{r}
		if p.drive != nil {
			evicted = p.parked.put(r)
		}
	}
	p.free(r.loaded.ID)
	p.mu.Unlock()
	closeAll(evicted)
	return rest.ask
}

// resume drives an execution that has rested.
func (p *scheduler) resume(j job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest, rests := p.resting[j.id]; rests {
		delete(p.resting, j.id)
		if !rest.held.IsZero() {
			p.resumed[j.id] = struct{}{}
		}
		p.add(j)
	}
}

// drop forgets an execution that has ended while it rested.
func (p *scheduler) drop(execution int64) {
	p.mu.Lock()
	delete(p.resting, execution)
	r := p.parked.take(execution)
	p.mu.Unlock()
	if r != nil {
		r.machine.Close()
	}
}

// rested are the executions whose rests may be over, and when the next one may be.
func (p *scheduler) rested(now time.Time) (due []int64, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for execution, rest := range p.resting {
		switch {
		case !rest.ask.After(now):
			due = append(due, execution)
		case next.IsZero() || rest.ask.Before(next):
			next = rest.ask
		}
	}
	slices.Sort(due)
	return due, next
}

// restOf is the rest of an execution, and askAgain changes when to ask for it. A wake-up meanwhile stays.
func (p *scheduler) restOf(execution int64) (rest resting, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest, some = p.resting[execution]; some {
		kept := rest
		kept.woken = false
		p.resting[execution] = kept
	}
	return rest, some
}

func (p *scheduler) askAgain(execution int64, rest resting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, some := p.resting[execution]; some && !now.woken {
		rest.held = now.held
		p.resting[execution] = rest
	}
}

// why is why an execution rests.
func (p *scheduler) why(execution int64) Rest {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[execution] != nil {
		return AtWork
	}
	return p.resting[execution].why
}

// job is an execution that is to be driven: one that this process has just stored, or one that it owns at a turn.
type job struct {
	id, turn int64
	// organization is whose it is.
	organization int64
	started      *Loaded
	// run has had the first turn of started already; nil if that is still to come.
	run *run
	// wakeup is why it was woken.
	wakeup *Wakeup
	// rested is set if it has rested before this, and cancelled if that was ended by a cancellation.
	rested, cancelled bool
}

// scheduler are the executions in this process. An execution is driven by one goroutine, or queues for that, or is parked
// in the cache, and never in two of these at once, so that a wake-up finds it.
//
// It is safe for concurrent use. It is a cache: a process that loses all of it continues from the store.
type scheduler struct {
	mu sync.Mutex
	// limit is how many may be driven at a time, and how many may queue.
	limit int
	lease Lease
	// drive starts a run; nil before open and after shut.
	drive func(job, wake.Signal)
	// live are those that are driven, with the signal that wakes them; queued those that wait for a place: in started those that this
	// process has stored, in woken those that it owns for another reason. The two take turns, so that new
	// runs do not wait for all that a crash has left, and the other way round. Within each the organizations take turns.
	live           map[int64]wake.Signal
	started, woken fair.Queue[job]
	queued         map[int64]bool
	// resting are executions that have no place and are in this process until they may continue; wakes wakes the loop that asks.
	resting map[int64]resting
	wakes   func()
	// resumed are those that were resumed while the store held them, until it does not any more.
	resumed map[int64]struct{}
	// turn is set if a started one is next.
	turn bool
	// reserved are places kept for executions that are being stored, and reservedBy those of each organization that has some.
	reserved   int
	reservedBy map[int64]int
	// whenFree is called once, as soon as there is a place again.
	whenFree func()
	parked   cache
}

func newScheduler(limit int, cacheBytes int64) *scheduler {
	return &scheduler{
		limit: limit, live: map[int64]wake.Signal{}, queued: map[int64]bool{}, resting: map[int64]resting{},
		resumed: map[int64]struct{}{}, wakes: func() {},
		reservedBy: map[int64]int{}, parked: newCache(cacheBytes),
	}
}

func (p *scheduler) open(l Lease, drive func(job, wake.Signal)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease, p.drive = l, drive
}

// shut lets no run start any more, and gives up what is parked.
func (p *scheduler) shut() {
	p.mu.Lock()
	parked := p.parked.clear()
	for j, more := p.started.Pop(); more; j, more = p.started.Pop() {
		if j.run != nil {
			parked = append(parked, j.run)
		}
	}
	p.drive, p.woken = nil, fair.Queue[job]{}
	clear(p.queued)
	clear(p.resting)
	p.mu.Unlock()
	closeAll(parked)
}

// reserve keeps a place. Where one organization's starts have filled the queue, others still have their share of half as much again:
// without a place, a start waits in the store behind all that others have there.
func (p *scheduler) reserve(organization int64) (Lease, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drive == nil {
		return Lease{}, false
	}
	if taken := len(p.live) + p.started.Len() + p.reserved; taken >= 2*p.limit {
		share := max(1, p.limit/(p.started.Tenants()+1))
		if taken >= 3*p.limit || p.started.Of(organization)+p.reservedBy[organization] >= share {
			return Lease{}, false
		}
	}
	p.reserved++
	p.reservedBy[organization]++
	return p.lease, true
}

func (p *scheduler) release(organization int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unreserve(organization)
}

func (p *scheduler) unreserve(organization int64) {
	p.reserved--
	if p.reservedBy[organization]--; p.reservedBy[organization] == 0 {
		delete(p.reservedBy, organization)
	}
}

// begin drives an execution that was just stored, where prepared has run its first turn from there on. false: it does not,
// because the claim loop has found it between its commit and now, or because nothing more is driven.
func (p *scheduler) begin(l Loaded, prepared *run) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unreserve(l.Organization)
	if p.drive == nil || p.live[l.ID] != nil || p.queued[l.ID] {
		return false
	}
	p.add(job{id: l.ID, organization: l.Organization, started: &l, run: prepared})
	return true
}

// wake reports whether the execution is, or now comes, into this process's hands.
func (p *scheduler) wake(w Woken) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if woken := p.live[w.ID]; woken != nil {
		woken.Raise()
		return true
	}
	if p.queued[w.ID] {
		return true
	}
	if rest, rests := p.resting[w.ID]; rests {
		rest.ask, rest.read, rest.woken = time.Time{}, time.Time{}, true // it may have been cancelled
		rest.held = time.Time{}                                          // and was claimed, if it is not held
		p.resting[w.ID] = rest
		p.wakes()
		return true
	}
	if w.Ours && p.drive != nil {
		p.add(job{id: w.ID, organization: w.Organization, turn: w.Turn, wakeup: w.Wakeup})
		return true
	}
	return false
}

// add drives a job or queues it. The queue is not bounded here: claimed jobs have to be driven, and they are small, except those that this
// process has stored, which reserve bounds.
func (p *scheduler) add(j job) {
	if p.drive == nil {
		return
	}
	if len(p.live) >= p.limit {
		if j.started != nil {
			p.started.Push(j.organization, j)
		} else {
			p.woken.Push(j.organization, j)
		}
		p.queued[j.id] = true
		return
	}
	woken := wake.NewSignal()
	p.live[j.id] = woken
	p.drive(j, woken)
}

// here are the executions that the claim loop must not take again, and how many more it may. The store takes none that it holds.
func (p *scheduler) here(now time.Time) (ids []int64, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids = make([]int64, 0, len(p.live)+len(p.queued))
	for execution := range p.live {
		ids = append(ids, execution)
	}
	for execution := range p.queued {
		ids = append(ids, execution)
	}
	for execution, rest := range p.resting {
		if !rest.held.After(now) {
			ids = append(ids, execution)
		}
	}
	return ids, p.limit - len(p.live) - len(p.queued)
}

// has reports whether an execution is in this process, but for one that is parked.
func (p *scheduler) has(execution int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, rests := p.resting[execution]
	return rests || p.live[execution] != nil || p.queued[execution]
}

// callWhenFree calls fn once, when a place becomes free.
func (p *scheduler) callWhenFree(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whenFree = fn
}

// park moves a run into the cache. false: it was woken meanwhile, and has to look.
func (p *scheduler) park(r *run, woken wake.Signal) bool {
	p.mu.Lock()
	if woken.Taken() {
		p.mu.Unlock()
		return false
	}
	evicted := []*run{r}
	if p.drive != nil { // else the process ends, and nobody would take it out again
		evicted = p.parked.put(r)
	}
	p.free(r.loaded.ID)
	p.mu.Unlock()
	closeAll(evicted)
	return true
}

// unpark takes an execution out of the cache, if the cached one is at the turn that is stored.
func (p *scheduler) unpark(j job) *run {
	p.mu.Lock()
	r := p.parked.take(j.id)
	p.mu.Unlock()
	if r != nil && (j.started != nil || r.loaded.Turn != j.turn) {
		r.machine.Close() // another process has advanced it: what is cached is out of date
		return nil
	}
	return r
}

// leave ends a run's part, where it does not park.
func (p *scheduler) leave(execution int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(execution)
}

// free gives a run's place to the next.
func (p *scheduler) free(execution int64) {
	delete(p.live, execution)
	if len(p.queued) > 0 && len(p.live) < p.limit {
		next := p.next()
		delete(p.queued, next.id)
		p.add(next)
	}
	if p.whenFree != nil && len(p.queued) == 0 {
		p.whenFree()
		p.whenFree = nil
	}
}

// next takes the first job, of the organization whose turn it is, of the queue whose turn it is, or else of the other.
func (p *scheduler) next() job {
	p.turn = !p.turn
	queue := &p.woken
	if p.woken.Len() == 0 || p.turn && p.started.Len() > 0 {
		queue = &p.started
	}
	next, _ := queue.Pop()
	return next
}
