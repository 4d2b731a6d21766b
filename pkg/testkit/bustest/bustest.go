// Package bustest runs a NATS server for one test: the real server, embedded, with all users of an installation. A test can stop it,
// restart it, and wipe its store while clients are connected.
package bustest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
)

// Leftovers are the goroutines that nats-server does not end when it is shut down in the moment that a stream is being made, or a
// batch is under way: for leak detectors, which cannot distinguish them from ours.
func Leftovers() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	}
}

// agents are the agents that have a user: relay-1 to relay-64.
const agents = 64

// A TestServer is a server that lives as long as its test.
type TestServer struct {
	log   *slog.Logger
	store string
	users []natsserver.User

	// port is held for the server until the test ends, also while it is stopped.
	port int

	mu      sync.Mutex
	running *natsserver.Server
	url     string
}

// Server starts a server on a port of its own. It has the users registry, domain, workflow and relay-1 to relay-64, whose
// passwords are their names.
func Server(tb testing.TB) *TestServer {
	tb.Helper()
	return ServerWith(tb)
}

// Unrestricted is a user who may do everything; its password is its name.
func Unrestricted(name string) natsserver.User {
	return natsserver.User{Name: name, Password: name, Unrestricted: true}
}

// ServerWith is Server with more users.
func ServerWith(tb testing.TB, more ...natsserver.User) *TestServer {
	tb.Helper()
	_, number, err := net.SplitHostPort(porttest.FreeAddress(tb))
	if err != nil {
		tb.Fatalf("address of nats: %v", err)
	}
	s := &TestServer{log: Log(tb), store: filepath.Join(tb.TempDir(), "nats"), users: append(Users(), more...)}
	if s.port, err = strconv.Atoi(number); err != nil {
		tb.Fatalf("port of nats: %v", err)
	}
	s.Start(tb)
	tb.Cleanup(func() { s.Stop(tb) })
	return s
}

// URL is where clients connect. It stays the same over Restart.
func (s *TestServer) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Config is how a user of the server connects.
func (s *TestServer) Config(user string) bus.Config {
	return bus.Config{URL: s.URL(), User: user, Password: user, Name: user}
}

// Connect is a connection of a user, closed at the end of the test.
func (s *TestServer) Connect(tb testing.TB, user string) *bus.Conn {
	tb.Helper()
	c, err := bus.Connect(tb.Context(), s.Config(user), s.log.With("user", user))
	if err != nil {
		tb.Fatalf("connect to nats as %s: %v", user, err)
	}
	tb.Cleanup(c.Close)
	return c
}

// backWithin is how long a server may take to be back, and its streams with it, on a busy machine; waitsFor is less than Publish waits for
// it.
const (
	backWithin = time.Minute
	waitsFor   = 4 * time.Second
)

// Publish publishes an event. Publish of the connection waits for a server that is away for some seconds; where that is not long enough it
// is asked again, unless it did not wait.
func Publish(ctx context.Context, conn *bus.Conn, e event.Event) error {
	c := clock.System()
	for deadline := c.Now().Add(backWithin); ; {
		began := c.Now()
		err := conn.Publish(ctx, e)
		if now := c.Now(); !fault.Is(err, fault.Unavailable) || now.Sub(began) < waitsFor || now.After(deadline) {
			return err
		}
	}
}

// Raw is a bare NATS connection of a user, for what the bus itself would never do; closed at the end of the test.
func (s *TestServer) Raw(tb testing.TB, user string) *nats.Conn {
	tb.Helper()
	c := s.Config(user)
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password), nats.CustomInboxPrefix("_INBOX_"+user), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		tb.Fatalf("connect to nats as %s: %v", user, err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// JetStream is JetStream on a connection as Raw makes one.
func (s *TestServer) JetStream(tb testing.TB, user string) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(s.Raw(tb, user))
	if err != nil {
		tb.Fatalf("jetstream as %s: %v", user, err)
	}
	return js
}

// Restart stops the server and starts it again on the same port with the same store.
func (s *TestServer) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	s.Start(tb)
}

// Wipe stops the server, deletes its store, and starts it again on the same port with nothing in it.
func (s *TestServer) Wipe(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	if err := os.RemoveAll(s.store); err != nil {
		tb.Fatalf("wipe the store of nats: %v", err)
	}
	s.Start(tb)
}

// Stop stops the server. It may be stopped already.
func (s *TestServer) Stop(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.running.Shutdown()
		s.running = nil
	}
}

// Start starts the server that Stop has stopped.
func (s *TestServer) Start(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	running, err := natsserver.Start(natsserver.Config{StoreDir: s.store, Port: s.port, Users: s.users, Log: s.log})
	if err != nil {
		tb.Fatalf("start nats: %v", err)
	}
	s.running, s.url = running, running.URL()
}

// Users are those of an installation with relay-1 to relay-64, whose passwords are their names.
func Users() []natsserver.User {
	names := []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow}
	for agent := range agents {
		names = append(names, bus.RelayUser(int64(agent)+1))
	}
	all := make([]natsserver.User, len(names))
	for i, name := range names {
		all[i] = natsserver.User{Name: name, Password: name}
	}
	return all
}

// Log writes to the output of a test, as long as that lasts.
func Log(tb testing.TB) *slog.Logger {
	tb.Helper()
	w := &output{tb: tb}
	tb.Cleanup(w.end)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type output struct {
	mu    sync.Mutex
	tb    testing.TB
	ended bool
}

// Write drops what comes after the test: connections say goodbye in their own time.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return len(p), nil
	}
	n, err := o.tb.Output().Write(p)
	if err != nil {
		return n, fmt.Errorf("write to the test's output: %w", err)
	}
	return n, nil
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
}
