package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config says where the server is and who we are.
type Config struct {
	// URL is one address or several, separated by commas: nats://host:4222.
	URL string
	// User and Password log in. User also names the inbox that replies come to, which permissions refer to; it is needed
	// for that with a key as well.
	User, Password string
	// NKeySeedFile logs in with a key in place of a password.
	NKeySeedFile string
	// TLS are the certificates of a server with TLS, and ours for one that asks for it. Without any, a server that wants TLS is
	// checked against the system's. With some, one that offers no TLS is refused.
	TLS certs.Files
	// Name shows up in the server's list of connections.
	Name string
	// Layout is how the streams are laid out that this connection makes.
	Layout Layout
	// Background has Connect answer at once; the connection is made as soon as the server is available. Until then, and with
	// credentials that the server refuses, Ready reports that there is none, and the log says why.
	Background bool
}

// CheckURL validates a Config.URL; member names it in problems. It never repeats the whole value, which may hold a
// password.
func CheckURL(member, addresses string) []fault.Field {
	for address := range strings.SplitSeq(addresses, ",") {
		scheme, host, found := strings.Cut(strings.TrimSpace(address), "://")
		switch {
		case !found: // a host, perhaps with a port, or the default
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme):
			return []fault.Field{{Name: member, Problem: fmt.Sprintf("found an address that begins with %q, expected nats://, tls://, ws:// or wss://", scheme+"://")}}
		case host == "":
			return []fault.Field{{Name: member, Problem: fmt.Sprintf("found %q alone, expected a host behind it", scheme+"://")}}
		}
	}
	return nil
}

// Conn is a connection. It is safe for concurrent use.
type Conn struct {
	user   string
	layout Layout
	log    *slog.Logger
	clock  clock.Clock
	nc     *nats.Conn
	js     jetstream.JetStream
	denied denials
	keeper keeper
	back   listeners // called when the connection is back
	// notified is the connection of which they were notified, counted as the library does.
	notified atomic.Uint64
	takes    batchTakers
	close    func()
	// refusal is why the last attempt to connect failed.
	refusal atomic.Value
	// silent is how long the server has left everything of a kind unanswered.
	silent struct{ api, publish silence }
	// lost is when an established connection was lost, zero while there is one, and before the first.
	lost atomic.Int64
}

const (
	connectWithin = 2 * time.Second
	reconnectWait = 200 * time.Millisecond
	pingInterval  = 10 * time.Second
	apiWithin     = 5 * time.Second
	lookWithin    = 2 * time.Second
	// awayAfter is how long a connection that is lost may take to be restored, at another server of the cluster, until Ready reports it.
	awayAfter = 3 * time.Second
)

// Connect waits until the server can be reached, or ctx ends, unless that is to be done in the background. Wrong credentials are
// Unauthenticated at once. From then on the connection restores itself, for as long as it takes, until Close.
func Connect(ctx context.Context, c Config, log *slog.Logger) (*Conn, error) {
	conn := &Conn{user: c.User, layout: c.Layout, log: log, clock: clock.System(), keeper: newKeeper()}
	options, err := conn.options(c)
	if err != nil {
		return nil, err
	}
	if c.Background {
		conn.nc, err = nats.Connect(c.URL, append(options, nats.RetryOnFailedConnect(true), nats.ConnectHandler(conn.onReconnect))...)
		err = classifyConnect(err, c.URL)
	} else {
		conn.nc, err = dial(ctx, c.URL, options, log)
	}
	if err != nil {
		return nil, err
	}
	conn.js, err = jetstream.New(conn.nc, jetstream.WithDefaultTimeout(apiWithin))
	if err != nil {
		conn.nc.Close()
		return nil, fmt.Errorf("set up jetstream: %w", err)
	}
	// The keeper lives as long as the connection, which may be longer than the call that made it.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { conn.keep(keeping) })
	conn.close = func() {
		stop()
		wg.Wait()
		conn.nc.Close()
	}
	return conn, nil
}

func (c *Conn) options(cfg Config) ([]nats.Option, error) {
	inbox := "_INBOX"
	if cfg.User != "" {
		inbox += "_" + cfg.User
	}
	options := []nats.Option{
		nats.Name(cfg.Name), nats.CustomInboxPrefix(inbox), nats.Timeout(connectWithin),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.IgnoreAuthErrorAbort(),
		// What cannot be sent now is an error now, never sent later behind the sender's back.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(c.onDisconnect), nats.ReconnectHandler(c.onReconnect), nats.ReconnectErrHandler(c.onReconnectError),
		nats.ErrorHandler(c.onError),
	}
	if cfg.NKeySeedFile != "" {
		key, err := nats.NkeyOptionFromSeed(cfg.NKeySeedFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "nats: key seed file %s: %w", cfg.NKeySeedFile, err)
		}
		options = append(options, key)
	} else if cfg.User != "" {
		options = append(options, nats.UserInfo(cfg.User, cfg.Password))
	}
	secure, err := TLSOptions(cfg.TLS, c.log)
	return append(options, secure...), err
}

