// Package natscluster runs a cluster of real NATS servers for one test: a process for each, with TLS, the users of an installation, and
// every write synced. A test kills a server as kill -9 does, empties its disk, and cuts the connections between servers.
//
// Each server is the test's own program, started again: its TestMain calls Main first.
package natscluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// nodeVariable holds the configuration of a server, in the process that is one.
const nodeVariable = "LOCKSTEP_NATS_NODE"

// Main is a server, in a process that Start has started, until that is killed or its parent has ended; elsewhere it returns at once.
func Main() {
	encoded := os.Getenv(nodeVariable)
	if encoded == "" {
		return
	}
	var c natsserver.Config
	if err := json.Unmarshal([]byte(encoded), &c); err != nil {
		fail(err)
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if _, err := natsserver.Start(c); err != nil {
		fail(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has ended
	os.Exit(0)                           //nolint:forbidigo // this process is the server
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "nats server:", err)
	os.Exit(1) //nolint:forbidigo // this process is the server
}

// Admin is a user who may do everything; its password is its name.
const Admin = "admin"

// Cluster is a cluster that lives as long as its test.
type Cluster struct {
	// TLS are the certificates for clients, and for the routes between the servers.
	TLS   certs.Files
	log   *slog.Logger
	nodes []*node
	// links are the connections that a server makes to those before it, by their indexes.
	links [][]*link
	js    jetstream.JetStream
}

// node is one server. Its process is nil while it does not run.
type node struct {
	config  natsserver.Config
	process *exec.Cmd
	stdin   io.Closer
	output  *os.File
}

// startWithin is how long a cluster may take to have a leader, on a busy machine.
const startWithin = 2 * time.Minute

// Start starts a cluster of so many servers. Server n has the tag "server:n".
func Start(tb testing.TB, servers int) *Cluster {
	tb.Helper()
	dir := tb.TempDir()
	c := &Cluster{
		TLS: certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")},
		log: bustest.Log(tb),
	}
	certstest.New(tb).Write(tb, c.TLS)
	users := append(bustest.Users(), bustest.Unrestricted(Admin))
	for i := range servers {
		c.nodes = append(c.nodes, &node{config: natsserver.Config{
			StoreDir: filepath.Join(dir, "server-"+strconv.Itoa(i)), Port: freePort(tb), Users: users, SyncAlways: true,
			TLS:     certs.Files{Cert: c.TLS.Cert, Key: c.TLS.Key},
			Cluster: &natsserver.Cluster{Name: name(i), Port: freePort(tb), TLS: c.TLS, Tags: []string{"server:" + strconv.Itoa(i)}},
		}})
	}
	for i, from := range c.nodes {
		c.links = append(c.links, make([]*link, servers))
		for j, to := range c.nodes {
			switch {
			case i > j:
				c.links[i][j] = newLink(tb, net.JoinHostPort("127.0.0.1", strconv.Itoa(to.config.Cluster.Port)))
				from.config.Cluster.Routes = append(from.config.Cluster.Routes, c.links[i][j].address())
			case i < j:
				// Of two servers the later one connects to the other: had both, over different addresses, they might give both up. How many
				// there are a server knows by its routes.
				from.config.Cluster.Routes = append(from.config.Cluster.Routes, net.JoinHostPort("127.0.0.1", strconv.Itoa(j)))
			}
		}
	}
	for i := range c.nodes {
		c.Run(tb, i)
		tb.Cleanup(func() { c.Kill(tb, i) })
	}
	c.connectAdmin(tb)
	return c
}

func name(i int) string { return "server-" + strconv.Itoa(i) }

func freePort(tb testing.TB) int {
	tb.Helper()
	_, number, err := net.SplitHostPort(porttest.FreeAddress(tb))
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

func (c *Cluster) connectAdmin(tb testing.TB) {
	tb.Helper()
	options, err := bus.TLSOptions(certs.Files{CA: c.TLS.CA}, c.log)
	if err != nil {
		tb.Fatal(err)
	}
	options = append(options, nats.UserInfo(Admin, Admin), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(10*time.Second))
	nc, err := nats.Connect(c.URL(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	if c.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second)); err != nil {
		tb.Fatal(err)
	}
	// Until the servers have a leader none of them answers.
	wait.Within(tb, startWithin, "the cluster has a leader", func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Second)
		defer cancel()
		_, err := c.js.AccountInfo(ctx)
		return err == nil
	})
}

// URL is where clients connect: all servers.
func (c *Cluster) URL() string { return c.URLOf(slices.Collect(indexes(len(c.nodes)))...) }

// URLOf is the address of some of the servers.
func (c *Cluster) URLOf(servers ...int) string {
	urls := make([]string, len(servers))
	for i, n := range servers {
		urls[i] = "tls://127.0.0.1:" + strconv.Itoa(c.nodes[n].config.Port)
	}
	return strings.Join(urls, ",")
}

func indexes(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// Config is how a user connects.
func (c *Cluster) Config(user string, layout bus.Layout) bus.Config {
	return bus.Config{URL: c.URL(), User: user, Password: user, Name: user, TLS: certs.Files{CA: c.TLS.CA}, Layout: layout}
}

// Connect is a connection of a user, closed at the end of the test.
func (c *Cluster) Connect(tb testing.TB, config bus.Config) *bus.Conn {
	tb.Helper()
	conn, err := bus.Connect(tb.Context(), config, c.log.With("user", config.User))
	if err != nil {
		tb.Fatalf("connect to nats as %s: %v", config.User, err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// Run starts a server that does not run.
func (c *Cluster) Run(tb testing.TB, server int) {
	tb.Helper()
	n := c.nodes[server]
	encoded, err := json.Marshal(n.config)
	if err != nil {
		tb.Fatal(err)
	}
	n.process = exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec,noctx // this test itself; it ends with the test
	n.process.Env = append(os.Environ(), nodeVariable+"="+string(encoded), "GOMAXPROCS=1")
	if n.output, err = os.OpenFile(n.config.StoreDir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		tb.Fatal(err)
	}
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if n.stdin, err = n.process.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := n.process.Start(); err != nil {
		tb.Fatalf("start nats: %v", err)
	}
}

// Kill ends a server as kill -9 does. It may have ended already.
func (c *Cluster) Kill(tb testing.TB, server int) {
	tb.Helper()
	n := c.nodes[server]
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill()
	_ = n.process.Wait()
	_ = n.stdin.Close()
	_ = n.output.Close()
	n.process = nil
	if tb.Failed() {
		if text, err := os.ReadFile(n.config.StoreDir + ".log"); err == nil {
			tb.Logf("output of %s:\n%s", name(server), text[max(0, len(text)-8<<10):])
		}
	}
}

// Wipe kills a server and deletes all that it has stored.
func (c *Cluster) Wipe(tb testing.TB, server int) {
	tb.Helper()
	c.Kill(tb, server)
	if err := os.RemoveAll(c.nodes[server].config.StoreDir); err != nil {
		tb.Fatal(err)
	}
}

// Split cuts all connections between servers of different groups, until Heal. Clients stay connected.
func (c *Cluster) Split(groups ...[]int) {
	of := make([]int, len(c.nodes))
	for group, servers := range groups {
		for _, server := range servers {
			of[server] = group
		}
	}
	for i := range c.links {
		for j, l := range c.links[i] {
			if l != nil {
				l.cut(of[i] != of[j])
			}
		}
	}
}

// Heal restores all connections.
func (c *Cluster) Heal() { c.Split() }

// Info is a stream as the cluster sees it; nil while it has no leader.
func (c *Cluster) Info(tb testing.TB, stream string) *jetstream.StreamInfo {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Second)
	defer cancel()
	found, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil
	}
	return found.CachedInfo()
}

// JetStream is that of the user Admin.
func (c *Cluster) JetStream() jetstream.JetStream { return c.js }

// Leader is the server that leads a stream. It waits until there is one.
func (c *Cluster) Leader(tb testing.TB, stream string) int {
	tb.Helper()
	leader := -1
	wait.For(tb, stream+" has a leader", func() bool {
		if info := c.Info(tb, stream); info != nil && info.Cluster != nil {
			leader = slices.IndexFunc(slices.Collect(indexes(len(c.nodes))), func(i int) bool { return name(i) == info.Cluster.Leader })
		}
		return leader >= 0
	})
	return leader
}

// Current reports whether all servers have all of a stream.
func (c *Cluster) Current(tb testing.TB, stream string) bool {
	tb.Helper()
	info := c.Info(tb, stream)
	if info == nil || info.Cluster == nil || len(info.Cluster.Replicas) != info.Config.Replicas-1 {
		return false
	}
	return !slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return p.Offline || !p.Current })
}
