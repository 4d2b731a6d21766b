package authority_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// installation is a server with an authority over keys in memory.
type installation struct {
	t       *testing.T
	url     string
	changed chan struct{}

	mu   sync.Mutex
	keys map[string]authority.Admission
}

func (i *installation) Admit(_ context.Context, public string) (authority.Admission, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	a, ok := i.keys[public]
	if !ok {
		return a, fault.New(fault.NotFound, "nobody has the key %s", public)
	}
	return a, nil
}

func (i *installation) Good(_ context.Context, _ []int64) (map[int64]bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	good := map[int64]bool{}
	for _, a := range i.keys {
		good[a.Key] = true
	}
	return good, nil
}

// key makes a key of an agent; its seed is in the file.
func (i *installation) key(agent, number int64) (public, seedFile string) {
	i.t.Helper()
	public, seed, err := bus.NewKey()
	if err != nil {
		i.t.Fatal(err)
	}
	seedFile = filepath.Join(i.t.TempDir(), "seed")
	if err := os.WriteFile(seedFile, []byte(seed), 0o600); err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[public] = authority.Admission{Agent: agent, Key: number}
	return public, seedFile
}

// revoke ends a key.
func (i *installation) revoke(public string) {
	i.mu.Lock()
	delete(i.keys, public)
	i.mu.Unlock()
	i.changed <- struct{}{}
}

func (i *installation) config(agent int64, seedFile string) bus.Config {
	return bus.Config{URL: i.url, User: bus.RelayUser(agent), NKeySeedFile: seedFile, Name: "relay"}
}

// connect waits until the authority answers.
func (i *installation) connect(agent int64, seedFile string) *bus.Conn {
	i.t.Helper()
	for {
		conn, err := bus.Connect(i.t.Context(), i.config(agent, seedFile), bustest.Log(i.t))
		if err == nil {
			i.t.Cleanup(conn.Close)
			return conn
		}
		if i.t.Context().Err() != nil {
			i.t.Fatal(err)
		}
	}
}

func install(t *testing.T) *installation {
	t.Helper()
	seed, err := authority.NewSeed()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := authority.NewIdentity(seed)
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.Start(natsserver.Config{
		StoreDir: t.TempDir(), Log: bustest.Log(t), Authority: &natsserver.Authority{Issuer: identity.Issuer, User: identity.User},
		Users: []natsserver.User{{Name: bus.UserWorkflow, Password: "w"}, {Name: bus.UserDomain, Password: "d"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	i := &installation{t: t, url: s.URL(), changed: make(chan struct{}, 1), keys: map[string]authority.Admission{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- authority.Run(ctx, authority.Deps{
			URL: i.url, Identity: identity, Keys: i, Changed: i.changed, Clock: clock.System(),
			Log: bustest.Log(t),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return i
}

// service is a connection of one that the server's own configuration names.
func (i *installation) service(user, password string) *bus.Conn {
	i.t.Helper()
	conn, err := bus.Connect(i.t.Context(), bus.Config{URL: i.url, User: user, Password: password}, bustest.Log(i.t))
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(conn.Close)
	return conn
}

func TestAnAgentReachesItsOwnSubjectsAndNoOthers(t *testing.T) {
	t.Parallel()
	i := install(t)
	workflow := i.service(bus.UserWorkflow, "w")
	if err := workflow.Apply(t.Context(), bus.Topology{
		Streams:   []bus.Stream{bus.ClusterCallsStream(), bus.ClusterStream()},
		Consumers: []bus.Consumer{bus.AgentConsumer(7), bus.AgentConsumer(8)},
	}); err != nil {
		t.Fatal(err)
	}
	_, seven := i.key(7, 1)
	_, eight := i.key(8, 2)
	i.connect(7, seven)
	// With the key of another one, whatever name it gives itself, it is that other one.
	stolen := i.connect(7, eight)
	if err := stolen.Publish(t.Context(), heartbeat(t, 7)); !fault.Is(err, fault.Denied) {
		t.Errorf("agent 8 speaks as agent 7: %v", err)
	}
	own := i.connect(8, eight)
	if err := own.Publish(t.Context(), heartbeat(t, 8)); err != nil {
		t.Errorf("agent 8 speaks for itself: %v", err)
	}
	if err := own.Ready(); err != nil {
		t.Errorf("agent 8, with its own: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reading := make(chan error, 1)
	go func() {
		reading <- own.Consume(ctx, bus.AgentConsumer(7), func(context.Context, bus.Delivery) error { return nil }, nil)
	}()
	wait.For(t, "the connection is denied", func() bool { return fault.Is(own.Ready(), fault.Denied) })
	stop()
	if err := <-reading; err != nil {
		t.Error(err)
	}
}

func TestARevokedKeyIsCutOffAndOpensNothing(t *testing.T) {
	t.Parallel()
	i := install(t)
	old, oldFile := i.key(7, 1)
	_, newFile := i.key(7, 2)
	before, after := i.connect(7, oldFile), i.connect(7, newFile) // both are good while a key is replaced
	if before.Ready() != nil || after.Ready() != nil {
		t.Fatalf("two keys: %v, %v", before.Ready(), after.Ready())
	}
	i.revoke(old)
	wait.For(t, "the connection is not ready", func() bool { return before.Ready() != nil })
	if _, err := bus.Connect(t.Context(), i.config(7, oldFile), bustest.Log(t)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("with a revoked key: %v", err)
	}
	if err := after.Ready(); err != nil {
		t.Errorf("with the key that is good: %v", err)
	}
}

func TestNobodyElseIsLetIn(t *testing.T) {
	t.Parallel()
	i := install(t)
	_, seed := i.key(7, 1)
	i.connect(7, seed) // the authority answers
	public, _, err := bus.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for what, option := range map[string]nats.Option{
		"no credential":               nats.Name("nobody"),
		"a service's name":            nats.UserInfo(bus.UserDomain, "guessed"),
		"an agent's name":             nats.UserInfo(bus.RelayUser(7), "guessed"),
		"a token":                     nats.Token("guessed"),
		"a key that nobody has":       nats.Nkey(public, func([]byte) ([]byte, error) { return make([]byte, 64), nil }),
		"a public key without a seed": nats.Nkey(i.anyKey(), func([]byte) ([]byte, error) { return make([]byte, 64), nil }),
	} {
		if nc, err := nats.Connect(i.url, option); err == nil {
			nc.Close()
			t.Errorf("%s: let in", what)
		}
	}
}

// anyKey is the public half of one that is good: it is no secret.
func (i *installation) anyKey() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	for public := range i.keys {
		return public
	}
	return ""
}

// TestEveryDoorWithAnAgentsKey: an agent that the authority lets in may do at each subject what the table says of it, and nothing of
// another's.
func TestEveryDoorWithAnAgentsKey(t *testing.T) {
	t.Parallel()
	i := install(t)
	doors := bustest.Doors(t, 7, 8)
	for _, agent := range []int64{7, 8} {
		_, seedFile := i.key(agent, agent)
		i.connect(agent, seedFile) // the authority answers
		option, err := nats.NkeyOptionFromSeed(seedFile)
		if err != nil {
			t.Fatal(err)
		}
		var nc *nats.Conn
		wait.For(t, "a connection with the key", func() bool { // a busy server may time out before the authority has answered
			nc, err = nats.Connect(i.url, option)
			return err == nil
		})
		t.Cleanup(nc.Close)
		bustest.Try(t, nc, bus.RelayUser(agent), doors)
	}
}
