package sandbox

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// tenement is a child with the runs that live in it, all of one organization. A single one never takes a second run.
type tenement struct {
	*process

	organization int64
	single       bool
	// runs live in it; pinned are requests that are under way or about to be.
	runs, pinned int
	// used is when it had something to do last.
	used time.Time
	// started is closed when process has been started, or failed says why it was not.
	started chan struct{}
	failed  error
}

// places are the children. Each is of one organization for as long as it lives: what one organization's program could leave behind in a
// child, the next one's never meets. An organization without one gets one. If there are as many as allowed, the child of another
// organization that has been idle longest is ended for it; its runs are replayed when they continue. If all are at work, it waits for
// its turn. An organization has more than one only while half of all places are left for others.
type places struct {
	start func() (*process, error)
	// most is how many children there may be, and share how many of one organization.
	most, share int

	mu       sync.Mutex
	children []*tenement
	// waiting are runs that found no place, the organizations in turns.
	waiting fair.Queue[*waiter]
	closed  bool
	// spare is a child that has been started and belongs to nobody yet; preparing is set if one is being started.
	spare     *process
	preparing bool
	// under are starts of spares that are under way.
	under sync.WaitGroup
	// moved counts the children that were ended for others.
	moved int64

	// clock and budget are for watch, which looks what the children hold while one of them works; working is how many requests are under way,
	// and requests how many have begun.
	clock    clock.Clock
	budget   int64
	working  int
	requests uint64
	watching bool
	// resident is what a process holds, in bytes.
	resident func(pid int) int64
}

// waiter is a run that waits for a place. It is sent what find has found.
type waiter struct {
	organization int64
	single       bool
	found        chan found
}

// found is a child for a run, nil when all are closed. A fresh one is not started yet.
type found struct {
	home  *tenement
	fresh bool
}

// errClosed is for who comes when the service stops.
var errClosed = errors.New("the service is stopping")

// enter finds a place for a run of an organization. It is pinned: the caller has to release it.
func (p *places) enter(organization int64, single bool) (*tenement, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	f := p.find(organization, single)
	if f.home == nil {
		w := &waiter{organization: organization, single: single, found: make(chan found, 1)}
		p.waiting.Push(organization, w)
		p.look()
		p.mu.Unlock()
		if f = <-w.found; f.home == nil {
			return nil, errClosed
		}
	} else {
		p.mu.Unlock()
	}
	if f.fresh {
		p.fill(f.home)
	}
	<-f.home.started
	if err := f.home.failed; err != nil {
		p.leave(f.home)
		return nil, fault.Because(err, fault.Unavailable, "no process for the program: %s", err)
	}
	return f.home, nil
}

// find answers a child that takes the run, which lives there and is pinned from now on, or none where it has to wait.
func (p *places) find(organization int64, single bool) (f found) {
	var mine int
	for _, c := range p.children {
		if c.organization != organization || c.isDead() {
			continue
		}
		mine++
		if !single && !c.single && (f.home == nil || c.before(f.home)) {
			f.home = c
		}
	}
	if p.another(f.home, organization, mine, single) {
		f = found{home: &tenement{organization: organization, single: single, started: make(chan struct{})}, fresh: true}
		p.children = append(p.children, f.home)
	}
	if f.home != nil {
		f.home.runs++
		f.home.pinned++
	}
	return f
}

// another reports whether an organization that has mine children gets one more, for which another one may have had to end. best is the one
// it would have otherwise, if any.
func (p *places) another(best *tenement, organization int64, mine int, single bool) bool {
	if best != nil && (best.pinned == 0 || mine >= p.share || len(p.children) >= p.most/2) {
		return false // it is idle, or a further one would be a luxury
	}
	if mine >= p.share {
		return single && p.evict(func(c *tenement) bool { return c.organization == organization })
	}
	return len(p.children) < p.most || p.evict(func(*tenement) bool { return true })
}

// before reports whether a run is better off in t than in other.
func (t *tenement) before(other *tenement) bool {
	if t.pinned != other.pinned {
		return t.pinned < other.pinned
	}
	return t.runs < other.runs
}

