package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/bustest"
	"github.com/lockstep-cd/lockstep/pkg/bus/server"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// key makes a key: its public half, and a file with the seed.
func key(t *testing.T) (public, seedFile string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	seedFile = filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return public, seedFile
}

// thief is a client that has an agent's key and no scruples. denied takes what the server refuses.
func thief(t *testing.T, url, seedFile string) (nc *nats.Conn, denied chan error) {
	t.Helper()
	option, err := nats.NkeyOptionFromSeed(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	denied = make(chan error, 100)
	nc, err = nats.Connect(url, option, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, denied
}

// A stolen key of agent 42 is tried on every subject that anybody has: what is not in agent 42's own list is refused, and so
// are the wildcards above it. It can neither read nor answer for another agent.
func TestAStolenKeyOpensNothingButItsOwnAgent(t *testing.T) {
	t.Parallel()
	public, seedFile := key(t)
	s := start(t, server.Config{Users: []server.User{{Name: bus.RelayUser(42), NKey: public}}})
	nc, denied := thief(t, s.URL(), seedFile)
	refused := func(attempt func() error) bool {
		t.Helper()
		if err := attempt(); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil { // the server has looked at it by now
			t.Fatal(err)
		}
		// The client has read the refusal by now, and hands it over in another goroutine.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		select {
		case err := <-denied:
			return strings.Contains(strings.ToLower(err.Error()), "permissions violation")
		case <-ctx.Done():
			return false
		}
	}
	own := map[string]bool{}
	ownPublish, ownSubscribe := bus.Permissions(bus.RelayUser(42))
	for _, subject := range append(ownPublish, ownSubscribe...) {
		own[subject] = true
	}
	// Every list of every user, with all placeholders filled in for a publication, and the streams' own interface beside.
	publish := []string{
		"$JS.API.STREAM.DELETE.CLUSTER_CALLS", "$JS.API.STREAM.PURGE.CLUSTER_CALLS", "$JS.API.STREAM.MSG.GET.CLUSTER_CALLS", "$JS.API.DIRECT.GET.CLUSTER_CALLS",
		"$JS.API.CONSUMER.DELETE.CLUSTER_CALLS.agent-42", "$JS.API.CONSUMER.DELETE.CLUSTER_CALLS.agent-43", "$JS.API.STREAM.LIST", "$JS.API.INFO",
		"$SYS.REQ.SERVER.PING", "cd.cluster.42.call", "_INBOX_workflow.x", "_INBOX_relay-43.x",
	}
	subscribe := []string{">", "*", "cd.>", "cd.cluster.>", "cd.cluster.42.call", "cd.cluster.42.*", "cd.cluster.43.call", "_INBOX.>", "_INBOX_*.>", "$JS.>", "$SYS.>"}
	for _, user := range []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow, bus.RelayUser(43)} {
		p, sub := bus.Permissions(user)
		publish, subscribe = append(publish, p...), append(subscribe, sub...)
	}
	for _, subject := range publish {
		filled := strings.ReplaceAll(strings.ReplaceAll(subject, "*", "43"), ">", "x")
		if !own[subject] && !refused(func() error { return nc.Publish(filled, []byte("x")) }) {
			t.Errorf("agent 42 may publish on %s", filled)
		}
	}
	for _, subject := range subscribe {
		if own[subject] {
			continue
		}
		if !refused(func() error { _, err := nc.SubscribeSync(subject); return err }) {
			t.Errorf("agent 42 may subscribe to %s", subject)
		}
	}
}

// Revoking and rotating take effect at once, for that agent and for no other.
func TestARevokedKeyIsCutOffAtOnce(t *testing.T) {
	t.Parallel()
	first, firstSeed := key(t)
	second, secondSeed := key(t)
	other, otherSeed := key(t)
	keys := func(of42 ...string) []server.User {
		users := []server.User{{Name: bus.RelayUser(43), NKey: other}, {Name: bus.UserWorkflow, Password: "secret"}}
		for _, public := range of42 {
			users = append(users, server.User{Name: bus.RelayUser(42), NKey: public})
		}
		return users
	}
	s := start(t, server.Config{Users: keys(first)})
	connect := func(agent int64, seedFile string) (*bus.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return bus.Connect(ctx, bus.Config{URL: s.URL(), User: bus.RelayUser(agent), NKeySeedFile: seedFile}, bustest.Log(t))
	}
	stolen, _ := thief(t, s.URL(), firstSeed)
	cutOff := make(chan struct{})
	stolen.SetClosedHandler(func(*nats.Conn) { close(cutOff) })
	stolen.SetDisconnectErrHandler(func(*nats.Conn, error) {})
	bystander, err := connect(43, otherSeed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bystander.Close)

	if err := s.SetUsers(keys(first, second)); err != nil { // rotation: both, until the relay has the new one
		t.Fatal(err)
	}
	rotated, err := connect(42, secondSeed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rotated.Close)
	if err := s.SetUsers(keys(second)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-cutOff:
	case <-ctx.Done():
		t.Fatal("the revoked key still has its connection")
	}
	if _, err := connect(42, firstSeed); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the revoked key logs in again: %v", err)
	}
	if bystander.Ready() != nil || rotated.Ready() != nil {
		t.Errorf("others were cut off, too: %v, %v", bystander.Ready(), rotated.Ready())
	}
	if err := s.SetUsers([]server.User{{Name: "admin"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a user without permissions: %v", err)
	}
}
