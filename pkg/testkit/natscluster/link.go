package natscluster

import (
	"io"
	"net"
	"sync"
	"testing"
)

// link passes connections on to an address, unless it is cut.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newLink(tb testing.TB, to string) *link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at the end of the test
	if err != nil {
		tb.Fatal(err)
	}
	l := &link{listener: listener, to: to, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		l.cut(true)
		l.wg.Wait()
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// cut ends all connections and lets no other through, or lets them through again.
func (l *link) cut(off bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut = off; off {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.pass(in) })
	}
}

// pass passes one connection on until either end is closed.
func (l *link) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	if !l.hold(in) {
		return
	}
	defer l.release(in)
	out, err := net.Dial("tcp", l.to) //nolint:noctx // it is closed with the other end
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	if !l.hold(out) {
		return
	}
	defer l.release(out)
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
		both.Go(func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		})
	}
	both.Wait()
}

func (l *link) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
