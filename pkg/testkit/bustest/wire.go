package bustest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
)

// A Frame is one message of NATS's protocol on its way, header line and payload.
type Frame struct {
	// ToServer says which way it goes.
	ToServer bool
	// Subject is where it was published. Everything but messages has none.
	Subject string
	// Bytes is all of it. A test that changes it keeps its length.
	Bytes []byte
}

// Fate is what happens to a frame.
type Fate int

// The fates: it arrives, it is lost as if it had been sent, or the connection is lost with it.
const (
	Arrives Fate = iota
	Lost
	Cut
)

// A Wire is what lies between clients and the server: it loses what a test wants. Nothing that is not a message is lost.
type Wire struct {
	target   string
	listener net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex
	fate  func(Frame) Fate
	conns map[net.Conn]struct{}
}

// Wire makes a wire to the server, which lives as long as the test.
func (s *TestServer) Wire(tb testing.TB) *Wire {
	tb.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		tb.Fatalf("address of nats: %v", err)
	}
	w := &Wire{target: u.Host, fate: func(Frame) Fate { return Arrives }, conns: map[net.Conn]struct{}{}}
	var config net.ListenConfig
	if w.listener, err = config.Listen(tb.Context(), "tcp", "127.0.0.1:0"); err != nil {
		tb.Fatalf("listen: %v", err)
	}
	w.all.Go(w.accept)
	tb.Cleanup(func() {
		_ = w.listener.Close()
		w.CutAll()
		w.all.Wait()
	})
	return w
}

// Connect is TestServer.Connect through the wire.
func (w *Wire) Connect(tb testing.TB, s *TestServer, user string) *bus.Conn {
	tb.Helper()
	c := s.Config(user)
	c.URL = "nats://" + w.listener.Addr().String()
	conn, err := bus.Connect(tb.Context(), c, s.log.With("user", user))
	if err != nil {
		tb.Fatalf("connect to nats as %s: %v", user, err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// Decide has fn decide about every frame that carries a message from now on. It is called for one frame at a time.
func (w *Wire) Decide(fn func(Frame) Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fate = fn
}

// CutAll ends all connections. Clients may make new ones.
func (w *Wire) CutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close() // the server is away
			continue
		}
		w.mu.Lock()
		w.conns[client], w.conns[server] = struct{}{}, struct{}{}
		w.mu.Unlock()
		end := sync.OnceFunc(func() {
			_, _ = client.Close(), server.Close()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.conns, client)
			delete(w.conns, server)
		})
		w.all.Go(func() { defer end(); w.carry(server, client, true) })
		w.all.Go(func() { defer end(); w.carry(client, server, false) })
	}
}

// carry copies frames until one end closes or the connection is cut.
func (w *Wire) carry(to io.Writer, from io.Reader, toServer bool) {
	in := bufio.NewReader(from)
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		frame.ToServer = toServer
		if frame.Subject != "" {
			w.mu.Lock()
			fate := w.fate(frame)
			w.mu.Unlock()
			switch fate {
			case Lost:
				continue
			case Cut:
				return
			case Arrives:
			}
		}
		if _, err := to.Write(frame.Bytes); err != nil {
			return
		}
	}
}

// readFrame reads a line, and the payload if it announces one: PUB and MSG end with its length, and so do their forms with headers.
func readFrame(in *bufio.Reader) (Frame, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return Frame{}, fmt.Errorf("read a line: %w", err)
	}
	fields := strings.Fields(string(bytes.TrimSpace(line)))
	if len(fields) < 3 || !strings.HasSuffix(fields[0], "PUB") && !strings.HasSuffix(fields[0], "MSG") {
		return Frame{Bytes: line}, nil
	}
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return Frame{Bytes: line}, nil //nolint:nilerr // it is no message
	}
	payload := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(in, payload); err != nil {
		return Frame{}, fmt.Errorf("read a payload: %w", err)
	}
	return Frame{Subject: fields[1], Bytes: append(line, payload...)}, nil
}
