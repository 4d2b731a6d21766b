// Package limit bounds what an organization uses: open runs, starts and events per second, and storage. Work in progress continues; only
// new work is refused, or waits. Decisions use counts that are some seconds old, plus what this process has admitted since.
//
// Callers and programs meet limits in different ways (program.go): a caller is refused, a program gets an error that it can catch where
// only the end of other work helps, and waits where time does.
package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// Limits is what an organization may use; a field with 0 sets no limit.
type Limits struct {
	// OpenRuns are runs that have not ended.
	OpenRuns int64 `json:"open_runs"`
	// StartsPerSecond and EventsPerSecond apply to all replicas together; a burst may be as large.
	StartsPerSecond int64 `json:"starts_per_second"`
	EventsPerSecond int64 `json:"events_per_second"`
	// StorageBytes are the runs, histories, events and payloads in the database.
	StorageBytes int64 `json:"storage_bytes"`
	// CallsPerSecond are calls of channels over all replicas; five seconds of them may come at once. 0 is callsDefault at each replica.
	CallsPerSecond int64 `json:"calls_per_second,omitempty"`
}

// The calls of channels of an organization without a limit of its own, per second and replica, and for how many seconds of them there is a
// burst.
const (
	callsDefault = 200
	callsBurst   = 5
)

// Everyone is the organization whose limits apply to all that have none of their own.
const Everyone = 0

// Change is a change of limits.
type Change struct {
	Organization int64
	// To are the new limits; nil to have those of Everyone again.
	To         *Limits
	By, Reason string
	At         time.Time
}

// Changed is a change that was made, of limits or of rules of retention. Before and After are JSON.
type Changed struct {
	At                  time.Time
	Setting, By, Reason string
	Before, After       string
}

// Store keeps limits, and counts. Each method is one transaction.
type Store interface {
	// Limits reads all limits by organization, and how many processes are alive.
	Limits(ctx context.Context, now time.Time) (byOrganization map[int64]Limits, processes int64, err error)
	SetLimits(ctx context.Context, c Change) error
	// Changes are the newest changes of an organization's settings.
	Changes(ctx context.Context, organization int64, most int) ([]Changed, error)
	// OpenRuns counts the runs of each organization that have not ended.
	OpenRuns(ctx context.Context) (map[int64]int64, error)
	// Storage is the size of what an organization has stored, in bytes.
	Storage(ctx context.Context, organization int64) (int64, error)
}

// The intervals. Counting takes at most a share of the time, however long it takes.
const (
	refresh      = 2 * time.Second
	countEvery   = 5 * time.Second
	measureEvery = time.Minute
	countShare   = 20
	measureShare = 100
)

// mostChanges is how many changes are shown.
const mostChanges = 50

// Kinds of limits, as metrics have them.
const (
	OpenRuns = iota
	Starts
	Events
	Storage
	Calls
	kinds
)

// Names are the kinds' names.
func Names() [kinds]string {
	return [kinds]string{"open_runs", "starts_per_second", "events_per_second", "storage_bytes", "calls_per_second"}
}

// Limiter keeps organizations within their limits.
type Limiter struct {
	store   Store
	clock   clock.Clock
	log     *slog.Logger
	refused [kinds]atomic.Int64
	waits   [kinds]atomic.Int64
	// none is set while there are no limits at all: then nothing is counted for them.
	none atomic.Bool

	mu        sync.Mutex
	limits    map[int64]Limits
	processes int64
	tenants   map[int64]*tenant
	// counted and measured are when the next count and measurement are due.
	counted, measured time.Time
}

// tenant is the known use of an organization.
type tenant struct {
	open, stored int64
	calls        bucket
	// used are the rates of late.
	used [kinds]average
	// claimed are children that programs have started in turns that are not stored yet.
	claimed int64
	// own are the rates of callers and programs, and domain those of the domain service's runs.
	own, domain rates
}

// bucket is a rate, as tokens that fill up.
type bucket struct {
	tokens float64
	at     time.Time
}

// fill has a bucket at a rate per second have what it gained since it was last used, up to a burst.
func (b *bucket) fill(rate, burst float64, now time.Time) {
	if b.at.IsZero() {
		b.tokens = max(burst, 1)
	} else {
		b.tokens = min(max(burst, 1), b.tokens+rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
}

// take takes a token from a bucket that is filled at a rate per second. If it has none, wait is the time until it has.
func (b *bucket) take(rate, burst float64, now time.Time) (ok bool, wait time.Duration) {
	if b.fill(rate, burst, now); b.tokens < 1 {
		return false, time.Duration((1 - b.tokens) / rate * float64(time.Second))
	}
	b.tokens--
	return true, 0
}

// New makes a Limiter without limits; Run reads them.
func New(store Store, c clock.Clock, log *slog.Logger) *Limiter {
	return &Limiter{store: store, clock: c, log: log, processes: 1, tenants: map[int64]*tenant{}}
}

// Run reads limits and counts until ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.Refresh(ctx); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "reading limits failed; those that are known hold", "error", err)
		}
		_ = clock.Sleep(ctx, l.clock, refresh) // ends early with ctx
	}
	return nil
}