// TLSOptions are those of a connection with these certificates, none for none. Each attempt to connect looks at the files anew.
func TLSOptions(files certs.Files, log *slog.Logger) ([]nats.Option, error) {
	if !files.Given() {
		return nil, nil
	}
	client, err := files.Client(log)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	now := func() *tls.Config { return client.Config("") }
	certificate := nats.TLSCertHandler(nil)
	if files.Cert != "" {
		certificate = func() (tls.Certificate, error) { return now().Certificates[0], nil }
	}
	return []nats.Option{nats.ClientTLSConfig(certificate, func() (*x509.CertPool, error) { return now().RootCAs, nil })}, nil
}

// dial tries until it succeeds, since services and server start together.
func dial(ctx context.Context, url string, options []nats.Option, log *slog.Logger) (*nats.Conn, error) {
	retry := newBackoff(reconnectWait, 2*time.Second)
	for {
		nc, err := nats.Connect(url, options...)
		switch {
		case err == nil:
			return nc, nil
		case isRefusal(err):
			return nil, classifyConnect(err, url)
		case !errors.Is(err, nats.ErrNoServers) && !errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil:
			log.WarnContext(ctx, "nats not reached", telemetry.KeyAddress, url, telemetry.KeyError, err)
		}
		if retry.wait(ctx, clock.System()) != nil {
			return nil, classifyConnect(err, url)
		}
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked)
}

// classifyConnect is why a connection cannot be made.
func classifyConnect(err error, url string) error {
	switch {
	case err == nil:
		return nil
	case isRefusal(err):
		return fault.Because(err, fault.Unauthenticated, "nats at %s does not accept our credentials", url)
	default:
		return fault.Because(err, fault.Unavailable, "nats at %s cannot be reached", url)
	}
}

// onReconnectError logs why an attempt to connect failed, once for each reason: attempts are many while a server is away.
func (c *Conn) onReconnectError(_ *nats.Conn, err error) {
	if why := err.Error(); c.refusal.Swap(why) != why {
		c.log.WarnContext(context.Background(), "nats not reached", telemetry.KeyError, err)
	}
}

func (c *Conn) onDisconnect(_ *nats.Conn, err error) {
	c.lost.CompareAndSwap(0, c.clock.Now().UnixNano())
	if err != nil {
		c.log.WarnContext(context.Background(), "nats disconnected", telemetry.KeyError, err)
	}
}

// onReconnect has the topology looked after: the server may have come back empty, or with other permissions. It may be called before
// Connect has the connection, so it uses the one that it is given.
func (c *Conn) onReconnect(nc *nats.Conn) {
	c.log.InfoContext(context.Background(), "nats connected")
	c.refusal.Store("")
	c.lost.Store(0)
	c.denied.forget()
	c.keeper.nudge()
	connection := nc.Stats().Reconnects
	c.back.call()
	c.notified.Store(connection)
}

func (c *Conn) onError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if denial := c.denied.report(c.user, err); denial != nil {
		c.log.ErrorContext(context.Background(), "nats denied", telemetry.KeyError, denial)
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	c.log.WarnContext(context.Background(), "nats error", telemetry.KeySubject, subject, telemetry.KeyError, err)
}

// Connected reports whether there is a connection to a server, as far as is known.
func (c *Conn) Connected() bool { return c.connected() }

// Ready says why the bus cannot be used now: not connected, something denied since the connection was made, or streams
// and consumers that do not answer or could not be made again. It needs a quorum, not each server: a connection that moves to another
// server, and a stream that gets another leader, are not reported for as long as that takes a cluster.
func (c *Conn) Ready() error {
	if c.nc.Status() != nats.CONNECTED {
		if lost := c.lost.Load(); lost != 0 && c.clock.Now().Sub(time.Unix(0, lost)) < awayAfter {
			return nil
		}
		return fault.New(fault.Unavailable, "nats is not connected")
	}
	if err := c.denied.last(); err != nil {
		return err
	}
	return c.keeper.trouble(c.clock.Now())
}

// Close ends the connection. Consume calls should have ended before.
func (c *Conn) Close() { c.close() }
