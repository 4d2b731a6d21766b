package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// maxAnswered is how many bytes a NATS server may send on one connection. An acknowledgement has a few hundred.
	maxAnswered = 256 << 10
	// maxInfo is how long the line may be with which a server begins.
	maxInfo = 64 << 10
	// maxDigits is how many digits the size of a message may have that a server sends.
	maxDigits = 6
)

// guardedDialer connects to one address, whatever a server says of others, and to no network that is not permitted. It encrypts the
// connection itself, so that it sees what the server sends in plain: the library keeps lines of any length, and makes room for a message
// of any size as soon as it is announced.
type guardedDialer struct {
	ctx     context.Context //nolint:containedctx // the interface has none
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	address string
	secure  *tls.Config
	// plain permits a server that offers no encryption, and first is to encrypt before the server says anything.
	plain, first bool
	// refuse ends ctx with the reason why the server is not spoken to any more.
	refuse context.CancelCauseFunc
}

// SkipTLSHandshake reports that connections are encrypted when they are made.
func (guardedDialer) SkipTLSHandshake() bool { return true }

// Dial connects to the address.
func (d guardedDialer) Dial(network, _ string) (net.Conn, error) {
	conn, err := d.dial(d.ctx, network, d.address)
	if err != nil {
		return nil, err
	}
	// A server that says nothing must not hold the connection.
	stop := context.AfterFunc(d.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	bounded := &boundedConn{Conn: conn, stop: stop, refuse: d.refuse, from: d.address}
	if err := d.encrypt(bounded); err != nil {
		_ = bounded.Close()
		return nil, err
	}
	return bounded, nil
}

// encrypt encrypts a connection at once, or once the server has said that it can be.
func (d guardedDialer) encrypt(c *boundedConn) error {
	if !d.first {
		info, err := firstLine(c.Conn)
		if err != nil {
			return err
		}
		var offer struct {
			Required  bool `json:"tls_required"`
			Available bool `json:"tls_available"`
		}
		content, isInfo := bytes.CutPrefix(info, []byte("INFO "))
		if !isInfo || json.Unmarshal(content, &offer) != nil {
			return nats.ErrNoInfoReceived
		}
		c.before = info
		if d.plain && !offer.Required {
			return nil
		}
		if !offer.Required && !offer.Available {
			return nats.ErrSecureConnWanted
		}
	}
	encrypted := tls.Client(c.Conn, d.secure)
	c.Conn = encrypted
	return encrypted.HandshakeContext(d.ctx)
}

// firstLine reads what a server says before it waits for its client.
func firstLine(from io.Reader) (line []byte, err error) {
	part := make([]byte, 4<<10)
	for len(line) < maxInfo {
		n, err := from.Read(part)
		line = append(line, part[:n]...)
		switch at := bytes.IndexByte(line, '\n'); {
		case at >= 0 && at == len(line)-1:
			return line, nil
		case at >= 0: // nothing may be in plain behind it
			return nil, nats.ErrNoInfoReceived
		case err != nil:
			return nil, err
		}
	}
	return nil, nats.ErrNoInfoReceived
}

// boundedConn ends when its server sends too much, or announces a message that is too large. It forgets its context when it is closed.
type boundedConn struct {
	net.Conn

	stop   func() bool
	refuse context.CancelCauseFunc
	from   string
	// before was read already.
	before []byte
	// received counts bytes, and digits those of the number that they end with, which white space is before; negative within another word.
	received, digits int
}

// errTooMuch ends a connection.
var errTooMuch = errors.New("the server sends too much")

// Read reads what the server sends, as long as it is within the bounds.
func (c *boundedConn) Read(p []byte) (int, error) {
	if len(c.before) > 0 {
		n := copy(p, c.before)
		c.before = c.before[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.received += n
	if c.received > maxAnswered {
		c.refuse(fault.New(fault.Refused, "%s sends more than %d bytes; expected an acknowledgement", c.from, maxAnswered))
		return 0, errTooMuch
	}
	for _, b := range p[:n] {
		switch {
		case b == ' ' || b == '\t' || b == '\r' || b == '\n':
			c.digits = 0
		case b < '0' || b > '9' || c.digits < 0:
			c.digits = -1
		default:
			c.digits++
		}
		if c.digits > maxDigits {
			c.refuse(fault.New(fault.Refused, "%s announces a message of a size of more than %d digits; expected an acknowledgement", c.from, maxDigits))
			return 0, errTooMuch
		}
	}
	return n, err
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
