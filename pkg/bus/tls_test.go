package bus_test

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// TestCertificatesOfTheBusRotate: a connection with certificates on both sides outlives a rotation with a question under way, and
// is made again with the new ones after the server has come back.
func TestCertificatesOfTheBusRotate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	folder := t.TempDir()
	first := certstest.New(t)
	theirs, ours := first.Files(t, folder, "server"), first.Files(t, folder, "client")
	host, port, err := net.SplitHostPort(porttest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	config := natsserver.Config{
		StoreDir: filepath.Join(folder, "nats"), Host: host, Users: []natsserver.User{bustest.Unrestricted("u")},
		TLS: theirs, Log: bustest.Log(t),
	}
	if config.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	nats := startServer(t, config)
	t.Cleanup(func() { nats.Shutdown() })
	connect := func(files certs.Files) (*bus.Conn, error) {
		brief, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return bus.Connect(brief, bus.Config{URL: nats.URL(), User: "u", Password: "u", Name: "u", TLS: files}, bustest.Log(t))
	}
	conn, err := connect(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	entered, release := make(chan struct{}, 8), make(chan struct{})
	answering, stop := context.WithCancel(ctx)
	defer stop()
	if err := conn.Answer(answering, "q", func(_ context.Context, request []byte) ([]byte, error) {
		if string(request) == "wait" {
			entered <- struct{}{}
			<-release
		}
		return request, nil
	}); err != nil {
		t.Fatal(err)
	}
	underWay := make(chan error, 1)
	go func() {
		_, err := conn.Ask(ctx, "q", []byte("wait"))
		underWay <- err
	}()
	<-entered
	second := certstest.New(t)
	second.Write(t, theirs)
	second.Write(t, ours)
	close(release)
	if err := <-underWay; err != nil {
		t.Errorf("the question that was under way: %v", err)
	}
	fresh, err := connect(ours)
	if err != nil {
		t.Fatalf("after the rotation: %v", err)
	}
	fresh.Close()
	nats.Shutdown()
	nats = startServer(t, config)
	wait.For(t, "connected again with the new certificates", func() bool { return conn.Ready() == nil })
	former := first.Files(t, folder, "former")
	for name, files := range map[string]certs.Files{
		"a server that nobody vouches for": {CA: former.CA, Cert: ours.Cert, Key: ours.Key},
		"no certificate of ours":           {CA: ours.CA},
		"a former certificate of ours":     {CA: ours.CA, Cert: former.Cert, Key: former.Key},
	} {
		brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		conn, err := bus.Connect(brief, bus.Config{URL: nats.URL(), User: "u", Password: "u", TLS: files}, bustest.Log(t))
		cancel()
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	if _, err := bus.Connect(ctx, bus.Config{URL: nats.URL(), TLS: certs.Files{CA: "/nonexistent"}},
		bustest.Log(t)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestAServerWithoutTLSIsRefused: who was given certificates never talks plain text.
func TestAServerWithoutTLSIsRefused(t *testing.T) {
	t.Parallel()
	plain := bustest.Server(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c := plain.Config("domain")
	c.TLS = certstest.New(t).Files(t, t.TempDir(), "ours")
	if conn, err := bus.Connect(ctx, c, bustest.Log(t)); err == nil {
		conn.Close()
		t.Error("was taken")
	}
}

func startServer(t *testing.T, c natsserver.Config) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
