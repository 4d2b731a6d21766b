package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Limits bound the resources of a process's fetches. A tenant who names a repository also chooses its server, so neither the content of the
// repository nor the server's answers can be trusted. 0 means the default.
type Limits struct {
	// MemoryBytes is the memory that all fetches of the process share. One fetch gets at most a quarter of it.
	MemoryBytes int64 `koanf:"memory_bytes" default:"268435456"`
	// TransferBytes bounds what the server may send for one fetch, as transmitted. Above a small size it is stored in a temporary file; at
	// most two such files exist at a time.
	TransferBytes int64 `koanf:"transfer_bytes" default:"268435456"`
	// InflatedBytes bounds its size after decompression, which costs time but no memory.
	InflatedBytes int64 `koanf:"inflated_bytes" default:"4294967296"`
	// Objects bounds the number of commits, folders and files in one fetch.
	Objects int64 `koanf:"objects" default:"1000000"`
}

// The smallest useful limits, and the defaults.
const (
	minMemory       = 64 << 20
	minTransfer     = 1 << 20
	defaultMemory   = 256 << 20
	defaultTransfer = 256 << 20
	defaultInflated = 4 << 30
	defaultObjects  = 1_000_000
)

// The division of the memory: half is for small shares, which almost every fetch fits into, half for large ones.
const (
	smallShares = 32
	largeShares = 2
	// No organization holds more small shares than this, so that repositories on slow servers leave some to the others; nor more than one
	// large share.
	smallOfOne = 24
	largeOfOne = 1
	// baseUse is what a fetch needs beside its data: the buffers of its connection, and the state of a decompression.
	baseUse = 128 << 10
)

// Check returns the problems of the limits, by key below the prefix.
func (l Limits) Check(prefix string) []fault.Field {
	var wrong []fault.Field
	for _, one := range []struct {
		key          string
		found, least int64
	}{
		{"memory_bytes", l.MemoryBytes, minMemory},
		{"transfer_bytes", l.TransferBytes, minTransfer},
		{"inflated_bytes", l.InflatedBytes, minTransfer},
		{"objects", l.Objects, 1},
	} {
		if one.found != 0 && one.found < one.least {
			wrong = append(wrong, fault.Field{
				Name:    prefix + "." + one.key,
				Problem: fmt.Sprintf("found %d, expected at least %d", one.found, one.least),
			})
		}
	}
	return wrong
}

// withDefaults replaces zeros by the defaults.
func (l Limits) withDefaults() Limits {
	for _, one := range []struct {
		of      *int64
		initial int64
	}{
		{&l.MemoryBytes, defaultMemory},
		{&l.TransferBytes, defaultTransfer},
		{&l.InflatedBytes, defaultInflated},
		{&l.Objects, defaultObjects},
	} {
		if *one.of == 0 {
			*one.of = one.initial
		}
	}
	return l
}

// Budget is the resource budget, above all memory, that all fetches of a process share. It is safe for concurrent use.
//
// A fetch begins with a small share. If it needs more, it releases its share, waits for a large one, and begins again: a waiting fetch
// holds nothing, so fetches cannot block each other, and organizations take turns.
type Budget struct {
	limits       Limits
	small, large shares
	metrics      *metrics
}

// NewBudget returns a budget; zeros in the limits mean the defaults.
func NewBudget(l Limits) *Budget {
	l = l.withDefaults()
	b := &Budget{limits: l}
	b.small = newShares(smallShares, smallOfOne, l.MemoryBytes/2/smallShares)
	b.large = newShares(largeShares, largeOfOne, l.MemoryBytes/2/largeShares)
	b.metrics = newMetrics(b)
	return b
}

// Limits returns the limits in effect.
func (b *Budget) Limits() Limits { return b.limits }

// RequestTimeout bounds one exchange with a server, including reading the answer.
const RequestTimeout = time.Minute

// MaxBody is the body limit for the transport below a Transport: practically none, since the limits here bound it, and their errors name
// the limit.
const MaxBody = 1 << 62

// Do runs f with a share of the budget for an organization. All requests of f over a Transport must use its context. f may run twice: what
// the first attempt read is discarded. If a limit was exceeded, the error is a *LimitError instead of f's own.
func (b *Budget) Do(ctx context.Context, organization int64, f func(context.Context, *Share) error) error {
	s, err := b.in(ctx, &b.small, organization, f)
	if err == nil || s == nil || !s.outgrown.Load() {
		return err
	}
	_, err = b.in(ctx, &b.large, organization, f)
	return err
}

// in runs f with one of the shares. The share is nil if none could be acquired.
func (b *Budget) in(ctx context.Context, of *shares, organization int64, f func(context.Context, *Share) error) (*Share, error) {
	if err := of.acquire(ctx, organization); err != nil {
		return nil, fault.Because(err, fault.Unavailable, "waited for memory to read a repository with: other fetches have all of it")
	}
	defer of.release(organization)
	s := &Share{budget: b, memory: of.size, large: of == &b.large, ended: ctx.Err}
	defer s.end()
	if err := s.Use(baseUse); err != nil {
		return s, err
	}
	err := f(context.WithValue(ctx, shareKey{}, s), s)
	if err == nil {
		return s, nil
	}
	// The HTTP client and the Git library wrap the refusals of a share, not always so that they can be unwrapped.
	if refusal := s.refusal.Load(); refusal != nil {
		return s, refusal
	}
	return s, err
}

