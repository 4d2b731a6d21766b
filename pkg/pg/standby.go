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

	"github.com/jackc/pgx/v5"
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
	// standbyAsked is how long a request waits to learn a position.
	standbyAsked = 250 * time.Millisecond
	// standbyFree is how long a read waits for a connection to the standby.
	standbyFree = 50 * time.Millisecond
	// marksMost is how many positions of the primary are remembered that the standby has not reached.
	marksMost = 1000

	// committedAt is how far the log is in which everything is that anybody can see on the primary. Behind what was flushed there may be
	// records that no commit waits for, and that reach no standby until something else is committed.
	committedAt = "CASE current_setting('synchronous_commit') WHEN 'off' THEN pg_current_wal_insert_lsn() " +
		"ELSE pg_current_wal_flush_lsn() END::text"
	// replayedAt is how far a standby is.
	replayedAt = "coalesce(pg_last_wal_replay_lsn(), '0/0')::text"
)

// Standby is a server that follows the primary (hot_standby), and takes reads from it. A read goes there only if the standby has what the
// reader has seen or done before, and is not further behind than allowed; every other read, and each that fails there, goes to the
// primary. It is safe for concurrent use.
type Standby struct {
	primary, pool *pgxpool.Pool
	// watch has a connection to the standby of its own: reads that wait for each other say nothing about the server.
	watch     *pgxpool.Pool
	clock     clock.Clock
	log       *slog.Logger
	staleness time.Duration

	mu sync.Mutex
	// marks are positions of the primary by when they were asked for, those that the standby has not reached.
	marks []mark
	// replayed is how far the standby is known to be, looked how far it was at the last look, and fresh when everything was committed that
	// it has for certain.
	replayed, looked Position
	fresh            time.Time
	trouble          string
	open             map[*standbyConn]bool

	// here and there are how far the primary and the standby are.
	here, there asker
	// counted are the requests that each has answered.
	countedHere, countedThere atomic.Int64
}

type mark struct {
	at       time.Time
	position Position
}

// OpenStandby makes the pool of a standby, whether it answers or not, for reads that may be so far behind the primary's. Run has to run.
func OpenStandby(ctx context.Context, c Config, primary *pgxpool.Pool, staleness time.Duration, now clock.Clock) (*Standby, error) {
	s := &Standby{
		primary: primary, clock: now, log: c.Log, staleness: staleness, open: map[*standbyConn]bool{},
		here: newAsker(now), there: newAsker(now),
	}
	var err error
	if s.pool, err = s.reach(ctx, c); err != nil {
		return nil, err
	}
	c.MaxConns = 2 // for looks, and for requests
	if s.watch, err = s.reach(ctx, c); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// reach makes a pool of connections to the standby.
func (s *Standby) reach(ctx context.Context, c Config) (*pgxpool.Pool, error) {
	pc, err := poolConfig(c)
	if err != nil {
		return nil, err
	}
	for _, f := range pc.ConnConfig.Fallbacks { // also those of one host with and without encryption
		if f.Host != pc.ConnConfig.Host || f.Port != pc.ConnConfig.Port {
			return nil, fault.New(fault.Invalid, "found several hosts, expected that of one standby")
		}
	}
	pc.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsStandby
	dial := pc.ConnConfig.DialFunc
	pc.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return s.opened(conn), nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	return pool, Classify(err, "open the pool of the standby")
}

// standbyConn is a connection to the standby that can be ended while a caller waits for its answer.
type standbyConn struct {
	net.Conn
	closed func(*standbyConn)
}

// Close implements net.Conn.
func (c *standbyConn) Close() error {
	c.closed(c)
	return c.Conn.Close()
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
	s.watch.Close()
}

// Run finds out how far the standby is, until ctx ends.
func (s *Standby) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.look(ctx)
		_ = clock.Sleep(ctx, s.clock, standbyPause) // ends early with ctx
	}
	return nil
}

// look compares the standby with the primary, and notes what is wrong with it.
func (s *Standby) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, standbyPatience)
	defer cancel()
	before, err := s.ofPrimary(within)
	if err != nil {
		return // what the standby has becomes too old by itself, and others report that the primary is away
	}
	s.mu.Lock()
	s.marks = append(s.marks, mark{before.at, before.position})
	s.marks = s.marks[max(0, len(s.marks)-marksMost):]
	s.mu.Unlock()
	there, err := s.ofStandby(within)
	if err != nil && ctx.Err() == nil {
		s.hangUp()
	}
	if err == nil {
		var after server
		if after, err = s.ofPrimary(within); err != nil {
			return
		}
		if err = there.follows(after); err != nil { // nothing that was known of it is worth anything
			s.mu.Lock()
			s.fresh, s.marks = time.Time{}, nil
			s.mu.Unlock()
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		s.reached(there.position, true)
	}
	s.report(ctx, err)
}

// server is what one of the two servers is.
type server struct {
	at               time.Time
	system, timeline int64
	recovers         bool
	position         Position
}

func (s *Standby) ofPrimary(ctx context.Context) (server, error) {
	return s.ask(ctx, s.primary, "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint, false, "+committedAt)
}

func (s *Standby) ofStandby(ctx context.Context) (server, error) {
	return s.ask(ctx, s.watch, "(SELECT min_recovery_end_timeline FROM pg_control_recovery()), pg_is_in_recovery(), "+replayedAt)
}

func (s *Standby) ask(ctx context.Context, pool *pgxpool.Pool, columns string) (server, error) {
	found := server{at: s.clock.Now()}
	var text string
	err := pool.QueryRow(ctx, "SELECT (SELECT system_identifier FROM pg_control_system()), "+columns).
		Scan(&found.system, &found.timeline, &found.recovers, &text)
	if err != nil {
		return found, Classify(err, "ask for the position of the database")
	}
	found.position, err = ParsePosition(text)
	return found, err
}