// Refresh reads the limits, and counts what is limited if a count is due.
func (l *Limiter) Refresh(ctx context.Context) error {
	now := l.clock.Now()
	limits, processes, err := l.store.Limits(ctx, now)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.limits, l.processes = limits, max(1, processes)
	l.none.Store(len(limits) == 0)
	count, measure := false, map[int64]bool{}
	for organization, of := range limits {
		count = count || of.OpenRuns > 0
		if of.StorageBytes > 0 && organization != Everyone {
			measure[organization] = true
		}
	}
	for organization := range l.tenants {
		if l.of(organization).StorageBytes > 0 {
			measure[organization] = true
		}
	}
	count = count && !now.Before(l.counted)
	if now.Before(l.measured) {
		clear(measure)
	}
	l.mu.Unlock()
	if count {
		if err := l.count(ctx); err != nil {
			return err
		}
	}
	return l.measure(ctx, measure)
}

// count counts runs that have not ended.
func (l *Limiter) count(ctx context.Context) error {
	began, before := l.clock.Now(), map[int64]int64{}
	l.mu.Lock()
	for organization, t := range l.tenants {
		before[organization] = t.open
	}
	l.mu.Unlock()
	counts, err := l.store.OpenRuns(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for organization := range counts {
		l.tenant(organization)
	}
	for organization, t := range l.tenants {
		t.open += counts[organization] - before[organization] // what has begun and ended meanwhile stays counted
	}
	now := l.clock.Now()
	l.counted = now.Add(max(countEvery, countShare*now.Sub(began)))
	return nil
}

// measure reads the sizes of what organizations have stored.
func (l *Limiter) measure(ctx context.Context, organizations map[int64]bool) error {
	if len(organizations) == 0 {
		return nil
	}
	began := l.clock.Now()
	for organization := range organizations {
		bytes, err := l.store.Storage(ctx, organization)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.tenant(organization).stored = bytes
		l.mu.Unlock()
	}
	now := l.clock.Now()
	l.mu.Lock()
	l.measured = now.Add(max(measureEvery, measureShare*now.Sub(began)))
	l.mu.Unlock()
	return nil
}

// tenant and of are called under the lock.
func (l *Limiter) tenant(organization int64) *tenant {
	t := l.tenants[organization]
	if t == nil {
		t = &tenant{}
		l.tenants[organization] = t
	}
	return t
}

func (l *Limiter) of(organization int64) Limits {
	if own, ok := l.limits[organization]; ok {
		return own
	}
	return l.limits[Everyone]
}

// Start admits a start with so many bytes of inputs, or refuses it with fault.Limited.
func (l *Limiter) Start(organization int64, bytes int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, of := l.tenant(organization), l.of(organization)
	if of == (Limits{}) {
		return nil
	}
	if err := l.place(t, of, organization); err != nil {
		return err
	}
	if err := l.room(t, of, organization); err != nil {
		return err
	}
	if of.StartsPerSecond > 0 {
		if ok, wait := t.own.starts.take(l.share(of.StartsPerSecond), l.clock.Now()); !ok {
			return l.refuse(Starts, "organization %d starts runs more often than %d times a second; retry after %s", organization, of.StartsPerSecond,
				wait.Round(time.Millisecond))
		}
	}
	t.used[Starts].add(1, l.clock.Now())
	t.stored += int64(bytes)
	return nil
}

// Event admits an event or message with so many bytes of data, or refuses it with fault.Limited.
func (l *Limiter) Event(organization int64, bytes int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, of := l.tenant(organization), l.of(organization)
	if of == (Limits{}) {
		return nil
	}
	if err := l.room(t, of, organization); err != nil {
		return err
	}
	if of.EventsPerSecond > 0 {
		if ok, wait := t.own.events.take(l.share(of.EventsPerSecond), l.clock.Now()); !ok {
			return l.refuse(Events, "organization %d sends events more often than %d times a second; retry after %s", organization,
				of.EventsPerSecond, wait.Round(time.Millisecond))
		}
	}
	t.used[Events].add(1, l.clock.Now())
	t.stored += int64(bytes)
	return nil
}

// Call admits a call of a channel, or refuses it with fault.Limited.
func (l *Limiter) Call(organization int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, limit := l.tenant(organization), l.of(organization).CallsPerSecond
	rate := l.share(limit)
	if limit == 0 {
		limit, rate = callsDefault, callsDefault
	}
	now := l.clock.Now()
	if ok, wait := t.calls.take(rate, callsBurst*rate, now); !ok {
		return l.refuse(Calls, "organization %d calls channels more often than %d times a second; retry after %s", organization, limit,
			wait.Round(time.Millisecond))
	}
	t.used[Calls].add(1, now)
	return nil
}

// place refuses a run that would exceed the limit of open ones.
func (l *Limiter) place(t *tenant, of Limits, organization int64) error {
	if open := t.open + t.claimed; of.OpenRuns > 0 && open >= of.OpenRuns {
		return l.refuse(OpenRuns, "found %d open runs of organization %d, expected fewer than %d: wait until some have ended", open, organization,
			of.OpenRuns)
	}
	return nil
}

// room refuses data that would exceed the limit of storage.
func (l *Limiter) room(t *tenant, of Limits, organization int64) error {
	if of.StorageBytes > 0 && t.stored >= of.StorageBytes {
		return l.refuse(Storage, "found %d bytes that organization %d has stored, expected fewer than %d: shorten the retention of ended runs",
			t.stored, organization, of.StorageBytes)
	}
	return nil
}

// share returns this process's part of a rate.
func (l *Limiter) share(rate int64) float64 { return float64(rate) / float64(l.processes) }

func (l *Limiter) refuse(kind int, format string, args ...any) error {
	l.refused[kind].Add(1)
	return fault.New(fault.Limited, format, args...)
}

// Tally counts runs of an organization that have begun, or ended if the number is negative.
func (l *Limiter) Tally(organization, runs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(organization)
	t.open = max(0, t.open+runs)
}

// Refused returns the number of refusals of this process, by kind.
func (l *Limiter) Refused() (counts [kinds]int64) {
	for kind := range counts {
		counts[kind] = l.refused[kind].Load()
	}
	return counts
}

// Standing is what an organization may use, and what it uses.
type Standing struct {
	Limits
	// Own is set if the limits are its own, and not those of Everyone.
	Own bool
	// Runs and Bytes are what it uses now: counted for this answer. Rates are per second, of late and by kind, as this process has them.
	Runs, Bytes int64
	Rates       [kinds]float64
	Changes     []Changed
}

// Get returns the limits and the use of an organization.
func (l *Limiter) Get(ctx context.Context, organization int64) (s Standing, err error) {
	limits, _, err := l.store.Limits(ctx, l.clock.Now())
	if err != nil {
		return s, err
	}
	if s.Limits, s.Own = limits[organization]; !s.Own {
		s.Limits = limits[Everyone]
	}
	if s.Changes, err = l.store.Changes(ctx, organization, mostChanges); err != nil || organization == Everyone {
		return s, err
	}
	runs, err := l.store.OpenRuns(ctx)
	if err != nil {
		return s, err
	}
	s.Runs, s.Rates = runs[organization], l.ratesOf(organization)
	s.Bytes, err = l.store.Storage(ctx, organization)
	return s, err
}

// Set changes the limits of an organization, or of Everyone. Other replicas follow within seconds.
func (l *Limiter) Set(ctx context.Context, c Change) error {
	if c.Organization < 0 {
		return fault.InvalidFields(fault.Field{Name: "organization_id", Problem: fmt.Sprintf("found %d, expected 0 or more", c.Organization)})
	}
	if err := execution.CheckReason(c.Reason, 0); err != nil {
		return err
	}
	if c.To != nil {
		for name, value := range map[string]int64{
			"open_runs": c.To.OpenRuns, "starts_per_second": c.To.StartsPerSecond, "events_per_second": c.To.EventsPerSecond,
			"storage_bytes": c.To.StorageBytes, "calls_per_second": c.To.CallsPerSecond,
		} {
			if value < 0 {
				return fault.InvalidFields(fault.Field{Name: name, Problem: fmt.Sprintf("found %d, expected 0, which is no limit, or more", value)})
			}
		}
	}
	c.At = l.clock.Now()
	if err := l.store.SetLimits(ctx, c); err != nil {
		return err
	}
	l.mu.Lock()
	l.counted, l.measured = time.Time{}, time.Time{}
	l.mu.Unlock()
	return l.Refresh(ctx)
}
