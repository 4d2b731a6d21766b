package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Position is a place in the write-ahead log of a database: a server that has got so far has everything that was committed before.
type Position uint64

// Now asks for what includes everything that is committed when a read begins.
const Now = "now"

// ParsePosition reads a position as PostgreSQL writes it, such as 16/B374D848.
func ParsePosition(text string) (Position, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, lowErr := strconv.ParseUint(low, 16, 32)
	if !found || err != nil || lowErr != nil {
		return 0, fault.New(fault.Invalid, "found %.40q; expected a position of the database, such as 16/B374D848, or %q", text, Now)
	}
	return Position(h<<32 | l), nil
}

// String is a position as PostgreSQL writes it.
func (p Position) String() string { return fmt.Sprintf("%X/%X", uint32(p>>32), uint32(p)) }

const (
	// standbyPause is how often it is found out how far the standby is.
	standbyPause = time.Second
	// standbyPatience bounds one question about that.
	standbyPatience = 2 * time.Second
	// standbyAsked is how long a request waits to learn whether the standby has what it needs.
	standbyAsked = 250 * time.Millisecond
	// replay is how far a standby is.
	replay = "coalesce(pg_last_wal_replay_lsn(), '0/0')::text"
	// marksMost is how many positions of the primary are remembered that the standby has not reached.
	marksMost = 1000
)

// Standby is a server that follows the primary (hot_standby), and takes reads from it. A read goes there only if the standby has what the
// reader has seen or done before, and is not further behind than allowed; every other read, and each that fails there, goes to the
// primary. It is safe for concurrent use.
type Standby struct {
	primary, pool *pgxpool.Pool
	clock         clock.Clock
	log           *slog.Logger
	staleness     time.Duration

	mu sync.Mutex
	// marks are positions of the primary by when they were asked for, those that the standby has not reached.
	marks []mark
	// replayed is how far the standby is known to be, and fresh when everything was committed that it has for certain.
	replayed Position
	fresh    time.Time
	trouble  string
	open     map[*standbyConn]bool

	// asking is held by who asks the primary for its position; asked is when the last question was begun, and position its answer.
	asking   sync.Mutex
	asked    time.Time
	position Position

	there, here atomic.Int64
}

type mark struct {
	at       time.Time
	position Position
}

// OpenStandby makes the pool of a standby, whether it answers or not, for reads that may be so far behind the primary's. Run has to run.
func OpenStandby(ctx context.Context, c Config, primary *pgxpool.Pool, staleness time.Duration, now clock.Clock) (*Standby, error) {
	pc, err := poolConfig(c)
	if err != nil {
		return nil, err
	}
	pc.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsStandby
	s := &Standby{primary: primary, clock: now, log: c.Log, staleness: staleness, open: map[*standbyConn]bool{}}
	dial := pc.ConnConfig.DialFunc
	pc.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return s.opened(conn), nil
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, Classify(err, "open the pool of the standby")
	}
	return s, nil
}

// standbyConn is a connection to the standby that can be ended while a caller waits for its answer.
type standbyConn struct {
	net.Conn
	closed func(*standbyConn)
}

// Close implements net.Conn.
func (c *standbyConn) Close() error {
	c.closed(c)
	return c.Conn.Close() //nolint:wrapcheck // the connection's own
}

func (s *Standby) opened(conn net.Conn) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &standbyConn{conn, func(c *standbyConn) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	}}
	s.open[c] = true
	return c
}

// hangUp ends all connections: who waits for a standby that has gone silent asks the primary instead.
func (s *Standby) hangUp() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // it is given up
	}
}

// Close ends its connections.
func (s *Standby) Close() {
	s.hangUp() // nobody waits for one that is silent
	s.pool.Close()
}

// Run finds out how far the standby is, until ctx ends.
func (s *Standby) Run(ctx context.Context) error {
	for {
		err := s.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.report(ctx, err)
		if clock.Sleep(ctx, s.clock, standbyPause) != nil {
			return nil
		}
	}
}

// report logs what is wrong with the standby, once for each thing.
func (s *Standby) report(ctx context.Context, err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	s.mu.Lock()
	before := s.trouble
	s.trouble = trouble
	s.mu.Unlock()
	switch {
	case s.log == nil || before == trouble:
	case err != nil:
		s.log.WarnContext(ctx, "the standby cannot be used; the primary takes its reads", "error", err)
	default:
		s.log.InfoContext(ctx, "the standby is used")
	}
}

