// Package natsserver runs a NATS server with JetStream inside this process, for development, demonstrations and tests: the real
// server as a library, with the users and permissions of an installation.
//
// It is a single server, or a member of a cluster (Cluster).
package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Config is what a server needs. The zero value but for StoreDir is a server on a free port of the loopback address that
// nobody can log in to.
type Config struct {
	// StoreDir holds the streams. A folder that is gone is an empty store.
	StoreDir string
	// Host is the address to listen on, 127.0.0.1 by default.
	Host string
	// Port 0 is any free one.
	Port int
	// Users may log in, each with the permissions that bus.Permissions gives its name.
	Users []User
	// Authority, where it is given, says who else may log in.
	Authority *Authority
	// SyncAlways writes to disk before it confirms (D44); without, up to two minutes of messages die with the machine.
	SyncAlways bool
	// TLS are the certificates of a server that takes only encrypted connections, and with an authority only from those whom it
	// vouches for; without any it speaks plain text.
	TLS certs.Files
	// Cluster makes the server a member of a cluster; nil for a server by itself.
	Cluster *Cluster
	// Log receives the server's warnings and errors; nil discards them.
	Log *slog.Logger `json:"-"`
}

// Cluster is what a member of a cluster needs beside what a single server does.
type Cluster struct {
	// Name is the server's own, unique in the cluster; the store folder belongs to it.
	Name string
	// Port is where the others connect to, on the same host as clients; Routes are where this one connects to them, host:port.
	Port   int
	Routes []string
	// TLS are the certificates of both ends of the routes; none for plain text.
	TLS certs.Files
	// Tags are what streams may be placed by.
	Tags []string
}

// Authority authenticates every client that is not among the users (auth callout): the public halves of
// authority.Identity.
type Authority struct {
	Issuer, User string
}

// User is a login.
type User struct {
	// Name decides about permissions.
	Name, Password string
	// NKey is the public key of the user, in place of a password.
	NKey string
	// Unrestricted may do everything, whatever its name: for operators and tests.
	Unrestricted bool
}

// Server is a running server.
type Server struct {
	ns *server.Server
}

const (
	readyWithin = 30 * time.Second
	readyPoll   = 50 * time.Millisecond
	// tlsWithin is how long a handshake may take: the server's own two seconds are short on a busy machine.
	tlsWithin = 10 * time.Second
	// clusterStore is what a member of a cluster says that it can store: more than the streams of Lockstep reserve.
	clusterStore = 8 << 30
	// maxPayload leaves room for a manifest in an answer; the server advises against more than 8 MiB.
	maxPayload = 8 << 20
)

// Start starts a server and returns once it takes connections.
func Start(c Config) (*Server, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("configure nats: %w", err)
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	fatal := make(chan string, 1)
	ns.SetLoggerV2(logger{log, fatal}, false, false, false)
	ns.Start()
	if err := awaitReady(ns, fatal); err != nil {
		ns.Shutdown()
		return nil, fmt.Errorf("start nats on %s:%d: %w", options.Host, options.Port, err)
	}
	if !ns.JetStreamEnabled() {
		ns.Shutdown()
		return nil, errors.New("start nats: jetstream did not start, see the log")
	}
	return &Server{ns: ns}, nil
}

// awaitReady waits until the server takes connections, or says why it never will: it would end the process then, if it
// had one of its own.
func awaitReady(ns *server.Server, fatal <-chan string) error {
	for range readyWithin / readyPoll {
		if ns.ReadyForConnections(readyPoll) {
			return nil
		}
		select {
		case why := <-fatal:
			return errors.New(why)
		default:
		}
	}
	return fmt.Errorf("not ready within %v", readyWithin)
}

