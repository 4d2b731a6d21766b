package workflow_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// door is an address in front of a server, which counts who comes to it, also while the server is away.
type door struct {
	address string
	knocks  atomic.Int64
	network string
	server  string
}

// inside is where a server of a URL listens: a TCP address, or the socket that a URL of PostgreSQL names.
func inside(t *testing.T, text string) (network, address string) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if folder := u.Query().Get("host"); folder != "" {
		return "unix", folder + "/.s.PGSQL." + u.Query().Get("port")
	}
	return "tcp", u.Host
}

func newDoor(t *testing.T, server string) *door {
	t.Helper()
	network, address := inside(t, server)
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{address: lis.Addr().String(), network: network, server: address}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var visitors sync.WaitGroup
	visitors.Go(func() {
		for {
			visitor, err := lis.Accept()
			if err != nil {
				return // it is closed
			}
			d.knocks.Add(1)
			visitors.Go(func() { d.let(ctx, visitor) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = lis.Close()
		visitors.Wait()
	})
	return d
}

// let connects a visitor with the server, until one of the two or the test has had enough.
func (d *door) let(ctx context.Context, visitor net.Conn) {
	defer func() { _ = visitor.Close() }()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, d.network, d.server)
	if err != nil {
		return // it is away
	}
	defer func() { _ = server.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{visitor, server}, {server, visitor}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // ends with either connection
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// through is the URL of a PostgreSQL server by way of a door.
func through(t *testing.T, text string, d *door) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = d.address, "sslmode=disable"
	return u.String()
}
