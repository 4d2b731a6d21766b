package natsserver_test

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
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
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
	s := start(t, natsserver.Config{Users: []natsserver.User{{Name: bus.RelayUser(42), NKey: public}}})
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
		"$JS.API.STREAM.DELETE.CLUSTER_CALLS", "$JS.API.STREAM.PURGE.CLUSTER_CALLS", "$JS.API.STREAM.MSG.GET.CLUSTER_CALLS",
		"$JS.API.DIRECT.GET.CLUSTER_CALLS",
		"$JS.API.CONSUMER.DELETE.CLUSTER_CALLS.agent-42", "$JS.API.CONSUMER.DELETE.CLUSTER_CALLS.agent-43", "$JS.API.STREAM.LIST", "$JS.API.INFO",
		"$SYS.REQ.SERVER.PING", "cd.cluster.42.call", "_INBOX_workflow.x", "_INBOX_relay-43.x",
	}
	subscribe := []string{
		">", "*", "cd.>", "cd.cluster.>", "cd.cluster.42.call", "cd.cluster.42.*", "cd.cluster.43.call", "_INBOX.>",
		"_INBOX_*.>", "$JS.>", "$SYS.>",
	}
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