// shareKey is the context key of the share.
type shareKey struct{}

// LimitError is an exceeded limit: a retry is useless until the repository is smaller or the limit larger. Its text names what was found,
// what was expected, and the setting.
type LimitError struct {
	// Limit is memory, transfer, inflated or objects.
	Limit string
	text  string
}

// Error implements error.
func (e *LimitError) Error() string { return e.text }

// Share is the part of the budget that one fetch may use. It is safe for concurrent use.
type Share struct {
	budget *Budget
	memory int64
	large  bool
	// ended returns the reason if the caller has given up.
	ended func() error

	used, transferred, inflated, objects atomic.Int64
	// outgrown means that a small share was not enough; refusal is an exceeded limit that a large share would not change.
	outgrown atomic.Bool
	refusal  atomic.Pointer[LimitError]
	// closers are called when the share ends.
	mu      sync.Mutex
	closers []func()
}

// errOutgrown ends an attempt with a small share. It never leaves the package.
var errOutgrown = errors.New("the fetch needs a large share of the memory")

// Use takes memory. What is not returned with Free is returned when the share ends.
func (s *Share) Use(n int64) error {
	if s.tryUse(n) {
		return nil
	}
	return s.exceeded(s.used.Load() + n)
}

// exceeded returns the error of a share without room for n bytes.
func (s *Share) exceeded(n int64) error {
	if !s.large {
		s.outgrown.Store(true)
		return errOutgrown
	}
	return s.refuse("memory",
		"the repository needs %d bytes of memory or more, found room for %d, a quarter of git_limits.memory_bytes; read a smaller file or repository, or raise it", n, s.memory)
}

// tryUse takes memory if enough is free.
func (s *Share) tryUse(n int64) bool {
	if n < 0 || n > s.memory {
		return false
	}
	if s.used.Add(n) > s.memory {
		s.used.Add(-n)
		return false
	}
	s.budget.metrics.inUse.Add(n)
	return true
}

// Free returns memory.
func (s *Share) Free(n int64) {
	s.used.Add(-n)
	s.budget.metrics.inUse.Add(-n)
}

// transfer counts bytes received.
func (s *Share) transfer(n int64) error {
	s.budget.metrics.fetched.Add(n)
	if all, most := s.transferred.Add(n), s.budget.limits.TransferBytes; all > most {
		return s.refuse("transfer", "the server sends %d bytes or more, expected at most %d (git_limits.transfer_bytes)", all, most)
	}
	return nil
}

// inflate counts what is about to be decompressed, and fails if the caller has given up.
func (s *Share) inflate(n int64) error {
	if err := s.ended(); err != nil {
		return err
	}
	most := s.budget.limits.InflatedBytes
	if n < 0 || n > most || s.inflated.Add(n) > most {
		return s.refuse("inflated", "the repository is larger than %d bytes when decompressed, expected at most that (git_limits.inflated_bytes)", most)
	}
	return nil
}

// count counts objects.
func (s *Share) count(n int64) error {
	if all, most := s.objects.Add(n), s.budget.limits.Objects; all > most {
		return s.refuse("objects", "the server sends %d commits, folders and files or more, expected at most %d (git_limits.objects)", all, most)
	}
	return nil
}

// refuse records the first refusal, which Do returns to its caller.
func (s *Share) refuse(limit, format string, args ...any) error {
	err := &LimitError{Limit: limit, text: fmt.Sprintf(format, args...)}
	if s.refusal.CompareAndSwap(nil, err) {
		s.budget.metrics.refuse(limit)
	}
	return err
}

// atEnd registers f to be called when the share ends.
func (s *Share) atEnd(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

// end releases everything.
func (s *Share) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closers {
		f()
	}
	s.budget.metrics.inUse.Add(-s.used.Swap(0))
}

// shares are equal parts of the memory; an organization may hold some of them.
type shares struct {
	size  int64
	ofOne int
	all   *fair.Slots

	mu sync.Mutex
	// own holds the slots of organizations that hold a share or wait for one.
	own map[int64]*ownSlots
}

type ownSlots struct {
	slots *fair.Slots
	users int
}

func newShares(n, ofOne int, size int64) shares {
	return shares{size: size, ofOne: ofOne, all: fair.NewSlots(n), own: map[int64]*ownSlots{}}
}

// acquire first waits for one of the organization's own slots: those that wait for them do not block other organizations.
func (s *shares) acquire(ctx context.Context, organization int64) error {
	s.mu.Lock()
	own := s.own[organization]
	if own == nil {
		own = &ownSlots{slots: fair.NewSlots(s.ofOne)}
		s.own[organization] = own
	}
	own.users++
	s.mu.Unlock()
	if err := own.slots.Acquire(ctx, organization); err != nil {
		s.leave(organization)
		return err // the caller adds what it waited for
	}
	if err := s.all.Acquire(ctx, organization); err != nil {
		own.slots.Release()
		s.leave(organization)
		return err // the caller adds what it waited for
	}
	return nil
}

func (s *shares) release(organization int64) {
	s.all.Release()
	s.mu.Lock()
	own := s.own[organization]
	s.mu.Unlock()
	own.slots.Release()
	s.leave(organization)
}

// leave removes an organization without users.
func (s *shares) leave(organization int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own[organization]
	if own.users--; own.users == 0 {
		delete(s.own, organization)
	}
}