// isDead reports whether a child has been started and can be used no more.
func (t *tenement) isDead() bool {
	select {
	case <-t.started:
		return t.failed != nil || t.dead()
	default:
		return false
	}
}

// settled is how long a child is idle before it is ended for another organization: a run gets on before it has to move, however many want
// its place.
const settled = 100 * time.Millisecond

// evict ends the child that has been idle longest, of those that qualify.
func (p *places) evict(qualifies func(*tenement) bool) bool {
	var oldest *tenement
	for _, c := range p.children {
		if c.pinned == 0 && qualifies(c) && (oldest == nil || c.used.Before(oldest.used)) {
			oldest = c
		}
	}
	if oldest == nil || !oldest.isStarted() || p.clock.Now().Sub(oldest.used) < settled {
		return false
	}
	oldest.closeIfIdle() // nobody has pinned it, so it is
	p.drop(oldest)
	p.moved++
	return true
}

func (p *places) drop(home *tenement) {
	p.children = slices.DeleteFunc(p.children, func(c *tenement) bool { return c == home })
}

// fill starts the child of a place.
func (p *places) fill(home *tenement) {
	p.mu.Lock()
	process := p.spare
	p.spare = nil
	p.mu.Unlock()
	var err error
	if process == nil || process.dead() {
		process, err = p.start()
	}
	if err == nil {
		process.organization = home.organization
	}
	p.mu.Lock()
	home.process, home.failed = process, err
	close(home.started) // from here on close ends it
	if err == nil {
		p.prepare()
	}
	p.mu.Unlock()
}

// prepare starts a child for the next organization that comes, so that it does not wait for that.
func (p *places) prepare() {
	if p.spare != nil || p.preparing || p.closed {
		return
	}
	p.preparing = true
	p.under.Go(func() {
		process, err := p.start()
		p.mu.Lock()
		p.preparing = false
		late := p.closed
		if err == nil && !late {
			p.spare = process
		}
		p.mu.Unlock()
		if err == nil && late {
			process.close()
		}
	})
}

// ask has a child do something for a run in it. One that was ended for others says so.
func (p *places) ask(home *tenement, req request, env program.Environment, within time.Duration) (reply, error) {
	p.begin(home)
	defer p.done(home)
	return home.do(req, env, within)
}

// begin is before a request, done behind it.
func (p *places) begin(home *tenement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	home.pinned++
	p.working++
	p.requests++
	p.look()
}

func (p *places) done(home *tenement) {
	p.mu.Lock()
	p.working--
	p.mu.Unlock()
	p.release(home)
}

// placesWatchedEvery is how often watch looks.
const placesWatchedEvery = 25 * time.Millisecond

// look has watch run.
func (p *places) look() {
	if !p.watching && !p.closed {
		p.watching = true
		p.under.Go(p.watch)
	}
}

// watch keeps what the children hold within the budget, and finds places for those that wait, until no child works and nobody waits.
func (p *places) watch() {
	for more := true; more; {
		timer := p.clock.NewTimer(placesWatchedEvery)
		<-timer.C()
		p.mu.Lock()
		idle, before := p.working == 0, p.requests // what is looked at from here on does not grow, unless another request begins
		p.mu.Unlock()
		p.shed(p.budget)
		p.mu.Lock()
		p.serve()
		more = !p.closed && (!idle || p.working > 0 || p.requests != before || p.waiting.Len() > 0)
		p.watching = more
		p.mu.Unlock()
	}
}

// release is behind a request, and behind enter.
func (p *places) release(home *tenement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	home.pinned--
	home.used = p.clock.Now()
	p.serve()
}

// leave gives a place back that was entered and not released. A child of one run ends with it.
func (p *places) leave(home *tenement) {
	p.release(home)
	p.quit(home)
}

