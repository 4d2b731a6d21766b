package natsserver_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, c natsserver.Config) *natsserver.Server {
	t.Helper()
	c.StoreDir, c.Log = t.TempDir(), bustest.Log(t)
	s, err := natsserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func TestAKeyLogsIn(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	file := filepath.Join(t.TempDir(), "relay.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, natsserver.Config{Users: []natsserver.User{{Name: "relay-42", NKey: public}, {Name: "workflow", Password: "secret"}}})
	workflow, err := bus.Connect(t.Context(), bus.Config{URL: s.URL(), User: "workflow", Password: "secret"}, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workflow.Close)
	if err := workflow.Apply(t.Context(), bus.Topology{Streams: []bus.Stream{bus.ClusterStream()}}); err != nil {
		t.Fatal(err)
	}
	relay, err := bus.Connect(t.Context(), bus.Config{URL: s.URL(), User: "relay-42", NKeySeedFile: file}, bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	if err := relay.OnHint(t.Context(), "cd.domain.>", func([]byte) {}); !fault.Is(err, fault.Denied) {
		t.Errorf("the key has other permissions than its name: %v", err)
	}
}

func TestNobodyLogsInToAServerWithoutUsers(t *testing.T) {
	t.Parallel()
	s := start(t, natsserver.Config{SyncAlways: true})
	for _, c := range []bus.Config{{}, {User: "workflow", Password: "workflow"}} {
		c.URL = s.URL()
		if _, err := bus.Connect(t.Context(), c, bustest.Log(t)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("user %q: %v, want unauthenticated", c.User, err)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	if _, err := natsserver.Start(natsserver.Config{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a folder: %v, want invalid", err)
	}
	if _, err := natsserver.Start(natsserver.Config{StoreDir: t.TempDir(), Users: []natsserver.User{{Name: "admin"}}}); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("a user without permissions: %v, want invalid", err)
	}
	s := start(t, natsserver.Config{})
	taken := natsserver.Config{StoreDir: t.TempDir(), Port: port(t, s.URL()), Log: bustest.Log(t)}
	if _, err := natsserver.Start(taken); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("two servers on one port: %v", err)
	}
}

func port(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