// follows is an error if a server is no standby of a primary that was asked after it.
func (s server) follows(primary server) error {
	switch {
	case s.system != primary.system:
		return fault.New(fault.Invalid, "the standby belongs to another database cluster: found system identifier %d, expected %d", s.system,
			primary.system)
	case !s.recovers:
		return fault.New(fault.Invalid, "the standby follows no primary: it takes writes itself")
	case s.timeline != primary.timeline:
		return fault.New(fault.Invalid, "the standby has not followed the failover: found timeline %d, expected %d", s.timeline, primary.timeline)
	case s.position > primary.position:
		return fault.New(fault.Invalid, "the standby is ahead of the primary, so it follows another one: found position %s, expected at most %s",
			s.position, primary.position)
	}
	return nil
}

// report notes what is wrong with the standby, and logs each thing once.
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

// reached notes how far the standby is. Only a look may find that it has gone back.
func (s *Standby) reached(p Position, looked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if looked {
		if p < s.looked { // it was made anew from an older backup
			s.fresh, s.replayed = time.Time{}, p
		}
		s.looked = p
	}
	s.replayed = max(s.replayed, p)
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

// asker asks one server how far it is. Questions that arrive while one is asked share the next one, and its answer.
type asker struct {
	clock clock.Clock
	// free has a place while nobody asks.
	free     chan struct{}
	asked    time.Time
	position Position
	err      error
}

func newAsker(c clock.Clock) asker {
	a := asker{clock: c, free: make(chan struct{}, 1)}
	a.free <- struct{}{}
	return a
}

func (a *asker) ask(ctx context.Context, pool *pgxpool.Pool, column string) (Position, error) {
	arrived := a.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, standbyAsked)
	defer cancel()
	select {
	case <-a.free:
	case <-ctx.Done():
		return 0, fault.Because(ctx.Err(), fault.Unavailable, "the position of the database is not known in time")
	}
	defer func() { a.free <- struct{}{} }()
	if a.asked.After(arrived) {
		return a.position, a.err
	}
	a.asked = a.clock.Now()
	var text string
	if a.err = Classify(pool.QueryRow(ctx, "SELECT "+column).Scan(&text), "ask for the position of the database"); a.err == nil {
		a.position, a.err = ParsePosition(text)
	}
	return a.position, a.err
}

// has finds out whether the standby may take a read that is to include a position, and how far it is.
func (s *Standby) has(ctx context.Context, after Position) (Position, bool) {
	replayed, ok := s.usable()
	if !ok || after <= replayed {
		return replayed, ok
	}
	p, err := s.there.ask(ctx, s.watch, replayedAt)
	if err != nil {
		return 0, false
	}
	s.reached(p, false)
	return p, after <= p
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
	if after != Now {
		if p, err = ParsePosition(after); err != nil {
			return ctx, err
		}
	} else if _, ok := s.usable(); ok {
		if p, err = s.here.ask(ctx, s.primary, committedAt); err != nil {
			return ctx, err
		}
	}
	replayed, ok := s.has(ctx, p)
	if !ok {
		s.countedHere.Add(1)
		return ctx, nil
	}
	s.countedThere.Add(1)
	return context.WithValue(ctx, readingKey{}, &reading{standby: s, position: replayed}), nil
}

// Position is one that everything is before that was read or changed in ctx, as text: what is read after it is at least as new.
func (s *Standby) Position(ctx context.Context) (string, error) {
	var p Position
	var err error
	if r, ok := ctx.Value(readingKey{}).(*reading); ok && !r.left.Load() {
		p, err = s.there.ask(ctx, s.watch, replayedAt)
		p = max(p, r.position)
	} else {
		p, err = s.here.ask(ctx, s.primary, committedAt)
	}
	return p.String(), err
}

// Leave has the reads behind it in ctx run on the primary, for one that decides.
func Leave(ctx context.Context) {
	if r, ok := ctx.Value(readingKey{}).(*reading); ok && r.left.CompareAndSwap(false, true) {
		r.standby.countedHere.Add(1)
	}
}

// Read is InPipeline for a transaction that changes nothing: on the standby if ctx has begun there, and otherwise, or if that is not
// possible now, on the primary. fn may run twice.
func Read(ctx context.Context, primary *pgxpool.Pool, fn func(pgx.Tx) error) error {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok || r.left.Load() {
		return InPipeline(ctx, primary, fn)
	}
	err := r.there(ctx, fn)
	if err == nil || ctx.Err() != nil || !standbyTrouble(err) {
		return err
	}
	Leave(ctx)
	return InPipeline(ctx, primary, fn)
}

// there runs fn on the standby, once: what fails there is better done on the primary.
func (r *reading) there(ctx context.Context, fn func(pgx.Tx) error) error {
	within, cancel := context.WithTimeout(ctx, standbyFree)
	conn, err := r.standby.pool.Acquire(within)
	cancel()
	if err != nil {
		return fault.Because(err, fault.Unavailable, "no connection to the standby is free")
	}
	return pipedOn(ctx, conn, func(tx pgx.Tx) error {
		// The connection may lead to another server than the one that was asked, or that one may have changed: then this statement fails, with
		// a text for the log of that server.
		_, err := tx.Exec(ctx, "SELECT CASE WHEN pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= $1::text::pg_lsn THEN '0/0' "+
			"ELSE 'this is no standby that has ' || $1 END::pg_lsn", r.position.String())
		if err != nil {
			return Classify(err, "check the standby")
		}
		return fn(tx)
	})
}

// standbyTrouble reports whether a server has failed, and not what was asked of it.
func standbyTrouble(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return answered || fault.Is(err, fault.Unavailable)
}