// look compares the standby with the primary.
func (s *Standby) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, standbyPatience)
	defer cancel()
	at := s.clock.Now()
	var system, other int64
	var text string
	var follows bool
	err := s.primary.QueryRow(ctx, "SELECT (SELECT system_identifier FROM pg_control_system()), pg_current_wal_insert_lsn()::text").
		Scan(&system, &text)
	if err != nil {
		return nil //nolint:nilerr // what the standby has becomes too old by itself, and others report that the primary is away
	}
	p, err := ParsePosition(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.marks = append(s.marks, mark{at, p})
	s.marks = s.marks[max(0, len(s.marks)-marksMost):]
	s.mu.Unlock()
	err = s.pool.QueryRow(ctx, "SELECT (SELECT system_identifier FROM pg_control_system()), pg_is_in_recovery(), "+replay).
		Scan(&other, &follows, &text)
	if err != nil {
		s.hangUp()
		return Classify(err, "ask the standby for its position")
	}
	if !follows {
		return fault.New(fault.Invalid, "the standby follows no primary: it takes writes itself")
	}
	if system != other {
		return fault.New(fault.Invalid, "the standby belongs to another database cluster: found system identifier %d, expected %d", other, system)
	}
	if p, err = ParsePosition(text); err != nil {
		return err
	}
	s.reached(p)
	return nil
}

// reached notes how far the standby is.
func (s *Standby) reached(p Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p < s.replayed { // it was made anew from an older backup
		s.fresh = time.Time{}
	}
	s.replayed = p
	for len(s.marks) > 0 && s.marks[0].position <= s.replayed {
		s.fresh, s.marks = s.marks[0].at, s.marks[1:]
	}
}

// Lag is how old what is read on the standby may be; false while that is not known.
func (s *Standby) Lag() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.Now().Sub(s.fresh), !s.fresh.IsZero()
}

// usable is how far the standby is known to be; false if it must not be used now.
func (s *Standby) usable() (Position, bool) {
	lag, known := s.Lag()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replayed, known && lag <= s.staleness && s.trouble == ""
}

// has finds out whether the standby may take a read that is to include a position, and how far it is.
func (s *Standby) has(ctx context.Context, after Position) (Position, bool) {
	replayed, ok := s.usable()
	if !ok || after <= replayed {
		return replayed, ok
	}
	ctx, cancel := context.WithTimeout(ctx, standbyAsked)
	defer cancel()
	var text string
	if err := s.pool.QueryRow(ctx, "SELECT "+replay).Scan(&text); err != nil {
		return 0, false
	}
	p, err := ParsePosition(text)
	if err != nil {
		return 0, false
	}
	s.reached(p)
	return p, after <= p
}

// present is the primary's position. Questions that arrive while one is asked share the next one.
func (s *Standby) present(ctx context.Context) (Position, error) {
	arrived := s.clock.Now()
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.asked.After(arrived) {
		return s.position, nil
	}
	asked := s.clock.Now()
	var text string
	if err := s.primary.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return 0, Classify(err, "ask for the position of the database")
	}
	p, err := ParsePosition(text)
	if err != nil {
		return 0, err
	}
	s.asked, s.position = asked, p
	return p, nil
}

// reading is where the reads of one request run. Once one had to go to the primary, so do those behind it: the standby may be older.
type reading struct {
	standby  *Standby
	position Position
	left     atomic.Bool
}

type readingKey struct{}

// Begin has the reads of ctx (Read) run on the standby, if that includes a position as text, or Now. A text that is neither is Invalid.
func (s *Standby) Begin(ctx context.Context, after string) (context.Context, error) {
	var p Position
	var err error
	if after == Now {
		p, err = s.present(ctx)
	} else {
		p, err = ParsePosition(after)
	}
	if err != nil {
		return ctx, err
	}
	replayed, ok := s.has(ctx, p)
	if !ok {
		s.here.Add(1)
		return ctx, nil
	}
	s.there.Add(1)
	return context.WithValue(ctx, readingKey{}, &reading{standby: s, position: replayed}), nil
}

// Position is that of everything that was read or changed in ctx, as text: what is read after it is at least as new.
func (s *Standby) Position(ctx context.Context) (string, error) {
	if r, ok := ctx.Value(readingKey{}).(*reading); ok && !r.left.Load() {
		return r.position.String(), nil
	}
	p, err := s.present(ctx)
	return p.String(), err
}

// Read runs fn on the standby if ctx has begun there, and otherwise, or if fn fails there, on the primary. fn may run twice.
func Read(ctx context.Context, primary *pgxpool.Pool, fn func(*pgxpool.Pool) error) error {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok || r.left.Load() {
		return fn(primary)
	}
	err := fn(r.standby.pool)
	if err == nil || ctx.Err() != nil || !standbyTrouble(err) {
		return err
	}
	r.left.Store(true)
	r.standby.here.Add(1)
	return fn(primary)
}

// standbyTrouble reports whether a server has failed, and not what was asked of it.
func standbyTrouble(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return answered || fault.Is(err, fault.Unavailable)
}
