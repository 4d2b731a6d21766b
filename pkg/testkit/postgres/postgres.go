// Package postgres starts a private PostgreSQL server for one folder: for `lockstep dev`, the demo and tests. The server
// listens on a unix socket only, so no port is taken and no running server is disturbed; it dies with the process that
// started it; and it finds its binaries itself (see Start).
//
// It is not for production, where LOCKSTEP_DATABASE_URL names a server that an operator maintains. It never reads that
// variable; callers do, with FromEnvironment.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Config says where the server keeps its data and how careful it is with it.
type Config struct {
	// DataDir is the folder of this server alone; it is created if missing and keeps its data from start to start. For
	// root the account that runs the server must be able to reach it (search permission on every folder above it):
	// otherwise a folder in the temporary directory takes its place, and a warning says so.
	DataDir string
	// Fast gives durability up: an operating system crash may lose everything. For tests.
	Fast bool
	// Temporary stops the server and removes DataDir when this process ends, however it ends. No goroutine of this
	// process watches over such a server, so that leak detectors find nothing. For tests.
	Temporary bool
	// Template is a folder that keeps a server that was initialised once and never started; Start copies it in place of
	// running initdb, which takes a second of CPU time. Empty: initdb. Several processes may share it. For tests.
	Template string
	// Address is a host:port where the server also listens for TCP connections, whom it trusts; empty: nowhere. For tests.
	Address string
	// Log reports what takes long: an installation, a download. Nil: slog.Default().
	Log *slog.Logger
}

// FromEnvironment is the server that the environment names instead of a private one, in LOCKSTEP_DATABASE_URL.
func FromEnvironment() (url string, ok bool) {
	url = os.Getenv("LOCKSTEP_DATABASE_URL")
	return url, url != ""
}

// Server is a running private server.
type Server struct {
	dir     string
	socket  string
	port    string
	process process
	unlock  func()
	stop    sync.Once
	stopErr error
}

// process is the postmaster.
type process interface {
	PID() int
	// Done is closed when it has ended; nil where nobody watches.
	Done() <-chan struct{}
	// Ended reports whether it is gone.
	Ended() bool
	// End asks it to shut down, ever less politely, and returns when it is gone.
	End() error
}

// Start starts the server of the folder and returns when it answers; ctx bounds the start, not the server's life.
//
// The binaries are the newest of version 15 or later found in /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin or on the PATH
// (the folder's own version if it has data); else, for root on Debian or Ubuntu, those that apt-get installs; else those
// that the embedded-postgres library downloads. Root runs the server as postgres, or as nobody, because PostgreSQL
// refuses root. A server that a killed process left in the folder is ended first; a folder that another process
// uses is an error.
func Start(ctx context.Context, c Config) (*Server, error) {
	if c.DataDir == "" {
		return nil, errors.New("start PostgreSQL: data folder: empty; expected a path")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", c.DataDir, err)
	}
	return s, nil
}

func start(ctx context.Context, c Config) (_ *Server, err error) {
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := place(ctx, c.Log, c.DataDir, who)
	if err != nil {
		return nil, err
	}
	unlock, err := lockDir(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	data := filepath.Join(dir, "data")
	bin, err := findBinaries(ctx, c.Log, who, dataVersion(data))
	if err != nil {
		return nil, err
	}
	if err := endOrphans(ctx, data); err != nil {
		return nil, err
	}
	if err := prepare(ctx, bin, who, data, c); err != nil {
		return nil, err
	}
	socket, err := socketDir(dir, who)
	if err != nil {
		return nil, err
	}
	host, port, err := c.listening()
	if err != nil {
		return nil, err
	}
	p, err := launch(server{
		bin: bin, who: who, data: data, socket: socket, host: host, port: port,
		log: filepath.Join(dir, "postgres.log"), fast: c.Fast, root: dir,
	}, c.Temporary)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, socket: socket, port: port, process: p, unlock: unlock}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; its log ends with:\n%s", err, tail(filepath.Join(dir, "postgres.log"))), p.End())
	}
	return s, nil
}

// listening is host and port of the address. The port is a part of the socket's name as well, so there always is one.
func (c Config) listening() (host, port string, err error) {
	if c.Address == "" {
		return "", onlySocket, nil
	}
	if host, port, err = net.SplitHostPort(c.Address); err != nil {
		return "", "", fmt.Errorf("address: %w", err)
	}
	return host, port, nil
}

// URL is the connection string of the server, for an account that may do everything. It is the same at the next start.
func (s *Server) URL() string {
	q := url.Values{"host": {s.socket}, "port": {s.port}, "sslmode": {"disable"}}
	return (&url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/postgres", RawQuery: q.Encode()}).String()
}

// DataDir is the folder that the server really uses: Config.DataDir, or what took its place.
func (s *Server) DataDir() string { return s.dir }

// PID is the process id of the postmaster.
func (s *Server) PID() int { return s.process.PID() }

// Done is closed when the server has ended, by Stop or by itself; it is nil for a Temporary server.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop ends the server, breaking its connections, and returns when it is gone. Doing it again does nothing.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		s.stopErr = s.process.End()
		_ = os.RemoveAll(s.socket) // holds nothing but the socket; the next start makes it again
		s.unlock()
	})
	return s.stopErr
}

const (
	superuser = "lockstep"
	// onlySocket is a port that is only a part of the socket's file name.
	onlySocket = "5432"
	// answerWithin bounds a start whose ctx has no deadline; crash recovery of a large folder takes a while.
	answerWithin = 2 * time.Minute
)

// await returns when the server answers, has ended, or ctx ends.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		if s.process.Ended() {
			return errors.New("the server ended")
		}
		if clock.Sleep(ctx, clock.System(), 20*time.Millisecond) != nil {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}