func (c Config) options() (*server.Options, error) {
	if c.StoreDir == "" {
		return nil, fault.InvalidFields(fault.Field{Name: "store_dir", Problem: "missing; expected a folder for the streams"})
	}
	o := &server.Options{
		ServerName: "lockstep", Host: c.Host, Port: c.Port, NoSigs: true, MaxPayload: maxPayload,
		JetStream: true, StoreDir: c.StoreDir, SyncAlways: c.SyncAlways, NoSystemAccount: c.Authority == nil,
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	for _, u := range c.Users {
		if u.Unrestricted {
			o.Users = append(o.Users, &server.User{Username: u.Name, Password: u.Password})
			continue
		}
		publish, subscribe := bus.Permissions(u.Name)
		if publish == nil {
			return nil, fault.InvalidFields(fault.Field{
				Name:    "users",
				Problem: fmt.Sprintf("found %q, expected registry, domain, workflow or relay-<agent id>", u.Name),
			})
		}
		permissions := &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
			// One answer to each request that has been received, wherever its sender wants it.
			Response: &server.ResponsePermission{MaxMsgs: 1, Expires: bus.AnswerWithin},
		}
		if u.NKey != "" {
			o.Nkeys = append(o.Nkeys, &server.NkeyUser{Nkey: u.NKey, Permissions: permissions})
			continue
		}
		o.Users = append(o.Users, &server.User{Username: u.Name, Password: u.Password, Permissions: permissions})
	}
	if c.Authority != nil {
		c.Authority.configure(o)
	}
	if c.TLS.Given() {
		log := c.Log
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		secured, err := c.TLS.Server(log)
		if err != nil {
			return nil, fmt.Errorf("certificates of nats: %w", err)
		}
		o.TLS, o.TLSConfig, o.TLSTimeout = true, secured, tlsWithin.Seconds()
	}
	if c.Cluster != nil {
		if err := c.cluster(o); err != nil {
			return nil, err
		}
	}
	if o.Users == nil && o.Nkeys == nil { // without any user the server would let everybody in
		o.Authorization = "nobody knows this " + c.StoreDir
	}
	return o, nil
}

// cluster makes the server a member.
func (c Config) cluster(o *server.Options) error {
	o.ServerName, o.Tags, o.NoSystemAccount = c.Cluster.Name, c.Cluster.Tags, false
	o.JetStreamMaxStore = clusterStore
	o.Cluster = server.ClusterOpts{
		Name: "lockstep", Host: o.Host, Port: c.Cluster.Port, NoAdvertise: true,
		// Servers gossip about those that they are connected to: here each knows its ways to the others.
		Advertise: "127.0.0.1:1",
	}
	for _, route := range c.Cluster.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: route})
	}
	if !c.Cluster.TLS.Given() {
		return nil
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	secured, err := c.Cluster.TLS.Server(log)
	if err != nil {
		return fmt.Errorf("certificates of the routes of nats: %w", err)
	}
	client, err := c.Cluster.TLS.Client(log)
	if err != nil {
		return fmt.Errorf("certificates of the routes of nats: %w", err)
	}
	current := client.Config("")
	secured.RootCAs, secured.Certificates = current.RootCAs, current.Certificates
	o.Cluster.TLSConfig, o.Cluster.TLSTimeout = secured, tlsWithin.Seconds()
	return nil
}

// configure makes the server ask the authority, which lives in the system account, about everybody whom it does not know.
func (a Authority) configure(o *server.Options) {
	system := server.NewAccount(systemAccount)
	publish, subscribe := authority.Permissions()
	o.Accounts, o.SystemAccount = append(o.Accounts, system), systemAccount
	o.Nkeys = append(o.Nkeys, &server.NkeyUser{Nkey: a.User, Account: system, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
		Response: &server.ResponsePermission{MaxMsgs: 1, Expires: bus.AnswerWithin},
	}})
	o.AuthCallout = &server.AuthCallout{Issuer: a.Issuer, Account: systemAccount, AuthUsers: []string{a.User}}
	for _, u := range o.Users {
		o.AuthCallout.AuthUsers = append(o.AuthCallout.AuthUsers, u.Username)
	}
	for _, u := range o.Nkeys {
		o.AuthCallout.AuthUsers = append(o.AuthCallout.AuthUsers, u.Nkey)
	}
}

// systemAccount is the account of servers among themselves, as they call it.
const systemAccount = "$SYS"

// URL is where clients connect.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Shutdown ends the server and waits until its store is closed.
func (s *Server) Shutdown() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}