// quit ends a run's stay. A child of one run ends with it, and dead ones are forgotten.
func (p *places) quit(home *tenement) {
	if home.single && home.process != nil {
		home.close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	home.runs--
	p.serve()
}

// serve forgets the children that are dead, and gives those that wait their places, the organizations in turns, as far as there are any.
func (p *places) serve() {
	p.children = slices.DeleteFunc(p.children, func(c *tenement) bool { return c.isDead() })
	var still []*waiter
	for w, waits := p.waiting.Pop(); waits; w, waits = p.waiting.Pop() {
		if f := p.find(w.organization, w.single); f.home != nil {
			w.found <- f
		} else {
			still = append(still, w)
		}
	}
	for _, w := range still {
		p.waiting.Push(w.organization, w)
	}
}

// all are the children that exist.
func (p *places) all() []*tenement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.children), func(c *tenement) bool { return !c.isStarted() || c.isDead() })
}

func (t *tenement) isStarted() bool {
	select {
	case <-t.started:
		return true
	default:
		return false
	}
}

// shed ends children until what they hold is within budget: idle ones first, those that were idle longest, and then those at work
// (busiest).
func (p *places) shed(budget int64) {
	total, held := int64(0), map[*tenement]int64{}
	for _, c := range p.all() {
		held[c] = p.resident(c.pid())
		total += held[c]
	}
	for total > budget {
		p.mu.Lock()
		victim := victim(held, budget)
		if victim == nil {
			p.mu.Unlock()
			return
		}
		total -= held[victim]
		delete(held, victim)
		p.drop(victim)
		p.moved++
		idle := victim.pinned == 0
		p.mu.Unlock()
		if !idle || !victim.closeIfIdle() {
			victim.move()
		}
		p.mu.Lock()
		p.serve()
		p.mu.Unlock()
	}
}

// victim is the child to end next; nil: there is none but one that works.
func victim(held map[*tenement]int64, budget int64) *tenement {
	var idle *tenement
	busy := map[*tenement]int64{}
	for c, bytes := range held {
		switch {
		case c.pinned > 0:
			busy[c] = bytes
		case idle == nil || c.used.Before(idle.used):
			idle = c
		}
	}
	if idle == nil && len(busy) > 1 {
		return busiest(busy, budget)
	}
	return idle
}

// busiest is the child to end of those that work: of the organizations that hold more than their equal share of the budget the one whose
// request is the latest. Otherwise programs that hold a lot for long would have those of everybody else ended, as these begin later. The
// oldest request of all stays, so that there is always one that comes to its end.
func busiest(busy map[*tenement]int64, budget int64) *tenement {
	var oldest, latest, greedy *tenement
	holds := map[int64]int64{}
	for c, bytes := range busy {
		holds[c.organization] += bytes
		if oldest == nil || c.begun.Load() < oldest.begun.Load() {
			oldest = c
		}
	}
	for c := range busy {
		if c == oldest {
			continue
		}
		if latest == nil || c.begun.Load() > latest.begun.Load() {
			latest = c
		}
		if holds[c.organization] > budget/int64(len(holds)) && (greedy == nil || c.begun.Load() > greedy.begun.Load()) {
			greedy = c
		}
	}
	return cmp.Or(greedy, latest)
}

// close ends all children, and waits for those that are being started.
func (p *places) close() {
	p.mu.Lock()
	p.closed = true
	children, spare := p.children, p.spare
	p.children, p.spare = nil, nil
	for w, waits := p.waiting.Pop(); waits; w, waits = p.waiting.Pop() {
		w.found <- found{}
	}
	p.mu.Unlock()
	for _, c := range children {
		<-c.started
		if c.failed == nil {
			c.move() // not when its request is done: that may take long
			c.close()
		}
	}
	if spare != nil {
		spare.close()
	}
	p.under.Wait()
}

// spawner starts processes on one thread that lives until stop: the kernel ends a child with the thread that has made it (attributes).
type spawner struct{ work chan func() }

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for do := range s.work {
			do()
		}
	}()
	return s
}

// do runs start on the thread.
func (s *spawner) do(start func() error) error {
	done := make(chan error, 1)
	s.work <- func() { done <- start() }
	return <-done
}

func (s *spawner) stop() { close(s.work) }

// moved reports whether a child is gone in favor of others.
func moved(err error) bool { return errors.Is(err, errMoved) }
